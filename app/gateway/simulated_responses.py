"""The simulated upstream's answers in the dialect of the Responses API: see `simulated.py`. It keeps nothing, and says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson


def response_of(
    asked: Mapping[str, Any],
    given_id: str,
    created: int,
    model: str,
    text: str,
    usage: tuple[int, int],
    *,
    cut: bool,
) -> dict[str, Any]:
    """A whole response; `usage`: tokens of the input and of the output; `cut`: it came to the limit of its tokens."""
    status = "incomplete" if cut else "completed"
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    item = {"id": f"msg_{given_id}", "type": "message", "role": "assistant", "status": status, "content": [part]}
    read, written = usage
    return {
        "id": f"resp_{given_id}", "object": "response", "created_at": created, "status": status, "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None, "instructions": asked.get("instructions"),
        "max_output_tokens": asked.get("max_output_tokens"), "model": model, "output": [item], "parallel_tool_calls": True,
        "previous_response_id": None, "store": False, "temperature": 1.0, "tool_choice": "auto", "tools": [], "top_p": 1.0,
        "truncation": "disabled", "metadata": asked.get("metadata") or {},
        "usage": {
            "input_tokens": read, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": written, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": read + written,
        },
    }  # fmt: skip


def events_of(response: Mapping[str, Any], pieces: Sequence[str]) -> Iterator[bytes]:
    """The response as a stream, its text in `pieces`."""
    (item,) = response["output"]
    (part,) = item["content"]
    begun = {**response, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    place = {"item_id": item["id"], "output_index": 0}
    inside = {**place, "content_index": 0}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**item, "status": "in_progress", "content": []},
        },
        {"type": "response.content_part.added", **inside, "part": {**part, "text": ""}},
        *({"type": "response.output_text.delta", **inside, "delta": piece, "logprobs": []} for piece in pieces),
        {"type": "response.output_text.done", **inside, "text": part["text"], "logprobs": []},
        {"type": "response.content_part.done", **inside, "part": part},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": f"response.{response['status']}", "response": response},
    ]
    for n, event in enumerate(events):
        yield b"event: " + event["type"].encode() + b"\ndata: " + orjson.dumps(event | {"sequence_number": n}) + b"\n\n"
