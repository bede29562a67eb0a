"""What clients ask and upstreams answer in these checks, byte for byte; nowhere two of the same text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests.support.replies import Reply, Send, Step, chunked, head_of, reply_events

JSON = ("content-type", "application/json")


def ask(text: str, more: str = "") -> bytes:
    """A chat request as a person would write it: MODEL is filled in later, `more` are further members."""
    tail = f", {more}" if more else ""
    return f'{{"model": "MODEL", "messages": [{{"role": "user", "content": {json.dumps(text)}}}]{tail}}}'.encode()


def plain(body: bytes, status: str = "200 OK", headers: Sequence[tuple[str, str]] = (JSON,)) -> Reply:
    """An answer with a length."""
    return Reply([Send(head_of(status, [*headers, ("content-length", str(len(body)))]) + body)])


ANSWER = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "tiny",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "All right.", "refusal": None, "annotations": []},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12},
        "service_tier": "default",
        "system_fingerprint": "fp_1",
    }
).encode()
"""An ordinary answer."""


def answer(**more: Any) -> bytes:
    """The ordinary answer with other members."""
    return json.dumps({**json.loads(ANSWER), **more}).encode()


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    """An event with one choice's delta."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1700000000, "model": "tiny"}
    whole = {**base, "system_fingerprint": "fp_1", "choices": [choice], **more}
    return b"data: " + json.dumps(whole, ensure_ascii=False).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
FIRST = chunk({"role": "assistant", "content": "", "refusal": None})
EVENTS = [FIRST, *(chunk({"content": text}) for text in ("All", " ", "right", ".")), chunk({}, "stop"), DONE]
"""An ordinary stream."""


def stream(events: Sequence[bytes], *, pause: float = 0, end: Sequence[Step] | None = None) -> Reply:
    """A stream as OpenAI sends it, an event in each chunk."""
    more = [("cache-control", "no-cache"), ("x-request-id", "req_stream")]
    return reply_events(events, headers=more, pause=pause, end=end)


def pieces(data: bytes, size: int) -> list[bytes]:
    """`data` in pieces of `size` bytes."""
    return [data[at : at + size] for at in range(0, len(data), size)]


def chunked_reply(head: Sequence[tuple[str, str]], parts: Sequence[bytes], after: Sequence[Step]) -> Reply:
    """A chunked answer in these parts, with `after` in place of its end."""
    lines = [*head, ("transfer-encoding", "chunked")]
    return Reply([Send(head_of("200 OK", lines)), *(Send(chunked(each)) for each in parts if each), *after])
