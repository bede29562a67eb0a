"""Cards taken from the results of configured tools (MNEME_CARD_TOOLS), as a part of the job that learns from a turn."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from app.clock import Clock
from app.errors import BadRequest
from app.features.cards.results import TakenCard, cards_of
from app.features.cards.store import NewCard, attach
from app.sources import CardTool
from app.store.learning import Effect, SourceMessage
from app.store.queries import Queries
from app.store.sessions import SessionRef, line_of

if TYPE_CHECKING:
    from app.jobs.learn import LearnJob

log = logging.getLogger(__name__)

RESULTS = frozenset({"tool", "function"})
"""Roles of messages that hold a tool's result."""

CALL_DISTANCE = 64
"""Messages that a result stands behind its call at most: as many calls as one answer makes, and their results."""


class CardTaker:
    """Takes cards from the results of tools."""

    def __init__(self, sql: Queries, tools: Mapping[str, CardTool], count: Callable[[str], int], clock: Clock) -> None:
        """`tools`: by name. `count`: tokens of o200k."""
        self._sql = sql
        self._tools = tools
        self._count = count
        self._clock = clock

    async def note(self, job: LearnJob, effect: Effect, messages: Sequence[SourceMessage]) -> None:
        """Within the job's effect: the cards of the results among its messages, each with the answer that followed. A result
        that shows none is passed over, and said in the log."""
        results = {each.message_id: each for each in messages if each.role in RESULTS}
        if not results:
            return
        ref = SessionRef(job.user, job.session)
        line = await line_of(effect.connection, self._sql, job.tenant, ref)
        if line is None:
            return
        rows = await effect.connection.fetch(
            self._sql["cards.results"], job.tenant, job.user, *line, list(results), CALL_DISTANCE
        )
        answers = answers_to(messages)
        cards: dict[UUID, list[NewCard]] = {}
        for row in rows:
            tool = self._tools.get(row["tool"] or "")
            if tool is None:
                continue
            found = cards_of(results[row["message_id"]].content, tool)
            if isinstance(found, str):
                told = {"tool": row["tool"], "message_id": str(row["message_id"]), "reason": found}
                log.warning("a tool's result gives no cards", extra=told)
                continue
            cards.setdefault(answers[row["message_id"]], []).extend(
                await asyncio.to_thread(self._ready, found, row["message_id"], row["tool_call_id"])
            )
        try:
            await attach(effect.connection, self._sql, job.tenant, ref, cards)
        except BadRequest as error:
            log.warning("tool results give no cards", extra={"job_key": job.key, "reason": str(error)})

    def _ready(self, found: Sequence[TakenCard], result: UUID, call: str | None) -> list[NewCard]:
        now = self._clock.now()
        return [
            NewCard(each.kind, each.data, self._count(each.text), now, tool_call_id=call, result=result)
            for each in found
        ]


def answers_to(messages: Sequence[SourceMessage]) -> dict[UUID, UUID]:
    """By result of a tool, the answer that shows what came of it: the last one before the user speaks again; where there is
    none, the result itself."""
    answers: dict[UUID, UUID] = {}
    answer: UUID | None = None
    for each in reversed(messages):
        if each.role == "user":
            answer = None
        elif each.role == "assistant":
            answer = answer or each.message_id
        elif each.role in RESULTS:
            answers[each.message_id] = answer or each.message_id
    return answers
