"""How well sentences of business talk are resolved: the labelled set, over the real tables."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from app.context.resolution import Who
from app.features.knowledge.entities import EntityStore
from app.features.knowledge.resolve import Resolver
from app.store import ids
from app.store.pools import Pool
from app.store.queries import Queries
from tests.support.clock import FakeClock
from tests.support.entities import STAGES, add_business, measure
from tests.support.labelled_mentions import ONTOLOGY, SETS, Rows, labelled

PRECISION, RECALL = 0.9, 0.9
"""Floors of the set as a whole …"""
STAGE_PRECISION, STAGE_RECALL = 0.9, 0.9
"""… and of each stage in it …"""
FUZZY_RECALL = 0.6
"""… but that a short name with a slip in it ("Ana Lopes") is less similar than the 0.7 that seed 004 asks for."""


@pytest.mark.parametrize("name", SETS)
async def test_precision_and_recall_by_stage(pool: Pool, admin: asyncpg.Connection[Any], name: str) -> None:
    clock = FakeClock(datetime.now(UTC))
    who = Who(ids.LOCAL_TENANT, ids.user_id(ids.LOCAL_TENANT, "ana"))
    await add_business(admin, who)
    resolver = Resolver(EntityStore(pool, Queries.load(), clock), Rows(), clock)

    found = await measure(resolver, who, labelled(name), clock.now())

    for stage in STAGES:
        print(f"{stage:<16}{found.gold[stage]:>5}{found.precision(stage):>8.3f}{found.recall(stage):>8.3f}")
    print(f"{'all':<16}{found.gold.total():>5}{found.precision():>8.3f}{found.recall():>8.3f}")
    told = "\n".join(found.wrong)
    print(told)
    assert found.precision() >= PRECISION, told
    assert found.recall() >= RECALL, told
    for stage in STAGES:
        assert found.precision(stage) >= STAGE_PRECISION, (stage, told)
        assert found.recall(stage) >= (FUZZY_RECALL if stage == "fuzzy" else STAGE_RECALL), (stage, told)


def test_the_set_is_large_enough_and_means_what_there_is() -> None:
    cases = [case for name in SETS for case in labelled(name)]
    assert len(cases) > 150
    assert sum(not each.gold for each in cases) > 30
    assert {gold.stage for each in cases for gold in each.gold} == set(STAGES)
    assert {thing.partition(":")[0] for each in cases for gold in each.gold for thing in gold.things} == set(
        ONTOLOGY.types
    )
