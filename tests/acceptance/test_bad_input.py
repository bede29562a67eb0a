"""What is not understood goes to the upstream as it came; what is Mneme's to judge gets an error that says what to do."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.support.clients import Api, answer_of, ask, call_of, error_of, post, prompt_of, session_of, user
from tests.support.replies import Recorded, Reply, Script, Stall, chat_script, reply_json
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer
from tests.support.sockets import fetch

CHAT = "/v1/chat/completions"
LIMIT = 100_000
"""Bytes: the module's largest body."""
OK = chat_script(lambda asked: "Fine.")
REFUSAL = {"error": {"message": "I do not understand.", "type": "BadRequestError", "param": None, "code": 400}}


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    return {
        "MAX_BODY_BYTES": str(LIMIT),
        "HEAD_TIMEOUT_S": "0.5",
        "IDLE_TIMEOUT_S": "0.5",
    }


@pytest.fixture(scope="module")
def script() -> Script:
    def answer(request: Recorded) -> Reply:
        try:
            return OK(request) if callable(OK) else reply_json(REFUSAL)
        except Exception:  # noqa: BLE001 - whatever a body is that cannot be read, the answer is a refusal
            return reply_json(REFUSAL, "400 Bad Request", [("x-request-id", "upstream-1")])

    return answer


def deep(levels: int) -> bytes:
    return b'{"model":"m","messages":[{"role":"user","content":' + b"[" * levels + b"]" * levels + b"}]}"


NOT_UNDERSTOOD = {
    "empty": b"",
    "bad JSON": b'{"model":"m","messages":[',
    "not an object": b"[]",
    "a number": b"42",
    "two objects": b'{"model":"m"}{"messages":[]}',
    "trailing garbage": b'{"model":"m","messages":[{"role":"user","content":"hi"}]} x',
    "UTF-16": '{"model":"m","messages":[]}'.encode("utf-16"),
    "NaN": b'{"model":"m","temperature":NaN,"messages":[{"role":"user","content":"hi"}]}',
    "no messages": b'{"model":"m"}',
    "messages is null": b'{"model":"m","messages":null}',
    "messages is text": b'{"model":"m","messages":"hi"}',
    "messages is an object": b'{"model":"m","messages":{"role":"user"}}',
    "no message": b'{"model":"m","messages":[]}',
    "messages are text": b'{"model":"m","messages":["hi", 3]}',
    "deep JSON": deep(5000),
    "deep objects": b'{"model":"m","x":' + b'{"a":' * 3000 + b"1" + b"}" * 3000 + b',"messages":[]}',
}
"""Bodies that no chat request can be read from."""

STRANGE: dict[str, dict[str, Any]] = {
    "an unknown role": {"messages": [{"role": "oracle", "content": "hi"}]},
    "no role": {"messages": [{"content": "hi"}]},
    "a role that is a number": {"messages": [{"role": 7, "content": "hi"}]},
    "content that is a number": {"messages": [{"role": "user", "content": 7}]},
    "content that is an object": {"messages": [{"role": "user", "content": {"text": "hi"}}]},
    "no content": {"messages": [{"role": "user"}]},
    "unknown parts": {"messages": [{"role": "user", "content": [{"type": "smell", "data": "x"}, 3, None, "text"]}]},
    "tool calls that are text": {"messages": [{"role": "assistant", "content": None, "tool_calls": "x"}, user("hi")]},
    "a tool result of nothing": {"messages": [{"role": "tool", "content": "x"}, user("hi")]},
    "a model that is a number": {"model": 7},
    "no model": {"model": None},
    "stream that is text": {"stream": "yes"},
    "limits of wrong types": {"max_tokens": "many", "max_completion_tokens": -3, "n": 1.5, "temperature": "hot"},
    "tools of wrong types": {"tools": "all", "tool_choice": 7},
    "a user that is a number": {"user": 7, "metadata": [1, 2], "safety_identifier": {}},
    "a user far too long": {"user": "u" * 10_000},
    "text with NUL": {"messages": [user("a\0b")], "user": "a\0b"},
    "a lone surrogate": {"messages": [user("a\ud800b")]},
    "an empty text": {"messages": [user("")]},
    "a big number": {"seed": 10**400},
    "unknown fields": {"messages": [{"role": "user", "content": "hi", "zzz": {"a": [1]}}], "zzz": [None]},
}
"""Requests that an upstream may refuse or take: not Mneme's to judge."""


@pytest.mark.parametrize("name", NOT_UNDERSTOOD)
def test_what_is_not_understood_goes_on_as_it_came(mneme: MnemeServer, upstream: ScriptedUpstream, name: str) -> None:
    body = NOT_UNDERSTOOD[name]
    direct = httpx.post(
        upstream.url + "/chat/completions", content=body, headers={"content-type": "application/json"}, trust_env=False
    )
    upstream.requests.clear()
    answer = post(mneme, body, headers={"x-mneme-user": "ana"})
    assert answer.headers["x-mneme-status"] == "bypass"
    assert (answer.status_code, answer.content) == (direct.status_code, direct.content)
    assert [each.body for each in upstream.requests if each.path == CHAT] == [body]
    api = Api(mneme, user="ana")
    record = next(each for each in Api(mneme).calls() if each["id"] == call_of(answer))
    assert (record["status"], record["memory_status"]) == (direct.status_code, "bypass")
    assert api.send("GET", f"/sessions/{call_of(answer)}").status_code == 404


@pytest.mark.parametrize("memory", ["on", "off"])
@pytest.mark.parametrize("name", STRANGE)
def test_strange_requests_are_the_upstreams_to_judge(
    mneme: MnemeServer, upstream: ScriptedUpstream, name: str, memory: str
) -> None:
    upstream.script = reply_json(REFUSAL, "400 Bad Request", [("x-request-id", "upstream-1")])
    sent = {"model": "gpt-4o", "messages": [user("hi")]} | STRANGE[name]
    body = json.dumps(sent).encode()
    headers = {"x-mneme-user": f"{name}, memory {memory}", "x-mneme-memory": memory}
    answer = post(mneme, body, headers=headers)
    assert (answer.status_code, answer.json()) == (400, REFUSAL)
    assert answer.headers["x-mneme-status"] in ("ok", "bypass")
    assert answer.headers["x-request-id"] == "upstream-1"
    got = [each for each in upstream.requests if each.path == CHAT]
    assert [each.body for each in got] == [body]
    upstream.script = reply_json({"id": "1", "object": "chat.completion", "model": "m", "created": 1, "choices": []})
    answer = post(mneme, body, headers=headers)
    assert answer.status_code == 200
    assert answer.headers["x-mneme-status"] in ("ok", "bypass")
    assert answer.json()["choices"] == []


STRANGE_ANSWERS: dict[str, Any] = {
    "no object": [1, 2],
    "nothing known": {"hello": "world"},
    "choices of nothing": {"choices": [None, 3, {}, {"message": None}, {"index": "x", "message": {"content": 7}}]},
    "usage of nothing": {"choices": [], "usage": {"prompt_tokens": "many", "completion_tokens": -1}},
    "a NUL": {"choices": [{"index": 0, "message": {"role": "assistant", "content": "a\0b"}, "finish_reason": "stop"}]},
    "a lone surrogate": {"choices": [{"index": 0, "message": {"role": "assistant", "content": "\udc00"}}]},
    "a new reason": {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "bored"}]
    },
}


@pytest.mark.parametrize("name", STRANGE_ANSWERS)
def test_strange_answers_come_through_and_are_recorded(
    mneme: MnemeServer, upstream: ScriptedUpstream, name: str
) -> None:
    upstream.script = reply_json(STRANGE_ANSWERS[name])
    answer = ask(mneme, "hi", headers={"x-mneme-user": "strange"})
    assert answer.status_code == 200
    assert answer.json() == STRANGE_ANSWERS[name]
    assert Api(mneme, user="strange").raw(call_of(answer)) == answer.content


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "nonsense", ""])
def test_another_content_type_changes_nothing_on_the_way(
    mneme: MnemeServer, upstream: ScriptedUpstream, kind: str
) -> None:
    body = json.dumps({"model": "gpt-4o", "messages": [user("hi")]}).encode()
    answer = mneme.http.post(CHAT, content=body, headers={"content-type": kind, "x-mneme-memory": "off"})
    assert answer_of(answer) == "Fine."
    (got,) = (each for each in upstream.requests if each.path == CHAT)
    assert (got.header("content-type"), got.body) == (kind, body)


# --- Mneme's own headers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-Mneme-Memory", "maybe"), ("X-Mneme-Memory", "{{memory}}"), ("X-Mneme-Capture", "2"),
        ("X-Mneme-History", "both"), ("X-Mneme-History", "1"), ("X-Mneme-Paging", "yes"), ("X-Mneme-Price", "cheap"),
        ("X-Mneme-Profile", "best"), ("X-Mneme-Space", "{{space}}"),
    ],
)  # fmt: skip
def test_a_bad_header_of_mnemes_own_is_a_400_that_names_it(
    mneme: MnemeServer, upstream: ScriptedUpstream, name: str, value: str
) -> None:
    for answer in (ask(mneme, "hi", headers={name: value}), mneme.http.get("/v1/models", headers={name: value})):
        assert answer.status_code == 400
        error = error_of(answer)
        assert error["type"] == "invalid_request_error"
        assert name.lower() in error["message"].lower()
        assert (error["param"] or "").lower() == name.lower()
    assert not [each for each in upstream.requests if each.path == CHAT]


@pytest.mark.parametrize(
    ("name", "values"),
    [("X-Mneme-User", ("ana", "bob")), ("X-Mneme-Memory", ("off", "on")), ("X-Mneme-Session", ("1", "2"))],
)
async def test_a_header_of_mnemes_own_that_says_two_things_is_a_400(
    mneme: MnemeServer, upstream: ScriptedUpstream, name: str, values: tuple[str, str]
) -> None:
    body = json.dumps({"model": "gpt-4o", "messages": [user("hi")]}).encode()
    headers = [(b"content-type", b"application/json"), *((name.encode(), each.encode()) for each in values)]
    answer = await fetch(mneme.port, "POST", CHAT, headers, body)
    assert (answer.status, answer.json()["error"]["param"]) == (400, name.lower())
    assert not upstream.requests


# --- the upstream -----------------------------------------------------------------------------------------------------------


def test_an_upstream_that_stalls_before_its_head_is_a_504(mneme: MnemeServer, upstream: ScriptedUpstream) -> None:
    upstream.script = Reply([Stall()])
    for stream in (False, True):
        answer = ask(mneme, "hi", headers={"x-mneme-user": "stalled"}, stream=stream)
        assert answer.status_code == 504
        assert error_of(answer)["type"] == "upstream_error"
        record = Api(mneme, user="stalled").call(call_of(answer))
        assert (record["status"], record["outcome"]) == (None, "failed")
        assert record["error"]


# --- paths --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v2/models", "/api/v1/no-such-thing", "/api/v1/calls/nonsense", "/v1chat"])
def test_unknown_paths_of_mnemes_own_are_404_in_openais_shape(mneme: MnemeServer, path: str) -> None:
    answer = mneme.http.get(path)
    assert answer.status_code == 404
    assert error_of(answer)["type"] == "not_found_error"


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"])
def test_any_method_and_path_under_v1_is_the_upstreams(
    mneme: MnemeServer, upstream: ScriptedUpstream, method: str
) -> None:
    upstream.script = lambda request: reply_json({"method": request.method, "target": request.target}, "418 Teapot")
    target = "/v1/some/th%69ng%2Felse/?a=1&a=%20&b"
    answer = mneme.http.request(method, target)
    assert answer.status_code == 418
    if method != "HEAD":
        assert answer.json() == {"method": method, "target": target}
    assert answer.headers["x-mneme-status"] == "bypass"


def test_capture_off_keeps_nothing_of_a_call(mneme: MnemeServer, upstream: ScriptedUpstream) -> None:
    headers = {"x-mneme-user": "quiet", "x-mneme-capture": "off"}
    answer = ask(mneme, "Nothing of this is captured: Xylophon.", headers=headers)
    api = Api(mneme, user="quiet")
    assert api.send("GET", f"/calls/{call_of(answer)}/raw").status_code == 404
    assert "Xylophon" not in api.send("GET", f"/calls/{call_of(answer)}/request").text
    assert api.said(session_of(answer))[0][0] == "user"
    bare = ask(mneme, "And of this nothing at all.", headers={**headers, "x-mneme-memory": "off"})
    assert answer_of(bare) == "Fine."
    assert api.send("GET", f"/calls/{call_of(bare)}").status_code == 404
    assert "nothing at all" in prompt_of(upstream.requests[-1])
