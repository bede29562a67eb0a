"""Answers of the Responses API: where a stream of named events ends, and what it amounts to. See `sse.py` for the bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from app.gateway.responses_items import assistant_of
from app.gateway.sse import DONE, Answer, Choice, EventParser

_LAST = ("response.completed", "response.failed", "response.incomplete")
"""The events that end a stream; each holds the whole response."""
_FORMS = (
    *(f"{field}:{space}{name}".encode() for field in ("event",) for space in (" ", "") for name in (*_LAST, "error")),
    *(f'data:{space}{{"type":{inner}"{name}"'.encode() for space in (" ", "") for inner in ("", " ") for name in _LAST),
    b"data: " + DONE,
    b"data:" + DONE,
)
"""How the first line of the last event begins. Some servers leave the event's name out; then it is the first of its data."""
_MARKS = (*(name.encode() for name in _LAST), DONE, b"event: error", b"event:error")
_LAST_LINE = re.compile(rb"(?<![^\r\n])(?:" + b"|".join(map(re.escape, _FORMS)) + rb")")
_LONGEST = max(map(len, _FORMS))


class LastEventGuard:
    """Holds back the last event of a stream, and what follows: `response.completed`, `.failed`, `.incomplete`, `error`, or
    `[DONE]` where a server sends that.

    A few bytes at the beginning of a line that could still become such an event wait too. Nothing else ever does.
    """

    __slots__ = ("_at_line_start", "_held", "_last", "ended")

    def __init__(self) -> None:
        self.ended = False
        """The last event is whole."""
        self._held: list[bytes] = []
        self._last: EventParser | None = None
        self._at_line_start = True

    def feed(self, chunk: bytes) -> bytes:
        """The bytes that may be sent now."""
        if self._last is not None:
            self._hold(chunk)
            return b""
        if self._held:
            chunk = self._held.pop() + chunk
        if not chunk:
            return chunk
        cut = self._last_event(chunk) if any(mark in chunk for mark in _MARKS) else None
        if cut is not None:
            self._last = EventParser()
            self._hold(chunk[cut:])
            return chunk[:cut]
        cut = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
        begins_a_line = cut > 0 or self._at_line_start
        rest = chunk[cut:]
        if begins_a_line and rest and len(rest) < _LONGEST and any(form.startswith(rest) for form in _FORMS):
            self._held.append(rest)
            self._at_line_start = True
            return chunk[:cut]
        self._at_line_start = not rest
        return chunk

    def rest(self) -> bytes:
        """What is held back; given out once."""
        held = b"".join(self._held)
        self._held.clear()
        return held

    def _hold(self, chunk: bytes) -> None:
        self._held.append(chunk)
        if self._last is not None and self._last.feed(chunk):
            self.ended = True

    def _last_event(self, chunk: bytes) -> int | None:
        for line in _LAST_LINE.finditer(chunk):
            if line.start() > 0 or self._at_line_start:
                return line.start()
        return None


def fold(events: Iterable[bytes]) -> Answer:
    """Put a stream together again. `events` are the data of its events, see `sse.payloads`.

    Items are believed as they came one by one: the response in the last event lacks them, or most of their text, on some
    servers. It is what counts for all else.
    """
    answer, growing = Answer(), _Growing()
    for data in events:
        if data.strip() == DONE:
            answer.done = True
            continue
        try:
            event = orjson.loads(data)
        except orjson.JSONDecodeError:
            event = None
        if not isinstance(event, dict):
            answer.malformed += 1
            continue
        response = event.get("response")
        if isinstance(response, dict):
            growing.response = response
            _take_head(answer, response)
        elif event.get("type") == "error" or event.get("error"):
            answer.error = event.get("error") or {name: event.get(name) for name in ("code", "message", "param")}
        else:
            growing.take(event)
    _conclude(answer, growing.items(), growing.response)
    return answer


def answer_of_json(body: bytes) -> Answer | None:
    """The answer in a response that came in one piece; None when it is not a JSON object."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(document, dict):
        return None
    answer = Answer()
    _take_head(answer, document)
    _conclude(answer, _dicts(document.get("output")), document)
    return answer


def _take_head(answer: Answer, response: Mapping[str, Any]) -> None:
    given, model, created = response.get("id"), response.get("model"), response.get("created_at")
    answer.id = given if isinstance(given, str) else answer.id
    answer.model = model if isinstance(model, str) else answer.model
    answer.created = int(created) if isinstance(created, int | float) else answer.created
    usage = response.get("usage")
    if isinstance(usage, dict):
        # By the names of chat completions, which the accountant reads.
        answer.usage = {
            "prompt_tokens": usage.get("input_tokens"),
            "completion_tokens": usage.get("output_tokens"),
            "prompt_tokens_details": usage.get("input_tokens_details"),
        }
    if response.get("error"):
        answer.error = response["error"]


def _conclude(answer: Answer, items: list[dict[str, Any]], response: Mapping[str, Any]) -> None:
    """The one choice that a response is, and how it ended."""
    status = response.get("status")
    message = assistant_of(items)
    if message is None and not items and status not in ("completed", "incomplete"):
        return
    message = message or {}
    choice = Choice(
        content=_text(message.get("content")),
        refusal=message.get("refusal"),
        reasoning=_thoughts(items),
        tool_calls=message.get("tool_calls", []),
    )
    if status == "completed":
        choice.finish_reason, answer.done = "tool_calls" if choice.tool_calls else "stop", True
    elif status == "incomplete":
        details = response.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, Mapping) else None
        choice.finish_reason = "length" if reason == "max_output_tokens" else str(reason or "incomplete")
    elif status == "cancelled":
        choice.finish_reason = "abort"
    answer.choices = [choice]


def _text(content: Any) -> str | None:
    """The texts of several parts, a line each, as they are when they come back."""
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, Mapping)]
        return "\n".join(text for text in texts if isinstance(text, str)) if texts else None
    return content if isinstance(content, str) else None


def _thoughts(items: Iterable[Mapping[str, Any]]) -> str | None:
    texts = [
        part["text"]
        for item in items
        if item.get("type") == "reasoning"
        for part in (*_dicts(item.get("summary")), *_dicts(item.get("content")))
        if isinstance(part.get("text"), str)
    ]
    return "\n".join(texts) if texts else None


def _dicts(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


_DELTAS = {
    "response.output_text.delta": "output_text",
    "response.refusal.delta": "refusal",
    "response.reasoning_text.delta": "reasoning_text",
    "response.reasoning_summary_text.delta": "summary_text",
    "response.function_call_arguments.delta": "arguments",
    "response.custom_tool_call_input.delta": "input",
}


class _Growing:
    """The items of a stream while they come in. Texts are collected and joined once, and only for what broke off."""

    __slots__ = ("_begun", "_done", "_texts", "response")

    def __init__(self) -> None:
        self.response: Mapping[str, Any] = {}
        """The latest that was told of the whole."""
        self._begun: dict[int, dict[str, Any]] = {}
        self._done: dict[int, dict[str, Any]] = {}
        self._texts: dict[int, dict[tuple[str, int], list[str]]] = {}

    def take(self, event: Mapping[str, Any]) -> None:
        kind, index = event.get("type"), event.get("output_index")
        if not isinstance(index, int):
            return
        item, delta = event.get("item"), event.get("delta")
        if kind == "response.output_item.done" and isinstance(item, dict):
            self._done[index] = item
        elif kind == "response.output_item.added" and isinstance(item, dict):
            self._begun[index] = item
        elif isinstance(kind, str) and kind in _DELTAS and isinstance(delta, str):
            part = event.get("content_index", event.get("summary_index"))
            place = (_DELTAS[kind], part if isinstance(part, int) else 0)
            self._texts.setdefault(index, {}).setdefault(place, []).append(delta)

    def items(self) -> list[dict[str, Any]]:
        """The items as far as they came; where none did, those of the whole response."""
        indexes = sorted({*self._begun, *self._done, *self._texts})
        if not indexes:
            return _dicts(self.response.get("output"))
        return [self._done.get(index) or self._broken_off(index) for index in indexes]

    def _broken_off(self, index: int) -> dict[str, Any]:
        texts = {place: "".join(pieces) for place, pieces in self._texts.get(index, {}).items()}
        item = dict(self._begun.get(index, {}))
        parts: list[dict[str, Any]] = []
        for (kind, _), text in sorted(texts.items(), key=lambda each: each[0][1]):
            if kind in ("arguments", "input"):
                item = {"type": "function_call" if kind == "arguments" else "custom_tool_call"} | item | {kind: text}
            elif kind in ("reasoning_text", "summary_text"):
                parts.append({"type": kind, "text": text})
                item = {"type": "reasoning"} | item | {"content": parts}
            else:
                parts.append({"type": kind, "text" if kind == "output_text" else kind: text})
                item = {"type": "message", "role": "assistant"} | item | {"content": parts}
        return item
