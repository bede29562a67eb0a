"""How long one request waits for one answer of the database.

Without it a page, or a route under /api/v1, that meets a Postgres which is frozen or cut off would wait for the longest one
of the background pool, half a minute, for its 503. A request that was kept waiting so long once waits no more: whatever else it
asks is refused at once. What changes something, or moves much, only has to hear that the database is there: then it may take as
long as the pool lets it, for to break it off and have it sent again costs more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

from app.errors import StoreUnavailable

PATIENCE_S = 1.5
"""Seconds. With the half that a frozen connection takes to be given up (`store/pools.RELEASE_TIMEOUT_S`, twice), no page and no
route waits longer than two for its 503: a person still waits so long, and a load balancer."""
READING = frozenset({"GET", "HEAD"})
TOLD = "The database did not answer in time; try again."

T = TypeVar("T")


class Patience:
    """Of one request."""

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
        with patience(reading=scope.get("method") in READING):
            await self._app(scope, receive, send)
