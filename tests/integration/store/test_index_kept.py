"""What a server keeps of users: until they are erased, whether they ask again or not; and what it does where it has nothing, or
not in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, cast
from uuid import UUID

import pytest

from app.clock import SystemClock
from app.errors import StoreUnavailable
from app.index.indexes import Indexes, IndexScope
from app.metrics import Metrics
from app.store.erasure import ERASER_ROLE, Eraser, Erasures, own_connection
from app.store.indexed import IndexAsk, IndexRead, IndexStore
from app.store.item_columns import Scan
from app.store.pools import APP_ROLE, FromPool, Pool
from app.store.queries import Queries
from app.tasks import Supervisor
from tests.support.teller import ANA, TENANT, Teller, talk
from tests.support.wired_api import HashEmbedder

SQL = Queries.load()
SESSION = UUID(int=0x51)
SPACED: dict[str, Any] = {"space": 1, "dimensions": HashEmbedder().dimensions}


class Told(Metrics):
    """A meter that remembers."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.loaded: list[int] = []
        self.unreadable = 0
        self.recalls: list[float] = []

    def index_asked(self, how: str) -> None:
        self.asked.append(how)

    def index_loaded(self, seconds: float, items: int) -> None:
        self.loaded.append(items)

    def graph_recall(self, recall: float) -> None:
        self.recalls.append(recall)

    def index_unreadable(self, items: int) -> None:
        self.unreadable += items


class Slow(IndexStore):
    """A store whose answers to loads wait until they may go on."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.read_once = asyncio.Event()
        self.may = asyncio.Event()
        self.broken = False

    async def load(self, tenant: UUID, user: UUID, ask: IndexAsk, most: int) -> IndexRead:
        read = await super().load(tenant, user, ask, most)
        self.read_once.set()
        await self.may.wait()
        if self.broken:
            raise StoreUnavailable("away")
        return read


@pytest.fixture
async def tasks() -> AsyncIterator[Supervisor]:
    tasks = Supervisor()
    yield tasks
    await tasks.close(5)


@pytest.fixture
def store(pool: Pool) -> Slow:
    store = Slow(FromPool(pool, SQL), pool, SQL)
    store.may.set()
    return store


async def ask(indexes: Indexes, question: str = "cats") -> Scan:
    return await indexes.scan(TENANT, ANA, question, None, IndexScope(), vectors=100, texts=100)


async def found(indexes: Indexes, question: str = "cats") -> int:
    return len((await ask(indexes, question)).counts)


async def test_what_is_made_once_is_kept_and_follows(teller: Teller, store: Slow, tasks: Supervisor) -> None:
    told = Told()
    indexes = Indexes(store, tasks, **SPACED, limit=10**7, meter=told)
    await teller.tell(talk("about cats"), "cats are fine", session=SESSION)
    assert await found(indexes) == 2
    assert await found(indexes) == 2
    await teller.tell(talk("about cats", "cats are fine", "a cat again"), "Yes.", session=SESSION, new=1)
    assert await found(indexes) == 3
    assert told.asked == ["loaded", "held", "changed"]
    assert told.loaded == [2]
    await tasks.close(5)
    kept = await teller.rows("SELECT terms FROM agent_data.index_items")
    assert all(row["terms"] for row in kept), "who made terms of texts keeps them for others"
    other = Indexes(store, tasks, **SPACED, limit=10**7)
    assert await found(other) == 3


async def test_without_room_it_is_read_for_each_question(teller: Teller, store: Slow, tasks: Supervisor) -> None:
    told = Told()
    indexes = Indexes(store, tasks, **SPACED, limit=0, meter=told)
    await teller.tell(talk("about cats"), "fine", session=SESSION)
    assert [await found(indexes) for _ in range(3)] == [1, 1, 1]
    assert told.asked == ["loaded"] * 3
    assert indexes.bytes == 0


async def test_of_who_has_too_much_the_latest_is_kept(teller: Teller, store: Slow, tasks: Supervisor) -> None:
    indexes = Indexes(store, tasks, **SPACED, limit=10**7, most=3)
    for n in range(4):
        await teller.tell(talk(f"about cats {n}"), session=UUID(int=n))
    assert await found(indexes) == 3
    held = indexes.held(ANA)
    assert held is not None
    assert held.since is not None
    (since,) = await teller.rows(
        "SELECT (extract(epoch FROM min(created_at) - timestamptz '2000-01-01 00:00:00+00') * 1000000)::bigint AS at"
        " FROM agent_data.conversation_history WHERE content <> 'about cats 0'"
    )
    assert held.since == since["at"]
    # What is said from then on is added.
    await teller.tell(talk("more about cats"), session=SESSION)
    assert await found(indexes) == 4


async def test_a_load_that_is_late_is_ready_for_the_next(teller: Teller, store: Slow, tasks: Supervisor) -> None:
    told = Told()
    indexes = Indexes(store, tasks, **SPACED, limit=10**7, meter=told)
    await teller.tell(talk("about cats"), "fine", session=SESSION)
    store.may.clear()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            await ask(indexes)
    indexes.late(ANA)
    await store.read_once.wait()
    # What is written while it loads is there at the next question.
    await teller.tell(talk("about cats", "fine", "cats!"), "Yes.", session=SESSION, new=1)
    store.may.set()
    await tasks.close(5)
    assert await found(indexes) == 2
    assert told.asked == ["late", "changed"]
    indexes.late(ANA)
    assert told.asked == ["late", "changed"], "what was late is something else"


async def test_a_word_that_says_nothing_in_another_language_is_found(
    teller: Teller, store: Slow, tasks: Supervisor
) -> None:
    """Without vectors: "war" alone is taken for German, where it says as little as "was"."""
    indexes = Indexes(store, tasks, **SPACED, limit=10**7)
    await teller.tell(talk("My book is about the war of 1870."), "Which war do you mean?", session=SESSION)
    assert [await found(indexes, each) for each in ("war", "the war", "what was it")] == [2, 2, 0]


async def test_who_goes_away_while_it_loads_is_not_counted(teller: Teller, store: Slow, tasks: Supervisor) -> None:
    """As a client does that hangs up: nothing was late for it."""
    told = Told()
    indexes = Indexes(store, tasks, **SPACED, limit=10**7, meter=told)
    await teller.tell(talk("about cats"), "fine", session=SESSION)
    store.may.clear()
    asking = tasks.spawn(ask(indexes), "ask")
    await store.read_once.wait()
    asking.cancel()
    with suppress(asyncio.CancelledError):
        await asking
    store.may.set()
    await tasks.close(5)
    assert await found(indexes) == 1
    assert told.asked == ["held"]


async def test_a_load_that_fails_is_tried_again(teller: Teller, store: Slow, tasks: Supervisor) -> None:
    indexes = Indexes(store, tasks, **SPACED, limit=10**7)
    await teller.tell(talk("about cats"), "fine", session=SESSION)
    store.broken = True
    with pytest.raises(StoreUnavailable):
        await ask(indexes)
    store.broken = False
    assert await found(indexes) == 1


async def test_what_cannot_be_read_is_left_out_and_counted(teller: Teller, store: Slow, tasks: Supervisor) -> None:
    told = Told()
    indexes = Indexes(store, tasks, **SPACED, limit=10**7, meter=told)
    await teller.tell(talk("about cats"), "cats are fine", session=SESSION)
    await teller.admin.execute(
        "UPDATE agent_data.index_items SET terms = '\\x0100ff'"
        " WHERE item_id = (SELECT min(item_id::text)::uuid FROM agent_data.index_items)"
    )
    assert await found(indexes) == 1
    assert told.unreadable == 1
    await teller.tell(talk("about cats", "cats are fine", "a cat again"), "Yes.", session=SESSION, new=1)
    assert await found(indexes) == 2
    assert told.unreadable == 1


async def test_an_erased_user_is_out_of_memory_without_being_asked_for(
    teller: Teller, store: Slow, tasks: Supervisor, pool: Pool, database: str
) -> None:
    indexes = Indexes(store, tasks, **SPACED, limit=10**7)
    gone: asyncio.Queue[UUID | None] = asyncio.Queue()

    def erased(user: UUID) -> None:
        indexes.drop(user)
        gone.put_nowait(user)

    def lost() -> None:
        indexes.drop_all()
        gone.put_nowait(None)

    erasures = Erasures(own_connection(database, APP_ROLE), pool, SQL, erased, lost)
    listening = tasks.spawn(erasures.listen(), "erasures")
    async with asyncio.timeout(20):
        await erasures.listening.wait()
        assert await gone.get() is None, "what was kept before nobody tells of"
        await teller.tell(talk("about cats"), "fine", session=SESSION)
        assert await found(indexes) == 1
        assert indexes.bytes > 0
        eraser = Eraser(own_connection(database, ERASER_ROLE), SQL, SystemClock())
        await eraser.erase(TENANT, ANA)
        assert await gone.get() == ANA
        assert indexes.bytes == 0
        assert await gone.get() == ANA, "again at the end: somebody may have asked meanwhile"
        # A connection that is lost: what is not heard may have been anybody's.
        await teller.tell(talk("about cats"), "fine", session=SESSION)
        await teller.admin.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()"
        )
        assert await gone.get() is None
        assert indexes.bytes == 0
    listening.cancel()
    with suppress(asyncio.CancelledError):
        await listening


async def test_erasures_are_not_heard_on_another_server_than_the_one_that_is_asked(
    tasks: Supervisor, pool: Pool, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a fail-over that the pool followed and the listener did not: what is kept is dropped, again and again."""
    monkeypatch.setattr("app.store.erasure.LOOK_S", 0.01)
    monkeypatch.setattr("app.store.erasure.PAUSE_S", 0.01)
    told: asyncio.Queue[None] = asyncio.Queue()

    differing = {"index.whose": "SELECT random() AS system_identifier"}
    connect = own_connection(database, APP_ROLE)
    erasures = Erasures(connect, pool, cast("Queries", differing), lambda user: None, lambda: told.put_nowait(None))
    listening = tasks.spawn(erasures.listen(), "erasures")
    async with asyncio.timeout(20):
        for _ in range(5):  # as it begins to listen, and as it ends: twice each time
            await told.get()
    listening.cancel()
