"""What a question finds: three channels, and what of it may come up."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from app.context.rank import Ranking, rank
from app.index import analyse
from app.index.indexes import IndexScope
from app.store import ids
from app.store.turns import RetrievedRow
from tests.support.cases import cases
from tests.support.indexes import indexes_of
from tests.support.teller import ANA, NOW, OTHER_TENANT, TENANT, Teller, said, talk
from tests.support.wired_api import HashEmbedder

S1, S2, S3 = (UUID(int=0x51 + n) for n in range(3))


CORPUS = [
    "the lighthouse keeper lives on the island with two cats",
    "cats cats cats everywhere in the lighthouse",
    "a dog barked at the moon all night long while nobody slept",
    "island life is quiet and slow",
    "the moon rose over the island and the lighthouse answered with its lamp and the keeper slept",
]


async def memory(teller: Teller, number: int, text: str, **given: Any) -> UUID:
    fields: dict[str, Any] = {
        "memory_id": UUID(int=number), "user_id": ANA, "tenant_id": TENANT, "memory_tier": 3, "memory_scope": 1,
        "content_text": text, "content_hash": text.encode() + bytes([number]), "provenance_type": 0,
        "token_count": len(text.split()),
    } | given  # fmt: skip
    names = ", ".join(fields)
    marks = ", ".join(f"${n}" for n in range(1, len(fields) + 1))
    await teller.admin.execute(f"INSERT INTO agent_data.memory_store ({names}) VALUES ({marks})", *fields.values())
    return UUID(int=number)


class Found:
    """An item with what it scored in each channel."""

    def __init__(self, row: RetrievedRow, ranking: Ranking, at: int) -> None:
        self.row = row
        channels = int(ranking.channels[at])
        self.similarity = float(ranking.similarity[at]) if channels & 1 else None
        self.text_score = float(ranking.bm25(np.array([at]))[0]) if channels & 2 else None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.row, name)


async def retrieve(teller: Teller, query: str, **given: Any) -> list[Found]:
    """All that is found, as a compile would fetch it."""
    asked: dict[str, Any] = {
        "vector": None, "space": 1, "confine": None, "session": None, "visible": 1, "ancestors": [], "history": False,
        "limits": (10, 10), "only": None, "tenant": TENANT, "user": ANA, "dimensions": HashEmbedder().dimensions,
    } | given  # fmt: skip
    where = IndexScope(
        asked["session"], asked["visible"], asked["ancestors"], asked["history"], asked["only"], asked["confine"]
    )
    vectors, texts = asked["limits"]
    indexes = indexes_of(teller.store._pool, asked["dimensions"], asked["space"])
    scan = await indexes.scan(
        asked["tenant"], asked["user"], query, asked["vector"], where, vectors=vectors, texts=texts
    )
    scope = {name: asked[name] for name in ("confine", "session", "ancestors")}
    ranking = rank(scan, query, where)
    rows = await teller.store.fetch_items(
        asked["tenant"], asked["user"], ranking.places(), visible=asked["visible"], history=asked["history"], **scope
    )
    return [Found(row, ranking, row.n - 1) for row in rows]


def texts(rows: Sequence[Found]) -> set[str]:
    return {row.content for row in rows}


def terms(text: str) -> Counter[int]:
    found = Counter(each.hashes[0] for word in text.split() for each in analyse.asked(word))
    return Counter({each: many for each, many in found.items() if many})


async def test_the_text_channel_is_bm25_to_the_last_digit(teller: Teller) -> None:
    k1, b = 1.2, 0.75
    for n, text in enumerate(CORPUS):
        await teller.tell(talk(text), session=UUID(int=n))
    many = " ".join(["moon"] * 37 + ["cats"] * 120)
    await teller.tell(talk(many), session=S1)
    await memory(teller, 1, "Ana keeps two cats on an island")
    documents = [*CORPUS, many, "Ana keeps two cats on an island"]
    counted = {text: terms(text) for text in documents}
    lengths = {text: len(text.split()) for text in documents}
    mean = sum(lengths.values()) / len(documents)
    query = "Do the cats see the moon from the lighthouse island?"
    expected: dict[str, float] = {}
    for word in terms(query):
        holding = [text for text in documents if counted[text][word]]
        idf = math.log(1 + (len(documents) - len(holding) + 0.5) / (len(holding) + 0.5))
        for text in holding:
            n = counted[text][word]
            share = idf * n * (k1 + 1) / (n + k1 * (1 - b + b * lengths[text] / mean))
            expected[text] = expected.get(text, 0.0) + share
    found = {row.content: row.text_score for row in await retrieve(teller, query)}
    assert set(found) == set(expected)
    for text, score in expected.items():
        assert found[text] == pytest.approx(score, rel=1e-4), text[:40]


async def test_words_that_are_too_common_to_look_for_still_count(teller: Teller) -> None:
    """Five documents have the rarer word: of one that is asked for, those with the commoner word alone are none."""
    for n in range(5):
        await teller.tell(talk(f"lighthouse island number{n}"), session=UUID(int=n))
    for n in range(5, 8):
        await teller.tell(talk(f"island island number{n}"), session=UUID(int=n))
    found = await retrieve(teller, "lighthouse island", limits=(0, 1))
    assert len(found) == 5
    idfs = [math.log(1 + (8 - holding + 0.5) / (holding + 0.5)) for holding in (5, 8)]
    for each in found:
        assert each.text_score == pytest.approx(sum(idfs), rel=1e-4)  # once each, in a document of mean length


@cases("query", ["http://ex.com/it's?a=b", "it's a \\ back'slash", "'", "'' & | ! ( ):*", "<->", "a" * 3000])
async def test_no_question_breaks_the_query(teller: Teller, query: str) -> None:
    await teller.tell(talk(f"about {query}"), session=S1)
    await retrieve(teller, query)


async def vector_of(text: str) -> Any:
    return (await HashEmbedder().embed([text]))[0]


def text_of_vector(vector: Any) -> str:
    return str(vector.tolist())


async def test_the_vector_channel_is_exact_cosine(teller: Teller) -> None:
    space = await teller.store.space_of(HashEmbedder.space)
    for n, text in enumerate(CORPUS):
        await teller.tell(talk(text), session=UUID(int=n))
    vector = await vector_of("something")
    rows = await retrieve(teller, "", vector=vector, space=space, limits=(3, 10))
    cosines = {text: float(np.dot(await vector_of(text), vector)) for text in CORPUS}
    assert {row.content for row in rows} == set(sorted(cosines, key=cosines.__getitem__)[-3:])
    for row in rows:
        assert row.similarity == pytest.approx(cosines[row.content], abs=2e-3)
        assert row.text_score is None


async def test_vectors_that_are_too_wide_for_an_index_are_read_from_the_table(teller: Teller) -> None:
    await teller.tell(talk(CORPUS[0]), session=S1)
    wide = 1536
    space = await teller.admin.fetchval("SELECT agent_data.ensure_embedding_space('wide', $1)", wide)
    (row,) = await teller.rows("SELECT message_id, created_at FROM agent_data.conversation_history")
    near, far = np.eye(2, wide, dtype=np.float32)
    await teller.admin.execute(
        "SELECT agent_data.add_vectors($1, $2, $3::smallint, 0::smallint, ARRAY[$4]::uuid[], ARRAY[$5]::timestamptz[],"
        " ARRAY[$6::text]::halfvec[])",
        TENANT, ANA, space, row["message_id"], row["created_at"], text_of_vector(near),
    )  # fmt: skip
    for asked, similarity in ((near, 1.0), (far, 0.0), (near + far, math.sqrt(0.5))):
        (found,) = await retrieve(teller, "", vector=asked, space=space, dimensions=wide)
        assert found.content == CORPUS[0]
        assert found.similarity == pytest.approx(similarity, abs=2e-3)


async def test_an_item_that_several_channels_find_comes_once(teller: Teller) -> None:
    space = await teller.store.space_of(HashEmbedder.space)
    number = await memory(teller, 1, "two cats", access_count=3)
    # Its vector was made at another time than itself.
    await teller.admin.execute(
        "SELECT agent_data.add_vectors($1, $2, $3::smallint, 1::smallint, ARRAY[$4]::uuid[],"
        " ARRAY[now() - interval '1 day'], ARRAY[$5::text::halfvec])",
        TENANT, ANA, space, number, text_of_vector(await vector_of("two cats")),
    )  # fmt: skip
    (row,) = await retrieve(teller, "cats", vector=await vector_of("two cats"), space=space)
    assert row.similarity == pytest.approx(1, abs=1e-3)
    assert row.text_score is not None
    assert (row.item_kind, row.kind, row.tier) == (1, "fact", 3)


async def scene(teller: Teller) -> tuple[int | None, Any]:
    """Two sessions about cats, one of them a branch of the other, and memories of both."""
    await teller.tell(talk("cats one"), "cats two", session=S1)
    await teller.tell(talk("cats one", "cats two", "cats three"), "cats four", session=S1, new=1)
    await teller.tell(talk("cats five"), "cats six", session=S2)
    await memory(teller, 1, "cats global")
    await memory(teller, 2, "cats of one", session_id=S1, provenance_turn_index=1)
    await memory(teller, 3, "cats of three", session_id=S1, provenance_turn_index=3)
    await memory(teller, 4, "cats local to one", session_id=S1, memory_scope=0, provenance_turn_index=1)
    await memory(teller, 5, "cats local to two", session_id=S2, memory_scope=0, provenance_turn_index=1)
    await memory(teller, 6, "cats old", expires_at=NOW - timedelta(days=1))
    await memory(teller, 7, "cats replaced", status="superseded")
    await memory(teller, 8, "cats forgotten", status="forgotten")
    rows = await teller.rows("SELECT memory_id, content_text FROM agent_data.memory_store")
    space = await teller.store.space_of(HashEmbedder.space)
    for row in rows:
        await teller.admin.execute(
            "SELECT agent_data.add_vectors($1, $2, $3::smallint, 1::smallint, ARRAY[$4]::uuid[], ARRAY[now()],"
            " ARRAY[$5::text::halfvec])",
            TENANT, ANA, space, row["memory_id"], text_of_vector(await vector_of(row["content_text"])),
        )  # fmt: skip
    return space, await vector_of("cats")


RAW = {"cats one", "cats two", "cats three", "cats four", "cats five", "cats six"}
GLOBAL = {"cats global", "cats of one", "cats of three"}
SESSION_1 = {"cats one", "cats two", "cats three", "cats four"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, RAW | GLOBAL | {"cats local to one", "cats local to two"}),
        ({"session": S3}, RAW | GLOBAL),
        ({"session": S1, "visible": 1}, {"cats five", "cats six", "cats global"}),
        (
            {"session": S1, "visible": 3},
            {"cats one", "cats two", "cats five", "cats six", "cats global", "cats of one", "cats local to one"},
        ),
        ({"session": S2, "visible": 1, "ancestors": [S1]}, {"cats global"}),
        ({"session": S3, "ancestors": [S1, S2]}, {"cats global"}),
        ({"session": S1, "confine": S1, "visible": 3}, {"cats one", "cats two", "cats of one", "cats local to one"}),
        ({"session": S1, "confine": S1, "visible": 1}, set()),
        ({"only": 0}, RAW),
        ({"only": 1}, GLOBAL | {"cats local to one", "cats local to two"}),
        (
            {"history": True},
            RAW | GLOBAL | {"cats local to one", "cats local to two", "cats old", "cats replaced"},
        ),
    ],
)
@pytest.mark.parametrize("channel", ["words", "vectors", "both"])
async def test_what_may_come_up(teller: Teller, given: dict[str, Any], expected: set[str], channel: str) -> None:
    space, vector = await scene(teller)
    query = "" if channel == "vectors" else "cats"
    channels = {"vector": None if channel == "words" else vector, "space": space, "limits": (50, 50)}
    rows = await retrieve(teller, query, **channels, **given)
    assert texts(rows) == expected
    assert len(rows) == len(expected)
    statuses = {row.content: row.status for row in rows if row.status != "active"}
    assert statuses == ({"cats old": "expired", "cats replaced": "superseded"} if given.get("history") else {})


async def test_what_is_suppressed_never_comes_up(teller: Teller) -> None:
    space, vector = await scene(teller)
    rows = await retrieve(teller, "cats", vector=vector, space=space, limits=(50, 50))
    gone = {"cats five": "superseded", "cats one": "forgotten", "cats global": "erased"}
    for row in rows:
        if row.content in gone:
            await teller.admin.execute(
                "INSERT INTO agent_data.suppressions (user_id, tenant_id, item_id, reason) VALUES ($1, $2, $3, $4)",
                ANA, TENANT, row.item_id, gone[row.content],
            )  # fmt: skip
    for asked in ({"query": "cats"}, {"query": "", "vector": vector}, {"query": "cats", "vector": vector}):
        left = await retrieve(teller, **{"space": space, "limits": (50, 50)} | asked)
        assert not set(gone) & texts(left)
        told = await retrieve(teller, **{"space": space, "limits": (50, 50), "history": True} | asked)
        assert set(gone) & texts(told) == {"cats five"}
        assert {row.status for row in told if row.content == "cats five"} == {"superseded"}


async def test_a_long_session_does_not_take_the_places_of_others(teller: Teller) -> None:
    """What stands in the prompt must not use up what each channel may bring."""
    space = await teller.store.space_of(HashEmbedder.space)
    await teller.tell(talk("cats elsewhere"), session=S2)
    await teller.tell([said("user", f"cats cats cats {n}") for n in range(30)], session=S1)
    here = {"session": S1, "visible": 1, "limits": (2, 2)}
    assert texts(await retrieve(teller, "cats", **here)) == {"cats elsewhere"}
    vector = await vector_of("cats cats cats 3")
    assert texts(await retrieve(teller, "", vector=vector, space=space, **here)) == {"cats elsewhere"}


async def test_pruned_messages_are_gone(teller: Teller) -> None:
    await teller.tell(talk("cats pruned"), session=S1)
    await teller.admin.execute("UPDATE agent_data.conversation_history SET is_pruned = true")
    assert await retrieve(teller, "cats") == []


async def test_what_comes_with_a_message(teller: Teller) -> None:
    tool = {"role": "tool", "content": "cats by tool", "name": "search"}
    await teller.tell([tool], session=S1, session_name="mine")
    (row,) = await retrieve(teller, "cats")
    assert (row.item_kind, row.kind, row.role, row.name) == (0, "message", 3, "search")
    assert (row.external_id, row.session_id, row.turn_index, row.provenance_type) == ("mine", S1, 1, 6)
    assert (row.token_count, row.metadata, row.sources) == (3, None, None)


async def test_another_tenant_finds_nothing(teller: Teller) -> None:
    space, vector = await scene(teller)
    assert await retrieve(teller, "cats", vector=vector, space=space, tenant=OTHER_TENANT) == []
    other = ids.user_id(OTHER_TENANT, "ana")
    assert await retrieve(teller, "cats", vector=vector, space=space, tenant=OTHER_TENANT, user=other) == []
