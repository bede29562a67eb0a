"""A scripted OpenAI upstream. What follows a colon in the model's name is the script: `any:chunks=200;gap_ms=5;status=429`.

`chunks`: words of the answer, each an event of its own in a stream (20). `gap_ms`: milliseconds before each event, and
before a plain answer (0). `status`: what it answers with (200; anything else is an error in OpenAI's shape).

Run by hand: `python -m loadtests.mock_upstream`; it prints its port.
"""

from __future__ import annotations

import asyncio
import functools
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from loadtests.serving import Application, Gone, Receive, Scope, Send, read_body, serve
from loadtests.texts import Talk

ANSWERS = 64
"""Different answers for one script; which one depends on the request, so that stored answers are not all alike."""
WINDOW = 131_072
"""Context window that `/v1/models` tells, tokens: of today's usual models."""
CREATED = 1_700_000_000
HEADERS = [
    (b"x-request-id", b"req_0123456789abcdef"),
    (b"openai-processing-ms", b"7"),
    (b"x-ratelimit-remaining-requests", b"4999"),
]


@dataclass(frozen=True, slots=True)
class Script:
    """What a model's name asks for."""

    chunks: int = 20
    gap_ms: float = 0.0
    status: int = 200
    keep: int = 0

    @classmethod
    def of(cls, model: str) -> Script:
        """Raises ValueError for a name that is no script."""
        kinds: dict[str, Callable[[str], Any]] = {"chunks": int, "gap_ms": float, "status": int, "keep": int}
        given = dict(part.split("=", 1) for part in model.partition(":")[2].split(";") if part)
        if unknown := given.keys() - kinds.keys():
            raise ValueError(f"a mock model has no {', '.join(sorted(unknown))}")
        return cls(**{name: kinds[name](value) for name, value in given.items()})


@functools.lru_cache(maxsize=1024)
def plain_answer(model: str, chunks: int, variant: int) -> bytes:
    """The body of an answer that is not streamed."""
    content = " ".join(Talk(variant).words(chunks))
    message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None, "annotations": []}
    return orjson.dumps(
        {
            "id": f"chatcmpl-{variant}",
            "object": "chat.completion",
            "created": CREATED,
            "model": model,
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
            "usage": _usage(chunks),
            "service_tier": "default",
            "system_fingerprint": "fp_mock",
        }
    )


@functools.lru_cache(maxsize=1024)
def stream_events(model: str, chunks: int, variant: int, usage: bool) -> tuple[bytes, ...]:
    """The events of a streamed answer: the role, a word each, the end, the usage where asked for, `[DONE]`."""
    events = [_chunk(model, variant, {"role": "assistant", "content": "", "refusal": None})]
    events += [_chunk(model, variant, {"content": f"{word} "}) for word in Talk(variant).words(chunks)]
    events.append(_chunk(model, variant, {}, finish="stop"))
    if usage:
        events.append(_chunk(model, variant, None, usage=_usage(chunks)))
    return (*(b"data: " + orjson.dumps(each) + b"\n\n" for each in events), b"data: [DONE]\n\n")


def _chunk(
    model: str, variant: int, delta: dict[str, Any] | None, finish: str | None = None, usage: Any = None
) -> dict[str, Any]:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]
    return {
        "id": f"chatcmpl-{variant}",
        "object": "chat.completion.chunk",
        "created": CREATED,
        "model": model,
        "service_tier": "default",
        "system_fingerprint": "fp_mock",
        "choices": choices,
        **({"usage": usage} if usage else {}),
    }


def _usage(chunks: int) -> dict[str, Any]:
    return {"prompt_tokens": 11, "completion_tokens": chunks, "total_tokens": 11 + chunks}


def keeping(file: Path) -> Application:
    """The ASGI application, with a file for the bodies that are to be kept."""

    async def kept(scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope, receive, send, file)

    return kept


async def app(scope: Scope, receive: Receive, send: Send, file: Path | None = None) -> None:
    """The ASGI application."""
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    try:
        body = await read_body(receive)
    except Gone:
        return
    if scope["path"].endswith("/models"):
        entry = {"id": "mock", "object": "model", "created": CREATED, "owned_by": "mock", "max_model_len": WINDOW}
        await _reply(send, 200, orjson.dumps({"object": "list", "data": [entry]}))
        return
    try:
        request = orjson.loads(body)
        model = request["model"]
        script = Script.of(model)
    except (ValueError, KeyError, TypeError) as error:
        await _refuse(send, 400, f"{type(error).__name__}: {error}")
        return
    if script.keep and file is not None:
        with file.open("ab") as kept:
            kept.write(body.replace(b"\n", b" ") + b"\n")
    variant = zlib.crc32(body) % ANSWERS
    if script.status != 200:
        await _refuse(send, script.status, "This is what the model's name asked for.")
    elif request.get("stream"):
        usage = bool((request.get("stream_options") or {}).get("include_usage"))
        await _stream(send, stream_events(model, script.chunks, variant, usage), script.gap_ms)
    else:
        await asyncio.sleep(script.gap_ms / 1000)
        await _reply(send, 200, plain_answer(model, script.chunks, variant))


async def _stream(send: Send, events: tuple[bytes, ...], gap_ms: float) -> None:
    headers = [(b"content-type", b"text/event-stream; charset=utf-8"), *HEADERS]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for event in events:
        # Also without a gap each event goes out by itself, as a model's tokens do: uvloop writes at the end of a turn.
        await asyncio.sleep(gap_ms / 1000)
        await send({"type": "http.response.body", "body": event, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _reply(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *HEADERS]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _refuse(send: Send, status: int, message: str) -> None:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    await _reply(send, status, orjson.dumps({"error": error}))


if __name__ == "__main__":
    serve(keeping(Path(sys.argv[1])) if len(sys.argv) > 1 else app)
