"""Towards the upstream: a request out, the head of its answer back, and a record of what got none."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from typing import Protocol

from app.capture.masking import keyless
from app.dialects.splice import with_value
from app.errors import UpstreamError
from app.gateway.call import Call
from app.gateway.client import ClientGone
from app.gateway.finalize import Finalizer
from app.gateway.headers import Headers, request_headers
from app.gateway.relay import Ending, Tape
from app.gateway.sender import Errand, Sender
from app.gateway.upstream import Target, UpstreamRequest, UpstreamResponse
from app.metrics import AttemptResult, Metrics
from app.tasks import Supervisor
from mneme_replay.secrets import is_secret

log = logging.getLogger("mneme.upstream")


ERROR_LIMIT = 64 * 1024
"""Bytes of a refusal that are read to find out whether it is one of length; real ones have some hundred."""
_ACCOUNTS = (b"token", b"api-key", b"openai-organization", b"openai-project")
"""A header whose name has one of these in it, or says that it carries a key, belongs to the upstream that the client means, and
to no other."""


class Closing(Protocol):
    """What holds a connection to an upstream."""

    async def aclose(self) -> None:
        """Let go of it."""
        ...


def outgoing_headers(call: Call, target: Target | None = None, *, streamed: bool = False) -> Headers:
    """The client's headers as `target`, by default the upstream of this call, gets them.

    An upstream that stands in for another never sees the client's credentials: it has a key of its own, or none.
    """
    target = target or call.target
    given = call.raw_headers
    if target.stands_in:
        given = [each for each in given if not _is_of_an_account(each[0])]
    return request_headers(given, api_key=target.api_key, streamed=streamed, unread=call.bare)


def _is_of_an_account(name: bytes) -> bool:
    low = name.lower()
    return is_secret(low.decode("latin-1")) or any(part in low for part in _ACCOUNTS)


class Forwarder:
    """Sends requests on."""

    def __init__(self, sender: Sender, finalizer: Finalizer, metrics: Metrics, tasks: Supervisor) -> None:
        self._sender = sender
        self._finalizer = finalizer
        self._metrics = metrics
        self._tasks = tasks

    async def send(self, call: Call, body: bytes | AsyncIterator[bytes]) -> UpstreamResponse:
        """The head of the answer. `call` then says which upstream it came from, and what that one was sent. Raises
        UpstreamError, ClientGone; the call is recorded then."""
        async with self.waiting(call, None):
            return await self.ask(call, body)

    async def ask(self, call: Call, body: bytes | AsyncIterator[bytes]) -> UpstreamResponse:
        """The same, unrecorded and uninterrupted. Raises UpstreamError."""
        asked = call.target

        def sent_to(target: Target) -> bytes | AsyncIterator[bytes]:
            if not isinstance(body, bytes) or target.model_alias == asked.model_alias or call.model is None:
                return body
            return with_value(body, "model", target.model_alias or call.model)

        def request(target: Target) -> UpstreamRequest:
            headers = outgoing_headers(call, target, streamed=not isinstance(body, bytes))
            query = keyless(call.query) if target.stands_in else call.query
            return UpstreamRequest(call.method, target.url(call.raw_path, query), headers, sent_to(target))

        errand = Errand(call.id, asked, call.model, request, isinstance(body, bytes))
        began = time.perf_counter_ns()
        call.overhead_ns = began - call.started_ns - call.waited_ns
        call.target, response = await self._sender.send(errand)
        if call.target is not asked and isinstance(sent := sent_to(call.target), bytes):
            call.sent = sent
        call.attempts += errand.attempts
        waited = time.perf_counter_ns() - began
        call.waited_ns += waited
        self._metrics.stage("forward", waited / 1e9)
        return response

    def refused(self, call: Call, status: int, result: AttemptResult) -> None:
        """The answer so far refuses what Mneme added; there will be another attempt."""
        self._metrics.attempt(call.target.name, result)
        said = {"call_id": str(call.id), "upstream": call.target.name, "result": result, "attempt": call.attempts}
        log.info("attempt at an upstream", extra={**said, "status": status})

    @contextlib.asynccontextmanager
    async def waiting(self, call: Call, response: Closing | None) -> AsyncIterator[None]:
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

    async def _failed(self, call: Call, response: Closing | None, ending: Ending) -> None:
        if response is not None:
            await response.aclose()
        await self._finalizer.seal(call, None, ending, Tape(call.started_ns))
        self._metrics.request(call.kind, "failed" if ending.kind == "broken" else ending.kind, call.status)
