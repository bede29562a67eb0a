"""Where a request to /mcp may come from."""

from __future__ import annotations

import pytest

from app.api.origin import LOOPBACK, check_origin
from app.errors import BadHeader, Forbidden

ALLOWED = LOOPBACK | {"memory.example"}


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost", "[::1]:80", "[::1]", "Memory.Example:443"])
@pytest.mark.parametrize("origin", [None, "http://localhost:5173", "https://memory.example", "http://[::1]:1"])
def test_its_own_names_may_be_asked(host: str, origin: str | None) -> None:
    check_origin(host, origin, ALLOWED)


@pytest.mark.parametrize(
    "host",
    [None, "", "evil.example", "evil.example:8080", "127.0.0.1.evil.example", "127.0.0.1:x@evil.example", "[::1", "::1",
     "memory.example.", "a/memory.example", "memory.example\\@evil.example"],
)  # fmt: skip
def test_another_name_is_refused(host: str | None) -> None:
    with pytest.raises(BadHeader, match="MNEME_HOSTS"):
        check_origin(host, None, ALLOWED)


@pytest.mark.parametrize(
    "origin", ["null", "", "http://evil.example", "localhost", "http://localhost.evil.example", "http://localhost@evil.example",
               "http://[::1", "file://", "chrome-extension://abcdef"]
)  # fmt: skip
def test_a_page_of_another_site_is_refused(origin: str) -> None:
    with pytest.raises(Forbidden, match="MNEME_HOSTS"):
        check_origin("localhost", origin, ALLOWED)
