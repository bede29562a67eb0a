"""Fault 14: nobody but the settings chooses the upstream, and keys stay where they are.

That a Mneme key never goes upstream, and who gets in, is in tests/acceptance/test_keys.py.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.support.clients import Api, user
from tests.support.ledger import CHAT
from tests.support.own_postgres import dump
from tests.support.replies import Reply, Script, chat_script, reply_events, reply_json
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer
from tests.support.sockets import fetch

UPSTREAM_KEY = "sk-canary-of-the-upstream"
HELPER_KEY = "sk-canary-of-the-helper"
CLIENT_KEYS = {
    "authorization": "Bearer sk-canary-of-the-client",
    "x-api-key": "canary-in-x-api-key",
    "api-key": "canary-in-api-key",
    "x-goog-api-key": "canary-in-x-goog",
    "cookie": "session=canary-in-cookie",
    "proxy-authorization": "Basic canary-in-proxy-auth",
    "x-amz-security-token": "canary-in-amz-token",
    "x-my-secret": "canary-in-my-secret",
}
SET_COOKIE = "canary-in-set-cookie"
IN_QUERY = "canary-in-query"
WRONG = "mneme_" + "canary-wrong-key".ljust(43, "x")


@pytest.fixture(scope="module")
def evil() -> Iterator[ScriptedUpstream]:
    """Where nothing must ever arrive."""
    with ScriptedUpstream(reply_json({"evil": True})) as evil:
        yield evil


@pytest.fixture(scope="module")
def upstream() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream(chat_script(lambda asked: "All right.")) as upstream:
        yield upstream


@pytest.fixture
def script() -> Script:
    return chat_script(lambda asked: "All right.")


@pytest.fixture(autouse=True)
def fresh(upstream: ScriptedUpstream, script: Script) -> None:
    upstream.script = script
    upstream.requests.clear()


@pytest.fixture(scope="module")
def mneme(
    tmp_path_factory: pytest.TempPathFactory, module_database: str, upstream: ScriptedUpstream
) -> Iterator[MnemeServer]:
    given = {
        "AUTH": "keys",
        "LOG_LEVEL": "debug",
        "UPSTREAM_API_KEY": UPSTREAM_KEY,
        "HELPER_BASE_URL": upstream.url,
        "HELPER_MODEL": "helper",
        "HELPER_API_KEY": HELPER_KEY,
    }
    folder = tmp_path_factory.mktemp("mneme")
    with MnemeServer(folder, database=module_database, upstream=upstream.url, worker=True, settings=given) as server:
        yield server


@pytest.fixture(scope="module")
def key(mneme: MnemeServer) -> str:
    return mneme.create_key("app")


def body_of(**more: object) -> bytes:
    return json.dumps({"model": "gpt-4o", "messages": [user("hi")], **more}).encode()


# --- where requests go -------------------------------------------------------------------------------------------------


async def test_no_client_chooses_the_upstream(
    mneme: MnemeServer, upstream: ScriptedUpstream, evil: ScriptedUpstream, key: str
) -> None:
    there = f"127.0.0.1:{evil.port}"
    url = f"http://{there}/v1"
    own = [(b"authorization", f"Bearer {key}".encode()), (b"content-type", b"application/json")]
    names = [
        "x-forwarded-host",
        "forwarded",
        "x-original-url",
        "x-rewrite-url",
        "x-upstream",
        "x-base-url",
        "openai-base-url",
    ]
    for name in names:
        value = f"host={there}" if name == "forwarded" else url
        answer = await fetch(mneme.port, "POST", CHAT, [*own, (name.encode(), value.encode())], body_of())
        assert answer.status == 200
    for name in ("x-mneme-upstream", "x-mneme-base-url"):
        await fetch(mneme.port, "POST", CHAT, [*own, (name.encode(), url.encode())], body_of())
    fields = {"base_url": url, "api_base": url, "upstream": url, "endpoint": url, "proxy": url, "callback_url": url}
    for more in [*({name: value} for name, value in fields.items()), {"model": url}, {"model": f"@{there}/gpt-4o"}]:
        assert (await fetch(mneme.port, "POST", CHAT, own, body_of(**more))).status == 200
    targets = [
        f"{url}/chat/completions",
        f"/v1/@{there}/chat",
        f"/v1//{there}/v1/models",
        f"/v1/http://{there}/v1/models",
    ]
    targets += [f"/v1/%2f%2f{there}/", f"/v1/\\\\{there}\\", f"/v1/..//{there}/", f"/v1/models?url={url}#@{there}"]
    for target in targets:
        answer = await fetch(mneme.port, "POST", target, own, body_of())
        assert answer.status < 500 or answer.status == 502, (target, answer.body)
    host = [*own, (b"host", there.encode())]
    assert (await fetch(mneme.port, "POST", CHAT, host, body_of())).status in (200, 400)
    assert evil.connections == 0
    sent = [*upstream.requests, *upstream.discoveries]
    assert all(each.header("host") == f"127.0.0.1:{upstream.port}" for each in sent)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_the_clients_to_follow(
    mneme: MnemeServer, upstream: ScriptedUpstream, evil: ScriptedUpstream, key: str, status: int
) -> None:
    place = f"http://127.0.0.1:{evil.port}/v1/elsewhere"
    upstream.script = reply_json({}, f"{status} Go There", [("location", place)])
    own = [(b"authorization", f"Bearer {key}".encode())]
    for method, path, body in (
        ("POST", CHAT, body_of()),
        ("GET", "/v1/models", b""),
        ("POST", "/v1/embeddings", b"{}"),
    ):
        answer = await fetch(mneme.port, method, path, own, body)
        assert (answer.status, answer.header("location")) == (status, place)
    assert evil.connections == 0


# --- where keys are -------------------------------------------------------------------------------------------------------


def leave_keys_everywhere(mneme: MnemeServer, upstream: ScriptedUpstream, key: str) -> None:
    """Calls that go well and calls that fail, each with every key that a client may bring."""
    cookie = [("set-cookie", f"a={SET_COOKIE}")]
    replies: list[Reply] = [
        reply_json({"choices": [{"message": {"role": "assistant", "content": "Hi."}}]}, headers=cookie),
        reply_events([b"data: {}\n\n", b"data: [DONE]\n\n"], headers=cookie),
        reply_json({"error": {"message": "no"}}, "500 Internal Server Error", cookie),
        reply_json({"error": {"message": "no"}}, "401 Unauthorized", cookie),
        Reply([]),
    ]
    with httpx.Client(base_url=mneme.base_url, trust_env=False) as client:
        for reply in replies:
            upstream.script = reply
            for path in (CHAT, "/v1/embeddings"):
                sent = {**CLIENT_KEYS, "x-mneme-key": key, "x-mneme-user": "ana"}
                try:
                    target = f"{path}?api_key={IN_QUERY}&token={IN_QUERY}"
                    patience = 10 if reply.steps else 0.3
                    client.post(target, content=body_of(), headers=sent, timeout=patience)
                except httpx.TransportError:
                    assert not reply.steps
        for route in ("/v1/models", "/api/v1/users", "/api/v1/memories/search"):
            assert client.post(route, headers={"x-mneme-key": WRONG}, content=b"{}").status_code == 401
        bad = {"authorization": f"Bearer {key}", "x-mneme-memory": "perhaps"}
        assert client.post(CHAT, headers=bad, content=body_of()).status_code == 400


async def test_keys_are_nowhere_but_where_they_are_used(
    mneme: MnemeServer, upstream: ScriptedUpstream, key: str, module_database: str
) -> None:
    leave_keys_everywhere(mneme, upstream, key)
    api = Api(mneme, user="ana", key=key)
    assert len(api.calls()) >= 8
    shown = json.dumps([[call, api.call(call["id"]), str(api.request(call["id"]))] for call in api.calls()])
    places = {
        "the log": mneme.log_text(),
        "the metrics": mneme.http.get("/metrics").text,
        "the API": shown + json.dumps(api.get("/queue/dead")),
        "the database": dump(module_database).decode(),
        "the server's folder": texts_of(mneme.folder, "**/*"),
        "the command lines": texts_of(Path("/proc"), "[0-9]*/cmdline"),
    }
    password = urlsplit(module_database).password
    assert password
    for secret in ["canary", key, UPSTREAM_KEY, HELPER_KEY]:
        for place, text in places.items():
            for form in (secret, secret.encode().hex()):
                assert form not in text, f"{secret!r} is in {place}: …{around(text, form)}…"
    assert password not in places["the log"] + places["the metrics"] + shown
    assert sha256(key.encode()).hexdigest() in places["the database"]


def texts_of(folder: Path, pattern: str) -> str:
    texts = []
    for path in folder.glob(pattern):
        with contextlib.suppress(OSError):  # a folder, or a process that has ended meanwhile
            texts.append(path.read_bytes().decode("utf-8", "replace"))
    return "\n".join(texts)


def around(text: str, what: str) -> str:
    at = text.find(what)
    return text[max(0, at - 200) : at + 200]
