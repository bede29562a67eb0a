"""What the learner's job notes beside what it learns: an episode for each answered exchange, that the session
went on, its working memory, and the cards that its tools showed."""

from __future__ import annotations

from collections.abc import Sequence

from app.clock import Clock
from app.jobs.cards import CardTaker
from app.jobs.tasks import LearnJob, exchanges_of
from app.jobs.working import clear, fills_working, refresh
from app.memory.drafts import Draft
from app.memory.episodes import episode_of, tool_names
from app.store.derived import more_tools, note
from app.store.learning import Effect, SourceMessage
from app.store.queries import Queries


class Notes:
    """The learner's `note`."""

    def __init__(self, sql: Queries, clock: Clock, cards: CardTaker | None = None) -> None:
        """`cards`: None where no tool's results are kept as cards."""
        self._sql = sql
        self._clock = clock
        self._cards = cards

    async def __call__(
        self, job: LearnJob, effect: Effect, messages: Sequence[SourceMessage], statements: Sequence[Draft]
    ) -> None:
        """Write within the job's effect: it comes to be with it, once."""
        episodes = []
        for exchange, own in exchanges_of(messages):
            ids = {each.message_id for each in own}
            said = [each.candidate for each in statements if each.message.message_id in ids]
            made = episode_of(exchange, said, message_id=own[0].message_id, session_id=job.session)
            if made is not None:
                episodes.append(made)
        before: list[SourceMessage] = []
        for each in messages:
            if each.role == "user":
                break
            before.append(each)
        tools = tool_names(call for each in before if each.role == "assistant" for call in each.tool_calls)
        if tools:
            await more_tools(effect.connection, self._sql, job.tenant, job.user, job.session, tools)
        await note(
            effect.connection,
            self._sql,
            job.tenant,
            job.user,
            job.session,
            episodes=episodes,
            messages=[each.message_id for each in messages],
            since=job.since,
            until=job.until,
            now=self._clock.now(),
            pooled=not job.confined,
        )
        if fills_working(messages) or any(each.candidate.kind in ("preference", "instruction") for each in statements):
            await refresh(effect.connection, self._sql, job.tenant, job.user, job.session, self._clock.now())
        else:
            await clear(effect.connection, self._sql, job.tenant, job.user, job.session)
        if self._cards is not None:
            await self._cards.take(job, effect, messages)
