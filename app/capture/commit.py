"""Group commit: turns that end together are written by one transaction, and each is acknowledged after it.

    record ──> room in the queue? ──> queue ──> a writer takes what is there ──> record_many ──> settled
                  │ no: wait             │          (one transaction at a time)      │
                  └ too long:            └ too long: taken out again                 ├ deadlock: again
                    StoreUnavailable       StoreUnavailable                          ├ connection lost: once more
                                                                                     └ one of them is wrong: in halves

A turn that comes while nothing is being written is written at once. While a transaction is under way the next turns gather;
nobody waits for more to come.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import ExitStack, suppress
from typing import Any
from uuid import UUID

import asyncpg
from msgspec import Struct

from app.errors import StoreUnavailable
from app.metrics import Metrics
from app.store.pools import REFUSALS
from app.store.records import TurnRecord
from app.store.turns import TurnStore
from app.tasks import Supervisor

log = logging.getLogger(__name__)

BATCH_BYTES = 8 * 1024 * 1024
"""Bytes of the turns of one transaction, roughly; a single one may be larger. Beyond it a transaction takes some 100 ms."""
STALL_S = 0.25
"""Seconds after which a transaction is waiting for something, rather than working, and the next may start beside it."""
QUEUE_TURNS = 256
"""Turns of a process that may wait to be written: sixteen transactions of the default size. Beyond it the ends of answers wait
for room."""
WAIT_S = 5.0
"""Seconds until a turn's transaction begins, else it counts as not stored: as long as its statement may take."""
WRITERS = 4
"""Transactions at a time, where those before stall: half of the connections that a pool has by default."""
ROLLBACKS = 5
"""Times that a transaction is begun again after Postgres chose it to end a deadlock; one in a row is rare already."""

_WRONG = (asyncpg.PostgresError, asyncpg.InterfaceError, ValueError, TypeError)
"""What may come of a turn that cannot be stored, rather than of a database that cannot be reached."""


class _Waiting(Struct, eq=False):
    """A turn in the queue."""

    turn: TurnRecord
    done: asyncio.Future[bool]


class GroupCommit:
    """The one way to the database for the turns of a process."""

    def __init__(
        self,
        store: TurnStore,
        tasks: Supervisor,
        metrics: Metrics,
        *,
        turns: int,
        queue: int = QUEUE_TURNS,
        timeout_s: float = WAIT_S,
    ) -> None:
        """`turns`: most of one transaction; `queue`: most that may wait or be under way; `timeout_s`: longest wait, in seconds,
        until a turn's transaction begins."""
        self._store = store
        self._tasks = tasks
        self._metrics = metrics
        self._most = turns
        self._timeout_s = timeout_s
        self._room = asyncio.Semaphore(queue)
        self._queue: deque[_Waiting] = deque()
        self._writers = 0
        self._stalled: set[asyncio.Task[Any] | None] = set()
        self._pending = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False
        self._ended = False

    async def record(self, turn: TurnRecord) -> bool:
        """Write a turn; returns when it is durable. False: it was stored before.

        Raises StoreUnavailable, and then nothing of it is stored, unless the connection was lost twice while the answer was
        awaited: it may be sent again, for it is stored once. Raises what asyncpg raises where this very turn cannot be
        stored for what it is. Whoever is cancelled while waiting in the queue is stored with the others.
        """
        if self._closed:
            raise StoreUnavailable("Mneme is stopping.")
        self._pending += 1
        self._idle.clear()
        with ExitStack() as undo:
            undo.callback(self._leave)
            try:
                async with asyncio.timeout(self._timeout_s if self._room.locked() else None):
                    await self._room.acquire()
            except TimeoutError:
                raise StoreUnavailable("More turns wait to be stored than Mneme can hold; try again.") from None
            undo.callback(self._room.release)
            if self._ended:
                raise StoreUnavailable("Mneme is stopping.")
            undo.pop_all()
        loop = asyncio.get_running_loop()
        waiting = _Waiting(turn, loop.create_future())
        self._queue.append(waiting)
        self._metrics.commit_queue(len(self._queue))
        limit = loop.call_later(self._timeout_s, self._give_up, waiting)
        self._start()
        try:
            return await waiting.done
        finally:
            limit.cancel()

    async def close(self, timeout_s: float) -> None:
        """Take no more, and wait until what came is stored, for `timeout_s` seconds; what still waits then fails."""
        self._closed = True
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        self._ended = True
        while self._queue:
            self._settle(self._queue.popleft(), StoreUnavailable("Mneme stopped before this could be stored."))

    def _leave(self) -> None:
        self._pending -= 1
        if not self._pending:
            self._idle.set()

    def _give_up(self, waiting: _Waiting) -> None:
        """Nobody has begun to store it."""
        if waiting in self._queue:
            self._queue.remove(waiting)
            self._settle(waiting, StoreUnavailable("The database is too slow at the moment; try again."))

    def _settle(self, waiting: _Waiting, outcome: bool | BaseException) -> None:
        self._room.release()
        self._leave()
        if waiting.done.done():  # whoever waited was cancelled
            return
        if isinstance(outcome, StoreUnavailable):
            own = StoreUnavailable(outcome.message)  # one for each, for each is raised in a task of its own
            own.__cause__, own.too_much = outcome.__cause__, outcome.too_much
            waiting.done.set_exception(own)
        elif isinstance(outcome, BaseException):
            waiting.done.set_exception(outcome)
        else:
            waiting.done.set_result(outcome)

    # --- writing ---------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._queue and self._writers <= len(self._stalled):
            self._writers += 1
            self._tasks.spawn(self._work(), "group commit")

    async def _work(self) -> None:
        """Write until the queue is empty. What is taken when this task first runs has come together."""
        try:
            while batch := self._take():
                await self._within(batch)
                if self._writers > len(self._stalled) + 1:
                    break  # another took over while this one stalled
        finally:
            self._writers -= 1
            self._start()

    def _take(self) -> list[_Waiting]:
        """The next turns, first come first served. Of those that share a session or a repeat key the second depends on
        what the first one leaves, and comes later."""
        batch: list[_Waiting] = []
        later: list[_Waiting] = []
        shared: set[tuple[UUID, UUID | bytes]] = set()
        size = 0
        while self._queue and len(batch) < self._most and size < BATCH_BYTES:
            waiting = self._queue.popleft()
            marks = _marks(waiting.turn)
            if shared.isdisjoint(marks):
                batch.append(waiting)
                size += waiting.turn.size
            else:
                later.append(waiting)
            shared |= marks
        self._queue.extendleft(reversed(later))
        self._metrics.commit_queue(len(self._queue))
        return batch

    async def _within(self, batch: list[_Waiting]) -> None:
        """Write a batch, and let the next start beside it when it stalls. In the end every one of it is settled."""
        writer = asyncio.current_task()
        stall = asyncio.get_running_loop().call_later(STALL_S, self._stall, writer)
        unsettled = list(batch)
        try:
            await self._write(batch, unsettled)
        finally:
            stall.cancel()
            self._stalled.discard(writer)
            for waiting in unsettled:  # this task was cancelled, or has met what nobody thought of
                self._settle(waiting, StoreUnavailable("This could not be stored; try again."))

    def _stall(self, writer: asyncio.Task[Any] | None) -> None:
        if len(self._stalled) + 1 < WRITERS:
            self._stalled.add(writer)
            self._start()

    async def _write(self, batch: list[_Waiting], unsettled: list[_Waiting]) -> None:
        lost = rolled_back = 0
        while True:
            try:
                fresh = await self._store.record_many([each.turn for each in batch])
            except asyncpg.TransactionRollbackError as error:  # a deadlock, or a snapshot too old: nothing is wrong
                rolled_back += 1
                if rolled_back > ROLLBACKS:
                    await self._apart(batch, unsettled, error)
                    return
            except StoreUnavailable as error:
                if error.too_much:  # one turn of many may be the reason
                    await self._apart(batch, unsettled, error, each=True)
                    return
                lost += 1
                if lost > 1:
                    self._done(batch, unsettled, error)
                    return
                # Perhaps it was one connection; and perhaps it is stored, and only the answer was lost.
            except _WRONG as error:
                await self._apart(batch, unsettled, error)
                return
            else:
                self._metrics.commit_batch(len(batch))
                self._done(batch, unsettled, fresh or lost > 0)
                return

    async def _apart(
        self, batch: list[_Waiting], unsettled: list[_Waiting], error: BaseException, *, each: bool = False
    ) -> None:
        """Find the one that is to blame: in halves, or one by one (`each`) where every failure takes long."""
        if len(batch) == 1:
            if not isinstance(error, (StoreUnavailable, *REFUSALS)):
                # What is wrong with the database passes, and the turn is worth keeping until then.
                log.error("the database refuses a turn for its own reasons", exc_info=error)
                unavailable = StoreUnavailable("The database does not take this at the moment; try again.")
                unavailable.__cause__ = error
                error = unavailable
            self._done(batch, unsettled, error)
            return
        step = 1 if each else (len(batch) + 1) // 2
        for at in range(0, len(batch), step):
            await self._write(batch[at : at + step], unsettled)

    def _done(self, batch: list[_Waiting], unsettled: list[_Waiting], outcome: bool | BaseException) -> None:
        for waiting in batch:
            unsettled.remove(waiting)
            self._settle(waiting, outcome)


def _marks(turn: TurnRecord) -> set[tuple[UUID, UUID | bytes]]:
    """What no two turns of a transaction may share."""
    session = turn.session.session_id if turn.session is not None else None
    return {(turn.call.user_id, each) for each in (session, turn.call.repeat_key) if each is not None}
