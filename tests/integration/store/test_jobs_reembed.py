"""`mneme reembed` on a real Postgres: app/features/reembed.py and app/features/reembed.py together."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any
from uuid import UUID

import asyncpg
import numpy as np
import pytest

from app.errors import Conflict, NotFound, NotReady, Unavailable
from app.features import reembed as reembed
from app.features.reembed import Reembedder, ReembedStore, RunProgress, bring_over, drop_space, spaces_of
from app.memory.text import content_hash
from app.providers.embeddings import Vectors, build_embedder
from app.settings import Settings
from app.store.erasure import ERASER_ROLE, Deleter, Eraser, own_connection
from app.store.memories import Memories, MemoryChange, MemoryText, NewMemory
from app.store.pools import Pool
from app.store.sessions import SessionRef
from app.store.tenancy import UserRef
from tests.support.clock import FakeClock
from tests.support.jobs import SQL
from tests.support.learning import NOW, OTHER_TENANT, TENANT, Talk
from tests.support.wired_api import DIMENSIONS, SPACE, HashEmbedder, make_space

NEW, NEW_DIMENSIONS = "new-12", 12


class NewEmbedder:
    """Another space; what holds it up or makes it fail is set from outside."""

    space = NEW
    dimensions = NEW_DIMENSIONS
    local = True
    duplicate_threshold = 0.9

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.before: Any = None
        self.away = False

    async def embed(self, texts: Sequence[str]) -> Vectors:
        self.asked += texts
        if self.before is not None:
            await self.before(texts)
        if self.away:
            raise Unavailable("the embedder does not answer")
        rows = [np.frombuffer(blake2b(each.encode(), digest_size=12).digest(), np.uint8) for each in texts]
        out = np.array([row.astype(np.float32) + 1 for row in rows]).reshape(len(texts), NEW_DIMENSIONS)
        out /= np.linalg.norm(out, axis=1, keepdims=True)
        out[[not any(c.isalnum() for c in each) for each in texts]] = 0
        return out

    async def close(self) -> None:
        return None


@pytest.fixture
async def old(admin: asyncpg.Connection[Any]) -> int:
    return await make_space(admin)


@pytest.fixture
def embedder(monkeypatch: pytest.MonkeyPatch) -> NewEmbedder:
    made = NewEmbedder()
    monkeypatch.setattr(reembed, "build_embedder", lambda _: made)
    return made


@pytest.fixture
async def memories(pool: Pool, old: int) -> Memories:
    return Memories(pool, SQL, FakeClock(NOW), space=old)


def settings(**given: Any) -> Settings:
    return Settings(job_lease_s=5.0, **given)


async def remember(memories: Memories, *texts: str, user: str = "ana", tenant: UUID = TENANT) -> list[UUID]:
    vectors = await HashEmbedder().embed(texts)
    new = [NewMemory(text, content_hash(text), 3, vector) for text, vector in zip(texts, vectors, strict=True)]
    found = await memories.add(tenant, UserRef(Talk(user, tenant=tenant).user, user), new)
    return [each.memory_id for each, _ in found]


async def vectors(admin: asyncpg.Connection[Any], space: str) -> dict[str, int]:
    """Texts with a vector in a space, and how many."""
    rows = await admin.fetch(
        "SELECT COALESCE(h.content, m.content_text) AS text FROM agent_data.embeddings e"
        " JOIN agent_data.embedding_spaces s USING (space)"
        " LEFT JOIN agent_data.conversation_history h ON h.user_id = e.user_id AND h.message_id = e.item_id"
        " LEFT JOIN agent_data.memory_store m ON m.user_id = e.user_id AND m.memory_id = e.item_id WHERE s.name = $1",
        space,
    )
    texts = [row["text"] for row in rows]
    return {each: texts.count(each) for each in texts}


async def test_everything_gets_a_vector_in_the_new_space_and_keeps_the_old_one(
    embedder: NewEmbedder, memories: Memories, pool: Pool, database: str, admin: asyncpg.Connection[Any]
) -> None:
    await remember(memories, "Lives in Lisbon", "Likes tea")
    await remember(memories, "Has a boat", user="bob", tenant=OTHER_TENANT)
    talk = Talk()
    await talk.say(pool, "Hello", "?!", "What is my name?")
    await talk.say(pool, "You are a pirate", role="system")
    seen: list[tuple[str, Any]] = []
    watch = RunProgress(
        lambda text: seen.append(("step", text)), lambda n: seen.append(("more", n)), lambda n: seen.append(("done", n))
    )

    result = await bring_over(settings(), database, watch)

    assert (result.space, result.embedded, result.wordless, result.left) == (NEW, 5, 1, 0)
    want = ["Has a boat", "Hello", "Likes tea", "Lives in Lisbon", "What is my name?"]
    assert await vectors(admin, NEW) == dict.fromkeys(want, 1)
    assert set(await vectors(admin, SPACE)) == {"Has a boat", "Likes tea", "Lives in Lisbon"}
    assert sum(n for kind, n in seen if kind == "more") == sum(n for kind, n in seen if kind == "done") == 6
    assert [(each.name, each.vectors) for each in await spaces_of(database)] == [(SPACE, 3), (NEW, 5)]
    # Doing it again does nothing, and the wordless one is asked for once a run.
    embedder.asked.clear()
    again = await bring_over(settings(), database, RunProgress())
    assert (again.embedded, again.left) == (0, 0)
    assert len(embedder.asked) == 2  # the trial, and what has no words
    assert await admin.fetchval("SELECT count(*) FROM agent_data.pgqueuer") == 0


async def test_the_indexes_are_those_that_a_start_would_make(
    embedder: NewEmbedder, memories: Memories, database: str, admin: asyncpg.Connection[Any]
) -> None:
    await remember(memories, "Lives in Lisbon")
    await bring_over(settings(), database, RunProgress())
    number = await admin.fetchval("SELECT space FROM agent_data.embedding_spaces WHERE name = $1", NEW)
    found = await admin.fetch(
        "SELECT c.relname, x.indisvalid, pg_get_indexdef(c.oid) AS def,"
        " (SELECT count(*) FROM pg_inherits i WHERE i.inhparent = c.oid) AS parts"
        " FROM pg_class c JOIN pg_index x ON x.indexrelid = c.oid WHERE c.relname LIKE $1",
        f"embeddings\\_%\\_{number}",
    )
    own = {row["relname"]: row for row in found if row["relname"].count("_") == 2}
    assert set(own) == {f"embeddings_{kind}_{number}" for kind in ("hnsw", "memories")}
    assert all(row["indisvalid"] and row["parts"] == 2 for row in own.values())
    # All of them were built beforehand, and joined: had one been defined otherwise, the start would have built it once more.
    parts = await admin.fetch(
        "SELECT indexname FROM pg_indexes WHERE tablename = 'embeddings_p0' AND indexdef LIKE $1",
        f"%space = {number})%",
    )
    assert {row["indexname"] for row in parts} == {f"embeddings_p0_{kind}_{number}" for kind in ("hnsw", "memories")}
    made = await admin.fetchval("SELECT agent_data.ensure_embedding_space('as-at-a-start', $1)", NEW_DIMENSIONS)
    for name, row in own.items():
        twin = await admin.fetchval(
            "SELECT pg_get_indexdef($1::text::regclass)", f"agent_data.{name.rpartition('_')[0]}_{made}"
        )
        assert row["def"].replace(f"_{number} ", "_N ").replace(f"space = {number}", "space = N") == twin.replace(
            f"_{made} ", "_N "
        ).replace(f"space = {made}", "space = N")


async def test_an_index_that_was_left_half_built_is_built_anew(
    embedder: NewEmbedder, memories: Memories, database: str, admin: asyncpg.Connection[Any]
) -> None:
    await remember(memories, "Lives in Lisbon")
    row = await admin.fetchrow(SQL["reembed.register"], NEW, NEW_DIMENSIONS)
    assert row is not None
    number = row["space"]
    await admin.execute(f"CREATE INDEX embeddings_p0_hnsw_{number} ON agent_data.embeddings_p0 (user_id)")
    await admin.execute(
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = $1::text::regclass",
        f"agent_data.embeddings_p0_hnsw_{number}",
    )
    assert (await bring_over(settings(), database, RunProgress())).embedded == 1
    valid = await admin.fetch(
        "SELECT indisvalid FROM pg_index WHERE indexrelid::regclass::text LIKE $1", f"%hnsw\\_{number}"
    )
    assert [row["indisvalid"] for row in valid] == [True] * 3


async def test_what_is_said_meanwhile_gets_both_and_what_is_forgotten_gets_none(
    embedder: NewEmbedder, memories: Memories, pool: Pool, database: str, admin: asyncpg.Connection[Any]
) -> None:
    many = await remember(memories, *(f"Fact {n}" for n in range(600)))
    talk, once = Talk(), iter([True])
    await talk.say(pool, "Keep this", "Take this back")
    deleter = Deleter(own_connection(database, ERASER_ROLE), SQL, FakeClock(NOW))

    async def meanwhile(texts: Sequence[str]) -> None:
        # Between the reading of a batch and the writing of its vectors.
        if any(each.startswith("Fact") for each in texts) and next(once, False):
            first, second = [
                many[int(each.split()[1])] for each in [each for each in texts if each.startswith("Fact")][:2]
            ]
            await memories.forget(TENANT, talk.user, first)
            vector = (await HashEmbedder().embed(["Edited"]))[0]
            await memories.change(
                TENANT, talk.user, second, MemoryChange(text=MemoryText("Edited", content_hash("Edited"), 1, vector))
            )
            await talk.say(pool, "A new turn")
        if "Take this back" in texts:
            (row,) = await admin.fetch(
                "SELECT session_id, message_id FROM agent_data.conversation_history WHERE content = 'Take this back'"
            )
            ref = SessionRef(talk.user, UUID(bytes=row["session_id"].bytes))
            assert await deleter.delete(TENANT, ref, UUID(bytes=row["message_id"].bytes)) is not None

    embedder.before = meanwhile
    result = await bring_over(settings(), database, RunProgress())
    assert result.left == 0
    found = await vectors(admin, NEW)
    assert found["A new turn"] == found["Edited"] == 1
    assert "Take this back" in embedder.asked
    assert "Take this back" not in found
    assert len(found) == 601, "one was forgotten, one message deleted and one kept, one turn is new"
    assert "" not in found


async def test_an_erasure_meanwhile_leaves_nothing(
    embedder: NewEmbedder, memories: Memories, database: str, admin: asyncpg.Connection[Any]
) -> None:
    await remember(memories, "Lives in Lisbon")
    await remember(memories, "Has a boat", user="bob")
    eraser, talk = Eraser(own_connection(database, ERASER_ROLE), SQL, FakeClock(NOW)), Talk()

    async def meanwhile(texts: Sequence[str]) -> None:
        if "Lives in Lisbon" in texts:
            await eraser.erase(TENANT, talk.user)

    embedder.before = meanwhile
    result = await bring_over(settings(), database, RunProgress())
    assert result.left == 0
    assert await vectors(admin, NEW) == {"Has a boat": 1}
    assert await admin.fetchval("SELECT count(*) FROM agent_data.embeddings WHERE user_id = $1", talk.user) == 0


async def test_what_fails_or_is_stopped_goes_on(
    embedder: NewEmbedder, memories: Memories, database: str, admin: asyncpg.Connection[Any]
) -> None:
    await remember(memories, *(f"Fact {n}" for n in range(600)))
    failing = iter([False, False])  # the trial and the first batch work

    async def fail(_: Sequence[str]) -> None:
        embedder.away = next(failing, True)

    embedder.before = fail
    with pytest.raises(Unavailable, match="1 users could not be embedded"):
        await bring_over(settings(), database, RunProgress(), attempts=1)
    assert len(await vectors(admin, NEW)) == 256
    embedder.before, embedder.away = None, False
    embedder.asked.clear()
    # As if a process that was killed had left its job behind, in the middle of it.
    await admin.execute("UPDATE agent_data.pgqueuer SET status = 'picked', heartbeat = now()")
    assert (await bring_over(settings(), database, RunProgress())).embedded == 344
    assert len(embedder.asked) == 345
    assert len(await vectors(admin, NEW)) == 600


async def test_two_at_once_are_refused(embedder: NewEmbedder, memories: Memories, database: str) -> None:
    await remember(memories, "Lives in Lisbon")
    begun, end = asyncio.Event(), asyncio.Event()

    async def wait(_: Sequence[str]) -> None:
        if "Lives in Lisbon" in embedder.asked:
            begun.set()
            await end.wait()

    embedder.before = wait
    async with asyncio.TaskGroup() as group:
        first = group.create_task(bring_over(settings(), database, RunProgress()))
        await begun.wait()
        embedder.before = None
        with pytest.raises(Conflict, match="Another"):
            await bring_over(settings(), database, RunProgress())
        with pytest.raises(Conflict, match="Another"):
            await drop_space(settings(), database, SPACE, RunProgress())
        end.set()
    assert first.result().embedded == 1


async def test_the_old_space_is_dropped_on_request_and_not_before_its_time(
    embedder: NewEmbedder, memories: Memories, database: str, admin: asyncpg.Connection[Any]
) -> None:
    await remember(memories, "Lives in Lisbon", "Likes tea")
    with pytest.raises(Conflict, match="run `mneme reembed` first"):
        await drop_space(settings(), database, SPACE, RunProgress())
    await bring_over(settings(), database, RunProgress())
    await remember(memories, "Said to a server that still has the old one")
    with pytest.raises(Conflict, match="1 items have a vector"):
        await drop_space(settings(), database, SPACE, RunProgress())
    await bring_over(settings(), database, RunProgress())
    with pytest.raises(Conflict, match="the settings name"):
        await drop_space(settings(), database, NEW, RunProgress())
    with pytest.raises(NotFound, match=f"there are {SPACE}, {NEW}"):
        await drop_space(settings(), database, "nonsense", RunProgress())

    assert await drop_space(settings(), database, SPACE, RunProgress()) == 3
    assert [each.name for each in await spaces_of(database)] == [NEW]
    assert await admin.fetchval("SELECT count(*) FROM pg_class WHERE relname LIKE 'embeddings%hnsw%'") == 3
    assert len(await vectors(admin, NEW)) == 3


async def test_a_space_of_other_dimensions_is_refused(
    embedder: NewEmbedder, database: str, admin: asyncpg.Connection[Any]
) -> None:
    await admin.fetchval("SELECT agent_data.ensure_embedding_space($1, 16)", NEW)
    with pytest.raises(NotReady, match="has 16 dimensions, not 12"):
        await bring_over(settings(), database, RunProgress())


async def test_without_an_embedder_there_is_nothing_to_change_to(database: str) -> None:
    with pytest.raises(NotReady, match="MNEME_EMBEDDER=none"):
        await bring_over(settings(embedder="none"), database, RunProgress())


async def test_another_tenants_user_is_not_touched(
    memories: Memories, pool: Pool, old: int, admin: asyncpg.Connection[Any]
) -> None:
    """A job that names a user of another tenant finds nobody."""
    await remember(memories, "Lives in Lisbon")
    number = await admin.fetchval("SELECT agent_data.ensure_embedding_space($1, $2)", NEW, NEW_DIMENSIONS)
    doing = Reembedder(ReembedStore(pool, SQL, number), NewEmbedder())
    await doing.reembed(b'{"tenant": "%s", "user": "%s"}' % (str(OTHER_TENANT).encode(), str(Talk().user).encode()))
    assert doing.embedded == 0
    await doing.reembed(b'{"tenant": "%s", "user": "%s"}' % (str(TENANT).encode(), str(Talk().user).encode()))
    assert doing.embedded == 1


async def test_vectors_of_both_spaces_find_the_same(
    memories: Memories, embedder: NewEmbedder, pool: Pool, database: str, admin: asyncpg.Connection[Any], old: int
) -> None:
    """Each in its own space: two are never compared."""
    await remember(memories, "Lives in Lisbon", "Likes tea")
    await bring_over(settings(), database, RunProgress())
    number = await admin.fetchval("SELECT space FROM agent_data.embedding_spaces WHERE name = $1", NEW)
    for which, space in ((HashEmbedder(), old), (embedder, number)):
        (vector,) = await which.embed(["Likes tea"])
        rows = await admin.fetch(
            "SELECT m.content_text, 1 - (e.vector <=> $2::text::halfvec) AS similarity FROM agent_data.embeddings e"
            " JOIN agent_data.memory_store m ON m.user_id = e.user_id AND m.memory_id = e.item_id WHERE e.space = $1",
            space,
            str(list(map(float, vector))),
        )
        best = max(rows, key=lambda row: row["similarity"])
        assert best["content_text"] == "Likes tea"
        assert math.isclose(best["similarity"], 1, abs_tol=1e-2)
    assert DIMENSIONS != NEW_DIMENSIONS


def test_the_real_embedder_is_what_the_settings_name() -> None:
    assert build_embedder(Settings(embedder="none")).dimensions == 0
