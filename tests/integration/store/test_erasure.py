"""app/store/erasure.py: every table, nobody else, no way back, and from wherever it stopped."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from datetime import date, timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

import asyncpg
import orjson
import pytest

from app.errors import Conflict, NotFound, NotReady
from app.features.limits.limiter import LimitStore, SpendStore, Unrecorded
from app.features.paging.state import PagingPartRecord
from app.index.indexes import IndexScope
from app.jobs.schedule import Schedule, privacy_ticks
from app.jobs.worker import connector
from app.store import ids
from app.store.erasure import ERASER_ROLE, Eraser, hmac_pads, own_connection
from app.store.item_columns import ids_of
from app.store.learning import LearningStore
from app.store.pools import Pool
from app.store.records import StreamRecord
from app.store.retention import Retention, RetentionLimits
from tests.support.clock import FakeClock
from tests.support.indexes import indexes_of
from tests.support.jobs import SQL, until
from tests.support.paged import whole_record
from tests.support.teller import ANA, OTHER_TENANT, TENANT, Teller, recipe_of, said, talk

Admin = asyncpg.Connection
BEN = ids.user_id(TENANT, "ben")
TWIN = ids.user_id(OTHER_TENANT, "ana")
S1, S2, S3 = UUID(int=0x51), UUID(int=0x52), UUID(int=0x53)
KEY = UUID(int=0x61)
REMAIN = {"erased_users", "erased_contents"}
FOLLOWING = {"index_items", "index_log"}
"""What goes with rows of other tables, and notes that it did."""
"""What tombstones are kept in."""

USER_COLUMNS = {("api_keys", "user_external_id"), ("erasures", "user_hash"), ("users", "external_id")}
"""What names a user by other than `user_id`, and is dealt with: keys are revoked and renamed, a receipt has a keyed hash."""

TABLES = """
SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'user_id' AND NOT a.attisdropped
WHERE c.relnamespace = 'agent_data'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY 1
"""


@pytest.fixture
def clock(teller: Teller) -> FakeClock:
    return FakeClock(teller.at + timedelta(hours=1))


@pytest.fixture
def eraser(database: str, clock: FakeClock) -> Eraser:
    return Eraser(own_connection(database, ERASER_ROLE), SQL, clock, batch=2)


async def tables(admin: Admin) -> list[str]:
    return [row["relname"] for row in await admin.fetch(TABLES)]


async def rows_of(admin: Admin, user: UUID) -> dict[str, list[str]]:
    """Every row of a user, by table, as text."""
    found = {}
    for table in await tables(admin):
        rows = await admin.fetch(
            f"SELECT t::text AS row FROM agent_data.{table} t WHERE t.user_id = $1 ORDER BY 1", user
        )
        if rows:
            found[table] = [row["row"] for row in rows]
    return found


async def fill(teller: Teller, admin: Admin, user: UUID, name: str, session: UUID, tenant: UUID = TENANT) -> None:
    """A row in every table that has a `user_id`, most of them as the product writes them."""
    _, request = recipe_of(f'{{"role":"user","content":"{name} q"}}'.encode())
    stream: Any = {"body": b"data: x\n\n", "truncated": False, "chunk_offsets": [0], "chunk_times": [1]}
    facts = {
        "request": request,
        "stream": StreamRecord(**stream, event_offsets=[0], event_times=[1]),
    }
    for n in range(3):
        asked = talk(f"{name} q{n}")
        own = facts | {"idempotency_key": f"key {n} of {name}", "repeat_key": f"key {n} of {name}".encode()}
        own |= {"part": PagingPartRecord(whole_record(session))} if n == 2 else {}
        await teller.tell(
            asked, f"{name} a{n}", session=session, user=user, tenant=tenant, facts=own, system_prompt=f"{name} {n}"
        )
    call = teller.calls[-1]
    simple: dict[str, tuple[str, str, list[Any]]] = {
        "compilations": ("call_id, audit", "$3, '{}'", [call]),
        "context_blocks": (
            "session_id, epoch, message_id, chain_hash, message_hash, text, item_ids, token_count",
            "$3, 0, $3, '', '', 'x', '{}', 1",
            [session],
        ),
        "memory_store": (
            "memory_id, memory_tier, memory_scope, content_text, content_hash, provenance_type, token_count",
            "$3, 3, 1, 'x', $4, 0, 1",
            [session, sha256(name.encode()).digest()],
        ),
        "memory_events": ("memory_id, event, actor", "$3, 'created', 'api'", [session]),
        "suppressions": ("item_id, reason, content_hmac", "$3, 'forgotten', 'm'", [session]),
        "memory_conflicts": ("conflict_id, conflict_type, conflict_data", "$3, 'memory_vs_memory', '{}'", [session]),
        "memory_store_working": ("session_id", "$3", [session]),
        "episodes": ("message_id, session_id, at, event_type", "$3, $3, now(), 'question'", [session]),
        "session_work": ("session_id, touched_at", "$3, now()", [session]),
        "consolidation_state": ("version", "1", []),
        "compactions": (
            "session_id, summary_id, at, first_turn, last_turn, messages, removed_tokens, summary_tokens, ratio, method",
            "$3, $3, now(), 3, 8, 6, 600, 100, 6, 'extractive'",
            [session],
        ),
        "drawn_keys": ("key_hmac, memory_id", "'k', $3", [session]),
        "derivations": ("source_id, derived_id", "$3, $3", [session]),
        "user_emails": ("email", "$3", [f"{name}@x"]),
        "capture_sweeps": ("before", "now()", []),
        "job_effects": ("job_key", "'k'", []),
        "user_facts": (
            "fact_id, category, fact_key, fact_value, confidence_score, said_at, first_mentioned, last_updated",
            "$3, 'personal', 'k', '1', 95, now(), now(), now()",
            [session],
        ),
        "user_fact_changes": ("fact_id, n, at, event, actor", "$3, 1, now(), 'created', 'api'", [session]),
        "answer_outcomes": (
            "call_id, score, answered_at, created_at, updated_at",
            "$3, 1, now(), now(), now()",
            [call],
        ),
        "memory_outcomes": ("memory_id, call_id, change", "$3, $4, 0.1", [session, call]),
        "canonical_entities": ("entity_id, entity_type, canonical_name, name_norm", "$3, 'person', $3, $3", [name]),
        "entity_aliases": ("entity_id, alias_norm, alias_text, alias_source", "$3, $3, $3, 'learned'", [name]),
        "ui_cards_shown": (
            "card_id, session_id, turn_index, message_id, question, card_type, card_data, display_order, source, token_count",
            "$3, $3, 2, $3, 1, 'chart', '{}', 1, 'api', 1",
            [session],
        ),
        "memory_commands": (
            "command_id, session_id, mark, kind, scope, outcome, at",
            "$3, $3, '', 'forget', 'thing', 'done', now()",
            [session],
        ),
        "insights": (
            "name, domain, title, source, period_days, every_hours, due_at, created_at, updated_at",
            "'orders', 'erp', $3, 'SELECT 1 AS value', 7, 6, now(), now(), now()",
            [name],
        ),
        "spaces": ("name, kind, created_at", "$3, 'team', now()", [name]),
        "space_members": ("space_id, joined_at", "$3, now()", [session]),
        "space_sayings": ("space_id, item_id, item_kind, said_at", "$3, $3, 1, now()", [session]),
        "webhook_outbox": ("message_id, target, event", "gen_random_uuid(), 'crm', 'memory.created'", []),
        "webhook_degradations": ("call_id, reason, at", "$3, 'store', now()", [call]),
        "spend": (
            "day, key_id, session_id, model, calls, prompt_tokens, completion_tokens, cached_tokens, unpriced_tokens,"
            " cost_microcents",
            "'2020-02-02', $3, $4, 'm', 2, 30, 4, 5, 6, 700",
            [KEY, session],
        ),
    }
    for table, (columns, values, given) in simple.items():
        await admin.execute(
            f"INSERT INTO agent_data.{table} (tenant_id, user_id, {columns}) VALUES ($1, $2, {values})",
            tenant, user, *given,
        )  # fmt: skip
    await admin.execute(
        "INSERT INTO agent_data.index_state (user_id, tenant_id, cut) VALUES ($1, $2, '1') ON CONFLICT DO NOTHING",
        user,
        tenant,
    )
    await admin.execute(
        "INSERT INTO agent_data.api_keys (key_hash, key_id, tenant_id, name, hint, user_external_id)"
        " VALUES ($1, gen_random_uuid(), $2, $3, 'mneme_1', $3)",
        sha256(f"{tenant}{name}".encode()).digest(), tenant, name,
    )  # fmt: skip


async def others(admin: Admin) -> dict[str, Any]:
    found: dict[str, Any] = {"ben": await rows_of(admin, BEN), "twin": await rows_of(admin, TWIN)}
    for table in ("pgqueuer", "api_keys"):
        found[table] = [row["t"] for row in await admin.fetch(f"SELECT t::text AS t FROM agent_data.{table} t")]
    return found


# --- every table --------------------------------------------------------------------------------------------------------


async def test_nothing_of_the_user_remains_and_everything_of_all_others(
    teller: Teller, admin: Admin, eraser: Eraser
) -> None:
    await fill(teller, admin, BEN, "ben", S2)
    await fill(teller, admin, TWIN, "twin", S3, OTHER_TENANT)
    before = await others(admin)
    await fill(teller, admin, ANA, "ana", S1)
    filled = await rows_of(admin, ANA)
    assert set(filled) == set(await tables(admin)) - REMAIN, "a new table: fill it here, and see that it is erased"
    seen: list[tuple[str, int]] = []
    receipt = await eraser.erase(TENANT, ANA, progress=lambda table, rows: seen.append((table, rows)))
    assert set(await rows_of(admin, ANA)) == REMAIN
    after = await others(admin)
    ended = [row for row in after["api_keys"] if "erased" in row]
    assert len(ended) == 1
    assert "ana" not in ended[0].replace("local", "")
    after["api_keys"] = [row for row in after["api_keys"] if row not in ended]
    assert after == before
    expected = {table: len(rows) for table, rows in filled.items() if table not in FOLLOWING}
    counts = {table: rows for table, rows in receipt.counts.items() if table not in FOLLOWING}
    assert counts == expected | {"pgqueuer": 4, "api_keys": 1, "system_prompts": 3 + 2}, "two of ben's, too"
    prompts = await admin.fetch("SELECT prompt FROM agent_data.system_prompts WHERE tenant_id = $1", TENANT)
    assert [row["prompt"] for row in prompts] == ["ben 2"], "those that a session uses stay"
    assert sum(rows for _, rows in seen) == receipt.rows
    assert max(rows for table, rows in seen if table not in ("pgqueuer", "system_prompts")) <= 6, "in batches"
    again = await eraser.erase(TENANT, ANA)
    assert (again.rows, again.erasure_id != receipt.erasure_id) == (0, True)


TOTALS = """
SELECT tenant_id, key_id, day, model, sum(calls) AS calls, sum(prompt_tokens) AS prompt, sum(completion_tokens) AS completion,
       sum(cached_tokens) AS cached, sum(unpriced_tokens) AS unpriced, sum(cost_microcents) AS cost
FROM agent_data.spending GROUP BY tenant_id, key_id, day, model ORDER BY tenant_id, key_id, day, model
"""


async def test_what_was_spent_stays_spent_and_says_no_more_by_whom(
    teller: Teller, pool: Pool, admin: Admin, eraser: Eraser, database: str, clock: FakeClock
) -> None:
    """Budgets and totals of keys do not shrink; two erased users of a key and a day are one row."""
    await fill(teller, admin, BEN, "ben", S2)
    await fill(teller, admin, ANA, "ana", S1)
    totals = await admin.fetch(TOTALS)
    await eraser.erase(TENANT, BEN)
    # One of them before what calls cost was added up, the other one after.
    schedule = Schedule(connector(database, role="mneme_owner", name="t"), SQL, clock)
    assert await schedule.sweep("spend") == 6
    receipt = await eraser.erase(TENANT, ANA)
    assert (receipt.counts["spend"], "spend_entries" in receipt.counts) == (2, False)
    assert await admin.fetch(TOTALS) == totals
    rows = await admin.fetch("SELECT user_id, session_id, calls, cost_microcents FROM agent_data.spend ORDER BY calls")
    assert [tuple(row) for row in rows] == [(ids.NIL, ids.NIL, 4, 1400), (ids.NIL, ids.NIL, 6, 6 * 3)]
    day = teller.at.date()
    shown = await SpendStore(pool, SQL).spent(TENANT, None, "user", date(2020, 2, 2), day, limit=10)
    assert [(each.value, each.name, each.calls) for each in shown] == [(str(ids.nobody(TENANT)), None, 10)]


async def test_a_call_that_nothing_was_kept_of_is_not_noted_as_an_erased_users(
    teller: Teller, pool: Pool, admin: Admin, eraser: Eraser
) -> None:
    """It was on its way when its user was erased, and its capture is off: only what it cost is known."""
    limits = LimitStore(pool, SQL)
    await admin.execute("INSERT INTO agent_data.key_usage (key_id, tenant_id) VALUES ($1, $2)", KEY, TENANT)
    await eraser.erase(TENANT, ANA)
    unrecorded = Unrecorded(ANA, S1, "m", teller.at, 30, 4, 5, priced=True)
    await limits.settle(
        TENANT, KEY, ids.uuid7(teller.at), 0, unasked=False, tokens=34, microcents=700, unrecorded=unrecorded
    )
    rows = await admin.fetch("SELECT user_id, session_id, key_id, cost_microcents FROM agent_data.spend_entries")
    assert [tuple(row) for row in rows] == [(ids.NIL, ids.NIL, KEY, 700)]


async def test_a_table_that_nobody_thought_of_is_erased_and_one_without_protection_is_refused(
    teller: Teller, admin: Admin, eraser: Eraser
) -> None:
    await admin.execute("CREATE TABLE agent_data.later (user_id uuid PRIMARY KEY, tenant_id uuid NOT NULL, words text)")
    await admin.execute("INSERT INTO agent_data.later VALUES ($1, $2, 'x'), ($3, $2, 'y')", ANA, TENANT, BEN)
    with pytest.raises(NotReady, match="later"):
        await eraser.erase(TENANT, ANA)
    await admin.execute("SELECT agent_data.protect_tables()")
    receipt = await eraser.erase(TENANT, ANA)
    assert receipt.counts == {"later": 1}
    assert await admin.fetchval("SELECT count(*) FROM agent_data.later") == 1


async def test_a_month_that_was_detached_is_erased(teller: Teller, admin: Admin, eraser: Eraser) -> None:
    await teller.tell(talk("q"), "a", session=S1)
    month = f"upstream_calls_{teller.at:%Y%m}"
    await admin.execute(f"ALTER TABLE agent_data.upstream_calls DETACH PARTITION agent_data.{month}")
    await admin.execute("SELECT agent_data.protect_tables()")  # as `mneme migrate` does
    receipt = await eraser.erase(TENANT, ANA)
    assert receipt.counts[month] == 1


async def test_whatever_names_a_user_is_known(admin: Admin) -> None:
    """A column that names users by anything but `user_id` needs a place in the erasure."""
    found = await admin.fetch(
        "SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0"
        " WHERE c.relnamespace = 'agent_data'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition"
        " AND NOT a.attisdropped AND (a.attname LIKE '%user%' OR a.attname = 'external_id') AND a.attname <> 'user_id'"
        " AND a.attname NOT LIKE 'usage%'"
    )
    assert {(row["relname"], row["attname"]) for row in found} == USER_COLUMNS | {("sessions", "external_id")}


# --- no way back --------------------------------------------------------------------------------------------------------


async def test_a_call_that_began_before_the_end_is_not_recorded_and_a_later_one_is(
    teller: Teller, admin: Admin, eraser: Eraser, clock: FakeClock
) -> None:
    await teller.tell(talk("q"), "a", session=S1)
    await eraser.erase(TENANT, ANA)
    facts = {"idempotency_key": "k", "repeat_key": b"k"}
    assert await teller.tell(talk("on its way"), "a", session=S2, facts=facts) is False
    assert set(await rows_of(admin, ANA)) == REMAIN
    teller.at = clock.now()
    assert await teller.tell(talk("new"), "a", session=S2, facts=facts) is True
    assert {"users", "sessions", "conversation_history"} <= set(await rows_of(admin, ANA))


async def test_a_call_that_is_being_recorded_is_waited_for(
    teller: Teller, admin: Admin, eraser: Eraser, database: str
) -> None:
    """Its transaction began before the fence stood, and commits after."""
    other = await asyncpg.connect(database)
    try:
        transaction = other.transaction()
        await transaction.start()
        await other.execute(
            "INSERT INTO agent_data.upstream_calls (call_id, tenant_id, user_id, method, path, upstream, outcome,"
            " memory_status) VALUES ($1, $2, $3, 'POST', '/', 'u', 0, 'ok')",
            ids.uuid7(teller.at), TENANT, ANA,
        )  # fmt: skip

        async def waits() -> bool:
            return bool(
                await admin.fetchval(
                    "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory'"
                    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
                )
            )

        async with asyncio.TaskGroup() as group:
            erasing = group.create_task(eraser.erase(TENANT, ANA))
            await until(waits)
            await transaction.commit()
        assert erasing.result().counts == {"upstream_calls": 1, "spend_entries": 1}
    finally:
        await other.close()


async def test_a_job_that_read_before_writes_nothing_after_even_if_the_user_came_back(
    teller: Teller, pool: Pool, eraser: Eraser, clock: FakeClock
) -> None:
    await teller.tell(talk("q"), "a", session=S1)
    store = LearningStore(pool, SQL)
    span = (teller.at - timedelta(days=1), teller.at + timedelta(days=1))
    setting, _ = await store.read(TENANT, ANA, [S1], *span)
    await eraser.erase(TENANT, ANA)
    for _ in range(2):
        async with store.effect(TENANT, ANA, "k", alone=ANA, epoch=setting.epoch, read=[], now=clock.now()) as effect:
            assert effect is None
        teller.at = clock.now()
        await teller.tell(talk("back"), "a", session=S2)


async def test_what_is_sent_again_stays_in_its_session_and_is_neither_learned_from_nor_found(
    teller: Teller, pool: Pool, admin: Admin, eraser: Eraser, clock: FakeClock
) -> None:
    await teller.tell(talk("the flamingo"), "a pelican", session=S1)
    await eraser.erase(TENANT, ANA)
    teller.at = clock.now()
    await teller.tell(talk("the flamingo", "a pelican", "and a heron"), "an ibis", session=S2)
    found = await admin.fetch("SELECT message_id FROM agent_data.conversation_history WHERE session_id = $1", S2)
    span = (teller.at - timedelta(days=1), teller.at + timedelta(days=1))
    _, messages = await LearningStore(pool, SQL).read(TENANT, ANA, [row["message_id"] for row in found], *span)
    assert [each.content for each in messages] == ["and a heron", "an ibis"]
    stored = await teller.store.session_messages(TENANT, ANA, [(S2, 99)], limit=10)
    assert sorted((each.content or "", each.hidden) for each in stored) == [
        ("a pelican", False), ("an ibis", False), ("and a heron", False), ("the flamingo", False),
    ]  # fmt: skip
    scan = await indexes_of(pool, 0).scan(TENANT, ANA, "flamingo heron", None, IndexScope(), vectors=0, texts=10)
    stated = await admin.fetch(
        "SELECT message_id, content FROM agent_data.conversation_history WHERE user_id = $1", ANA
    )
    contents = {row["message_id"].hex: row["content"] for row in stated}
    assert [contents[each] for each in ids_of(scan.places)] == ["and a heron"]


async def test_without_tombstones_nothing_remains_but_the_receipt(teller: Teller, admin: Admin, eraser: Eraser) -> None:
    await fill(teller, admin, ANA, "ana", S1)
    receipt = await eraser.erase(TENANT, ANA, tombstones=False)
    assert await rows_of(admin, ANA) == {}
    kept = await admin.fetch("SELECT e::text AS row FROM agent_data.erasures e")
    assert len(kept) == 1
    assert str(ANA) not in kept[0]["row"]
    key = bytes.fromhex(
        await admin.fetchval("SELECT value #>> '{}' FROM agent_data.system_config WHERE key = 'content_hmac_key'")
    )
    assert receipt.user_hash == hmac.digest(key, ANA.bytes, sha256)
    assert receipt.finished_at >= receipt.began_at


async def test_the_pads_make_an_hmac() -> None:
    for key in (b"k", b"x" * 64, b"y" * 200):
        inner, outer = hmac_pads(key)
        assert sha256(outer + sha256(inner + b"text").digest()).digest() == hmac.digest(key, b"text", sha256)


# --- stopped and gone on --------------------------------------------------------------------------------------------------


async def test_what_stopped_goes_on_by_itself_and_the_receipt_is_right(
    teller: Teller, admin: Admin, eraser: Eraser, database: str, clock: FakeClock
) -> None:
    await fill(teller, admin, ANA, "ana", S1)
    whole = {table: len(rows) for table, rows in (await rows_of(admin, ANA)).items() if table not in FOLLOWING}

    class Stop(Exception):
        pass

    def stopping(after: int) -> Callable[[str, int], None]:
        left = [after]

        def progress(_table: str, _rows: int) -> None:
            left[0] -= 1
            if not left[0]:
                raise Stop

        return progress

    for after in (3, 5, 9):
        with pytest.raises(Stop):
            await eraser.erase(TENANT, ANA, progress=stopping(after))
        assert await teller.tell(talk("meanwhile"), "a", session=S2) is False, "the fence stands"
    ticks = privacy_ticks(Retention(SQL, RetentionLimits()), eraser, SQL)
    schedule = Schedule(connector(database, role="mneme_owner", name="t"), SQL, clock, further=ticks)
    assert await schedule.sweep("erasures") == 1
    assert await schedule.sweep("erasures") == 0
    assert set(await rows_of(admin, ANA)) == REMAIN
    kept = await admin.fetch("SELECT counts::text AS counts, finished_at FROM agent_data.erasures")
    assert len(kept) == 1
    assert kept[0]["finished_at"] is not None
    counts = orjson.loads(kept[0]["counts"])
    assert {table: counts[table] for table in whole} == whole


async def test_two_erasures_of_one_user_do_not_meet(eraser: Eraser, database: str) -> None:
    other = await asyncpg.connect(database)
    try:
        assert await other.fetchval(SQL["erasure.alone"], ANA)
        with pytest.raises(Conflict, match="already"):
            await eraser.erase(TENANT, ANA)
    finally:
        await other.close()
    assert (await eraser.erase(TENANT, ANA)).rows == 0


async def test_elsewhere_is_asked_until_it_has_nothing(database: str, clock: FakeClock) -> None:
    left = [2, 1, 0]

    async def spool(tenant: UUID, user: UUID) -> dict[str, int]:
        assert (tenant, user) == (TENANT, ANA)
        return {"spool": left.pop(0)}

    eraser = Eraser(own_connection(database, ERASER_ROLE), SQL, clock, elsewhere=[spool])
    assert (await eraser.erase(TENANT, ANA)).counts == {"spool": 3}
    assert left == []


async def test_a_tenant_is_found_by_its_name(teller: Teller, eraser: Eraser) -> None:
    assert await eraser.tenant("a") == TENANT
    with pytest.raises(NotFound):
        await eraser.tenant("nobody")


async def test_the_eraser_of_one_tenant_cannot_touch_another(teller: Teller, admin: Admin, eraser: Eraser) -> None:
    await teller.tell([said("user", "q")], "a", session=S1)
    assert (await eraser.erase(OTHER_TENANT, ANA)).rows == 0
    assert "conversation_history" in await rows_of(admin, ANA)


async def test_others_that_are_written_with_an_erased_user_are_written(
    teller: Teller, admin: Admin, eraser: Eraser
) -> None:
    """Turns that end together share a transaction; the fence must not take the others with it."""
    await eraser.erase(TENANT, ANA)
    async with asyncio.TaskGroup() as group:
        hers = [group.create_task(teller.tell(talk(f"h{n}"), "a", session=UUID(int=90 + n))) for n in range(4)]
        his = [group.create_task(teller.tell(talk(f"b{n}"), "a", session=UUID(int=80 + n), user=BEN)) for n in range(4)]
    assert [task.result() for task in hers] == [False] * 4
    assert [task.result() for task in his] == [True] * 4
    assert set(await rows_of(admin, ANA)) == {"erased_users"}
    assert len((await rows_of(admin, BEN))["upstream_calls"]) == 4
