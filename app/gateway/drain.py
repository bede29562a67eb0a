"""From the spool into Postgres: by itself, in the order in which each user's calls came, each exactly once.

A call that is stored already is not stored again (`record_turn` knows its id), so whatever was interrupted is simply done
once more. The order within a user is what makes transcripts build on each other: a call's place in its conversation is
only looked for when those before it are stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import UUID

from app.capture.spool import Waiting
from app.errors import StoreUnavailable, Unavailable
from app.gateway.spooled_call import revive
from app.gateway.spooling import Keeper, Settle
from app.metrics import Metrics
from app.store.pools import REFUSALS

log = logging.getLogger("mneme.spool")

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
        keeper: Keeper,
        settle: Settle,
        *,
        writable: Callable[[], Awaitable[bool]],
        metrics: Metrics,
        capture_max_bytes: int,
    ) -> None:
        """`writable`: whether Postgres answers and takes writes."""
        self._keeper = keeper
        self._spool = keeper.spool
        self._settle = settle
        self._writable = writable
        self._metrics = metrics
        self._capture_max_bytes = capture_max_bytes
        self._tries = Counter[Path]()
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
        failed = 0
        while not self._stopping:
            self._keeper.wanted.clear()
            try:
                emptied = await self.once()
            except Exception as error:  # boundary: a pass that fails is tried again, as a schedule's tick is
                log.error("the spool cannot be drained", exc_info=error)
                emptied = False
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

    async def _call(self, waiting: Waiting) -> bool:
        try:
            kept = await asyncio.to_thread(self._spool.load, waiting)
            if kept is None:
                raise ValueError("the file is no call any more")
            call = revive(kept, self._capture_max_bytes)
            await self._settle(call.call, call.ending, call.tape, call.ended_at, call.promised)
        except (*REFUSALS, KeyError) as error:
            log.error(REFUSED, extra={"call_id": str(waiting.call)}, exc_info=error)
            await self._bury(waiting)
        except Exception as error:  # boundary: what one call fails for must not keep the others from being stored
            if not await self._in_vain(waiting, error):
                return False
            log.error(REFUSED, extra={"call_id": str(waiting.call)}, exc_info=error)
            await self._bury(waiting)
        else:
            self._keeper.away = False
            self._stored += 1
            await asyncio.to_thread(self._spool.remove, waiting)
            self._metrics.spooled("drained")
        self._tries.pop(waiting.path, None)
        self._first_try.pop(waiting.path, None)
        return True

    async def _in_vain(self, waiting: Waiting, error: Exception) -> bool:
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

    async def _bury(self, waiting: Waiting) -> None:
        self._metrics.spooled("dead")
        await asyncio.to_thread(self._spool.bury, waiting)
