"""Cassettes for tests: made by hand, and from what a real vLLM was seen to send."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from mneme_replay.cassette import Cassette, Chunk, Request, Response
from tests.support.replies import CAPTURES, captured_request

CHAT = "/v1/chat/completions"
JSON_HEADERS = (("content-type", "application/json"),)
SSE_HEADERS = (("content-type", "text/event-stream; charset=utf-8"),)
AT = "2026-05-03T10:00:00.000000Z"


def asking(text: str = "Say hello.", **fields: Any) -> bytes:
    """The body of a chat request, as the OpenAI SDK writes it."""
    fields = {"messages": [{"role": "user", "content": text}], "model": "tiny"} | fields
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def answering(text: str = "Hello!") -> bytes:
    """The body of an answer."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    fields = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "tiny", "choices": [choice]}
    return json.dumps(fields | {"usage": usage}, separators=(",", ":"), ensure_ascii=False).encode()


def streaming(*texts: str) -> list[bytes]:
    """The events of a streamed answer, `[DONE]` with them."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "tiny"}
    deltas: list[tuple[dict[str, str], str | None]] = [({"role": "assistant", "content": ""}, None)]
    deltas += [({"content": text}, None) for text in texts]
    deltas.append(({}, "stop"))
    events = []
    for delta, reason in deltas:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        data = json.dumps(head | {"choices": [choice]}, separators=(",", ":"), ensure_ascii=False)
        events.append(f"data: {data}\n\n".encode())
    return [*events, b"data: [DONE]\n\n"]


def cassette(number: int = 1, body: bytes | None = None, answer: bytes | None = None, **fields: Any) -> Cassette:
    """A whole call. `fields` replace those of the cassette."""
    answer = answering() if answer is None else answer
    at = datetime.fromisoformat(AT) + timedelta(seconds=number)
    began = f"{int(at.timestamp() * 1000):012x}"
    made = Cassette(
        id=f"{began[:8]}-{began[8:]}-7000-8000-{number:012d}",
        recorded_at=at.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        outcome="complete",
        request=Request(method="POST", path=CHAT, headers=JSON_HEADERS, body=asking() if body is None else body),
        response=Response(status=200, headers=JSON_HEADERS, body=answer, chunks=(Chunk(1500, len(answer)),)),
        name=f"{number:03d}.json",
    )
    return replace(made, **fields)


def streamed(number: int = 1, body: bytes | None = None, events: list[bytes] | None = None, **fields: Any) -> Cassette:
    """A whole call whose answer came event by event, 10 ms apart."""
    events = streaming("Hel", "lo!") if events is None else events
    chunks = tuple(Chunk(10_000 * n, len(each)) for n, each in enumerate(events, 1))
    response = Response(status=200, headers=SSE_HEADERS, body=b"".join(events), chunks=chunks)
    return replace(cassette(number, asking(stream=True) if body is None else body, response=response), **fields)


@cache
def captured(case: str) -> Cassette:
    """What a real vLLM sent: a chunk is what one read brought of the body."""
    method, path, headers, body = captured_request(case)
    raw = (CAPTURES / f"{case}.response.raw").read_bytes()
    reads = [json.loads(line) for line in (CAPTURES / f"{case}.reads.jsonl").read_text().splitlines()][:-1]
    end = raw.index(b"\r\n\r\n") + 4
    first, *lines = raw[: end - 4].decode("latin-1").split("\r\n")
    found = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    low = {name.lower(): value for name, value in found}
    places: list[tuple[int, int]]
    if low.get("transfer-encoding") == "chunked":
        places, whole = _unchunked(raw, end)
    else:
        places, whole = [(end, len(raw))], len(raw) - end == int(low.get("content-length", len(raw) - end))
    chunks = []
    for read in reads:
        start, stop = read["off"], read["off"] + read["len"]
        size = sum(max(0, min(stop, b) - max(start, a)) for a, b in places)
        chunks += [Chunk(int(read["t"] * 1e6), size)] if size else []
    return Cassette(
        id=f"captured-{case}",
        recorded_at=AT,
        outcome="complete" if whole or method == "HEAD" else "broken",
        request=Request(method=method, path=path, headers=[(a.decode(), b.decode()) for a, b in headers], body=body),
        response=Response(
            status=int(first.split(" ")[1]), headers=found, body=b"".join(raw[a:b] for a, b in places), chunks=chunks
        ),
        name=f"{case}.json",
    )


def _unchunked(raw: bytes, at: int) -> tuple[list[tuple[int, int]], bool]:
    """Where the data of the chunks lies, and whether the last one came."""
    places: list[tuple[int, int]] = []
    while (end := raw.find(b"\r\n", at)) >= 0:
        size = int(raw[at:end], 16)
        if size == 0:
            return places, True
        places.append((end + 2, min(end + 2 + size, len(raw))))
        at = end + 2 + size + 2
    return places, False
