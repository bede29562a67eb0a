"""How long others are waited for: the circuit breaker of a server, and the patience of a request with the database.

    closed     every request goes; `failures` in a row open it
    open       none goes, for `open_s` seconds
    half open  one has been let through to see; its answer closes it, its failure opens it again. One that says nothing for
               `open_s` seconds is followed by another, for models may think for minutes before their first byte

A failure is a connection that could not be had, that ended without a byte of an answer, or that stayed silent for too long.
Any answer is a success, a 429 or a 500 too: whoever answers can be asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import Context, ContextVar, copy_context
from typing import Any, Literal, TypeVar

from app.errors import StoreUnavailable

State = Literal["closed", "half_open", "open"]


class Breaker:
    """The breaker of one server: an upstream, a domain. Times are seconds on any clock that only goes forward."""

    __slots__ = ("_again_at", "_failures", "_in_a_row", "_open_s", "_trying")

    def __init__(self, failures: int, open_s: float) -> None:
        """`failures`: how many in a row open it; 0: none ever do."""
        self._failures = failures
        self._open_s = open_s
        self._in_a_row = 0
        self._again_at: float | None = None
        """When the next request may go; None while it is closed."""
        self._trying = False

    @property
    def state(self) -> State:
        if self._again_at is None:
            return "closed"
        return "half_open" if self._trying else "open"

    def admit(self, now: float) -> float:
        """Ask before each request: 0.0, it may go; else the seconds until another may."""
        if self._again_at is None:
            return 0.0
        if now < self._again_at:
            return self._again_at - now
        self._again_at = now + self._open_s
        self._trying = True
        return 0.0

    def succeeded(self) -> None:
        """A request was answered."""
        self._in_a_row = 0
        self._again_at = None
        self._trying = False

    def failed(self, now: float) -> None:
        """A request failed. In an open breaker it is one that went before it opened, and says nothing new."""
        self._in_a_row += 1
        failed_too_often = self._again_at is None and 0 < self._failures <= self._in_a_row
        if failed_too_often or self._trying:
            self._again_at = now + self._open_s
            self._trying = False


# --- how long one request waits for one answer of the database -----------------------------------------------------------
# Without it a page, or a route under /api/v1, that meets a Postgres which is frozen or cut off would wait for the longest one
# of the background pool, half a minute, for its 503. A request that was kept waiting so long once waits no more: whatever
# else it asks is refused at once. What changes something, or moves much, only has to hear that the database is there: then it
# may take as long as the pool lets it, for to break it off and have it sent again costs more.

PATIENCE_S = 1.5
"""Seconds. With the half that a frozen connection takes to be given up (`store/pools.RELEASE_TIMEOUT_S`, twice), no page and no
route waits longer than two for its 503: a person still waits so long, and a load balancer."""
_READING = frozenset({"GET", "HEAD"})
TOLD = "The database did not answer in time; try again."

T = TypeVar("T")


class Patience:
    """How long one request still waits for the database."""

    def __init__(self, seconds: float, *, reading: bool = True) -> None:
        self._seconds: float | None = seconds
        self._reading = reading
        self._spent = False
        self._waiting: set[asyncio.Timeout] = set()

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """Around one question. Raises StoreUnavailable where it takes too long, or one before did."""
        if self._spent:
            raise StoreUnavailable(TOLD)
        try:
            async with asyncio.timeout(self._seconds) as limit:
                self._waiting.add(limit)
                try:
                    yield
                finally:
                    self._waiting.discard(limit)
        except TimeoutError as error:
            self._spent = True
            raise StoreUnavailable(TOLD) from error

    def answered(self) -> None:
        """The database is there."""
        if not self._reading:
            self.take_time()

    def take_time(self) -> None:
        """From now on a question may take as long as the pool lets it."""
        self._seconds = None
        for limit in self._waiting:
            limit.reschedule(None)


_asked: ContextVar[Patience | None] = ContextVar("patience", default=None)


@contextmanager
def patience(seconds: float = PATIENCE_S, *, reading: bool = True) -> Iterator[None]:
    """What is asked of the database within is waited for so long. Within another, that one holds."""
    if _asked.get() is not None:
        yield
        return
    token = _asked.set(Patience(seconds, reading=reading))
    try:
        yield
    finally:
        _asked.reset(token)


def patience_now() -> Patience | None:
    """Of the request that is being handled."""
    return _asked.get()


def take_time() -> None:
    """For what moves much, such as an export: the database has answered, and now may take its time."""
    if (found := _asked.get()) is not None:
        found.take_time()


def without() -> Context:
    """The present context for work that goes on by itself, whoever began it."""
    context = copy_context()
    context.run(_asked.set, None)
    return context


async def patiently(work: Awaitable[T]) -> T:
    """What others do for this request, waited for as a question is. Raises StoreUnavailable."""
    if (found := _asked.get()) is None:
        return await work
    async with found.waiting():
        return await work


class Patient:
    """Plain ASGI: every request has patience."""

    def __init__(self, app: Callable[..., Awaitable[Any]]) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        with patience(reading=scope.get("method") in _READING):
            await self._app(scope, receive, send)
