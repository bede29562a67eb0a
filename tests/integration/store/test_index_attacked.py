"""What an index must survive: epochs, cuts, drops while it changes, another cluster's numbers, rows that nobody can read."""

from __future__ import annotations

import asyncio
import re
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from app.clock import SystemClock
from app.index import user_index
from app.index.indexes import Indexes
from app.store import ids
from app.store.erasure import ERASER_ROLE, Eraser, own_connection
from app.store.indexed import IndexAsk, IndexRead
from app.store.queries import Queries
from app.tasks import Supervisor
from app.text_cache import of_texts
from tests.integration.store.test_index_kept import SESSION, SPACED, Slow, Told, found, store, tasks
from tests.support.teller import ANA, NOW, TENANT, Teller, talk
from tests.support.wired_api import HashEmbedder

__all__ = ["store", "tasks"]

SQL = Queries.load()


async def learn(by: asyncpg.Connection[Any], number: int, text: str, user: UUID = ANA) -> UUID:
    """A memory, as an operator writes one."""
    memory = UUID(int=number)
    await by.execute(
        "INSERT INTO agent_data.memory_store (memory_id, user_id, tenant_id, memory_tier, memory_scope, content_text,"
        " content_hash, provenance_type, token_count, kind) VALUES ($1, $2, $3, 3, 1, $4, $5, 0, 5, 'fact')",
        memory, user, TENANT, text, str(number).encode(),
    )  # fmt: skip
    return memory


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def indexes(store: Slow, tasks: Supervisor, told: Told) -> Indexes:
    return Indexes(store, tasks, **SPACED, limit=10**7, meter=told)


# --- epochs -----------------------------------------------------------------------------------------------------------


async def test_a_user_who_was_erased_and_came_anew_has_another_epoch(
    teller: Teller, indexes: Indexes, database: str
) -> None:
    await teller.tell(talk("about cats"), "cats are fine", session=SESSION)
    assert await found(indexes) == 2
    await Eraser(own_connection(database, ERASER_ROLE), SQL, SystemClock()).erase(TENANT, ANA, tombstones=False)
    await teller.tell(talk("a cat"), "Yes.", session=UUID(int=0x99))
    # (Nobody told this server.) What the log of the erased user had is gone with it.
    assert await found(indexes) == 1


@pytest.mark.parametrize("table", ["suppressions", "embeddings", "memory_store", "index_state"])
async def test_a_table_that_is_emptied_raises_the_epoch(
    teller: Teller, indexes: Indexes, admin: asyncpg.Connection[Any], told: Told, table: str
) -> None:
    await teller.tell(talk("about cats"), "fine", session=SESSION)
    await learn(admin, 7, "cats again")
    assert await found(indexes) == 2
    await admin.execute(f"TRUNCATE agent_data.{table}")
    assert await found(indexes) == (1 if table == "memory_store" else 2)
    assert told.asked == ["loaded", "loaded"]


PART_OF = "SELECT tableoid::regclass FROM agent_data.{} WHERE user_id = $1 LIMIT 1"
NEXT_MONTHS = "SELECT agent_data.ensure_history_partitions('2031-03-05', '2031-04-01')"


@pytest.mark.parametrize("table", ["suppressions", "embeddings", "memory_store", "conversation_history"])
async def test_a_part_of_a_table_that_is_emptied_raises_the_epoch(
    teller: Teller, indexes: Indexes, admin: asyncpg.Connection[Any], told: Told, table: str
) -> None:
    """By its own name, of which the whole table's triggers hear nothing. What other users have stays."""
    await teller.tell(talk("about cats"), "fine", session=SESSION)
    memory = await learn(admin, 7, "cats again")
    here = await admin.fetchval(PART_OF.format("memory_store"), ANA)
    for n in range(100, 200):  # somebody else in another part
        bob = ids.user_id(TENANT, f"bob{n}")
        await learn(admin, n, "dogs", bob)
        if await admin.fetchval(PART_OF.format("memory_store"), bob) != here:
            break
    await admin.execute("INSERT INTO agent_data.suppressions VALUES ($1, $2, $3, 'superseded')", ANA, TENANT, memory)
    (vector,) = await HashEmbedder().embed(["cats"])
    await admin.execute(
        "INSERT INTO agent_data.embeddings (user_id, tenant_id, space, item_id, item_kind, item_at, vector)"
        " VALUES ($1, $2, 1, $3, 1, $4, $5::text::halfvec)", ANA, TENANT, memory, NOW, str(vector.tolist()),
    )  # fmt: skip
    assert await found(indexes) == 1
    part = await admin.fetchval(PART_OF.format(table), ANA)
    await admin.execute(f"TRUNCATE {part}")
    assert (
        await found(indexes)
        == {"suppressions": 2, "embeddings": 1, "memory_store": 1, "conversation_history": 0}[table]
    )
    assert told.asked == ["loaded", "loaded"]
    assert await admin.fetchval("SELECT count(*) FROM agent_data.index_items WHERE user_id = $1", bob) == 1


async def test_a_month_to_come_is_watched_as_well(admin: asyncpg.Connection[Any]) -> None:
    made = await admin.fetchval(NEXT_MONTHS)
    before = await admin.fetchval("SELECT value FROM agent_data.system_config WHERE key = 'index_epoch'")
    assert made > 0
    await admin.execute("TRUNCATE agent_data.conversation_history_p0_203103")
    assert await admin.fetchval("SELECT value FROM agent_data.system_config WHERE key = 'index_epoch'") != before


async def test_what_no_trigger_sees_is_made_anew_by_hand(
    teller: Teller, indexes: Indexes, admin: asyncpg.Connection[Any]
) -> None:
    await teller.tell(talk("about cats"), "fine cats", session=SESSION)
    await learn(admin, 7, "cats again")
    assert await found(indexes) == 3
    before = await admin.fetch(
        "SELECT item_id, item_kind, item_at, hides, until, place FROM agent_data.index_items ORDER BY 1"
    )
    async with admin.transaction():
        await admin.execute("SET LOCAL session_replication_role = replica")
        await admin.execute("DELETE FROM agent_data.memory_store")
        await admin.execute("DELETE FROM agent_data.index_items WHERE item_kind = 0")
    async with admin.transaction():
        await admin.execute("SET LOCAL ROLE mneme_owner")
        assert await admin.fetchval("SELECT agent_data.index_anew()") == 2
    assert await found(indexes) == 2
    after = await admin.fetch(
        "SELECT item_id, item_kind, item_at, hides, until, place FROM agent_data.index_items ORDER BY 1"
    )
    assert after == [each for each in before if each["item_kind"] == 0]


# --- a user without a row ---------------------------------------------------------------------------------------------


async def test_who_has_no_row_is_read_for_each_question(
    teller: Teller, indexes: Indexes, admin: asyncpg.Connection[Any], told: Told
) -> None:
    """No path of Mneme's makes such a user; an operator's statements do. Nothing says whether he was erased meanwhile, so
    nothing that is held is taken for the present."""
    await learn(admin, 7, "cats")
    assert await found(indexes) == 1
    await learn(admin, 8, "cats again")
    assert await found(indexes) == 2
    await admin.execute("DELETE FROM agent_data.memory_store WHERE memory_id = $1", UUID(int=7))
    assert await found(indexes) == 1
    assert told.asked == ["loaded"] * 3
    # From his first turn on he is as all others are; and without a row again.
    await teller.tell(talk("about cats"), "fine", session=SESSION)
    assert await found(indexes) == await found(indexes) == 2
    assert told.asked[3:] == ["loaded", "held"]
    await admin.execute("DELETE FROM agent_data.users WHERE user_id = $1", ANA)
    await learn(admin, 9, "more cats")
    assert await found(indexes) == 3


# --- the log and what is cut from it ----------------------------------------------------------------------------------


async def test_a_change_under_way_when_the_index_was_read_and_cut_before_it_is_read_again(
    teller: Teller, indexes: Indexes, admin: asyncpg.Connection[Any], database: str
) -> None:
    await teller.tell(talk("about cats"), "fine", session=SESSION)
    other = await asyncpg.connect(database)
    async with other.transaction():
        await learn(other, 7, "cats again")
        await admin.fetchval("SELECT pg_current_xact_id()")  # a later transaction is over
        assert await found(indexes) == 1
    await other.close()
    await admin.execute("SELECT agent_data.index_cut($1, $2, now() + interval '1 minute')", TENANT, ANA)
    assert await found(indexes) == 2


async def test_a_cut_that_waits_notes_what_was_written_meanwhile(
    teller: Teller, indexes: Indexes, tasks: Supervisor, database: str
) -> None:
    await teller.tell(talk("about cats"), "fine", session=SESSION)
    one, other = await asyncpg.connect(database), await asyncpg.connect(database)
    async with one.transaction():
        await one.fetchval("SELECT now()")
        assert await found(indexes) == 1
        await one.execute("LOCK TABLE agent_data.index_log IN EXCLUSIVE MODE")
        cutting = tasks.spawn(other.execute("SELECT agent_data.index_cut($1, $2, now())", TENANT, ANA), "cut")
        await asyncio.sleep(0.3)
        await learn(one, 7, "cats again")
    await cutting
    assert await found(indexes) == 2
    await one.close()
    await other.close()


async def test_what_another_cluster_cut_is_no_reason_to_read_all_each_time(
    teller: Teller, indexes: Indexes, admin: asyncpg.Connection[Any], told: Told
) -> None:
    """A dump that is restored brings `index_state`, too."""
    await teller.tell(talk("about cats"), "fine", session=SESSION)
    await admin.execute("INSERT INTO agent_data.index_state VALUES ($1, $2, '9000000000000000000')", ANA, TENANT)
    for _ in range(4):
        await found(indexes)
    assert told.asked.count("loaded") <= 2


async def test_a_transaction_that_stays_open_is_no_reason_to_read_all_each_time(
    teller: Teller, indexes: Indexes, admin: asyncpg.Connection[Any], told: Told, database: str
) -> None:
    other = await asyncpg.connect(database)
    async with other.transaction():
        await other.fetchval("SELECT pg_current_xact_id()")
        await teller.tell(talk("about cats"), "fine", session=SESSION)
        await admin.execute("SELECT agent_data.index_cut($1, $2, now() + interval '1 minute')", TENANT, ANA)
        for _ in range(4):
            await found(indexes)
    await other.close()
    assert told.asked.count("loaded") == 1


LOG_OF_ANA = "(SELECT tableoid::regclass FROM agent_data.index_log WHERE user_id = $1 LIMIT 1)"


@pytest.mark.parametrize("how", ["TRUNCATE {}", "DELETE FROM {}"])
@pytest.mark.parametrize("part", [False, True])
@pytest.mark.parametrize("at_once", [False, True])
async def test_a_log_that_an_operator_empties_is_noticed(
    teller: Teller, indexes: Indexes, admin: asyncpg.Connection[Any], how: str, part: bool, at_once: bool
) -> None:
    """All of it or a part; with the change that it had in one transaction, and after it."""
    await teller.tell(talk("about cats"), "fine", session=SESSION)
    assert await found(indexes) == 1
    log = await admin.fetchval(f"SELECT {LOG_OF_ANA}", ANA) if part else "agent_data.index_log"
    if at_once:
        async with admin.transaction():
            await learn(admin, 7, "cats again")
            await admin.execute(how.format(log))
            await learn(admin, 8, "dogs")
    else:
        await learn(admin, 7, "cats again")
        await admin.execute(how.format(log))
    assert await found(indexes) == 2
    assert await found(indexes) == 2


async def test_a_memory_that_is_given_to_another_user_goes_with_it(
    teller: Teller, indexes: Indexes, admin: asyncpg.Connection[Any]
) -> None:
    await teller.tell(talk("about cats"), "fine", session=SESSION)
    await learn(admin, 7, "cats again")
    assert await found(indexes) == 2
    part = "SELECT tableoid FROM agent_data.memory_store WHERE memory_id = $1"
    here = await admin.fetchval(part, UUID(int=7))
    for n in range(100, 200):  # one in the same partition: no row moves, so there is neither insert nor delete
        bob = ids.user_id(TENANT, f"bob{n}")
        if await admin.fetchval(part, await learn(admin, n, "dogs", bob)) == here:
            break
    await admin.execute("UPDATE agent_data.memory_store SET user_id = $1 WHERE user_id = $2", bob, ANA)
    assert await found(indexes) == 1
    assert await admin.fetchval("SELECT count(*) FROM agent_data.index_items WHERE user_id = $1", bob) == 2


# --- while it changes -------------------------------------------------------------------------------------------------


async def test_what_is_dropped_while_it_changes_stays_so(
    teller: Teller, indexes: Indexes, store: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    await teller.tell(talk("about cats"), "fine", session=SESSION)
    assert await found(indexes) == 1
    await teller.tell(talk("about cats", "fine", "cats!"), "Yes.", session=SESSION, new=1)
    read = store.read

    async def erased_meanwhile(tenant: UUID, user: UUID, wanted: IndexAsk) -> IndexRead:
        answer = await read(tenant, user, wanted)
        indexes.drop(user)
        return answer

    monkeypatch.setattr(store, "read", erased_meanwhile)
    assert await found(indexes) == 2
    assert indexes.held(ANA) is None
    assert indexes.bytes == 0


async def test_what_changes_while_it_is_sorted_is_in_what_was_sorted(
    teller: Teller, indexes: Indexes, admin: asyncpg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_index, "TAIL_ROWS", 2)
    go = asyncio.Event()
    aside = asyncio.to_thread

    async def slowly(work: Any, *given: Any) -> Any:
        done = await aside(work, *given)
        await go.wait()
        return done

    monkeypatch.setattr("app.index.indexes.asyncio.to_thread", slowly)
    await teller.tell(talk("about cats"), "fine", session=SESSION)
    assert await found(indexes) == 1
    for n in range(4):
        await learn(admin, 70 + n, f"cats {n}")
    assert await found(indexes) == 5  # begins to sort
    await learn(admin, 90, "cats and dogs")
    await admin.execute("DELETE FROM agent_data.memory_store WHERE memory_id = $1", UUID(int=70))
    assert await found(indexes) == 5
    go.set()
    async with asyncio.timeout(5):
        while (held := indexes.held(ANA)) is None or held.index.unsorted:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert await found(indexes) == 5
    assert await found(indexes, "dogs") == 1


async def test_terms_of_a_text_that_was_replaced_are_not_kept(
    teller: Teller, store: Slow, indexes: Indexes, tasks: Supervisor, admin: asyncpg.Connection[Any]
) -> None:
    """The item went and came again with another text, while a server made terms of the first."""
    await teller.tell(talk("hello"), "fine", session=SESSION)
    memory = await learn(admin, 7, "about cats")
    store.may.clear()
    asking = tasks.spawn(found(indexes), "ask")
    await asyncio.sleep(0.3)
    await admin.execute("DELETE FROM agent_data.memory_store WHERE memory_id = $1", memory)
    await learn(admin, 7, "about dogs")
    store.may.set()
    assert await asking == 1
    await tasks.close(5)
    other = Supervisor()
    assert await found(Indexes(store, other, **SPACED, limit=10**7), "dogs") == 1
    await other.close(5)


async def test_a_drop_empties_what_is_kept_of_texts(indexes: Indexes) -> None:
    @of_texts(8)
    def shout(text: str) -> str:
        return text.upper()

    shout("cats")
    indexes.drop(ANA)
    assert shout.cache_info().currsize == 0  # type: ignore[attr-defined]


async def test_a_drop_leaves_no_pattern_made_of_a_question(indexes: Indexes) -> None:
    re.compile("\\b(?:(zebrafinch)|(dog))")
    indexes.drop(ANA)
    assert not [each for each in re._cache if "zebrafinch" in str(each)]  # type: ignore[attr-defined]


# --- what cannot be read ----------------------------------------------------------------------------------------------


async def test_a_vector_of_another_length_costs_its_own_item_alone(
    teller: Teller, indexes: Indexes, admin: asyncpg.Connection[Any], told: Told
) -> None:
    for n in range(5):
        memory = await learn(admin, 100 + n, f"cats number {n}")
        (vector,) = await HashEmbedder().embed([str(n)])
        await admin.execute(
            "INSERT INTO agent_data.embeddings (user_id, tenant_id, space, item_id, item_kind, item_at, vector)"
            " VALUES ($1, $2, 1, $3, 1, $4, $5::text::halfvec)",
            ANA, TENANT, memory, NOW, str(vector.tolist()[: 4 if n == 2 else None]),
        )  # fmt: skip
    assert await found(indexes) >= 4
    assert told.unreadable <= 1


@pytest.mark.parametrize("column", ["terms", "place"])
async def test_an_empty_column_costs_its_own_item_alone(
    teller: Teller, indexes: Indexes, admin: asyncpg.Connection[Any], column: str
) -> None:
    await teller.tell(talk("about cats", "cats 2", "cats 3"), "fine cats", session=SESSION)
    await admin.execute(
        f"UPDATE agent_data.index_items SET {column} = '' WHERE item_id ="
        " (SELECT item_id FROM agent_data.index_items ORDER BY item_id LIMIT 1 OFFSET 1)"
    )
    await admin.execute("UPDATE agent_data.index_items SET revision = revision")  # in another order on disk, as well
    assert await found(indexes) >= 3


# --- a dump -----------------------------------------------------------------------------------------------------------


async def test_no_trigger_needs_a_search_path_to_be_made_again(admin: asyncpg.Connection[Any]) -> None:
    """`pg_restore` makes them with none: what they compare must have an operator in pg_catalog."""
    transaction = admin.transaction()
    await transaction.start()
    try:
        await admin.execute("SELECT set_config('search_path', '', true)")
        made = await admin.fetch(
            "SELECT pg_get_triggerdef(t.oid) AS made, t.tgname AS name, t.tgrelid::regclass::text AS on FROM pg_trigger t"
            " JOIN pg_class c ON c.oid = t.tgrelid"
            " WHERE NOT t.tgisinternal AND t.tgparentid = 0 AND c.relnamespace = 'agent_data'::regnamespace"
        )
        for each in made:
            await admin.execute(f'DROP TRIGGER "{each["name"]}" ON {each["on"]}; {each["made"]}')
    finally:
        await transaction.rollback()
