"""What is stored of paging: written in the transaction of the turn, read in one round trip."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from app.clock import SystemClock
from app.paging.entropy import Asked
from app.paging.state import NOTHING_PAGED
from app.paging.values import Fidelity
from app.store.paging import PagingStore
from app.store.pools import Pool
from app.store.queries import Queries
from tests.support.paged import made, mark, whole_record
from tests.support.teller import ANA, TENANT, Teller, talk

SQL = Queries.load()
S1, S2 = UUID(int=0x51), UUID(int=0x52)


@pytest.fixture
def store(pool: Pool) -> PagingStore:
    return PagingStore(pool, SQL, SystemClock())


async def tell(teller: Teller, record: Any, n: int = 0, session: UUID = S1, **given: Any) -> bool:
    return await teller.tell(talk(f"q{n}"), f"a{n}", session=session, facts={"paging": record}, **given)


async def test_what_a_turn_changes_is_read_by_the_next(teller: Teller, store: PagingStore) -> None:
    assert await store.read(TENANT, ANA, S1) == NOTHING_PAGED
    one, two = made(S1, "one"), made(S1, "two")
    record = whole_record(S1)
    assert await tell(teller, record)
    found = await store.read(TENANT, ANA, S1, chains=[mark(f"{S1}answer")])
    assert (found.zone, found.offered, found.marks) == (record.zone, True, record.marks)
    assert found.objects == (
        replace(one, content="", fidelity=Fidelity.STUB, micro_fault_count=1),
        replace(two, content="", access_count=1),
    )
    assert found.relationships == record.relationships
    assert found.asked == {one.id: (Asked(1, "where?"),)}
    assert found.hidden == record.hidden
    assert (await store.read(TENANT, ANA, S1)).hidden == {}
