"""An answer in the other form: some servers answer a request for a stream with a body, or the reverse, now and then.

Only for later legs, of which the client has no bytes yet and the first leg has said in which form it gets its answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from app.gateway.chat import CHAT
from app.gateway.splice import dump
from app.gateway.sse import DONE, payloads


def as_events(body: bytes, *, usage: bool) -> bytes | None:
    """A chat completion as the events of a stream; None where the body is none. `usage`: the client wants it told."""
    document = _object(body)
    choices = document.get("choices") if document is not None else None
    if document is None or not isinstance(choices, list) or document.get("error"):
        return None
    head = {**document, "object": "chat.completion.chunk"}
    figures = head.pop("usage", None)
    events = [{**head, "choices": [_delta(each) for each in choices if isinstance(each, dict)]}]
    if usage and isinstance(figures, dict):
        events.append({**head, "choices": [], "usage": figures})
    return b"".join(b"data: " + data + b"\n\n" for data in [*map(dump, events), DONE])


def _delta(choice: Mapping[str, Any]) -> dict[str, Any]:
    message = choice.get("message")
    delta = dict(message) if isinstance(message, dict) else {}
    calls = delta.get("tool_calls")
    if isinstance(calls, list):
        delta["tool_calls"] = [{"index": n, **each} for n, each in enumerate(calls) if isinstance(each, dict)]
    return {**{name: value for name, value in choice.items() if name != "message"}, "delta": delta}


def as_body(stream: bytes) -> bytes | None:
    """A stream as a chat completion; None where it came to no end. An error in it is the body."""
    answer = CHAT.fold(payloads(stream))
    if answer.error is not None:
        return dump({"error": answer.error})
    if not answer.choices or not (answer.done or answer.choices[0].finish_reason):
        return None
    choices = []
    for each in answer.choices:
        message: dict[str, Any] = {"role": each.role or "assistant", "content": each.content}
        more = {"refusal": each.refusal, "reasoning": each.reasoning, "tool_calls": each.tool_calls}
        message |= {name: value for name, value in more.items() if value}
        choices.append({"index": each.index, "message": message, "finish_reason": each.finish_reason})
    head = {"id": answer.id, "object": "chat.completion", "created": answer.created, "model": answer.model}
    return dump({**head, "choices": choices} | ({"usage": answer.usage} if answer.usage else {}))


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return document if isinstance(document, dict) else None
