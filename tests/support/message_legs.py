"""Legs of `/v1/messages`: answers as streams and in one piece, made of blocks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from app.features.paging.forms import as_events

Block = dict[str, Any]


def text(said: str) -> Block:
    return {"type": "text", "text": said}


def thinking(thought: str, signature: str = "c2ln+/==") -> Block:
    return {"type": "thinking", "thinking": thought, "signature": signature}


def use(name: str, given: dict[str, Any], id_: str = "toolu_1") -> Block:
    return {"type": "tool_use", "id": id_, "name": name, "input": given}


def asks(question: str = "which?", id_: str = "toolu_q") -> Block:
    """A call of ours."""
    return use("memory_query", {"question": question}, id_)


def event(kind: str, **more: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **more})}\n\n".encode()


def whole(blocks: Sequence[Block], *, id_: str = "msg_1", stop: str | None = None, **usage: int) -> bytes:
    """A message in one piece."""
    called = any(each["type"] == "tool_use" for each in blocks)
    message = {
        "id": id_,
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": list(blocks),
        "stop_reason": stop or ("tool_use" if called else "end_turn"),
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "cache_read_input_tokens": 4, "output_tokens": 3, **usage},
    }
    return json.dumps(message).encode()


def streamed(blocks: Sequence[Block], *, id_: str = "msg_1", stop: str | None = None, **usage: int) -> bytes:
    """The same as a stream."""
    made = as_events(whole(blocks, id_=id_, stop=stop, **usage))
    assert made is not None
    return made
