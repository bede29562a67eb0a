"""The further legs of retrieval, by entities, time, recency and summaries; and counts of words that stay true."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import numpy as np
import pytest

from app.store import ids
from app.store.places import More, ids_of
from tests.support.teller import ANA, NOW, TENANT, Teller, talk

S1, S2, S3 = (UUID(int=n) for n in (1, 2, 3))


async def memory(teller: Teller, number: int, text: str, **given: Any) -> UUID:
    values: dict[str, Any] = {
        "memory_id": UUID(int=1000 + number), "user_id": ANA, "tenant_id": TENANT, "memory_tier": 3, "memory_scope": 1,
        "content_text": text, "content_hash": number.to_bytes(4, "big"), "provenance_type": 0, "token_count": 5,
        "created_at": NOW,
    } | given  # fmt: skip
    columns = ", ".join(values)
    marks = ", ".join(f"${n}" for n in range(1, len(values) + 1))
    await teller.admin.execute(f"INSERT INTO agent_data.memory_store ({columns}) VALUES ({marks})", *values.values())
    found: UUID = values["memory_id"]
    return found


async def more(teller: Teller, **given: Any) -> dict[UUID, int]:
    """Which items, and by which legs."""
    asked: dict[str, Any] = {
        "vector": None, "space": 1, "confine": None, "session": None, "visible": 1, "ancestors": [], "history": False,
        "only": None, "entities": [], "begin": None, "end": None, "limits": (0, 0, 0, 0),
    } | given  # fmt: skip
    found: More = await teller.store.retrieve_more(TENANT, ANA, **asked)
    assert np.isnan(found.sims).all(), "no vector was asked with"
    return dict(zip(map(UUID, ids_of(found.places)), found.legs.tolist(), strict=True))


async def said(teller: Teller) -> dict[str, UUID]:
    rows = await teller.rows("SELECT content, message_id FROM agent_data.conversation_history")
    return {row["content"]: row["message_id"] for row in rows}


async def test_memories_about_an_entity(teller: Teller) -> None:
    lisbon = await memory(teller, 1, "Lives in Lisbon", entity_ids=["lisbon", "flat"])
    await memory(teller, 2, "Lives in Porto", entity_ids=["porto"])
    await memory(teller, 3, "Lived in Lisbon", entity_ids=["lisbon"], status="superseded")
    await memory(teller, 4, "Somebody else's", entity_ids=["lisbon"], memory_scope=0, session_id=S2)
    assert await more(teller, entities=["lisbon"], limits=(5, 0, 0, 0), session=S1) == {lisbon: 1}
    assert await more(teller, entities=["lisbon"], session=S1) == {}, "not asked for"
    assert await more(teller, entities=["lisbon"], limits=(5, 0, 0, 0), only=0) == {}
    assert await more(teller, entities=[], limits=(5, 0, 0, 0)) == {}


async def test_what_is_of_a_time(teller: Teller) -> None:
    for n, session in enumerate((S1, S2)):
        teller.at = NOW - timedelta(days=10 * n)
        await teller.tell(talk(f"said {n}"), session=session)
    held = await memory(teller, 1, "A fact", valid_from=NOW - timedelta(days=10))
    told = await said(teller)
    window = {"begin": NOW - timedelta(days=11), "end": NOW - timedelta(days=9), "limits": (0, 9, 0, 0)}
    assert await more(teller, **window) == {told["said 1"]: 2, held: 2}
    assert await more(teller, **window, only=1) == {held: 2}
    assert await more(teller, **window, only=0) == {told["said 1"]: 2}
    assert await more(teller, **window, ancestors=[S2]) == {held: 2}, "it stands in the prompt"
    assert await more(teller, **window, session=S2, visible=1) == {held: 2}
    assert await more(teller, **window, confine=S1) == {}
    assert await more(teller, begin=NOW - timedelta(days=5), limits=(0, 9, 0, 0)) == {told["said 0"]: 2}
    assert await more(teller, end=NOW - timedelta(days=5), limits=(0, 9, 0, 0)) == {told["said 1"]: 2, held: 2}
    assert await more(teller, limits=(0, 9, 0, 0)) == {}, "no time was asked for"


async def test_the_latest_and_the_summaries(teller: Teller) -> None:
    for n, session in enumerate((S1, S2)):
        await teller.tell(talk(f"said {n}", "an answer", f"more {n}"), session=session)
    summary = await memory(teller, 1, "All of it", kind="summary", entity_ids=["lisbon"])
    profile = await memory(teller, 2, "All of Lisbon", kind="entity_profile")
    await memory(teller, 3, "A fact")
    latest = await more(teller, limits=(0, 0, 2, 0))
    told = await said(teller)
    assert set(latest.values()) == {4}
    assert told["more 1"] in latest
    assert len(latest) == 2
    found = await more(teller, limits=(3, 0, 0, 3), entities=["lisbon"])
    assert found == {summary: 1 + 8, profile: 8}


async def test_of_each_leg_the_nearest(teller: Teller) -> None:
    items = [await memory(teller, n, f"Lisbon {n}", entity_ids=["lisbon"]) for n in range(4)]
    vectors = np.eye(256, dtype=np.float32)[:4]
    for item, vector in zip(items[:3], vectors, strict=False):
        await teller.admin.execute(
            "SELECT agent_data.add_vectors($1, $2, 1::smallint, 1::smallint, ARRAY[$3::uuid], ARRAY[$4::timestamptz],"
            " ARRAY[$5::text::halfvec(256)])",
            TENANT, ANA, item, NOW, str(vector.tolist()),
        )  # fmt: skip
    found = await teller.store.retrieve_more(
        TENANT, ANA, vector=vectors[1], space=1, confine=None, session=None, visible=1, ancestors=[], history=False,
        only=None, entities=["lisbon"], begin=None, end=None, limits=(1, 0, 0, 0),
    )  # fmt: skip
    assert [UUID(each) for each in ids_of(found.places)] == [items[1]]
    assert found.sims.tolist() == pytest.approx([1.0], abs=1e-3)


async def test_a_vectors_place_is_from_when_a_memory_holds(teller: Teller) -> None:
    since = datetime(2024, 5, 1, tzinfo=UTC)
    item = await memory(teller, 1, "Lives in Lisbon", valid_from=since)
    await teller.admin.execute(
        "SELECT agent_data.add_vectors($1, $2, 1::smallint, 1::smallint, ARRAY[$3::uuid], ARRAY[$4::timestamptz],"
        " ARRAY[array_fill(1, ARRAY[256])::real[]::vector::halfvec])",
        TENANT, ANA, item, NOW,
    )  # fmt: skip
    (row,) = await teller.rows("SELECT place, item_at FROM agent_data.embeddings")
    at = int.from_bytes(row["place"][32:40], "big")
    assert datetime(2000, 1, 1, tzinfo=UTC) + timedelta(microseconds=at) == since
    assert row["item_at"] == NOW


async def test_how_sure_a_memory_is(teller: Teller) -> None:
    validated = NOW - timedelta(days=3)
    one = await memory(teller, 1, "Lives in Lisbon", reinforcement_count=3, last_validated_at=validated)
    two = await memory(teller, 2, "Likes tea")
    rows = await teller.admin.fetch(
        "SELECT item_id, reinforcements, sure_since"
        " FROM agent_data.fetch_chosen($1, $2, $3, $4, $5, NULL, NULL, 0, '{}', false)",
        TENANT, ANA, [one, two], [1, 1], [0, 0],
    )  # fmt: skip
    assert {tuple(each) for each in rows} == {(one, 3, validated), (two, 0, NOW)}


async def test_the_strategies_of_the_database(teller: Teller) -> None:
    assert '"factual_entity_focused"' in await teller.store.strategies()
    await teller.admin.execute("DELETE FROM agent_data.system_config WHERE key = 'retrieval_strategy_weights'")
    assert await teller.store.strategies() == ""


# --- counts of words ------------------------------------------------------------------------------------------------------


async def recounted(admin: asyncpg.Connection[Any]) -> tuple[Counter[str], int, int]:
    """The counts as they should be: of every text that is there."""
    rows = await admin.fetch(
        "SELECT content_tsv::text AS words, token_count FROM agent_data.memory_store WHERE content_text <> ''"
        " UNION ALL SELECT content_tsv::text, token_count FROM agent_data.conversation_history"
        " WHERE length(content_tsv) > 0"
    )
    words = Counter[str]()
    for row in rows:
        found = await admin.fetch("SELECT lexeme FROM unnest($1::text::tsvector)", row["words"])
        words.update(each["lexeme"] for each in found)
    return words, len(rows), sum(row["token_count"] for row in rows)


async def counted(admin: asyncpg.Connection[Any]) -> tuple[Counter[str], int, int]:
    rows = await admin.fetch("SELECT lexeme, documents FROM agent_data.lexemes")
    stats = await admin.fetchrow("SELECT sum(documents) AS n, sum(total_terms) AS terms FROM agent_data.user_stats")
    assert stats is not None
    words = Counter({row["lexeme"]: row["documents"] for row in rows})
    assert all(words.values()), "a word in no document has no row"
    return words, int(stats["n"] or 0), int(stats["terms"] or 0)


VOCABULARY = "tea coffee violin Lisbon Porto garden bicycle winter sister kitchen".split()  # noqa: SIM905 - as read


@pytest.mark.parametrize("seed", range(3))
async def test_counts_stay_true_whatever_becomes_of_memories(teller: Teller, seed: int) -> None:
    """A random walk: insert, merge, supersede, edit, forget (with all wordings), what was drawn, expire and remove."""
    chance, number = random.Random(seed), 0
    admin = teller.admin

    def words() -> str:
        return " ".join(chance.choices(VOCABULARY, k=chance.randint(1, 5)))

    async def some(condition: str = "true") -> UUID | None:
        rows = await admin.fetch(f"SELECT memory_id FROM agent_data.memory_store WHERE {condition} ORDER BY memory_id")
        return chance.choice(rows)["memory_id"] if rows else None

    async def add(**given: Any) -> UUID:
        nonlocal number
        number += 1
        text = f"{words()} number{number}"
        made = await memory(teller, number, text, token_count=len(text.split()), **given)
        await admin.execute("SELECT agent_data.count_words($1, $2, '{}', ARRAY[$3::uuid])", TENANT, ANA, made)
        return made

    async def forget(item: UUID) -> None:
        await admin.execute(
            "UPDATE agent_data.memory_store SET status = 'forgotten', content_text = '', content_hash = '', token_count = 0,"
            " sources = '[]' WHERE memory_id = $1",
            item,
        )
        await admin.execute(
            "INSERT INTO agent_data.suppressions (user_id, tenant_id, item_id, reason) VALUES ($1, $2, $3, 'forgotten')"
            " ON CONFLICT DO NOTHING",
            ANA, TENANT, item,
        )  # fmt: skip

    for _ in range(60):
        match chance.choice(
            ["add", "add", "merge", "edit", "supersede", "forget", "draw", "expire", "remove", "rollback"]
        ):
            case "add":
                await add()
            case "merge":
                if heir := await some("status = 'active'"):
                    await add(status="superseded", superseded_by=heir, superseded_how="merged")
            case "edit":
                if item := await some("status = 'active'"):
                    text = f"{words()} edited{number}"
                    await admin.execute(
                        "UPDATE agent_data.memory_store SET content_text = $2, content_hash = $3, token_count = $4"
                        " WHERE memory_id = $1",
                        item, text, text.encode(), len(text.split()),
                    )  # fmt: skip
            case "supersede":
                if item := await some("status = 'active'"):
                    heir = await add()
                    await admin.execute(
                        "UPDATE agent_data.memory_store SET status = 'superseded', superseded_by = $2,"
                        " superseded_how = 'corrected' WHERE memory_id = $1",
                        item, heir,
                    )  # fmt: skip
            case "forget":
                if item := await some("status <> 'forgotten'"):
                    async with admin.transaction():
                        await forget(item)
            case "draw":
                if source := await some("status = 'active'"):
                    made = await add(kind="summary")
                    await admin.execute(
                        "INSERT INTO agent_data.derivations (user_id, tenant_id, source_id, derived_id) VALUES ($1, $2, $3, $4)"
                        " ON CONFLICT DO NOTHING",
                        ANA, TENANT, source, made,
                    )  # fmt: skip
            case "expire":
                if item := await some("status = 'active'"):
                    await admin.execute(
                        "UPDATE agent_data.memory_store SET status = 'expired', updated_at = $2 WHERE memory_id = $1",
                        item, NOW - timedelta(days=4000),
                    )  # fmt: skip
            case "remove":
                await admin.execute("SELECT agent_data.remove_memories()")
            case "rollback":
                if item := await some("status <> 'forgotten'"):
                    transaction = admin.transaction()
                    await transaction.start()
                    await forget(item)
                    await transaction.rollback()
        if chance.random() < 0.2:
            await teller.tell(talk(words()), session=ids.uuid7(NOW))
            rows = await admin.fetch(
                "SELECT message_id FROM agent_data.conversation_history ORDER BY created_at DESC LIMIT 1"
            )
            await admin.execute(
                "SELECT agent_data.count_words($1, $2, ARRAY[$3::uuid], '{}')", TENANT, ANA, rows[0]["message_id"]
            )
        assert await counted(admin) == await recounted(admin)


async def test_an_erased_user_is_not_counted_again(teller: Teller) -> None:
    item = await memory(teller, 1, "Likes tea")
    await teller.admin.execute(
        "SELECT agent_data.exchange_words($1, $2, to_tsvector('tea'), NULL, -1, -1)", TENANT, ANA
    )
    assert (await counted(teller.admin)) == (Counter(), 0, 0)
    await teller.admin.execute("UPDATE agent_data.memory_store SET content_text = 'x' WHERE memory_id = $1", item)
    assert (await counted(teller.admin)) == (Counter(), 0, 0)
