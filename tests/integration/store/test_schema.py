"""What must hold of the schema as a whole, whatever table is added to it."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from app.store import ids
from tests.support.cases import cases
from tests.support.teller import ANA, TENANT, Teller, talk

Admin = asyncpg.Connection
S1 = UUID(int=0x51)

BEFORE_THERE_IS_A_TENANT = {"api_keys", "tenants"}
"""Read by the authentication."""


async def rows(admin: Admin, query: str, *arguments: Any) -> list[dict[str, Any]]:
    return [dict(row) for row in await admin.fetch(query, *arguments)]


TABLES = """
SELECT c.relname AS name, c.relrowsecurity AS enabled, c.relforcerowsecurity AS forced, c.relispartition AS part,
       pg_get_userbyid(c.relowner) AS owner, c.relkind::text AS kind
FROM pg_class c
WHERE c.relnamespace = 'agent_data'::regnamespace AND c.relkind IN ('r', 'p')
  AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped)
"""


# --- tenants ------------------------------------------------------------------------------------------------------------


async def test_every_table_of_a_tenant_is_protected_and_so_is_every_partition(admin: Admin) -> None:
    found = {row["name"]: row for row in await rows(admin, TABLES)}
    assert len(found) > 30
    for name, row in found.items():
        if name in BEFORE_THERE_IS_A_TENANT:
            continue
        assert (row["enabled"], row["forced"]) == (True, True), name
        assert row["owner"] == "mneme_owner", name
    policies = await rows(admin, "SELECT tablename, policyname FROM pg_policies WHERE schemaname = 'agent_data'")
    named = {(row["tablename"], row["policyname"]) for row in policies}
    for name, row in found.items():
        if not row["part"] and name not in BEFORE_THERE_IS_A_TENANT:
            assert {(name, "tenant"), (name, "definer"), (name, "owner")} <= named, name
        if row["part"]:
            assert not [each for each in named if each[0] == name], f"{name} is reached through its parent"


async def test_a_partition_that_is_made_later_is_protected_as_well(admin: Admin) -> None:
    await admin.execute("SET ROLE mneme_owner")  # as the worker's schedule
    await admin.execute("SELECT agent_data.ensure_history_partitions('2031-03-05', '2031-04-01')")
    await admin.execute("SELECT agent_data.ensure_capture_partitions('2031-03-05', '2031-04-01')")
    await admin.execute("RESET ROLE")
    made = [row for row in await rows(admin, TABLES) if "2031" in row["name"]]
    assert len(made) == 2 * 2 + 2 * 3
    assert all(row["enabled"] and row["forced"] and row["owner"] == "mneme_owner" for row in made)


async def test_the_application_owns_nothing_and_bypasses_nothing(admin: Admin) -> None:
    roles = await rows(
        admin, "SELECT rolname, rolsuper, rolbypassrls, rolcanlogin FROM pg_roles WHERE rolname LIKE 'mneme\\_%'"
    )
    assert {row["rolname"] for row in roles} >= {"mneme_owner", "mneme_app", "mneme_definer", "mneme_eraser"}
    assert not any(row["rolsuper"] or row["rolbypassrls"] for row in roles)
    owned = await rows(
        admin,
        "SELECT c.relname FROM pg_class c WHERE pg_get_userbyid(c.relowner) = 'mneme_app'"
        " UNION ALL SELECT p.proname FROM pg_proc p WHERE pg_get_userbyid(p.proowner) = 'mneme_app'",
    )
    assert owned == []


async def test_the_application_may_not_take_away_what_was_said(admin: Admin) -> None:
    deletable = await rows(
        admin,
        "SELECT c.relname AS name FROM pg_class c WHERE c.relnamespace = 'agent_data'::regnamespace"
        " AND c.relkind IN ('r', 'p') AND has_table_privilege('mneme_app', c.oid, 'DELETE')",
    )
    names = {row["name"] for row in deletable}
    for table in ("conversation_history", "upstream_calls", "streams", "message_blobs", "memory_store", "suppressions"):
        assert table not in names, table


async def may(admin: Admin, role: str, privilege: str) -> set[str]:
    """The tables, partitions apart, on which a role has a privilege."""
    found = await rows(
        admin,
        "SELECT c.relname AS name FROM pg_class c WHERE c.relnamespace = 'agent_data'::regnamespace"
        " AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND has_table_privilege($1, c.oid, $2)",
        role,
        privilege,
    )
    return {row["name"] for row in found}


WRITTEN_ONCE = {
    "conversation_history", "upstream_calls", "streams", "compilations", "message_blobs", "request_chains",
    "system_prompts", "context_blocks", "job_effects", "embeddings",
}  # fmt: skip
OWNERS = {
    "enumerations", "system_config", "embedding_spaces", "ticks", "schema_migrations", "erasures", "erased_users",
    "erased_contents", "capture_sweeps", "write_epoch",
}  # fmt: skip


@pytest.mark.parametrize("again", [False, True], ids=["migrated", "migrated again"])
async def test_the_application_changes_only_what_it_must(admin: Admin, again: bool) -> None:
    if again:
        await admin.execute("SELECT agent_data.protect_tables()")
    changes = await may(admin, "mneme_app", "UPDATE")
    assert not changes & (WRITTEN_ONCE | OWNERS)
    assert changes >= {"sessions", "memory_store", "users", "api_keys"}
    for privilege in ("INSERT", "DELETE", "TRUNCATE", "TRIGGER", "REFERENCES"):
        assert not await may(admin, "mneme_app", privilege) & OWNERS, privilege
    for role in ("mneme_app", "mneme_definer", "mneme_eraser"):
        for privilege in ("TRUNCATE", "TRIGGER", "REFERENCES"):
            assert not await may(admin, role, privilege), (role, privilege)
    shared = {
        "enumerations",
        "system_config",
        "embedding_spaces",
        "ticks",
        "schema_migrations",
        "tenants",
        "write_epoch",
    }
    for privilege in ("INSERT", "UPDATE", "DELETE"):
        assert not await may(admin, "mneme_eraser", privilege) & shared, privilege
    assert await may(admin, "mneme_eraser", "INSERT") == {
        "erasures", "erased_users", "erased_contents", "spend", "suppressions", "memory_events", "write_marks",
    }  # fmt: skip


async def test_nobody_else_may_anything(admin: Admin) -> None:
    """Roles of the same server that Mneme did not make."""
    for privilege in ("SELECT", "INSERT", "UPDATE", "DELETE"):
        assert not await may(admin, "public", privilege), privilege
    assert not await admin.fetchval("SELECT has_schema_privilege('public', 'agent_data', 'USAGE')")


async def test_no_policy_lets_the_application_see_another_tenant(admin: Admin) -> None:
    """Every policy of the application's and the eraser's names the tenant of the transaction, on reading and on writing."""
    found = await rows(admin, "SELECT * FROM pg_policies WHERE schemaname = 'agent_data'")
    theirs = [row for row in found if {"mneme_app", "mneme_eraser", "public"} & set(row["roles"])]
    assert len(theirs) > 20
    for row in theirs:
        assert row["qual"] == row["with_check"] == "(tenant_id = agent_data.current_tenant())", row["tablename"]
        assert row["permissive"] == "PERMISSIVE"
        assert row["cmd"] == "ALL"


async def test_without_a_tenant_nothing_is_seen_or_written(teller: Teller, admin: Admin) -> None:
    await teller.tell(talk("q"), "a", session=S1)
    protected = [row["name"] for row in await rows(admin, TABLES) if not row["part"]]
    async with admin.transaction():
        await admin.execute("SET LOCAL ROLE mneme_app")
        for tenant in (None, ""):
            if tenant is not None:
                await admin.execute("SELECT set_config('mneme.tenant', $1, true)", tenant)
            for table in set(protected) - BEFORE_THERE_IS_A_TENANT:
                assert await admin.fetchval(f"SELECT count(*) FROM agent_data.{table}") == 0, table
        await admin.execute("SELECT set_config('mneme.tenant', $1, true)", str(UUID(int=0xB)))
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
            async with admin.transaction():
                await admin.execute("INSERT INTO agent_data.user_emails VALUES ($1, 'a@b', $2)", TENANT, ANA)


async def test_functions_that_see_all_tenants_belong_to_the_definer_and_ask_for_one(admin: Admin) -> None:
    found = await rows(
        admin,
        "SELECT p.proname AS name, pg_get_userbyid(p.proowner) AS owner, p.proargnames AS names, p.proconfig AS config,"
        " has_function_privilege('public', p.oid, 'EXECUTE') AS public, p.pronargs AS n FROM pg_proc p"
        " WHERE p.pronamespace = 'agent_data'::regnamespace AND p.prosecdef",
    )
    assert {row["name"] for row in found} >= {
        "recognise",
        "index_all",
        "record_turns",
        "session_messages",
        "append_messages",
    }
    for row in found:
        assert row["owner"] == "mneme_definer", row["name"]
        assert not row["public"], row["name"]
        assert any("search_path=agent_data, public, pg_temp" in each for each in row["config"]), row["name"]
    # The rows that they write name their tenant themselves.
    without = {row["name"] for row in found if list(row["names"] or ())[:2] != ["p_tenant", "p_user"]}
    # Limits are a key's.
    of_keys = {row["name"] for row in found if list(row["names"])[:2] == ["p_tenant", "p_key"]}
    assert of_keys == {"admit_call", "settle_call"}
    assert without - of_keys == {"record_turns", "enqueue", "note_key", "webhook_figures", "index_recent"}, (
        "the last two tell figures, and ids, only"
    )


# --- partitions and keys ------------------------------------------------------------------------------------------------


async def test_every_key_of_a_users_table_names_the_user(admin: Admin) -> None:
    keys = await rows(
        admin,
        "SELECT c.relname AS name, i.relname AS index, c.relkind::text AS kind, ARRAY(SELECT a.attname FROM pg_attribute a"
        " WHERE a.attrelid = c.oid AND a.attnum = ANY (x.indkey))::text[] AS columns"
        " FROM pg_index x JOIN pg_class c ON c.oid = x.indrelid JOIN pg_class i ON i.oid = x.indexrelid"
        " WHERE c.relnamespace = 'agent_data'::regnamespace AND (x.indisprimary OR x.indisunique) AND NOT c.relispartition"
        " AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'user_id')",
    )
    assert len(keys) > 15
    by_email = {"user_emails"}  # its very purpose is to be unique without the user
    for row in keys:
        assert "user_id" in row["columns"] or row["name"] in by_email, row


async def test_what_belongs_to_a_user_is_partitioned_by_the_user(admin: Admin) -> None:
    found = await rows(
        admin,
        "SELECT c.relname AS name, pg_get_partkeydef(c.oid) AS key FROM pg_class c"
        " WHERE c.relnamespace = 'agent_data'::regnamespace AND c.relkind = 'p' AND NOT c.relispartition",
    )
    keys = {row["name"]: row["key"] for row in found}
    by_month = {"upstream_calls", "streams", "compilations"}
    assert {name for name, key in keys.items() if key == "RANGE (call_id)"} == by_month
    assert {key for name, key in keys.items() if name not in by_month} == {"HASH (user_id)"}
    assert {"sessions", "memory_store", "conversation_history", "embeddings", "session_heads"} <= set(keys)


async def test_every_enumeration_has_its_names(admin: Admin) -> None:
    found = await rows(admin, "SELECT enumeration, count(*) AS n FROM agent_data.enumerations GROUP BY 1")
    assert {row["enumeration"] for row in found} >= {"role", "finish_reason", "call_outcome", "memory_tier"}


# --- append-only --------------------------------------------------------------------------------------------------------


async def test_history_is_only_added_to(teller: Teller, admin: Admin) -> None:
    await teller.tell(talk("q"), "a", session=S1)
    for change in (
        "UPDATE agent_data.conversation_history SET content = 'other'",
        "UPDATE agent_data.conversation_history SET metadata = '{\"a\": 1}'",
        "UPDATE agent_data.conversation_history SET turn_index = turn_index + 1",
        "UPDATE agent_data.conversation_history SET is_pruned = true, content = NULL",
        "DELETE FROM agent_data.conversation_history",
    ):
        with pytest.raises(asyncpg.RestrictViolationError, match="append-only"):
            await admin.execute(change)
    summary = UUID(int=5)
    await admin.execute(
        "UPDATE agent_data.conversation_history SET is_compressed = true, is_pruned = true, compressed_summary_id = $1",
        summary,
    )
    found = await rows(admin, "SELECT content, is_pruned, compressed_summary_id FROM agent_data.conversation_history")
    assert {(row["is_pruned"], row["compressed_summary_id"]) for row in found} == {(True, summary)}
    assert {row["content"] for row in found} == {"q", "a"}


async def test_the_eraser_may_erase(teller: Teller, admin: Admin) -> None:
    await teller.tell(talk("q"), "a", session=S1)
    async with admin.transaction():
        await admin.execute("SET LOCAL ROLE mneme_eraser")
        assert await admin.execute("DELETE FROM agent_data.conversation_history") == "DELETE 0", "of no tenant"
        await admin.execute("SELECT set_config('mneme.tenant', $1, true)", str(TENANT))
        assert await admin.execute("DELETE FROM agent_data.conversation_history") == "DELETE 2"


# --- months -------------------------------------------------------------------------------------------------------------


def month(ahead: int) -> date:
    at = datetime.now(UTC).date().replace(day=1)
    for _ in range(ahead):
        at = (at + timedelta(days=32)).replace(day=1)
    return at


async def test_the_months_to_come_are_there_from_the_start(admin: Admin) -> None:
    names = {row["name"] for row in await rows(admin, TABLES)}
    for ahead in range(3):
        suffix = f"{month(ahead):%Y%m}"
        for parent in (
            "conversation_history_p0",
            "conversation_history_p1",
            "upstream_calls",
            "streams",
            "compilations",
        ):
            assert f"{parent}_{suffix}" in names
    assert not any(name.endswith(f"{month(3):%Y%m}") for name in names)


async def test_making_a_month_twice_makes_it_once(admin: Admin) -> None:
    for kind, each in (("history", 2), ("capture", 3)):
        made = f"SELECT agent_data.ensure_{kind}_partitions($1, $2)"
        assert await admin.fetchval(made, date(2032, 1, 31), date(2032, 3, 1)) == 3 * each
        assert await admin.fetchval(made, date(2032, 1, 1), date(2032, 3, 31)) == 0
        assert await admin.fetchval(made, date(2032, 3, 1), date(2032, 4, 1)) == each


@cases("zone", ["UTC", "Pacific/Auckland", "America/Los_Angeles"])
async def test_a_month_is_one_of_utc_wherever_the_server_is(admin: Admin, zone: str) -> None:
    await admin.execute(f"SET timezone = '{zone}'")
    await admin.execute("SELECT agent_data.ensure_history_partitions('2032-06-01', '2032-06-01')")
    await admin.execute("SET timezone = 'UTC'")
    bounds = await admin.fetchval(
        "SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE relname = 'conversation_history_p0_203206'"
    )
    assert bounds == "FOR VALUES FROM ('2032-06-01 00:00:00+00') TO ('2032-07-01 00:00:00+00')"


async def test_what_lies_outside_all_months_is_caught_and_its_month_stays_with_it(teller: Teller, admin: Admin) -> None:
    teller.at = datetime(2033, 5, 10, 12, tzinfo=UTC)
    await teller.tell(talk("q"), "a", session=S1)
    where = "SELECT DISTINCT tableoid::regclass::text AS name FROM agent_data."
    for table in ("conversation_history", "upstream_calls"):
        assert [row["name"].endswith("_rest") for row in await rows(admin, where + table)] == [True], table
    # The partition of the user with rows cannot have the month any more; all others can.
    assert await admin.fetchval("SELECT agent_data.ensure_history_partitions('2033-05-01', '2033-06-01')") == 2 * 2 - 1
    assert await admin.fetchval("SELECT agent_data.ensure_capture_partitions('2033-05-01', '2033-06-01')") == 2 * 3 - 1
    assert await teller.places(S1) == [(1, 0, "q"), (2, 0, "a")]
    await teller.tell(talk("q", "a", "r"), "b", session=S1, new=1)
    assert len(await teller.places(S1)) == 4


async def test_an_id_lies_in_the_month_of_its_time(admin: Admin) -> None:
    for at in (datetime(2026, 11, 1, tzinfo=UTC), datetime(2030, 2, 28, 23, 59, 59, 999_000, tzinfo=UTC)):
        floor = await admin.fetchval("SELECT agent_data.uuid7_floor($1)", at)
        assert floor <= ids.uuid7(at)
        assert ids.uuid7(at - timedelta(milliseconds=1)) < floor


# --- views --------------------------------------------------------------------------------------------------------------


async def test_a_stream_read_event_by_event_is_the_stream(admin: Admin) -> None:
    body, call = b"data: \xff\n\n: ping\n\ndata: [DONE]\n\n", ids.uuid7(datetime.now(UTC))
    await admin.execute(
        "INSERT INTO agent_data.streams (call_id, tenant_id, user_id, body, chunk_offsets, chunk_times, event_offsets,"
        " event_times) VALUES ($1, $2, $3, $4, '{0}', '{5}', '{0,9,17}', '{5,6,7}')",
        call, TENANT, ANA, body,
    )  # fmt: skip
    found = await rows(admin, "SELECT * FROM agent_data.stream_events WHERE call_id = $1 ORDER BY seq", call)
    assert [(row["seq"], row["t_us"], row["offset"], row["data"]) for row in found] == [
        (0, 5, 0, b"data: \xff\n\n"),
        (1, 6, 9, b": ping\n\n"),
        (2, 7, 17, b"data: [DONE]\n\n"),
    ]


async def test_views_show_no_more_than_their_tables(admin: Admin) -> None:
    views = await rows(
        admin,
        "SELECT c.relname AS name, c.reloptions AS options FROM pg_class c"
        " WHERE c.relnamespace = 'agent_data'::regnamespace AND c.relkind = 'v'",
    )
    assert "stream_events" in {row["name"] for row in views}
    for row in views:
        if row["name"].startswith("pgqueuer"):
            continue
        assert "security_invoker=true" in (row["options"] or []), row["name"]
