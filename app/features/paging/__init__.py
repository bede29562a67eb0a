"""Paging: old tool results of a long session shown shorter, and what its model asks of them (docs/explanation/paging.md).

`pager` takes part in chats (`segment`, `shrink`, `fidelity`, `prompt`), and `tool_loop` in their answers (`tools`, `stream`,
`body`, `forms`, `faults`); the worker's jobs are in `summaries` and `persistent_objects`; `store` has what is kept of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from app.features import Feature, Finding, Process

if TYPE_CHECKING:
    from fastapi import APIRouter

    from app.api.scope import Gate
    from app.features.paging.pager import PagingAddon
    from app.jobs.schedule import Tick
    from app.jobs.worker import Handler
    from app.settings import Settings
    from app.store.pools import Pool
    from app.store.queries import Queries

PAGING_DEADLINE_MS = 1000
"""Milliseconds; past it the request goes unpaged. A result takes some 2, once: the first request of a long transcript brings
all of them. Where memory may take longer (MNEME_RETRIEVAL_DEADLINE_MS), paging may as well."""


class PagingFeature(Feature):
    """An addon and routes in a server; jobs and a tick in the worker."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._space: int | None = None
        self._secret = b""

    @asynccontextmanager
    async def opened(self, process: Process) -> AsyncIterator[None]:
        from app.store.turns import TurnStore

        turns = TurnStore(process.pool, process.queries)
        self._space, self._secret = await turns.space_of(process.embedder.space), await turns.secret()
        yield

    def addon(self, process: Process, pool: Pool) -> PagingAddon:
        from app.features.paging.faults import FaultAnswers
        from app.features.paging.pager import Pager, PagingAddon
        from app.features.paging.store import PagingStore

        assert process.metrics is not None, "a server's"
        sql, clock, embedder, count = process.queries, process.clock, process.embedder, process.count
        store = PagingStore(pool, sql, clock)
        answers = FaultAnswers(store, embedder, self._space, count, clock, process.helper, meter=process.metrics)
        pager = Pager(
            store,
            answers,
            process.models,
            process.tokenizers,
            process.counts,
            process.tasks,
            nonce_key=lambda: self._secret,
            memory_cap=self.settings.memory_budget_tokens,
            deadline_s=max(PAGING_DEADLINE_MS, self.settings.retrieval_deadline_ms) / 1000,
        )
        return PagingAddon(
            pager, answers, settings=self.settings, metrics=process.metrics, clock=clock, tasks=process.tasks
        )

    def routes(self, process: Process, gate: Gate) -> Sequence[APIRouter]:
        from app.features.paging.faults import Writer
        from app.features.paging.routes import objects_router
        from app.features.paging.store import ObjectStore, PagingStore
        from app.store.sessions import SESSION_TTL, Sessions

        pool, sql, clock = process.pool, process.queries, process.clock
        sessions = Sessions(pool, sql, clock, ttl=SESSION_TTL)
        objects, keeper = ObjectStore(pool, sql), PagingStore(pool, sql, clock)
        writer = Writer(process.count, process.helper)
        return (objects_router(gate, sessions, objects, keeper, writer, clock, process.metrics),)

    def jobs(self, process: Process) -> Mapping[str, Handler]:
        from app.features.paging.persistent_objects import REMEMBER_OBJECTS, ObjectRememberer
        from app.features.paging.store import PagingStore
        from app.features.paging.summaries import SHRINK, Shrinker
        from app.memory.secrets import unwelcome
        from app.store.learning import LearningStore

        pool, sql, clock, settings = process.pool, process.queries, process.clock, self.settings
        embedder, count, space = process.embedder, process.count, self._space
        shrinker = Shrinker(
            PagingStore(pool, sql, clock), embedder=embedder, space=space, count=count, helper=process.helper
        )
        rememberer = ObjectRememberer(
            LearningStore(pool, sql),
            pool,
            sql,
            clock,
            embedder=embedder,
            space=space,
            count=count,
            unwelcome=unwelcome(settings.store_secrets, settings.refuse_pii, settings.refuse_patterns),
        )
        return {SHRINK: shrinker.shrink, REMEMBER_OBJECTS: rememberer.remember}

    def ticks(self, queries: Queries) -> Sequence[Tick]:
        from app.features.paging.persistent_objects import object_ticks

        return object_ticks(queries)

    async def findings(self, dsn: str | None) -> tuple[Finding]:
        budget = self.settings.paging_budget_tokens
        told = f"{budget:,} tokens" if budget is not None else "their model's window"
        if self.settings.paging == "off":
            what = f"Paging is off unless a header, a session or a key asks for it; then within {told}."
            return (Finding("ok", what),)
        if self.settings.worker == "on":
            return (Finding("ok", f"Paging is on: prompts of long transcripts keep within {told}."),)
        what = f"Paging is on, within {told}, but this server starts no worker to shorten what is long."
        mend = "Fine if `mneme worker` runs elsewhere; else set MNEME_WORKER=on: objects have a line or all their text."
        return (Finding("warning", what, mend),)


FEATURE = PagingFeature
