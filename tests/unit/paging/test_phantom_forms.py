"""A completion as events and events as a completion say the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.features.paging.body import as_body, as_events
from app.gateway.dialects.chat import CHAT
from app.gateway.dialects.sse import payloads
from tests.support.phantoms import call, calls, event, usage

DONE = b"data: [DONE]\n\n"
FUNCTION = {"name": "weather", "arguments": "{}"}
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def completion(**message: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "logprobs": None, "finish_reason": "stop"}
    head = {"id": "c1", "object": "chat.completion", "created": 7, "model": "m", "system_fingerprint": "f"}
    return json.dumps({**head, "choices": [choice], "usage": USAGE}).encode()


@pytest.mark.parametrize(
    "message",
    [
        {"content": "hi"},
        {"content": None, "tool_calls": [{"id": "a", "type": "function", "function": FUNCTION}] * 2},
        {"content": "", "refusal": "no"},
        {"content": "so", "reasoning_content": "hm"},
    ],
)
@pytest.mark.parametrize("told", [True, False])
def test_a_body_as_events(message: dict[str, Any], told: bool) -> None:
    body = completion(**message)
    events = as_events(body, usage=told)
    assert events is not None
    folded, whole = CHAT.fold(payloads(events)), CHAT.whole(body)
    assert whole is not None
    assert folded.choices == whole.choices
    assert folded.done
    assert folded.usage == (USAGE if told else None)
    assert all(json.loads(each)["object"] == "chat.completion.chunk" for each in payloads(events) if each != b"[DONE]")


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b"{}", b'{"choices":3}', b'{"choices":[],"error":{"message":"x"}}']
)
def test_what_is_no_completion_has_no_events(body: bytes) -> None:
    assert as_events(body, usage=True) is None


def test_a_choice_that_is_none_is_left_out() -> None:
    events = as_events(b'{"choices":[3,{"index":0,"message":null,"finish_reason":"stop"}]}', usage=False)
    assert events is not None
    assert [each.finish_reason for each in CHAT.fold(payloads(events)).choices] == ["stop"]


def test_events_as_a_body() -> None:
    own = call(0, "weather", "{}", "a")
    stream = (
        event({"role": "assistant", "content": "hi"})
        + event(calls(own))
        + event(finish="tool_calls")
        + usage(3, 2)
        + DONE
    )
    body = as_body(stream)
    assert body is not None
    folded, whole = CHAT.fold(payloads(stream)), CHAT.whole(body)
    assert whole is not None
    assert (whole.choices, whole.usage, whole.id, whole.created) == (folded.choices, USAGE, "chatcmpl-1", 100)


def test_what_came_to_no_end_is_no_body() -> None:
    assert as_body(event({"content": "hi"})) is None
    assert as_body(b"") is None
    assert as_body(b"<html>") is None


def test_an_error_in_a_stream_is_the_body() -> None:
    body = as_body(event({"content": "hi"}) + b'data: {"error":{"message":"boom"}}\n\n')
    assert body is not None
    assert json.loads(body) == {"error": {"message": "boom"}}
