"""One leg of an answer while it comes in."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from functools import partial

from app.errors import UpstreamError
from app.gateway.call import Call
from app.gateway.headers import response_headers
from app.gateway.relay import LINGER_S, Tape, is_event_stream
from app.gateway.upstream import UpstreamResponse


class Arriving:
    """One of the upstream's answers while it comes in; what has come is kept. `call`: of its own; the first leg's is the
    client's until there is a second. `response`: None until its head is here."""

    def __init__(
        self, call: Call, response: UpstreamResponse | None, copy: Callable[[int, bytes], None] | None = None
    ) -> None:
        self.call = call
        self.response = response
        self.copy = copy
        self.pieces: list[tuple[int, bytes]] = []
        self.broke: UpstreamError | None = None

    @property
    def head(self) -> UpstreamResponse:
        assert self.response is not None, "it was asked for its body, which comes behind the head"
        return self.response

    @property
    def is_stream(self) -> bool:
        return is_event_stream(response_headers(self.head.headers, self.head.status))

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await anext(self.head.chunks)
        except UpstreamError as error:
            self.broke = error
            raise
        now = time.perf_counter_ns()
        self.pieces.append((now, chunk))
        if self.copy is not None:
            self.copy((now - self.call.started_ns) // 1000, chunk)
        return chunk

    async def read(self, limit: int | None = None) -> bytes:
        """All of it, or as much as is needed for `limit` bytes. Raises UpstreamError."""
        size = 0
        async for chunk in self:
            size += len(chunk)
            if limit is not None and size >= limit:
                break
        return b"".join(chunk for _, chunk in self.pieces)

    async def drain(self) -> None:
        """What comes behind its end, so that its connection is of use again; not waited for long."""
        try:
            async with asyncio.timeout(LINGER_S):
                async for _ in self:
                    pass
        except (TimeoutError, UpstreamError):
            pass  # it has said all it had to say
        await self.head.aclose()

    def tape(self) -> Tape:
        """What has come, as the relay would have recorded it."""
        times = iter([at for at, _ in self.pieces])
        tape = Tape(self.call.started_ns, now_ns=partial(next, times))
        if self.response is not None and self.is_stream:
            tape.listen_for_events()
        for _, chunk in self.pieces:
            tape.add(chunk)
        tape.finish()
        return tape
