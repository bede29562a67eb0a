"""One request to an upstream, as often as the settings allow, and to whom they allow, until there is an answer.

By default there is one attempt at one upstream, and its answer stands. All of this happens before the first byte of an answer
reaches the client; whoever cancels it, cancels all of it, the waits too.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from uuid import UUID

from msgspec import Struct

from app.breaker import Breaker
from app.clock import Clock
from app.errors import UpstreamError, UpstreamSuspended, UpstreamTimeout, UpstreamUnreachable
from app.gateway.headers import Headers, find
from app.gateway.upstream import Router, Target, Transport, UpstreamRequest, UpstreamResponse
from app.metrics import AttemptResult, Metrics
from app.settings import Settings

log = logging.getLogger("mneme.upstream")

# When a request is sent once more, and after how long: plain functions over plain values.

JITTER = 0.5
"""Share of a back-off that is left to chance, so that those who were refused together do not come back together."""


class RetryPolicy(Struct, frozen=True):
    """`attempts`: most requests to one upstream. `statuses`: answers that are no answer yet. Seconds: `first_wait_s` before
    the second attempt, doubled for each one after it; `longest_wait_s` bounds every wait."""

    attempts: int
    statuses: frozenset[int]
    first_wait_s: float
    longest_wait_s: float

    @classmethod
    def from_settings(cls, settings: Settings) -> RetryPolicy:
        return cls(
            settings.upstream_attempts,
            frozenset(settings.retry_statuses),
            settings.retry_wait_s,
            settings.retry_wait_max_s,
        )

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


Build = Callable[[Target], UpstreamRequest]
"""Makes the request for an upstream; asked again for each attempt."""


class Errand(Struct):
    """What is to be sent, and how often it has been."""

    call_id: UUID
    target: Target
    model: str | None
    build: Build
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
        settings: Settings,
        clock: Clock,
        *,
        now: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`transports`: the real one under False, the simulated one under True. `now`: seconds, for the breakers."""
        self._transports = transports
        self._router = router
        self._metrics = metrics
        self._policy = RetryPolicy.from_settings(settings)
        self._clock = clock
        self._now = now
        self._chance = chance
        self._breakers = {
            target.name: Breaker(settings.breaker_failures, settings.breaker_open_s) for target in router.targets
        }
        for name, breaker in self._breakers.items():
            metrics.breaker(name, breaker.state)

    async def send(self, errand: Errand) -> tuple[Target, UpstreamResponse]:
        """Who answered, and the head of the answer. Raises what the errand's own upstream failed with (UpstreamError)."""
        held: tuple[Target, UpstreamResponse] | None = None
        failure: UpstreamError | None = None
        fallbacks = self._router.fallbacks(errand.target, errand.model) if errand.repeatable else []
        try:
            for target in (errand.target, *fallbacks):
                try:
                    response = await self._ask(target, errand)
                except UpstreamError as error:
                    failure = failure or error
                    continue
                if held is not None:
                    await held[1].aclose()
                held = (target, response)
                if response.status not in self._policy.statuses:
                    break
                if fallbacks:
                    self._note(target, "refused", errand, status=response.status)
        except BaseException:
            if held is not None:
                await held[1].aclose()
            raise
        if held is None:
            assert failure is not None, "each target has answered or failed"
            raise failure
        if not fallbacks or held[1].status not in self._policy.statuses:
            self._metrics.attempt(held[0].name, "answered")
        return held

    async def _ask(self, target: Target, errand: Errand) -> UpstreamResponse:
        """The answer of one upstream, of the last attempt at it."""
        breaker = self._breakers[target.name]
        done = 0
        failure: UpstreamError | None = None
        while True:
            if suspended := breaker.admit(self._now()):
                self._note(target, "suspended", errand)
                if failure is not None:
                    raise failure
                raise _suspended(target, suspended)
            self._metrics.breaker(target.name, breaker.state)
            done += 1
            errand.attempts += 1
            try:
                response = await self._transports[target.simulated].send(errand.build(target))
            except UpstreamError as error:
                failure = error
                pause = self._failed(target, error, errand, done)
                if pause is None:
                    raise
            else:
                self._succeeded(target, response, errand)
                if response.status not in self._policy.statuses:
                    return response
                pause = self._pause(errand, done, retry_after(response.headers, self._clock.now()))
                if pause is None:
                    return response
                await response.aclose()
                self._note(target, "refused", errand, status=response.status, wait_s=pause)
            await asyncio.sleep(pause)

    def _pause(self, errand: Errand, done: int, asked_s: float | None) -> float | None:
        return self._policy.wait_s(done, asked_s, self._chance()) if errand.repeatable else None

    def _succeeded(self, target: Target, response: UpstreamResponse, errand: Errand) -> None:
        breaker = self._breakers[target.name]
        if breaker.state != "closed":
            log.warning("the upstream answers again", extra={"upstream": target.name})
        breaker.succeeded()
        self._metrics.breaker(target.name, breaker.state)
        for _ in range(response.attempts - 1):
            self._note(target, "stale", errand)
            errand.attempts += 1

    def _failed(self, target: Target, error: UpstreamError, errand: Errand, done: int) -> float | None:
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
        pause = self._pause(errand, done, None) if unreachable else None
        self._note(target, result, errand, error=error.message, wait_s=pause)
        return pause

    def _note(self, target: Target, result: AttemptResult, errand: Errand, **more: object) -> None:
        """An attempt that was not the last word."""
        self._metrics.attempt(target.name, result)
        said = {"call_id": str(errand.call_id), "upstream": target.name, "result": result, "attempt": errand.attempts}
        log.info(
            "attempt at an upstream", extra=said | {name: value for name, value in more.items() if value is not None}
        )


def _suspended(target: Target, seconds: float) -> UpstreamSuspended:
    error = UpstreamSuspended(
        f"The upstream {target.name!r} failed too often just now, and is left alone for a moment; try again.",
        code="upstream_suspended",
    )
    error.retry_after_s = math.ceil(seconds)
    return error
