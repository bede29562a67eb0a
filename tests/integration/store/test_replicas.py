"""Reads from a real standby: all that it has, and nothing from before what was acknowledged."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from app.capture.record import Recorder
from app.clock import SystemClock
from app.features.replicas import begin_marking
from app.index.indexes import Indexes, IndexScope
from app.providers.tokens import CountCache
from app.store import ids
from app.store.erasure import ERASER_ROLE, Eraser, own_connection
from app.store.indexed import IndexStore
from app.store.item_columns import NO_PLACES
from app.store.memories import Memories, MemoryChange, MemoryText, NewMemory
from app.store.migrate import migrate
from app.store.pools import OtherServers, PoolLimits, Pools, open_pools
from app.store.queries import Queries
from app.store.queue import install_queue
from app.store.tenancy import UserRef
from app.store.turns import TurnStore
from app.tasks import Supervisor
from tests.support.database import MEMORY, PARTITIONS, connected
from tests.support.replicas import Cluster, Node
from tests.support.sockets import DEADLINE_S
from tests.support.teller import OTHER_TENANT, TENANT, Teller, talk
from tests.support.wired_api import HashEmbedder, WordCounter, make_space

SQL = Queries.load()
PATIENT_S = 10.0
"""How long a standby is waited for here: on a busy machine, too."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        Path(folder).chmod(0o755)
        with Cluster(Path(folder), standbys=1) as cluster:
            yield cluster


@dataclass
class Scene:
    cluster: Cluster
    admin: asyncpg.Connection[Any]
    pools: Pools
    store: TurnStore
    """Reads from the standby where it may."""
    teller: Teller
    told: Counter[str]

    @property
    def standby(self) -> Node:
        return self.cluster.standbys[0]


@pytest.fixture(scope="module")
async def migrated(cluster: Cluster) -> Cluster:
    async with connected(cluster.primary.dsn) as admin:
        await migrate(admin, hash_partitions=PARTITIONS, history_partitions=PARTITIONS, after=[install_queue])
        await make_space(admin)
        await admin.execute(
            "INSERT INTO agent_data.tenants (tenant_id, name) VALUES ($1, 'a'), ($2, 'b')", TENANT, OTHER_TENANT
        )
        await begin_marking(admin, SQL, wanted=False)
        assert not await admin.fetchval(SQL["replicas.marking"]), "nobody asked for it"
        await begin_marking(admin, SQL, wanted=True)
        await begin_marking(admin, SQL, wanted=False)  # a table that came since would mark now, too
        assert await admin.fetchval(SQL["replicas.marking"])
    return cluster


@pytest.fixture
async def scene(migrated: Cluster) -> AsyncIterator[Scene]:
    limits = PoolLimits(2, 10_000, 10_000)
    pools = await open_pools(
        migrated.primary.dsn,
        dict.fromkeys(("write", "history", "memory", "background"), limits),
        statement_cache_size=100,
        role="mneme_app",
        elsewhere=OtherServers(dict.fromkeys(("history", "memory"), migrated.standbys_dsn), PATIENT_S),
    )
    told = Counter[str]()
    for reads in pools.replicas.values():
        reads.meter = lambda pool, server, result: told.update([result])
    store = TurnStore(pools.write, SQL, history=pools.reads("history"), memory=pools.reads("memory"))
    recorder = Recorder(store, HashEmbedder(), CountCache(), WordCounter())
    async with connected(migrated.primary.dsn) as admin:
        yield Scene(migrated, admin, pools, store, Teller(store, recorder, admin), told)
    await pools.close()


def user(name: str) -> UserRef:
    return UserRef(ids.user_id(TENANT, name), name)


async def found(scene: Scene, who: UUID, question: str) -> list[str]:
    """The texts that a prompt could be given."""
    (vector,) = await HashEmbedder().embed([question])
    space = await scene.store.space_of(HashEmbedder().space)
    where: dict[str, Any] = {"confine": None, "session": None, "visible": 0, "ancestors": (), "history": False}
    indexes = Indexes(
        IndexStore(scene.pools.reads("memory"), scene.pools.background, SQL), Supervisor(), space=space,
        dimensions=HashEmbedder().dimensions, limit=0,
    )  # fmt: skip
    scan = await indexes.scan(TENANT, who, question, vector, IndexScope(), vectors=100, texts=100)
    rows = await scene.store.fetch_items(TENANT, who, scan.places, **where) if len(scan.places) else []
    return sorted({row.content for row in rows})


def text(words: str) -> MemoryText:
    return MemoryText(words, sha256(words.encode()).digest(), 3, None)


async def remembered(scene: Scene, who: UserRef, *texts: str) -> list[UUID]:
    """Memories that the standby has as well."""
    memories = Memories(scene.pools.background, SQL, SystemClock(), space=None)
    new = [NewMemory(each, sha256(each.encode()).digest(), 3) for each in texts]
    made = [each.memory_id for each, _ in await memories.add(TENANT, who, new)]
    await scene.cluster.caught_up()
    scene.told.clear()
    assert await found(scene, who.id, " ".join(texts)) == sorted(texts)
    assert set(scene.told) == {"replica"}, scene.told
    return made


async def test_every_read_of_a_request_can_be_answered_by_a_standby(scene: Scene) -> None:
    who, session = user("reader"), uuid4()
    await scene.teller.tell(talk("I like chess"), "Noted.", session=session, user=who.id)
    await scene.cluster.caught_up()
    scene.told.clear()
    known = await scene.teller.recognise(talk("I like chess", "Noted.", "And go?"), user=who.id)
    assert known.session_id == session
    said = await scene.store.session_messages(TENANT, who.id, [(session, 100)], limit=10)
    assert [each.content for each in said] == ["Noted.", "I like chess"]
    assert await scene.store.idempotent(TENANT, who.id, b"none") is None
    assert "I like chess" in await found(scene, who.id, "chess")
    where: dict[str, Any] = {"confine": None, "session": None, "visible": 0, "ancestors": (), "history": False}
    await scene.store.tied(TENANT, who.id, ["x"], 1)
    assert (await scene.store.procedures(TENANT, who.id)).procedures == ()
    assert await scene.store.fetch_items(TENANT, who.id, NO_PLACES, **where) == []
    assert set(scene.told) == {"replica"}, scene.told


async def test_a_turn_is_seen_by_the_next_one_however_late_the_standby(scene: Scene) -> None:
    who, other, session = user("next"), user("idle"), uuid4()
    await remembered(scene, other, "Idle people are read from the standby all the while.")
    async with scene.cluster.paused():
        scene.told.clear()
        await scene.teller.tell(talk("First"), "One.", session=session, user=who.id)
        known = await scene.teller.recognise(talk("First", "One.", "Second"), user=who.id)
        assert (known.session_id, known.tip_text, known.how) == (session, None, "chain")
        assert scene.told == {"behind": 1}
        assert await found(scene, other.id, "Idle people")
        assert scene.told == {"behind": 1, "replica": 2}, "of him the standby has all"
    await scene.cluster.caught_up()
    await scene.teller.recognise(talk("First", "One.", "Second"), user=who.id)
    assert scene.told["replica"] == 3


@pytest.mark.parametrize("deed", ["forget", "change", "invalidate", "erase", "sweep", "delete"])
async def test_what_was_taken_back_comes_from_no_standby(scene: Scene, deed: str) -> None:
    """Acknowledged before the question came, by whomever: here the question comes from another store than the deed."""
    who = user(f"regrets {deed}")
    clock = SystemClock()
    memories = Memories(scene.pools.background, SQL, clock, space=None)
    secret, _ = await remembered(scene, who, f"The secret of {deed}", "Something else")
    async with scene.cluster.paused():
        match deed:
            case "forget":
                assert await memories.forget(TENANT, who.id, secret)
            case "change":
                assert await memories.change(TENANT, who.id, secret, MemoryChange(text=text("Put right")))
            case "invalidate":
                assert await memories.invalidate(TENANT, who.id, secret, None)
            case "erase":
                own = own_connection(scene.cluster.primary.dsn, ERASER_ROLE)
                await Eraser(own, SQL, clock).erase(TENANT, who.id)
            case "sweep":
                await scene.admin.execute("SET ROLE mneme_owner")
                await scene.admin.execute(
                    "UPDATE agent_data.memory_store SET expires_at = now() - interval '1 s' WHERE memory_id = $1",
                    secret,
                )
                assert await scene.admin.fetchval("SELECT agent_data.expire_memories(now(), 100)") == 1
                await scene.admin.execute("RESET ROLE")
            case "delete":
                await scene.admin.execute("DELETE FROM agent_data.memory_store WHERE memory_id = $1", secret)
        scene.told.clear()
        left = await found(scene, who.id, f"The secret of {deed} Something else")
        assert f"The secret of {deed}" not in left
        assert set(scene.told) == {"behind"}, scene.told
        # The marks may be taken away meanwhile: what stood for them is counted.
        await scene.admin.execute(SQL["replicas.take_marks"])
        assert f"The secret of {deed}" not in await found(scene, who.id, f"The secret of {deed} Something else")
        assert set(scene.told) == {"behind"}, scene.told
    await scene.cluster.caught_up()
    scene.told.clear()
    assert await found(scene, who.id, f"The secret of {deed} Something else") == left
    assert set(scene.told) == {"replica"}


async def test_what_a_tenant_says_of_himself_is_read_as_it_is(scene: Scene) -> None:
    who = user("client")
    await remembered(scene, who, "A client's own memory")
    async with scene.cluster.paused():
        statement = "INSERT INTO agent_data.tenant_profiles (tenant_id, profile) VALUES ($1, 'We sell boats.')"
        await scene.admin.execute(statement, TENANT)
        scene.told.clear()
        await scene.teller.recognise(talk("Hello"), user=who.id)
        assert scene.told == {"behind": 1}
    await scene.admin.execute("DELETE FROM agent_data.tenant_profiles")


async def test_a_transaction_that_is_not_over_is_not_waited_for(scene: Scene) -> None:
    who = user("slow writer")
    await remembered(scene, who, "Plays chess")
    async with connected(scene.cluster.primary.dsn) as writer, writer.transaction():
        await writer.execute("UPDATE agent_data.memory_store SET importance = 0.9 WHERE user_id = $1", who.id)
        await found(scene, who.id, "Plays chess")
        assert set(scene.told) == {"replica"}, "nothing of it was acknowledged"


async def test_a_write_that_is_taken_back_leaves_no_mark_and_one_that_is_not_leaves_one(scene: Scene) -> None:
    who = user("undecided")
    await remembered(scene, who, "Undecided")
    await scene.admin.execute(SQL["replicas.take_marks"])
    change = "UPDATE agent_data.memory_store SET importance = 0.4 WHERE user_id = $1"
    transaction = scene.admin.transaction()
    await transaction.start()
    inner = scene.admin.transaction()
    await inner.start()
    await scene.admin.execute(change, who.id)
    await inner.rollback()
    await scene.admin.execute(change, who.id)
    await scene.admin.execute(change, user("somebody else").id)
    await scene.admin.execute(change, who.id)
    await transaction.commit()
    marks = await scene.admin.fetch("SELECT whose FROM agent_data.write_marks")
    assert [row["whose"] for row in marks] == [who.id]


async def used_again(scene: Scene, who: UserRef, question: str) -> None:
    """Wait until the standby answers."""
    async with asyncio.timeout(DEADLINE_S):
        while set(scene.told) != {"replica"}:
            scene.told.clear()
            await found(scene, who.id, question)
            await asyncio.sleep(0.05)


async def test_a_frozen_standby_keeps_nobody_waiting_and_is_used_again(scene: Scene) -> None:
    who = user("patient")
    await remembered(scene, who, "Patience")
    reads = scene.pools.replicas["memory"]
    reads.wait_s = 0.05
    scene.standby.freeze()
    try:
        scene.told.clear()
        assert await found(scene, who.id, "Patience") == ["Patience"]
        assert scene.told["late"] == 2
    finally:
        scene.standby.thaw()
    reads.wait_s = PATIENT_S
    await used_again(scene, who, "Patience")


async def test_a_standby_that_is_away_is_done_without_and_found_again(scene: Scene) -> None:
    who = user("alone")
    await remembered(scene, who, "Alone")
    scene.standby.kill9()
    try:
        for _ in range(4):
            assert await found(scene, who.id, "Alone") == ["Alone"]
        assert scene.told["failed"] >= 3
        assert scene.told["suspended"] >= 1
    finally:
        scene.standby.start()
    await used_again(scene, who, "Alone")


LEFT_OUT = {
    "streams", "compilations", "message_blobs", "request_chains",  # never written alone
    "index_items", "index_log", "index_state",  # nor these
    "spend", "spend_entries", "capture_sweeps", "erased_contents", "erased_users",  # in no prompt
    "memory_store_working",  # not in the log
}  # fmt: skip


async def test_every_table_of_a_users_marks_in_every_partition(scene: Scene) -> None:
    rows = await scene.admin.fetch(
        "SELECT c.relname AS name, EXISTS (SELECT FROM pg_trigger g WHERE g.tgrelid = c.oid"
        " AND g.tgname = 'marks') AS marks FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid"
        " AND a.attname = 'user_id' WHERE c.relnamespace = 'agent_data'::regnamespace AND c.relkind IN ('r', 'p')"
        " AND NOT c.relispartition"
    )
    assert {row["name"] for row in rows if not row["marks"]} == LEFT_OUT
    # A partition that is made later has what its parent has.
    await scene.admin.execute("SET ROLE mneme_owner")
    await scene.admin.execute("SELECT agent_data.ensure_history_partitions('2031-01-01', '2031-02-01')")
    await scene.admin.execute("RESET ROLE")
    made = await scene.admin.fetch(
        "SELECT EXISTS (SELECT FROM pg_trigger g WHERE g.tgrelid = c.oid AND g.tgname = 'marks') AS marks FROM pg_class c"
        " WHERE c.relname LIKE 'conversation_history%2031%' AND c.relkind IN ('r', 'p')"
    )
    assert made
    assert all(row["marks"] for row in made)


async def test_those_who_write_do_not_wait_for_each_other(scene: Scene) -> None:
    who = user("two writers")
    first, second = await remembered(scene, who, "One thing", "Another thing")
    change = "UPDATE agent_data.memory_store SET importance = 0.4 WHERE user_id = $1 AND memory_id = $2"
    async with (
        connected(scene.cluster.primary.dsn) as one,
        connected(scene.cluster.primary.dsn) as two,
        one.transaction(),
    ):
        await one.execute(change, who.id, first)
        async with two.transaction():
            await two.execute("SET LOCAL lock_timeout = '1s'")
            await two.execute(change, who.id, second)


async def test_what_a_session_brings_along_keeps_no_mark_back(scene: Scene) -> None:
    """Of a connection that others used before, by a pool or a pooler: only this very transaction's own mark counts."""
    who = user("preset")
    (memory,) = await remembered(scene, who, "Something")
    change = "UPDATE agent_data.memory_store SET importance = 0.4 WHERE user_id = $1 AND memory_id = $2"
    many = "SELECT count(*) FROM agent_data.write_marks WHERE whose = $1"
    async with connected(scene.cluster.primary.dsn) as one:

        async def marks() -> int:
            return int(await one.fetchval(many, who.id))

        before = await marks()
        await one.execute("SELECT set_config('mneme.marked', $1, false)", str(who.id))
        await one.execute(change, who.id, memory)
        assert await marks() == before + 1
        async with one.transaction():
            await one.execute(change, who.id, memory)
            marked = await one.fetchval("SELECT current_setting('mneme.marked')")
            await one.execute(change, who.id, memory)
            assert await marks() == before + 2, "one for a transaction"
        await one.execute("SELECT set_config('mneme.marked', $1, false)", marked)
        async with one.transaction():
            part = one.transaction()
            await part.start()
            await one.execute(change, who.id, memory)
            await part.rollback()
            assert await marks() == before + 2, "taken back with what it was of"
            await one.execute(change, who.id, memory)
        assert await marks() == before + 3


async def test_marking_ends(scene: Scene) -> None:
    """Last: standbys are read from no more, and nothing is marked."""
    who = user("last")
    await remembered(scene, who, "The last")
    await scene.admin.execute("CALL agent_data.marks_end()")
    scene.told.clear()
    assert await found(scene, who.id, "The last") == ["The last"]
    assert set(scene.told) == {"unmarked"}
    assert not await scene.admin.fetchval("SELECT EXISTS (SELECT FROM pg_trigger WHERE tgname = 'marks')")
