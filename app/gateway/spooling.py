"""What the gateway keeps of calls until Postgres has them: the journal while they run, the spool while Postgres is away."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from app.capture.journal import Kept
from app.capture.spool import Journal, Spool, open_spool
from app.errors import SpoolUnavailable, StoreUnavailable
from app.gateway.call import Call
from app.gateway.redact import Redactor
from app.gateway.relay import Ending, Tape
from app.gateway.spooled_call import begin_of, head_of, kept_of
from app.gateway.upstream import UpstreamResponse
from app.metrics import Metrics
from app.settings import Settings
from app.tasks import Supervisor

log = logging.getLogger("mneme.spool")

LOOK_S = 0.005
"""Seconds between two looks whether a user's calls are stored: another process may be at it, which tells nobody."""
COUNT_S = 1.0
"""Seconds between two counts of what the spool holds: how late the metrics, and what other processes write, are seen."""
COUNT_SHARE = 20.0
"""So many times as long as a count takes it rests: 100,000 files are half a second's work."""


class Keeper:
    """Keeps calls. One in a process."""

    def __init__(
        self,
        spool: Spool,
        *,
        segment_bytes: int,
        metrics: Metrics,
        tasks: Supervisor,
        redactor: Redactor | None = None,
    ) -> None:
        """`segment_bytes`: size of the journal's files. `redactor`: takes out what is not to be stored."""
        self.spool = spool
        self.redactor = redactor or Redactor()
        self.journal = Journal(spool.running, segment_bytes, lambda: metrics.spooled("unjournalled"))
        self.wanted = asyncio.Event()
        """Somebody waits for the drain."""
        self.failures = 0
        """How often the drain has found that Postgres takes nothing."""
        self.away = False
        """Postgres took nothing when it was last asked: only the drain asks it, so that answers do not wait for that."""
        self._metrics = metrics
        self._tasks = tasks
        self._queue: list[tuple[Kept, asyncio.Future[None]]] = []
        self._writing = False
        self._next_look = 0.0

    # --- while a call runs -------------------------------------------------------------------------------------------------

    def begin(self, call: Call) -> None:
        """The call goes upstream, for the first time or once more. Of a call that is not to be kept, nothing is."""
        if not call.kept:
            return
        begin = begin_of(call, self.redactor)
        if call.entry is None:
            call.entry = self.journal.begin(call.id, begin)
        else:
            call.entry.begin(begin)

    def answered(self, call: Call, response: UpstreamResponse) -> None:
        """The head of its answer is here."""
        if call.entry is not None:
            call.entry.head(head_of(call, response, self.redactor))

    def copy(self, call: Call) -> Callable[[int, bytes], None] | None:
        """Where pieces of its answer go as they come. Where values are redacted that is nowhere: of a piece nobody can say what
        it holds of them."""
        return call.entry.chunk if call.entry is not None and not self.redactor else None

    # --- when Postgres is away ----------------------------------------------------------------------------------------------

    def goes_behind(self, call: Call) -> bool:
        """Whether a call that has ended has to wait in the spool without Postgres being asked: its user's earlier ones
        do, and it may go on from them; or Postgres is known to be away."""
        if call.place is not None or not call.kept:
            return False
        return self.away or (call.needs_place and self.behind(call.identity.user_id))

    def behind(self, user: UUID) -> bool:
        """Whether calls of this user wait in the spool, be it of another process."""
        return self.spool.behind(user)

    def lost(self) -> None:
        """Postgres did not take a call."""
        if not self.away:
            self.away = True
            self.wanted.set()

    async def keep(
        self,
        call: Call,
        response: UpstreamResponse | None,
        ending: Ending,
        tape: Tape,
        ended_at: datetime,
        hashes: Sequence[bytes] = (),
    ) -> None:
        """Put a call that has ended into the spool; returns when it is durable. `hashes`: as in `kept_of`. Raises
        SpoolUnavailable."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((kept_of(call, response, ending, tape, ended_at, self.redactor, hashes), waiting))
        if not self._writing:
            self._writing = True
            self._tasks.spawn(self._write(), "spool")
        try:
            await waiting
        except (OSError, SpoolUnavailable) as error:
            self._metrics.spooled("refused")
            raise SpoolUnavailable(str(error)) from error
        self._metrics.spooled("kept")
        log.warning("the call waits in the spool", extra={"call_id": str(call.id)})

    async def _write(self) -> None:
        """Whatever ended while the last ones were written is written together."""
        batch: list[tuple[Kept, asyncio.Future[None]]] = []
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
            self._metrics.spooled("recovered", found)
            log.warning("calls of a process that was killed were found", extra={"calls": found})
        began = time.monotonic()
        if found or began >= self._next_look:
            usage = await asyncio.to_thread(self.spool.usage)
            self._metrics.spool(calls=usage.calls, size=usage.size, oldest=usage.oldest, dead=usage.dead)
            self._next_look = began + max(COUNT_S, COUNT_SHARE * (time.monotonic() - began))

    def close(self) -> None:
        """At the end of the process."""
        self.journal.close()


async def open_keeper(settings: Settings, redactor: Redactor, metrics: Metrics, tasks: Supervisor) -> Keeper | None:
    """The journal and the spool, with what dead processes left taken over; None where there is to be none, or can be none."""
    if not settings.spool_max_bytes:
        return None
    try:
        spool = await asyncio.to_thread(open_spool, settings.spool_folder, settings.spool_max_bytes)
    except OSError as error:
        log.error("there is no spool", extra={"folder": str(settings.spool_folder), "error": str(error)})
        return None
    keeper = Keeper(spool, segment_bytes=settings.spool_segment_bytes, metrics=metrics, tasks=tasks, redactor=redactor)
    # Before the first request: a user's next turn must find that the one before waits.
    await keeper.tidy()
    return keeper


class Settle(Protocol):
    """Stores a call that has ended, wherever it comes from (`Finalizer.settle`)."""

    async def __call__(
        self,
        call: Call,
        response: UpstreamResponse | None,
        ending: Ending,
        tape: Tape,
        ended_at: datetime,
        promised: UUID | None = None,
    ) -> None: ...
