"""app/features/archive: months go into files and come back whole, from wherever a run stopped; who is erased stays erased."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import shutil
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
import pytest

from app.errors import Conflict, NotFound, NotReady
from app.features.archive import archives
from app.features.archive.archives import ArchivePolicy, ArchiveRun, Archives
from app.store import ids
from app.store.erasure import ERASER_ROLE, Deleter, Eraser, own_connection
from app.store.sessions import SessionRef
from app.tasks import Supervisor
from tests.support.clock import FakeClock
from tests.support.jobs import SQL
from tests.support.teller import ANA, TENANT, Teller, talk

Admin = asyncpg.Connection
NOW = datetime(2031, 3, 20, 12, tzinfo=UTC)
BEN = ids.user_id(TENANT, "ben")
JANUARY, FEBRUARY, MARCH = (datetime(2031, month, 5, tzinfo=UTC) for month in (1, 2, 3))
COLUMNS = "SELECT to_jsonb(h)::text AS row FROM agent_data.conversation_history h ORDER BY message_id"


@pytest.fixture
async def owner(database: str) -> Any:
    connection = await own_connection(database, "mneme_owner")()
    for row in await connection.fetch(SQL["archives.due"], "203012", None):
        await connection.execute(f"DROP TABLE agent_data.{row['part']}")
    await connection.execute("SELECT agent_data.ensure_history_partitions('2031-01-01', '2031-04-01')")
    yield connection
    await connection.close()


@pytest.fixture
def keep(tmp_path: Path) -> ArchivePolicy:
    return ArchivePolicy(tmp_path / "archive", days=31)


@pytest.fixture
async def told(teller: Teller, owner: Any) -> Teller:
    """Ana and Ben said something in January, February and March."""
    for at in (JANUARY, FEBRUARY, MARCH):
        for user, name in ((ANA, "ana"), (BEN, "ben")):
            teller.at = at
            session = UUID(int=user.int ^ at.month)
            await teller.tell(talk(f"{name}'s question of {at:%B}"), f"{name}'s answer", session=session, user=user)
    return teller


def files(keep: ArchivePolicy) -> list[Path]:
    return sorted(keep.folder.rglob("*.jsonl.gz"))


def text_of(keep: ArchivePolicy) -> str:
    return "".join(gzip.decompress(path.read_bytes()).decode() for path in files(keep))


async def contents(admin: Admin) -> list[str]:
    rows = await admin.fetch("SELECT content FROM agent_data.conversation_history ORDER BY created_at, content")
    return [row["content"] for row in rows]


async def states(admin: Admin) -> set[tuple[str, str]]:
    return {tuple(row) for row in await admin.fetch("SELECT month, state FROM agent_data.history_archives")}


def eraser_with(database: str, keep: ArchivePolicy) -> Eraser:
    connect, clock = own_connection(database, ERASER_ROLE), FakeClock(NOW)
    return Eraser(connect, SQL, clock, elsewhere=[archives.erasing(keep, connect, SQL, clock)])


async def test_what_is_over_goes_into_files_that_prove_themselves(
    told: Teller, admin: Admin, owner: Any, keep: ArchivePolicy
) -> None:
    dry = await Archives(SQL, keep).run(owner, NOW, dry=True)
    assert dry.months == ["2031-01"]
    assert not files(keep)
    done = await Archives(SQL, keep).run(owner, NOW)
    assert (done.months, done.rows) == (["2031-01"], 4)
    assert all("January" not in each for each in await contents(admin))
    assert len(await contents(admin)) == 8
    assert "ana's question of January" in text_of(keep)
    assert "February" not in text_of(keep)
    manifest = msgspec.json.decode((files(keep)[0].parent / "manifest.json").read_bytes())
    assert manifest["month"] == "2031-01"
    for each in manifest["files"]:
        raw = (files(keep)[0].parent / each["file"]).read_bytes()
        assert (hashlib.sha256(raw).hexdigest(), len(raw)) == (each["sha256"], each["bytes"])
        assert len(gzip.decompress(raw).splitlines()) == each["rows"]
    assert await Archives(SQL, keep).run(owner, NOW) == ArchiveRun()


async def test_what_is_archived_leaves_the_indexes(told: Teller, admin: Admin, owner: Any, keep: ArchivePolicy) -> None:
    await Archives(SQL, keep).run(owner, NOW)
    for table in ("index_items", "embeddings"):
        left = await admin.fetchval(
            f"SELECT count(*) FROM agent_data.{table} i WHERE i.item_at < $1 AND i.user_id = $2", FEBRUARY, ANA
        )
        assert left == 0
    logged = await admin.fetchval("SELECT count(DISTINCT item_id) FROM agent_data.index_log WHERE user_id = $1", ANA)
    assert logged == 6


async def test_a_restored_month_is_as_it_was(told: Teller, admin: Admin, owner: Any, keep: ArchivePolicy) -> None:
    before = await admin.fetch(COLUMNS)
    await Archives(SQL, keep).run(owner, NOW)
    done = await Archives(SQL, keep).restore(owner, "203101", NOW, active=True)
    assert done.rows == 4
    assert await admin.fetch(COLUMNS) == before
    assert not files(keep)
    # It is a partition again, and stays one until somebody asks.
    part = await admin.fetchval(
        "SELECT DISTINCT right(h.tableoid::regclass::text, 7) FROM agent_data.conversation_history h WHERE created_at < $1",
        FEBRUARY,
    )
    assert part == "_203101"
    assert await Archives(SQL, keep).run(owner, NOW) == ArchiveRun()
    assert (await Archives(SQL, keep).run(owner, NOW, month="203101")).rows == 4
    assert await states(admin) == {("203101", "archived")}


async def test_what_comes_back_is_pruned_unless_it_is_asked_for(
    told: Teller, admin: Admin, owner: Any, keep: ArchivePolicy
) -> None:
    """Out of prompts and searches, in the history; and where it goes back into its file, nothing of that is lost."""
    before = await admin.fetch(COLUMNS)
    await Archives(SQL, keep).run(owner, NOW)
    await Archives(SQL, keep).restore(owner, "203101", NOW, active=False)
    pruned = await admin.fetch(
        "SELECT content, is_pruned FROM agent_data.conversation_history WHERE created_at < $1", FEBRUARY
    )
    assert [row["is_pruned"] for row in pruned] == [True] * 4
    assert await admin.fetchval("SELECT count(*) FROM agent_data.index_items WHERE item_at < $1", FEBRUARY) == 0
    await Archives(SQL, keep).run(owner, NOW, month="203101")
    await Archives(SQL, keep).restore(owner, "203101", NOW, active=True)
    assert await admin.fetch(COLUMNS) == before


async def test_memories_stay_and_say_that_their_sources_are_archived(
    told: Teller, admin: Admin, owner: Any, keep: ArchivePolicy
) -> None:
    said = await admin.fetch(
        "SELECT message_id FROM agent_data.conversation_history WHERE user_id = $1 AND role = 1 ORDER BY created_at",
        ANA,
    )
    first, second = said[0]["message_id"], said[1]["message_id"]
    await admin.execute(
        "INSERT INTO agent_data.memory_store (memory_id, user_id, tenant_id, memory_tier, memory_scope, content_text,"
        " content_hash, provenance_type, token_count, source_message_ids, sources) VALUES"
        " (gen_random_uuid(), $1, $2, 3, 1, 'Ana asks.', 'h', 0, 3, ARRAY[$3::uuid, $4::uuid],"
        " jsonb_build_array(jsonb_build_object('message_id', $3::uuid, 'quote', 'q'),"
        " jsonb_build_object('message_id', $4::uuid)))",
        ANA, TENANT, first, second,
    )  # fmt: skip

    async def marks() -> list[bool]:
        sources = msgspec.json.decode(await admin.fetchval("SELECT sources::text FROM agent_data.memory_store"))
        assert sources[0]["quote"] == "q"
        return [each.get("archived", False) for each in sources]

    await Archives(SQL, keep).run(owner, NOW)
    assert await marks() == [True, False]
    await Archives(SQL, keep).restore(owner, "203101", NOW, active=False)
    assert await marks() == [False, False]


class Killed(BaseException):
    """As a process that is killed: nothing of Mneme's runs any more."""


async def _after_detach(monkeypatch: pytest.MonkeyPatch) -> None:
    async def dead(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(Archives, "_write", dead)


async def _in_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def dead(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(archives.Sink, "done", dead)


async def _after_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = archives.Sink.done

    def dead(self: archives.Sink) -> None:
        whole(self)
        raise Killed

    monkeypatch.setattr(archives.Sink, "done", dead)


async def _before_tidying(monkeypatch: pytest.MonkeyPatch) -> None:
    async def dead(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(archives, "tidy", dead)


@pytest.mark.parametrize("where", [_after_detach, _in_the_file, _after_the_file, _before_tidying])
async def test_a_run_that_was_killed_is_gone_on_with(
    told: Teller,
    admin: Admin,
    database: str,
    owner: Any,
    keep: ArchivePolicy,
    where: Callable[[pytest.MonkeyPatch], Awaitable[None]],
) -> None:
    """Nothing is lost, nothing doubled: wherever archiving stops, and then wherever restoring does."""
    before = await admin.fetch(COLUMNS)
    with pytest.MonkeyPatch.context() as patched:
        await where(patched)
        killed = await own_connection(database, "mneme_owner")()
        with pytest.raises(Killed):
            await Archives(SQL, keep).run(killed, NOW)
        killed.terminate()
    await owner.execute("SELECT pg_advisory_xact_lock(hashtextextended('mneme.archive', 0))")  # the dead one's is free
    await Archives(SQL, keep).run(owner, NOW)
    assert await states(admin) == {("203101", "archived")}
    parts = await admin.fetchval("SELECT count(*) FROM agent_data.history_archives")
    assert len(files(keep)) == parts
    assert text_of(keep).count("'s question of January") == 2
    with pytest.MonkeyPatch.context() as patched:
        await _before_tidying(patched)
        with pytest.raises(Killed):
            await Archives(SQL, keep).restore(owner, "203101", NOW, active=True)
    await Archives(SQL, keep).restore(owner, "203101", NOW, active=True)
    assert await admin.fetch(COLUMNS) == before


async def test_a_file_that_is_not_as_it_was_written_is_not_restored(
    told: Teller, admin: Admin, owner: Any, keep: ArchivePolicy
) -> None:
    await Archives(SQL, keep).run(owner, NOW)
    path = max(files(keep), key=lambda each: each.stat().st_size)
    whole = path.read_bytes()
    path.write_bytes(gzip.compress(gzip.decompress(whole).replace(b"question", b"QUESTION"), mtime=0))
    with pytest.raises(Conflict, match="not as it was written: nothing was restored"):
        await Archives(SQL, keep).restore(owner, "203101", NOW, active=False)
    assert len(await contents(admin)) == 8
    path.unlink()
    with pytest.raises(Conflict, match="is not there"):
        await Archives(SQL, keep).restore(owner, "203101", NOW, active=False)
    assert [wrong for _, wrong in await Archives(SQL, keep).known(owner) if wrong] == ["is not there"]
    path.write_bytes(whole)
    assert (await Archives(SQL, keep).restore(owner, "203101", NOW, active=False)).rows == 4
    with pytest.raises(NotFound):
        await Archives(SQL, keep).restore(owner, "203001", NOW, active=False)


async def test_who_is_erased_is_in_no_file_and_does_not_come_back(
    told: Teller, admin: Admin, database: str, owner: Any, keep: ArchivePolicy
) -> None:
    await Archives(SQL, keep).run(owner, NOW)
    old = {path.name for path in files(keep)}
    receipt = await eraser_with(database, keep).erase(TENANT, ANA)
    assert receipt.counts["archives"] == 2
    assert "ana" not in text_of(keep)
    assert str(ANA) not in text_of(keep)
    assert text_of(keep).count("ben's") == 2
    assert len(old - {path.name for path in files(keep)}) == 1
    hidden = await admin.fetchval("SELECT count(*) FROM agent_data.erased_contents WHERE user_id = $1", ANA)
    assert hidden >= 4  # January's question, and the answers and questions of the others
    assert (await Archives(SQL, keep).restore(owner, "203101", NOW, active=True)).rows == 2
    assert all("ana" not in each for each in await contents(admin))


async def test_an_erasure_that_was_killed_leaves_no_old_file(
    told: Teller, admin: Admin, database: str, owner: Any, keep: ArchivePolicy
) -> None:
    await Archives(SQL, keep).run(owner, NOW)
    with pytest.MonkeyPatch.context() as patched:
        await _before_tidying(patched)
        with pytest.raises(Killed):
            await eraser_with(database, keep).erase(TENANT, ANA)
    assert "ana's" in text_of(keep)  # the old file beside the new one
    await eraser_with(database, keep).erase(TENANT, ANA)
    assert "ana's" not in text_of(keep)


async def test_an_erasure_waits_for_a_folder_that_is_away(
    told: Teller, database: str, owner: Any, keep: ArchivePolicy, tmp_path: Path
) -> None:
    await Archives(SQL, keep).run(owner, NOW)
    keep.folder.rename(tmp_path / "away")
    with pytest.raises(NotReady, match="cannot be erased from the archives"):
        await eraser_with(database, keep).erase(TENANT, ANA)
    (tmp_path / "away").rename(keep.folder)
    await eraser_with(database, keep).erase(TENANT, ANA)
    assert "ana's" not in text_of(keep)


async def test_an_erasure_reaches_a_month_between_table_and_file(
    told: Teller, admin: Admin, database: str, owner: Any, keep: ArchivePolicy
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        await _after_detach(patched)
        with pytest.raises(Killed):
            await Archives(SQL, keep).run(owner, NOW)
    assert ("203101", "detached") in await states(admin)
    receipt = await eraser_with(database, keep).erase(TENANT, ANA)
    assert receipt.rows > 0
    await Archives(SQL, keep).run(owner, NOW)
    assert "ana's" not in text_of(keep)


async def test_a_stale_copy_of_a_file_cannot_bring_anybody_back(
    told: Teller, admin: Admin, database: str, owner: Any, keep: ArchivePolicy
) -> None:
    """Not even where nothing is remembered of who was erased."""
    await Archives(SQL, keep).run(owner, NOW)
    copies = {path: path.read_bytes() for path in files(keep)}
    await eraser_with(database, keep).erase(TENANT, ANA, tombstones=False)
    for path, raw in copies.items():
        path.write_bytes(raw)
    await Archives(SQL, keep).restore(owner, "203101", NOW, active=True)
    assert all("ana" not in each for each in await contents(admin))


async def test_archives_are_dropped_when_their_time_is_over(
    told: Teller, admin: Admin, owner: Any, keep: ArchivePolicy
) -> None:
    keep = ArchivePolicy(keep.folder, days=31, archive_days=62)
    await Archives(SQL, keep).run(owner, NOW)
    assert files(keep)
    done = await Archives(SQL, keep).run(owner, NOW + timedelta(days=31))
    assert done.dropped == len(await admin.fetch("SELECT part FROM agent_data.history_archives WHERE month = '203101'"))
    assert ("203101", "dropped") in await states(admin)
    assert "January" not in text_of(keep)
    with pytest.raises(NotFound):
        await Archives(SQL, keep).restore(owner, "203101", NOW, active=True)


async def test_a_month_that_has_not_ended_stays(told: Teller, owner: Any, keep: ArchivePolicy) -> None:
    with pytest.raises(Conflict, match="2031-03 has not ended"):
        await Archives(SQL, keep).run(owner, NOW, month="203103")
    assert await Archives(SQL, ArchivePolicy(keep.folder)).run(owner, NOW) == ArchiveRun()


PARTS = """
SELECT a.part FROM agent_data.history_archives a WHERE satisfies_hash_partition(
    'agent_data.conversation_history'::regclass,
    (SELECT count(*)::int FROM pg_inherits WHERE inhparent = 'agent_data.conversation_history'::regclass),
    a.remainder, $1::uuid)
"""


async def same_part(admin: Admin, part: str) -> list[tuple[UUID, str]]:
    """Users of a part."""
    named = [(ids.user_id(TENANT, f"u{n}"), f"u{n}") for n in range(200)]
    return [each for each in named if part in {row["part"] for row in await admin.fetch(PARTS, each[0])}]


WAITING = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database())"


async def over_or_waiting(admin: Admin, task: asyncio.Task[Any]) -> None:
    """Until a task has ended, or waits for a lock in the database."""
    async with asyncio.timeout(10):
        while not task.done() and not await admin.fetchval(WAITING):  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)


async def test_two_erasures_at_once_lose_nobody_else(
    told: Teller, admin: Admin, owner: Any, keep: ArchivePolicy, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second would rewrite the file while the first takes away all but the one that it knows."""
    await Archives(SQL, keep).run(owner, NOW)
    part = await admin.fetchval(PARTS, ANA)
    await Archives(SQL, keep).restore(owner, "203101", NOW, active=True)
    (other, name), (third, third_name) = (await same_part(admin, part))[:2]
    told.at = JANUARY
    for user, said in ((other, name), (third, third_name)):
        await told.tell(talk(f"{said}'s question of January"), "a", session=UUID(int=user.int ^ 1), user=user)
    await Archives(SQL, keep).run(owner, NOW, month="203101")
    taking, real = asyncio.Event(), archives.parts_in

    async def slowly(*given: Any) -> Any:
        found = await real(*given)
        if not taking.is_set():
            taking.set()
            await over_or_waiting(admin, second)
        return found

    monkeypatch.setattr(archives, "parts_in", slowly)

    async def later() -> None:
        await taking.wait()
        await eraser_with(database, keep).erase(TENANT, other)

    second = Supervisor().spawn(later(), "second erasure")
    await eraser_with(database, keep).erase(TENANT, ANA)
    await second
    assert [wrong for _, wrong in await Archives(SQL, keep).known(owner, check=True) if wrong] == []
    text = text_of(keep)
    assert f"{third_name}'s question of January" in text
    assert "ana's" not in text
    assert f"{name}'s" not in text


async def test_who_is_erased_while_a_month_comes_back_does_not(
    told: Teller, admin: Admin, owner: Any, keep: ArchivePolicy, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await Archives(SQL, keep).run(owner, NOW)
    part = await admin.fetchval(PARTS, ANA)
    inside, real = asyncio.Event(), asyncpg.Connection.execute
    erasing: list[asyncio.Task[Any]] = []
    tasks = Supervisor()

    async def execute(self: Any, query: str, *given: Any, **more: Any) -> Any:
        if query == SQL["archives.no_file"] and given[0] == part:  # its rows are there, and not committed
            erasing.append(tasks.spawn(eraser_with(database, keep).erase(TENANT, ANA), "erasure"))
            await over_or_waiting(admin, erasing[0])
            inside.set()
        return await real(self, query, *given, **more)

    monkeypatch.setattr(asyncpg.Connection, "execute", execute)
    await Archives(SQL, keep).restore(owner, "203101", NOW, active=True)
    assert inside.is_set()
    await erasing[0]
    assert [each for each in await contents(admin) if "ana" in each] == []
    assert "ana's" not in text_of(keep)


async def test_a_damaged_file_waits_and_is_not_signed_again(
    told: Teller, owner: Any, keep: ArchivePolicy, database: str
) -> None:
    await Archives(SQL, keep).run(owner, NOW)
    before = {path: path.read_bytes()[:-9] for path in files(keep)}
    for path, raw in before.items():
        path.write_bytes(raw)
    with pytest.raises(NotReady, match="is not as it was written"):
        await eraser_with(database, keep).erase(TENANT, ANA)
    assert {path: path.read_bytes() for path in files(keep)} == before


async def test_a_lost_archive_is_given_up_and_no_erasure_waits_for_it(
    told: Teller, admin: Admin, owner: Any, keep: ArchivePolicy, database: str
) -> None:
    await Archives(SQL, keep).run(owner, NOW)
    month = next(path for path in files(keep) if "January" in gzip.decompress(path.read_bytes()).decode()).parent
    shutil.rmtree(month)
    with pytest.raises(NotReady, match="mneme archive drop"):
        await eraser_with(database, keep).erase(TENANT, ANA)
    done = await Archives(SQL, keep).drop(owner, "203101", NOW)
    assert (done.rows, done.months) == (4, ["2031-01"])
    await eraser_with(database, keep).erase(TENANT, ANA)
    assert "ana's" not in text_of(keep)
    with pytest.raises(NotFound):
        await Archives(SQL, keep).drop(owner, "203101", NOW)


async def test_a_month_is_dropped_with_its_files(told: Teller, admin: Admin, owner: Any, keep: ArchivePolicy) -> None:
    await Archives(SQL, keep).run(owner, NOW + timedelta(days=31))
    await Archives(SQL, keep).drop(owner, "203101", NOW)
    assert ("203101", "dropped") in await states(admin)
    assert "January" not in text_of(keep)
    assert "February" in text_of(keep)


async def test_a_session_whose_words_were_dropped_takes_what_was_learned_from_them(
    told: Teller, admin: Admin, owner: Any, keep: ArchivePolicy, database: str
) -> None:
    """What another session says, too, stays, and says so no more."""
    said = await admin.fetch(
        "SELECT message_id, session_id FROM agent_data.conversation_history WHERE user_id = $1 AND role = 1"
        " ORDER BY created_at",
        ANA,
    )
    january, february = said[0], said[1]

    async def learn(text: str, *messages: Any) -> UUID:
        sources = [
            {"message_id": str(each["message_id"]), "session_id": str(each["session_id"]), "quote": text}
            for each in messages
        ]
        memory: UUID = await admin.fetchval(
            "INSERT INTO agent_data.memory_store (memory_id, user_id, tenant_id, memory_tier, memory_scope, content_text,"
            " content_hash, provenance_type, provenance_turn_id, token_count, source_message_ids, sources) VALUES"
            " (gen_random_uuid(), $1, $2, 3, 1, $3, sha256($3::text::bytea), 0, $4, 3, $5, $6::jsonb) RETURNING memory_id",
            ANA, TENANT, text, messages[0]["message_id"], [each["message_id"] for each in messages],
            msgspec.json.encode(sources).decode(),
        )  # fmt: skip
        return memory

    only, both, other = await learn("a", january), await learn("b", january, february), await learn("c", february)
    await Archives(SQL, keep).run(owner, NOW)
    await Archives(SQL, keep).drop(owner, "203101", NOW)
    deleter = Deleter(own_connection(database, ERASER_ROLE), SQL, FakeClock(NOW))
    gone = await deleter.delete_session(TENANT, SessionRef(ANA, january["session_id"]))
    assert (gone.messages, set(gone.forgotten), set(gone.kept)) == (0, {only}, {both})
    rows = {row["memory_id"]: row for row in await admin.fetch("SELECT * FROM agent_data.memory_store")}
    assert {each: rows[each]["status"] for each in rows} == {only: "forgotten", both: "active", other: "active"}
    assert rows[only]["content_text"] != "a"
    assert rows[both]["source_message_ids"] == [february["message_id"]]
    again = await deleter.delete_session(TENANT, SessionRef(ANA, january["session_id"]))
    assert not again.forgotten | again.kept


async def test_a_session_with_archived_words_is_not_told_to_be_deleted(
    told: Teller, owner: Any, keep: ArchivePolicy, database: str
) -> None:
    ref = SessionRef(ANA, UUID(int=ANA.int ^ JANUARY.month))
    deleter = Deleter(own_connection(database, ERASER_ROLE), SQL, FakeClock(NOW))
    await Archives(SQL, keep).run(owner, NOW)
    with pytest.raises(Conflict, match="2031-01"):
        await deleter.delete_session(TENANT, ref)
    await Archives(SQL, keep).restore(owner, "203101", NOW, active=True)
    assert (await deleter.delete_session(TENANT, ref)).messages == 2
