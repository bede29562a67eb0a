"""What tests of learning share: conversations in the history, and a learner over a real Postgres."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import asyncpg
import numpy as np
import orjson

from app.clock import Clock
from app.errors import Unavailable
from app.features.commands.store import withdraw
from app.jobs.changes import MemoryReviser
from app.jobs.learn import Extract, FurtherJobs, Learner, ValidationAnswers
from app.memory.candidate import MemoryCandidate, SourceExchange
from app.memory.extract import extract
from app.memory.text import content_hash
from app.providers.embeddings import Embedder, Vectors
from app.store import ids
from app.store.learning import LearningStore
from app.store.pools import Pool
from app.store.records import ROLES, MessageRecord, SessionRecord
from tests.support.clock import FakeClock
from tests.support.jobs import SQL
from tests.support.rows import (
    read_effects,
    read_embeddings,
    read_index_items,
    read_memories,
    read_memory_events,
    read_routes,
)

INTRODUCTION = "I'm vegetarian, I live in Lisbon, please call me Ana"
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
TENANT = UUID(int=0xA)
OTHER_TENANT = UUID(int=0xB)


async def by_rules(exchange: SourceExchange) -> Sequence[MemoryCandidate]:
    return extract(exchange)


@dataclass(frozen=True)
class Talk:
    """A session of a user."""

    user_name: str = "ana"
    name: str = "chat-1"
    tenant: UUID = TENANT
    confined: bool = False
    said: list[MessageRecord] = field(default_factory=list)
    begun: datetime = NOW - timedelta(hours=1)

    @property
    def user(self) -> UUID:
        return ids.nobody(self.tenant) if self.confined else ids.user_id(self.tenant, self.user_name)

    @property
    def session(self) -> UUID:
        return ids.session_id(self.tenant, self.user, self.name)

    async def say(self, pool: Pool, *texts: str, role: str = "user", **other: Any) -> list[MessageRecord]:
        """Put messages into the history, a second apart; all of one role."""
        at = self.begun + timedelta(seconds=len(self.said))
        fresh = [self._record(text, role, at + timedelta(seconds=n), other) for n, text in enumerate(texts)]
        nothing = dict.fromkeys(SessionRecord._fields)
        session = SessionRecord(
            **nothing | {  # type: ignore[arg-type]  # the rest is None
                "session_id": self.session,
                "user_external_id": self.user_name,
                "external_id": self.name,
                "expires_at": self.begun + timedelta(days=90),
            }
        )  # fmt: skip
        async with pool.transaction(self.tenant) as connection:
            await connection.fetch(SQL["history.append"], self.tenant, self.user, session, fresh)
        self.said.extend(fresh)
        return fresh

    def _record(self, text: str, role: str, at: datetime, other: dict[str, Any]) -> MessageRecord:
        nothing: dict[str, Any] = dict.fromkeys(MessageRecord._fields)
        known = {
            "message_id": ids.uuid7(at),
            "role": ROLES[role],
            "content": text,
            "content_hash": content_hash(text),
            "token_count": len(text.split()),
            "created_at": at,
        }
        return MessageRecord(**nothing | known | other)

    def job(self, messages: Sequence[MessageRecord], **other: Any) -> bytes:
        """The payload that a turn with these messages leaves behind."""
        times = [each.created_at for each in messages]
        return orjson.dumps(
            {
                "call": None,
                "tenant": self.tenant,
                "user": self.user,
                "session": self.session,
                "session_name": self.name,
                "messages": [each.message_id for each in messages],
                "confined": self.confined,
                "from": min(times),
                "to": max(times),
            }
            | other
        )


def learner(
    pool: Pool,
    embedder: Embedder,
    space: int | None,
    *,
    clock: Clock | None = None,
    extract: Extract = by_rules,
    store_secrets: bool = False,
    refuses: Callable[[str], bool] = lambda _: False,
    tokens: Callable[[str], int] = lambda text: len(text.split()),
    answers: ValidationAnswers | None = None,
    further_jobs: FurtherJobs | None = None,
) -> Learner:
    store, clock = LearningStore(pool, SQL), clock or FakeClock(NOW)
    return Learner(
        store,
        embedder=embedder,
        space=space,
        extract=extract,
        count=tokens,
        clock=clock,
        store_secrets=store_secrets,
        refuses=refuses,
        further_jobs=further_jobs,
        answers=answers,
        reviser=MemoryReviser(by_rules),
        taking_back=partial(withdraw, SQL, clock),
    )


async def taught(do: Learner, pool: Pool, talk: Talk, *texts: str) -> bytes:
    """Say something and learn from it; the job."""
    payload = talk.job(await talk.say(pool, *texts))
    await do.learn(payload)
    return payload


async def memories(admin: asyncpg.Connection[Any], /, **columns: object) -> list[dict[str, Any]]:
    """Return memories with their sources decoded: those in force, or those whose columns have these values."""
    found = await read_memories(admin, **(columns or {"is_active": True}))
    return [row | {"sources": _decode(row["sources"])} for row in found]


def _decode(value: Any) -> Any:
    """Decode a JSON column where the connection has no codec for it."""
    return orjson.loads(value) if isinstance(value, str | bytes) else value


async def texts(admin: asyncpg.Connection[Any], /, **columns: object) -> list[str]:
    return [row["content_text"] for row in await memories(admin, **columns)]


async def everything(admin: asyncpg.Connection[Any]) -> list[list[str]]:
    """All that a job can change."""
    readers = (read_memories, read_memory_events, read_embeddings, read_index_items, read_routes, read_effects)
    return [sorted(str(row) for row in await read(admin)) for read in readers]


class Remote:
    """An embedder behind a network: known texts have known vectors, others each one of their own."""

    local = False
    dimensions = 2
    space = "scripted"
    duplicate_threshold = None

    def __init__(self, known: dict[str, list[float]] | None = None, *, away: bool = False) -> None:
        self.known = known or {}
        self.away = away

    async def embed(self, texts: Sequence[str]) -> Vectors:
        if self.away:
            raise Unavailable("the embedder does not answer: connection refused")
        return np.array([self.known.get(each) or _of_its_own(each) for each in texts], np.float32)

    async def close(self) -> None:
        return None


def _of_its_own(text: str) -> list[float]:
    if not text.strip():
        return [0.0, 0.0]
    angle = int.from_bytes(content_hash(text)[:4], "big")
    return [float(np.cos(angle)), float(np.sin(angle))]
