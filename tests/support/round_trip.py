"""Calls there and back: made through Mneme, exported by its command, played by its other command, and compared.

What was captured of a real vLLM is one session of calls; the same requests, and some more, sent to one that runs, another.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from mneme_replay.cassette import Cassette, Headers
from mneme_replay.player import CASSETTE_HEADER
from mneme_replay.timing import headers_to_play
from tests.support.replies import Recorded, Reply, captured_cases, captured_request, reply_capture, reply_json
from tests.support.sockets import RawClient, RawResponse, fetch

ROOT = Path(__file__).parents[2]
MODEL = "tiny"
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
JSON = [(b"content-type", b"application/json")]


@dataclass(frozen=True)
class Call:
    """A request. `leaves_after`: the client goes away after so many events, 0: after the head; None: it stays."""

    name: str
    method: str
    target: str
    headers: list[tuple[bytes, bytes]]
    body: bytes
    leaves_after: int | None = None


@dataclass(frozen=True)
class Made:
    """A call that was made: its id, and the answer as its client saw it; None: the client left."""

    call: Call
    id: str
    answer: RawResponse | None


# --- sessions ---------------------------------------------------------------------------------------------------------


def captured_calls() -> list[Call]:
    """The requests whose answers were captured."""
    found = []
    for case in captured_cases():
        method, path, headers, body = captured_request(case)
        # Only paths under /v1 are the upstream's, and in `open` mode a page of another site may ask for none.
        kept = [each for each in headers if each[0] != b"origin"]
        found.append(Call(case, method, path if path.startswith("/v1/") else f"/v1{path}", kept, body))
    return found


def captured_script(case: Callable[[], str], *, timing: bool = False) -> Callable[[Recorded], Reply]:
    """An upstream that answers with the capture of the case of the moment: in its time, or just not all at once."""

    def script(request: Recorded) -> Reply:
        if request.path == "/v1/models":  # Mneme asks for the model's window
            entry = {"id": MODEL, "object": "model", "created": 1, "owned_by": "test", "max_model_len": 2048}
            return reply_json({"object": "list", "data": [entry]})
        return reply_capture(case(), timing=timing, pause=0.002)

    return script


def live_calls() -> list[Call]:
    """A session with a real vLLM: the captured requests once more, a conversation that grows, streams of all its APIs, and
    clients that go away."""
    found = [each for each in captured_calls() if not each.name.startswith(("sigterm", "client_abort"))]
    told: list[dict[str, str]] = []
    for n, text in enumerate(("I live in Lisbon.", "My dog Rex likes the sea.", "Where do we go for a walk?")):
        told = [*told, {"role": "user", "content": text}]
        found.append(_post(f"turn {n + 1}", CHAT, messages=told, max_tokens=24, seed=n, stream=n % 2 == 0))
        told = [*told, {"role": "assistant", "content": "All right."}]
    usage = {"include_usage": True}
    asked = [{"role": "user", "content": "Tell me of Lisbon, Rex and the sea."}]
    found += [
        _post("long", CHAT, messages=asked, max_tokens=900, seed=7, stream=True, stream_options=usage, ignore_eos=True),
        _post("several", CHAT, messages=asked, max_tokens=40, seed=8, n=3, logprobs=True, top_logprobs=2, stream=True),
        _post("response", RESPONSES, input="Where do I live?", max_output_tokens=60, stream=True),
        _post("message", MESSAGES, messages=asked, max_tokens=60, stream=True),
        _post("embeddings", "/v1/embeddings", input=["a", "b"]),
        Call("models", "GET", "/v1/models", [], b""),
        # The head comes before the first token; on a busy machine the rest may come all at once, too early to leave in it.
        _post("left at once", CHAT, 0, messages=asked, max_tokens=1500, seed=9, stream=True, ignore_eos=True),
        _post("left", CHAT, 4, messages=asked, max_tokens=1500, seed=9, stream=True, ignore_eos=True),
        _post("response left", RESPONSES, 6, input="Tell me of Rex.", max_output_tokens=1500, stream=True),
    ]
    return found


def _post(name: str, path: str, leaves_after: int | None = None, **fields: object) -> Call:
    body = json.dumps({"model": MODEL, **fields}, separators=(",", ":"), ensure_ascii=False).encode()
    return Call(name, "POST", path, JSON, body, leaves_after)


async def make(port: int, call: Call, headers: Sequence[tuple[bytes, bytes]] = ()) -> Made:
    """Make a call of Mneme."""
    given = [*call.headers, *headers]
    if call.leaves_after is None:
        answer = await fetch(port, call.method, call.target, given, call.body)
        return Made(call, answer.header("x-mneme-call-id") or "", answer)
    async with RawClient(port) as client:
        await client.send(call.method, call.target, given, call.body)
        head = (await client.read_until(b"\r\n\r\n")).decode("latin-1").lower()
        for _ in range(call.leaves_after):
            await client.read_until(b"\n\n")
    return Made(call, head.partition("x-mneme-call-id: ")[2].partition("\r\n")[0], None)


# --- the commands -----------------------------------------------------------------------------------------------------


def port_of(url: str) -> int:
    """The port of a base URL of `replaying`."""
    return int(url.split(":")[2].split("/")[0])


async def play(port: int, call: Call) -> RawResponse:
    """Ask a server of cassettes what Mneme was asked, to the end of the answer."""
    return await fetch(port, call.method, call.target, call.headers, call.body)


async def play_all(port: int, calls: Sequence[Call], clients: int) -> list[RawResponse]:
    """All of them, in order, by so many clients at once."""
    turns = asyncio.Semaphore(clients)

    async def one(call: Call) -> RawResponse:
        async with turns:
            return await play(port, call)

    return list(await asyncio.gather(*(one(each) for each in calls)))


# --- what came of it --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Compared:
    """A played answer beside its cassette: what differs, by kind, in words."""

    bytes: Sequence[str]
    """Of the status, the headers, the body and how it ended: as recorded, and as the first client saw it."""
    chunks: Sequence[str]
    """Of the borders of the pieces, for an answer that is sent in pieces."""
    pieces: int
    """Pieces that were compared; 0 where the answer has a length, and so no borders."""
    late_ms: Sequence[float]
    """Of each recorded piece: milliseconds by which its last byte came late; below 0: early."""


def compare(cassette: Cassette, played: RawResponse, made: Made | None = None) -> Compared:
    """A played answer beside the cassette, and beside what the client of the recording saw."""
    response = cassette.response
    assert response is not None, "every answer of a session has come"
    wanted = {
        "status": (response.status, played.status),
        "headers": (_shown(headers_to_play(response)), _shown(_text(played))),
        "body": (response.body, played.body),
        "whole": (cassette.whole, played.ended == "whole"),
        "cassette": (cassette.id, played.header(CASSETTE_HEADER)),
    }
    if made is not None and made.answer is not None:
        seen = made.answer
        wanted |= {
            "status, as its client saw it": (seen.status, played.status),
            "headers, as its client saw them": (_shown(_text(seen)), _shown(_text(played))),
            "body, as its client saw it": (seen.body, played.body),
            "end, as its client saw it": (seen.ended, played.ended),
        }
    sizes = [each.size for each in response.chunks if each.size]
    given = [len(each) for each in played.chunks]
    chunked = played.header("transfer-encoding") == "chunked"
    name = f"{cassette.request.method} {cassette.request.path} {cassette.id}"
    return Compared(
        bytes=[f"{name}: {what}: {was!r} became {now!r}"[:500] for what, (was, now) in wanted.items() if was != now],
        chunks=[f"{name}: {sizes} became {given}"] if chunked and sizes != given else [],
        pieces=len(sizes) if chunked else 0,
        late_ms=_late(cassette, played),
    )


def _late(cassette: Cassette, played: RawResponse) -> list[float]:
    """A border may lie within what one read brought, where the answer has a length: its last byte counts."""
    response = cassette.response
    assert response is not None
    came = list(zip(accumulate(map(len, played.chunks)), played.times, strict=True))
    late = []
    for chunk, end in zip(response.chunks, accumulate(each.size for each in response.chunks), strict=True):
        at = next((at for offset, at in came if offset >= end), None)
        if at is not None and chunk.size:
            late.append(1000 * at - chunk.at_us / 1000)
    return late


_OWN = {"connection", "keep-alive", "transfer-encoding", CASSETTE_HEADER}


def _text(answer: RawResponse) -> Headers:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in answer.headers]


def _shown(headers: Headers) -> list[tuple[str, str]]:
    """Without those of a connection, and Mneme's own."""
    low = [(name.lower(), value) for name, value in headers]
    return [each for each in low if each[0] not in _OWN and not each[0].startswith("x-mneme-")]


def beside(cassettes: Sequence[Cassette], played: Sequence[RawResponse], made: Sequence[Made]) -> list[Compared]:
    """Played answers beside the cassettes that say they answered, and beside the call that each was recorded from."""
    by: Mapping[str, Cassette] = {each.id: each for each in cassettes}
    calls: Mapping[str, Made] = {each.id: each for each in made}
    found = []
    for answer in played:
        id_ = answer.header(CASSETTE_HEADER) or ""
        assert id_ in by, f"no cassette answered: {answer.body[:300]!r}"
        found.append(compare(by[id_], answer, calls[id_]))
    return found
