"""What was loaded of users and is still at hand: bounded in bytes, the least recently used goes first."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from app.tasks import Supervisor

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Cache(Generic[K, V]):
    """Values by key, in one event loop. With no room it keeps nothing, and still loads once for all who ask at a time."""

    def __init__(self, limit: int, size: Callable[[V], int], tasks: Supervisor) -> None:
        """`limit`: bytes; `size`: those of a value."""
        self.limit = limit
        self.bytes = 0
        self.hits = 0
        self.loads = 0
        """Begun, failed ones among them."""
        self.failures = 0
        self.evictions = 0
        self._size = size
        self._tasks = tasks
        self._held: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._loading: dict[K, asyncio.Future[V]] = {}

    async def get(self, key: K, load: Callable[[], Awaitable[V]]) -> V:
        """The value at hand, or what `load` brings: one load for all that wait. It goes on when they go away, so that a request
        that is too late for its own deadline has it ready for the next.

        Raises what the load raised; the next who asks loads again.
        """
        if (held := self.held(key)) is not None:
            return held
        return await asyncio.shield(self._loading.get(key) or self._begun(key, load))

    def held(self, key: K) -> V | None:
        """The value if it is at hand."""
        if (held := self._held.get(key)) is None:
            return None
        self._held.move_to_end(key)
        self.hits += 1
        return held[0]

    def keep(self, key: K, value: V) -> None:
        """Have this value at hand from now on, in place of what there was or is being loaded. One that alone is too large is
        not kept."""
        self.drop(key)
        size = self._size(value)
        if size > self.limit:
            return
        self._held[key] = value, size
        self.bytes += size
        while self.bytes > self.limit:
            _, (_, freed) = self._held.popitem(last=False)
            self.bytes -= freed
            self.evictions += 1

    def drop(self, key: K) -> None:
        """Have it no more: it is not so any longer. What is being loaded may be as old: it goes to those who wait already, and
        is not kept."""
        self._loading.pop(key, None)
        if (held := self._held.pop(key, None)) is not None:
            self.bytes -= held[1]

    def loading(self, key: K) -> bool:
        """Whether somebody waits for it, or went away while it was being loaded."""
        return key in self._loading

    def known(self) -> list[K]:
        """Of all values that are at hand or being loaded."""
        return [*self._held, *(each for each in self._loading if each not in self._held)]

    def __len__(self) -> int:
        return len(self._held)

    def _begun(self, key: K, load: Callable[[], Awaitable[V]]) -> asyncio.Future[V]:
        self.loads += 1
        future: asyncio.Future[V] = asyncio.get_running_loop().create_future()
        self._loading[key] = future
        self._tasks.spawn(self._load(key, load, future), "load index")
        return future

    async def _load(self, key: K, load: Callable[[], Awaitable[V]], future: asyncio.Future[V]) -> None:
        try:
            value = await load()
        except asyncio.CancelledError:
            future.cancel()
            raise
        except Exception as error:  # noqa: BLE001  # it belongs to those who wait
            self.failures += 1
            future.set_exception(error)
            future.exception()  # that is said: nobody may be waiting any more
        else:
            if self._loading.get(key) is future:
                self.keep(key, value)
            future.set_result(value)
        finally:
            if self._loading.get(key) is future:
                del self._loading[key]
