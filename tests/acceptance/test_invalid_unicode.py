"""Lone surrogates and invalid UTF-8 are forwarded unchanged, and are read and stored with U+FFFD."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.clients import Api, call_of, post, session_of
from tests.support.replies import Recorded, Reply, Script, Send, chunked, head_of
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

MARK = b"%%"
"""Stands in the bodies below where the invalid text goes."""
INVALID = {
    "a high half": rb"\ud83d",
    "a low half": rb"\ude00",
    "a reversed pair": rb"\ude00\ud83d",
    "capital letters": rb"\uD83D",
    "a half before a pair": rb"\ud83d\ud83d\ude00",
    "a raw half": b"\xed\xa0\xbd",
    "no UTF-8": b"\xff\xfe",
    "half of a character": b"\xf0\x9f\x98",
}
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
CALLED = (
    b'{"role":"user","content":"look"},{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function",'
    b'"function":{"name":"look","arguments":"%s"}}]},{"role":"tool","tool_call_id":"c1","content":"%s"}'
)
REQUESTS: dict[str, tuple[str, bytes]] = {
    "a user's text": ("chat", b'"messages":[{"role":"user","content":"hi %% there"}]'),
    "a text part": ("chat", b'"messages":[{"role":"user","content":[{"type":"text","text":"hi %%"}]}]'),
    "a system message": (
        "chat",
        b'"messages":[{"role":"system","content":"Be %%."},{"role":"user","content":"hi"}]',
    ),
    "an earlier answer": (
        "chat",
        b'"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b %%"},{"role":"user","content":"c"}]',
    ),
    "a tool's result": ("chat", b'"messages":[' + CALLED % (b"{}", b"found %%") + b"]"),
    "arguments": ("chat", b'"messages":[' + CALLED % (rb"{\"q\":\"%%\"}", b"found") + b"]"),
    "the user": ("chat", b'"user":"ana %%","messages":[{"role":"user","content":"hi"}]'),
    "a value of metadata": ("chat", b'"metadata":{"k":"%%"},"messages":[{"role":"user","content":"hi"}]'),
    "a key of metadata": ("chat", b'"metadata":{"%%":"v"},"messages":[{"role":"user","content":"hi"}]'),
    "a key of the body": ("chat", b'"x %%":1,"messages":[{"role":"user","content":"hi"}]'),
    "a key of a message": ("chat", b'"messages":[{"%%":1,"role":"user","content":"hi"}]'),
    "a tool's description": (
        "chat",
        b'"messages":[{"role":"user","content":"hi"}],'
        b'"tools":[{"type":"function","function":{"name":"look","description":"%%"}}]',
    ),
    "an input text": ("responses", b'"input":"hi %%"'),
    "instructions": ("responses", b'"instructions":"Be %%.","input":"hi"'),
    "an input item": ("responses", b'"input":[{"role":"user","content":[{"type":"input_text","text":"hi %%"}]}]'),
    "an output item": (
        "responses",
        b'"input":[{"role":"user","content":"look"},{"type":"function_call","call_id":"c","name":"f",'
        rb'"arguments":"{\"q\":\"%%\"}"},{"type":"function_call_output","call_id":"c","output":"%%"}]',
    ),
    "the system text": ("messages", b'"system":"Be %%.","messages":[{"role":"user","content":"hi"}]'),
    "a text block": ("messages", b'"messages":[{"role":"user","content":[{"type":"text","text":"hi %%"}]}]'),
    "a tool's input": (
        "messages",
        b'"messages":[{"role":"user","content":"look"},{"role":"assistant","content":[{"type":"tool_use","id":"t",'
        b'"name":"f","input":{"q":"%%","%%":1}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t",'
        b'"content":"%%"}]}]',
    ),
}


def reply_raw(body: bytes, status: str = "200 OK", kind: str = "application/json") -> Reply:
    lines = [("content-type", kind), ("content-length", str(len(body)))]
    return Reply([Send(head_of(status, lines) + body)])


def reply_stream(events: list[bytes], headers: list[tuple[str, str]] | None = None) -> Reply:
    lines = [("content-type", "text/event-stream"), ("transfer-encoding", "chunked"), *(headers or [])]
    return Reply([Send(head_of("200 OK", lines)), *(Send(chunked(event)) for event in events), Send(b"0\r\n\r\n")])


WHOLE = {
    "chat": b'{"id":"1","model":"m","created":1,"choices":[{"index":0,"finish_reason":"stop","message":'
    b'{"role":"assistant","content":"so %% it is"}}]}',
    "responses": b'{"id":"r","status":"completed","model":"m","output":[{"type":"message","role":"assistant","content":'
    b'[{"type":"output_text","text":"so %% it is"}]}]}',
    "messages": b'{"id":"m","type":"message","role":"assistant","model":"m","stop_reason":"end_turn","content":'
    b'[{"type":"text","text":"so %% it is"}]}',
}
DELTA = {
    "chat": (
        b'data: {"id":"1","choices":[{"index":0,"delta":{"content":"%%"}}]}\n\n',
        b'data: {"id":"1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n',
    ),
    "responses": (
        b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","output_index":0,"delta":"%%"}\n\n',
        b'event: response.completed\ndata: {"type":"response.completed","response":{"id":"r","status":"completed"}}\n\n',
    ),
    "messages": (
        b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta",'
        b'"text":"%%"}}\n\n',
        b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}\n\n'
        b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    ),
}


@pytest.fixture(scope="module")
def script() -> Script:
    def answer(request: Recorded) -> Reply:
        dialect = next((name for name, path in PATHS.items() if path == request.path), None)
        return reply_raw(b"{}" if dialect is None else WHOLE[dialect].replace(b"%% ", b""))

    return answer


def first_body(place: str, invalid: bytes, dialect: str) -> bytes:
    extra = b'"max_tokens":64,' if dialect == "messages" else b""
    return b'{"model":"m",' + extra + REQUESTS[place][1].replace(MARK, invalid) + b"}"


def build_next_body(body: bytes, dialect: str, answer: bytes, question: bytes = b"and then?") -> bytes:
    """A request of the same conversation: `body`, the answer and another question."""
    turn = b'{"role":"assistant","content":"%s"},{"role":"user","content":"%s"}' % (answer, question)
    if dialect != "responses":
        at = body.index(b'],"tools"') if b'"tools"' in body else body.rindex(b"]")
        return body[:at] + b"," + turn + body[at:]
    if b'"input":[' in body:
        at = body.rindex(b"]")
        return body[:at] + b"," + turn + body[at:]
    start = body.index(b'"input":') + len(b'"input":')
    text = body[start:-1]
    return body[:start] + b'[{"role":"user","content":' + text + b"}," + turn + b"]}"


def is_forwarded(received: bytes, forwarded: bytes) -> bool:
    """Tell whether all bytes of `received` are in `forwarded`, in their order: memory puts bytes in, and takes none out."""
    rest = iter(forwarded)
    return all(byte in rest for byte in received)


@pytest.mark.parametrize("place", REQUESTS)
@pytest.mark.parametrize("kind", INVALID)
def test_a_request_with_invalid_text_keeps_its_memory(
    mneme: MnemeServer, upstream: ScriptedUpstream, place: str, kind: str
) -> None:
    dialect = REQUESTS[place][0]
    headers = {} if place == "the user" else {"x-mneme-user": f"{place} {kind}"}
    body = first_body(place, INVALID[kind], dialect)
    first = post(mneme, body, path=PATHS[dialect], headers=headers)
    assert (first.status_code, first.headers["x-mneme-status"]) == (200, "ok"), first.headers
    again = build_next_body(body, dialect, b"so it is")
    second = post(mneme, again, path=PATHS[dialect], headers=headers)
    assert second.headers["x-mneme-status"] == "ok"
    assert session_of(second) == session_of(first)
    asked = [request.body for request in upstream.requests if request.path == PATHS[dialect]]
    assert is_forwarded(body, asked[0])
    assert is_forwarded(again, asked[1])
    api = Api(mneme, user=None if place == "the user" else f"{place} {kind}")
    assert api.request(call_of(first)) == body
    if place in ("a user's text", "a text part", "an input text", "an input item", "a text block"):
        (asked_text, answered, *_) = api.said(session_of(first))
        assert "\ufffd" in json.dumps(asked_text, ensure_ascii=False)
        assert answered == ("assistant", "so it is")


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("kind", INVALID)
def test_an_answer_with_invalid_text_is_history(
    mneme: MnemeServer, upstream: ScriptedUpstream, dialect: str, stream: bool, kind: str
) -> None:
    invalid, (delta, end) = INVALID[kind], DELTA[dialect]
    whole = WHOLE[dialect].replace(MARK, invalid)
    events = [delta.replace(MARK, text) for text in (b"so ", invalid, b" it is")]
    upstream.script = reply_stream([*events, end]) if stream else reply_raw(whole)
    body = {
        "chat": b'{"model":"m","messages":[{"role":"user","content":"hi"}]%s}',
        "responses": b'{"model":"m","input":"hi"%s}',
        "messages": b'{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]%s}',
    }[dialect] % (b',"stream":true' if stream else b"")
    name = {"x-mneme-user": f"{dialect} {stream} {kind}"}
    first = post(mneme, body, path=PATHS[dialect], headers=name)
    assert first.content == (b"".join([*events, end]) if stream else whole)
    api = Api(mneme, user=name["x-mneme-user"])
    (_, (role, text)) = api.said(session_of(first))
    assert role == "assistant"
    assert text.startswith("so ")
    assert text.endswith(" it is")
    assert "\ufffd" in text
    plain = body.replace(b',"stream":true', b"")
    for sent_back in {
        invalid,
        text[3:-6].encode(),
        b"\\ufffd" * text.count("\ufffd") + text[3:-6].strip("\ufffd").encode(),
    }:
        second = post(
            mneme, build_next_body(plain, dialect, b"so " + sent_back + b" it is"), path=PATHS[dialect], headers=name
        )
        assert second.headers["x-mneme-status"] == "ok"
        assert session_of(second) == session_of(first), sent_back


@pytest.mark.parametrize("dialect", PATHS)
def test_a_pair_that_is_split_over_two_deltas_is_its_character(
    mneme: MnemeServer, upstream: ScriptedUpstream, dialect: str
) -> None:
    delta, end = DELTA[dialect]
    events = [delta.replace(MARK, text) for text in (rb"well \ud83d", rb"\ude00 and \ud83d", rb"!")]
    upstream.script = reply_stream([*events, end])
    body = {
        "chat": b'{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}',
        "responses": b'{"model":"m","stream":true,"input":"hi"}',
        "messages": b'{"model":"m","stream":true,"max_tokens":9,"messages":[{"role":"user","content":"hi"}]}',
    }[dialect]
    answer = post(mneme, body, path=PATHS[dialect], headers={"x-mneme-user": f"split {dialect}"})
    assert answer.content == b"".join([*events, end])
    messages = Api(mneme, user=f"split {dialect}").said(session_of(answer))
    assert messages[1] == ("assistant", "well 😀 and \ufffd!")


@pytest.mark.parametrize("kind", INVALID)
def test_arguments_of_a_streamed_call_with_invalid_text(
    mneme: MnemeServer, upstream: ScriptedUpstream, kind: str
) -> None:
    delta = b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,%s}]}}]}\n\n'
    first = delta % b'"id":"c","function":{"name":"f","arguments":"{"}'
    rest = delta % b'"function":{"arguments":"\\"q\\":\\"%%\\"}"}'.replace(MARK, INVALID[kind])
    end = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}\n\ndata: [DONE]\n\n'
    upstream.script = reply_stream([first, rest, end])
    name = {"x-mneme-user": f"arguments {kind}"}
    body = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"look"}]}'
    answer = post(mneme, body, headers=name)
    history = Api(mneme, user=name["x-mneme-user"]).history(session_of(answer))
    arguments = history[1]["tool_calls"][0]["function"]["arguments"]
    assert "\ufffd" in json.loads(arguments)["q"]


@pytest.mark.parametrize("kind", INVALID)
def test_an_error_with_invalid_text_comes_through(mneme: MnemeServer, upstream: ScriptedUpstream, kind: str) -> None:
    refusal = b'{"error":{"message":"no %%","type":"x","code":400}}'.replace(MARK, INVALID[kind])
    upstream.script = reply_raw(refusal, "400 Bad Request")
    body = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
    answer = post(mneme, body, headers={"x-mneme-user": f"error {kind}"})
    assert (answer.status_code, answer.content) == (400, refusal)
    assert Api(mneme, user=f"error {kind}").raw(call_of(answer)) == refusal


@pytest.mark.parametrize("kind", INVALID)
def test_the_api_stores_invalid_text_with_its_replacement(mneme: MnemeServer, kind: str) -> None:
    api = Api(mneme, user=f"api {kind}")

    def send(path: str, body: bytes, content_type: str = "application/json") -> Any:
        headers = {"content-type": content_type, **api.headers}
        answer = mneme.http.post(f"/api/v1{path}", content=body.replace(MARK, INVALID[kind]), headers=headers)
        assert answer.status_code in (200, 201), (path, answer.text)
        return answer.json()

    send("/memories", b'{"kind":"fact","text":"Likes %% tea.","metadata":{"%%":1}}')
    send("/memories/search", b'{"query":"%% tea"}')
    send("/sessions/told/messages", b'{"messages":[{"role":"user","content":"hi %% there"}]}')
    lines = b'{"session":"past","role":"user","content":"one"}\n{"session":"past","role":"user","content":"two %%"}'
    assert send("/import", lines, "application/x-ndjson")["imported"] == 2
    (memory,) = [memory for memory in api.all("/memories", "memories") if memory["text"].startswith("Likes ")]
    assert "\ufffd" in memory["text"]
    assert "\ufffd" in "".join(memory["metadata"])
    assert "\ufffd" in json.dumps(api.said("told"), ensure_ascii=False)
    assert "\ufffd" in json.dumps(api.said("past"), ensure_ascii=False)


@pytest.mark.parametrize("kind", INVALID)
@pytest.mark.parametrize("field", ["user", "session"])
def test_an_import_refuses_invalid_names_and_stores_nothing(mneme: MnemeServer, kind: str, field: str) -> None:
    api = Api(mneme, user=f"{field} {kind}")
    line = {"session": "s", "role": "user", "content": "hi"}
    lines = json.dumps(line) + "\n" + json.dumps(line | {field: "ana %%"})
    headers = {"content-type": "application/x-ndjson", **api.headers}
    answer = mneme.http.post("/api/v1/import", content=lines.encode().replace(MARK, INVALID[kind]), headers=headers)
    assert answer.status_code == 400, answer.text
    (error,) = answer.json()["errors"]
    assert error["line"] == 2
    assert error["error"].startswith(f"{field}: ")
    assert "half a character" in error["error"]
    assert api.all("/sessions", "sessions") == []
