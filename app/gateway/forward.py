"""Towards the upstream: attempts and fallbacks (`Sender`), a request out and the head of its answer back, with a record of what
got none (`Forwarder`), and once more without what Mneme added where that is refused (`SecondTry`)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from app.capture.record import keyless
from app.clock import Clock
from app.errors import UpstreamError, UpstreamSuspended, UpstreamTimeout, UpstreamUnreachable
from app.gateway.addon import CallPart
from app.gateway.augment import Augmenter
from app.gateway.call import Forwarded, Parsed, Remembered, aliased, grown
from app.gateway.dialects import api_of
from app.gateway.dialects.splice import with_value
from app.gateway.encodings import decode_body, find_codings
from app.gateway.finalize import Finalizer
from app.gateway.headers import Headers, find, request_headers
from app.gateway.prepare import explaining, unwoven
from app.gateway.relay import ClientGone, Ending, Tape, peek
from app.gateway.upstream import Router, Target, Transport, UpstreamRequest, UpstreamResponse
from app.metrics import AttemptResult, Metrics
from app.patience import Breaker
from app.tasks import Supervisor
from mneme_replay.secrets import is_secret

log = logging.getLogger("mneme.upstream")

# --- attempts and fallbacks ----------------------------------------------------------------------------------------------

JITTER = 0.5
"""Share of a back-off that is left to chance, so that those who were refused together do not come back together."""
RETRY_STATUSES = frozenset({429, 502, 503})
"""Answers that lead to another attempt or to a fallback, where there is one: the upstream has no room, or is not there. A 500
or 504 may have cost tokens already."""
RETRY_WAIT_S = 0.5
"""Seconds before the second attempt, doubled each time: the OpenAI SDK's own default."""
RETRY_WAIT_MAX_S = 8.0
"""Longest wait in seconds, the OpenAI SDK's own default. An answer that asks for a longer one is passed on."""
BREAKER_FAILURES = 5
"""Connections in a row that fail or time out until an upstream is left alone: fewer may be the restart of one replica."""
BREAKER_OPEN_S = 5.0
"""Seconds that an upstream is left alone; a restarted server is found again within these."""


class RetryPolicy(Struct, frozen=True):
    """`attempts`: most requests to one upstream. `statuses`: answers that are no answer yet. Seconds: `first_wait_s` before
    the second attempt, doubled for each one after it; `longest_wait_s` bounds every wait."""

    attempts: int = 1
    statuses: frozenset[int] = RETRY_STATUSES
    first_wait_s: float = RETRY_WAIT_S
    longest_wait_s: float = RETRY_WAIT_MAX_S

    def wait_s(self, done: int, retry_after_s: float | None, chance: float) -> float | None:
        """Seconds until the next attempt at the same upstream after `done` of them; None: there is none.

        `retry_after_s`: what the upstream asked for. It is kept to; where it is longer than we wait, its answer stands.
        `chance`: a random number in [0, 1).
        """
        if done >= self.attempts:
            return None
        if retry_after_s is not None:
            return retry_after_s if retry_after_s <= self.longest_wait_s else None
        wait = min(self.longest_wait_s, self.first_wait_s * 2.0 ** (done - 1))
        return wait * (1.0 - JITTER * chance)


def retry_after(headers: Headers, now: datetime) -> float | None:
    """The seconds that an answer asks for: `retry-after-ms` (OpenAI), else `Retry-After` (RFC 9110 §10.2.3), as a number or
    as a date. None where it says nothing that can be read."""
    for name, unit in ((b"retry-after-ms", 0.001), (b"retry-after", 1.0)):
        value = find(headers, name)
        if value is None:
            continue
        text = value.decode("latin-1").strip()
        try:
            seconds = float(text) * unit
        except ValueError:
            seconds = _until(text, now)
        if 0.0 <= seconds < float("inf"):
            return seconds
    return None


def _until(text: str, now: datetime) -> float:
    """Seconds until an HTTP date; not a number where it is none."""
    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return float("nan")
    return max(0.0, (when.replace(tzinfo=when.tzinfo or UTC) - now).total_seconds())


class Outgoing(Struct):
    """What is to be sent, and how often it has been."""

    call_id: UUID
    target: Target
    model: str | None
    build: Callable[[Target], UpstreamRequest]
    """Makes the request for an upstream; asked again for each attempt."""
    repeatable: bool
    """Its body is all here. Another body is sent once, to one upstream."""
    attempts: int = 0


class Sender:
    """Sends requests to upstreams, and remembers which of these are worth asking."""

    def __init__(
        self,
        transports: Mapping[bool, Transport],
        router: Router,
        metrics: Metrics,
        clock: Clock,
        *,
        retry: RetryPolicy,
        breaker_failures: int = BREAKER_FAILURES,
        breaker_open_s: float = BREAKER_OPEN_S,
        now: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`transports`: the real one under False, the simulated one under True. `now`: seconds, for the breakers."""
        self._transports = transports
        self._router = router
        self._metrics = metrics
        self._policy = retry
        self._clock = clock
        self._now = now
        self._chance = chance
        self._breakers = {target.name: Breaker(breaker_failures, breaker_open_s) for target in router.targets}
        for name, breaker in self._breakers.items():
            metrics.breaker(name, breaker.state)

    async def send(self, outgoing: Outgoing) -> tuple[Target, UpstreamResponse]:
        """Who answered, and the head of the answer. Raises what the errand's own upstream failed with (UpstreamError)."""
        held: tuple[Target, UpstreamResponse] | None = None
        failure: UpstreamError | None = None
        fallbacks = self._router.fallbacks(outgoing.target, outgoing.model) if outgoing.repeatable else []
        async with contextlib.AsyncExitStack() as closing:
            for target in (outgoing.target, *fallbacks):
                try:
                    response = await self._ask(target, outgoing)
                except UpstreamError as error:
                    failure = failure or error
                    continue
                await closing.aclose()
                held = (target, response)
                closing.push_async_callback(response.aclose)
                if response.status not in self._policy.statuses:
                    break
                if fallbacks:
                    self._note(target, "refused", outgoing, status=response.status)
            closing.pop_all()
        if held is None:
            assert failure is not None, "each target has answered or failed"
            raise failure
        if not fallbacks or held[1].status not in self._policy.statuses:
            self._metrics.attempt(held[0].name, "answered")
        return held

    async def _ask(self, target: Target, outgoing: Outgoing) -> UpstreamResponse:
        """The answer of one upstream, of the last attempt at it."""
        breaker = self._breakers[target.name]
        done = 0
        failure: UpstreamError | None = None
        while True:
            if suspended := breaker.admit(self._now()):
                self._note(target, "suspended", outgoing)
                if failure is not None:
                    raise failure
                error = UpstreamSuspended(
                    f"The upstream {target.name!r} failed too often just now, and is left alone for a moment; try again.",
                    code="upstream_suspended",
                )
                error.retry_after_s = math.ceil(suspended)
                raise error
            self._metrics.breaker(target.name, breaker.state)
            done += 1
            outgoing.attempts += 1
            try:
                response = await self._transports[target.simulated].send(outgoing.build(target))
            except UpstreamError as why:
                failure = why
                pause = self._failed(target, why, outgoing, done)
                if pause is None:
                    raise
            else:
                self._succeeded(target, response, outgoing)
                if response.status not in self._policy.statuses:
                    return response
                pause = self._pause(outgoing, done, retry_after(response.headers, self._clock.now()))
                if pause is None:
                    return response
                await response.aclose()
                self._note(target, "refused", outgoing, status=response.status, wait_s=pause)
            await asyncio.sleep(pause)

    def _pause(self, outgoing: Outgoing, done: int, asked_s: float | None) -> float | None:
        return self._policy.wait_s(done, asked_s, self._chance()) if outgoing.repeatable else None

    def _succeeded(self, target: Target, response: UpstreamResponse, outgoing: Outgoing) -> None:
        breaker = self._breakers[target.name]
        if breaker.state != "closed":
            log.warning("the upstream answers again", extra={"upstream": target.name})
        breaker.succeeded()
        self._metrics.breaker(target.name, breaker.state)
        for _ in range(response.attempts - 1):
            self._note(target, "stale", outgoing)
            outgoing.attempts += 1

    def _failed(self, target: Target, error: UpstreamError, outgoing: Outgoing, done: int) -> float | None:
        """Counts a failure; the seconds until the next attempt at this upstream, None where there is none."""
        unreachable = isinstance(error, UpstreamUnreachable)
        result: AttemptResult = "failed"
        if unreachable or isinstance(error, UpstreamTimeout):
            result = "unreachable" if unreachable else "timeout"
            breaker = self._breakers[target.name]
            before = breaker.state
            breaker.failed(self._now())
            self._metrics.breaker(target.name, breaker.state)
            if breaker.state == "open" and before == "closed":
                log.warning("the upstream is left alone for a while", extra={"upstream": target.name})
        pause = self._pause(outgoing, done, None) if unreachable else None
        self._note(target, result, outgoing, error=error.message, wait_s=pause)
        return pause

    def _note(self, target: Target, result: AttemptResult, outgoing: Outgoing, **more: object) -> None:
        """An attempt that was not the last word."""
        self._metrics.attempt(target.name, result)
        told = {name: value for name, value in more.items() if value is not None}
        _log_attempt(outgoing.call_id, target, result, outgoing.attempts, **told)


def _log_attempt(call_id: UUID, target: Target, result: AttemptResult, attempt: int, **more: object) -> None:
    said = {"call_id": str(call_id), "upstream": target.name, "result": result, "attempt": attempt}
    log.info("attempt at an upstream", extra=said | more)


# --- a request out -------------------------------------------------------------------------------------------------------

_ACCOUNTS = ("token", "api-key", "openai-organization", "openai-project")
"""A header whose name has one of these in it, or says that it carries a key, belongs to the upstream that the client means, and
to no other."""


def outgoing_headers(call: Parsed, target: Target | None = None, *, streamed: bool = False) -> Headers:
    """The client's headers as `target`, by default the upstream of this call, gets them.

    An upstream that stands in for another never sees the client's credentials: it has a key of its own, or none.
    """
    target = target or call.target
    given = call.raw_headers
    if target.stands_in:
        given = [
            (name, value)
            for name, value in given
            if not (is_secret(low := name.decode("latin-1").lower()) or any(part in low for part in _ACCOUNTS))
        ]
    twice = api_of(call.path).x_api_key
    return request_headers(given, api_key=target.api_key, streamed=streamed, unread=call.bare, x_api_key=twice)


class Forwarder:
    """Sends requests on."""

    def __init__(self, sender: Sender, finalizer: Finalizer, metrics: Metrics, tasks: Supervisor) -> None:
        self._sender = sender
        self._finalizer = finalizer
        self._metrics = metrics
        self._tasks = tasks

    async def send(self, call: Remembered, body: bytes | AsyncIterator[bytes]) -> Forwarded:
        """The head of the answer, which upstream it came from, and what that one was sent. Raises UpstreamError, ClientGone;
        the call is recorded then."""
        call = replace(call, overhead_ns=time.perf_counter_ns() - call.started_ns - call.waited_ns)
        if call.admission is not None:
            call.admission.asked = True
        async with self.waiting(call):
            return await self.ask(call, body)

    async def ask(self, call: Remembered, body: bytes | AsyncIterator[bytes]) -> Forwarded:
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

        outgoing = Outgoing(call.id, asked, call.model, request, isinstance(body, bytes))
        began = time.perf_counter_ns()
        target, response = await self._sender.send(outgoing)
        waited_ns = time.perf_counter_ns() - began
        self._metrics.stage("forward", waited_ns / 1e9)
        sent = sent_to(target) if target is not asked else call.sent
        return grown(
            Forwarded,
            call,
            response=response,
            target=target,
            sent=sent if isinstance(sent, bytes) else call.sent,
            attempts=call.attempts + outgoing.attempts,
            waited_ns=call.waited_ns + waited_ns,
        )

    def refused(self, call: Forwarded, status: int, result: AttemptResult) -> None:
        """The answer so far refuses what Mneme added; there will be another attempt."""
        self._metrics.attempt(call.target.name, result)
        _log_attempt(call.id, call.target, result, call.attempts, status=status)

    @contextlib.asynccontextmanager
    async def waiting(
        self, call: Remembered, close: Callable[[], Awaitable[None]] | None = None
    ) -> AsyncIterator[None]:
        """Wait for the upstream before the relay: interrupted when the client goes. A call that gets no answer is recorded
        before the error goes on; `close`: lets go of what there was of one."""
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
                await asyncio.shield(self._tasks.spawn(self._failed(call, close, ending), f"record {call.id}"))

    async def _failed(self, call: Remembered, close: Callable[[], Awaitable[None]] | None, ending: Ending) -> None:
        if close is not None:
            await close()
        await self._finalizer.seal(grown(Forwarded, call, response=None), ending, Tape(call.started_ns))
        self._metrics.request(call.kind, "failed" if ending.kind == "broken" else ending.kind, call.status)


# --- once more without what Mneme added ----------------------------------------------------------------------------------

ERROR_LIMIT = 64 * 1024
"""Bytes of a refusal that are read to find out what it refuses; real ones have some hundred."""
LENGTH_STATUSES = frozenset({400, 413, 422})
"""With these an upstream refuses a prompt that is too long."""
LENGTH_WORDS = re.compile(
    rb"context_length|context length|maximum context|max_model_len|too long|too many tokens", re.IGNORECASE
)
TOOL_STATUSES = frozenset({400, 404, 422, 500, 501})
"""With these upstreams say that they, or the model, take no tools: vLLM and Ollama with 400, OpenRouter 404, llama.cpp 500."""
TOOL_WORDS = re.compile(rb"tool|function call", re.IGNORECASE)


class SecondTry:
    """Asks once more."""

    def __init__(self, forwarder: Forwarder, augmenter: Augmenter, metrics: Metrics) -> None:
        self._forwarder = forwarder
        self._augmenter = augmenter
        self._metrics = metrics

    async def unless_refused(self, call: Forwarded) -> Forwarded:
        """The answer; where it refuses what Mneme added, the answer to the request without it. Raises UpstreamError,
        ClientGone."""
        if call.part is not None and call.part.has_tools and _status(call) in TOOL_STATUSES:
            call = await self._unless_no_tools(call, call.part)
        injected = call.prepared is not None and call.sent != plain(call)
        if injected and (_status(call) in LENGTH_STATUSES or _status(call) == 200):
            call = await self._unless_too_long(call)
        return call

    async def _unless_too_long(self, call: Forwarded) -> Forwarded:
        """The answer; where it refuses the prompt for its length, the answer to the request as the client wrote it."""
        refused = _status(call) != 200
        # Some servers answer an over-long prompt with an empty 200; of a real answer the first byte is enough to know.
        seen, call = await self._peek(call, ERROR_LIMIT if refused else 1)
        if not (is_about_length(seen) if refused else not seen):
            return call
        await self._dismiss(call, "too_long")
        return await self._again(self._augmenter.forgone(replace(call, sent=plain(call), prepared=None)))

    async def _unless_no_tools(self, call: Forwarded, part: CallPart) -> Forwarded:
        """The answer; where the upstream takes no tools, the answer to the request without ours."""
        seen, call = await self._peek(call, ERROR_LIMIT)
        if not is_about_tools(seen):
            return call
        await self._dismiss(call, "no_tools")
        self._metrics.degraded("no-tools")
        log.warning("answering without look-ups", extra={"call_id": str(call.id), "reason": "no-tools"})
        assert call.chat is not None, "what an addon has a part in is a chat"
        sent, prepared = part.without_tools(call.chat, call.sent), call.prepared
        if prepared is not None:
            told = explaining(prepared.compilation, part.name, part.explained)
            prepared = replace(prepared, compilation=told)
        return await self._again(replace(call, status="degraded", reason="no-tools", prepared=prepared, sent=sent))

    async def _peek(self, call: Forwarded, limit: int) -> tuple[bytes, Forwarded]:
        """The beginning of the answer, and the call with all of it."""
        response = call.response
        assert response is not None, "it was answered"
        async with self._forwarder.waiting(call, response.aclose):
            seen, response = await peek(response, limit)
        readable = decode_body(seen, find_codings(response.headers), limit).body
        return readable or seen, replace(call, response=response)

    async def _dismiss(self, call: Forwarded, why: AttemptResult) -> None:
        assert call.response is not None, "it was answered"
        await call.response.aclose()
        self._forwarder.refused(call, call.response.status, why)

    async def _again(self, call: Remembered) -> Forwarded:
        return await self._forwarder.send(grown(Remembered, call), call.sent)


def _status(call: Forwarded) -> int | None:
    return call.response.status if call.response is not None else None


def plain(call: Remembered) -> bytes:
    """What goes out without memory. What an addon puts into it stays: what is shown shorter would be longer still."""
    if call.part is None or call.chat is None:
        return aliased(call)
    return unwoven(call.chat, call.target.model_alias, call.part.insertions)


def is_about_length(refusal: bytes) -> bool:
    """Whether the beginning of an upstream's error says that the prompt is too long."""
    return LENGTH_WORDS.search(refusal) is not None


def is_about_tools(refusal: bytes) -> bool:
    """Whether the beginning of an upstream's error speaks of tools."""
    return TOOL_WORDS.search(refusal) is not None and not is_about_length(refusal)
