"""The end of a session and its compaction, over a real Postgres: summaries, what they stand for, and what forgetting does."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import orjson
import pytest

from app.errors import BadBody, HelperError
from app.features.consolidation.jobs import SessionKeeper, consolidation_ticks
from app.features.consolidation.store import COMPACT, SESSION_END, ConsolidationStore
from app.jobs.learn import Learner, Notes
from app.jobs.schedule import Schedule
from app.memory.candidate import MemoryCandidate, SourceExchange
from app.memory.extract import extract
from app.providers.embeddings import NoEmbedder
from app.store.erasure import ERASER_ROLE, Deleter, own_connection
from app.store.learning import LearningStore
from app.store.memories import Memories
from app.store.pools import Pool
from app.store.sessions import SessionRef
from tests.support.clock import FakeClock
from tests.support.jobs import SQL
from tests.support.learning import NOW, Talk
from tests.support.rows import (
    advance_erasure_epoch,
    insert_row,
    read_compactions,
    read_consolidation,
    read_derivations,
    read_episodes,
    read_jobs,
    read_memories,
    read_messages,
    read_routes,
    read_session_work,
    read_sessions,
    read_suppressions,
    read_working_memory,
    set_session,
    take_jobs,
)

Admin = asyncpg.Connection
WINDOW = 600


def count(text: str) -> int:
    return len(text.split())


def build_learner(pool: Pool, clock: FakeClock) -> Learner:
    async def by_rules(exchange: SourceExchange) -> list[MemoryCandidate]:
        return extract(exchange)

    return Learner(
        LearningStore(pool, SQL),
        embedder=NoEmbedder(),
        space=None,
        extract=by_rules,
        count=count,
        clock=clock,
        note=Notes(clock),
    )


def keeper(pool: Pool, clock: FakeClock | None = None, helper: Any = None) -> SessionKeeper:
    return SessionKeeper(
        ConsolidationStore(pool, SQL),
        embedder=NoEmbedder(),
        count=count,
        clock=clock or FakeClock(NOW),
        helper=helper,
        min_helper_tokens=0,
    )


def payload(talk: Talk, **more: object) -> bytes:
    fields = {"tenant": talk.tenant, "user": talk.user, "session": talk.session, "id": uuid4(), **more}
    return orjson.dumps(fields, default=str)


async def long_talk(pool: Pool, talk: Talk, turns: int = 40, *, learn: bool = True) -> None:
    """A session of `turns` exchanges, a fact in some of them, learned of at once."""
    told = []
    facts = {2: "I live in Lisbon and I work as a nurse.", 9: "My dog is called Rex.", 15: "I'm allergic to peanuts."}
    for n in range(turns):
        text = facts.get(n, f"Tell me something about harbour number {n} and its {n + 100} ferries, please.")
        told += await talk.say(pool, text)
        told += await talk.say(
            pool, f"Harbour {n} has {n + 100} ferries and a long quay with many small boats.", role="assistant"
        )
    if learn:
        await build_learner(pool, FakeClock(NOW)).learn(talk.job(told))


async def session_row(admin: Admin, talk: Talk) -> dict[str, Any]:
    (row,) = await read_sessions(admin, session_id=talk.session)
    return row


async def set_window(admin: Admin, talk: Talk, window: int = WINDOW) -> None:
    await set_session(admin, talk.session, context_window_size=window)


async def test_each_answered_exchange_leaves_one_light_episode_and_no_memory_of_it(pool: Pool, admin: Admin) -> None:
    talk = Talk()
    said = await talk.say(pool, "Please remember that Gai Media prefers Friday deliveries.")
    said += await talk.say(pool, "Noted.", role="assistant")
    said += await talk.say(pool, "Are there open invoices of Gai Media?")
    said += await talk.say(pool, "Two.", role="assistant")
    said += await talk.say(pool, "This one has no answer yet")
    job = talk.job(said)
    do = build_learner(pool, FakeClock(NOW))
    await do.learn(job)
    await do.learn(job)  # a lost lease
    found = await read_episodes(admin)
    assert [each["event_type"] for each in found] == ["statement", "question"]
    assert all("gai-media" in each["entities"] for each in found)
    assert "invoice" in found[1]["topics"]
    assert not await read_memories(admin, kind="episode")
    (work,) = await read_session_work(admin)
    assert work["pending"] is True
    assert work["active_tokens"] == sum(each.token_count for each in said)


async def test_tools_called_in_a_loop_belong_to_the_question_that_began_it(pool: Pool, admin: Admin) -> None:
    talk, do = Talk(), build_learner(pool, FakeClock(NOW))

    def call(name: str) -> str:
        return orjson.dumps([{"id": "c1", "type": "function", "function": {"name": name, "arguments": "{}"}}]).decode()

    said = await talk.say(pool, "Is invoice 7 paid?")
    said += await talk.say(pool, "", role="assistant", tool_calls=call("find_invoice"))
    await do.learn(talk.job(said))
    said = await talk.say(pool, "{}", role="tool")
    said += await talk.say(pool, "", role="assistant", tool_calls=call("list_payments"))
    await do.learn(talk.job(said))
    (episode,) = await read_episodes(admin)
    assert episode["tools"] == ["find_invoice", "list_payments"]


async def test_the_end_of_a_session_leaves_its_summary(pool: Pool, admin: Admin) -> None:
    talk = Talk()
    await long_talk(pool, talk)
    await insert_row(admin, "memory_store_working", user_id=talk.user, tenant_id=talk.tenant, session_id=talk.session)
    await keeper(pool).end(payload(talk))
    assert await read_working_memory(admin) == [], "working memory goes with it"
    row = await session_row(admin, talk)
    assert "Lisbon" in row["summary_text"]
    assert "peanuts" in row["summary_text"]
    assert row["summary_token_count"] == count(row["summary_text"])
    (work,) = await read_session_work(admin)
    assert work["pending"] is False
    queued = await read_jobs(admin)
    assert ("consolidate", f"consolidate:{talk.user}") in {(job["entrypoint"], job["dedupe_key"]) for job in queued}


async def test_a_short_session_needs_no_summary_and_an_unknown_one_no_work(pool: Pool, admin: Admin) -> None:
    talk = Talk()
    said = await talk.say(pool, "Hello there")
    await build_learner(pool, FakeClock(NOW)).learn(talk.job(said))
    await keeper(pool).end(payload(talk))
    assert (await session_row(admin, talk))["summary_text"] is None
    await keeper(pool).end(payload(talk, session=uuid4()))
    with pytest.raises(BadBody):
        await keeper(pool).end(b"{}")


async def test_compaction_takes_the_oldest_turns_and_reports_its_ratio(pool: Pool, admin: Admin) -> None:
    talk = Talk()
    await long_talk(pool, talk, turns=60)
    await set_window(admin, talk)
    before = await read_messages(admin)
    job = payload(talk)
    await keeper(pool).compact(job)
    await keeper(pool).compact(job)  # a lost lease: one effect
    (done,) = await read_compactions(admin)
    assert done["ratio"] >= 5
    assert done["ratio"] == pytest.approx(done["removed_tokens"] / done["summary_tokens"], rel=1e-3)
    figures = await ConsolidationStore(pool, SQL).figures()
    assert figures == {"count": 1} | {name: done[name] for name in ("removed_tokens", "summary_tokens")}
    after = await read_messages(admin)
    (synthetic,) = [each for each in after if each["turn_index"] == -1]
    assert synthetic["message_id"] == done["summary_id"]
    assert synthetic["content"].startswith("[Conversation Summary]: ")
    kept = [each for each in after if each["turn_index"] > 0]
    assert [each["content"] for each in kept] == [each["content"] for each in before]  # the originals stay
    compressed = [each["turn_index"] for each in kept if each["is_compressed"]]
    assert compressed == list(range(done["first_turn"], done["last_turn"] + 1))
    assert min(compressed) == 3  # the first turn stays
    assert max(compressed) <= 120 - 8  # as do the last four
    assert {each["compressed_summary_id"] for each in kept if each["is_compressed"]} == {synthetic["message_id"]}
    row = await session_row(admin, talk)
    assert synthetic["content"].endswith(row["summary_text"])
    assert "Lisbon" in row["summary_text"]
    assert row["block_epoch"] == 2
    (work,) = await read_session_work(admin)
    assert work["active_tokens"] == sum(each["token_count"] for each in kept if not each["is_compressed"])


async def test_a_session_within_two_windows_stays_and_one_of_unknown_window_as_well(pool: Pool, admin: Admin) -> None:
    talk = Talk()
    await long_talk(pool, talk, turns=40, learn=False)
    for window in (0, 5000):
        await set_window(admin, talk, window)
        await keeper(pool).compact(payload(talk))
        assert not await read_compactions(admin)
    await keeper(pool).compact(payload(talk, target=200))  # asked for by hand
    assert await read_compactions(admin)


async def test_a_second_compaction_goes_on_where_the_first_ended(pool: Pool, admin: Admin) -> None:
    talk = Talk()
    await long_talk(pool, talk, turns=60)
    await keeper(pool).compact(payload(talk, target=900))
    await long_talk(pool, talk, turns=20)
    await keeper(pool).compact(payload(talk, target=400))
    first, second = await read_compactions(admin)
    assert second["first_turn"] == first["last_turn"] + 1
    assert "Lisbon" in (await session_row(admin, talk))["summary_text"]  # the first one's words are not lost


async def test_two_workers_at_once_have_one_effect(pool: Pool, admin: Admin) -> None:
    talk = Talk()
    await long_talk(pool, talk, turns=40, learn=False)
    await asyncio.gather(*(keeper(pool).compact(payload(talk, target=400)) for _ in range(2)))
    compressed = Counter(row["compressed_summary_id"] for row in await read_messages(admin, is_compressed=True))
    reported = await read_compactions(admin)
    assert compressed == {row["summary_id"]: row["messages"] for row in reported}


async def test_what_a_branch_shares_stays_in_the_history(pool: Pool, admin: Admin) -> None:
    talk = Talk()
    await long_talk(pool, talk, turns=40, learn=False)
    await insert_row(
        admin, "sessions", session_id=uuid4(), user_id=talk.user, tenant_id=talk.tenant, expires_at=NOW,
        parent_session_id=talk.session, branch_turn_index=20,
    )  # fmt: skip
    await keeper(pool).compact(payload(talk, target=300))
    (done,) = await read_compactions(admin)
    assert done["first_turn"] == 21


async def test_an_answer_that_was_taken_back_is_quoted_by_no_summary(pool: Pool, admin: Admin) -> None:
    talk, parent = Talk(), None
    for n in range(30):
        (asked,) = await talk.say(pool, f"What about harbour number {n}?", parent_message_id=parent)
        if n == 3:
            await talk.say(
                pool, "Harbour Zanzibar has 4711 ferries.", role="assistant", parent_message_id=asked.message_id
            )
        told = f"Harbour {n} has {n + 100} ferries and a quay called Quay{n}."
        (given,) = await talk.say(pool, told, role="assistant", parent_message_id=asked.message_id)
        parent = given.message_id
    await set_session(admin, talk.session, head_message_id=parent)
    await keeper(pool).end(payload(talk))
    summary = (await session_row(admin, talk))["summary_text"]
    assert "Quay" in summary
    assert "Zanzibar" not in summary


class Helper:
    """Quotes the first line that it is shown, or the first with a word; may do something first."""

    def __init__(self, then: Any = None, *, fails: bool = False, word: str | None = None) -> None:
        self.then = then
        self.fails = fails
        self.words = ("Lisbon", "ferries") if word is None else (word,)
        self.asked = 0

    async def ask(self, shape: Any, *, system: str, user: str, max_tokens: int) -> Any:
        self.asked += 1
        if self.fails:
            raise HelperError("the helper LLM answered prose")
        if self.then is not None:
            await self.then()
        lines = [line for line in user.splitlines() if any(word in line for word in self.words)]
        number, _, text = lines[0].partition("] ")
        return shape.model_validate({"points": [{"text": text.partition(": ")[2], "lines": [int(number.strip("["))]}]})


async def test_with_a_helper_and_with_one_that_fails(pool: Pool, admin: Admin) -> None:
    talk = Talk()
    await long_talk(pool, talk, turns=40, learn=False)
    with pytest.raises(HelperError):
        await keeper(pool, helper=Helper(fails=True)).compact(payload(talk, target=400))
    assert not await read_compactions(admin)
    assert not [row for row in await read_messages(admin) if row["is_compressed"] or row["turn_index"] < 0]
    await keeper(pool, helper=Helper()).compact(payload(talk, target=400))
    (done,) = await read_compactions(admin)
    assert done["method"] == "helper"
    assert done["ratio"] >= 5


async def find_messages(admin: Admin, word: str) -> list[dict[str, Any]]:
    return [row for row in await read_messages(admin) if word in (row["content"] or "")]


async def forget(pool: Pool, admin: Admin, talk: Talk, text: str) -> None:
    (row,) = [row for row in await read_memories(admin) if text in row["content_text"] and row["kind"] != "summary"]
    assert await Memories(pool, SQL, FakeClock(NOW), space=None).forget(talk.tenant, talk.user, row["memory_id"])


async def test_a_forgotten_memory_does_not_come_back_through_a_summary(pool: Pool, admin: Admin) -> None:
    talk = Talk()
    await long_talk(pool, talk, turns=60)
    await keeper(pool).compact(payload(talk, target=400))
    await keeper(pool).end(payload(talk))
    assert "peanuts" in (await session_row(admin, talk))["summary_text"]
    await forget(pool, admin, talk, "peanuts")
    row = await session_row(admin, talk)
    assert row["summary_text"] is None  # at once
    assert row["block_epoch"] == 4  # and no block of a prompt has it any more
    assert [row["content"] for row in await read_messages(admin, turn_index=-1)] == [None]
    (work,) = await read_session_work(admin)
    assert work["pending"] is True
    await keeper(pool).end(payload(talk))
    row = await session_row(admin, talk)
    assert "Lisbon" in row["summary_text"]
    assert "peanuts" not in row["summary_text"]


# --- the summary as a memory ------------------------------------------------------------------------------------------


async def summaries(admin: Admin) -> list[dict[str, Any]]:
    found = sorted(await read_memories(admin, kind="summary"), key=lambda row: row["memory_id"])
    return [each | {name: orjson.loads(each[name]) for name in ("details", "sources")} for each in found]


async def ended(pool: Pool, talk: Talk, at: timedelta = timedelta()) -> None:
    """The session is over."""
    await keeper(pool, FakeClock(NOW + at)).end(payload(talk))


async def test_a_sessions_summary_is_a_memory_with_its_sources(pool: Pool, admin: Admin) -> None:
    talk = Talk()
    await long_talk(pool, talk)
    await ended(pool, talk)
    (summary,) = await summaries(admin)
    session = await session_row(admin, talk)
    assert summary["content_text"] == session["summary_text"]
    assert (summary["session_id"], summary["memory_scope"], summary["memory_tier"]) == (talk.session, 1, 3)
    assert (summary["importance"], summary["confidence"]) == (pytest.approx(0.9), pytest.approx(0.8))  # seed 004
    last = talk.said[-1].created_at
    assert (summary["created_at"], summary["valid_from"], summary["valid_to"]) == (last, last, None)
    assert summary["details"]["scope_type"] == "session_window"
    assert summary["details"]["source_data"]["time_range"] == {
        "start": talk.said[0].created_at.isoformat(),
        "end": last.isoformat(),
    }
    said = {str(each.message_id): each for each in talk.said}
    assert all(said[each["message_id"]] and each["session_id"] == str(talk.session) for each in summary["sources"])
    assert [each["turn_index"] for each in summary["sources"]] == sorted(
        each["turn_index"] for each in summary["sources"]
    )
    drawn = await read_derivations(admin, derived_id=summary["memory_id"])
    assert {UUID(each["message_id"]) for each in summary["sources"]} <= {each["source_id"] for each in drawn}
    (route,) = await read_routes(admin, id=summary["memory_id"])
    assert route


async def test_a_later_summary_supersedes_the_one_before_and_two_are_kept(pool: Pool, admin: Admin) -> None:
    talk = Talk()
    await long_talk(pool, talk)
    for n, told in enumerate(("I'm allergic to celery.", "My cat is called Minka.", "My sister is called Clara.")):
        await build_learner(pool, FakeClock(NOW)).learn(talk.job(await talk.say(pool, told)))
        await ended(pool, talk, timedelta(hours=n))
    oldest, former, latest = await summaries(admin)
    assert [each["status"] for each in (oldest, former, latest)] == ["expired", "superseded", "active"]
    assert (former["superseded_by"], former["superseded_how"]) == (latest["memory_id"], "merged")
    assert former["valid_to"] == latest["valid_from"] == talk.said[-1].created_at
    assert "Clara" in latest["content_text"]
    assert "Clara" not in former["content_text"]
    await ended(pool, talk, timedelta(hours=4))  # nothing new: nothing is written
    assert [each["memory_id"] for each in await summaries(admin)] == [
        each["memory_id"] for each in (oldest, former, latest)
    ]
    await forget(pool, admin, talk, "peanuts")  # no version keeps the words
    assert [each["content_text"] for each in await summaries(admin)] == ["", "", ""]


async def test_two_ends_at_once_leave_one_summary(pool: Pool, admin: Admin) -> None:
    talk = Talk()
    await long_talk(pool, talk)
    for n in range(2):  # the first summary, and one that takes its place
        await talk.say(pool, f"Harbour {n} has {n + 900} ferries, I heard.")
        both = asyncio.Barrier(2)
        helpers = [Helper(both.wait, word="Lisbon"), Helper(both.wait, word=f"{n + 900} ferries")]
        ends = (keeper(pool, FakeClock(NOW + timedelta(hours=n)), each).end(payload(talk)) for each in helpers)
        await asyncio.gather(*ends)
        found = await summaries(admin)
        (active,) = [each for each in found if each["status"] == "active"]
        assert active["content_text"] == (await session_row(admin, talk))["summary_text"]
        assert len(found) <= n + 1


async def test_an_older_summary_that_was_restored_gives_way_to_the_next(pool: Pool, admin: Admin) -> None:
    talk = Talk()
    await long_talk(pool, talk)
    for n, told in enumerate(("I'm allergic to celery.", "My cat is called Minka.", "My sister is called Clara.")):
        await build_learner(pool, FakeClock(NOW)).learn(talk.job(await talk.say(pool, told)))
        await ended(pool, talk, timedelta(hours=n))
        if n == 1:
            oldest, _ = await summaries(admin)
            memories = Memories(pool, SQL, FakeClock(NOW), space=None)
            assert await memories.restore(talk.tenant, talk.user, oldest["memory_id"])
    assert [each["status"] for each in await summaries(admin)] == ["expired", "superseded", "active"]


async def test_of_summaries_that_were_outdated_the_last_is_kept(pool: Pool, admin: Admin) -> None:
    talk = Talk()
    await long_talk(pool, talk)
    for n, city in enumerate(("Porto", "Braga", "Faro")):
        await ended(pool, talk, timedelta(hours=n))
        said = await talk.say(pool, f"Actually, I moved: I live in {city} now.")
        await build_learner(pool, FakeClock(NOW)).learn(talk.job(said))
    await ended(pool, talk, timedelta(hours=9))
    assert [each["status"] for each in await summaries(admin)] == ["expired", "expired", "invalidated", "active"]


async def test_what_is_not_so_any_more_takes_the_summary_out_of_force(pool: Pool, admin: Admin) -> None:
    talk, later = Talk(), Talk(name="chat-2", begun=NOW - timedelta(minutes=5))
    await long_talk(pool, talk)
    await ended(pool, talk)
    assert "Lisbon" in (await summaries(admin))[0]["content_text"]
    said = await later.say(pool, "I live in Porto now, not in Lisbon any more.")
    await build_learner(pool, FakeClock(NOW)).learn(later.job(said))
    (summary,) = await summaries(admin)
    assert (summary["status"], summary["valid_to"] is not None) == ("invalidated", True)
    assert (await session_row(admin, talk))["summary_text"] is None
    await ended(pool, talk, timedelta(hours=1))
    _, anew = await summaries(admin)
    assert (anew["status"], anew["content_text"]) == ("active", (await session_row(admin, talk))["summary_text"])
    assert "Lisbon" not in anew["content_text"]


async def test_a_summary_that_was_forgotten_is_not_made_again(pool: Pool, admin: Admin) -> None:
    talk = Talk()
    await long_talk(pool, talk)
    await ended(pool, talk)
    (summary,) = await summaries(admin)
    memories = Memories(pool, SQL, FakeClock(NOW), space=None)
    assert await memories.forget(talk.tenant, talk.user, summary["memory_id"])
    assert (await session_row(admin, talk))["summary_text"] is None
    await ended(pool, talk, timedelta(hours=1))
    await keeper(pool).compact(payload(talk, target=200))
    assert [each["content_text"] for each in await summaries(admin)] == [""]
    assert (await session_row(admin, talk))["summary_text"] is None
    assert not await read_compactions(admin)


async def test_the_memory_of_a_summary_goes_with_a_deleted_message_and_is_made_again(
    database: str, pool: Pool, admin: Admin
) -> None:
    talk = Talk()
    await long_talk(pool, talk)
    await ended(pool, talk)
    (message,) = await find_messages(admin, "peanuts")
    deleter = Deleter(own_connection(database, ERASER_ROLE), SQL, FakeClock(NOW))
    assert await deleter.delete(talk.tenant, SessionRef(talk.user, talk.session), message["message_id"])
    (summary,) = await summaries(admin)
    assert (summary["status"], summary["content_text"]) == ("forgotten", "")
    await ended(pool, talk, timedelta(hours=1))
    _, anew = await summaries(admin)
    assert "Lisbon" in anew["content_text"]
    assert "peanuts" not in anew["content_text"]


async def test_a_deleted_message_takes_the_summary_along_and_is_in_no_later_one(
    database: str, pool: Pool, admin: Admin
) -> None:
    talk = Talk()
    await long_talk(pool, talk, turns=60)
    await keeper(pool).compact(payload(talk, target=400))
    message = (await find_messages(admin, "peanuts"))[-1]
    deleter = Deleter(own_connection(database, ERASER_ROLE), SQL, FakeClock(NOW))
    assert await deleter.delete(talk.tenant, SessionRef(talk.user, talk.session), message["message_id"])
    assert (await session_row(admin, talk))["summary_text"] is None
    assert not await find_messages(admin, "peanuts")
    await keeper(pool).end(payload(talk))
    assert "peanuts" not in (await session_row(admin, talk))["summary_text"]
    await keeper(pool).compact(payload(talk, target=400))  # what was shown again is compacted again
    first, second = await read_compactions(admin)
    assert second["messages"] >= first["messages"] - 1
    assert "peanuts" not in (await session_row(admin, talk))["summary_text"]


async def test_what_is_forgotten_while_a_summary_is_made_makes_it_void(pool: Pool, admin: Admin) -> None:
    talk = Talk()
    await long_talk(pool, talk, turns=60)

    async def meanwhile() -> None:
        if not await read_suppressions(admin):
            await forget(pool, admin, talk, "Lisbon")

    await keeper(pool, helper=Helper(meanwhile)).compact(payload(talk, target=400))
    assert not await read_compactions(admin)
    await keeper(pool, helper=Helper(meanwhile)).end(payload(talk))
    assert "Lisbon" not in ((await session_row(admin, talk))["summary_text"] or "")


async def test_an_erased_user_gets_no_summary(pool: Pool, admin: Admin) -> None:
    talk = Talk()
    await long_talk(pool, talk, turns=40, learn=False)

    async def meanwhile() -> None:
        await advance_erasure_epoch(admin)

    await keeper(pool, helper=Helper(meanwhile)).end(payload(talk))
    assert (await session_row(admin, talk))["summary_text"] is None


async def test_what_was_said_better_elsewhere_stays_in_the_summary_of_its_session(pool: Pool, admin: Admin) -> None:
    talk = Talk()
    await long_talk(pool, talk, turns=60)
    better = Talk(name="chat-2", begun=NOW)
    said = await better.say(pool, "I work as a nurse at night.", "I live in Lisbon, Portugal.")
    await build_learner(pool, FakeClock(NOW)).learn(better.job(said))
    merged = await read_memories(admin, superseded_how="merged")
    lost = {message for each in merged for message in each["source_message_ids"]}
    assert lost
    found = await admin.fetch(
        SQL["consolidation.messages"], talk.user, talk.session, NOW - timedelta(days=1), NOW + timedelta(days=1), 1000
    )
    assert lost <= {each["message_id"] for each in found if each["quotable"]}


@pytest.fixture
def schedule(database: str) -> tuple[Schedule, FakeClock]:
    clock = FakeClock(NOW)

    async def connect() -> Admin:
        return await asyncpg.connect(database, server_settings={"role": "mneme_owner"})

    return Schedule(connect, SQL, clock, further=consolidation_ticks(SQL)), clock


async def test_the_schedule_finds_idle_sessions_long_ones_and_users(
    pool: Pool, admin: Admin, schedule: tuple[Schedule, FakeClock]
) -> None:
    sweep, clock = schedule
    talk = Talk()
    await long_talk(pool, talk, turns=40)
    assert await sweep.sweep("session_end") == 0  # not idle yet
    clock.move(timedelta(minutes=6))
    assert await sweep.sweep("session_end") == 1
    assert await sweep.sweep("session_end") == 0  # it waits already
    assert await sweep.sweep("compaction") == 0
    await set_window(admin, talk, 300)
    assert await sweep.sweep("compaction") == 1
    assert await sweep.sweep("consolidation") == 1
    queued = {row["entrypoint"]: row["payload"] for row in await read_jobs(admin)}
    await keeper(pool, clock).end(queued[SESSION_END])
    await keeper(pool, clock).compact(queued[COMPACT])
    assert await read_compactions(admin)
    await take_jobs(admin)
    assert await sweep.sweep("session_end") == 0  # done, and nothing was said since


async def test_nobody_s_sessions_are_summarised_each_by_itself(pool: Pool, admin: Admin) -> None:
    talk = Talk(confined=True)
    await long_talk(pool, talk, turns=40)
    await keeper(pool).end(payload(talk))
    assert (await session_row(admin, talk))["summary_text"]
    assert not await read_jobs(admin, entrypoint="consolidate")
    assert not await read_consolidation(admin)
    assert not await summaries(admin)
