"""deploy/citus: the schema without hash partitions, and that what is hot would go to one shard.

No Citus runs here. What decides where it sends a statement is in PostgreSQL's own plan: a statement of one shard has, at every
distributed table that it touches, the distribution column equal to one value. That is read from the plans of the very
functions, called as the server calls them, on the flattened schema; and from the catalogue that no key and no reference
leads out of a shard.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from msgspec.structs import replace

from app.capture.record import Recorder
from app.context.assemble import Block
from app.features.paging.values import WINDOW_TURNS
from app.index.analyse import READ_CHARS, VERSION
from app.providers.tokens import CountCache
from app.store.indexed import NO_SPACES, IndexAsk
from app.store.migrate import migrate
from app.store.pools import Pool, halfvec, open_pool
from app.store.queue import install_queue
from app.store.records import TurnRecord, batch
from app.store.turns import TurnStore
from app.store.user_profile import FACT_FLOOR, MAX_FACTS, MAX_WISHES
from tests.support.database import connected, fresh_database
from tests.support.paged import made, mark
from tests.support.plans import S1, S2, SQL, Watch, fill, nodes, watching
from tests.support.teller import ANA, OTHER_TENANT, TENANT, Teller, recipe_of, talk
from tests.support.wired_api import HashEmbedder, WordCounter, make_space

CITUS = Path(__file__).parents[3] / "deploy" / "citus"
SCHEMA = Path(__file__).parents[3] / "sql" / "schema"
PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "citus.md").read_text()
DISTRIBUTE = (CITUS / "distribute.sql").read_text()

Admin = asyncpg.Connection


def flatten() -> ModuleType:
    spec = importlib.util.spec_from_file_location("flatten", CITUS / "flatten.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def listed(kind: str) -> list[str]:
    """The tables, or functions, that `distribute.sql` names under this heading."""
    (found,) = re.findall(rf"^-- {kind}:.*?ARRAY\[(.*?)\]", DISTRIBUTE, re.DOTALL | re.MULTILINE)
    return re.findall(r"'([a-z_]+)'", found)


@pytest.fixture(scope="module")
async def flat(postgres_server: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """A database with the flattened schema, for all tests here."""
    folder = tmp_path_factory.mktemp("flat")
    flatten().main(SCHEMA, folder)
    async with fresh_database(postgres_server) as dsn:
        async with connected(dsn) as admin:
            await migrate(admin, hash_partitions=1, history_partitions=1, directory=folder, after=[install_queue])
        yield dsn


@pytest.fixture(scope="module")
async def flat_admin(flat: str) -> AsyncIterator[Admin]:
    async with connected(flat) as admin:
        yield admin


@pytest.fixture(scope="module")
async def flat_teller(flat: str, flat_admin: Admin) -> AsyncIterator[Teller]:
    """With what two users said."""
    pool: Pool = await open_pool(
        flat, size=2, timeout_ms=5000, statement_timeout_ms=30_000, statement_cache_size=256, role="mneme_app"
    )
    await make_space(flat_admin)
    await flat_admin.execute(
        "INSERT INTO agent_data.tenants (tenant_id, name) VALUES ($1, 'a'), ($2, 'b')", TENANT, OTHER_TENANT
    )
    store = TurnStore(pool, SQL)
    teller = Teller(store, Recorder(store, HashEmbedder(), CountCache(), WordCounter()), flat_admin)
    await fill(teller)
    yield teller
    await pool.close()


# --- the layout -------------------------------------------------------------------------------------------------------


async def test_months_stay_and_hashes_go(flat_admin: Admin) -> None:
    rows = await flat_admin.fetch(
        "SELECT c.relname AS name, pg_get_partkeydef(c.oid) AS key, c.relispartition AS part FROM pg_class c"
        " WHERE c.relnamespace = 'agent_data'::regnamespace AND c.relkind = 'p'"
    )
    assert {row["name"]: row["key"] for row in rows} == {
        "conversation_history": "RANGE (created_at)",
        "upstream_calls": "RANGE (call_id)",
        "streams": "RANGE (call_id)",
        "compilations": "RANGE (call_id)",
    }
    assert not any(row["part"] for row in rows), "no table is partitioned twice"
    made = await flat_admin.fetchval("SELECT agent_data.ensure_history_partitions('2031-03-05', '2031-04-01')")
    assert made == 2


def test_a_rule_that_finds_nothing_is_an_error() -> None:
    files = {path.name: path.read_text() for path in SCHEMA.glob("*.sql")}
    with pytest.raises(ValueError, match="was found"):
        flatten().flattened(files | {"002_history.sql": ""})
    twice = "CREATE TABLE x (user_id uuid) PARTITION BY HASH (user_id, n);"
    with pytest.raises(ValueError, match="still partitioned"):
        flatten().flattened(files | {"999_new.sql": twice})


async def test_every_table_has_its_place(flat_admin: Admin) -> None:
    rows = await flat_admin.fetch(
        "SELECT c.relname AS name, EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'user_id')"
        " AS of_users FROM pg_class c WHERE c.relnamespace = 'agent_data'::regnamespace AND c.relkind IN ('r', 'p')"
        " AND NOT c.relispartition"
    )
    places = {kind: listed(kind) for kind in ("Distributed", "By id", "Reference", "Local")}
    named = [name for each in places.values() for name in each]
    assert len(named) == len(set(named))
    assert set(named) == {row["name"] for row in rows}, "a new table: say where it belongs"
    of_users = {row["name"] for row in rows if row["of_users"]}
    assert set(places["Distributed"]) <= of_users
    assert not set(places["Reference"]) & of_users


async def test_no_key_and_no_reference_leads_out_of_a_shard(flat_admin: Admin) -> None:
    distributed, reference = set(listed("Distributed")), set(listed("Reference"))
    keys = await flat_admin.fetch(
        "SELECT t.relname AS name, c.relname AS index, ARRAY(SELECT a.attname::text FROM pg_attribute a"
        " WHERE a.attrelid = t.oid AND a.attnum = ANY (x.indkey::int2[])) AS columns"
        " FROM pg_index x JOIN pg_class t ON t.oid = x.indrelid JOIN pg_class c ON c.oid = x.indexrelid"
        " WHERE t.relnamespace = 'agent_data'::regnamespace AND x.indisunique AND NOT t.relispartition"
    )
    for row in keys:
        assert row["name"] not in distributed or "user_id" in row["columns"], dict(row)
    references = await flat_admin.fetch(
        "SELECT conrelid::regclass::text AS one, confrelid::regclass::text AS other FROM pg_constraint"
        " WHERE contype = 'f' AND connamespace = 'agent_data'::regnamespace AND conparentid = 0"
    )
    for row in references:
        one, other = (row[each].removeprefix("agent_data.") for each in ("one", "other"))
        assert one not in distributed, "none of them refers to another table: the writer keeps that"
        assert (one in reference) == (other in reference)


async def test_functions_are_delegated_by_their_user(flat_admin: Admin) -> None:
    rows = await flat_admin.fetch(
        "SELECT p.proname AS name, p.proargnames AS names, p.prosecdef AS definer FROM pg_proc p"
        " WHERE p.pronamespace = 'agent_data'::regnamespace"
    )
    taking = {row["name"] for row in rows if "p_user" in (row["names"] or ())}
    delegated = listed("Delegated")
    assert set(delegated) <= taking
    assert {"recognise", "standing", "index_all", "fetch_chosen", "session_messages", "record_turns"} <= set(delegated)


# --- where it goes ------------------------------------------------------------------------------------------------------


class Routed:
    """Looks at what statements touch."""

    def __init__(self, watch: Watch, partitions: dict[str, str]) -> None:
        self.watch = watch
        self._partitions = partitions
        self._keys = dict.fromkeys(listed("Distributed"), "user_id") | dict.fromkeys(listed("By id"), "id")

    async def __call__(self, work: Callable[[], Awaitable[Any]]) -> set[str]:
        """The distributed tables that `work` touches. Fails where one is not held to a single value."""
        touched, loose = await self.looked(work)
        assert not loose, loose
        return touched

    async def looked(self, work: Callable[[], Awaitable[Any]]) -> tuple[set[str], dict[str, str]]:
        """The distributed tables that are touched, and those that are not held to one value, each with a statement."""
        await self.watch.scans(work)
        touched: set[str] = set()
        loose: dict[str, str] = {}
        for logged in self.watch.plans:
            for node in nodes(logged["Plan"]):
                name = str(node.get("Relation Name", ""))
                table = self._partitions.get(name, name)
                if "Scan" not in node["Node Type"] or table not in self._keys:
                    continue
                touched.add(table)
                told = [
                    str(each.get(kind, "")) for each in nodes(node) for kind in ("Index Cond", "Recheck Cond", "Filter")
                ]
                # An issued id is asked for as a space's, too: on its own shard, as in `routes`.
                if not held(" ".join(told), self._keys[table], any_id=table in ("routes", "spaces")):
                    loose[table] = f"{logged['Query Text'][:300]} … {told}"
        return touched, loose


def held(conditions: str, key: str = "user_id", *, any_id: bool = False) -> bool:
    """Whether rows are held to one value: `key` equal to Ana's (`any_id`: to any), or to a parameter of the function; not to
    another table's."""
    value = r"(?:'[0-9a-f-]{36}'::uuid|\$\d+)" if any_id else rf"(?:'{ANA}'::uuid|\$\d+)"
    return re.search(rf"\b{key} = {value}(?!\w)", conditions) is not None


def test_conditions_are_read_rightly() -> None:
    assert held(f"((user_id = '{ANA}'::uuid) AND (x = 1))")
    assert held("(m.user_id = $2)")
    assert not held("(user_id = s.user_id)")
    assert not held(f"(user_id <> '{ANA}'::uuid)")
    assert not held("(user_id = ANY ($2))")
    assert not held(f"(user_id = '{UUID(int=7)}'::uuid)")


@pytest.fixture
async def routed(flat: str, flat_teller: Teller, flat_admin: Admin) -> AsyncIterator[Routed]:
    rows = await flat_admin.fetch(
        "SELECT inhrelid::regclass::text AS part, inhparent::regclass::text AS whole FROM pg_inherits"
    )
    async with watching(flat) as watch:
        names = {row["part"].removeprefix("agent_data."): row["whole"].removeprefix("agent_data.") for row in rows}
        yield Routed(watch, names)


async def test_every_hot_read_goes_to_one_shard(routed: Routed, flat_teller: Teller) -> None:
    ask = routed.watch.connection
    space = await flat_teller.store.space_of(HashEmbedder.space)
    vector = halfvec((await HashEmbedder().embed(["cats"]))[0])
    chains = [mark(f"{S1}answer"), mark("other")]
    # Where a request stands, and what every prompt of this user says.
    recognised = (
        TENANT,
        ANA,
        False,
        None,
        None,
        chains,
        mark("q"),
        mark("w"),
        None,
        None,
        False,
        MAX_FACTS,
        FACT_FLOOR,
        MAX_WISHES,
        *IndexAsk(space, VERSION, READ_CHARS, 0, "1:1:"),
        *NO_SPACES,
    )
    touched = await routed(lambda: ask.fetchrow(SQL["turns.recognise"], *recognised))
    named = (
        TENANT,
        ANA,
        False,
        S2,
        S1,
        chains,
        mark("q"),
        mark("w"),
        None,
        None,
        True,
        MAX_FACTS,
        FACT_FLOOR,
        MAX_WISHES,
        *IndexAsk(space, VERSION, READ_CHARS, 0, "1:1:"),
        *NO_SPACES,
    )
    touched |= await routed(lambda: ask.fetchrow(SQL["turns.recognise"], *named))
    # History, the index in each of its ways, what was found, what is paged, a repeated key.
    touched |= await routed(lambda: ask.fetch(SQL["turns.session_messages"], TENANT, ANA, [S2, S1], [99, 3], 400))
    index = (TENANT, ANA, space, VERSION, READ_CHARS)
    for query, *given in (
        ("index.read", 0, "1:1:"), ("index.load", 10), ("index.session", S1, 10), ("index.beside", vector, 10**15, 10),
        ("turns.tied",),
    ):  # fmt: skip
        asked = (*index, *given) if query != "turns.tied" else (TENANT, ANA, ["lisbon"], 10)
        touched |= await routed(lambda query=query, asked=asked: ask.fetch(SQL[query], *asked))  # type: ignore[misc]  # bound now
    found: Any = (TENANT, ANA, [UUID(int=1)], [1], [0], None, None, 1, [], False)
    touched |= await routed(lambda: ask.fetch(SQL["turns.fetch_items"], *found))
    one, two = (made(S1, each).id for each in ("one", "two"))
    touched |= await routed(lambda: ask.fetchrow(SQL["paging.read"], TENANT, ANA, S1, chains, WINDOW_TURNS))
    touched |= await routed(lambda: ask.fetch(SQL["paging.texts"], TENANT, ANA, S1, [one, two], [0, 3]))
    search = (TENANT, ANA, S1, "content of one", vector, 1, 0.3, 0.7, 1.2, 3)
    touched |= await routed(lambda: ask.fetch(SQL["paging.search"], *search))
    touched |= await routed(lambda: ask.fetchrow(SQL["turns.idempotent_call"], TENANT, ANA, b"k"))
    assert touched >= {
        "routes", "sessions", "session_heads", "conversation_history", "memory_store", "embeddings",
        "suppressions", "context_blocks", "index_items", "user_facts", "paged_sessions", "semantic_objects",
        "idempotency_keys", "upstream_calls",
    }  # fmt: skip


class Shelf(TurnStore):
    """Keeps what a recorder would write."""

    turns: list[TurnRecord]

    async def record(self, turn: TurnRecord) -> bool:
        self.turns.append(turn)
        return True


async def test_the_write_of_a_users_turns_goes_to_one_shard(routed: Routed, flat_teller: Teller) -> None:
    """With what a turn may bring: a repeat key, a regenerated answer, a block, a vector, what was deleted, memories of use."""
    shelf, admin = Shelf(flat_teller.store._pool, SQL), flat_teller.admin
    shelf.turns = []
    preparer = Teller(shelf, Recorder(shelf, HashEmbedder(), CountCache(), WordCounter()), admin)
    question = await admin.fetchval(
        "SELECT message_id FROM agent_data.conversation_history WHERE session_id = $1 AND turn_index = 1", S1
    )
    memory = await admin.fetchval("SELECT memory_id FROM agent_data.memory_store WHERE user_id = $1 LIMIT 1", ANA)
    await admin.execute(
        "INSERT INTO agent_data.suppressions (user_id, tenant_id, item_id, reason, content_hmac)"
        " VALUES ($1, $2, $3, 'deleted', 'h')",
        ANA, TENANT, UUID(int=2),
    )  # fmt: skip
    block = Block(b"c" * 16, b"m" * 16, None, "block", (UUID(int=8),), 3)
    await preparer.tell(
        talk("cats q1"), "cats a3", session=S1, new=0, asked_index=2, parent_message_id=question, block=block, epoch=0,
        facts={"repeat_key": b"new", "request": recipe_of(b"1")[1]},
    )  # fmt: skip
    await preparer.tell(talk("new q"), "new a", session=UUID(int=0x77), system_prompt="Be brief.")
    await preparer.tell(talk("cats q1"), "cats a4", session=UUID(int=0x78), facts={"repeat_key": b"k"})
    turns = [replace(shelf.turns[0], uses=[(memory, 0.5)]), *shelf.turns[1:]]
    write, written = SQL["turns.record_turns"], routed.watch.connection
    touched = await routed(lambda: written.fetchval(write, *batch(turns)))
    assert touched >= {
        "idempotency_keys", "conversation_history", "suppressions", "erased_contents", "memory_store",
    }  # fmt: skip
    stored = await admin.fetchval(
        "SELECT count(*) FROM agent_data.upstream_calls WHERE call_id = ANY ($1) AND user_id = $2",
        [each.call.call_id for each in turns], ANA,
    )  # fmt: skip
    assert stored == 3


async def test_turns_of_several_users_do_not(routed: Routed, flat_teller: Teller) -> None:
    """So that a server of a Citus writes them one by one: docs/how-to/citus.md."""
    shelf = Shelf(flat_teller.store._pool, SQL)
    shelf.turns = []
    preparer = Teller(shelf, Recorder(shelf, HashEmbedder(), CountCache(), WordCounter()), flat_teller.admin)
    block = Block(b"c" * 16, b"m" * 16, None, "block", (UUID(int=8),), 3)
    for number, user in enumerate((ANA, UUID(int=0xBE))):
        await preparer.tell(talk("q"), "a", session=UUID(int=0x80 + number), user=user, block=block, epoch=0)
    _, loose = await routed.looked(
        lambda: routed.watch.connection.fetchval(SQL["turns.record_turns"], *batch(shelf.turns))
    )
    assert "suppressions" in loose
    assert "MNEME_COMMIT_TURNS=1" in PAGE
