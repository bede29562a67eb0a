"""What the gateway keeps of calls until Postgres has them: the journal while they run, the spool while Postgres is away
(`Keeper`); and from the spool into Postgres (`Drain`): by itself, in the order in which each user's calls came, each exactly
once.

A call that is stored already is not stored again (`record_turn` knows its id), so whatever was interrupted is simply done
once more. The order within a user is what makes transcripts build on each other: a call's place in its conversation is
only looked for when those before it are stored.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path
from uuid import UUID

from prometheus_client import Counter, Gauge

from app.errors import SpoolUnavailable, StoreUnavailable, Unavailable
from app.features.spool.journal import KeptCall
from app.features.spool.spool import Journal, JournalEntry, Spool, WaitingCall
from app.features.spool.spooled_call import begin_of, head_of, kept_of, revive
from app.gateway.addon import Addon
from app.gateway.call import Forwarded, Remembered
from app.gateway.keeper import Keeper, Settle
from app.gateway.redact import Redactor
from app.gateway.relay import Ending, Tape
from app.store.pools import REFUSALS
from app.tasks import FailOpen, Supervisor

log = logging.getLogger("mneme.spool")

LOOK_S = 0.005
"""Seconds between two looks whether a user's calls are stored: another process may be at it, which tells nobody."""
COUNT_S = 1.0
"""Seconds between two counts of what the spool holds: how late the metrics, and what other processes write, are seen."""
COUNT_SHARE = 20.0
"""So many times as long as a count takes it rests: 100,000 files are half a second's work."""


class SpoolKeeper(Keeper):
    """Keeps calls in a journal and a spool. One in a process."""

    def __init__(
        self,
        spool: Spool,
        events: Counter,
        standing: Gauge,
        *,
        segment_bytes: int,
        tasks: Supervisor,
        redactor: Redactor | None = None,
    ) -> None:
        """`events`: of calls. kept: written to the spool; drained: stored from there; refused: it was full, or its disk; dead:
        set aside; recovered: found in a dead process' journal; unjournalled: running without a trace. `standing`: of the spool,
        by what it has. `segment_bytes`: size of the journal's files."""
        super().__init__(redactor)
        self.spool = spool
        self.journal = Journal(spool.running, segment_bytes, lambda: events.labels("unjournalled").inc())
        self.wanted = asyncio.Event()
        """Somebody waits for the drain."""
        self.failures = 0
        """How often the drain has found that Postgres takes nothing."""
        self.away = False
        """Postgres took nothing when it was last asked: only the drain asks it, so that answers do not wait for that."""
        self.unreached = False
        """Postgres has not been there since the process began: nobody drains yet."""
        self.events = events
        self._standing = standing
        self._tasks = tasks
        self._queue: list[tuple[KeptCall, asyncio.Future[None]]] = []
        self._writing = False
        self._next_look = 0.0
        self._entries: dict[UUID, JournalEntry] = {}
        """In the journal, of the calls that run."""

    # --- while a call runs -------------------------------------------------------------------------------------------------

    def begin(self, call: Remembered) -> None:
        if not call.kept:
            return
        begin = begin_of(call, self.redactor)
        if (entry := self._entries.get(call.id)) is not None:
            entry.begin(begin)
        elif (entry := self.journal.begin(call.id, begin)) is not None:
            self._entries[call.id] = entry

    def answered(self, call: Forwarded) -> None:
        if (entry := self._entries.get(call.id)) is not None and call.response is not None:
            entry.head(head_of(call, call.response, self.redactor))

    def copy(self, call_id: UUID) -> Callable[[int, bytes], None] | None:
        """Where pieces of its answer go as they come. Where values are redacted that is nowhere: of a piece nobody can say what
        it holds of them."""
        entry = self._entries.get(call_id)
        return entry.chunk if entry is not None and not self.redactor else None

    def release(self, call_id: UUID) -> None:
        if (entry := self._entries.pop(call_id, None)) is not None:
            entry.done()

    # --- when Postgres is away ----------------------------------------------------------------------------------------------

    def goes_behind(self, call: Forwarded) -> bool:
        """Whether a call that has ended has to wait in the spool without Postgres being asked: its user's earlier ones
        do, and it may go on from them; or Postgres is known to be away."""
        if call.place is not None or not call.kept:
            return False
        return self.away or (call.needs_place and self.behind(call.identity.user_id))

    def behind(self, user: UUID) -> bool:
        """Whether calls of this user wait in the spool, be it of another process."""
        return self.spool.behind(user)

    def lost(self, error: StoreUnavailable) -> None:
        if not self.away:
            self.away = True
            self.wanted.set()

    async def keep(
        self,
        call: Forwarded,
        ending: Ending,
        tape: Tape,
        ended_at: datetime,
        hashes: Sequence[bytes] = (),
    ) -> None:
        """Put a call that has ended into the spool; returns when it is durable. `hashes`: as in `kept_of`. Raises
        SpoolUnavailable."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((kept_of(call, ending, tape, ended_at, self.redactor, hashes), waiting))
        if not self._writing:
            self._writing = True
            self._tasks.spawn(self._write(), "spool")
        try:
            await waiting
        except (OSError, SpoolUnavailable) as error:
            self.events.labels("refused").inc()
            raise SpoolUnavailable(str(error)) from error
        self.events.labels("kept").inc()
        log.warning("the call waits in the spool", extra={"call_id": str(call.id)})

    async def _write(self) -> None:
        """Whatever ended while the last ones were written is written together."""
        batch: list[tuple[KeptCall, asyncio.Future[None]]] = []
        try:
            while self._queue:
                batch, self._queue = self._queue, []
                errors = await asyncio.to_thread(self.spool.store, [kept for kept, _ in batch])
                for (_, waiting), error in zip(batch, errors, strict=True):
                    if waiting.done():
                        continue
                    if error is None:
                        waiting.set_result(None)
                    else:
                        waiting.set_exception(error)
        finally:
            self._writing = False
            for _, waiting in (*batch, *self._queue):
                waiting.cancel()  # those that nobody will write any more: the server is closing

    async def caught_up(self, user: UUID) -> None:
        """Wait until none of a user's calls waits any more: what he says next may go on from them. Raises StoreUnavailable
        when Postgres turns out to be away still."""
        if self.unreached:
            raise StoreUnavailable
        seen = self.failures
        self.wanted.set()
        while self.behind(user):
            # A first failure may be that of a try which began before.
            if self.failures > seen + 1:
                raise StoreUnavailable
            await asyncio.sleep(LOOK_S)

    # --- now and then --------------------------------------------------------------------------------------------------------

    async def tidy(self) -> None:
        """Take over what dead processes left, and count."""
        self.journal.tidy()
        try:
            found = await asyncio.to_thread(self.spool.take_over)
        except (OSError, SpoolUnavailable) as error:
            found = 0
            log.error("what a dead process left cannot be taken over", extra={"error": str(error)})
        if found:
            self.events.labels("recovered").inc(found)
            log.warning("calls of a process that was killed were found", extra={"calls": found})
        began = time.monotonic()
        if found or began >= self._next_look:
            usage = await asyncio.to_thread(self.spool.usage)
            told = {"calls": usage.calls, "bytes": usage.size, "oldest_seconds": usage.oldest, "dead": usage.dead}
            for what, value in told.items():
                self._standing.labels(what).set(value)
            self._next_look = began + max(COUNT_S, COUNT_SHARE * (time.monotonic() - began))

    def unreachable(self) -> None:
        self.away = self.unreached = True

    def drain(
        self, settle: Settle, writable: Callable[[], Awaitable[bool]], capture_max_bytes: int, addon: Addon | None
    ) -> Callable[[], None]:
        drain = Drain(self, settle, writable=writable, capture_max_bytes=capture_max_bytes, addon=addon)
        self._tasks.spawn(drain.run(), "drain")
        return drain.stop

    def close(self) -> None:
        self.journal.close()


IDLE_S = 1.0
"""Seconds between two looks for what other processes left, and the longest pause before Postgres is tried again."""
FIRST_S = 0.05
"""Seconds before the second try, doubled with each; also the shortest pause where somebody waits."""
TRIES = 20
PATIENCE_S = 3600.0
"""Tries of a call that fails though Postgres takes writes, and seconds from the first to the last: it would stop its user's
calls for ever. A lock, a migration or a busy disk seldom last an hour; meanwhile nothing is lost, only late."""
AT_ONCE = 4
"""Users whose calls are stored side by side: half of a pool's connections."""
REFUSED = "a call of the spool cannot be stored, and is set aside"


class Drain:
    """Empties the spool."""

    def __init__(
        self,
        keeper: SpoolKeeper,
        settle: Settle,
        *,
        writable: Callable[[], Awaitable[bool]],
        capture_max_bytes: int,
        addon: Addon | None = None,
    ) -> None:
        """`writable`: whether Postgres answers and takes writes. `addon`: as the gateway has it."""
        self._addon = addon
        self._keeper = keeper
        self._spool = keeper.spool
        self._settle = settle
        self._writable = writable
        self._capture_max_bytes = capture_max_bytes
        self._tries = collections.Counter[Path]()
        self._first_try: dict[Path, float] = {}
        self._stored = 0
        self._lost = False
        self._stopping = False

    def stop(self) -> None:
        """End `run` soon; what waits is left to the next process."""
        self._stopping = True
        self._keeper.wanted.set()

    async def run(self) -> None:
        """Until `stop`."""
        self._keeper.unreached = False
        failed = 0
        while not self._stopping:
            self._keeper.wanted.clear()
            emptied = False
            with FailOpen(log.error, "the spool cannot be drained"):
                emptied = await self.once()
            failed = 0 if emptied else failed + 1
            if failed and not self._stopping:
                await asyncio.sleep(FIRST_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(IDLE_S, FIRST_S * 2**failed) if failed else IDLE_S):
                    await self._keeper.wanted.wait()

    async def once(self) -> bool:
        """Look for what others left, and store all that waits; False where something still does. Raises OSError."""
        await self._keeper.tidy()
        users = await asyncio.to_thread(self._spool.users)
        if not users:
            self._keeper.away = False
            return True
        emptied = True
        with self._spool.draining() as ours:
            if not ours:
                return await self._asked() and False
            random.shuffle(users)  # those whose calls have to wait must not keep the others waiting, pass after pass
            for begin in range(0, len(users), AT_ONCE):
                stored, self._lost = self._stored, False
                some = await asyncio.gather(*(self._user(each) for each in users[begin : begin + AT_ONCE]))
                emptied = emptied and all(some)
                if not all(some) and self._stored == stored and not await self._asked(lost=self._lost):
                    return False
        return emptied

    async def _asked(self, *, lost: bool = False) -> bool:
        """Whether Postgres takes writes; known to all from now on. `lost`: it has just failed to, for no call's sake. (The
        calls themselves are the probe: a full disk takes small writes, and answers questions, for long.)"""
        writable = not lost and await self._writable()
        self._keeper.away = not writable
        self._keeper.failures += not writable
        return writable

    async def _user(self, user: UUID) -> bool:
        """A user's calls, one after the other; False where they have to wait."""
        try:
            while not self._spool.leave(user):
                for each in await asyncio.to_thread(self._spool.turns, user):
                    if self._stopping or not await self._call(each):
                        return False
        except OSError as error:
            log.error("the spool cannot be read", extra={"error": str(error)})
            return False
        return True

    async def _call(self, waiting: WaitingCall) -> bool:
        try:
            kept = await asyncio.to_thread(self._spool.load, waiting)
            if kept is None:
                raise ValueError("the file is no call any more")
            call = revive(kept, self._capture_max_bytes, self._addon)
            await self._settle(call.call, call.ending, call.tape, call.ended_at, call.promised)
        except Exception as error:  # boundary: what one call fails for must not keep the others from being stored
            if not isinstance(error, (*REFUSALS, KeyError)) and not await self._in_vain(waiting, error):
                return False
            log.error(REFUSED, extra={"call_id": str(waiting.call)}, exc_info=error)
            await self._bury(waiting)
        else:
            self._keeper.away = False
            self._stored += 1
            await asyncio.to_thread(self._spool.remove, waiting)
            self._keeper.events.labels("drained").inc()
        self._tries.pop(waiting.path, None)
        self._first_try.pop(waiting.path, None)
        return True

    async def _in_vain(self, waiting: WaitingCall, error: Exception) -> bool:
        """Whether a call that failed was tried for long enough. A try is one at which Postgres takes writes, and the call may
        itself be the reason: it is too much, or meets a mistake of Mneme's."""
        if isinstance(error, Unavailable | OSError | MemoryError):
            if not (isinstance(error, StoreUnavailable) and error.too_much):
                self._lost = self._lost or isinstance(error, StoreUnavailable)
                return False
        else:
            log.error("a call of the spool cannot be stored yet", extra={"call_id": str(waiting.call)}, exc_info=error)
        if not await self._writable():
            return False
        now = time.monotonic()
        began = self._first_try.setdefault(waiting.path, now)
        self._tries[waiting.path] += 1
        return self._tries[waiting.path] >= TRIES and now - began >= PATIENCE_S

    async def _bury(self, waiting: WaitingCall) -> None:
        self._keeper.events.labels("dead").inc()
        await asyncio.to_thread(self._spool.bury, waiting)
