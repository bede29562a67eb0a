"""An upstream without a network, for the first request on a laptop with no account. It says that it is one."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import orjson

from app.clock import Clock
from app.context.assemble import ABOUT, NOTE, TAG, WISHES
from app.gateway.dialects import dialect_of
from app.gateway.dialects.base import Dialect
from app.gateway.headers import Headers
from app.gateway.upstream import UpstreamRequest, UpstreamResponse, is_bodyless
from app.json_text import read_json

# --- answers in the dialects of the Responses API and of `/v1/messages` --------------------------------------------------


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


def message_of(given_id: str, model: str, text: str, usage: tuple[int, int], *, cut: bool) -> dict[str, Any]:
    """A whole answer of `/v1/messages`; the others as for `response_of`."""
    read, written = usage
    return {
        "id": f"msg_{given_id}", "type": "message", "role": "assistant", "model": model,
        "content": [{"type": "text", "text": text}], "stop_reason": "max_tokens" if cut else "end_turn", "stop_sequence": None,
        "usage": {
            "input_tokens": read, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": written,
        },
    }  # fmt: skip


def message_events(message: Mapping[str, Any], pieces: Sequence[str]) -> Iterator[bytes]:
    """The same as a stream, its text in `pieces`."""
    ended = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    begun = {**message, "content": [], "stop_reason": None, "usage": {**message["usage"], "output_tokens": 0}}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": begun},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": each}}
            for each in pieces
        ),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ended, "usage": {"output_tokens": message["usage"]["output_tokens"]}},
        {"type": "message_stop"},
    ]
    for event in events:
        yield b"event: " + event["type"].encode() + b"\ndata: " + orjson.dumps(event) + b"\n\n"


# --- the transport -------------------------------------------------------------------------------------------------------

MODEL = "mneme-simulated"
WINDOW = 128_000
"""Tokens, told in the list of models: that of gpt-4o. Open WebUI's own tools take 8,000, and what nobody knows has 8,192."""
PAUSE_S = 0.005
"""Seconds between the pieces of a stream: enough for them to arrive one by one."""
WORDS_PER_PIECE = 3
QUOTED_CHARS = 200
"""Characters of the last message that are quoted back."""
_BLOCK = re.compile(rf"<{TAG} [^>]*>\n(.*?)\n?</{TAG} [^>]*>\s*", re.DOTALL)
_PIECES = re.compile(rf"(?:\S+\s*){{1,{WORDS_PER_PIECE}}}")
_HEADINGS = frozenset({NOTE, ABOUT, WISHES})
_NOT_A_NOTE = re.compile(r"\d{4}-\d{2}-\d{2}:")
"""The date over a group of turns."""


class SimulatedTransport:
    """Answers chat completions, responses, messages and the model list in-process; the same request always gets the same
    answer.

    `count` counts the tokens of a text; usage is made of it.
    """

    def __init__(self, count: Callable[[str], int], clock: Clock, *, pause_s: float = PAUSE_S) -> None:
        self._count = count
        self._clock = clock
        self._pause_s = pause_s

    async def aclose(self) -> None:
        """There is nothing to close."""

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        body = request.body if isinstance(request.body, bytes) else b"".join([piece async for piece in request.body])
        path = urlsplit(request.url).path
        if path.endswith("/chat/completions") and request.method == "POST":
            return self._chat(request, body)
        for name, answer in (("responses", self._respond), ("messages", self._message)):
            dialect = dialect_of(request.method, f"/v1/{name}")
            if path.endswith(f"/{name}") and dialect is not None:
                return answer(request, body, dialect)
        if request.method in ("GET", "HEAD"):
            if path.endswith("/models"):
                return self._json(request, {"object": "list", "data": [self._model()]})
            if path.endswith(f"/models/{MODEL}"):
                return self._json(request, self._model())
        message = f"The simulated upstream has no {request.method} {path}: configure a real one for it."
        return self._error(request, 404, message, code="unknown_url")

    def _chat(self, request: UpstreamRequest, body: bytes) -> UpstreamResponse:
        try:
            asked = read_json(body)
        except ValueError:
            return self._error(request, 400, "The body is not JSON.")
        messages = asked.get("messages") if isinstance(asked, dict) else None
        if not isinstance(messages, list) or not messages or not all(isinstance(each, dict) for each in messages):
            return self._error(request, 400, "`messages` must be an array of messages.", param="messages")
        texts = [_text_of(message) for message in messages]
        pieces = _PIECES.findall(answer_to(messages))
        limit = _number(asked.get("max_completion_tokens")) or _number(asked.get("max_tokens")) or len(pieces)
        reason = "stop" if limit >= len(pieces) else "length"
        pieces = pieces[:limit]
        count = min(_number(asked.get("n")) or 1, 128)
        prompt, completion = sum(map(self._count, texts)), self._count("".join(pieces)) * count
        usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
        head = {"id": f"chatcmpl-{_digest(body)}", "created": int(self._clock.now().timestamp()), "model": MODEL}
        if asked.get("stream") is True:
            options = asked.get("stream_options")
            wants_usage = isinstance(options, dict) and options.get("include_usage") is True
            events = _events(head, pieces, count, reason, usage if wants_usage else None)
            return self._stream(body, events)
        message = {"role": "assistant", "content": "".join(pieces), "refusal": None}
        choices = [
            {"index": index, "message": message, "logprobs": None, "finish_reason": reason} for index in range(count)
        ]
        return self._json(request, {**head, "object": "chat.completion", "choices": choices, "usage": usage})

    def _respond(self, request: UpstreamRequest, body: bytes, dialect: Dialect) -> UpstreamResponse:
        """The Responses API, as far as a text goes."""
        try:
            asked = read_json(body)
        except ValueError:
            return self._error(request, 400, "The body is not JSON.")
        asked = asked if isinstance(asked, dict) else {}
        if asked.get("previous_response_id") or asked.get("conversation") or asked.get("background"):
            message = "The simulated upstream keeps nothing: send the whole input, or a session (X-Mneme-Session)."
            return self._error(request, 400, message, param="previous_response_id", code="previous_response_not_found")
        messages = dialect.messages(asked) or ()
        if not any(each.get("role") != "system" for each in messages):
            return self._error(request, 400, "`input` must be a text or an array of items.", param="input")
        pieces = _PIECES.findall(answer_to(messages))
        limit = _number(asked.get("max_output_tokens")) or len(pieces)
        text = "".join(pieces[:limit])
        read = sum(self._count(_text_of(message)) for message in messages)
        made = response_of(
            asked, _digest(body), int(self._clock.now().timestamp()), MODEL, text, (read, self._count(text)),
            cut=limit < len(pieces),
        )  # fmt: skip
        if asked.get("stream") is not True:
            return self._json(request, made)
        return self._stream(body, events_of(made, pieces[:limit]))

    def _message(self, request: UpstreamRequest, body: bytes, dialect: Dialect) -> UpstreamResponse:
        """The Messages API, as far as a text goes."""
        try:
            asked = read_json(body)
        except ValueError:
            asked = None
        messages = dialect.messages(asked) if isinstance(asked, dict) else None
        if not messages or not any(each.get("role") != "system" for each in messages):
            error = {"type": "invalid_request_error", "message": "`messages` must be an array of messages."}
            return self._json(request, {"type": "error", "error": error}, 400)
        pieces = _PIECES.findall(answer_to(messages))
        limit = _number(asked.get("max_tokens")) or len(pieces)
        text = "".join(pieces[:limit])
        usage = sum(self._count(_text_of(message)) for message in messages), self._count(text)
        made = message_of(_digest(body), MODEL, text, usage, cut=limit < len(pieces))
        if asked.get("stream") is not True:
            return self._json(request, made)
        return self._stream(body, message_events(made, pieces[:limit]), b"request-id")

    def _stream(self, body: bytes, events: Iterator[bytes], naming: bytes = b"x-request-id") -> UpstreamResponse:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (naming, _digest(body).encode())]
        chunks = self._paced(events)
        return UpstreamResponse(200, "OK", headers, chunks, chunks.aclose)

    async def _paced(self, events: Iterator[bytes]) -> AsyncGenerator[bytes, None]:
        for event in events:
            yield event
            await asyncio.sleep(self._pause_s)

    def _model(self) -> dict[str, Any]:
        return {"id": MODEL, "object": "model", "created": 0, "owned_by": "mneme", "max_model_len": WINDOW}

    def _json(self, request: UpstreamRequest, value: object, status: int = 200) -> UpstreamResponse:
        body = orjson.dumps(value)
        headers: Headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"x-request-id", _digest(body).encode()),
        ]
        bodyless = is_bodyless(request.method, status, headers)
        reason = {200: "OK", 400: "Bad Request", 404: "Not Found"}[status]
        return UpstreamResponse(status, reason, headers, _once(b"" if bodyless else body), _nothing, bodyless)

    def _error(
        self, request: UpstreamRequest, status: int, message: str, *, param: str | None = None, code: str | None = None
    ) -> UpstreamResponse:
        error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
        return self._json(request, {"error": error}, status)


def answer_to(messages: Sequence[Mapping[str, Any]]) -> str:
    """What the simulated upstream says: what it is, what it was asked, and what memory it was given."""
    notes = [note for message in messages for note in notes_in(_text_of(message))]
    last = next((message for message in reversed(messages) if message.get("role") == "user"), messages[-1])
    asked = _BLOCK.sub("", _text_of(last)).strip()
    quoted = asked if len(asked) <= QUOTED_CHARS else asked[:QUOTED_CHARS] + "…"
    lines = [f"This is a simulated answer: no upstream is configured. You said: “{quoted}”"]
    if notes:
        lines += [f"Memory gave me {len(notes)} note{'s' if len(notes) > 1 else ''}:", *notes]
    else:
        lines.append("Memory gave me nothing for this.")
    return "\n".join(lines)


def notes_in(text: str) -> list[str]:
    """The notes in the memory blocks of a text, each as a line of a list."""
    lines = [line.strip() for block in _BLOCK.findall(text) for line in block.split("\n")]
    notes = [line for line in lines if line and line not in _HEADINGS and not _NOT_A_NOTE.fullmatch(line)]
    return [note if note.startswith("- ") else f"- {note}" for note in notes]


def _events(
    head: dict[str, Any], pieces: list[str], count: int, reason: str, usage: dict[str, int] | None
) -> Iterator[bytes]:
    base = {**head, "object": "chat.completion.chunk"}
    deltas: list[tuple[dict[str, Any], str | None]] = [({"role": "assistant", "content": ""}, None)]
    deltas += [({"content": piece}, None) for piece in pieces]
    deltas.append(({}, reason))
    for delta, finish in deltas:
        for index in range(count):
            choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}
            yield b"data: " + orjson.dumps({**base, "choices": [choice]}) + b"\n\n"
    if usage is not None:
        yield b"data: " + orjson.dumps({**base, "choices": [], "usage": usage}) + b"\n\n"
    yield b"data: [DONE]\n\n"


def _text_of(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        return "\n".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _digest(body: bytes) -> str:
    return "sim-" + hashlib.sha256(body).hexdigest()[:24]


async def _once(body: bytes) -> AsyncIterator[bytes]:
    if body:
        yield body


async def _nothing() -> None:
    return
