"""An upstream that is the server itself, and base URLs that lead nowhere."""

from typing import Any

import pytest
from pydantic import ValidationError

from app.errors import NotReady
from app.server.supervise import asked_of_itself, check_upstreams
from app.settings import Settings
from tests.support.tables import each_of


@each_of(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:9000/v1"),
        ("127.0.0.1", "http://localhost:9000/v1"),
        ("localhost", "http://127.0.0.1:9000"),
        ("0.0.0.0", "http://[::1]:9000/v1"),
        ("::", "http://127.0.0.1:9000/v1"),
        ("10.0.0.1", "http://10.0.0.1:9000/v1"),
    ],
)
def test_an_upstream_that_is_this_server_itself_is_refused(host: str, url: str) -> None:
    settings = Settings(host=host, port=9000, upstream_base_url=url)
    assert asked_of_itself(settings) == [url]
    with pytest.raises(NotReady, match="is this server itself"):
        check_upstreams(settings)


def test_one_of_several_is_found_too() -> None:
    routes: list[Any] = [{"name": "a", "base_url": "http://a/v1"}, {"name": "b", "base_url": "http://127.0.0.1/v1/"}]
    assert asked_of_itself(Settings(host="127.0.0.1", port=80, upstreams=routes)) == ["http://127.0.0.1/v1"]


@each_of("url", ["http://127.0.0.1:9001/v1", "http://10.0.0.2:9000/v1", "https://127.0.0.1/v1", "http://mneme:9000/v1"])
def test_others_are_not(url: str) -> None:
    check_upstreams(Settings(host="127.0.0.1", port=9000, upstream_base_url=url))


@each_of("url", ["http://", "http://a:b/v1", "http://a:99999/v1", "http://a:0/v1", "ftp://a/v1", "a/v1"])
def test_a_base_url_that_leads_nowhere_is_refused_wherever_it_stands(url: str) -> None:
    given: list[dict[str, Any]] = [{"upstream_base_url": url}, {"upstreams": [{"name": "a", "base_url": url}]}]
    for each in given:
        with pytest.raises(ValidationError, match=r"must begin with|has no host"):
            Settings(**each)
