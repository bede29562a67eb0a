"""A server's index of a user is at each question what the database has then: random writers, forgetters, erasers, re-embedders
and an operator's own statements, in several connections, against readers; each time compared with what is read from the tables
themselves."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import numpy as np
import pytest

from app.clock import SystemClock
from app.index import user_index
from app.index.analyse import asked, pack
from app.index.indexes import CurrentIndex, Indexes, IndexScope
from app.index.user_index import NEVER, ItemRow, UserIndex
from app.store import ids
from app.store.erasure import ERASER_ROLE, Eraser, own_connection
from app.store.indexed import IndexStore
from app.store.item_columns import Scan
from app.store.pools import FromPool, Pool
from app.store.queries import Queries
from app.tasks import Supervisor
from tests.support.teller import ANA, NOW, TENANT, Teller, talk
from tests.support.wired_api import HashEmbedder

SQL = Queries.load()
BOB = ids.user_id(TENANT, "bob")
USERS = (ANA, BOB)
SESSIONS = tuple(UUID(int=0x51 + n) for n in range(3))
WORDS = ["harbour", "lamp", "cats", "Lisbon", "island", "moon", "bread", "river", "the", "猫狗"]
SPACE = 1
FEW, MANY = 120, 3_000
ROUNDS = 4

TRUTH = """
SELECT x.place, public.halfvec_send(e.vector) AS vector, x.text,
       (x.hides | CASE WHEN s.item_id IS NOT NULL THEN 4 ELSE 0 END)::smallint AS hides, x.until
FROM (
    SELECT h.message_id AS id, h.content AS text, 0 AS hides, NULL::bigint AS until,
           agent_data.item_place(h.message_id, 0::smallint, h.created_at, h.session_id, h.turn_index, h.role, h.token_count,
                                 h.name) AS place
    FROM agent_data.conversation_history h
    WHERE h.user_id = $1 AND h.content <> '' AND NOT h.hidden AND NOT h.is_pruned
    UNION ALL
    SELECT m.memory_id, m.content_text, CASE WHEN m.is_active THEN 0 ELSE 1 END | CASE m.memory_scope WHEN 1 THEN 0 ELSE 2 END,
           (extract(epoch FROM m.expires_at - timestamptz '2000-01-01 00:00:00+00') * 1000000)::bigint,
           agent_data.memory_place(m.memory_id, COALESCE(m.valid_from, m.created_at), m.session_id, m.provenance_turn_index,
                                   m.kind, m.token_count, m.speaker)
    FROM agent_data.memory_store m
    WHERE m.user_id = $1 AND m.status <> 'forgotten' AND m.content_text <> ''
) x
LEFT JOIN agent_data.suppressions s ON s.user_id = $1 AND s.item_id = x.id
LEFT JOIN agent_data.embeddings e ON e.user_id = $1 AND e.space = $2 AND e.item_id = x.id
WHERE s.item_id IS NULL OR s.reason = 'superseded'
"""


def contents(scan: Scan) -> Sequence[Any]:
    """All that a scan says, in an order of its own."""
    n = len(scan.sims)
    # Blocks of another size are summed up in another order.
    near = {
        each.tobytes(): pytest.approx(float(sim), abs=1e-4)
        for each, sim in zip(scan.places[:n], scan.sims, strict=True)
    }
    said = {each.tobytes(): count.tobytes() for each, count in zip(scan.places[n:], scan.counts, strict=True)}
    return near, said, list(scan.words), list(scan.holding), scan.counted, round(scan.mean, 6), scan.k1, scan.b


def plain(scan: Scan) -> Sequence[Any]:
    """The same with cosines as they are, to compare with it."""
    return [{key: each.expected for key, each in contents(scan)[0].items()}, *contents(scan)[1:]]


@dataclass
class World:
    """Who writes, and who reads."""

    teller: Teller
    admin: asyncpg.Connection[Any]
    other: asyncpg.Connection[Any]
    eraser: Eraser
    servers: list[Indexes]
    random: random.Random
    held: Any = None
    turns: int = 0
    steps: dict[str, int] = field(default_factory=dict)

    def text(self) -> str:
        return " ".join(self.random.choices(WORDS, k=self.random.randint(1, 6)))

    async def some(self, table: str, column: str, user: UUID) -> UUID:
        """An id of the user's, or one that is none."""
        found = await self.admin.fetch(f"SELECT {column} AS id FROM agent_data.{table} WHERE user_id = $1", user)
        return self.random.choice([each["id"] for each in found]) if found else UUID(int=self.random.getrandbits(100))

    # --- writers ------------------------------------------------------------------------------------------------------

    async def turn(self, user: UUID, by: asyncpg.Connection[Any]) -> None:
        """As the gateway writes one."""
        self.turns += 1
        await self.teller.tell(
            talk(self.text()), self.text(), session=ids.session_id(TENANT, user, str(self.turns % 3)), user=user,
            facts={"user_id": user},
        )  # fmt: skip

    async def memory(self, user: UUID, by: asyncpg.Connection[Any]) -> None:
        text, number = self.text(), self.random.getrandbits(100)
        await by.execute(
            "INSERT INTO agent_data.memory_store (memory_id, user_id, tenant_id, memory_tier, memory_scope, content_text,"
            " content_hash, provenance_type, token_count, session_id, provenance_turn_index, kind)"
            " VALUES ($1, $2, $3, 3, $4, $5, $6, 0, 5, $7, $8, $9)",
            UUID(int=number), user, TENANT, self.random.randint(0, 1), text, str(number).encode(),
            self.random.choice([None, *SESSIONS]), self.random.choice([None, 1, 3]), self.random.choice(["fact", "summary"]),
        )  # fmt: skip

    async def vector(self, user: UUID, by: asyncpg.Connection[Any]) -> None:
        """As the worker does, and an operator."""
        kind = self.random.randint(0, 1)
        item = await (
            self.some("memory_store", "memory_id", user)
            if kind
            else self.some("conversation_history", "message_id", user)
        )
        vector = str((await HashEmbedder().embed([self.text()]))[0].tolist())
        await by.execute(
            "INSERT INTO agent_data.embeddings (user_id, tenant_id, space, item_id, item_kind, item_at, vector)"
            " VALUES ($1, $2, $3, $4, $5, $6, $7::text::halfvec)"
            " ON CONFLICT (user_id, space, item_id) DO UPDATE SET vector = EXCLUDED.vector",
            user, TENANT, SPACE, item, kind, NOW, vector,
        )  # fmt: skip

    async def without_vector(self, user: UUID, by: asyncpg.Connection[Any]) -> None:
        item = await self.some("embeddings", "item_id", user)
        await by.execute("DELETE FROM agent_data.embeddings WHERE user_id = $1 AND item_id = $2", user, item)

    async def edited(self, user: UUID, by: asyncpg.Connection[Any]) -> None:
        item = await self.some("memory_store", "memory_id", user)
        column, value = self.random.choice(
            [("content_text", self.text()), ("status", "superseded"), ("status", "active"), ("status", "invalidated"),
             ("memory_scope", self.random.randint(0, 1)), ("valid_from", NOW - timedelta(days=9)), ("token_count", 7),
             ("expires_at", NOW - timedelta(days=1)), ("expires_at", NOW + timedelta(days=1)), ("access_count", 3)]
        )  # fmt: skip
        await by.execute(
            f"UPDATE agent_data.memory_store SET {column} = $3 WHERE user_id = $1 AND memory_id = $2 AND status <> 'forgotten'",
            user,
            item,
            value,
        )

    async def unlearned(self, user: UUID, by: asyncpg.Connection[Any]) -> None:
        item = await self.some("memory_store", "memory_id", user)
        await by.execute("DELETE FROM agent_data.memory_store WHERE user_id = $1 AND memory_id = $2", user, item)

    async def forgotten(self, user: UUID, by: asyncpg.Connection[Any]) -> None:
        item = await self.some("memory_store", "memory_id", user)
        await by.fetchval("SELECT agent_data.void_memories($1, $2, $3, now())", TENANT, user, [item])

    async def suppressed(self, user: UUID, by: asyncpg.Connection[Any]) -> None:
        item = await self.some("index_items", "item_id", user)
        await by.execute(
            "INSERT INTO agent_data.suppressions (user_id, tenant_id, item_id, reason) VALUES ($1, $2, $3, $4)"
            " ON CONFLICT (user_id, item_id) DO UPDATE SET reason = EXCLUDED.reason",
            user, TENANT, item, self.random.choice(["superseded", "superseded", "forgotten"]),
        )  # fmt: skip

    async def shown_again(self, user: UUID, by: asyncpg.Connection[Any]) -> None:
        item = await self.some("suppressions", "item_id", user)
        await by.execute("DELETE FROM agent_data.suppressions WHERE user_id = $1 AND item_id = $2", user, item)

    async def pruned(self, user: UUID, by: asyncpg.Connection[Any]) -> None:
        item = await self.some("conversation_history", "message_id", user)
        await by.execute(
            "UPDATE agent_data.conversation_history SET is_pruned = NOT is_pruned WHERE user_id = $1 AND message_id = $2",
            user, item,
        )  # fmt: skip

    async def deleted(self, user: UUID, by: asyncpg.Connection[Any]) -> None:
        """An operator, as the eraser's role may."""
        item = await self.some("conversation_history", "message_id", user)
        async with by.transaction():
            await by.execute("SET LOCAL ROLE mneme_eraser")
            await by.execute("SELECT set_config('mneme.tenant', $1, true)", str(TENANT))
            await by.execute(
                "DELETE FROM agent_data.conversation_history WHERE user_id = $1 AND message_id = $2", user, item
            )

    async def older_terms(self, user: UUID, by: asyncpg.Connection[Any]) -> None:
        """As a server of another version left them."""
        await by.execute(
            "UPDATE agent_data.index_items SET terms = '\\xff00'"
            " WHERE user_id = $1 AND get_byte(item_id::text::bytea, 3) % 2 = 0",
            user,
        )

    async def cut(self, user: UUID, by: asyncpg.Connection[Any]) -> None:
        await by.fetchval("SELECT agent_data.index_cut($1, $2, now())", TENANT, user)

    async def emptied(self, user: UUID, by: asyncpg.Connection[Any]) -> None:
        """An operator's own way, of which no row's trigger hears: a whole table, or the part that has what is the user's."""
        table = self.random.choice(["suppressions", "embeddings", "memory_store", "conversation_history", "index_log"])
        part = await by.fetchval(f"SELECT tableoid::regclass FROM agent_data.{table} WHERE user_id = $1", user)
        await by.execute(f"TRUNCATE {self.random.choice([part, None]) or f'agent_data.{table}'}")

    async def log_lost(self, user: UUID, by: asyncpg.Connection[Any]) -> None:
        await by.execute("DELETE FROM agent_data.index_log WHERE user_id = $1 OR $2", user, self.random.random() < 0.5)

    async def erased(self, user: UUID, by: asyncpg.Connection[Any]) -> None:
        await self.eraser.erase(TENANT, user, tombstones=False)

    async def restarted(self, user: UUID, by: asyncpg.Connection[Any]) -> None:
        self.servers[0].drop_all()

    # --- steps --------------------------------------------------------------------------------------------------------

    async def step(self) -> None:
        """Something is written: at once, or in a transaction that is open while others write, or is taken back."""
        often = [self.turn] * 6 + [self.memory] * 5 + [self.vector] * 6 + [self.edited] * 6 + [self.suppressed] * 4
        seldom = [
            self.without_vector, self.unlearned, self.forgotten, self.shown_again, self.shown_again, self.pruned, self.pruned,
            self.deleted, self.older_terms, self.cut, self.log_lost, self.restarted,
        ]  # fmt: skip
        work: Callable[[UUID, asyncpg.Connection[Any]], Awaitable[None]] = self.random.choice(often + seldom)
        user = self.random.choice(USERS)
        if self.held is None:
            if self.random.random() < 0.02:
                work = self.random.choice([self.erased, self.emptied])
            elif work in (self.memory, self.turn) and self.random.random() < 0.3:
                self.held = self.other.transaction()
                await self.held.start()
                await self.memory(user, self.other)
                await self.counted("held")
                return
        elif self.random.random() < 0.4:
            await (self.held.commit() if self.random.random() < 0.7 else self.held.rollback())
            self.held = None
            await self.counted("settled")
            return
        await work(user, self.admin)
        await self.counted(work.__name__)

    async def counted(self, name: str) -> None:
        self.steps[name] = self.steps.get(name, 0) + 1

    async def compare(self) -> None:
        """All readers have what the tables have."""
        for user in USERS:
            question, vector = self.text(), (await HashEmbedder().embed([self.text()]))[0]
            scope = IndexScope(
                self.random.choice([None, *SESSIONS]), self.random.randint(1, 4), self.random.choice([[], [SESSIONS[2]]]),
                history=self.random.random() < 0.3, only=self.random.choice([None, None, 0, 1]),
            )  # fmt: skip
            truth = await self.truth(user)
            expected: Any = None
            for server in self.servers:
                fresh = await self.opened(server, user) if self.random.random() < 0.5 else None
                scan = await server.scan(TENANT, user, question, vector, scope, vectors=1000, texts=1000, fresh=fresh)
                assert scan is not None
                if expected is None:
                    now = int(
                        await self.admin.fetchval(
                            "SELECT (extract(epoch FROM now() - timestamptz '2000-01-01 00:00:00+00') * 1000000)::bigint"
                        )
                    )
                    unit = np.asarray(vector, np.float32) / np.float32(np.linalg.norm(vector) or 1)
                    expected = contents(truth.scan(
                        asked(question, truth.languages), unit if vector.any() else None, vectors=1000, texts=1000,
                        session=scope.session, visible_from=scope.visible_from, ancestors=scope.ancestors,
                        history=scope.history, only=scope.only, now=now,
                    ))  # fmt: skip
                for own, theirs in zip(plain(scan), expected, strict=True):
                    assert own == theirs, self.steps

    async def opened(self, server: Indexes, user: UUID) -> CurrentIndex | None:
        """What a request finds out with its place."""
        if (held := server.held(user)) is None:
            return None
        place = await self.teller.store.recognise(TENANT, user, index=server.ask(held))
        return CurrentIndex(held, place.index) if place.index is not None else None

    async def truth(self, user: UUID) -> UserIndex:
        rows = await self.admin.fetch(TRUTH, user, SPACE)
        return UserIndex.of(
            [
                ItemRow(
                    row["place"],
                    row["vector"] or b"",
                    pack(row["text"]),
                    row["hides"],
                    NEVER if row["until"] is None else row["until"],
                )
                for row in rows
            ],
            HashEmbedder().dimensions,
        )


@pytest.fixture
async def world(
    teller: Teller, pool: Pool, admin: asyncpg.Connection[Any], database: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    monkeypatch.setattr(user_index, "TAIL_ROWS", 4)  # so that indexes are sorted every few steps, while they change
    async with AsyncExitStack() as stack:
        other = await asyncpg.connect(database)
        stack.push_async_callback(other.close)
        tasks = Supervisor()
        stack.push_async_callback(tasks.close, 5)
        store = IndexStore(FromPool(pool, SQL), pool, SQL)
        # A server with room for all, one with room for one user alone, one without any.
        servers = [
            Indexes(store, tasks, space=SPACE, dimensions=HashEmbedder().dimensions, limit=limit)
            for limit in (10**8, 30_000, 0)
        ]
        eraser = Eraser(own_connection(database, ERASER_ROLE), SQL, SystemClock())
        yield World(teller, admin, other, eraser, servers, random.Random(7))


@pytest.mark.parametrize("steps", [FEW, pytest.param(MANY, marks=[pytest.mark.heavy, pytest.mark.timeout(900)])])
async def test_it_never_ranks_what_the_database_would_not_show(world: World, steps: int) -> None:
    if steps == MANY:
        world.random.seed()
    for _ in range(steps):
        await world.step()
        await world.compare()
    if world.held is not None:
        await world.held.commit()
        await world.compare()
    assert len(world.steps) > 10


@pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(100, marks=[pytest.mark.heavy, pytest.mark.timeout(900)])])
async def test_what_many_write_at_once_is_all_there_once_they_are_done(
    world: World, database: str, rounds: int
) -> None:
    """Transactions that overlap: a reader sees some of what is under way, and later the rest."""
    for user in USERS:
        await world.turn(user, world.admin)
    async with AsyncExitStack() as stack:
        writers = [await asyncpg.connect(database) for _ in range(3)]
        for each in writers:
            stack.push_async_callback(each.close)

        async def write(by: asyncpg.Connection[Any]) -> None:
            for _ in range(6):
                user = world.random.choice(USERS)
                async with by.transaction():
                    # One at the end at most that may wait for another's row: none waits for one that waits.
                    for _ in range(world.random.randint(1, 3)):
                        await world.memory(user, by)
                    item = await by.fetchval(
                        "SELECT memory_id FROM agent_data.memory_store WHERE user_id = $1 LIMIT 1", user
                    )
                    await by.execute(
                        "INSERT INTO agent_data.suppressions (user_id, tenant_id, item_id, reason)"
                        " VALUES ($1, $2, $3, 'forgotten')"
                        " ON CONFLICT DO NOTHING", user, TENANT, item,
                    )  # fmt: skip

        async def read(server: Indexes) -> None:
            (vector,) = await HashEmbedder().embed(["cats"])
            for _ in range(12):
                for user in USERS:
                    await server.scan(TENANT, user, "cats", vector, IndexScope(), vectors=9, texts=9)

        for _ in range(rounds):
            await asyncio.gather(*map(write, writers), *map(read, world.servers))
            await world.compare()
