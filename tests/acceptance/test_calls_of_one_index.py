"""Parallel tool calls that all have index 0 stay apart in what the server stores and supplies back."""

from __future__ import annotations

import json
from typing import Any

from tests.support.clients import Api, ask, session_of
from tests.support.replies import chat_script, reply_events
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

CALLS = [("a", "weather", '{"city":"Paris"}'), ("b", "weather", '{"city":"Oslo"}'), ("c", "time", "{}")]


def event(delta: dict[str, Any], reason: str | None = None) -> bytes:
    chunk = {"id": "1", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def test_calls_of_one_index_are_stored_and_supplied_apart(mneme: MnemeServer, upstream: ScriptedUpstream) -> None:
    pieces = [
        {"index": 0, "id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for call_id, name, arguments in CALLS
    ]
    events = [event({"tool_calls": [piece]}) for piece in pieces]
    stream = [*events, event({}, "tool_calls"), b"data: [DONE]\n\n"]
    upstream.script = reply_events(stream)
    headers = {"x-mneme-user": "ollama", "x-mneme-session": "parallel", "x-mneme-history": "server"}
    first = ask(mneme, "What is the weather?", headers=headers, stream=True)
    assert first.content == b"".join(stream)
    (_, answered) = Api(mneme, user="ollama").history(session_of(first))
    calls = [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in answered["tool_calls"]]
    assert calls == CALLS
    upstream.script = chat_script(lambda asked: "Mild.")
    results = [{"role": "tool", "tool_call_id": call_id, "content": "12 degrees"} for call_id, _, _ in CALLS]
    second = ask(mneme, results, headers=headers)
    assert session_of(second) == session_of(first)
    supplied = [message for message in upstream.requests[-1].json()["messages"] if message["role"] == "assistant"]
    calls = [
        (call["id"], call["function"]["name"], call["function"]["arguments"]) for call in supplied[0]["tool_calls"]
    ]
    assert calls == CALLS
