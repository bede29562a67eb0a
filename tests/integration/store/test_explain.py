"""Every statement of the hot path opens one hash partition, only the months that it needs, and reads by an index.

The functions are called as the server calls them (role mneme_app); auto_explain tells the plans of what they run inside.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from app.features.paging.values import WINDOW_TURNS
from app.index.analyse import VERSION
from app.store.indexed import NO_INDEX, NO_SPACES
from app.store.pools import halfvec
from app.store.queries import Queries
from app.store.records import TurnRecord, batch
from app.store.turns import TurnStore
from app.store.user_profile import FACT_FLOOR, MAX_FACTS, MAX_WISHES
from tests.support.paged import made, mark
from tests.support.plans import S1, S2, Scan, Watch, fill, nodes, watching
from tests.support.teller import ANA, NOW, TENANT, Teller, said, talk
from tests.support.wired_api import HashEmbedder

pytestmark = pytest.mark.heavy

SQL = Queries.load()
BY_MONTH = ("upstream_calls", "streams", "compilations")
"""Range partitions by the time in the call's id; all others are hash partitions."""


@pytest.fixture
async def watch(database: str, teller: Teller) -> Any:
    await fill(teller)
    async with watching(database) as found:
        yield found


async def partition_of(teller: Teller, table: str) -> set[str]:
    """The partitions of a table in which Ana's rows lie."""
    rows = await teller.rows(
        f"SELECT DISTINCT tableoid::regclass::text AS name FROM agent_data.{table} WHERE user_id = $1", ANA
    )
    return {row["name"].removeprefix("agent_data.") for row in rows}


async def check(teller: Teller, scans: list[Scan], *indexes: str) -> None:
    """One hash partition of each table, by an index; and these indexes are among them."""
    assert scans
    for scan in scans:
        assert scan.kind != "Seq Scan", scan
    names = {(scan.table, scan.partition) for scan in scans if scan.partition}
    partitioned = {table for table, partition in names if table != partition and table not in BY_MONTH}
    for table in partitioned:
        opened = {partition for root, partition in names if root == table}
        hashes = {"_".join(partition.removeprefix(table).split("_")[:2]) for partition in opened}
        assert len(hashes) == 1, (table, opened)
        if table == "conversation_history":
            # What was ever said may hold the words; everything else knows when it was said.
            dated = {scan.partition for scan in scans if scan.table == table and not scan.by_words}
            assert dated <= await partition_of(teller, table), "months in which nothing lies stay closed"
    for table in BY_MONTH:
        assert len({partition for root, partition in names if root == table}) <= 1, table
    used = {scan.index for scan in scans}
    assert used >= set(indexes), used


ASKED = talk("cats q1", "cats a1", "cats q2")


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
async def test_recognising(watch: Watch, teller: Teller, mode: str) -> None:
    await watch.connection.execute(f"SET plan_cache_mode = {mode}")
    ways: list[tuple[list[Any], dict[str, Any], set[str]]] = [
        (talk("cats q1", "cats a1", "new"), {}, {"session_heads_pkey", "sessions_pkey", "context_blocks_pkey"}),
        (talk("cats q1", "cats a1", "new"), {}, {"memory_standing", "tenant_profiles_pkey"}),
        (ASKED, {}, {"session_heads_pkey", "system_prompts_pkey"}),
        (talk("cats q1", "cats", "new"), {}, {"session_heads_pkey"}),
        (talk("no", "no", *["cats q2", "cats a2"], "new"), {}, {"sessions_tail"}),
        ([], {"issued": S2}, {"routes_pkey", "sessions_pkey"}),
        ([], {"named": S1, "retry": True}, {"history_session_turn"}),
    ]
    recorder = Recording(teller)
    for transcript, given, indexes in ways:
        await recorder.recognise(transcript, **given)
        asked = recorder.asked
        scans = await watch.scans(lambda asked=asked: watch.connection.fetchrow(SQL["turns.recognise"], *asked))  # type: ignore[misc]  # bound now
        await check(teller, scans, *indexes)


class Recording(Teller):
    """Notes what would be asked of the database."""

    def __init__(self, teller: Teller) -> None:
        super().__init__(teller.store, teller.recorder, teller.admin)
        self.asked: tuple[Any, ...] = ()
        self.store = self  # type: ignore[assignment]  # asks itself

    async def recognise(self, *arguments: Any, **given: Any) -> Any:
        if arguments and isinstance(arguments[0], UUID):
            names = ("nobody", "issued", "named", "chains", "question", "whole", "tail1", "tail2", "retry")
            plain: dict[str, Any] = dict.fromkeys(names) | {"nobody": False, "chains": [], "retry": False}
            self.asked = (
                *arguments,
                *(plain | given).values(),
                MAX_FACTS,
                FACT_FLOOR,
                MAX_WISHES,
                *NO_INDEX,
                *NO_SPACES,
            )
            return None
        return await super().recognise(*arguments, **given)


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
async def test_reading_the_history(watch: Watch, teller: Teller, mode: str) -> None:
    await watch.connection.execute(f"SET plan_cache_mode = {mode}")
    scans = await watch.scans(
        lambda: watch.connection.fetch(SQL["turns.session_messages"], TENANT, ANA, [S2, S1], [99, 3], 400)
    )
    await check(teller, scans, "history_session_turn", "sessions_pkey", "suppressions_pkey")


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
async def test_reading_an_index(watch: Watch, teller: Teller, mode: str) -> None:
    await watch.connection.execute(f"SET plan_cache_mode = {mode}")
    space = await teller.store.space_of(HashEmbedder.space)
    asked = (TENANT, ANA, space, VERSION, 9)
    scans = await watch.scans(lambda: watch.connection.fetch(SQL["index.load"], *asked, 10**6))
    await check(teller, scans, "users_pkey")
    scans = await watch.scans(lambda: watch.connection.fetch(SQL["index.load"], *asked, 3))
    await check(teller, scans, "users_pkey")
    scans = await watch.scans(lambda: watch.connection.fetch(SQL["index.session"], *asked, S1, 9))
    await check(teller, scans, "history_session_turn", "index_items_pkey")
    scans = await watch.scans(lambda: watch.connection.fetch(SQL["turns.tied"], TENANT, ANA, ["lisbon"], 9))
    await check(teller, scans, "memory_entities")


async def test_fetching_what_was_found(watch: Watch, teller: Teller) -> None:
    rows = await teller.rows(
        "SELECT message_id, created_at FROM agent_data.conversation_history ORDER BY created_at LIMIT 2"
    )
    since = datetime(2000, 1, 1, tzinfo=UTC)
    ats = [(row["created_at"] - since) // timedelta(microseconds=1) for row in rows]
    ids = [row["message_id"] for row in rows]
    scans = await watch.scans(
        lambda: watch.connection.fetch(
            SQL["turns.fetch_items"], TENANT, ANA, [*ids, UUID(int=1)], [0, 0, 1], [*ats, 0], None, None, 1, [], False
        )
    )
    await check(teller, scans, "conversation_history_pkey", "memory_store_pkey", "suppressions_pkey")


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
async def test_reading_the_paging_of_a_session(watch: Watch, teller: Teller, mode: str) -> None:
    await watch.connection.execute(f"SET plan_cache_mode = {mode}")
    one, two = (made(S1, each).id for each in ("one", "two"))
    found: Any = None

    async def read() -> None:
        nonlocal found
        chains = [mark(f"{S1}answer"), *(mark(str(n)) for n in range(300))]
        found = await watch.connection.fetchrow(SQL["paging.read"], TENANT, ANA, S1, chains, WINDOW_TURNS)

    await check(
        teller, await watch.scans(read), "paged_sessions_pkey", "objects_session", "relationships_session", "faults_session",
        "phantom_ledger_pkey",
    )  # fmt: skip
    assert (found["objects"], len(found["hidden"]), len(found["questions"])) == ([one, two], 1, 1), "all of it was read"
    scans = await watch.scans(lambda: watch.connection.fetch(SQL["paging.texts"], TENANT, ANA, S1, [one, two], [0, 3]))
    await check(teller, scans, "semantic_objects_pkey")
    vector = halfvec((await HashEmbedder().embed(["cats"]))[0])
    asked = (TENANT, ANA, S1, "content of one", vector, 1, 0.3, 0.7, 1.2, 3)
    scans = await watch.scans(lambda: watch.connection.fetch(SQL["paging.search"], *asked))
    await check(teller, scans, "objects_session", "semantic_objects_pkey")


async def test_the_summary_of_a_session_is_found_by_its_session(watch: Watch, teller: Teller) -> None:
    scans = await watch.scans(lambda: watch.connection.fetchval(SQL["consolidation.session_summaries"], ANA, S1))
    await check(teller, scans, "memory_session_summary")
    scans = await watch.scans(lambda: watch.connection.fetchval(SQL["consolidation.forgot_summary"], ANA, b"key"))
    await check(teller, scans, "drawn_keys_pkey")
    scans = await watch.scans(
        lambda: watch.connection.fetch("SELECT agent_data.drop_session_summaries($1, $2, $3)", TENANT, ANA, [S1])
    )
    await check(teller, scans, "memory_session_summary", "sessions_pkey")


ALL_VISIBLE = """SELECT bool_and(relallvisible = relpages AND relpages > 0 OR relpages = 0) AND sum(relallvisible) > 0
FROM pg_partition_tree('agent_data.embeddings') JOIN pg_class ON oid = relid WHERE isleaf"""


async def test_vectors_are_read_from_the_index_alone(watch: Watch, teller: Teller) -> None:
    space = await teller.store.space_of(HashEmbedder.space)
    await watch.connection.execute("RESET ROLE; SET enable_bitmapscan = off; SET enable_indexscan = off")
    async with asyncio.timeout(20):
        # A server that is starting somebody's connection sees less: then not all is marked as visible.
        while not await teller.admin.fetchval(ALL_VISIBLE):
            await teller.admin.execute("VACUUM agent_data.embeddings")
    await watch.connection.execute("SET ROLE mneme_app")
    scans = await watch.scans(lambda: watch.connection.fetch(SQL["index.load"], TENANT, ANA, space, VERSION, 9, 10**6))
    assert {scan.kind for scan in scans if scan.table == "embeddings"} == {"Index Only Scan"}, scans
    assert "embeddings_scan" in {scan.index for scan in scans}


async def test_the_graph_is_used_by_those_with_very_many(watch: Watch, teller: Teller) -> None:
    space = await teller.store.space_of(HashEmbedder.space)
    await teller.admin.execute("UPDATE agent_data.embeddings SET in_hnsw = true")
    await watch.connection.execute("SET enable_sort = off; SET enable_bitmapscan = off")
    vector = halfvec((await HashEmbedder().embed(["cats"]))[0])
    asked = (TENANT, ANA, space, VERSION, 9, vector, 2**60, 9)
    scans = await watch.scans(lambda: watch.connection.fetch(SQL["index.beside"], *asked))
    assert f"embeddings_hnsw_{space}" in {scan.index for scan in scans}


async def test_repeating_a_key(watch: Watch, teller: Teller) -> None:
    scans = await watch.scans(lambda: watch.connection.fetchrow(SQL["turns.idempotent_call"], TENANT, ANA, b"k"))
    await check(teller, scans, "idempotency_keys_pkey", "request_chains_pkey", "message_blobs_pkey")
    assert {"upstream_calls_pkey", "calls_user", "calls_tenant"} & {scan.index for scan in scans}


@pytest.mark.parametrize("after", [None, (NOW, UUID(int=0))], ids=["first", "next"])
async def test_a_page_of_a_users_memories(watch: Watch, teller: Teller, after: tuple[datetime, UUID] | None) -> None:
    """Nothing is sorted, and no more is read than the page shows; also where row-level security stands between."""
    statuses = ["active", "aging"]
    arguments = (TENANT, NOW, ANA, None, None, statuses, None, None, None, *(after or (None, None)), 51)

    async def look() -> None:
        async with watch.connection.transaction():
            await watch.connection.execute("SELECT set_config('mneme.tenant', $1, true)", str(TENANT))
            await watch.connection.execute("SET LOCAL enable_sort = off")  # which is as good for some hundreds
            await watch.connection.fetch(SQL["memories.list_of_user"], *arguments)

    scans = await watch.scans(look)
    await check(teller, scans, "memory_listed")
    (page,) = [
        each["Plan"] for each in watch.plans if "memory_store" in each["Query Text"]
    ]  # the driver asks of types, too
    assert "Sort" not in {node["Node Type"] for node in nodes(page)}


async def test_recording(watch: Watch, teller: Teller) -> None:
    """A regenerated answer reads most: how many stand there already."""
    turns: list[TurnRecord] = []

    class Shelf(TurnStore):
        async def record(self, turn: TurnRecord) -> bool:
            turns.append(turn)
            return True

    teller.recorder._store = Shelf(teller.store._pool, SQL)
    rows = await teller.rows(
        "SELECT message_id FROM agent_data.conversation_history WHERE user_id = $1 AND session_id = $2"
        " AND turn_index = 1",
        ANA,
        S1,
    )
    question = rows[0]["message_id"]
    await teller.tell(
        [said("user", "cats q1")], "cats a3", session=S1, new=0, asked_index=2, parent_message_id=question
    )
    scans = await watch.scans(lambda: watch.connection.fetchval(SQL["turns.record_turns"], *batch(turns)))
    await check(teller, scans, "history_session_turn")  # the session is inserted or, where it is there, found by that
