"""Turns written together: nothing lost, nothing doubled, nothing torn, whatever happens to the connection or to a neighbour."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from app.capture.commit import GroupCommit
from app.capture.facts import CallFacts, CompileFacts, Exchange
from app.capture.record import Recorder
from app.context.assemble import Block
from app.errors import StoreUnavailable
from app.metrics import Metrics
from app.providers.tokens import CountCache
from app.store import ids
from app.store.pools import Pool, open_pool
from app.store.queries import Queries
from app.store.records import TurnRecord
from app.store.turns import TurnStore
from app.tasks import Supervisor
from tests.support.database import connected
from tests.support.teller import ANA, NOW, TENANT, Teller, recipe_of, said, talk
from tests.support.wired_api import HashEmbedder, WordCounter

DEADLINE_S = 30.0
"""Seconds after which what must not hang is taken to hang."""
S1 = UUID(int=0x91)

Together = Callable[..., GroupCommit]


class Shelf(TurnStore):
    """Keeps what a recorder would write."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool, Queries.load())
        self.turns: list[TurnRecord] = []

    async def record_many(self, turns: Sequence[TurnRecord]) -> bool:
        self.turns += turns
        return True


def recorder(store: TurnStore, commit: GroupCommit | None = None) -> Recorder:
    return Recorder(store, HashEmbedder(), CountCache(), WordCounter(), commit)


class Explained(Recorder):
    """As if the compile of every turn had chosen these memories."""

    chosen: Sequence[UUID] = ()

    async def record(self, call: CallFacts, exchange: Exchange | None, compiled: CompileFacts | None) -> bool:
        many = len(self.chosen)
        items = {"id": self.chosen, "source": ["memory"] * many, "score": [0.75] * many, "reason": ["chosen"] * many}
        items["because_of"] = [None] * many
        return await super().record(call, exchange, CompileFacts({"items": items}, 0.9))


@pytest.fixture
async def tasks() -> AsyncIterator[Supervisor]:
    supervisor = Supervisor()
    yield supervisor
    await supervisor.close(0)


@pytest.fixture
def together(tasks: Supervisor) -> Together:
    def made(store: TurnStore, **given: Any) -> GroupCommit:
        limits: dict[str, Any] = {"turns": 16, "queue": 256, "timeout_s": DEADLINE_S}
        return GroupCommit(store, tasks, Metrics(CollectorRegistry()), **limits | given)

    return made


def many(teller: Teller, commit: GroupCommit, count: int) -> list[Teller]:
    """Tellers that go by one group commit, each at a time of its own."""
    times = [NOW + timedelta(minutes=n) for n in range(count)]
    return [Teller(teller.store, recorder(teller.store, commit), teller.admin, at) for at in times]


async def all_of(*work: Awaitable[Any]) -> list[Any]:
    async with asyncio.timeout(DEADLINE_S):
        return await asyncio.gather(*work, return_exceptions=True)


async def whole(teller: Teller) -> dict[UUID, int]:
    """Messages by call. Each call has its stream of rows whole, or is not there."""
    rows = await teller.rows(
        "SELECT c.call_id, (SELECT count(*) FROM agent_data.conversation_history h WHERE h.call_id = c.call_id) AS messages,"
        " (SELECT count(*) FROM agent_data.pgqueuer q WHERE q.dedupe_key = 'learn:' || c.call_id) AS jobs"
        " FROM agent_data.upstream_calls c"
    )
    assert {row["jobs"] for row in rows} <= {1}
    return {row["call_id"]: row["messages"] for row in rows}


async def waiting_for_a_lock(teller: Teller) -> int:
    """The backend that waits."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            found = await teller.rows(
                "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
                " AND query LIKE '%record_turns%'"
            )
            if found:
                return int(found[0]["pid"])
            await asyncio.sleep(0.01)


# --- the same as one by one -------------------------------------------------------------------------------------------------


async def told(teller: Teller, user: UUID, name: str, base: int, *, together: bool) -> None:
    """The same six turns of a user, in two steps: what stands there already, and what comes then, at once or one by one."""
    shelf = Shelf(teller.store._pool)
    preparer = Teller(teller.store, recorder(shelf), teller.admin, NOW)
    sessions = [UUID(int=base + n) for n in range(4)]
    given: dict[str, Any] = {"user": user}
    block = Block(b"c" * 16, b"m" * 16, None, "block", (UUID(int=8),), 3)

    async def write() -> None:
        if together:
            assert await teller.store.record_many(shelf.turns)
        else:
            for each in shelf.turns:
                assert await teller.store.record(each)
        shelf.turns.clear()

    await preparer.tell(talk("q"), "a", "b", session=sessions[0], **given)
    await preparer.tell(talk("long"), "ago", session=sessions[1], session_name=name, system_prompt="Be kind.", **given)
    await write()
    row = await teller.admin.fetchrow(
        "SELECT message_id FROM agent_data.conversation_history WHERE session_id = $1 AND turn_index = 1", sessions[0]
    )
    assert row is not None
    parts = recipe_of(b"1", b"2")[1]
    # A regenerated answer; a new session by name with a system prompt; a branch; a call of no turn; one under a key.
    await preparer.tell(
        talk("q"), "c", "d", session=sessions[0], new=0, asked_index=2, parent_message_id=row["message_id"], **given
    )
    await preparer.tell(talk("long", "ago", "x"), "y", session=sessions[1], new=1, block=block, epoch=0, **given)
    await preparer.tell(
        talk("z"), "w", session=sessions[2], parent_session_id=sessions[0], branch_turn_index=2, facts={"request": parts},
        system_prompt="Be brief.", **given,
    )  # fmt: skip
    await preparer.tell(talk("keyed"), "k", session=sessions[3], facts={"repeat_key": b"k"}, **given)
    lone = shelf.turns[0].call._replace(call_id=ids.uuid7(NOW), session_id=None, repeat_key=None)
    shelf.turns.append(TurnRecord(lone))
    await write()


async def left_behind(teller: Teller, user: UUID) -> dict[str, list[tuple[Any, ...]]]:
    """What the user has, but for ids and times."""
    queries = {
        "history": "SELECT turn_index, sibling, role, content, token_count, model_id, finish_reason, metadata,"
        " prompt_tokens, hidden, parent_message_id IS NULL, call_id IS NULL FROM agent_data.conversation_history",
        "sessions": "SELECT external_id, turn_count, head_turn_index, total_prompt_tokens, total_cost_microcents,"
        " branch_turn_index, parent_session_id IS NULL, tail1, tail2, head_chain, system_prompt_hash, block_epoch,"
        " last_message_at - first_message_at FROM agent_data.sessions",
        "heads": "SELECT chain_hash, turn_index, asked, visible_from, request_count FROM agent_data.session_heads",
        "blocks": "SELECT epoch, text, item_ids FROM agent_data.context_blocks",
        "vectors": "SELECT space, item_kind, in_hnsw, vector::text FROM agent_data.embeddings",
        "calls": "SELECT idempotency_key, session_id IS NULL, status, request_count FROM agent_data.upstream_calls",
        "blobs": "SELECT blob_hash, body FROM agent_data.message_blobs",
        "chains": "SELECT chain_hash, parent_hash, blobs FROM agent_data.request_chains",
        "keys": "SELECT key_hash FROM agent_data.idempotency_keys",
        "users": "SELECT external_id, use_hnsw FROM agent_data.users",
    }
    found = {}
    for name, query in queries.items():
        rows = await teller.admin.fetch(f"{query} WHERE user_id = $1", user)
        found[name] = sorted((tuple(row) for row in rows), key=repr)
    return found


async def test_turns_written_together_leave_what_each_would_alone(teller: Teller) -> None:
    ana, bob = ids.user_id(TENANT, "ana"), ids.user_id(TENANT, "bob")
    await told(teller, ana, "hers", 0x100, together=False)
    await told(teller, bob, "hers", 0x200, together=True)
    alone, batched = await left_behind(teller, ana), await left_behind(teller, bob)
    for name in alone:
        assert alone[name] == batched[name], name
        assert alone[name], name
    assert [(row[0], row[1], row[3]) for row in batched["history"] if row[3] in "abcd"] == [
        (2, n, text) for n, text in enumerate("abcd")
    ]


async def test_a_batch_that_is_stored_already_leaves_one(teller: Teller) -> None:
    shelf = Shelf(teller.store._pool)
    preparer = Teller(teller.store, recorder(shelf), teller.admin, NOW)
    for n in range(3):
        await preparer.tell(talk(f"q{n}"), "a", session=UUID(int=n + 1))
    assert await teller.store.record_many(shelf.turns[:2])
    assert not await teller.store.record_many(shelf.turns[:2])
    with pytest.raises(asyncpg.UniqueViolationError):
        await teller.store.record_many(shelf.turns)
    assert set((await whole(teller)).values()) == {2}
    assert len(await whole(teller)) == 2, "of those that are stored in part nothing more is"


# --- what may happen ----------------------------------------------------------------------------------------------------------


async def test_sixty_four_at_once_and_one_that_cannot_be_stored(teller: Teller, together: Together) -> None:
    """The poison is text that Postgres refuses, past the recorder, which would have cleaned it."""
    sizes: list[int] = []

    class Watched(TurnStore):
        async def record_many(self, turns: Sequence[TurnRecord]) -> bool:
            poisoned = [
                replace(each, messages=[each.messages[0]._replace(content="\0"), *each.messages[1:]])
                if each.messages[0].content == "q13"
                else each
                for each in turns
            ]
            done = await super().record_many(poisoned)
            sizes.append(len(turns))
            return done

    commit = together(Watched(teller.store._pool, Queries.load()))
    tellers = many(teller, commit, 64)
    found = await all_of(*(each.tell(talk(f"q{n}"), "a", session=UUID(int=n + 1)) for n, each in enumerate(tellers)))
    assert isinstance(found.pop(13), asyncpg.CharacterNotInRepertoireError)
    assert found == [True] * 63
    stored = await whole(teller)
    assert set(stored) == {each.calls[0] for n, each in enumerate(tellers) if n != 13}
    assert set(stored.values()) == {2}
    assert (sum(sizes), max(sizes)) == (63, 16)


async def test_a_backend_that_is_killed_under_a_batch(teller: Teller, database: str, together: Together) -> None:
    await teller.tell(talk("q"), "a", session=S1)
    commit = together(teller.store)
    tellers = many(teller, commit, 8)
    async with connected(database) as other:
        lock = other.transaction()
        await lock.start()
        await other.execute("SELECT 1 FROM agent_data.sessions WHERE session_id = $1 FOR UPDATE", S1)
        callers = asyncio.gather(
            *(
                each.tell(talk(f"r{n}"), f"b{n}", session=S1 if n == 0 else UUID(int=n))
                for n, each in enumerate(tellers)
            )
        )
        async with asyncio.timeout(DEADLINE_S):
            pid = await waiting_for_a_lock(teller)
            await teller.admin.execute("SELECT pg_terminate_backend($1, 5000)", pid)
            assert await waiting_for_a_lock(teller) != pid, "it is sent once more, by another connection"
            await lock.rollback()
            assert await callers == [True] * 8
    stored = await whole(teller)
    assert (len(stored), set(stored.values())) == (9, {2})
    assert [place for place, _, _ in await teller.places(S1)] == [1, 2, 3, 4]


async def test_an_answer_that_was_lost_doubles_nothing(teller: Teller, together: Together) -> None:
    class Lossy(TurnStore):
        lost = 0

        async def record_many(self, turns: Sequence[TurnRecord]) -> bool:
            done = await super().record_many(turns)
            if self.lost < 1:
                self.lost += 1
                raise StoreUnavailable from ConnectionResetError()
            return done

    commit = together(Lossy(teller.store._pool, Queries.load()))
    tellers = many(teller, commit, 5)
    found = await all_of(*(each.tell(talk(f"q{n}"), "a", session=UUID(int=n + 1)) for n, each in enumerate(tellers)))
    assert found == [True] * 5
    stored = await whole(teller)
    assert (len(stored), set(stored.values())) == (5, {2})
    assert {row["turn_count"] for row in await teller.rows("SELECT turn_count FROM agent_data.sessions")} == {2}


async def test_callers_that_go_away_tear_nothing(teller: Teller, database: str, together: Together) -> None:
    await teller.tell(talk("q"), "a", session=S1)
    commit = together(teller.store, turns=4)
    tellers = many(teller, commit, 24)
    callers = Supervisor()
    async with connected(database) as other:
        lock = other.transaction()
        await lock.start()
        await other.execute("SELECT 1 FROM agent_data.sessions WHERE session_id = $1 FOR UPDATE", S1)
        sent = [
            callers.spawn(each.tell(talk(f"r{n}"), f"b{n}", session=S1 if n == 0 else UUID(int=n)), f"caller {n}")
            for n, each in enumerate(tellers)
        ]
        await waiting_for_a_lock(teller)
        for each in sent[::2]:  # one of them under way, the others in the queue
            each.cancel()
        await lock.rollback()
    assert await all_of(*sent[1::2]) == [True] * 12
    await commit.close(DEADLINE_S)
    stored = await whole(teller)
    assert (len(stored), set(stored.values())) == (25, {2})


async def test_two_processes_write_for_the_same_users(teller: Teller, database: str, together: Together) -> None:
    """The same users, sessions, message parts, system prompts and memories from both, in unlike orders."""
    users = [f"user{n}" for n in range(4)]
    memories = {name: await remembered(teller, ids.user_id(TENANT, name), 3) for name in users}
    parts = [b"%d" % n * 50 for n in range(20)]
    rng = random.Random(7)
    turns_of_each, processes = 40, 2
    pools = [await second_pool(database) for _ in range(processes)]
    commits = [together(TurnStore(pool, Queries.load())) for pool in pools]
    work, at = [], 0
    for commit in commits:
        for _ in range(turns_of_each):
            at += 1
            name = rng.choice(users)
            order = rng.sample(parts, len(parts))
            explained = Explained(teller.store, HashEmbedder(), CountCache(), WordCounter(), commit)
            explained.chosen = rng.sample(memories[name], 2)
            preparer = Teller(teller.store, explained, teller.admin, NOW + timedelta(minutes=at))
            given: dict[str, Any] = {
                "user": ids.user_id(TENANT, name),
                "session": UUID(int=users.index(name) * 3 + rng.randrange(3) + 1),
                "facts": {"request": recipe_of(*order)[1]},
                "system_prompt": f"prompt {rng.randrange(5)}",
            }
            work.append(preparer.tell(talk(f"q{at}"), "a", **given))
    rng.shuffle(work)
    assert await all_of(*work) == [True] * (turns_of_each * processes)
    stored = await whole(teller)
    assert (len(stored), set(stored.values())) == (turns_of_each * processes, {2})
    for row in await teller.rows("SELECT session_id, user_id, turn_count FROM agent_data.sessions"):
        places = await teller.rows(
            "SELECT turn_index FROM agent_data.conversation_history WHERE session_id = $1 AND user_id = $2 ORDER BY 1",
            row["session_id"], row["user_id"],
        )  # fmt: skip
        assert [each["turn_index"] for each in places] == list(range(1, row["turn_count"] + 1))
    (uses,) = await teller.rows("SELECT sum(access_count)::integer AS n FROM agent_data.memory_store")
    assert 0 < uses["n"] <= 2 * turns_of_each * processes
    for pool in pools:
        await pool.close()


async def second_pool(dsn: str) -> Pool:
    return await open_pool(
        dsn, size=4, timeout_ms=5000, statement_timeout_ms=30_000, statement_cache_size=256, role="mneme_app"
    )


async def test_a_key_that_two_of_a_queue_have_in_common(teller: Teller, together: Together) -> None:
    given = {"repeat_key": b"k", "request": recipe_of(b"1")[1]}
    tellers = many(teller, together(teller.store), 5)
    work = (each.tell(talk("q"), "a", session=UUID(int=n + 1), facts=given) for n, each in enumerate(tellers))
    assert await all_of(*work) == [True] * 5
    calls = await teller.rows("SELECT session_id FROM agent_data.upstream_calls")
    assert (len(calls), len({row["session_id"] for row in calls})) == (5, 1)
    for table, count in (("sessions", 1), ("conversation_history", 2), ("session_heads", 2), ("pgqueuer", 1)):
        assert len(await teller.rows(f"SELECT 1 FROM agent_data.{table}")) == count, table


# --- the use of memories --------------------------------------------------------------------------------------------------


async def remembered(teller: Teller, user: UUID, count: int) -> list[UUID]:
    rows = await teller.admin.fetch(
        "INSERT INTO agent_data.memory_store (memory_id, user_id, tenant_id, memory_tier, memory_scope, content_text,"
        " content_hash, provenance_type, token_count) SELECT gen_random_uuid(), $1, $2, 3, 1, 'fact ' || n,"
        " decode(md5(n::text), 'hex'), 0, 3 FROM generate_series(1, $3) AS n RETURNING memory_id",
        user, TENANT, count,
    )  # fmt: skip
    return [row["memory_id"] for row in rows]


async def used_turns(teller: Teller, count: int, uses: Sequence[tuple[UUID, float]]) -> list[TurnRecord]:
    shelf = Shelf(teller.store._pool)
    preparer = Teller(teller.store, recorder(shelf), teller.admin, NOW)
    for n in range(count):
        await preparer.tell(talk(f"q{n}"), "a", session=UUID(int=n + 1))
    return [replace(each, uses=uses) for each in shelf.turns]


async def test_the_memories_of_a_prompt_were_of_use_once(teller: Teller) -> None:
    one, two, unused = await remembered(teller, ANA, 3)
    turns = await used_turns(teller, 3, [(two, 0.5), (one, 0.25)])
    turns[2] = replace(turns[2], uses=[(one, -0.5)])
    await teller.store.record_many(turns)
    await teller.store.record_many(turns)
    rows = await teller.rows("SELECT * FROM agent_data.memory_store")
    found = {row["memory_id"]: (row["access_count"], row["relevance_accumulator"]) for row in rows}
    assert found == {one: (3, 0.5), two: (2, 1.0), unused: (0, 0.0)}
    times = {row["memory_id"]: row["last_accessed_at"] for row in rows}
    assert times == {one: turns[2].call.created_at, two: turns[2].call.created_at, unused: None}


async def test_another_users_memory_is_not_counted(teller: Teller) -> None:
    (other,) = await remembered(teller, ids.user_id(TENANT, "bob"), 1)
    await teller.store.record_many(await used_turns(teller, 1, [(other, 0.5)]))
    assert [row["access_count"] for row in await teller.rows("SELECT access_count FROM agent_data.memory_store")] == [0]


async def test_a_memory_that_somebody_is_changing_is_not_waited_for(teller: Teller, database: str) -> None:
    held, free = await remembered(teller, ANA, 2)
    turns = await used_turns(teller, 2, [(held, 0.5), (free, 0.5)])
    async with connected(database) as other, other.transaction():
        await other.execute("SELECT 1 FROM agent_data.memory_store WHERE memory_id = $1 FOR UPDATE", held)
        async with asyncio.timeout(DEADLINE_S):
            assert await teller.store.record_many(turns)
    rows = await teller.rows("SELECT memory_id, access_count FROM agent_data.memory_store")
    assert {row["memory_id"]: row["access_count"] for row in rows} == {held: 0, free: 2}


async def test_a_turn_counts_what_its_compile_chose(teller: Teller) -> None:
    (known,) = await remembered(teller, ANA, 1)
    teller.recorder = explained = Explained(teller.store, HashEmbedder(), CountCache(), WordCounter())
    explained.chosen = [known]
    await teller.tell([said("user", "q")], "a", session=S1)
    rows = await teller.rows("SELECT access_count, relevance_accumulator FROM agent_data.memory_store")
    assert rows == [{"access_count": 1, "relevance_accumulator": 0.75}]
