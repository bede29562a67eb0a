"""Objects as they are looked at from outside: what the API, tried in test_objects_route, does not show of the store."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID, uuid4

import orjson

from app.clock import SystemClock
from app.features.paging.store import ObjectFilter, ObjectStore, PagingStore
from app.features.paging.values import Fidelity
from app.store.pools import Pool
from app.store.queries import Queries
from tests.support.paged import fault, made, moved, record
from tests.support.seeded import scans
from tests.support.teller import ANA, OTHER_TENANT, TENANT

SESSION = UUID(int=0x777)
SQL = Queries.load()
ONE, TWO = made(SESSION, "one"), made(SESSION, "two")


async def filled(pool: Pool) -> ObjectStore:
    store = PagingStore(pool, SQL, SystemClock())
    given = record(SESSION, ONE, TWO, transitions=(moved(ONE, Fidelity.STUB),), faults=(fault(1, ONE), fault(2, ONE)))
    await store.keep(TENANT, ANA, uuid4(), given)
    return ObjectStore(pool, SQL)


async def test_another_tenant_sees_and_changes_nothing(pool: Pool) -> None:
    objects = await filled(pool)
    assert await objects.one(OTHER_TENANT, ANA, ONE.id) is None
    assert await objects.page(OTHER_TENANT, ANA, ObjectFilter(), after=None, limit=9) == []
    assert await objects.faults(OTHER_TENANT, ANA, SESSION, after=None, limit=9) == []
    assert await objects.transitions(OTHER_TENANT, ANA, SESSION, after=None, limit=9) == []
    assert await objects.asked(OTHER_TENANT, ANA, ONE.id, 0) == []
    assert await objects.relationships(OTHER_TENANT, ANA, ONE.id) == []
    assert await objects.pressure(OTHER_TENANT, ANA, SESSION) is None
    assert not await objects.wish(OTHER_TENANT, ANA, ONE.id, "pin")
    found = await objects.one(TENANT, ANA, ONE.id)
    assert found is not None
    assert not found.pinned


async def test_questions_of_the_last_turns(pool: Pool) -> None:
    objects = await filled(pool)
    assert await objects.asked(TENANT, ANA, ONE.id, 1) == [(1, "where?"), (1, "where?")]
    assert await objects.asked(TENANT, ANA, ONE.id, 2) == []
    assert await objects.asked(TENANT, ANA, TWO.id, 0) == []


async def test_pages_of_what_was_made_at_one_moment_neither_skip_nor_repeat(pool: Pool) -> None:
    objects = await filled(pool)
    first = await objects.page(TENANT, ANA, ObjectFilter(), after=None, limit=1)
    place = (first[0].created_at, first[0].ordinal, first[0].object_id)
    rest = await objects.page(TENANT, ANA, ObjectFilter(), after=place, limit=9)
    assert [each.object_id for each in (*first, *rest)] == [TWO.id, ONE.id]


async def test_each_read_opens_one_partition(pool: Pool) -> None:
    await filled(pool)
    none, now = None, datetime.now(UTC)
    bound: dict[str, tuple[object, ...]] = {
        "list": (SESSION, none, none, none, none, none, now, 1, ONE.id, 9, none),
        "one": (ONE.id,),
        "relationships": (ONE.id,),
        "asked": (ONE.id, 0),
        "faults": (SESSION, none, none, none, none, 9),
        "transitions": (SESSION, none, none, none, none, none, 9),
        "pressure": (SESSION,),
        "pin": (ONE.id,),
        "unpin": (ONE.id,),
        "release": (ONE.id,),
    }
    for name, values in bound.items():
        async with pool.transaction(TENANT) as connection:
            told = await connection.fetchval(
                f"EXPLAIN (ANALYZE, FORMAT JSON) {SQL[f'objects.{name}']}", TENANT, ANA, *values
            )
        plan = (orjson.loads(told) if isinstance(told, str | bytes) else told)[0]["Plan"]
        read = {each for each, _ in scans(plan)}
        assert len({each.rpartition("_p")[0] for each in read}) == len(read), (name, read)
