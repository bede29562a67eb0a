"""Whether what an exchange taught contradicts what was known, in words that no rule compares: asked of the helper LLM, in the
job in which it adds to what the rules found, and after that.

read what is new, and what is near it ─> the helper's verdicts, nothing is held ─> one transaction that notes it as done:
                                                                                   contradictions of what is still in force
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from app.clock import Clock
from app.errors import Conflict
from app.memory.compare import UNLIKE, Pair, Verdict, contradictions, worth_asking
from app.store import ids
from app.store.learning import LearningStore

if TYPE_CHECKING:
    from app.jobs.tasks import LearnJob

log = logging.getLogger(__name__)

Judge = Callable[[Sequence[Pair]], Awaitable[Mapping[int, Verdict]]]
"""By the place of a pair, the verdict on it. Raises `HelperError`: the job is tried again."""


class Comparing:
    """Asks about the memories that are new with an exchange."""

    def __init__(self, store: LearningStore, judge: Judge, clock: Clock, *, space: int) -> None:
        """`space`: the number of the embedder's."""
        self._store = store
        self._judge = judge
        self._clock = clock
        self._space = space

    async def compare(self, job: LearnJob, alone: asyncio.Lock) -> None:
        """Once for each exchange. `alone`: what effects of the same user wait for here, while they hold no connection. Raises
        `HelperError` for what may work later."""
        while not await self._attempt(job, alone):
            log.info("a message was deleted while it was compared", extra={"job_key": job.key})

    async def _attempt(self, job: LearnJob, alone: asyncio.Lock) -> bool:
        """False: something that was read is gone by now, and nothing was written."""
        key = f"compare:{job.messages[0]}"
        scope = job.session if job.confined else ids.NIL
        setting, messages = await self._store.read(
            job.tenant, job.user, job.messages, job.since, job.until, job_key=key
        )
        if setting.done or not messages:
            return True
        read = [each.message_id for each in messages]
        pairs = worth_asking(*await self._store.beside(job.tenant, job.user, scope, self._space, read, UNLIKE))
        if not pairs:
            return True
        verdicts = await self._judge(pairs)
        log.info("memories were compared", extra={"job_key": key, "pairs": len(pairs), "contradict": len(verdicts)})
        now = self._clock.now()
        try:
            async with (
                alone,
                self._store.effect(
                    job.tenant, job.user, key, alone=job.alone, epoch=setting.epoch, read=read, now=now
                ) as effect,
            ):
                if effect is None or not verdicts:
                    return True
                said = [(pairs[place], verdict) for place, verdict in verdicts.items()]
                concerned = {each.memory_id for pair, _ in said for each in pair}
                known = {each.memory_id: each for each in await effect.known(scope, concerned)}
                changes = contradictions(
                    said,
                    known=known,
                    logged=await effect.logged(concerned),
                    message=job.messages[0],
                    session=job.session,
                    new_id=lambda: ids.uuid7(now),
                )
                await effect.change(scope, self._space, changes)
        except Conflict:
            return False
        return True
