"""A leg keeps what came, with its times, as the relay would have recorded it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from app.errors import UpstreamError
from app.features.paging.tool_loop import Arriving
from app.gateway.upstream import UpstreamBroke, UpstreamResponse

EVENTS = [b"data: 1\n\nda", b"ta: 2\n\n", b": end\n\n"]


class Source:
    """An upstream's answer: an exception is raised and an event waited for where it stands."""

    def __init__(self, *chunks: bytes | Exception | asyncio.Event, kind: bytes = b"text/event-stream") -> None:
        self.chunks = chunks
        self.closed = 0
        self.copied: list[tuple[int, bytes]] = []
        response = UpstreamResponse(200, "", [(b"content-type", kind)], self._given(), self._close)
        call: Any = SimpleNamespace(started_ns=0, response=response)
        self.leg = Arriving(call, lambda at, chunk: self.copied.append((at, chunk)))

    async def _given(self) -> AsyncIterator[bytes]:
        for each in self.chunks:
            if isinstance(each, asyncio.Event):
                await each.wait()
            elif isinstance(each, Exception):
                raise each
            else:
                yield each

    async def _close(self) -> None:
        self.closed += 1


async def test_its_tape_has_chunks_and_events() -> None:
    source = Source(*EVENTS)
    assert [each async for each in source.leg] == EVENTS
    tape = source.leg.tape()
    assert tape.body == b"".join(EVENTS)
    assert list(tape.chunk_offsets) == [0, 11, 18]
    assert list(tape.event_offsets) == [0, 9, 18]
    assert list(tape.chunk_times) == [at for at, _ in source.copied] == sorted(tape.chunk_times)
    assert [chunk for _, chunk in source.copied] == EVENTS


async def test_of_a_body_there_are_no_events() -> None:
    source = Source(b'{"a":', b"1}", kind=b"application/json")
    assert await source.leg.read() == b'{"a":1}'
    assert not source.leg.is_stream
    assert not source.leg.tape().event_offsets


async def test_no_more_is_read_than_is_needed() -> None:
    source = Source(b"ab", b"cd", b"ef")
    assert await source.leg.read(3) == b"abcd"


async def test_what_breaks_is_kept_as_far_as_it_came() -> None:
    source = Source(b"ab", UpstreamBroke("gone"))
    with pytest.raises(UpstreamError):
        await source.leg.read()
    assert source.leg.broke is not None
    assert source.leg.tape().body == b"ab"


@pytest.mark.parametrize("end", [None, UpstreamBroke("gone"), asyncio.Event()])
async def test_what_comes_behind_its_end_is_not_waited_for_long(end: Any) -> None:
    source = Source(b"ab", *([end] if end is not None else []))
    await source.leg.drain()
    assert source.closed == 1
    assert source.leg.tape().body == b"ab"
