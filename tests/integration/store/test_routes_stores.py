"""What the stores behind the API promise when several write at once, and what row-level security adds beneath them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from app.context import transcript
from app.errors import Conflict
from app.store import ids
from app.store.captures import CallFilter, Captures
from app.store.history import History, NewMessage
from app.store.memories import Memories, MemoryChange, MemoryFilter, MemoryText, NewMemory, content_hmac
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.sessions import NewSession, Sessions
from app.store.tenancy import Tenancy, UserChange, UserRef
from tests.support.clock import FakeClock

TENANT = ids.LOCAL_TENANT
ANA = UserRef(ids.user_id(TENANT, "ana"), "ana")
TTL = timedelta(days=90)


class Stores:
    """All of them, on one pool."""

    def __init__(self, pool: Pool) -> None:
        sql, clock = Queries.load(), FakeClock(datetime.now(UTC))
        self.clock = clock
        self.tenancy = Tenancy(pool, sql, clock)
        self.sessions = Sessions(pool, sql, clock, ttl=TTL)
        self.history = History(
            pool, sql, self.sessions, clock, chain=transcript.chain, tail=transcript.tail_hash, ttl=TTL, space=None
        )
        self.memories = Memories(pool, sql, clock, space=None)
        self.captures = Captures(pool, sql)

    def message(self, text: str, role: str = "user") -> NewMessage:
        at = self.clock.now()
        hashed = transcript.canonical({"role": role, "content": text})
        assert hashed is not None
        return NewMessage(
            ids.uuid7(at), role, text, at, 1, sha256(text.encode()).digest(), transcript.message_hash(hashed)
        )


def memory(text: str) -> NewMemory:
    return NewMemory(text, sha256(text.encode()).digest(), 1)


@pytest.fixture
def stores(pool: Pool) -> Stores:
    return Stores(pool)


async def test_writers_of_one_session_wait_for_each_other(stores: Stores) -> None:
    async def write(n: int) -> None:
        messages = [stores.message(f"{n} {i}") for i in range(3)]
        await stores.history.append(TENANT, ANA, NewSession(external="s"), messages)

    await asyncio.gather(*(write(n) for n in range(6)))
    (ref,) = await stores.sessions.resolve(TENANT, "s", ANA.id)
    rows = await stores.history.read(TENANT, ref, after=None, limit=100)
    assert [row.turn_index for row in rows] == list(range(1, 19))
    assert [row.parent_message_id for row in rows[1:]] == [row.message_id for row in rows[:-1]]
    for at in range(0, 18, 3):
        assert len({row.content[0] for row in rows[at : at + 3] if row.content}) == 1, "a batch stays together"


async def test_the_same_messages_at_once_are_stored_once(stores: Stores) -> None:
    messages = [stores.message(str(i)) for i in range(4)]
    results = await asyncio.gather(
        *(stores.history.append(TENANT, ANA, NewSession(external="s"), messages) for _ in range(4))
    )
    assert sorted(len(each.placed) for each in results) == [0, 0, 0, 4]
    assert sum(each.created for each in results) == 1


async def test_nothing_is_no_message(stores: Stores) -> None:
    added = await stores.history.append(TENANT, ANA, NewSession(external="s"), [])
    assert added.placed == ()
    assert await stores.history.read(TENANT, added.session, after=None, limit=10) == []


async def test_the_same_memory_at_once_is_stored_once(stores: Stores, admin: asyncpg.Connection[Any]) -> None:
    results = await asyncio.gather(*(stores.memories.add(TENANT, ANA, [memory("likes tea")]) for _ in range(6)))
    assert sum(created for ((_, created),) in results) == 1
    assert len({found.memory_id for ((found, _),) in results}) == 1
    assert await admin.fetchval("SELECT reinforcement_count FROM agent_data.memory_store") == 5


async def test_a_memory_is_changed_by_one_at_a_time(stores: Stores) -> None:
    ((made, _),) = await stores.memories.add(TENANT, ANA, [memory("v")])

    async def edit(n: int) -> None:
        text = MemoryText(f"v{n}", sha256(f"v{n}".encode()).digest(), 1, None)
        await stores.memories.change(TENANT, ANA.id, made.memory_id, MemoryChange(text=text))

    async def end() -> bool:
        try:
            return await stores.memories.invalidate(TENANT, ANA.id, made.memory_id, None) is not None
        except Conflict:
            return False

    await asyncio.gather(*(edit(n) for n in range(4)))
    assert sum(await asyncio.gather(*(end() for _ in range(4)))) == 1
    events = await stores.memories.events(TENANT, ANA.id, made.memory_id, after=0, limit=100)
    assert [each.event for each in events] == ["created", *["edited"] * 4, "invalidated"]


async def test_one_key_hashes_all_that_is_forgotten(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    """Several servers ask for it at once; all must have the same one."""
    servers = [Stores(pool) for _ in range(4)]
    made = [(await servers[0].memories.add(TENANT, ANA, [memory(f"m{i}")]))[0][0] for i in range(4)]
    assert all(await asyncio.gather(*(
        server.memories.forget(TENANT, ANA.id, each.memory_id) for server, each in zip(servers, made, strict=True)
    )))  # fmt: skip
    text = await admin.fetchval("SELECT value #>> '{}' FROM agent_data.system_config WHERE key = 'content_hmac_key'")
    kept = {row["content_hmac"] for row in await admin.fetch("SELECT content_hmac FROM agent_data.suppressions")}
    assert kept == {content_hmac(bytes.fromhex(text), sha256(f"m{i}".encode()).digest()) for i in range(4)}


async def test_two_users_cannot_take_one_email_at_once(stores: Stores) -> None:
    async def take(name: str) -> bool:
        try:
            await stores.tenancy.put_user(TENANT, UserRef(ids.user_id(TENANT, name), name), UserChange(email="a@x.org"))
        except Conflict:
            return False
        return True

    assert sum(await asyncio.gather(*(take(name) for name in "abcd"))) == 1


async def test_a_tenant_is_made_once(stores: Stores) -> None:
    made = await asyncio.gather(*(stores.tenancy.create_key("acme", str(i)) for i in range(4)))
    assert len({row.tenant_id for _, row in made}) == 1
    assert len({key for key, _ in made}) == 4


async def test_row_level_security_stands_beneath_the_stores(stores: Stores) -> None:
    """Even with another tenant's own ids of users and rows, a store finds nothing of theirs."""
    other = (await stores.tenancy.create_key("other", "x"))[1].tenant_id
    ((made, _),) = await stores.memories.add(TENANT, ANA, [memory("a canary")])
    added = await stores.history.append(TENANT, ANA, NewSession(external="s"), [stores.message("a canary")])

    assert await stores.memories.one(other, ANA.id, made.memory_id) is None
    assert await stores.memories.owner(other, made.memory_id) is None
    assert await stores.memories.page(other, ANA.id, MemoryFilter(), after=None, limit=10) == []
    assert await stores.memories.page(other, None, MemoryFilter(), after=None, limit=10) == []
    assert await stores.memories.forget(other, ANA.id, made.memory_id) is False
    assert await stores.memories.change(other, ANA.id, made.memory_id, MemoryChange(importance=0.0)) is None
    assert await stores.memories.events(other, ANA.id, made.memory_id, after=0, limit=10) == []
    assert await stores.sessions.one(other, added.session) is None
    assert await stores.sessions.resolve(other, str(added.session.session_id), None) == []
    assert await stores.sessions.page(other, ANA.id, status=None, after=None, limit=10) == []
    await stores.sessions.close(other, added.session)
    assert await stores.history.read(other, added.session, after=None, limit=10) == []
    assert await stores.history.times_of(other, added.session, [sha256(b"a canary").digest()]) == {}
    assert await stores.tenancy.user(other, ANA.id) is None
    assert await stores.tenancy.change_user(other, ANA.id, UserChange(name="x")) is None
    assert await stores.captures.page(other, None, CallFilter(), before=None, limit=10) == []
    shown = await stores.captures.shown(
        other, ANA.id, messages=[message for message, _ in added.placed], memories=[made.memory_id]
    )
    assert shown == {}
    found = await stores.sessions.one(TENANT, added.session)
    assert found is not None
    assert found.status == "active"


async def test_unknown_things(stores: Stores) -> None:
    nobody = uuid4()
    assert await stores.memories.one(TENANT, nobody, uuid4()) is None
    assert await stores.memories.restore(TENANT, nobody, uuid4()) is None
    assert await stores.memories.invalidate(TENANT, nobody, uuid4(), None) is None
    assert await stores.captures.one(TENANT, uuid4(), None) is None
    assert await stores.captures.request(TENANT, uuid4(), None, sent=False) is None
    assert await stores.captures.events(TENANT, uuid4(), None, after=0, limit=1) is None
    assert await stores.tenancy.revoke_key(uuid4()) is False


async def test_reads_of_one_user_open_one_partition(stores: Stores, admin: asyncpg.Connection[Any]) -> None:
    sql = Queries.load()
    await stores.memories.add(TENANT, ANA, [memory("x")])
    now = stores.clock.now()
    for name, values in (
        ("memories.one", (TENANT, ANA.id, uuid4(), now)),
        ("memories.list_of_user", (TENANT, now, ANA.id, None, None, ["active"], None, None, None, None, None, 10)),
        ("sessions.one", (TENANT, ANA.id, uuid4())),
        ("sessions.list_of_user", (TENANT, ANA.id, None, None, None, 10, None)),
        ("tenancy.user_one", (TENANT, ANA.id)),
    ):
        # As a prepared statement would be planned once the user is known.
        plan = "\n".join(row[0] for row in await admin.fetch("EXPLAIN (COSTS off) " + sql[name], *values))
        for table in ("memory_store_p", "sessions_p"):
            assert len({part for part in range(2) if f"{table}{part}" in plan}) <= 1, (name, plan)


def test_the_hash_of_what_is_forgotten_needs_the_key() -> None:
    text = sha256(b"x").digest()
    assert content_hmac(b"a", text) != content_hmac(b"b", text)
    assert len(content_hmac(b"a", text)) == 32
