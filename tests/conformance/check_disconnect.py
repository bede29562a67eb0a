"""What becomes of the upstream's work when the client has gone: it costs money until somebody stops it."""

from __future__ import annotations

import asyncio

from tests.conformance import samples
from tests.conformance.check_stream import SSE_HEAD
from tests.conformance.checks import Area, Seen, check
from tests.conformance.samples import EVENTS
from tests.conformance.stage import CHAT, STREAM, NotForwarded, Stage
from tests.support.replies import Recorded, Reply, Send, Stall, chunked, head_of
from tests.support.sockets import RawClient

AREA: Area = "disconnect"

HANG_UP = "vLLM and OpenAI stop generating when their connection is closed"


async def _asked(stage: Stage, client: RawClient, reply: Reply, text: str, members: str) -> Recorded:
    """Returns when the upstream has the request."""
    asked = stage.play(reply, CHAT, "POST")
    lines = stage.lines([], json_body=True)
    await client.send("POST", stage.way.prefix + CHAT, lines, stage.body(samples.ask(text, members)))
    for _ in range(int(stage.patience_s / 0.005)):
        if asked:
            return asked[0]
        await asyncio.sleep(0.005)
    raise NotForwarded("the upstream was not asked")


async def _closes(stage: Stage, seen: Seen, request: Recorded) -> None:
    """The client has just gone."""
    took = await stage.closed_after(request)
    if took is None:
        seen.differs(
            f"the upstream's connection was still open after {max(stage.patience_s, stage.closes_within_s):g} s"
        )
    elif took > stage.closes_within_s:
        seen.differs(f"the upstream's connection was closed after {took:.1f} s")


@check("stream", "in the middle of a stream: the upstream's connection is closed within a second", HANG_UP)
async def stream(stage: Stage, seen: Seen) -> None:
    head = head_of("200 OK", [*SSE_HEAD, ("transfer-encoding", "chunked")])
    reply = Reply([Send(head), *(Send(chunked(each)) for each in EVENTS[:3]), Stall()])
    async with stage.client() as client:
        request = await _asked(stage, client, reply, "Shall I go midway?", STREAM)
        async with asyncio.timeout(stage.patience_s):
            await client.read_until(b'"All"')
    await _closes(stage, seen, request)


@check("before-stream", "before the first byte of a stream: the same", HANG_UP)
async def before_stream(stage: Stage, seen: Seen) -> None:
    async with stage.client() as client:
        request = await _asked(stage, client, Reply([Stall()]), "Shall I go before the stream?", STREAM)
    await _closes(stage, seen, request)


@check("plain", "before an answer that is no stream: the same", HANG_UP)
async def plain(stage: Stage, seen: Seen) -> None:
    async with stage.client() as client:
        request = await _asked(stage, client, Reply([Stall()]), "Shall I go before the answer?", "")
    await _closes(stage, seen, request)


@check("reset", "a client whose connection is reset: the same", HANG_UP)
async def reset(stage: Stage, seen: Seen) -> None:
    async with stage.client() as client:
        request = await _asked(stage, client, Reply([Stall()]), "Shall I go rudely?", STREAM)
        client.reset()
    await _closes(stage, seen, request)
