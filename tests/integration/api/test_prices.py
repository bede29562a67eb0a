"""What a token of memory costs: by header, key and setting; and that a rating moves what the next prompt says."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import pytest

from app.context.assemble import WISHES
from app.settings import Settings
from app.sources import PRICE_NAMES, Price
from app.store import ids
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.tenancy import KeyLimits
from app.store.turns import TurnStore
from tests.support.journey import UPSTREAM, Answer, Journey, build_journey, completion, user
from tests.support.rows import insert_row, read_memories, read_memory, read_messages, set_memories
from tests.support.wired_api import PATIENT_MS, HashEmbedder, WiredApi, error_of

READ = {"x-mneme-memory": "read-only"}
LOCAL = ids.user_id(ids.LOCAL_TENANT, "local")
QUESTION = "Where did my sister leave the garden key?"
COLOURS = ("red", "blue", "green", "white", "black", "brown", "grey", "pink", "violet", "orange")


async def say(api: WiredApi, admin: asyncpg.Connection[Any], *texts: str, key: str | None = None) -> list[UUID]:
    """Things that the user says, each in a conversation of its own: their ids."""
    api.journey.upstream.script = lambda asked: completion("Noted.")
    headers = {"authorization": f"Bearer {key}"} if key else {}
    for text in texts:
        answer = await api.journey.ask([user(text)], headers=headers)
        assert answer.status == 200, answer.body
    found = {row["content"]: row["message_id"] for row in await read_messages(admin)}
    return [found[text] for text in texts]


async def memory(
    admin: asyncpg.Connection[Any], text: str, kind: str = "event", sources: Sequence[UUID] = (), provenance: int = 1
) -> UUID:
    """A memory of the user's, of these messages."""
    made = ids.uuid7(datetime.now(UTC))
    told = [{"message_id": str(each), "session_id": str(each), "quote": text} for each in sources]
    await insert_row(
        admin, "memory_store", memory_id=made, user_id=LOCAL, tenant_id=ids.LOCAL_TENANT, memory_tier=3, memory_scope=1,
        kind=kind, content_text=text, content_hash=sha256(text.encode()).digest(), provenance_type=provenance,
        token_count=len(text.split()) + 3, source_message_ids=list(sources), sources=json.dumps(told),
    )  # fmt: skip
    return made


def many_things() -> list[str]:
    """Forty-one messages: one has all words of `QUESTION`, some have two of them, most have one or none."""
    return [
        *(f"The {colour} kettle whistles in room {n} whenever it rains for hours." for n, colour in enumerate(COLOURS)),
        *(f"My sister bought a {colour} bicycle with {n} gears from the market." for n, colour in enumerate(COLOURS)),
        *(f"In the garden I planted {n} {colour} tulips along the old wall." for n, colour in enumerate(COLOURS)),
        *(f"A {colour} key hangs on hook {n} beside the cellar door." for n, colour in enumerate(COLOURS)),
        "My sister left the garden key under the third flower pot.",
    ]


def block(journey: Journey) -> str:
    """What stands before the question that was sent last."""
    text = str(journey.upstream.asked[-1]["messages"][-1]["content"])
    return text.partition("\n\n")[0] if text.startswith("<mneme") else ""


async def ask(journey: Journey, text: str = QUESTION, headers: Mapping[str, str] | None = None) -> Answer:
    answer = await journey.ask([user(text)], headers={**READ, **(headers or {})})
    assert answer.status == 200, answer.body
    return answer


def at_price(pool: Pool, price: Price, **given: Any) -> Journey:
    settings = Settings(upstream_base_url=UPSTREAM, retrieval_deadline_ms=PATIENT_MS, price=price, **given)
    return build_journey(TurnStore(pool, Queries.load()), embedder=HashEmbedder(), settings=settings)


async def test_a_dearer_token_shows_less(
    api: WiredApi, pool: Pool, client: httpx.AsyncClient, admin: asyncpg.Connection[Any]
) -> None:
    await say(api, admin, *many_things())
    said: dict[str, str] = {}
    for price in PRICE_NAMES:
        await ask(api.journey, headers={"x-mneme-price": price})
        said[price] = block(api.journey)
        own = at_price(pool, price)
        await ask(own)
        assert block(own).split("\n")[1:-1] == said[price].split("\n")[1:-1], "the setting says the same"
    assert "third flower pot" in said["frugal"]
    sizes = [len(said[price]) for price in ("frugal", "balanced", "thorough")]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[2]
    await ask(api.journey)
    assert block(api.journey).split("\n")[1:-1] == said["balanced"].split("\n")[1:-1], "what nobody says"
    await ask(at := at_price(pool, "frugal"), headers={"x-mneme-price": "thorough"})
    assert block(at).split("\n")[1:-1] == said["thorough"].split("\n")[1:-1], "a header is more than a setting"


async def test_the_price_of_a_key(locked: WiredApi, admin: asyncpg.Connection[Any]) -> None:
    keys: dict[Price | None, str] = {}
    prices: tuple[Price | None, ...] = (None, *PRICE_NAMES)
    for price in prices:
        keys[price], _ = await locked.tenancy.create_key("acme", "k", user="ana", limits=KeyLimits(price=price))
    await say(locked, admin, *many_things(), key=keys[None])
    said: dict[Price | None, int] = {}
    for price, key in keys.items():
        await ask(locked.journey, headers={"authorization": f"Bearer {key}"})
        said[price] = len(block(locked.journey))
    assert said["frugal"] < said["thorough"]
    assert said["frugal"] <= said["balanced"] <= said["thorough"]
    assert said[None] == said["balanced"]
    both = {"authorization": f"Bearer {keys['frugal']}", "x-mneme-price": "thorough"}
    await ask(locked.journey, headers=both)
    assert len(block(locked.journey)) == said["thorough"], "a header is more than a key"


async def test_a_price_that_is_none_is_refused(api: WiredApi, client: httpx.AsyncClient) -> None:
    refused = await api.journey.ask([user("hi")], headers={"x-mneme-price": "cheap"})
    assert refused.status == 400
    told = refused.json()["error"]
    assert told.keys() == {"message", "type", "param", "code"}
    assert (told["type"], told["param"]) == ("invalid_request_error", "x-mneme-price")
    assert api.journey.upstream.requests == []
    for path in ("context", "memories/search"):
        answer = await client.post(f"/api/v1/{path}", json={"query": "x", "price": "cheap"})
        assert answer.status_code == 400, answer.text
        assert error_of(answer)["param"] == "price"
    limits = {"price": "cheap"}
    answer = await client.post("/api/v1/keys", json={"name": "x", "user": "ana", "limits": limits})
    assert (answer.status_code, error_of(answer)["param"]) == (400, "limits.price")


async def test_a_preview_and_a_search_at_a_price(api: WiredApi, client: httpx.AsyncClient) -> None:
    for price in (None, *PRICE_NAMES):
        for path in ("context", "memories/search"):
            assert (await client.post(f"/api/v1/{path}", json={"query": "x", "price": price})).status_code == 200
        assert api.previewer.asked[-1].price == api.searcher.asked[-1].price == price


# --- what asks nothing ------------------------------------------------------------------------------------------------------


async def test_what_asks_nothing_gets_standing_wishes_alone(
    api: WiredApi, client: httpx.AsyncClient, admin: asyncpg.Connection[Any]
) -> None:
    await say(api, admin, *many_things())
    asked = [
        (text, price)
        for text in ("Say hi", "What is 17 times 23?", "Write a haiku", "Continue", "Thanks!")
        for price in PRICE_NAMES
    ]
    for text, price in asked:
        await ask(api.journey, text, {"x-mneme-price": price})
        assert block(api.journey) == "", (text, price)
    order = "Always answer in bullet points"
    await memory(admin, order, "instruction", await say(api, admin, order), provenance=5)
    for text, price in asked:
        await ask(api.journey, text, {"x-mneme-price": price})
        assert block(api.journey).split("\n")[1:-1] == [WISHES, f"- {order}"], (text, price)


async def test_a_memory_of_two_lines_is_answered(
    api: WiredApi, client: httpx.AsyncClient, admin: asyncpg.Connection[Any]
) -> None:
    await say(api, admin, "My dog Rex is afraid of thunder.", "We moved to the lake in spring.")
    for question, answer in (("What is Rex afraid of?", "thunder"), ("When did we move?", "spring")):
        await ask(api.journey, question)
        assert answer in block(api.journey)
    for idle in ("Say hi", "What is 17 times 23?", "Write a haiku", "Continue"):
        await ask(api.journey, idle)
        assert block(api.journey) == "", idle


async def test_the_same_question_again_does_not_hide_the_answer(
    api: WiredApi, client: httpx.AsyncClient, admin: asyncpg.Connection[Any]
) -> None:
    await say(api, admin, "My dog Rex is afraid of thunder.", "We moved to the lake in spring.", "I like jazz.")
    for n in range(10):
        answer = await api.journey.ask([user("What is Rex afraid of?")])
        assert answer.status == 200
        assert "thunder" in block(api.journey), n


# --- what is learned of answers ---------------------------------------------------------------------------------------------


async def rate(client: httpx.AsyncClient, call: str, outcome: str) -> list[str]:
    """The memories that the rating moved."""
    answer = await client.post("/api/v1/outcomes", json={"call": call, "outcome": outcome})
    assert answer.status_code in (200, 201), answer.text
    return [each["id"] for each in answer.json()["memories"]]


async def test_a_rating_moves_what_the_next_prompt_says(
    api: WiredApi, pool: Pool, client: httpx.AsyncClient, admin: asyncpg.Connection[Any]
) -> None:
    """Two memories that answer alike, and room for one: bad answers make way for the other, a good one keeps it."""
    told = {
        str(await memory(admin, f"The spare key of the cabin is with neighbour {name}")): name
        for name in ("Anders", "Bertil")
    }
    journey = at_price(pool, "balanced", memory_budget_tokens=75)
    question = "Which neighbour has the spare key of my cabin?"

    async def shown() -> tuple[str, str]:
        answer = await ask(journey, question)
        (name,) = [each for each in told.values() if each in block(journey)]
        return name, answer.headers["x-mneme-call-id"]

    first, call = second, _ = await shown()
    for _ in range(3):
        if second == first:
            assert await rate(client, call, "negative") == [each for each, name in told.items() if name == first]
            second, call = await shown()
    assert second != first
    await rate(client, call, "positive")
    assert (await shown())[0] == second


async def test_a_bad_memory_is_not_worth_its_tokens_any_more(
    api: WiredApi, client: httpx.AsyncClient, admin: asyncpg.Connection[Any]
) -> None:
    await say(api, admin, *many_things())
    for number in range(12):
        await memory(admin, f"Heard that garden tool number {number} is rusty")
    shown = []
    for importance in (1.0, 0.5, 0.0):
        await set_memories(admin, await read_memories(admin), importance=importance)
        await ask(api.journey, "Which of my garden tools is rusty?", {"x-mneme-price": "frugal"})
        shown.append(block(api.journey).count("is rusty"))
    assert shown == sorted(shown, reverse=True)
    assert shown[0] > shown[2], shown


async def test_a_memory_is_used_where_its_message_stood_for_it(
    api: WiredApi, client: httpx.AsyncClient, admin: asyncpg.Connection[Any]
) -> None:
    said = await say(api, admin, "My sister left the garden key under the third flower pot.")
    made = await memory(admin, "Has a key somewhere", sources=said)
    answer = await ask(api.journey)
    assert "third flower pot" in block(api.journey)
    assert "somewhere" not in block(api.journey)
    assert await rate(client, answer.headers["x-mneme-call-id"], "positive") == [str(made)]
    assert (await read_memory(admin, made))["importance"] == pytest.approx(0.6)
