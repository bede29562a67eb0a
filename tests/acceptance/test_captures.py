"""Everything that a real vLLM was seen to answer, from a scripted socket: through Mneme nothing of it changes.

Both ways round: the status, every byte of the body, every header that is not the connection's
own, and whether the answer came to its end; the record of it; and the request as it went upstream.
"""

from __future__ import annotations

import json

import pytest

from tests.support.clients import Api, around_messages, ask, call_of
from tests.support.replies import captured_cases, captured_request, chat_script, reply_capture
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer
from tests.support.sockets import RawResponse, fetch

CASES = captured_cases()
CHAT = "/v1/chat/completions"
ARRAYS = {CHAT: "messages", "/v1/responses": "input", "/v1/messages": "messages"}
"""Where memory goes, by path: the rest passes through."""
CONNECTION = {
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"te", b"trailer", b"transfer-encoding",
    b"upgrade",
}  # fmt: skip
REPLACED = {b"host", b"accept-encoding", b"content-length"}

Headers = list[tuple[bytes, bytes]]


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    """A page asks in one of them."""
    return {"HOSTS": '["x.example"]'}


@pytest.fixture(scope="module")
def taught(mneme: MnemeServer, module_upstream: ScriptedUpstream) -> str:
    """A user who has asked for something always: every prompt says it."""
    module_upstream.script = chat_script(lambda asked: "I see.")
    for text in (
        "Say hello, größe 你好 🙂: that is how I like to be greeted in Lisbon, where the weather is fine.",
        "Always answer me kindly.",
    ):
        ask(mneme, text, headers={"x-mneme-user": "capture"})
    return "capture"


def end_to_end(headers: Headers) -> Headers:
    """The headers that are not the connection's own, nor Mneme's."""
    return [
        (name.lower(), value)
        for name, value in headers
        if name.lower() not in CONNECTION and not name.lower().startswith(b"x-mneme-")
    ]


async def play(
    mneme: MnemeServer, upstream: ScriptedUpstream, case: str, own: Headers
) -> tuple[RawResponse, RawResponse, bytes, Headers]:
    """The captured exchange, straight from the upstream and through Mneme; and the request."""
    method, path, headers, body = captured_request(case)
    # Only paths under /v1 are the upstream's.
    path = path if path.startswith("/v1/") else f"/v1{path}"
    upstream.script = reply_capture(case)
    direct = await fetch(upstream.port, method, path, headers, body)
    upstream.requests.clear()
    through = await fetch(mneme.port, method, path, [*headers, *own], body)
    return direct, through, body, headers


@pytest.mark.parametrize("case", CASES)
async def test_a_capture_comes_through_unchanged(
    mneme: MnemeServer, upstream: ScriptedUpstream, taught: str, case: str
) -> None:
    direct, through, body, headers = await play(mneme, upstream, case, [(b"x-mneme-user", taught.encode())])
    assert (through.status, through.reason) == (direct.status, direct.reason)
    assert through.body == direct.body
    assert through.ended == direct.ended
    assert end_to_end(through.headers) == end_to_end(direct.headers)

    call = through.header("x-mneme-call-id")
    assert call is not None
    api = Api(mneme, user=taught)
    record = api.call(call)
    assert record["status"] == direct.status
    assert record["outcome"] == ("complete" if direct.ended == "whole" else "broken")
    assert api.raw(call) == direct.body
    if (direct.header("content-type") or "").startswith("text/event-stream"):
        events = api.events(call)
        assert len(events) > 1
        assert api.stream(call) == direct.body
        assert [each["t_us"] for each in events] == sorted(each["t_us"] for each in events)
        assert [each["offset"] for each in events] == sorted(each["offset"] for each in events)

    assert upstream.requests
    for request in upstream.requests:
        if request.path == "/v1/models" and record["path"] in ARRAYS:
            continue  # Mneme asks for the model's window
        got = [(name.lower(), value) for name, value in request.headers if name.lower() not in CONNECTION | REPLACED]
        assert got == headers
        if record["path"] not in ARRAYS or record["memory_status"] == "bypass":
            assert request.body == body
        else:
            array = ARRAYS[record["path"]]
            assert around_messages(request.body, array) == around_messages(body, array)
    assert api.request(call) == body
    assert api.request(call, sent=True) == upstream.requests[-1].body


async def test_memory_did_change_some_of_the_prompts(
    mneme: MnemeServer, upstream: ScriptedUpstream, taught: str
) -> None:
    """Else the test above would show nothing."""
    changed = 0
    for case in ("chat", "chat_stream", "tool_auto", "json_schema", "chat_n2"):
        _, _, body, _ = await play(mneme, upstream, case, [(b"x-mneme-user", taught.encode())])
        changed += upstream.requests[-1].body != body
    assert changed >= 3


ODD = (
    b'\t{ "seed":12345678901234567890,"temperature" : 1.0,\n"messages":[ '
    b'{"content":"Where is Lisbon, gr\\u00f6\\u00dfe \xf0\x9f\x99\x82?"'
    b' , "role":"user","x":[1.50, 1E3, -0.0]}\r\n ] ,"top_p":0.10,"model":"tiny","guided_json":{"b":1,"a":null},'
    b'"z\\u0041":"\\/", "model_extra":{},"stop":[],"logit_bias":{"50256":-100},"user":"capture"}\n'
)
"""JSON as no serialiser writes it: whatever is read and written again changes."""


@pytest.mark.parametrize("memory", ["on", "off", "read-only"])
async def test_odd_json_goes_on_as_it_was_written(
    mneme: MnemeServer, upstream: ScriptedUpstream, taught: str, memory: str
) -> None:
    upstream.script = reply_capture("chat")
    headers = [(b"content-type", b"application/json"), (b"x-mneme-memory", memory.encode())]
    answer = await fetch(mneme.port, "POST", CHAT, headers, ODD)
    assert answer.status == 200
    sent = upstream.requests[-1].body
    if memory == "off":
        assert sent == ODD
        return
    assert sent != ODD
    assert around_messages(sent) == around_messages(ODD)
    # Inside the array, only text was put in front of the client's own.
    message = json.loads(sent)["messages"][-1]
    assert message["content"].endswith("Where is Lisbon, größe 🙂?")
    assert b'\\u00f6\\u00dfe \xf0\x9f\x99\x82?" , "role":"user","x":[1.50, 1E3, -0.0]}\r\n ]' in sent


def test_a_call_is_not_told_to_another_user(mneme: MnemeServer, upstream: ScriptedUpstream, taught: str) -> None:
    upstream.script = reply_capture("chat")
    call = call_of(ask(mneme, "hello", headers={"x-mneme-user": taught}))
    other = Api(mneme, user="somebody else")
    for path in ("", "/context", "/events", "/raw", "/request"):
        assert other.send("GET", f"/calls/{call}{path}").status_code == 404
