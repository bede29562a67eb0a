"""A wrong base URL: the error that a client gets, and the page to which a browser is redirected."""

from __future__ import annotations

import httpx
import openai
import pytest

from tests.acceptance.conftest import OwnServers
from tests.support.clients import MODEL, error_of, sdk
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

PATHS = [
    "/chat/completions", "/chat/completions/", "//chat/completions", "/responses", "/messages", "/models", "/models/gpt-4o",
    "/embeddings/", "/completions", "/moderations", "/audio/speech", "/files", "/images/generations", "/batches",
    "/assistants", "/threads/t/runs", "/vector_stores", "/uploads", "/rerank", "/score", "/V1/chat/completions",
    "/fine_tuning/jobs", "/openai/v1/models", "/openai/chat/completions", "/openai/deployments/m/chat/completions",
    "/api/v1/chat/completions",
    "/api/v1/models",
]  # fmt: skip


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS", "HEAD"])
def test_a_path_without_v1_is_a_404_that_says_which_base_url_to_set(
    mneme: MnemeServer, upstream: ScriptedUpstream, method: str
) -> None:
    for path in PATHS:
        answer = mneme.http.request(method, mneme.base_url + path, content=b"{" if method == "POST" else None)
        assert answer.status_code == 404, path
        if method == "HEAD":
            assert answer.content == b""
            continue
        error = error_of(answer)
        assert (error["type"], error["code"]) == ("not_found_error", "missing_v1")
        assert '"/v1" is missing from the base URL' in error["message"]
        assert f"Set the base URL to {mneme.url} " in error["message"]
    assert not upstream.requests


def test_the_sdk_shows_it(mneme: MnemeServer) -> None:
    with sdk(mneme.base_url) as client, pytest.raises(openai.NotFoundError, match=f"Set the base URL to {mneme.url}"):
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "hi"}])


def test_v1_twice_is_a_404_that_says_so(mneme: MnemeServer, upstream: ScriptedUpstream) -> None:
    for path in ("chat/completions", "messages", "models"):
        answer = mneme.http.post(f"/v1/v1/{path}", json={})
        assert (answer.status_code, error_of(answer)["code"]) == (404, "repeated_v1")
        assert '"/v1" twice' in error_of(answer)["message"]
    assert not upstream.requests


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_the_root_leads_to_the_page(mneme: MnemeServer, method: str) -> None:
    answer = mneme.http.request(method, "/")
    assert (answer.status_code, answer.headers["location"]) == (307, "/ui")
    page = mneme.http.request("GET", "/", follow_redirects=True)
    assert (page.status_code, page.headers["content-type"].partition(";")[0]) == (200, "text/html")
    assert mneme.http.post("/").status_code == 404


def test_the_root_without_the_page_is_a_404_that_names_the_api(
    upstream: ScriptedUpstream, own_server: OwnServers
) -> None:
    server = own_server(upstream.url, UI="off")
    assert "/docs lists what there is" in error_of(httpx.get(server.base_url, trust_env=False))["message"]


def test_with_keys_the_root_leads_to_signing_in(upstream: ScriptedUpstream, own_server: OwnServers) -> None:
    server = own_server(upstream.url, AUTH="keys")
    with httpx.Client(base_url=server.base_url, trust_env=False, follow_redirects=True) as browser:
        page = browser.get("/")
        assert (page.status_code, page.url.path) == (200, "/ui/login")
        for host in ("<b>mneme</b>", ""):
            error = error_of(browser.post("/chat/completions", json={}, headers={"host": host}))
            assert error["code"] == "missing_v1"
            assert f"Set the base URL to {server.url} " in error["message"], "a strange host is not repeated"
