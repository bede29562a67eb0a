"""A gateway on a real store, with memories to find."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

import asyncpg

from app.context.budget import Budgets
from app.context.compile import Compiler
from app.context.retrieve import Retriever
from app.context.score import PROFILES, Profile
from app.features.cards.store import Cards
from app.features.knowledge.inquiry import Knower
from app.features.paging.pager import Pager
from app.features.paging.store import PagingStore
from app.providers.models import ModelRegistry
from app.providers.tokens import CountCache
from app.settings import Settings
from app.store import ids
from app.store.memories import Memories
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.turns import TurnStore
from app.tasks import Supervisor
from tests.support.clock import FakeClock
from tests.support.indexes import indexes_of
from tests.support.journey import TOKENIZERS, UPSTREAM, Answer, Message, build_journey
from tests.support.paging import Told
from tests.support.rows import insert_row
from tests.support.wired_api import HashEmbedder, make_space

TENANT = ids.LOCAL_TENANT
ANA = ids.user_id(TENANT, "local")

FACTS = (
    "Ana plays chess on Mondays.",
    "Ana's chess club is in Graz.",
    "Ana prefers the Sicilian in chess.",
    "Ana drinks tea while she plays chess.",
)


class StoredStage:
    """A gateway on a database, and its user's memories."""

    def __init__(
        self,
        pool: Pool,
        admin: asyncpg.Connection[Any],
        space: int,
        settings: Settings,
        profiles: Mapping[str, Profile] = PROFILES,
        knower: Knower | None = None,
        budgets: Budgets | None = None,
        questions: int = 1,
    ) -> None:
        self.admin, self.pool = admin, pool
        self.tasks = Supervisor()
        self.clock = FakeClock(datetime.now(UTC).replace(microsecond=0))
        self.sql = Queries.load()
        store = TurnStore(pool, self.sql)
        self.journey = build_journey(
            store,
            embedder=HashEmbedder(),
            settings=settings,
            clock=self.clock,
            profiles=profiles,
            knower=knower,
            budgets=budgets,
            questions=questions,
            cards=Cards(pool, self.sql),
            pager=self._pager(settings) if settings.paging == "on" else None,
        )
        self.memories = Memories(pool, self.sql, self.clock, space=space)
        self.settings = settings
        self.store = store

    def _pager(self, settings: Settings) -> Pager:
        return Pager(
            PagingStore(self.pool, self.sql, self.clock),
            Told(),
            ModelRegistry(windows=settings.model_windows),
            TOKENIZERS,
            CountCache(),
            self.tasks,
            nonce_key=lambda: b"a test's secret",
            memory_cap=settings.memory_budget_tokens,
            deadline_s=30,
        )

    def compiler(self) -> Compiler:
        """Return another compiler on the same store, to search with."""
        return Compiler(
            Retriever(self.store, HashEmbedder(), str.__len__, indexes_of(self.pool, HashEmbedder().dimensions)),
            ModelRegistry(),
            TOKENIZERS,
            CountCache(),
            nonce_key=lambda: b"a test's secret",
            memory_cap=self.settings.memory_budget_tokens,
        )

    async def ask(
        self, messages: list[Message], session: str | None = None, profile: str | None = None, **fields: Any
    ) -> Answer:
        self.clock.move(timedelta(seconds=60))
        headers = {"x-mneme-session": session} if session is not None else {}
        if profile is not None:
            headers["x-mneme-profile"] = profile
        answer = await self.journey.ask(messages, headers=headers, **fields)
        assert answer.status == 200, answer.body
        await self.journey.settled()
        return answer

    async def remember(self, *texts: str) -> list[UUID]:
        made = []
        for text in texts:
            memory = ids.uuid7(self.clock.now())
            at = self.clock.now() - timedelta(days=3)
            await insert_row(
                self.admin, "memory_store", memory_id=memory, user_id=ANA, tenant_id=TENANT, memory_tier=3, memory_scope=1,
                kind="fact", content_text=text, content_hash=sha256(text.encode()).digest(), provenance_type=0,
                token_count=9, created_at=at, access_count=3, last_accessed_at=at, confidence=0.7, importance=0.3,
            )  # fmt: skip
            made.append(memory)
        return made

    def sent(self) -> bytes:
        """What went upstream last."""
        return self.journey.upstream.sent[-1]


async def make_stage(
    pool: Pool,
    admin: asyncpg.Connection[Any],
    *,
    profiles: Mapping[str, Profile] = PROFILES,
    knower: Knower | None = None,
    budgets: Budgets | None = None,
    questions: int = 1,
    **settings: Any,
) -> StoredStage:
    space = await make_space(admin)
    return StoredStage(
        pool,
        admin,
        space,
        Settings(**{"upstream_base_url": UPSTREAM, "retrieval_deadline_ms": 20_000, **settings}),
        profiles,
        knower,
        budgets,
        questions,
    )
