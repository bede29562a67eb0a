"""The page on the real server: signing in, Postgres away, and names in open mode."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import httpx
import pytest

from tests.acceptance.conftest import OwnServers
from tests.support.clients import error_of
from tests.support.outage import give_back, take_away
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer, wait_until


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    return {"AUTH": "keys"}


@pytest.fixture
def browser(mneme: MnemeServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=mneme.base_url, trust_env=False, timeout=30) as client:
        yield client


def token(browser: httpx.Client) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', browser.get("/ui/nowhere").text)
    assert found
    return found[1]


def sign_in(browser: httpx.Client, key: str) -> httpx.Response:
    return browser.post("/ui/login", data={"csrf": token(browser), "key": key, "next": "/ui/keys"})


def test_a_visit_and_an_outage(mneme: MnemeServer, browser: httpx.Client, module_database: str) -> None:
    key = mneme.create_key("page", "--tenant", "local")
    assert browser.get("/ui", follow_redirects=True).url.path == "/ui/login"
    assert sign_in(browser, "mneme_" + "x" * 43).status_code == 401
    assert sign_in(browser, key).headers["location"] == "/ui/keys"
    for path in ("/ui", "/ui/jobs", "/ui/keys", "/ui/settings"):
        answer = browser.get(path)
        assert answer.status_code == 200, answer.text
        assert key not in answer.text
        head = browser.head(path)
        assert (head.status_code, head.content) == (200, b"")
    assert browser.get("/api/v1/keys").status_code == 401, "the cookie opens the page, not the API"
    csrf = token(browser)
    asyncio.run(take_away(module_database))
    try:
        answer = browser.get("/ui/jobs")
        assert answer.status_code == 503
        assert "try again" in answer.text
        assert "Traceback" not in answer.text
        assert browser.post("/ui/keys", data={"csrf": csrf, "name": "x"}).status_code == 503
    finally:
        asyncio.run(give_back(module_database))
    wait_until(lambda: browser.get("/ui/jobs").status_code == 200, "the page back")
    assert not [line for line in mneme.logs if "Traceback" in str(line.get("error"))]


def test_names_in_open_mode(own_server: OwnServers, upstream: ScriptedUpstream) -> None:
    server = own_server(upstream.url, HOSTS='["mneme.example"]')
    for path in ("/api/v1/me", "/ui", "/metrics", "/v1/models", "/api/v1/queue"):
        for host, status in {
            f"localhost:{server.port}": 200, "mneme:8080": 200, "10.0.0.1": 200, "mneme.example": 200, "evil.example": 403,
        }.items():  # fmt: skip
            answer = server.http.get(path, headers={"host": host})
            assert answer.status_code == status, (path, host)
        assert "MNEME_HOSTS" in error_of(server.http.get(path, headers={"host": "evil.example"}))["message"]
        for origin, status in {"http://localhost:5173": 200, "http://evil.example": 403, "null": 403}.items():
            answer = server.http.get(path, headers={"origin": origin})
            assert answer.status_code == status, (path, origin)
            assert "access-control-allow-origin" not in answer.headers
    assert server.http.get("/healthz", headers={"host": "evil.example"}).status_code == 200
    asked = len(upstream.requests)
    chat = {"model": "m", "messages": [{"role": "user", "content": "What do you know about me?"}]}
    refused = server.http.post("/v1/chat/completions", json=chat, headers={"origin": "https://evil.example"})
    assert (refused.status_code, len(upstream.requests)) == (403, asked)


def test_a_page_may_ask_with_a_key(own_server: OwnServers, upstream: ScriptedUpstream) -> None:
    """Its preflight has none."""
    page = "https://app.example"
    server = own_server(upstream.url, AUTH="keys", CORS_ORIGINS=f'["{page}"]')
    asks = {
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type,x-mneme-user",
    }
    for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/api/v1/context"):
        answer = server.http.request("OPTIONS", path, headers={"origin": page, **asks})
        assert answer.status_code == 200, path
        assert answer.headers["access-control-allow-origin"] == page
        assert "x-mneme-user" in answer.headers["access-control-allow-headers"]
        assert (
            server.http.request("OPTIONS", path, headers={"origin": "https://evil.example", **asks}).status_code == 400
        )
        unknown = server.http.post(path, json={}, headers={"origin": page, "host": "any.name.will.do"})
        assert (unknown.status_code, unknown.headers["access-control-allow-origin"]) == (401, page)
        assert "access-control-allow-origin" not in server.http.post(path, json={}).headers
