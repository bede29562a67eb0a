"""Towards the upstream: a request out, the head of its answer back, and a record of what got none."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping

from app.errors import UpstreamError
from app.gateway.call import Call
from app.gateway.headers import Headers, request_headers
from app.gateway.inbound import ClientGone
from app.gateway.relay import Ending, Tape
from app.gateway.sealing import Sealer
from app.gateway.upstream import Transport, UpstreamRequest, UpstreamResponse
from app.metrics import Metrics
from app.tasks import Supervisor


def outgoing_headers(call: Call, *, streamed: bool = False) -> Headers:
    """The client's headers as the upstream of this call gets them."""
    return request_headers(call.raw_headers, api_key=call.target.api_key, streamed=streamed)


class Forwarder:
    """Sends requests on."""

    def __init__(
        self, transports: Mapping[bool, Transport], sealer: Sealer, metrics: Metrics, tasks: Supervisor
    ) -> None:
        """`transports`: the real one under False, the simulated one under True."""
        self._transports = transports
        self._sealer = sealer
        self._metrics = metrics
        self._tasks = tasks

    async def send(self, call: Call, body: bytes | AsyncIterator[bytes]) -> UpstreamResponse:
        """The head of the answer. Raises UpstreamError, ClientGone."""
        request = UpstreamRequest(
            call.method,
            call.target.url(call.raw_path, call.query),
            outgoing_headers(call, streamed=not isinstance(body, bytes)),
            body,
        )
        began = time.perf_counter_ns()
        call.overhead_ns = began - call.started_ns - call.waited_ns
        async with self.waiting(call, None):
            response = await self._transports[call.target.simulated].send(request)
        waited = time.perf_counter_ns() - began
        call.waited_ns += waited
        self._metrics.stage("forward", waited / 1e9)
        return response

    @contextlib.asynccontextmanager
    async def waiting(self, call: Call, response: UpstreamResponse | None) -> AsyncIterator[None]:
        """Wait for the upstream before the relay: interrupted when the client goes. A call that gets no answer is recorded
        before the error goes on, and its `response` closed."""
        ending: Ending | None = None
        try:
            with call.inbound.gone.interrupts():
                yield
        except UpstreamError as error:
            ending = Ending("broken", error)
            raise
        except ClientGone:
            ending = Ending("gone")
            raise
        except asyncio.CancelledError:
            ending = Ending("cancelled")
            raise
        finally:
            if ending is not None:
                # Also when this task is cancelled, or cancelled again.
                await asyncio.shield(self._tasks.spawn(self._failed(call, response, ending), f"record {call.id}"))

    async def _failed(self, call: Call, response: UpstreamResponse | None, ending: Ending) -> None:
        if response is not None:
            await response.aclose()
        await self._sealer.seal(call, None, ending, Tape(call.started_ns))
        self._metrics.request(call.kind, "failed" if ending.kind == "broken" else ending.kind, call.status)
