"""A leg keeps what came, with its times, as the relay would have recorded it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from app.features.paging.tool_loop import Arriving
from app.gateway.upstream import UpstreamBroke, UpstreamResponse


class Source:
    """An upstream's answer: an exception is raised and an event waited for where it stands."""

    def __init__(self, *chunks: bytes | Exception | asyncio.Event, kind: bytes = b"text/event-stream") -> None:
        self.chunks = chunks
        self.closed = 0
        response = UpstreamResponse(200, "", [(b"content-type", kind)], self._given(), self._close)
        call: Any = SimpleNamespace(started_ns=0, response=response)
        self.leg = Arriving(call)

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


async def test_no_more_is_read_than_is_needed() -> None:
    source = Source(b"ab", b"cd", b"ef")
    assert await source.leg.read(3) == b"abcd"


@pytest.mark.parametrize("end", [None, UpstreamBroke("gone"), asyncio.Event()])
async def test_what_comes_behind_its_end_is_not_waited_for_long(end: Any) -> None:
    source = Source(b"ab", *([end] if end is not None else []))
    await source.leg.drain()
    assert source.closed == 1
    assert source.leg.tape().body == b"ab"
