"""What a scripted upstream answers, in steps, byte for byte; and an OpenAI-like chat answer made of them."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CAPTURES = Path(__file__).parents[1] / "fixtures" / "captures" / "vllm"


@dataclass(frozen=True)
class Send:
    """Write these bytes."""

    data: bytes


@dataclass(frozen=True)
class Pause:
    """Wait so many seconds; ends early when the peer closes."""

    seconds: float


@dataclass(frozen=True)
class Stall:
    """Say nothing more until the peer closes."""


@dataclass(frozen=True)
class Until:
    """Wait until the test sets this event."""

    event: threading.Event


@dataclass(frozen=True)
class Fin:
    """Close the connection."""


@dataclass(frozen=True)
class Rst:
    """Reset the connection."""


Step = Send | Pause | Stall | Until | Fin | Rst


@dataclass(frozen=True)
class Reply:
    """What is done when a request has come in. Without `Fin`, `Rst` or `Stall` the connection stays open."""

    steps: Sequence[Step]


@dataclass
class Recorded:
    """A request as it came. Header names and values are the raw bytes."""

    method: str
    target: str
    headers: list[tuple[bytes, bytes]]
    body: bytes
    head: bytes
    connection: int
    """Counts connections from 0."""
    peer_closed: threading.Event = field(default_factory=threading.Event)
    """The peer has closed the connection that this request came on."""

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    def header(self, name: str) -> str | None:
        for given, value in self.headers:
            if given.lower() == name.lower().encode():
                return value.decode("latin-1")
        return None

    def json(self) -> Any:
        return json.loads(self.body)


Script = Callable[[Recorded], Reply] | Sequence[Reply] | Mapping[str, Reply] | Reply


def reply_bytes(data: bytes, *, cuts: Iterable[int] = (), after: Sequence[Step] = ()) -> Reply:
    """Write `data`, in pieces that end at the offsets `cuts`, with a breath between them; then `after`."""
    places = [0, *sorted(cuts), len(data)]
    pieces: list[Step] = []
    for start, end in itertools.pairwise(places):
        pieces += [Send(data[start:end]), Pause(0)] if end > start else []
    return Reply([*pieces, *after])


def reply_json(value: object, status: str = "200 OK", headers: Sequence[tuple[str, str]] = ()) -> Reply:
    """A JSON body with its length."""
    body = json.dumps(value).encode()
    lines = [("content-type", "application/json"), ("content-length", str(len(body))), *headers]
    return Reply([Send(head_of(status, lines) + body)])


def reply_events(
    events: Sequence[bytes],
    *,
    status: str = "200 OK",
    headers: Sequence[tuple[str, str]] = (),
    pause: float = 0,
    end: Sequence[Step] | None = None,
) -> Reply:
    """A chunked event stream, one write per event; `end` instead of the terminating chunk."""
    lines = [("content-type", "text/event-stream; charset=utf-8"), ("transfer-encoding", "chunked"), *headers]
    steps: list[Step] = [Send(head_of(status, lines))]
    for event in events:
        steps += [Pause(pause), Send(chunked(event))]
    return Reply([*steps, *(end if end is not None else [Send(b"0\r\n\r\n")])])


def reply_capture(case: str, *, timing: bool = False, pause: float = 0) -> Reply:
    """A captured response, in the reads in which it came; `timing`: with the pauses too, else with `pause` seconds before each.
    Ends as the capture did."""
    raw = (CAPTURES / f"{case}.response.raw").read_bytes()
    lines = [json.loads(line) for line in (CAPTURES / f"{case}.reads.jsonl").read_text().splitlines()]
    steps: list[Step] = []
    before = 0.0
    for read in lines[:-1]:
        steps += [
            Pause(read["t"] - before if timing else pause),
            Send(raw[read["off"] : read["off"] + read["len"]]),
        ]
        before = read["t"]
    return Reply([*steps, Fin()])


def captured_request(case: str) -> tuple[str, str, list[tuple[bytes, bytes]], bytes]:
    """Method, path, headers (without framing) and body of a captured request."""
    data = json.loads((CAPTURES / f"{case}.request.json").read_bytes())
    body = data.get("body")
    headers = [
        (name.lower().encode(), value.encode())
        for name, value in data["headers"].items()
        if name.lower() not in ("host", "connection", "content-length")
    ]
    raw = data["raw_body"].encode() if "raw_body" in data else b"" if body is None else json.dumps(body).encode()
    return data["method"], data["path"], headers, raw


def captured_cases() -> list[str]:
    return sorted(path.name.removesuffix(".response.raw") for path in CAPTURES.glob("*.response.raw"))


def head_of(status: str, headers: Iterable[tuple[str, str]]) -> bytes:
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join([*lines, "", ""]).encode()


def chunked(data: bytes) -> bytes:
    """One chunk of the transfer encoding."""
    return b"%x\r\n%s\r\n" % (len(data), data)


# --- an OpenAI-like chat upstream -------------------------------------------------------------------------------------

ChatAnswer = Callable[[dict[str, Any]], str | Sequence[str] | Reply]


def chat_script(answer: ChatAnswer, *, model: str = "scripted", max_model_len: int = 32768) -> Script:
    """Answers `/v1/chat/completions` with what `answer` makes of the request: a text, its pieces, or a raw Reply.

    Stream and non-stream, `n`, usage (a token is four characters) where it is asked for; also `/v1/models`.
    """

    def script(request: Recorded) -> Reply:
        if request.path == "/v1/models":
            entry = {"id": model, "object": "model", "created": 1, "owned_by": "test", "max_model_len": max_model_len}
            return reply_json({"object": "list", "data": [entry]})
        if request.path != "/v1/chat/completions":
            return reply_json({"detail": "Not Found"}, "404 Not Found")
        asked = request.json()
        made = answer(asked)
        if isinstance(made, Reply):
            return made
        pieces = [made] if isinstance(made, str) else list(made)
        usage = _usage(asked, pieces)
        head = {"id": "chatcmpl-scripted", "created": 1700000000, "model": asked.get("model", model)}
        if not asked.get("stream"):
            message = {"role": "assistant", "content": "".join(pieces), "refusal": None}
            choices = [
                {"index": i, "message": message, "logprobs": None, "finish_reason": "stop"}
                for i in range(asked.get("n") or 1)
            ]
            return reply_json({**head, "object": "chat.completion", "choices": choices, "usage": usage})
        return reply_events(_chat_events(head, asked, pieces, usage))

    return script


def _chat_events(head: dict[str, Any], asked: dict[str, Any], pieces: list[str], usage: dict[str, int]) -> list[bytes]:
    base = {**head, "object": "chat.completion.chunk"}
    count = asked.get("n") or 1
    deltas: list[tuple[dict[str, Any], str | None]] = [({"role": "assistant", "content": ""}, None)]
    deltas += [({"content": piece}, None) for piece in pieces]
    deltas += [({}, "stop")]
    chunks: list[dict[str, Any]] = [
        {**base, "choices": [{"index": i, "delta": delta, "logprobs": None, "finish_reason": reason}]}
        for delta, reason in deltas
        for i in range(count)
    ]
    if (asked.get("stream_options") or {}).get("include_usage"):
        chunks.append({**base, "choices": [], "usage": usage})
    return [b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks] + [b"data: [DONE]\n\n"]


def _usage(asked: dict[str, Any], pieces: list[str]) -> dict[str, int]:
    prompt = len(json.dumps(asked.get("messages"))) // 4
    completion = len("".join(pieces)) // 4 * (asked.get("n") or 1)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
