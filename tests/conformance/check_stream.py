"""What becomes of a stream."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping

from tests.conformance import samples
from tests.conformance.check_response import same_headers
from tests.conformance.checks import OPENAI, SSE, TRANSPARENCY, Area, Run, Seen, add, check
from tests.conformance.compare import event_differences, events_of
from tests.conformance.samples import DONE, EVENTS, FIRST, chunk
from tests.conformance.stage import CHAT, STREAM, Exchange, Stage
from tests.support.replies import Pause, Reply, Send, Step, Until, chunked, head_of
from tests.support.sockets import RawClient

AREA: Area = "stream"

PAUSE_S = 0.02
"""Seconds between events that are to arrive as pieces of their own."""
SSE_HEAD = [("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache")]
END = [Send(b"0\r\n\r\n")]


def _tool(index: int, more: Mapping[str, object]) -> dict[str, object]:
    return {"tool_calls": [{"index": index, **more}]}


_NAMED = {"id": "call_a", "type": "function", "function": {"name": "f", "arguments": ""}}
_OTHER = {"id": "call_b", "type": "function", "function": {"name": "g", "arguments": ""}}
TOOLS = [
    chunk({"role": "assistant", "content": None, **_tool(0, _NAMED)}),
    *(chunk(_tool(0, {"function": {"arguments": part}})) for part in ('{"', "city", '":"Lis', 'bon"}')),
    chunk(_tool(1, _OTHER)),
    chunk(_tool(1, {"function": {"arguments": "{}"}})),
    chunk({}, "tool_calls"),
    DONE,
]
USAGE = {
    "prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12,
    "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 2, "accepted_prediction_tokens": 0},
}  # fmt: skip
WITH_USAGE = [
    *(each.replace(b"\n\n", b"").removesuffix(b"}") + b', "usage": null}\n\n' for each in EVENTS[:-1]),
    chunk({}, usage=USAGE).replace(
        b'[{"index": 0, "delta": {}, "logprobs": null, "finish_reason": null}]', b"[]"
    ),
    DONE,
]  # fmt: skip
ASKS_USAGE = f'{STREAM}, "stream_options": {{"include_usage": true}}'

VALUES: dict[str, tuple[str, str, list[bytes], str]] = {
    "events": ("events arrive in their order, one for one: role first, finish reason, `[DONE]`", OPENAI, EVENTS, STREAM),
    "usage": (
        "the usage chunk arrives as its own event, without choices; `usage: null` before it",
        OPENAI,
        WITH_USAGE,
        ASKS_USAGE,
    ),
    "tool-deltas": ("deltas of tool calls stay as they were cut; no member is added", OPENAI, TOOLS, STREAM),
    "extras": (
        "members of chunks that nobody knows arrive",
        TRANSPARENCY,
        [
            FIRST,
            chunk({"reasoning_content": "I think"}, obfuscation="aX9", token_ids=[1, 2]),
            chunk({"content": "Hm.", "x_mark": {"a": [1]}}, x_vendor={"b": None}),
            chunk({}, "stop", service_tier="default", stop_reason=2),
            DONE,
        ],
        STREAM,
    ),
    "choices": (
        "several choices stay interleaved, with their log probabilities",
        OPENAI,
        [
            *(chunk({"content": text}).replace(b'"index": 0', b'"index": %d' % index) for text, index in (("A", 1), ("B", 0), ("C", 1))),
            chunk({"content": "D"}).replace(b'"logprobs": null', b'"logprobs": {"content": [{"token": "D", "logprob": -0.5}]}'),
            chunk({}, "length"),
            DONE,
        ],
        STREAM,
    ),
    "empty-deltas": (
        "empty deltas and empty texts are events, too",
        OPENAI,
        [FIRST, chunk({}), chunk({"content": ""}), chunk({"content": "x"}), chunk({"content": ""}, "stop"), DONE],
        STREAM,
    ),
}  # fmt: skip
"""Name of a check → what is right, where it is written, the events that are to arrive, and what the client asks for."""


async def streamed(stage: Stage, text: str, reply: Reply, members: str = STREAM) -> Exchange:
    """A streamed request with this answer."""
    return await stage.exchange(reply, samples.ask(text, members))


def _arriving(name: str, events: list[bytes], members: str) -> Run:
    async def run(stage: Stage, seen: Seen) -> None:
        done = await streamed(stage, f"Do the stream's {name} stay?", samples.stream(events), members)
        seen.differs(*event_differences(b"".join(events), done.answered().body))
        seen.equal("end", "whole", done.response.ended)

    return run


for _name, (_right, _source, _events, _members) in VALUES.items():
    add(AREA, _name, _right, _source, _arriving(_name, _events, _members))


@check("bytes", "the stream is the upstream's, byte for byte")
async def stream_bytes(stage: Stage, seen: Seen) -> None:
    events = [b'data:{"b" : 1.0,"a":"\\u00e9"}\n\n', *EVENTS]
    done = await streamed(stage, "Is the stream the same?", samples.stream(events))
    seen.equal("body", b"".join(events), done.answered().body)


@check("headers", "`Content-Type`, request id and all other headers arrive; there is no length", OPENAI)
async def stream_headers(stage: Stage, seen: Seen) -> None:
    lines = [
        *SSE_HEAD,
        ("x-request-id", "req_1"),
        ("openai-processing-ms", "17"),
        ("x-ratelimit-remaining-requests", "9"),
    ]
    done = await streamed(stage, "Do the stream's headers stay?", samples.chunked_reply(lines, EVENTS, END))
    same_headers(seen, lines, done.answered())
    seen.equal("content-length", None, done.response.header("content-length"))


@check("at-once", "each event arrives before the next one is sent: nothing is collected", OPENAI)
async def at_once(stage: Stage, seen: Seen) -> None:
    go = threading.Event()
    head = head_of("200 OK", [*SSE_HEAD, ("transfer-encoding", "chunked")])
    body: list[Step] = [
        Send(head),
        *(Send(chunked(each)) for each in EVENTS[:2]),
        Until(go),
        *(Send(chunked(each)) for each in EVENTS[2:]),
    ]
    stage.play(Reply([*body, *END]), CHAT, "POST")
    async with stage.client() as client:
        sent = stage.body(samples.ask("Are you quick?", STREAM))
        await client.send("POST", stage.way.prefix + CHAT, stage.lines([], json_body=True), sent)
        try:
            came = await _until(client, b'"All"', stage.patience_s)
        finally:
            go.set()
    if not came:
        seen.differs(
            f"the first words had not arrived after {stage.patience_s:g} s; the upstream was to send more only then"
        )


async def _until(client: RawClient, needle: bytes, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await client.read_until(needle)
    except (TimeoutError, EOFError):
        return False
    return True


@check("boundaries", "events arrive, whatever the chunks (noted: whether each is a chunk of its own)", "RFC 9112 §7.1")
async def boundaries(stage: Stage, seen: Seen) -> None:
    done = await streamed(stage, "In which pieces?", samples.stream(EVENTS, pause=PAUSE_S))
    seen.differs(*event_differences(b"".join(EVENTS), done.answered().body))
    if done.response.chunks != EVENTS:
        seen.note(f"{len(EVENTS)} chunks of an event each became {len(done.response.chunks)}")


@check("fields", "`event:` and `id:` arrive with their events; data of several lines, too", SSE)
async def fields(stage: Stage, seen: Seen) -> None:
    extra = [b'event: note\nid: 7\ndata: {"choices": [],\ndata:  "x": 1}\n\n']
    events = [FIRST, *extra, *EVENTS[1:]]
    done = await streamed(stage, "Do the fields stay?", samples.stream(events))
    seen.differs(*event_differences(b"".join(events), done.answered().body))


@check("comments", "comments keep a connection alive, and arrive", SSE)
async def comments(stage: Stage, seen: Seen) -> None:
    events = [b": OPENROUTER PROCESSING\n\n", FIRST, b": ping\n\n", *EVENTS[1:]]
    done = await streamed(stage, "Do comments stay?", samples.stream(events))
    seen.differs(*event_differences(b"".join(events), done.answered().body))
    got = [text for each in events_of(done.response.body) for text in each.comments]
    seen.equal("comments", [b"OPENROUTER PROCESSING", b"ping"], got)


@check("line-ends", "events may end in CRLF", SSE)
async def line_ends(stage: Stage, seen: Seen) -> None:
    events = [each.replace(b"\n", b"\r\n") for each in EVENTS]
    done = await streamed(stage, "How do lines end?", samples.stream(events))
    seen.differs(*event_differences(b"".join(events), done.answered().body))


@check("byte-wise", "events cut anywhere, in the middle of characters too, arrive the same", "RFC 9112 §7.1; " + SSE)
async def byte_wise(stage: Stage, seen: Seen) -> None:
    events = [FIRST, chunk({"content": "Grüße 👩‍👩‍👧 日本"}), chunk({}, "stop"), DONE]
    parts = samples.pieces(b"".join(events), 3)
    steps = [step for part in parts for step in (Send(chunked(part)), Pause(0))]
    head = Send(head_of("200 OK", [*SSE_HEAD, ("transfer-encoding", "chunked")]))
    done = await streamed(stage, "Are pieces joined?", Reply([head, *steps, *END]))
    seen.differs(*event_differences(b"".join(events), done.answered().body))


@check("several-in-one", "several events in one chunk arrive as several", "RFC 9112 §7.1; " + SSE)
async def several_in_one(stage: Stage, seen: Seen) -> None:
    done = await streamed(stage, "Are they parted?", samples.chunked_reply(SSE_HEAD, [b"".join(EVENTS)], END))
    seen.differs(*event_differences(b"".join(EVENTS), done.answered().body))


@check("json-answer", "an upstream that does not stream though it was asked to is passed on as it answers")
async def json_answer(stage: Stage, seen: Seen) -> None:
    done = await streamed(stage, "Will you stream?", samples.plain(samples.ANSWER))
    seen.equal("content-type", "application/json", done.answered().header("content-type"))
    try:
        json.loads(done.response.body)
    except ValueError:
        seen.differs(f"no JSON: {done.response.body[:80]!r}")
