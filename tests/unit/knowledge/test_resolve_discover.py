"""The business's own database is asked once in a while for what it has not, and for few things at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from app.features.knowledge.resolution import FoundEntities, RowQuery
from app.features.knowledge.resolve import MAX_WANTED, REMEMBERED_S, Discovery
from tests.support.clock import FakeClock
from tests.support.labelled_mentions import Rows

TENANT, OTHER = UUID(int=1), UUID(int=2)
HELIOS, NOTHING = RowQuery("Helios", ()), RowQuery("Blorb", ())


async def test_what_was_found_and_what_was_not_is_remembered_for_a_while() -> None:
    clock, rows = FakeClock(datetime(2026, 1, 1, tzinfo=UTC)), Rows()
    discovery = Discovery(rows, clock)

    first, away = await discovery.find(TENANT, 1, [HELIOS, NOTHING, HELIOS])
    assert not away
    assert [each.entity.id for each in first[HELIOS]] == ["customer:helios"]
    assert first[NOTHING] == ()
    assert rows.asked == [HELIOS, NOTHING]

    clock.move(timedelta(seconds=REMEMBERED_S - 1))
    assert await discovery.find(TENANT, 1, [HELIOS, NOTHING]) == (first, False)
    assert rows.asked == [HELIOS, NOTHING]

    clock.move(timedelta(seconds=1))
    await discovery.find(TENANT, 1, [NOTHING])
    assert rows.asked == [HELIOS, NOTHING, NOTHING]


async def test_what_a_database_that_is_away_did_not_say_is_asked_again() -> None:
    rows = Rows()
    discovery = Discovery(rows, FakeClock(datetime(2026, 1, 1, tzinfo=UTC)))
    rows.away = True
    assert await discovery.find(TENANT, 1, [HELIOS]) == ({HELIOS: ()}, True)
    rows.away = False
    found, away = await discovery.find(TENANT, 1, [HELIOS])
    assert [each.entity.id for each in found[HELIOS]] == ["customer:helios"]
    assert not away


async def test_a_search_that_is_not_waited_for_goes_on_once() -> None:
    """A large table: who asks first goes without it, who asks then waits for the same search, who asks later has it."""
    go, rows = asyncio.Event(), Rows()

    class Slow:
        async def find(self, tenant: UUID, mentions: Sequence[RowQuery]) -> FoundEntities:
            await go.wait()
            return await rows.find(tenant, mentions)

    discovery = Discovery(Slow(), FakeClock(datetime(2026, 1, 1, tzinfo=UTC)))
    assert await discovery.find(TENANT, 1, [HELIOS], until=0.0) == ({HELIOS: ()}, True)
    async with asyncio.TaskGroup() as tasks:
        second = tasks.create_task(discovery.find(TENANT, 1, [HELIOS]))
        tasks.create_task(asyncio.to_thread(lambda: None)).add_done_callback(lambda _: go.set())
    found, away = second.result()
    assert ([each.entity.id for each in found[HELIOS]], away) == (["customer:helios"], False)
    assert await discovery.find(TENANT, 1, [HELIOS], until=0.0) == (found, False)
    assert rows.asked == [HELIOS]


async def test_another_tenant_and_another_ontology_are_asked_anew() -> None:
    clock, rows = FakeClock(datetime(2026, 1, 1, tzinfo=UTC)), Rows()
    discovery = Discovery(rows, clock)
    for tenant, version in ((TENANT, 1), (OTHER, 1), (TENANT, 2)):
        await discovery.find(tenant, version, [HELIOS])
    assert rows.asked == [HELIOS] * 3


async def test_few_are_asked_for_and_few_remembered() -> None:
    clock, rows = FakeClock(datetime(2026, 1, 1, tzinfo=UTC)), Rows()
    discovery = Discovery(rows, clock)
    found, _ = await discovery.find(TENANT, 1, [RowQuery(str(n), ()) for n in range(10_000)])
    assert len(rows.asked) == len(found) == MAX_WANTED


async def test_without_a_database_nothing_is_found() -> None:
    assert await Discovery(None, FakeClock(datetime(2026, 1, 1, tzinfo=UTC))).find(TENANT, 1, [HELIOS]) == ({}, False)
