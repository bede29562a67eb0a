"""The index finds in English what the database finds by itself: the same words, counts and cosines of the same items."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import numpy as np
import pytest

from app.context.asked import Asked
from app.context.profiles import AUTO
from app.context.retrieve import LIMITS, Retriever, Scope, Wanted
from app.index.indexes import Indexes, Part
from app.store import ids
from app.store.indexed import IndexStore
from app.store.places import Scan, ids_of
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.replicas import FromPool
from app.tasks import Supervisor
from tests.support.doors import HashEmbedder, WordCounter
from tests.support.teller import ANA, NOW, TENANT, Teller, talk

SQL = Queries.load()
HERE, BEFORE, ELSEWHERE = (ids.session_id(TENANT, ANA, each) for each in ("here", "before", "elsewhere"))
SUBJECTS = [
    "harbours",
    "the lamp",
    "our cats",
    "Lisbon",
    "an island",
    "full moons",
    "rye bread",
    "the rivers",
    "Ana's brother",
]
VERBS = ["painted", "remembers", "was visiting", "sold", "is looking for", "baked", "crossed", "likes"]
QUESTIONS = [
    "Who painted the harbour?", "What about the cats and the moon?", "bread", "Did Ana visit rivers in Lisbon?",
    "Is somebody selling an island or baking?", "zebra crossings",
]  # fmt: skip
SPACE = 1


@pytest.fixture
async def both(
    teller: Teller, pool: Pool, admin: asyncpg.Connection[Any]
) -> AsyncIterator[tuple[Retriever, Retriever, Indexes]]:
    """Who asks the database alone, and who asks the index; a user with three conversations and memories of every kind."""
    chosen = random.Random(5)

    def sentence() -> str:
        return (
            f"{chosen.choice(SUBJECTS)} {chosen.choice(VERBS)} {chosen.choice(SUBJECTS)} and {chosen.choice(SUBJECTS)}"
        )

    for session in (BEFORE, ELSEWHERE, HERE):
        for n in range(6):
            await teller.tell(talk(f"{sentence()} {n}"), sentence(), session=session)
    vectors = []
    for n in range(24):
        text = sentence()
        await admin.execute(
            "INSERT INTO agent_data.memory_store (memory_id, user_id, tenant_id, memory_tier, memory_scope, content_text,"
            " content_hash, provenance_type, token_count, session_id, provenance_turn_index, kind, status, expires_at)"
            " VALUES ($1, $2, $3, 3, $4, $5, $6, 0, 9, $7, $8, 'fact', $9, $10)",
            UUID(int=0xF00 + n), ANA, TENANT, int(n % 5 > 0), text, bytes([n]),
            (None, HERE, BEFORE, ELSEWHERE)[n % 4], (None, 1, 5)[n % 3], "superseded" if n % 7 == 0 else "active",
            NOW - timedelta(days=1) if n % 11 == 0 else None,
        )  # fmt: skip
        vectors.append((await HashEmbedder().embed([text]))[0])
    await admin.execute(
        "SELECT agent_data.add_vectors($1, $2, 1::smallint, 1::smallint, $3, $4, $5::text[]::halfvec[])", TENANT, ANA,
        [UUID(int=0xF00 + n) for n in range(24)], [NOW] * 24, [str(each.tolist()) for each in vectors],
    )  # fmt: skip
    await admin.execute(
        "INSERT INTO agent_data.suppressions (user_id, tenant_id, item_id, reason)"
        " SELECT user_id, tenant_id, message_id, 'superseded' FROM agent_data.conversation_history"
        " WHERE session_id = $1 AND turn_index = 3", ELSEWHERE,
    )  # fmt: skip
    await teller.count_words()
    tasks = Supervisor()
    store = IndexStore(FromPool(pool, SQL), pool, SQL)
    indexes = Indexes(store, tasks, space=SPACE, dimensions=HashEmbedder().dimensions, limit=10**8, patience_s=None)
    count = WordCounter().count
    yield (
        Retriever(teller.store, HashEmbedder(), count),
        Retriever(teller.store, HashEmbedder(), count, indexes),
        indexes,
    )
    await tasks.close(5)


SCOPES = {
    "a new conversation": Part(UUID(int=9)),
    "no conversation": Part(),
    "in a conversation": Part(HERE, 5),
    "in a branch": Part(HERE, 3, [BEFORE]),
    "the past as well": Part(HERE, 5, history=True),
    "messages": Part(HERE, 5, only=0),
    "memories": Part(None, only=1),
}


@pytest.mark.parametrize("part", SCOPES.values(), ids=SCOPES)
async def test_words_counts_and_cosines(teller: Teller, both: tuple[Retriever, Retriever, Indexes], part: Part) -> None:
    async def shown(scan: Scan) -> tuple[dict[str, float], dict[str, dict[str, int]]]:
        """Of what may come up."""
        rows = await teller.store.fetch_items(
            TENANT, ANA, np.unique(scan.places), confine=None, session=part.session, visible=part.visible_from,
            ancestors=part.ancestors, history=part.history,
        )  # fmt: skip
        up, found, n = {each.item_id.hex for each in rows}, ids_of(scan.places), len(scan.sims)
        near = {each: float(sim) for each, sim in zip(found[:n], scan.sims, strict=True) if each in up}
        said = {
            each: {word: int(many) for word, many in zip(scan.words, counts, strict=False) if many}
            for each, counts in zip(found[n:], scan.counts, strict=True)
            if each in up
        }
        return near, said

    for question in QUESTIONS:
        (vector,) = await HashEmbedder().embed([question])
        old = await teller.store.retrieve(
            TENANT, ANA, query=question, vector=vector, space=SPACE, confine=None, session=part.session,
            visible=part.visible_from, ancestors=part.ancestors, history=part.history,
            limits=LIMITS._replace(frequent=0), only=part.only,
        )  # fmt: skip
        new = await both[2].scan(
            TENANT,
            ANA,
            question,
            vector,
            part,
            vectors=LIMITS.vectors,
            texts=LIMITS.texts,
        )
        assert new is not None
        assert dict(zip(new.words, new.holding, strict=True)) == dict(zip(old.words, old.holding, strict=True))
        assert (new.counted, new.k1, new.b) == (old.counted, old.k1, old.b)
        assert new.mean == pytest.approx(old.mean)
        near, said = await shown(old)
        nearly, same = await shown(new)
        assert nearly == pytest.approx(near, abs=0.02)
        assert same == said
        assert len(near) + len(said) > 5 or question.startswith("zebra")


@pytest.mark.parametrize("part", SCOPES.values(), ids=SCOPES)
async def test_candidates(both: tuple[Retriever, Retriever, Indexes], part: Part) -> None:
    scope = Scope(TENANT, ANA, None, part.session, part.visible_from, part.ancestors, part.history)
    for question in QUESTIONS:
        for tokens in (60, 5000):
            wanted = Wanted(tokens, only=part.only)
            old, new = [await each.candidates(Asked(question), scope, wanted, AUTO) for each in both[:2]]
            if tokens == 5000:
                assert {each.id for each in new.candidates} == {each.id for each in old.candidates}
            assert new.statuses == {key: each for key, each in old.statuses.items() if tokens == 5000} or tokens == 60
