"""The outbox in a real Postgres: what is written into it, by whom, and what becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import orjson
import pytest

from app.clock import SystemClock
from app.errors import BadBody, NotFound
from app.features.webhooks.delivery import ENTRYPOINT, KEEP, Outbox, WebhookFigures, findings, retrying, webhook_ticks
from app.jobs.schedule import Schedule
from app.jobs.worker import QueueDriver, connector
from app.settings import Settings
from app.sources import WebhookEvent, WebhookTarget
from app.store import ids
from app.store.erasure import ERASER_ROLE, Eraser, own_connection
from app.store.pools import Pool
from app.store.queue import Queue
from tests.support.clock import FakeClock
from tests.support.jobs import SQL, job, put, until, working

Admin = asyncpg.Connection
TENANT, OTHER = UUID("00000000-0000-0000-0000-00000000000a"), UUID("00000000-0000-0000-0000-00000000000b")
ANA, BEN = ids.user_id(TENANT, "ana"), ids.user_id(OTHER, "ben")
ALL: list[str] = list(WebhookEvent.__args__)  # type: ignore[attr-defined]
LEASE = timedelta(seconds=60)


@pytest.fixture
async def outbox(database: str, admin: Admin) -> AsyncIterator[Outbox]:
    await admin.execute("INSERT INTO agent_data.tenants (tenant_id, name) VALUES ($1, 'a'), ($2, 'b')", TENANT, OTHER)
    for tenant, user, name in ((TENANT, ANA, "ana"), (OTHER, BEN, "ben")):
        await admin.execute(
            "INSERT INTO agent_data.users (user_id, tenant_id, external_id) VALUES ($1, $2, $3)", user, tenant, name
        )
    driver = QueueDriver(connector(database, role="mneme_owner", name="t"), SQL, timeout_s=10, probe_s=10)
    yield Outbox(driver, SQL)
    await driver.close()


async def remember(admin: Admin, text: str = "Ana likes tea", *, user: UUID = ANA, tenant: UUID = TENANT) -> UUID:
    memory = uuid4()
    await admin.execute(
        "INSERT INTO agent_data.memory_store (memory_id, user_id, tenant_id, memory_tier, memory_scope, content_text,"
        " content_hash, provenance_type, token_count) VALUES ($1, $2, $3, 2, 1, $4, $5, 0, 4)",
        memory, user, tenant, text, sha256(text.encode()).digest(),
    )  # fmt: skip
    return memory


async def change(admin: Admin, memory: UUID, **columns: object) -> None:
    sets = ", ".join(f"{name} = ${n}" for n, name in enumerate(columns, 2))
    await admin.execute(f"UPDATE agent_data.memory_store SET {sets} WHERE memory_id = $1", memory, *columns.values())


async def told(admin: Admin) -> list[tuple[str, str]]:
    rows = await admin.fetch("SELECT event, target FROM agent_data.webhook_outbox ORDER BY created_at, event, target")
    return [(row["event"], row["target"]) for row in rows]


async def data_of(admin: Admin, event: str) -> dict[str, Any]:
    row = await admin.fetchval("SELECT data FROM agent_data.webhook_outbox WHERE event = $1", event)
    return dict(orjson.loads(row))


# --- what is written --------------------------------------------------------------------------------------------------


async def test_without_targets_nothing_is_written(admin: Admin, outbox: Outbox) -> None:
    memory = await remember(admin)
    await change(admin, memory, memory_tier=3, status="invalidated")
    assert await told(admin) == []


async def test_the_life_of_a_memory(admin: Admin, outbox: Outbox) -> None:
    await outbox.configure([("crm", ALL, None)])
    memory, heir = await remember(admin), uuid4()
    await change(admin, memory, access_count=7, memory_tier=3)
    assert (await data_of(admin, "memory.promoted")) == {"kind": "fact", "tier": 3, "from_tier": 2}
    await change(admin, memory, memory_tier=2, status="aging")
    await change(admin, memory, status="active")
    await change(admin, memory, status="superseded", superseded_by=heir, superseded_how="corrected")
    data = await data_of(admin, "memory.superseded")
    assert (data["superseded_by"], data["how"]) == (str(heir), "corrected")
    for status in ("active", "invalidated", "expired", "forgotten"):
        await change(admin, memory, status=status)
    assert [event for event, _ in await told(admin)] == [
        "memory.created", "memory.promoted", "memory.superseded", "memory.restored", "memory.invalidated", "memory.expired",
        "memory.forgotten",
    ]  # fmt: skip


async def test_what_is_rolled_back_is_not_told(admin: Admin, outbox: Outbox) -> None:
    await outbox.configure([("crm", ALL, None)])
    transaction = admin.transaction()
    await transaction.start()
    await remember(admin)
    assert await told(admin) == [("memory.created", "crm")]
    await transaction.rollback()
    assert await told(admin) == []


async def test_each_target_gets_what_it_wants_of_whom_it_wants(admin: Admin, outbox: Outbox) -> None:
    await outbox.configure([("all", ALL, None), ("b", ["memory.created"], "b"), ("dead", ["job.dead"], None)])
    await remember(admin)
    await remember(admin, user=BEN, tenant=OTHER)
    assert await told(admin) == [("memory.created", "all"), ("memory.created", "all"), ("memory.created", "b")]
    rows = await admin.fetch("SELECT message_id FROM agent_data.webhook_outbox WHERE tenant_id = $1", OTHER)
    assert len({row["message_id"] for row in rows}) == 1
    assert await outbox.configure([("dead", ["job.dead"], None)]) == ["all", "b"]
    await remember(admin, "more")
    assert len(await told(admin)) == 3
    # What waits for those who are told no more is not out of sight.
    assert [(each.name, each.waiting) for each in await outbox.figures()] == [("all", 2), ("b", 1), ("dead", 0)]


async def test_the_doctor_warns_of_who_is_not_named_here(database: str, admin: Admin, outbox: Outbox) -> None:
    crm = WebhookTarget(name="crm", url="https://a.example/", secret="whsec_" + "A" * 32, events=["memory.created"])
    await outbox.configure([("crm", ALL, None), ("other", ALL, None)])
    await remember(admin)
    await outbox.configure([("crm", ALL, None)])  # a worker with another list
    settings = Settings.model_construct(database_url=None, webhooks=[crm])
    told = {each.what: each for each in await findings(settings, database)}
    levels = {what.split(":")[0]: each.level for what, each in told.items()}
    assert levels == {"The webhook crm": "ok", "The webhook other": "warning"}
    (other,) = [each for each in told.values() if each.level == "warning"]
    assert "1 waiting" in other.what
    assert "MNEME_WEBHOOKS" in other.mend


async def test_conflicts(admin: Admin, outbox: Outbox) -> None:
    await outbox.configure([("crm", ALL, None)])
    await admin.execute(
        "INSERT INTO agent_data.memory_conflicts (conflict_id, user_id, tenant_id, conflict_type, conflict_data, memory_ids)"
        " VALUES ($1, $2, $3, 'memory_vs_db', '{\"said\": \"secret\"}', ARRAY[$1::uuid])",
        uuid4(), ANA, TENANT,
    )  # fmt: skip
    data = await data_of(admin, "conflict.found")
    assert (data["type"], data["resolved"], len(data["memory_ids"])) == ("memory_vs_db", False, 1)
    assert "secret" not in str(data)


async def test_a_storm_of_degradations_is_one_message_for_each_tenant(admin: Admin, outbox: Outbox) -> None:
    clock = SystemClock()
    call = (
        "INSERT INTO agent_data.upstream_calls (call_id, tenant_id, user_id, created_at, method, path, upstream, outcome,"
        " memory_status, reason) VALUES ($1, $2, $3, $4, 'POST', '/v1/chat/completions', 'u', 0, $5, $6)"
    )

    async def calls(count: int, tenant: UUID, user: UUID, status: str, reason: str) -> None:
        for _ in range(count):
            now = clock.now()
            await admin.execute(call, ids.uuid7(now), tenant, user, now, status, reason)

    await calls(2, TENANT, ANA, "degraded", "store")
    assert await admin.fetchval("SELECT count(*) FROM agent_data.webhook_degradations") == 0, "nobody wants to know"
    await outbox.configure([("ops", ["request.degraded"], None)])
    await calls(30, TENANT, ANA, "degraded", "store")
    await calls(5, TENANT, ANA, "degraded", "deadline")
    await calls(3, TENANT, ANA, "ok", "replayed")
    await calls(1, OTHER, BEN, "degraded", "deadline")
    assert await told(admin) == []
    assert await outbox.tell_degraded(clock.now() - timedelta(seconds=60), 10) == 0, "not yet"
    assert await outbox.tell_degraded(clock.now(), 10) == 2
    assert await outbox.tell_degraded(clock.now(), 10) == 0
    rows = await admin.fetch("SELECT data FROM agent_data.webhook_outbox WHERE tenant_id = $1", TENANT)
    (data,) = [orjson.loads(row["data"]) for row in rows]
    assert (data["requests"], data["reasons"]) == (35, {"store": 30, "deadline": 5})
    assert len(data["call_ids"]) == 10


async def test_a_job_that_is_given_up_is_told(database: str, pool: Pool, admin: Admin, outbox: Outbox) -> None:
    await outbox.configure([("ops", ["job.dead"], None)])

    async def fails(payload: bytes) -> None:
        raise ValueError("what a user wrote")

    async with working(database, {"test": fails}, attempts=1):
        await put(pool, job())

        async def dead() -> bool:
            return len(await told(admin)) == 1

        await until(dead)
    data = await data_of(admin, "job.dead")
    assert (data["entrypoint"], data["attempts"]) == ("test", 1)
    assert "wrote" not in str(data)


# --- erasure ------------------------------------------------------------------------------------------------------------


async def test_erasing_takes_what_waits_and_tells_that_it_was_done(database: str, admin: Admin, outbox: Outbox) -> None:
    await outbox.configure([("crm", ALL, None)])
    await remember(admin)
    await remember(admin, user=BEN, tenant=OTHER)
    eraser = Eraser(own_connection(database, ERASER_ROLE), SQL, SystemClock())
    receipt = await eraser.erase(TENANT, ANA)
    assert receipt.counts["webhook_outbox"] == 1
    assert await told(admin) == [("memory.created", "crm"), ("user.erased", "crm")]
    (of_ben, erased) = sorted(await outbox.claim("crm", 10, LEASE, text=True), key=lambda each: each.event)
    assert (of_ben.user, erased.user, erased.user_id) == ("ben", None, ids.NIL)
    assert erased.data == {"user_id": str(ANA), "tenant_id": str(TENANT)}


async def test_an_erasure_that_waits_to_be_told_holds_no_name(database: str, admin: Admin, outbox: Outbox) -> None:
    """Its receiver may be away for a month."""
    await outbox.configure([("crm", ALL, None)])
    name = "Ottilie-Zephyrine"
    await admin.execute(
        "INSERT INTO agent_data.users (user_id, tenant_id, external_id) VALUES ($1, $2, $3)",
        ids.user_id(TENANT, name), TENANT, name,
    )  # fmt: skip
    await remember(admin, user=ids.user_id(TENANT, name))
    eraser = Eraser(own_connection(database, ERASER_ROLE), SQL, SystemClock())
    await eraser.erase(TENANT, ids.user_id(TENANT, name), external=name)
    assert ("user.erased", "crm") in await told(admin)
    kept = [
        str(await admin.fetch(f"SELECT * FROM agent_data.{table}")) for table in ("webhook_outbox", "erasures", "users")
    ]
    assert not [each for each in kept if name in each]


async def test_an_erasure_that_is_not_done_is_not_told(admin: Admin, outbox: Outbox) -> None:
    await outbox.configure([("crm", ALL, None)])
    erasure = uuid4()
    for _ in range(2):  # it stopped, and was begun again
        await admin.execute("SELECT agent_data.tell_erasing($1, $2, $3)", TENANT, ANA, erasure)
    assert await told(admin) == [("user.erased", "crm")]
    assert await outbox.claim("crm", 10, LEASE, text=False) == []


# --- what becomes of it ---------------------------------------------------------------------------------------------------


async def test_what_is_taken_is_leased_and_told_with_names(admin: Admin, outbox: Outbox) -> None:
    await outbox.configure([("crm", ALL, None), ("other", ALL, None)])
    memory = await remember(admin)
    (message,) = await outbox.claim("crm", 10, LEASE, text=False)
    assert (message.event, message.user, message.user_id, message.tenant) == ("memory.created", "ana", ANA, "a")
    assert (message.subject, message.text, message.attempts) == (memory, None, 1)
    assert await outbox.claim("crm", 10, LEASE, text=False) == []
    (theirs,) = await outbox.claim("other", 10, timedelta(0), text=True)
    assert (theirs.text, theirs.message_id) == ("Ana likes tea", message.message_id)
    await change(admin, memory, status="forgotten")
    again = await outbox.claim("other", 10, LEASE, text=True)
    assert [(each.event, each.text, each.attempts) for each in again] == [
        ("memory.created", None, 2),
        ("memory.forgotten", None, 1),
    ]


async def test_two_workers_share_what_is_due(database: str, admin: Admin, outbox: Outbox) -> None:
    await outbox.configure([("crm", ALL, None)])
    for number in range(20):
        await remember(admin, f"memory {number}")
    driver = QueueDriver(connector(database, role="mneme_owner", name="t2"), SQL, timeout_s=10, probe_s=10)
    both = [outbox, Outbox(driver, SQL)]
    found = await asyncio.gather(*(each.claim("crm", 10, LEASE, text=False) for each in both))
    await driver.close()
    assert len({each.message_id for part in found for each in part}) == sum(map(len, found)) == 20


async def test_the_end_of_a_message(database: str, pool: Pool, admin: Admin, outbox: Outbox) -> None:
    await outbox.configure([("crm", ALL, None)])
    figures, queue = WebhookFigures(pool, SQL), Queue(pool, SQL)
    for number in range(3):
        await remember(admin, f"memory {number}")
    one, two, three = await outbox.claim("crm", 10, LEASE, text=False)
    await outbox.delivered("crm", one)
    await outbox.later("crm", two, timedelta(hours=1))
    await outbox.bury("crm", three, "The receiver answered 500.")
    (told_of,) = await figures.figures()
    assert told_of[:5] == ("crm", 1, 2, 1, 1)
    assert told_of.oldest is not None
    ((letter,), _) = await queue.dead_letters(tenant=TENANT)
    assert (letter.entrypoint, letter.error) == (ENTRYPOINT, "The receiver answered 500.")
    assert letter.payload == {
        "tenant": str(TENANT), "user": str(ANA), "message": str(three.message_id), "target": "crm", "event": "memory.created",
    }  # fmt: skip
    assert await queue.dead_letters(tenant=OTHER) == ([], None)
    async with working(database, {ENTRYPOINT: retrying(figures)}):
        assert await queue.retry(letter.id, TENANT)

        async def due() -> bool:
            return [each.attempts for each in await outbox.claim("crm", 1, LEASE, text=False)] == [1]

        await until(due)

    # Of who was erased meanwhile nothing is buried.
    await admin.execute("DELETE FROM agent_data.webhook_outbox")
    await outbox.bury("crm", two, "x")
    assert (await queue.dead_letters())[0] == []
    with pytest.raises(NotFound):
        await retrying(figures)(orjson.dumps(letter.payload))
    with pytest.raises(BadBody):
        await retrying(figures)(b"{}")


async def test_what_is_too_old_goes_with_its_dead_letter(
    database: str, pool: Pool, admin: Admin, outbox: Outbox
) -> None:
    await outbox.configure([("crm", ALL, None)])
    await remember(admin)
    (message,) = await outbox.claim("crm", 1, LEASE, text=False)
    await outbox.bury("crm", message, "x")
    clock = FakeClock(SystemClock().now())
    connect = connector(database, role="mneme_owner", name="t")
    schedule = Schedule(connect, SQL, clock, further=webhook_ticks(SQL))
    assert await schedule.sweep("webhooks") == 0
    clock.move(KEEP + timedelta(minutes=1))
    assert await schedule.sweep("webhooks") == 1
    assert await told(admin) == []
    assert (await Queue(pool, SQL).dead_letters())[0] == []


async def test_a_tenant_sees_its_own_rows_only_and_configures_nothing(pool: Pool, admin: Admin, outbox: Outbox) -> None:
    await outbox.configure([("crm", ALL, None)])
    await remember(admin)
    await remember(admin, user=BEN, tenant=OTHER)
    async with pool.transaction(TENANT) as connection:
        rows = await connection.fetch("SELECT tenant_id FROM agent_data.webhook_outbox")
        assert [row["tenant_id"] for row in rows] == [TENANT]
        assert await connection.fetch("SELECT FROM agent_data.webhook_targets") == []
        assert await connection.execute("UPDATE agent_data.webhook_targets SET events = '{}'") == "UPDATE 0"
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        async with pool.transaction(TENANT) as connection:
            await connection.execute("INSERT INTO agent_data.webhook_targets (name, events) VALUES ('mine', '{}')")
