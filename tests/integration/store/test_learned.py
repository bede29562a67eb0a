"""What became of one turn: found by its call, read in one partition, and told once its job has had its effect."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from app.capture.record import Recorder
from app.features.chat import LearnedTurns, MadeMemory, TurnMessages
from app.providers.tokens import CountCache
from app.store import ids
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.turns import TurnStore
from tests.support.seeded import memory, others, scans
from tests.support.teller import ANA, NOW, OTHER_TENANT, TENANT, Teller, talk
from tests.support.wired_api import HashEmbedder, WordCounter, make_space

Admin = asyncpg.Connection
SQL = Queries.load()
SESSION = UUID(int=0x51)
CALL = ids.uuid7(NOW)
LATER = NOW + timedelta(minutes=5)


@pytest.fixture
async def learned(pool: Pool, admin: Admin) -> LearnedTurns:
    """After one turn of ana's."""
    await make_space(admin)
    store = TurnStore(pool, SQL)
    teller = Teller(store, Recorder(store, HashEmbedder(), CountCache(), WordCounter()), admin)
    await teller.tell(talk("Remember, it is Friday"), "All right", session=SESSION, call=CALL)
    return LearnedTurns(pool, SQL)


async def told(learned: LearnedTurns) -> TurnMessages:
    said = await learned.said(TENANT, ANA, SESSION, CALL, NOW, LATER)
    assert said is not None
    return said


async def test_a_turn_is_found_by_its_call(learned: LearnedTurns) -> None:
    said = await told(learned)
    assert len(said.messages) == 2
    assert said.question == said.messages[0]
    assert await learned.said(TENANT, ANA, SESSION, uuid4(), NOW, LATER) is None
    assert await learned.said(OTHER_TENANT, ANA, SESSION, CALL, NOW, LATER) is None
    assert await learned.said(TENANT, ANA, SESSION, CALL, LATER, LATER) is None


def made_at(n: int, at: datetime = NOW) -> int:
    """The number of an id that begins with its time, as the product's do."""
    return ids.uuid7_of(at, n).int


async def test_what_was_made_of_it(learned: LearnedTurns, admin: Admin) -> None:
    said = await told(learned)
    assert not await learned.done(TENANT, ANA, said)
    nothing = await learned.made(TENANT, ANA, said, NOW)
    assert nothing == (None, ())
    await admin.execute(
        "INSERT INTO agent_data.job_effects (user_id, tenant_id, job_key, at) VALUES ($1, $2, $3, now())",
        ANA, TENANT, f"learn:{said.question}",
    )  # fmt: skip
    await admin.execute(
        "INSERT INTO agent_data.episodes (user_id, tenant_id, message_id, session_id, at, event_type)"
        " VALUES ($1, $2, $3, $4, now(), 'statement')",
        ANA, TENANT, said.question, SESSION,
    )  # fmt: skip
    own = await memory(admin, made_at(1), "preference", "It is Friday", provenance_turn_id=said.question)
    drawn = await memory(admin, made_at(2), "fact", "Drawn from it", source_message_ids=[said.messages[1]])
    await memory(admin, made_at(3), "fact", "Of another message", provenance_turn_id=uuid4())
    outranked = await memory(
        admin, made_at(4), "fact", "By a row", provenance_turn_id=said.question, status="invalidated"
    )
    await memory(
        admin,
        made_at(6),
        "fact",
        "Another wording",
        provenance_turn_id=said.question,
        status="superseded",
        superseded_how="merged",
    )
    await memory(admin, made_at(7), "fact", "", provenance_turn_id=said.question, status="forgotten")
    before = NOW - timedelta(days=1)
    await memory(
        admin, made_at(5, before), "fact", "Said again only", source_message_ids=[said.question], created_at=before
    )
    assert await learned.done(TENANT, ANA, said)
    assert not await learned.done(OTHER_TENANT, ANA, said)
    made = await learned.made(TENANT, ANA, said, NOW)
    assert made.event_type == "statement"
    assert made.memories == (
        MadeMemory(own, "preference", "It is Friday", 0.5),
        MadeMemory(drawn, "fact", "Drawn from it", 0.5),
        MadeMemory(outranked, "fact", "By a row", 0.5),
    )


async def test_each_look_reads_one_partition_by_an_index(learned: LearnedTurns, pool: Pool, admin: Admin) -> None:
    said = await told(learned)
    bound: dict[str, list[Any]] = {
        "said": [ANA, SESSION, CALL, NOW, LATER],
        "learned": [ANA, f"learn:{said.question}"],
        "episode": [ANA, said.question],
        "made": [ANA, list(said.messages), NOW],
    }
    await others(admin)
    for name, given in bound.items():
        async with pool.transaction(TENANT) as connection:
            answer = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {SQL[f'chat.{name}']}", *given)
        (plan,) = json.loads(answer) if isinstance(answer, str | bytes) else answer
        read = scans(plan["Plan"])
        assert len({table.partition("_p")[2].partition("_")[0] for table, _ in read}) == 1, (name, read)
        assert "Seq Scan" not in {kind for _, kind in read}, (name, read)
