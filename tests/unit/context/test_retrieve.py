from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from app.context.candidates import Provenance
from app.context.retrieve import PROMPT_LIMITS, Limits, Retriever, Scope
from app.errors import Unavailable
from app.providers.embeddings import Embedder, NoEmbedder
from app.store.turns import RetrievedRow
from tests.support.doors import HashEmbedder

NOW = datetime(2026, 11, 20, tzinfo=UTC)
TENANT, USER, SESSION, ITEM, OTHER = (UUID(int=n) for n in range(1, 6))
SCOPE = Scope(TENANT, USER, session=SESSION, visible_from=7, ancestors=[OTHER])


def row(**given: Any) -> RetrievedRow:
    plain: dict[str, Any] = {
        "item_id": ITEM, "item_kind": 0, "similarity": 0.5, "text_score": None, "frequent": False, "kind": "message",
        "content": "hello", "role": 1, "name": None, "session_id": SESSION, "external_id": "s", "turn_index": 3,
        "tier": None, "provenance_type": 0, "confidence": 1.0, "importance": 0.5, "access_count": 0,
        "last_accessed_at": None, "created_at": NOW, "token_count": 2, "content_hash": b"h", "status": "active",
        "entity_ids": None, "origin": None, "sources": None, "metadata": {"a": 1},
    }  # fmt: skip
    return RetrievedRow(**plain | given)


def memory(**given: Any) -> RetrievedRow:
    return row(**{"item_kind": 1, "kind": "fact", "role": None, "tier": 3, "provenance_type": 4, "sources": []} | given)


class Shelf:
    def __init__(self, *rows: RetrievedRow, space: int | None = 9) -> None:
        self.rows = list(rows)
        self.space = space
        self.asked: list[dict[str, Any]] = []
        self.spaces = 0

    async def retrieve(self, tenant: UUID, user: UUID, **asked: Any) -> list[RetrievedRow]:
        self.asked.append({"tenant": tenant, "user": user, **asked})
        return self.rows

    async def space_of(self, name: str) -> int | None:
        self.spaces += 1
        return self.space


def retriever(shelf: Shelf, embedder: Embedder | None = None) -> Retriever:
    return Retriever(shelf, embedder or HashEmbedder())  # type: ignore[arg-type]  # all it needs of a store


async def test_a_question_becomes_one_look() -> None:
    shelf = Shelf()
    assert await retriever(shelf).candidates("what?\0", SCOPE, PROMPT_LIMITS, only=1) == ([], {})
    (asked,) = shelf.asked
    vector = asked.pop("vector")
    assert vector.shape == (8,)
    assert asked == {
        "tenant": TENANT, "user": USER, "query": "what? ", "space": 9, "confine": None, "session": SESSION, "visible": 7,
        "ancestors": [OTHER], "history": False, "limits": PROMPT_LIMITS, "only": 1,
    }  # fmt: skip


async def test_the_space_is_looked_up_once() -> None:
    shelf = Shelf()
    finder = retriever(shelf)
    for _ in range(3):
        await finder.candidates("q", SCOPE, Limits(1, 2, 3))
    assert shelf.spaces == 1


class Wordless(HashEmbedder):
    async def embed(self, texts: Sequence[str]) -> Any:
        return np.zeros((len(texts), 8), np.float32)


@pytest.mark.parametrize(
    ("embedder", "space", "query"),
    [(NoEmbedder(), 9, "q"), (HashEmbedder(), None, "q"), (HashEmbedder(), 9, ""), (Wordless(), 9, "?!")],
)
async def test_without_a_vector_words_are_enough(embedder: Embedder, space: int | None, query: str) -> None:
    shelf = Shelf(row(), space=space)
    found, _ = await retriever(shelf, embedder).candidates(query, SCOPE, PROMPT_LIMITS)
    assert shelf.asked[0]["vector"] is None
    assert len(found) == 1


class Away(HashEmbedder):
    async def embed(self, texts: Sequence[str]) -> Any:
        raise Unavailable("the embedder is away")


async def test_an_embedder_that_is_away_is_said() -> None:
    with pytest.raises(Unavailable, match="away"):
        await retriever(Shelf(), Away()).candidates("q", SCOPE, PROMPT_LIMITS)


async def one(given: RetrievedRow) -> Any:
    found, _ = await retriever(Shelf(given)).candidates("q", SCOPE, PROMPT_LIMITS)
    return found[0]


async def test_a_message_is_its_own_source() -> None:
    found = await one(row(name="Ana"))
    assert (found.source, found.kind, found.role, found.speaker, found.own_words) == (
        "message",
        "message",
        "user",
        "Ana",
        True,
    )
    (source,) = found.provenance
    assert (source.session, source.message_id, source.turn_index, source.metadata) == ("s", ITEM, 3, {"a": 1})
    assert (await one(row(external_id=None))).provenance[0].session == str(SESSION)


@pytest.mark.parametrize(
    ("role", "provenance"),
    [
        (1, Provenance.USER_STATED),
        (2, Provenance.SYSTEM_INFERRED),
        (3, Provenance.TOOL_OUTPUT),
        (4, Provenance.TOOL_OUTPUT),
    ],
)
async def test_who_said_it_is_its_authority(role: int, provenance: Provenance) -> None:
    assert (await one(row(role=role))).provenance_type == provenance


async def test_an_unknown_role_is_nobodys_own_words() -> None:
    found = await one(row(role=9))
    assert (found.role, found.own_words) == (None, False)


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


@pytest.mark.parametrize(
    ("given", "legs"),
    [
        ({}, {"vector"}),
        ({"similarity": None, "text_score": 0.0}, {"text"}),
        ({"similarity": 0.0, "text_score": 2.0, "frequent": True}, {"vector", "text", "frequent"}),
    ],
)
async def test_which_legs_brought_it(given: dict[str, Any], legs: set[str]) -> None:
    assert (await one(row(**given))).legs == legs


async def test_what_is_not_in_force_is_told() -> None:
    rows = [memory(item_id=UUID(int=n), status=s) for n, s in enumerate(("active", "aging", "superseded", "expired"))]
    _, statuses = await retriever(Shelf(*rows)).candidates("q", SCOPE, PROMPT_LIMITS)
    assert statuses == {UUID(int=2): "superseded", UUID(int=3): "expired"}
