"""app/store/retention.py: months dropped, older calls deleted, what nothing refers to collected, and never anything else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from app.features.paging.state import PagingPartRecord
from app.features.paging.store import PagingStore
from app.jobs.schedule import Schedule, privacy_ticks
from app.jobs.worker import connector
from app.store import ids, retention
from app.store.captures import Captures
from app.store.erasure import ERASER_ROLE, Eraser, own_connection
from app.store.pools import Pool
from app.store.records import StreamRecord
from app.store.retention import GB, Retention, RetentionLimits, RetentionRun, Storage, by_group
from tests.support.clock import FakeClock
from tests.support.jobs import SQL
from tests.support.paged import whole_record
from tests.support.teller import ANA, TENANT, Teller, recipe_of, talk

Admin = asyncpg.Connection
NOW = datetime(2031, 3, 20, 12, tzinfo=UTC)
DAY = timedelta(days=1)
BEN = ids.user_id(TENANT, "ben")


@pytest.fixture
async def owner(database: str) -> Any:
    """The owner's connection; captures have the months from 2031-01 to 2031-04."""
    connection = await own_connection(database, "mneme_owner")()
    for row in await connection.fetch(SQL["retention.months"]):
        await connection.execute(SQL["retention.drop_month"], row["month"])
    await connection.execute("SELECT agent_data.ensure_capture_partitions('2031-01-01', '2031-04-01')")
    yield connection
    await connection.close()


async def call(
    teller: Teller, at: datetime, *elements: bytes, size: int = 0, session: int = 1, known: Any = None, user: UUID = ANA
) -> Any:
    """A captured turn at a time, with these messages in its request; the recipe."""
    _, made = recipe_of(*elements, known=known)
    teller.at = at - timedelta(seconds=1)
    stream = StreamRecord(b"x" * size, False, [0], [1], [], [])
    await teller.tell(
        talk(f"at {at}"), "a", session=UUID(int=session), user=user, new=1, facts={"request": made, "stream": stream}
    )
    return made


async def times(admin: Admin) -> list[datetime]:
    rows = await admin.fetch("SELECT created_at FROM agent_data.upstream_calls ORDER BY call_id")
    return [row["created_at"] for row in rows]


async def count(admin: Admin, table: str) -> int:
    found: int = await admin.fetchval(f"SELECT count(*) FROM agent_data.{table}")
    return found


async def body_of(pool: Pool, call_id: UUID) -> bytes:
    parts = await Captures(pool, SQL).request(TENANT, call_id, None, sent=False)
    assert parts is not None
    return b"".join([parts.prefix, *parts.elements, parts.suffix])


OLD = [datetime(2031, 1, 5, tzinfo=UTC), datetime(2031, 2, 20, tzinfo=UTC)]
EDGE = [datetime(2031, 3, 8, tzinfo=UTC), datetime(2031, 3, 12, tzinfo=UTC)]
KEPT = [NOW - 2 * DAY, NOW - DAY]


async def test_by_age_whole_months_are_dropped_and_the_rest_deleted(teller: Teller, admin: Admin, owner: Any) -> None:
    for at in (*OLD, *EDGE, *KEPT):
        await call(teller, at, b'"m%d"' % at.day)
    retain = Retention(SQL, RetentionLimits(days=10))
    said = await retain.run(owner, NOW, dry=True)
    assert (said.months, said.calls, said.before) == (["203101", "203102"], 1, NOW - 10 * DAY)
    assert await times(admin) == [*OLD, *EDGE, *KEPT], "a dry run changes nothing"
    done = await retain.run(owner, NOW)
    assert (done.months, done.calls) == (said.months, said.calls)
    assert done.bytes > 0
    assert await times(admin) == [EDGE[1], *KEPT]
    for table in ("streams", "compilations"):
        assert await count(admin, table) == (3 if table == "streams" else 0)
        assert await admin.fetchval("SELECT to_regclass($1)", f"agent_data.{table}_203102") is None
    assert await count(admin, "conversation_history") == 12, "what was said stays"
    again = await retain.run(owner, NOW)
    assert (again.months, again.calls) == ([], 0)


async def test_calls_outside_of_all_months_go_as_well(teller: Teller, admin: Admin, owner: Any) -> None:
    for at in (datetime(2030, 6, 1, tzinfo=UTC), KEPT[0]):
        await call(teller, at, b'"m"')
    assert await admin.fetchval("SELECT count(*) FROM ONLY agent_data.upstream_calls_rest") == 1
    done = await Retention(SQL, RetentionLimits(days=10)).run(owner, NOW)
    assert (done.calls, await times(admin)) == (1, [KEPT[0]])


async def test_by_size_the_oldest_go_and_no_more_than_needed(teller: Teller, admin: Admin, owner: Any) -> None:
    """Half of what there is: about half of the calls, of any month; and again nothing, though the files did not shrink."""
    await admin.execute("ALTER TABLE agent_data.streams_203103 ALTER COLUMN body SET STORAGE EXTERNAL")
    await admin.execute("ALTER TABLE agent_data.streams_203102 ALTER COLUMN body SET STORAGE EXTERNAL")
    moments = [OLD[1] + n * DAY for n in range(20)]
    for n, at in enumerate(moments):
        await call(teller, at, b'"m%d"' % n, size=200_000)
    retain = Retention(SQL, RetentionLimits(bytes=2_000_000))
    done = await retain.run(owner, NOW)
    left = await times(admin)
    assert left == moments[-len(left) :]
    assert 8 <= len(left) <= 10
    assert done.months == ["203101", "203102"]
    for _ in range(2):
        again = await retain.run(owner, NOW)
        assert (again.calls, again.months) == (0, [])
    assert await Retention(SQL, RetentionLimits(bytes=GB)).run(owner, NOW) == RetentionRun()


async def test_without_limits_everything_stays(teller: Teller, admin: Admin, owner: Any) -> None:
    await call(teller, OLD[0], b'"m"')
    assert await Retention(SQL, RetentionLimits()).run(owner, NOW) == RetentionRun()
    assert await count(admin, "upstream_calls") == 1


async def test_what_only_old_calls_needed_is_collected_and_what_new_ones_need_is_not(
    teller: Teller, admin: Admin, owner: Any, pool: Pool
) -> None:
    """A conversation that goes on, one that ended, and a message that both hold."""
    first = await call(teller, OLD[1], b'"hello"', b'"one"')
    await call(teller, OLD[1] + DAY, b'"hello"', b'"ended"', session=2)
    await call(teller, KEPT[0], b'"hello"', b'"one"', b'"two"', known=first.resume)
    kept = teller.calls[-1]
    await call(teller, OLD[1], b'"hers"', session=3, user=BEN)
    await admin.execute("UPDATE agent_data.session_heads SET created_at = $1", OLD[1] + DAY)
    retain = Retention(SQL, RetentionLimits(days=10))
    assert (await retain.run(owner, NOW)).collected == 0, "calls may be on their way that build on it"
    heads = "SELECT count(*) FROM agent_data.session_heads WHERE request_chain IS NOT NULL"
    assert await admin.fetchval(heads) == 0, "but no new one will"
    done = await retain.run(owner, NOW + 2 * DAY)
    blobs = {row["body"] for row in await admin.fetch("SELECT body FROM agent_data.message_blobs")}
    assert blobs == {b'"hello"', b',"one"', b',"two"'}
    assert await count(admin, "request_chains") == 2
    assert done.collected == 2 + 2, "'ended' and hers: blobs, and chains"
    assert await count(admin, "capture_sweeps") == 0
    assert await body_of(pool, kept) == b'{"messages":["hello","one","two"]}'
    assert (await retain.run(owner, NOW + 2 * DAY)).collected == 0


async def test_what_comes_into_use_again_is_not_collected(teller: Teller, admin: Admin, owner: Any, pool: Pool) -> None:
    """The same words are said again after their chain was given up: only the new call leads to it."""
    await call(teller, OLD[1], b'"again"')
    await admin.execute("UPDATE agent_data.session_heads SET created_at = $1", OLD[1])
    retain = Retention(SQL, RetentionLimits(days=10))
    await retain.run(owner, NOW)
    await call(teller, NOW + DAY, b'"again"', session=2)
    again = teller.calls[-1]
    await admin.execute("DELETE FROM agent_data.session_heads")
    await retain.run(owner, NOW + 2 * DAY)
    assert await body_of(pool, again) == b'{"messages":["again"]}'


async def test_a_user_whose_call_is_being_recorded_is_left_for_later(
    teller: Teller, admin: Admin, owner: Any, database: str
) -> None:
    await call(teller, OLD[1], b'"old"')
    await admin.execute("UPDATE agent_data.session_heads SET created_at = $1", OLD[1])
    retain = Retention(SQL, RetentionLimits(days=10))
    await retain.run(owner, NOW)
    other = await asyncpg.connect(database)
    transaction = other.transaction()
    await transaction.start()
    await other.fetchval("SELECT pg_advisory_xact_lock_shared(agent_data.capture_lock($1))", ANA)
    assert (await retain.run(owner, NOW + 2 * DAY)).collected == 0
    assert await count(admin, "capture_sweeps") == 1
    await transaction.rollback()
    await other.close()
    assert (await retain.run(owner, NOW + 2 * DAY)).collected == 2


async def test_keys_and_prompts_of_what_is_gone_go(teller: Teller, admin: Admin, owner: Any) -> None:
    for n, at in enumerate((OLD[1], KEPT[0])):
        teller.at = at - timedelta(seconds=1)
        await teller.tell(
            talk("q"), "a", session=UUID(int=1), facts={"repeat_key": b"k%d" % n}, system_prompt=f"It is {at}."
        )
    for table in ("idempotency_keys", "system_prompts"):
        await admin.execute(f"UPDATE agent_data.{table} SET created_at = $1", OLD[1])
    done = await Retention(SQL, RetentionLimits(days=10)).run(owner, NOW)
    assert done.collected == 2
    assert await count(admin, "idempotency_keys") == 1
    assert await admin.fetchval("SELECT prompt FROM agent_data.system_prompts") == f"It is {KEPT[0]}."


async def test_a_month_that_is_in_use_is_deleted_row_by_row(
    teller: Teller, admin: Admin, owner: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "LOCK_MS", 10)
    monkeypatch.setattr(retention, "LOCK_PAUSE_S", 0.0)
    await call(teller, OLD[1], b'"old"')
    other = await asyncpg.connect(database)
    transaction = other.transaction()
    await transaction.start()
    await other.fetch("SELECT * FROM agent_data.upstream_calls")
    done = await Retention(SQL, RetentionLimits(days=10)).run(owner, NOW)
    assert (done.months, done.calls) == ([], 1)
    await transaction.rollback()
    await other.close()
    assert (await Retention(SQL, RetentionLimits(days=10)).run(owner, NOW)).months == ["203101", "203102"]


async def test_the_schedule_runs_it_and_the_book_shows_it(
    teller: Teller, admin: Admin, owner: Any, pool: Pool, database: str
) -> None:
    await call(teller, OLD[1], b'"old"')
    clock = FakeClock(NOW)
    eraser = Eraser(own_connection(database, ERASER_ROLE), SQL, clock)
    ticks = privacy_ticks(Retention(SQL, RetentionLimits(days=10)), eraser, SQL)
    schedule = Schedule(connector(database, role="mneme_owner", name="t"), SQL, clock, further=ticks)
    done = await schedule.look()
    assert (done["retention"], done["erasures"]) == (2, 0)
    ran = {each.name: each for each in await Storage(pool, SQL).ticks()}
    assert (ran["retention"].last_run, ran["retention"].changed) == (NOW, 2)
    assert "retention" not in await schedule.look(), "not before it is due"


async def test_figures_are_of_every_table_by_group_and_month(pool: Pool, admin: Admin, owner: Any) -> None:
    figures = await Storage(pool, SQL).figures()
    groups = by_group(figures)
    assert set(groups) == {"captures", "history", "memories", "vectors", "paging", "queue", "other"}
    whole = await admin.fetchval(
        "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relnamespace = 'agent_data'::regnamespace"
        " AND relkind = 'r'"
    )
    assert sum(groups.values()) == whole
    assert {"2031-01", "2031-04", None} <= {each.month for each in figures if each.group == "captures"}


def test_the_first_id_of_a_moment() -> None:
    floor = ids.uuid7_floor(NOW)
    assert ids.uuid7(NOW - timedelta(milliseconds=1)) < floor <= ids.uuid7(NOW)


async def test_the_paging_of_expired_sessions_goes_and_of_those_that_never_began(
    teller: Teller, admin: Admin, owner: Any, pool: Pool
) -> None:
    store = PagingStore(pool, SQL, FakeClock(NOW))
    expired, going_on, begun, fresh = (UUID(int=0x90 + n) for n in range(4))
    for session in (expired, going_on):
        await teller.tell(
            talk(f"q{session}"), "a", session=session, facts={"part": PagingPartRecord(whole_record(session))}
        )
    await admin.execute("UPDATE agent_data.sessions SET status = 4 WHERE session_id = $1", expired)
    for session, late in ((begun, 25), (fresh, 1)):
        early = PagingStore(pool, SQL, FakeClock(NOW - timedelta(hours=late)))
        await early.keep(TENANT, ANA, UUID(int=1), whole_record(session))
    assert (await Retention(SQL, RetentionLimits()).run(owner, NOW)).collected == 2
    left = {each for each in (expired, going_on, begun, fresh) if (await store.read(TENANT, ANA, each)).marks}
    assert left == {going_on, fresh}
    for table in ("semantic_objects", "object_relationships", "fault_history", "fidelity_transitions", "admission_scores",
                  "phantom_ledger", "paged_sessions"):  # fmt: skip
        rows = await admin.fetch(f"SELECT DISTINCT session_id FROM agent_data.{table}")
        assert {row["session_id"] for row in rows} <= {going_on, fresh}, table
