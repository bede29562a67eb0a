"""/v1/messages remembers, over sockets: what goes out, what comes back, what is kept; and with Anthropic's own SDK."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.client_envs import Client, install
from tests.support.clients import Api, post
from tests.support.replies import CAPTURES, Recorded, Reply, Rst, reply_bytes, reply_events, reply_json
from tests.support.responses import event_bytes
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer, wait_until

PATH = "/v1/messages"
FACT = "My cat is called Minka and she is afraid of thunder."
HEADERS = {"anthropic-version": "2023-06-01", "x-api-key": "sk-ant-secret"}


def last_of(asked: dict[str, Any]) -> str:
    content = asked["messages"][-1]["content"]
    if isinstance(content, str):
        return content
    last = content[-1]
    return str(last.get("content") if last["type"] == "tool_result" else last.get("text"))


def blocks_of(asked: dict[str, Any]) -> list[dict[str, Any]]:
    last = last_of(asked)
    if asked.get("tools") and "sunny" not in last:
        return [{"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Lisbon"}}]
    text = f"{len(asked['messages'])} messages" if last == "How many?" else "You said: " + last.rsplit("\n", 1)[-1]
    return [{"type": "text", "text": text}]


def script(request: Recorded) -> Reply:
    """Echoes; calls a tool where there is one and it has no result yet."""
    if request.path != PATH:
        return reply_json({"input_tokens": 9} if request.path == f"{PATH}/count_tokens" else {"data": []})
    asked = request.json()
    blocks = blocks_of(asked)
    stop = "tool_use" if blocks[0]["type"] == "tool_use" else "end_turn"
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
    usage = {"input_tokens": 5, "cache_read_input_tokens": 2, "output_tokens": 4}
    if not asked.get("stream"):
        return reply_json({**head, "content": blocks, "stop_reason": stop, "usage": usage})
    text = blocks[0]["text"]
    begun: dict[str, Any] = {**head, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": begun},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": each}}
            for each in (text[:4], text[4:])
        ),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {"output_tokens": 4}},
        {"type": "message_stop"},
    ]
    return reply_events([event_bytes(each) for each in events])


@pytest.fixture(scope="module")
def upstream() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream(script) as upstream:
        yield upstream


@pytest.fixture(scope="module")
def mneme(
    tmp_path_factory: pytest.TempPathFactory, module_database: str, upstream: ScriptedUpstream
) -> Iterator[MnemeServer]:
    folder = tmp_path_factory.mktemp("mneme")
    with MnemeServer(folder, database=module_database, upstream=upstream.url, worker=True) as server:
        yield server


names = (f"messages-{n}" for n in itertools.count())


@pytest.fixture
def someone(upstream: ScriptedUpstream) -> str:
    upstream.script = script
    return next(names)


@pytest.fixture
def api(mneme: MnemeServer, someone: str) -> Api:
    return Api(mneme, user=someone)


def tell(mneme: MnemeServer, who: str, body: dict[str, Any] | bytes, **headers: str) -> httpx.Response:
    data = body if isinstance(body, bytes) else json.dumps({"model": "m", "max_tokens": 50, **body}).encode()
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return post(mneme, data, headers={"X-Mneme-User": who, **HEADERS, **given}, path=PATH)


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def test_what_was_said_is_in_the_next_prompt_and_no_other_byte_changes(
    mneme: MnemeServer, upstream: ScriptedUpstream, someone: str, api: Api
) -> None:
    first = tell(mneme, someone, {"messages": [user(FACT)], "system": "Be kind."})
    assert (first.status_code, first.headers["x-mneme-status"]) == (200, "ok")
    assert api.said(first.headers["x-mneme-session-id"]) == [("user", FACT), ("assistant", f"You said: {FACT}")]
    body = (
        b'{ "x": 1.0, "model":"m", "max_tokens" : 50,"messages":[{"role":"user","content":[{"type":"text",'
        b'"text":"What is my cat\\u0027s name?", "cache_control":{"type":"ephemeral"}}]}] ,"stream":true}'
    )
    second = tell(mneme, someone, body)
    sent = upstream.requests[-1]
    before, after = body.split(b'{"type":"text"', 1)
    assert sent.body.startswith(before)
    assert sent.body.endswith(b'{"type":"text"' + after)
    assert b"Minka" in sent.body
    assert (sent.header("anthropic-version"), sent.header("x-api-key")) == ("2023-06-01", "sk-ant-secret")
    call = second.headers["x-mneme-call-id"]
    assert (api.request(call), api.raw(call)) == (body, second.content)
    assert "sk-ant-secret" not in json.dumps(api.call(call))
    usage = api.call(call)["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["cached_tokens"]) == (7, 4, 2)


def test_a_conversation_goes_on_and_crosses_over(mneme: MnemeServer, someone: str, api: Api) -> None:
    first = tell(mneme, someone, {"messages": [user("One.")]})
    answer = first.json()["content"]
    again = tell(mneme, someone, {"messages": [user("One."), {"role": "assistant", "content": answer}, user("Two.")]})
    assert again.headers["x-mneme-session-id"] == first.headers["x-mneme-session-id"]
    chat = {
        "model": "m",
        "messages": [user("One."), {"role": "assistant", "content": answer[0]["text"]}, user("Three?")],
    }
    other = post(mneme, json.dumps(chat).encode(), headers={"X-Mneme-User": someone}, path="/v1/chat/completions")
    assert other.headers["x-mneme-session-id"] != "", "a branch of it"
    parents = [each.get("parent_session_id") for each in api.sessions()]
    assert first.headers["x-mneme-session-id"] in parents


def test_a_tool_loop_is_one_conversation(
    mneme: MnemeServer, upstream: ScriptedUpstream, someone: str, api: Api
) -> None:
    tools = [{"name": "weather", "input_schema": {"type": "object"}}]
    asked: list[Any] = [user("How is the weather?")]
    first = tell(mneme, someone, {"messages": asked, "tools": tools})
    (use,) = first.json()["content"]
    asked += [
        {"role": "assistant", "content": [use]},
        user([{"type": "tool_result", "tool_use_id": use["id"], "content": "sunny"}]),
    ]
    last = tell(mneme, someone, {"messages": asked, "tools": tools})
    assert json.loads(upstream.requests[-1].body)["messages"] == asked, "nothing is put into a loop"
    session = last.headers["x-mneme-session-id"]
    assert session == first.headers["x-mneme-session-id"]
    assert [role for role, _ in api.said(session)] == ["user", "assistant", "tool", "assistant"]


def test_the_server_has_the_history(mneme: MnemeServer, upstream: ScriptedUpstream, someone: str) -> None:
    for text in ("First.", "Second."):
        answered = tell(mneme, someone, {"messages": [user(text)], "system": "Be kind."}, X_Mneme_Session="s")
    assert answered.status_code == 200
    sent = json.loads(upstream.requests[-1].body)
    assert [each["role"] for each in sent["messages"]] == ["user", "assistant", "user"]
    assert sent["messages"][1]["content"] == "You said: First."


def test_a_stream_that_breaks_off_is_kept_as_far_as_it_came(
    mneme: MnemeServer, upstream: ScriptedUpstream, someone: str, api: Api
) -> None:
    begun = event_bytes({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Oi"}})
    upstream.script = reply_events([begun], end=[Rst()])
    with pytest.raises(httpx.HTTPError):
        tell(mneme, someone, {"messages": [user("hi")], "stream": True})
    wait_until(lambda: bool(api.sessions()), "the turn is stored")
    (session,) = api.sessions()
    assert api.said(session["id"]) == [("user", "hi"), ("assistant", "Oi")]


@pytest.mark.parametrize("case", ["messages", "messages_stream"])
def test_what_a_real_server_sent_arrives_as_it_was(
    mneme: MnemeServer, upstream: ScriptedUpstream, someone: str, api: Api, case: str
) -> None:
    raw = (CAPTURES / f"{case}.response.raw").read_bytes()
    upstream.script = reply_bytes(raw)
    answered = tell(mneme, someone, {"messages": [user("hi")], "stream": case == "messages_stream"})
    call = api.call(answered.headers["x-mneme-call-id"])
    assert api.raw(answered.headers["x-mneme-call-id"]) == answered.content
    assert (call["usage"]["prompt_tokens"], call["usage"]["completion_tokens"]) == (13, 6)
    (session,) = api.sessions()
    assert api.said(session["id"])[-1][0] == "assistant"


def test_errors_and_what_is_not_understood(mneme: MnemeServer, upstream: ScriptedUpstream, someone: str) -> None:
    refused = tell(mneme, someone, {"messages": [user("hi")]}, X_Mneme_Memory="maybe")
    assert refused.status_code == 400
    assert refused.json()["type"] == "error"
    assert refused.json()["error"]["type"] == "invalid_request_error"
    for body in (b"{", b'{"messages": 7}', b'{"model": "m", "messages": []}'):
        upstream.script = reply_json({"type": "error", "error": {"type": "invalid_request_error"}}, "400 Bad Request")
        answered = tell(mneme, someone, body)
        assert (answered.status_code, answered.headers["x-mneme-status"]) == (400, "bypass")
        assert upstream.requests[-1].body == body
    upstream.script = reply_bytes(b"HTTP/1.1 529 Overloaded\r\nContent-Length: 2\r\n\r\n{}")
    assert tell(mneme, someone, {"messages": [user("hi")]}).status_code == 529


def test_a_key_is_shown_as_its_clients_show_it(mneme: MnemeServer, upstream: ScriptedUpstream, someone: str) -> None:
    answered = tell(mneme, someone, {"messages": [user("hi")]}, x_api_key=f"mneme_{'x' * 43}")
    assert answered.status_code == 401
    assert answered.json()["error"]["type"] == "authentication_error"


@pytest.mark.heavy
@pytest.mark.timeout(900)
def test_the_sdk(mneme: MnemeServer, someone: str) -> None:
    client = install(Client("anthropic-python", "Anthropic, Python", "anthropic_python.py", ("anthropic",)))
    found = client.run(mneme.url, someone)
    chat, tools = found["chat"], found["tools"]
    assert isinstance(chat, dict)
    assert isinstance(tools, dict)
    assert (chat["stop"], chat["status"]) == ("end_turn", "ok")
    assert found["stream"] == {"text": "You said: hi", "pieces": 2, "stop": "end_turn"}
    assert found["asynchronous"] == "You said: hi"
    assert (tools["call"], tools["text"]) == (["weather", '{"city": "Lisbon"}'], "You said: sunny")
    assert (found["session"], found["count"]) == ("3 messages", 9)
    assert found["error"] == ["error", "invalid_request_error"]


@pytest.mark.heavy
@pytest.mark.timeout(900)
def test_the_sdk_for_node(mneme: MnemeServer, someone: str) -> None:
    client = install(Client("anthropic-node", "Anthropic, Node", "anthropic_node.mjs", ("@anthropic-ai/sdk",)))
    found = client.run(mneme.url, someone)
    assert found["stream"] == {"text": "You said: hi", "pieces": 2, "stop": "end_turn"}
    assert found["tools"] == {"call": ["weather", {"city": "Lisbon"}], "text": "You said: sunny"}
    assert (found["session"], found["count"], found["abort"]) == ("3 messages", 9, "You ")
    assert found["error"] == [400, "error", "invalid_request_error"]
    chat = found["chat"]
    assert isinstance(chat, dict)
    assert (chat["stop"], chat["status"]) == ("end_turn", "ok")
