"""/api/v1/outcomes over real Postgres (seed 001: outcomes)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import pytest

from app.store import ids
from app.store.erasure import ERASER_ROLE, Eraser, own_connection
from app.store.queries import Queries
from app.store.turns import TurnStore
from tests.support.calls import CapturedCall, capture
from tests.support.cases import cases
from tests.support.clock import FakeClock
from tests.support.rows import count_rows, insert_row, read_consolidation, update_rows
from tests.support.wired_api import WiredApi, all_pages, error_of

OUTCOMES = "/api/v1/outcomes"
ANA = ids.user_id(ids.LOCAL_TENANT, "ana")


def audit(*memories: str, messages: int = 1, live: int = 0) -> dict[str, Any]:
    """An audit in which these memories were chosen, one more was dropped, and some messages were chosen as well."""
    rows = [(each, "memory", "chosen") for each in memories]
    rows += [(str(UUID(int=n + 1)), "message", "chosen") for n in range(messages)]
    rows.append((str(UUID(int=99)), "memory", "budget"))
    columns: dict[str, list[Any]] = {
        "id": [row[0] for row in rows],
        "source": [row[1] for row in rows],
        "reason": [row[2] for row in rows],
        "because_of": [None for _ in rows],
        "score": [0.5 for _ in rows],
    }
    return {"v": 2, "live_blocks": live, "items": columns}


async def remember(client: httpx.AsyncClient, text: str, importance: float = 0.5, user: str = "ana") -> str:
    answer = await client.post("/api/v1/memories", json={"user": user, "text": text, "importance": importance})
    assert answer.status_code == 201, answer.text
    made: str = answer.json()["id"]
    return made


async def importance(client: httpx.AsyncClient, memory: str) -> float:
    found: float = (await client.get(f"/api/v1/memories/{memory}")).json()["importance"]
    return round(found, 6)


async def rate(client: httpx.AsyncClient, call: str, status: int, **body: Any) -> dict[str, Any]:
    answer = await client.post(OUTCOMES, json={"call": call} | body)
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_good_answer_makes_its_memories_more_important(
    client: httpx.AsyncClient, api: WiredApi, turns: TurnStore, admin: asyncpg.Connection[Any]
) -> None:
    """Seed 001 §4.3: a positive outcome adds 0.1."""
    first, second, other = [await remember(client, text) for text in ("Likes recipes", "Sells bread", "Has a cat")]
    call = await capture(turns, CapturedCall(api.clock.now(), audit=audit(first, second)))

    made = await rate(client, call, 201, outcome="positive", comment="340 views", metadata={"views": 340})
    assert [made[name] for name in ("call", "user", "outcome", "score", "comment")] == [
        call, "ana", "positive", 1, "340 views",
    ]  # fmt: skip
    assert {each["id"] for each in made["memories"]} == {first, second}
    assert [await importance(client, each) for each in (first, second, other)] == [0.6, 0.6, 0.5]
    told = (await client.get(f"/api/v1/memories/{first}/history")).json()["events"][-1]
    assert (told["event"], told["actor"], told["after"]["call"]) == ("rated", "api", call)
    assert (await client.get(f"{OUTCOMES}/{call}")).json() == made
    assert [row["due_at"] is not None for row in await read_consolidation(admin)] == [True], (
        "there may be a pattern in it"
    )


async def test_the_last_word_counts_once(client: httpx.AsyncClient, api: WiredApi, turns: TurnStore) -> None:
    memory = await remember(client, "Likes recipes")
    call = await capture(turns, CapturedCall(api.clock.now(), audit=audit(memory)))

    await rate(client, call, 201, outcome="positive")
    for _ in range(3):
        await rate(client, call, 200, outcome="positive", comment="again")
    assert await importance(client, memory) == 0.6
    assert (await rate(client, call, 200, score=-0.5))["outcome"] == "negative"
    assert await importance(client, memory) == 0.45
    await rate(client, call, 200, outcome="neutral")
    assert await importance(client, memory) == 0.5
    await rate(client, call, 200, score=0.2)
    assert (await client.delete(f"{OUTCOMES}/{call}")).status_code == 200
    assert await importance(client, memory) == 0.5
    assert (await client.get(f"{OUTCOMES}/{call}")).status_code == 404
    assert (await client.delete(f"{OUTCOMES}/{call}")).status_code == 404


async def test_the_same_word_from_many_at_once_counts_once(
    client: httpx.AsyncClient, api: WiredApi, turns: TurnStore
) -> None:
    memory = await remember(client, "Likes recipes")
    call = await capture(turns, CapturedCall(api.clock.now(), audit=audit(memory)))
    answers = await asyncio.gather(
        *(client.post(OUTCOMES, json={"call": call, "outcome": "negative"}) for _ in range(8))
    )
    assert sorted(each.status_code for each in answers) == [200] * 7 + [201]
    assert await importance(client, memory) == 0.4


@pytest.mark.parametrize(("start", "word", "end"), [(0.95, "positive", 1.0), (0.04, "negative", 0.0)])
async def test_importance_stays_within_its_bounds_and_comes_back(
    client: httpx.AsyncClient, api: WiredApi, turns: TurnStore, start: float, word: str, end: float
) -> None:
    memory = await remember(client, "Likes recipes", importance=start)
    call = await capture(turns, CapturedCall(api.clock.now(), audit=audit(memory)))
    await rate(client, call, 201, outcome=word)
    assert await importance(client, memory) == end
    await client.delete(f"{OUTCOMES}/{call}")
    assert await importance(client, memory) == start


async def test_memories_of_earlier_blocks_that_still_stood_in_the_prompt_count(
    client: httpx.AsyncClient, api: WiredApi, turns: TurnStore, admin: asyncpg.Connection[Any]
) -> None:
    gone, earlier, own = [await remember(client, text) for text in ("Gone", "Earlier", "Own")]
    session, at = UUID(int=7), api.clock.now()
    for n, memory in enumerate((gone, earlier)):
        await insert_row(
            admin, "context_blocks", user_id=ANA, tenant_id=ids.LOCAL_TENANT, session_id=session, epoch=0,
            message_id=UUID(int=n), chain_hash=b"c", message_hash=b"m", text="t", token_count=3,
            item_ids=[UUID(memory), UUID(int=50)], created_at=at + timedelta(seconds=n),
        )  # fmt: skip
    call = await capture(turns, CapturedCall(at + timedelta(seconds=5), session=session, audit=audit(own, live=1)))
    await update_rows(admin, "compilations", {}, session_id=session)
    made = await rate(client, call, 201, outcome="positive")
    assert {each["id"] for each in made["memories"]} == {earlier, own}, "messages and unknown ids are left out"


async def test_a_call_without_memories_is_rated_all_the_same(
    client: httpx.AsyncClient, api: WiredApi, turns: TurnStore
) -> None:
    call = await capture(turns, CapturedCall(api.clock.now()))
    assert (await rate(client, call, 201, score=0.25))["memories"] == []


async def test_the_report_sets_answers_with_a_memory_against_those_without(
    client: httpx.AsyncClient, api: WiredApi, turns: TurnStore, admin: asyncpg.Connection[Any]
) -> None:
    good, bad, always = [await remember(client, text) for text in ("Good", "Bad", "Always")]
    await remember(client, "Never")
    at = api.clock.now()
    plan = [((good, always), 1.0), ((good, always), 0.5), ((bad, always), -1.0), ((always,), 0.0)]
    for n, (memories, score) in enumerate(plan):
        call = await capture(turns, CapturedCall(at + timedelta(seconds=n + 1), audit=audit(*memories)))
        await rate(client, call, 201, score=score)
    # An answer of the time before these memories says nothing about them.
    old = await capture(turns, CapturedCall(at - timedelta(hours=1), audit=audit()))
    await rate(client, old, 201, outcome="negative")

    rows = {each["id"]: each for each in await all_pages(client, f"{OUTCOMES}/report", "memories", limit=1, user="ana")}
    assert next(iter(rows)) == always
    assert set(rows) == {good, bad, always}
    assert rows[good]["answers_with"] == {"answers": 2, "positive": 2, "negative": 0, "mean_score": 0.75}
    assert rows[good]["answers_without"] == {"answers": 2, "positive": 0, "negative": 1, "mean_score": -0.5}
    assert rows[good]["difference"] == 1.25
    assert rows[bad]["difference"] == -1.5
    assert rows[always]["answers_without"] == {"answers": 0, "positive": 0, "negative": 0, "mean_score": None}
    assert rows[always]["difference"] is None
    listed = await all_pages(client, OUTCOMES, "outcomes", limit=2, user="ana")
    assert [each["score"] for each in listed] == [0.0, -1.0, 0.5, 1.0, -1.0]
    # Another user's answers are in the report of all, and in nobody else's.
    bobs = await remember(client, "Good", user="bob")
    call = await capture(turns, CapturedCall(at + timedelta(seconds=9), user="bob", audit=audit(bobs)))
    await rate(client, call, 201, outcome="negative")
    of_all = {each["id"]: each for each in await all_pages(client, f"{OUTCOMES}/report", "memories", limit=1)}
    assert of_all.pop(bobs)["answers_with"]["answers"] == 1
    assert of_all == rows
    assert len(await all_pages(client, OUTCOMES, "outcomes", limit=2)) == 6
    await client.delete(f"/api/v1/memories/{good}")
    left = await all_pages(client, f"{OUTCOMES}/report", "memories", user="ana")
    assert good not in {each["id"] for each in left}


@cases(
    "body",
    [
        {"call": "x", "outcome": "positive"},
        {"call": str(UUID(int=1)), "outcome": "positive"},
        {"call": str(UUID(int=1))},
        {"outcome": "positive"},
        {"call": str(UUID(int=1)), "outcome": "great"},
        {"call": str(UUID(int=1)), "score": 1.5},
        {"call": str(UUID(int=1)), "score": -1, "outcome": "positive"},
        {"call": str(UUID(int=1)), "score": 1, "comment": "x" * 4001},
    ],
)
async def test_what_is_no_outcome_is_refused(client: httpx.AsyncClient, body: dict[str, Any]) -> None:
    answer = await client.post(OUTCOMES, json=body)
    assert answer.status_code in (400, 404)
    error_of(answer)
    assert (await client.get(OUTCOMES)).json() == {"outcomes": [], "next": None}


async def test_another_tenants_or_users_call_is_none(locked: WiredApi, turns: TurnStore) -> None:
    key, info = await locked.tenancy.create_key("acme", "k")
    other, _ = await locked.tenancy.create_key("other", "k")
    bobs, _ = await locked.tenancy.create_key("acme", "k", user="bob")
    async with locked.client(key) as acme, locked.client(other) as stranger, locked.client(bobs) as bob:
        memory = await remember(acme, "Likes recipes")
        call = await capture(turns, CapturedCall(locked.clock.now(), tenant=info.tenant_id, audit=audit(memory)))
        for foreign in (stranger, bob):
            await rate(foreign, call, 404, outcome="negative")
            assert (await foreign.get(f"{OUTCOMES}/{call}")).status_code == 404
            assert (await foreign.delete(f"{OUTCOMES}/{call}")).status_code == 404
        await rate(acme, call, 201, outcome="positive")
        assert (await stranger.get(OUTCOMES, params={"user": "ana"})).json()["outcomes"] == []
        assert (await stranger.get(f"{OUTCOMES}/report", params={"user": "ana"})).json()["memories"] == []
        assert (await bob.get(OUTCOMES)).json()["outcomes"] == []
        assert await importance(acme, memory) == 0.6


async def test_an_outcome_goes_with_its_user_and_none_comes_after(
    client: httpx.AsyncClient, api: WiredApi, turns: TurnStore, database: str, admin: asyncpg.Connection[Any]
) -> None:
    memory = await remember(client, "Likes recipes")
    at = api.clock.now()
    call = await capture(turns, CapturedCall(at, audit=audit(memory)))
    await rate(client, call, 201, outcome="positive", comment="lovely")
    clock = FakeClock(at + timedelta(seconds=1))
    receipt = await Eraser(own_connection(database, ERASER_ROLE), Queries.load(), clock).erase(ids.LOCAL_TENANT, ANA)
    assert (receipt.counts["answer_outcomes"], receipt.counts["memory_outcomes"]) == (1, 1)
    await rate(client, call, 404, outcome="positive")
    assert await count_rows(admin, "answer_outcomes") == 0
