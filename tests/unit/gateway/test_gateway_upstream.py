from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr

from app.errors import NotFound, UpstreamError
from app.gateway.upstream import OPENAI_BASE_URL, Router, Target, UpstreamBroke, is_bodyless
from app.settings import Settings
from app.sources import UpstreamRoute
from tests.support.tables import each_of


def router(monkeypatch: pytest.MonkeyPatch, **given: Any) -> Router:
    for name in ("OPENAI_API_KEY", "MNEME_UPSTREAM_BASE_URL", "MNEME_UPSTREAM_API_KEY", "MNEME_UPSTREAMS"):
        monkeypatch.delenv(name, raising=False)
    return Router.from_settings(Settings(_env_file=None, **given))


def test_the_configured_upstream_serves_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    made = router(
        monkeypatch,
        upstream_base_url="http://up:1/v1/",
        upstream_api_key=SecretStr("sk-own"),
        openai_api_key=SecretStr("sk-openai"),
        placement="system",
    )
    expected = Target("upstream", "http://up:1/v1", "sk-own", None, "system")
    assert made.route("any") == made.route(None) == expected
    assert made.targets == [expected]


def test_openai_when_only_its_key_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    target = router(monkeypatch, openai_api_key=SecretStr("sk-openai")).route("gpt-x")
    assert (target.base_url, target.api_key, target.simulated) == (OPENAI_BASE_URL, None, False)


def test_else_the_simulated_one(monkeypatch: pytest.MonkeyPatch) -> None:
    target = router(monkeypatch).route(None)
    assert target.simulated
    assert target.name == "simulated"


ROUTES = [
    UpstreamRoute(name="a", base_url="http://a/v1", models=["exact", "pre-*", "*-mid-*.x"]),
    UpstreamRoute(
        name="b", base_url="http://b/v1/", api_key=SecretStr("sk-b"), models=[], aliases={"small": "llama-8b"}
    ),
    UpstreamRoute(name="c", base_url="http://c/v1", models=["pre-c", "c*"], placement="second_system"),
]


@pytest.mark.parametrize(
    ("model", "name", "alias"),
    [
        ("exact", "a", None),
        ("pre-", "a", None),
        ("pre-c", "a", None),
        ("1-mid-2.x", "a", None),
        ("small", "b", "llama-8b"),
        ("c", "c", None),
        ("cat/dog", "c", None),
    ],
)
def test_the_first_route_that_has_the_model(
    monkeypatch: pytest.MonkeyPatch, model: str, name: str, alias: str | None
) -> None:
    target = router(monkeypatch, upstreams=ROUTES).route(model)
    assert (target.name, target.model_alias) == (name, alias)


def test_what_a_route_says_beats_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    made = router(monkeypatch, upstreams=ROUTES, placement="system", upstream_api_key=SecretStr("sk-other"))
    assert made.route("small") == Target("b", "http://b/v1", "sk-b", "llama-8b", "system")
    assert made.route("c").placement == "second_system"
    assert made.route("c").api_key is None


@pytest.mark.parametrize("model", ["exac", "exactly", "1-mid-2_x", "xpre-1", "", "llama-8b"])
def test_a_model_that_nobody_has(monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    with pytest.raises(NotFound) as refused:
        router(monkeypatch, upstreams=ROUTES).route(model)
    assert refused.value.code == "model_not_found"
    with_last = router(monkeypatch, upstreams=ROUTES, upstream_base_url="http://up/v1")
    assert with_last.route(model).name == with_last.route(None).name == "upstream"


def test_requests_without_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    assert router(monkeypatch, upstreams=ROUTES).route(None).name == "a"
    star = UpstreamRoute(name="d", base_url="http://d/v1")
    assert router(monkeypatch, upstreams=[*ROUTES, star]).route(None).name == "d"
    assert router(monkeypatch, upstreams=[*ROUTES, star]).route("anything\n at all").name == "d"


CHAIN = [
    UpstreamRoute(name="a", base_url="http://a/v1", models=["m"], fallbacks=["c", "upstream", "b"], placement="system"),
    UpstreamRoute(name="b", base_url="http://b/v1", models=["n"], aliases={"m": "m-at-b"}, placement="tail"),
    UpstreamRoute(name="c", base_url="http://c/v1", models=[], api_key=SecretStr("sk-c")),
]


def test_fallbacks_stand_in_for_their_upstream(monkeypatch: pytest.MonkeyPatch) -> None:
    made = router(monkeypatch, upstreams=CHAIN, upstream_base_url="http://up/v1")
    first = made.route("m")
    found = made.fallbacks(first, "m")
    assert [(each.name, each.model_alias, each.api_key) for each in found] == [
        ("c", None, "sk-c"),
        ("upstream", None, None),
        ("b", "m-at-b", None),
    ]
    assert all(each.stands_in and each.placement == "system" for each in found), "the prompt was compiled for the first"
    assert not first.stands_in


def test_only_what_names_a_model_and_has_them_falls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    made = router(monkeypatch, upstreams=CHAIN, upstream_base_url="http://up/v1")
    assert made.fallbacks(made.route("m"), None) == []
    assert made.fallbacks(made.route("n"), "n") == []
    alone = router(monkeypatch)
    assert alone.fallbacks(alone.route("m"), "m") == []


@pytest.mark.parametrize("names", [["nobody"], ["a"], ["upstream"]])
def test_a_fallback_that_is_no_other_upstream_is_refused_at_start(
    monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    route = UpstreamRoute(name="a", base_url="http://a/v1", fallbacks=names)
    with pytest.raises(ValueError, match="cannot fall back"):
        router(monkeypatch, upstreams=[route])


@each_of(
    ("path", "query", "url"),
    [
        (b"/v1/chat/completions", b"", "http://up/base/v1/chat/completions"),
        (b"/v1/x", b"a=1&b=%20+", "http://up/base/v1/x?a=1&b=%20+"),
        (b"/v1/a%2Fb/v1/c", b"", "http://up/base/v1/a%2Fb/v1/c"),
        (b"/v1", b"x", "http://up/base/v1?x"),
        (b"/v1/", b"", "http://up/base/v1/"),
    ],
)
def test_urls(path: bytes, query: bytes, url: str) -> None:
    assert Target("n", "http://up/base/v1", None, None, "tail").url(path, query) == url


def test_a_key_is_not_shown() -> None:
    assert "sk-own" not in repr(Target("n", "http://up/v1", "sk-own", None, "tail"))


@each_of(
    ("method", "status", "length", "bodyless"),
    [
        ("GET", 200, b"0", True),
        ("GET", 200, b"1", False),
        ("GET", 200, None, False),
        ("HEAD", 200, b"1", True),
        ("GET", 204, None, True),
        ("GET", 304, b"9", True),
    ],
)
def test_bodyless(method: str, status: int, length: bytes | None, bodyless: bool) -> None:
    headers = [] if length is None else [(b"Content-Length", length)]
    assert is_bodyless(method, status, headers) == bodyless


def test_a_break_is_an_upstream_error() -> None:
    assert issubclass(UpstreamBroke, UpstreamError)
    assert UpstreamBroke().status == 502
