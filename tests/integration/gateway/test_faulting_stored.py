"""Faults on a real store: what is found of a session's objects, and nothing of anybody else's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import numpy as np
import pytest
from msgspec.structs import replace

from app.clock import SystemClock
from app.features.paging.faults import NOTHING, FaultAnswers, FaultTimeouts
from app.features.paging.state import Paging
from app.features.paging.store import PagingStore
from app.features.paging.tools import Names, PhantomCall, unknown_object
from app.features.paging.values import Fault, FaultType, Fidelity, PagingRecord, SemanticObject, handle_of
from app.providers.embeddings import WordLlamaEmbedder
from app.providers.tokens import Tokenizers
from app.store.pools import Pool
from app.store.queries import Queries
from tests.support.paged import made, moved, record
from tests.support.rows import ensure_space
from tests.support.wired_api import HashEmbedder, make_space
from tests.unit.paging.micro_faults import questions, sources

COUNT = Tokenizers().for_model("gpt-4o").count
TENANT, OTHER_TENANT = UUID(int=0xA), UUID(int=0xB)
ANA, BO = UUID(int=0xA1), UUID(int=0xB0)
MINE, ELSEWHERE, HIS, FOREIGN = (UUID(int=0x500 + n) for n in range(4))
PATIENT = FaultTimeouts(vector=20.0, find=20.0, quote=20.0)
"""Seconds: what is found is tested here, and not how soon."""
SECRET = "the vault's code is 4711\n" * 20


@pytest.fixture
def store(pool: Pool) -> PagingStore:
    return PagingStore(pool, Queries.load(), SystemClock())


async def paging_of(
    store: PagingStore, session: UUID, user: UUID = ANA, tenant: UUID = TENANT, *, room: int = 4000
) -> Paging:
    """The next request of a session, which brings nothing new."""
    state = await store.read(tenant, user, session)
    return Paging(
        tenant, user, session, 5, 10_000, state, record(session, turn=5), objects=state.objects,
        handles={handle_of(each.id): each.id for each in state.objects}, names=Names(), room=room,
    )  # fmt: skip


def query(question: str) -> PhantomCall:
    return PhantomCall("q", "memory_query", json.dumps({"question": question}))


def restore(handle: str) -> PhantomCall:
    return PhantomCall("r", "memory_restore", json.dumps({"object_id": handle}))


async def keep(
    store: PagingStore, objects: Sequence[SemanticObject], session: UUID, user: UUID = ANA, tenant: UUID = TENANT
) -> None:
    stubs = tuple(moved(each, Fidelity.STUB) for each in objects)
    await store.keep(tenant, user, uuid4(), record(session, *objects, transitions=stubs))


async def faulted(store: PagingStore, paging: Paging, faults: Sequence[Fault]) -> None:
    """Record what a turn asked."""
    given: PagingRecord = replace(paging.record, faults=tuple(faults))
    await store.keep(paging.tenant_id, paging.user_id, uuid4(), given)


async def test_nothing_of_another_session_user_or_tenant_is_found_or_restored(
    store: PagingStore, admin: asyncpg.Connection[Any]
) -> None:
    space = await make_space(admin)
    mine = made(MINE, "mine", "the door's code is 1234\n" * 20)
    await keep(store, [mine], MINE)
    others = [(ELSEWHERE, ANA, TENANT), (HIS, BO, TENANT), (FOREIGN, ANA, OTHER_TENANT)]
    for session, user, tenant in others:
        await keep(store, [made(session, "theirs", SECRET)], session, user, tenant)
    answers = FaultAnswers(store, HashEmbedder(), space, COUNT, SystemClock(), limits=PATIENT)
    paging = await paging_of(store, MINE)
    (told,) = await answers.answer(paging, [query("What is the code of the vault?")])
    assert "1234" in told
    assert "4711" not in told
    assert await answers.answer(paging, [query("vault?")]) == [NOTHING]
    for session, _, _ in others:
        for given in (made(session, "theirs").id, made(session, "theirs").id.hex[:8]):
            assert await answers.answer(paging, [restore(str(given))]) == [unknown_object(str(given))]
    # Even an id that stood in the prompt's own handles: the store gives contents of this session alone.
    foreign = made(FOREIGN, "theirs")
    paging.handles[handle_of(foreign.id)] = foreign.id
    paging.objects = [*paging.objects, replace(foreign, content="", fidelity=Fidelity.STUB)]
    assert await answers.answer(paging, [restore(handle_of(foreign.id))]) == [unknown_object(handle_of(foreign.id))]
    assert await answers.answer(await paging_of(store, HIS, BO), [query("vault?")]) != [NOTHING]


async def test_faults_reach_the_next_request(store: PagingStore) -> None:
    """A restoration is wanted in full, three questions raise, the same question twice pins."""
    names = ("whole", "raised", "pinned")
    objects = [made(MINE, each, f"{each} alpha beta gamma delta\n" * 30) for each in names]
    await keep(store, objects, MINE)
    whole, raised, pinned = objects
    answers = FaultAnswers(store, HashEmbedder(), None, COUNT, SystemClock(), limits=PATIENT)
    paging = await paging_of(store, MINE)
    asked = ["raised alpha?", "raised beta?", "raised gamma?", "pinned delta?"]
    texts = await answers.answer(paging, [*map(query, asked), restore(handle_of(whole.id))])
    assert texts[-1].endswith(whole.content)
    await faulted(store, paging, paging.faults)
    paging = await paging_of(store, MINE)
    (again,) = await answers.answer(paging, [query("pinned delta, please?")])
    assert "pinned" in again
    await faulted(store, paging, paging.faults)
    state = await store.read(TENANT, ANA, MINE)
    assert state.restored == {whole.id}
    assert state.raised == {raised.id}
    assert {each.id for each in state.objects if each.pinned} == {whole.id, pinned.id}
    kinds = [each.fault_type for each in paging.faults]
    assert kinds == [FaultType.MICRO_FAULT]


@pytest.mark.heavy
async def test_the_labelled_questions_are_answered_from_the_store(
    store: PagingStore, admin: asyncpg.Connection[Any]
) -> None:
    """docs/explanation/paging.md: 82 of 94 where all objects are measured; here the store chooses eight of them first."""
    embedder = WordLlamaEmbedder()
    space = await ensure_space(admin, embedder.space, embedder.dimensions)
    objects = [
        made(
            MINE,
            each.name,
            each.content,
            kind=each.kind,
            source_key=each.key,
            stub=each.name,
            tokens_l0=COUNT(each.content),
        )
        for each in sources()
    ]
    await keep(store, objects, MINE)
    vectors = np.asarray(
        embedder.embed_now([f"{each.source_key or each.stub}\n{each.content[:8000]}" for each in objects])
    )
    await store.store_levels(TENANT, ANA, [], dict(zip([each.id for each in objects], vectors, strict=True)), space)
    answers = FaultAnswers(store, embedder, space, COUNT, SystemClock(), limits=PATIENT)
    right = 0
    for each in questions():
        (told,) = await answers.answer(await paging_of(store, MINE), [query(each.text)])
        right += all(word.lower() in told.lower() for word in each.needed)
    print(f"{right} of {len(questions())}")
    assert right >= 78
