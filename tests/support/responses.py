"""A scripted upstream that speaks the Responses API, in the order of events in which OpenAI sends them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.support.replies import Recorded, Reply, Script, Step, reply_events, reply_json

Item = dict[str, Any]
ResponsesAnswer = Callable[[dict[str, Any]], str | Sequence[Item] | Reply]

TOKENS_A_TEXT = 4
"""Characters that make a token here."""


def said(text: str, number: int = 0) -> Item:
    """What the model says."""
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {
        "id": f"msg_{number}", "type": "message", "role": "assistant", "status": "completed", "content": [part],
    }  # fmt: skip


def called(name: str, arguments: str, call_id: str) -> Item:
    """A function that the model calls."""
    return {
        "id": f"fc_{call_id}", "type": "function_call", "status": "completed", "name": name, "arguments": arguments,
        "call_id": call_id,
    }  # fmt: skip


def thought(text: str) -> Item:
    return {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}


def response_of(
    asked: Mapping[str, Any], items: Sequence[Item], given_id: str, status: str = "completed", **more: Any
) -> dict[str, Any]:
    """A whole response."""
    prompt = len(json.dumps(asked.get("input"))) // TOKENS_A_TEXT
    completion = len(json.dumps(list(items))) // TOKENS_A_TEXT
    return {
        "id": given_id, "object": "response", "created_at": 1700000000, "status": status, "error": None,
        "incomplete_details": None, "instructions": asked.get("instructions"), "model": asked.get("model", "scripted"),
        "output": list(items), "parallel_tool_calls": True, "previous_response_id": asked.get("previous_response_id"),
        "store": asked.get("store", True), "temperature": 1.0, "tool_choice": "auto", "tools": asked.get("tools", []),
        "top_p": 1.0, "truncation": "disabled", "metadata": {},
        "usage": {
            "input_tokens": prompt, "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 0},
            "output_tokens": completion, "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": prompt + completion,
        },
    } | more  # fmt: skip


def events_of(response: Mapping[str, Any], *, last: bool = True) -> list[bytes]:
    """The stream of a response, an event each; without `last`, it breaks off before its end."""
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    events: list[dict[str, Any]] = [
        {"type": f"response.{name}", "response": begun} for name in ("created", "in_progress")
    ]
    for n, item in enumerate(response["output"]):
        events += _events_of_item(n, item)
    if last:
        events.append({"type": f"response.{response['status']}", "response": response})
    return [event_bytes(event | {"sequence_number": n}) for n, event in enumerate(events)]


def event_bytes(event: Mapping[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def _events_of_item(n: int, item: Item) -> list[dict[str, Any]]:
    place = {"output_index": n, "item_id": item["id"]}
    events: list[dict[str, Any]] = []
    bare = {**item, "status": "in_progress"}
    if item["type"] == "message":
        bare["content"] = []
        text = item["content"][0]["text"]
        part = place | {"content_index": 0}
        events.append({"type": "response.content_part.added", **part, "part": {**item["content"][0], "text": ""}})
        events += [
            {"type": "response.output_text.delta", **part, "delta": text[at : at + 3], "logprobs": []}
            for at in range(0, len(text), 3)
        ]
        events.append({"type": "response.output_text.done", **part, "text": text, "logprobs": []})
        events.append({"type": "response.content_part.done", **part, "part": item["content"][0]})
    elif item["type"] == "function_call":
        bare["arguments"] = ""
        given = item["arguments"]
        events += [
            {"type": "response.function_call_arguments.delta", **place, "delta": half}
            for half in (given[:5], given[5:])
        ]
        events.append(
            {"type": "response.function_call_arguments.done", **place, "arguments": given, "name": item["name"]}
        )
    return [
        {"type": "response.output_item.added", "output_index": n, "item": bare},
        *events,
        {"type": "response.output_item.done", "output_index": n, "item": item},
    ]


def responses_script(answer: ResponsesAnswer, *, end: Sequence[Step] | None = None) -> Script:
    """Answers POST /v1/responses with what `answer` makes of the request: a text, items, or a raw Reply. It keeps what it
    answered, and knows nothing else to follow."""
    numbers = itertools.count(1)
    kept: set[str] = set()

    def script(request: Recorded) -> Reply:
        if request.path == "/v1/models":
            entry = {"id": "scripted", "object": "model", "created": 1, "owned_by": "test", "max_model_len": 32768}
            return reply_json({"object": "list", "data": [entry]})
        if request.path != "/v1/responses":
            return reply_json({"detail": "Not Found"}, "404 Not Found")
        asked = request.json()
        follows = asked.get("previous_response_id")
        if follows is not None and follows not in kept:
            error = {
                "message": f"Previous response with id '{follows}' not found.", "type": "invalid_request_error",
                "param": "previous_response_id", "code": "previous_response_not_found",
            }  # fmt: skip
            return reply_json({"error": error}, "400 Bad Request")
        made = answer(asked)
        if isinstance(made, Reply):
            return made
        given_id = f"resp_{next(numbers)}"
        kept.add(given_id)
        items = [said(made)] if isinstance(made, str) else list(made)
        response = response_of(asked, items, given_id)
        return reply_events(events_of(response), end=end) if asked.get("stream") else reply_json(response)

    return script


def asked_last(asked: Mapping[str, Any]) -> str:
    """The text of the last input, with whatever memory was put into it."""
    given = asked["input"]
    if isinstance(given, str):
        return given
    item = given[-1]
    content = item.get("content", item.get("output"))
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)
