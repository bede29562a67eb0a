"""Standing wishes that the user took back, where no request did it: in what is imported, or was said while memory was late."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from app.clock import Clock
from app.memory.candidate import Exchange
from app.memory.commands import WITHDRAWS, Command, commands, taken_back
from app.memory.drafts import Draft
from app.memory.extract_clauses import MAX_OWN_WORD
from app.store import ids
from app.store.commands import Doing, Done
from app.store.learning import Effect, SourceMessage
from app.store.queries import Queries

if TYPE_CHECKING:
    from app.jobs.tasks import LearnJob


class TakingBack:
    """Ends the wishes that messages take back, each as a command that can be undone; one that says something else besides
    stays, for there is nobody to ask."""

    def __init__(self, sql: Queries, clock: Clock) -> None:
        self._sql = sql
        self._clock = clock

    async def act(
        self,
        job: LearnJob,
        effect: Effect,
        exchanges: Sequence[tuple[Exchange, Sequence[SourceMessage]]],
        statements: Sequence[Draft],
    ) -> None:
        """Within a job's effect, after what its messages state is taken in. What was said later, and learned earlier, takes
        back the wishes that are new, too."""
        scope = job.session if job.confined else ids.NIL
        doing = Doing(effect.connection, self._sql, job.tenant, job.user, scope, self._clock.now(), None)
        said = {own[0].message_id: (exchange.user_text, own[0].created_at) for exchange, own in exchanges}
        asked = [each.message.created_at for each in statements if each.candidate.kind == "instruction"]
        if asked:
            said |= await doing.said_since(min(asked), MAX_OWN_WORD)
        for message, (text, at) in said.items():
            orders = [each for each in commands(text) if each.kind in WITHDRAWS]
            place = await doing.heeded(message) if orders else None
            if place is not None:
                await self._take_back(doing, message, orders, at, *place)

    async def _take_back(
        self,
        doing: Doing,
        message: UUID,
        orders: Sequence[Command],
        at: datetime,
        session: UUID,
        message_hash: bytes | None,
        done: Done | None,
    ) -> None:
        """What was done about the message before it does to older wishes, too, that were learned since; undone, it does no
        more."""
        if done is not None and (done.undone or done.outcome != "done"):
            return
        for order in orders:
            found = taken_back(order.about, await doing.wishes(at), order.language, allows=order.kind == "allow")
            if not found.wishes or not found.clear:
                continue
            items = await doing.end([each.memory_id for each in found.wishes])
            if done is not None:
                await doing.confirmed(done.command_id, (*done.items, *items))
            else:
                new = Done(ids.uuid7(self._clock.now()), order.kind, order.scope, "done", items)
                await doing.note(new.command_id, session, message.bytes, message_hash, new)
