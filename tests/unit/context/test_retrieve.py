from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from app.context.candidates import Candidate
from app.context.question import Asked, understand
from app.context.rank import highest
from app.context.retrieve import NoVector, Retriever, Scope, Wanted
from app.context.score import AUTO, PREFILL, PROFILES
from app.errors import Unavailable
from app.index.indexes import IndexScope
from app.index.user_index import FurtherItems
from app.providers.embeddings import Embedder, NoEmbedder
from app.store.item_columns import EPOCH, PLACE, Places, Scan, ids_of
from app.store.turns import RetrievedRow
from tests.support.tables import each_of
from tests.support.wired_api import HashEmbedder

NOW = datetime(2026, 11, 20, tzinfo=UTC)
TENANT, USER, SESSION, ITEM, OTHER = (UUID(int=n) for n in range(1, 6))
SCOPE = Scope(TENANT, USER, session=SESSION, visible_from=7, ancestors=[OTHER])
WANTED = Wanted(1000)


def row(**given: Any) -> RetrievedRow:
    plain: dict[str, Any] = {
        "n": 1, "item_kind": 0, "item_id": ITEM, "kind": "message",
        "content": "hello", "role": 1, "name": None, "session_id": SESSION, "external_id": "s", "turn_index": 3,
        "tier": None, "provenance_type": 0, "confidence": 1.0, "importance": 0.5, "access_count": 0,
        "last_accessed_at": None, "created_at": NOW, "token_count": 2, "content_hash": b"h", "status": "active",
        "entity_ids": None, "origin": None, "sources": None, "metadata": {"a": 1},
    }  # fmt: skip
    return RetrievedRow(**plain | given)


def memory(**given: Any) -> RetrievedRow:
    return row(**{"item_kind": 1, "kind": "fact", "role": None, "tier": 3, "provenance_type": 4, "sources": []} | given)


def places(rows: Sequence[RetrievedRow]) -> Places:
    made = np.zeros(len(rows), PLACE)
    for place, each in zip(made, rows, strict=True):
        place["id"] = np.frombuffer(each.item_id.bytes, ">u8")
        place["session"] = np.frombuffer((each.session_id or UUID(int=0)).bytes, ">u8")
        place["turn"], place["tokens"], place["kind"] = each.turn_index or 0, each.token_count, each.item_kind
        place["role"] = 9 if each.role is None else each.role
    return made


class Shelf:
    """A store and an index that have these: seen by the vector channel, unless it is told otherwise."""

    def __init__(
        self, *rows: RetrievedRow, space: int | None = 9, channels: Sequence[int] | None = None, gone: int = 0
    ) -> None:
        self.rows = list(rows)
        self.space = space
        self.channels = list(channels) if channels is not None else [1] * len(rows)
        self.gone = gone
        """Of those fetched, the first so many may not come up."""
        self.tied_to: list[UUID] = []
        self.asked: list[dict[str, Any]] = []
        self.tied_asked: list[Sequence[str]] = []
        self.fetched: list[list[UUID]] = []

    async def scan(self, tenant: UUID, user: UUID, query: str, vector: Any, scope: IndexScope, **asked: Any) -> Scan:
        self.asked.append({"tenant": tenant, "user": user, "query": query, "vector": vector, "scope": scope, **asked})
        seen, said = ([each for each, by in zip(self.rows, self.channels, strict=True) if by & bit] for bit in (1, 2))
        sims = np.linspace(0.9, 0.1, len(seen)).astype(np.float32)
        counts = np.zeros((len(said), 16), np.uint8)
        counts[:, 0] = 1
        words, holding = (["hello"], [1]) if said else ([], [])
        return Scan(places([*seen, *said]), sims, counts, words, holding, 9, 5.0, 1.2, 0.75)

    async def fetch_items(self, tenant: UUID, user: UUID, at: Places, **asked: Any) -> list[RetrievedRow]:
        assert asked == {
            "confine": None, "session": SESSION, "visible": 7, "ancestors": [OTHER], "history": False, "shared": [],
        }  # fmt: skip
        wanted = [UUID(each) for each in ids_of(at)]
        by_id = {each.item_id: each for each in self.rows[self.gone :]}
        self.fetched.append(wanted)
        return [by_id[each]._replace(n=n) for n, each in enumerate(wanted, 1) if each in by_id]

    async def tied(self, tenant: UUID, user: UUID, entities: Sequence[str], limit: int) -> list[UUID]:
        self.tied_asked.append(entities)
        return self.tied_to

    async def space_of(self, name: str) -> int | None:
        return self.space


def retriever(shelf: Shelf, embedder: Embedder | None = None) -> Retriever:
    given: Any = shelf  # all it needs
    return Retriever(given, embedder or HashEmbedder(), lambda text: len(text.split()), given)


def crowd(count: int, **given: Any) -> list[RetrievedRow]:
    """Memories, the nearest first."""
    return [memory(item_id=UUID(int=100 + n), token_count=50, **given) for n in range(count)]


async def test_only_the_best_are_fetched() -> None:
    shelf = Shelf(*crowd(100))
    found, *_ = await retriever(shelf).candidates(Asked("q"), SCOPE, Wanted(400), AUTO)
    assert [each.id for each in found] == [UUID(int=100 + n) for n in range(12)]
    assert len(shelf.fetched) == 1


async def test_more_is_fetched_where_much_may_not_come_up() -> None:
    shelf = Shelf(*crowd(100), gone=20)
    found, *_ = await retriever(shelf).candidates(Asked("q"), SCOPE, Wanted(400), AUTO)
    assert {UUID(int=100 + n) for n in range(20, 28)} <= {each.id for each in found}
    assert len(shelf.fetched) > 1
    everything = [each for part in shelf.fetched for each in part]
    assert len(everything) == len(set(everything))


async def test_as_few_items_as_are_wanted() -> None:
    shelf = Shelf(*crowd(100))
    found, *_ = await retriever(shelf).candidates(Asked("q"), SCOPE, Wanted(10_000, 3), AUTO)
    assert 3 <= len(found) < 20


async def test_a_profile_of_the_seeds_looks_at_the_channels() -> None:
    rows = crowd(120)
    shelf = Shelf(*rows, channels=[1] * 105 + [2] * 15)
    found, *_ = await retriever(shelf).candidates(Asked("q"), SCOPE, Wanted(10_000), PREFILL)
    assert {each.id for each in found} == {each.item_id for each in (*rows[:50], *rows[105:])}


async def test_a_strategy_asks_for_its_own_channels() -> None:
    sure = {"reinforcements": 3, "sure_since": NOW}
    summary = memory(item_id=UUID(int=7), kind="summary", entity_ids=["lisbon"], role=11, **sure)
    shelf = Shelf(*crowd(3, **sure), summary)
    shelf.tied_to = [UUID(int=7)]
    asked = understand("What happened in Lisbon in May?", NOW)
    found, *_ = await retriever(shelf).candidates(asked, SCOPE, WANTED, PROFILES["temporal_focused"])
    assert shelf.tied_asked == [["happened", "lisbon"]]
    also = shelf.asked[0]["also"]
    may = [round((datetime(2026, n, 1, tzinfo=UTC) - EPOCH).total_seconds() * 1e6) for n in (5, 6)]
    assert also == FurtherItems([UUID(int=7)], (may[0], may[1]), summaries=True)
    by_id = {each.id: each for each in found}
    assert by_id[UUID(int=7)].channels == {"vector", "summary", "entity", "recent"}
    assert {each.reinforcements for each in found} == {3}
    assert {each.sure_since for each in found} == {NOW}


async def test_what_is_tied_to_a_known_thing_comes_with_the_first() -> None:
    rows = crowd(200)
    for things, wanted in (({}, False), ({"customer:1": frozenset({"gai"})}, True)):
        shelf = Shelf(*rows)
        shelf.tied_to = [rows[-1].item_id]
        asked = Asked("q", frozenset(things), frozenset(things), things=things)
        found, *_ = await retriever(shelf).candidates(asked, SCOPE, Wanted(400), AUTO)
        assert shelf.tied_asked == [["customer:1"]] * wanted
        assert (rows[-1].item_id in {each.id for each in found}) == wanted


async def test_what_a_known_thing_leads_to_is_asked_for_beside_it() -> None:
    shelf = Shelf(*crowd(200))
    shelf.tied_to = [shelf.rows[-1].item_id]
    named = frozenset({"customer:1"})
    asked = Asked("q", named, named, things={"customer:1": frozenset({"gai"})})
    told = frozenset[str]()
    wanted = Wanted(400, related=lambda: told)
    await retriever(shelf).candidates(asked, SCOPE, wanted, AUTO)
    told = frozenset({"sales_order:SO-1045"})  # what the domain has told when the search asks
    found, *_ = await retriever(shelf).candidates(asked, SCOPE, wanted, AUTO)
    assert shelf.tied_asked == [["customer:1"], ["customer:1", "sales_order:SO-1045"]]
    assert shelf.rows[-1].item_id in {each.id for each in found}


async def test_a_question_says_what_is_wanted_beside_the_nearest() -> None:
    for text, timed, summaries in (
        ("What about Lisbon?", False, False), ("what was said yesterday?", True, False),
        ("what did we talk about?", False, True),
    ):  # fmt: skip
        shelf = Shelf(*crowd(3))
        await retriever(shelf).candidates(understand(text, NOW), SCOPE, WANTED, AUTO)
        also = shelf.asked[0]["also"]
        assert (also.span is not None, also.summaries, also.items) == (timed, summaries, ()), text


async def test_a_long_message_comes_as_its_passage() -> None:
    text = " ".join(f"Sentence {n} is about nothing at all, as so many are." for n in range(20))
    shelf = Shelf(row(content=text, token_count=220, turn_index=1))
    (found,), *_ = await retriever(shelf).candidates(Asked("q"), SCOPE, WANTED, AUTO)
    assert found.span is not None
    assert (found.kind, found.source, found.whole_tokens) == ("passage", "message", 220)
    assert found.text == text[found.span[0] : found.span[1]]
    assert found.token_count == len(found.text.split()) <= 75
    assert found.provenance[0].message_id == ITEM
    # A memory is shown whole.
    (kept,), *_ = await retriever(Shelf(memory(content=text, token_count=220))).candidates(
        Asked("q"), SCOPE, WANTED, AUTO
    )
    assert (kept.span, kept.text) == (None, text)


class Wordless(HashEmbedder):
    async def embed(self, texts: Sequence[str]) -> Any:
        return np.zeros((len(texts), 8), np.float32)


@each_of(
    ("embedder", "space", "query"),
    [(NoEmbedder(), 9, "q"), (HashEmbedder(), None, "q"), (HashEmbedder(), 9, ""), (Wordless(), 9, "?!")],
)
async def test_without_a_vector_words_are_enough(embedder: Embedder, space: int | None, query: str) -> None:
    shelf = Shelf(row(), space=space, channels=[2])
    found, *_ = await retriever(shelf, embedder).candidates(Asked(query), SCOPE, WANTED, AUTO)
    assert shelf.asked[0]["vector"] is None
    assert [(each.near_text, each.near_vector, each.similarity) for each in found] == [(1.0, 0.0, None)]


class Away(HashEmbedder):
    async def embed(self, texts: Sequence[str]) -> Any:
        raise Unavailable("the embedder is away")


async def test_an_embedder_that_is_away_is_said() -> None:
    with pytest.raises(NoVector, match="away"):
        await retriever(Shelf(), Away()).candidates(Asked("q"), SCOPE, WANTED, AUTO)


class Late(HashEmbedder):
    """Answers when it is let."""

    local = False

    def __init__(self) -> None:
        self.given_up = False

    async def embed(self, texts: Sequence[str]) -> Any:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.given_up = True
            raise


async def test_a_vector_is_waited_for_as_long_as_is_wanted() -> None:
    shelf, late = Shelf(row(), channels=[2]), Late()
    with pytest.raises(NoVector, match="took too long"):
        await retriever(shelf, late).candidates(Asked("q"), SCOPE, WANTED._replace(wait_s=0.001), AUTO)
    assert (late.given_up, shelf.asked) == (True, [])
    found, *_ = await retriever(shelf, late).candidates(Asked("q"), SCOPE, WANTED._replace(wait_s=0), AUTO)
    assert (shelf.asked[0]["vector"], len(found)) == (None, 1)
    with pytest.raises(TimeoutError):  # of the caller's own deadline nothing is said that is not so
        async with asyncio.timeout(0.001):
            await retriever(shelf, late).candidates(Asked("q"), SCOPE, WANTED, AUTO)


async def one(given: RetrievedRow, channels: int = 1) -> Candidate:
    found, *_ = await retriever(Shelf(given, channels=[channels])).candidates(Asked("q"), SCOPE, WANTED, AUTO)
    return found[0]


async def test_a_message_is_its_own_source() -> None:
    found = await one(row(name="Ana"))
    assert (found.source, found.kind, found.role, found.speaker) == ("message", "message", "user", "Ana")
    (source,) = found.provenance
    assert (source.session, source.message_id, source.turn_index, source.metadata) == ("s", ITEM, 3, {"a": 1})
    assert (await one(row(external_id=None))).provenance[0].session == str(SESSION)


async def test_a_memory_names_what_it_comes_from() -> None:
    sources = [
        {"session": "s", "message_id": str(OTHER), "turn_index": 2, "metadata": {"m": 1}, "quote": "words"},
        {"session": None, "message_id": str(ITEM)},
        {"session": "s"},
    ]
    found = await one(memory(sources=sources, entity_ids=["e"], content_hash=None))
    assert [(each.session, each.message_id, each.turn_index) for each in found.provenance] == [
        ("s", OTHER, 2),
        ("", ITEM, None),
    ]
    assert (found.source, found.tier, found.provenance_type) == ("memory", 3, 4)
    assert (found.entity_ids, found.content_hash) == (["e"], b"")
    assert (await one(memory(sources=None))).provenance == ()


@each_of("channels", range(1, 4))
async def test_which_channels_brought_it(channels: int) -> None:
    found = await one(memory(), channels)
    names = {name for bit, name in enumerate(("vector", "text")) if channels >> bit & 1}
    assert found.channels == names | {"recent"}, "it is the only one"
    assert (found.similarity is not None) == ("vector" in names)


async def test_what_is_not_in_force_is_told() -> None:
    rows = [
        memory(item_id=UUID(int=n), status=s) for n, s in enumerate(("active", "aging", "superseded", "expired"), 1)
    ]
    _, statuses, *_ = await retriever(Shelf(*rows)).candidates(Asked("q"), SCOPE, WANTED, AUTO)
    assert statuses == {UUID(int=3): "superseded", UUID(int=4): "expired"}


@each_of("many", [1, 7, 50, 99, 100, 500])
def test_the_highest_are_those_of_a_whole_sort(many: int) -> None:
    worth = np.random.default_rng(5).permutation(100).astype(np.float32)
    assert highest(worth, many).tolist() == np.argsort(-worth)[:many].tolist()


def test_equals_stay_as_they_come() -> None:
    worth = np.array([1, 2, 1, 2, 0, 1], np.float32)
    assert highest(worth, 6).tolist() == [1, 3, 0, 2, 5, 4]
    assert highest(worth, 3).tolist() == [1, 3, 0]
    many = np.random.default_rng(5).integers(0, 5, 2000).astype(np.float32)
    assert highest(many, 600).tolist() == np.argsort(-many, kind="stable")[:600].tolist()
