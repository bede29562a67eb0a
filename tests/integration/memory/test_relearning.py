"""Learning again from the stored history: what changes, what stays, and what is never decided about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeAlias
from uuid import uuid4

import asyncpg
import pytest

from app.jobs.learn import Learner
from app.jobs.learn_llm import ENTRYPOINT
from app.jobs.relearn import Relearner, RelearnReport
from app.memory.candidate import MemoryCandidate, SourceExchange
from app.memory.extract import extract
from app.memory.text import content_hash
from app.providers.embeddings import WordLlamaEmbedder
from app.store.memories import Memories, NewMemory
from app.store.pools import Pool
from app.store.tenancy import UserRef
from app.store.validation import Validation
from tests.support.clock import FakeClock
from tests.support.jobs import SQL
from tests.support.learning import NOW, TENANT, Talk, everything, learner, memories, taught
from tests.support.rows import (
    delete_rows,
    delete_users,
    insert_row,
    read_embeddings,
    read_facts,
    read_jobs,
    read_sessions,
    read_suppressions,
    set_memories,
    set_session,
)

Admin: TypeAlias = "asyncpg.Connection[Any]"
Changes: TypeAlias = "set[tuple[str, str]]"

WRONG = "Lives in Mumbai"


async def read_as_before(exchange: SourceExchange) -> Sequence[MemoryCandidate]:
    """Reads as an old version did: what today's reads, and of an office's address a wrong home."""
    found = list(extract(exchange))
    if "sits in Mumbai" in exchange.user_text:
        (candidate,) = extract(SourceExchange("I live in Mumbai.", exchange.now))
        quote = exchange.user_text
        found.append(
            MemoryCandidate(
                candidate.content, candidate.kind, candidate.provenance_type, quote, (0, len(quote)), candidate.confidence,
                candidate.importance, triple=candidate.triple,
            )
        )  # fmt: skip
    return found


class World:
    """A user with a history that an old version has learned from, and what learns again."""

    def __init__(self, pool: Pool, admin: Admin, words: WordLlamaEmbedder, space: int) -> None:
        self.pool, self.admin = pool, admin
        self.talk = Talk(begun=NOW - timedelta(days=400))
        self.clock = FakeClock(NOW)
        self.space = space
        self.old = learner(pool, words, space, clock=self.clock, extract=read_as_before)
        self.today: Learner = learner(pool, words, space, clock=self.clock)

    async def say(self, *texts: str) -> None:
        for text in texts:
            await taught(self.old, self.pool, self.talk, text)
            self.wait(timedelta(hours=1))

    def wait(self, time: timedelta) -> None:
        self.talk = replace(self.talk, begun=self.talk.begun + time)

    async def relearn(self, *, dry: bool = False, run: str | None = None, has_helper: bool = False) -> RelearnReport:
        report = await self.attempt(dry=dry, run=run, has_helper=has_helper)
        assert report is not None
        return report

    async def attempt(
        self, *, dry: bool = False, run: str | None = None, has_helper: bool = False
    ) -> RelearnReport | None:
        relearner = Relearner(self.today, self.pool, SQL, self.clock, has_helper=has_helper)
        report = RelearnReport(self.talk.user_name, "local")
        return await relearner.relearn(TENANT, self.talk.user, report, run=run, dry=dry)

    async def rows(self, /, **columns: object) -> dict[str, dict[str, Any]]:
        return {row["content_text"]: row for row in await memories(self.admin, **columns or {"is_active": True})}

    @property
    def memory_api(self) -> Memories:
        return Memories(self.pool, SQL, self.clock, space=self.space)

    @property
    def validation(self) -> Validation:
        return Validation(self.pool, SQL, self.clock, space=self.space)


@pytest.fixture
def world(pool: Pool, admin: Admin, words: WordLlamaEmbedder, space: int) -> World:
    return World(pool, admin, words, space)


def changes(report: RelearnReport) -> Changes:
    return {(line.change, line.text) for line in report.lines}


async def test_a_wrong_memory_is_retired_and_the_right_one_stays_as_it_is(world: World) -> None:
    await world.say("I'm allergic to peanuts.", "Our branch office sits in Mumbai.")
    before = await world.rows()
    assert WRONG in before
    report = await world.relearn()
    assert changes(report) == {("retired", WRONG)}
    after = await world.rows()
    assert set(after) == set(before) - {WRONG}
    assert all(str(after[text]) == str(before[text]) for text in after)


async def test_a_retired_memory_is_told_why_and_can_be_brought_back_for_good(world: World) -> None:
    await world.say("Our branch office sits in Mumbai.")
    wrong = (await world.rows())[WRONG]
    await world.relearn()
    events = await world.memory_api.events(TENANT, world.talk.user, wrong["memory_id"], after=0, limit=9)
    assert events[-1].event == "invalidated"
    assert events[-1].after == {"status": "invalidated", "reason": "relearned"}
    stored = (await world.rows(is_active=False))[WRONG]
    assert stored["sources"] == wrong["sources"], "it says where it was read"
    assert await read_suppressions(world.admin) == [], "the message can be found"
    await world.memory_api.restore(TENANT, world.talk.user, wrong["memory_id"])
    assert changes(await world.relearn()) == set()
    assert WRONG in await world.rows()


async def test_what_was_missed_is_added_with_the_date_of_then(world: World) -> None:
    messages = await world.talk.say(world.pool, "My sister is called Ingrid.")
    report = await world.relearn()
    assert {line.change for line in report.lines} == {"added"}
    (row,) = [row for text, row in (await world.rows()).items() if "Ingrid" in text]
    assert row["created_at"] == row["stated_at"] == messages[0].created_at
    assert row["source_message_ids"] == [messages[0].message_id]
    assert row["memory_scope"] == 1
    assert len(await read_embeddings(world.admin, item_id=row["memory_id"])) == 1


async def test_a_second_run_changes_nothing(world: World) -> None:
    await world.say(
        "I'm allergic to peanuts.", "Our branch office sits in Mumbai.", "I like chess.", "I live in Leeds."
    )
    await world.talk.say(world.pool, "My sister is called Ingrid.", "I quit chess.", "I moved to York.")
    assert (await world.relearn()).lines
    before = await everything(world.admin)
    second = await world.relearn()
    assert second.lines == []
    assert await everything(world.admin) == before


async def test_a_dry_run_says_the_same_and_writes_nothing(world: World) -> None:
    await world.say("I'm allergic to peanuts.", "Our branch office sits in Mumbai.", "I live in Leeds.")
    await world.talk.say(world.pool, "My sister is called Ingrid.", "Let's role-play: you are a waiter.")
    before = await everything(world.admin)
    dry = await world.relearn(dry=True)
    assert await everything(world.admin) == before
    real = await world.relearn()
    assert dry.lines
    assert real == dry


async def test_ends_of_the_history_are_applied_in_order(world: World) -> None:
    await world.talk.say(world.pool, "I drive a blue VW Golf to the office.", "I live in Leeds.")
    world.wait(timedelta(days=1))
    await world.talk.say(world.pool, "Gave the Golf to my brother, I take the tram now.")
    world.wait(timedelta(days=1))
    await world.talk.say(world.pool, "I'm a pilot.", "I lied, I'm not a pilot.")
    await world.relearn()
    rows = await world.rows()
    texts = " ".join(rows)
    assert "Leeds" in texts
    assert not any(
        text.startswith("Drives") for text in rows
    )  # "Takes the tram now (before: Drives …)" says that it is over
    assert "pilot" not in texts


async def test_a_wrong_memory_gives_back_the_place_that_it_had_taken(world: World) -> None:
    await world.say("I live in Leeds.", "Our branch office sits in Mumbai.")
    assert set(await world.rows()) >= {WRONG}
    assert "Lives in Leeds" not in await world.rows()
    leeds = (await world.rows(content_text="Lives in Leeds"))["Lives in Leeds"]
    assert changes(await world.relearn()) == {("retired", WRONG), ("changed", "Lives in Leeds")}
    after = await world.rows()
    assert after["Lives in Leeds"]["memory_id"] == leeds["memory_id"]
    assert WRONG not in after


async def test_a_memory_that_is_found_in_other_words_keeps_all_else(world: World) -> None:
    await world.say("I live in Leeds.")
    before = (await world.rows())["Lives in Leeds"]
    misread = {
        "content_text": "In Leeds",
        "content_hash": content_hash("In Leeds"),
        "predicate": None,
        "object_value": None,
    }
    await set_memories(world.admin, [before], **misread, access_count=7, confidence=0.61)
    assert await read_facts(world.admin) == []
    (line,) = (await world.relearn()).lines
    assert (line.change, line.text, line.before) == ("changed", "Lives in Leeds", "In Leeds")
    after = (await world.rows())["Lives in Leeds"]
    names = ("memory_id", "created_at", "predicate", "object_value", "content_hash", "sources")
    assert [after[name] for name in names] == [before[name] for name in names]
    assert (after["access_count"], round(after["confidence"], 2)) == (7, 0.61)
    assert len(await read_facts(world.admin)) == 1
    events = await world.memory_api.events(TENANT, world.talk.user, after["memory_id"], after=0, limit=9)
    assert events[-1].after == {"text": "Lives in Leeds", "reason": "relearned"}
    assert (await world.relearn()).lines == []


async def test_a_role_play_is_noted_anew(world: World) -> None:
    await world.say("Let's role-play: you are a waiter.", "I'm allergic to peanuts.")
    await set_session(world.admin, world.talk.session, in_role_play=False)
    await world.relearn()
    assert len(await read_sessions(world.admin, in_role_play=True)) == 1


async def test_messages_of_a_role_play_are_found_in_their_conversation_alone(world: World) -> None:
    """An old version has learned from them; today's hides them, and no message of the user's own."""
    said = await world.talk.say(
        world.pool, "Let's role-play: you are a waiter.", "I'm allergic to figs.", "Stop the game.", "I live in Hull."
    )
    await world.relearn()
    hidden = {row["item_id"] for row in await read_suppressions(world.admin)}
    assert hidden == {message.message_id for message in said[:2]}
    assert "Lives in Hull" in await world.rows()


async def test_what_was_retired_may_be_stated_by_an_llm_that_reads_the_same_words(world: World) -> None:
    await world.say("Our branch office sits in Mumbai.")
    await world.relearn()
    assert WRONG not in await world.rows()
    await delete_rows(world.admin, "job_effects")
    await world.old.learn(world.talk.job(world.talk.said))
    assert WRONG in await world.rows()


async def test_what_was_forgotten_stays_forgotten(world: World) -> None:
    await world.say("I'm allergic to peanuts.", "I live in Leeds.")
    for row in (await world.rows()).values():
        if "peanuts" in row["content_text"]:
            await world.memory_api.forget(TENANT, world.talk.user, row["memory_id"])
    report = await world.relearn()
    assert report.lines == []
    assert not [text for text in await world.rows() if "peanuts" in text]


@pytest.mark.parametrize("how", ["deny", "invalidate"])
async def test_what_somebody_denied_or_ended_stays_so(world: World, how: str) -> None:
    await world.say("I'm allergic to peanuts.", "I live in Leeds.")
    leeds = (await world.rows())["Lives in Leeds"]["memory_id"]
    if how == "deny":
        await world.validation.deny(TENANT, world.talk.user, leeds)
    else:
        await world.memory_api.invalidate(TENANT, world.talk.user, leeds, None)
    assert (await world.relearn()).lines == []
    assert "Lives in Leeds" not in await world.rows()


async def test_what_was_denied_is_learned_if_it_is_said_again_later(world: World) -> None:
    await world.say("I live in Leeds.")
    await world.validation.deny(TENANT, world.talk.user, (await world.rows())["Lives in Leeds"]["memory_id"])
    world.wait(timedelta(days=401))
    world.clock.move(timedelta(days=2))
    await world.talk.say(world.pool, "I live in Leeds.")
    assert changes(await world.relearn()) == {("added", "Lives in Leeds")}


async def test_what_somebody_confirmed_or_wrote_stays(world: World) -> None:
    await world.say("Our branch office sits in Mumbai.")
    await world.validation.confirm(TENANT, world.talk.user, (await world.rows())[WRONG]["memory_id"])
    new_memory = NewMemory("Collects stamps", content_hash("Collects stamps"), 2)
    await world.memory_api.add(TENANT, UserRef(world.talk.user, world.talk.user_name), [new_memory])
    before = await everything(world.admin)
    assert (await world.relearn()).lines == []
    assert await everything(world.admin) == before


@pytest.mark.parametrize(
    "columns",
    [
        {"tags": ["llm"]},
        {"validated_by": "domain"},
        {"kind": "tool_outcome"},
        {"kind": "summary"},
        {"sources": "[]"},
        {"source_message_ids": [uuid4()]},
    ],
    ids=["helper LLM", "row of a business", "tool", "summary", "no words", "message that is gone"],
)
async def test_what_rules_did_not_read_in_these_messages_stays(world: World, columns: dict[str, object]) -> None:
    await world.say("Our branch office sits in Mumbai.")
    await set_memories(world.admin, [(await world.rows())[WRONG]], **columns)
    assert not [line for line in (await world.relearn()).lines if line.change == "retired"]
    assert WRONG in await world.rows()


async def test_about_a_user_who_is_gone_nothing_is_learned(world: World) -> None:
    assert await world.attempt() is None
    await world.talk.say(world.pool, "My sister is called Ingrid.")
    await delete_users(world.admin)
    assert await world.attempt() is None
    assert await world.rows() == {}


async def test_a_run_does_each_user_once_and_goes_on_where_it_was_stopped(world: World) -> None:
    await world.say("Our branch office sits in Mumbai.")
    assert await world.attempt(run="1") is not None
    assert await world.attempt(run="1") is None
    assert await world.attempt(run="2") is not None


async def test_what_is_stopped_midway_leaves_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.say("Our branch office sits in Mumbai.", "I live in Leeds.")
    await world.talk.say(world.pool, "My sister is called Ingrid.")
    before = await everything(world.admin)

    async def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Relearner, "_add_vectors", stop)
    with pytest.raises(KeyboardInterrupt):
        await world.attempt(run="1")
    monkeypatch.undo()
    assert await everything(world.admin) == before
    assert (await world.relearn(run="1")).lines


async def test_a_helper_llm_is_left_what_it_has_not_read(world: World) -> None:
    await world.say("I live in Leeds.", "My sister is called Ingrid.")
    message = world.talk.said[0].message_id
    effect = {"user_id": world.talk.user, "tenant_id": TENANT, "job_key": f"{ENTRYPOINT}:{message}"}
    await insert_row(world.admin, "job_effects", **effect)
    assert (await world.relearn(has_helper=True, dry=True)).unread == 1
    assert (await world.relearn(has_helper=True)).unread == 1
    (job,) = await read_jobs(world.admin, entrypoint=ENTRYPOINT)
    assert job["dedupe_key"] == f"{ENTRYPOINT}:{world.talk.said[1].message_id}:0"


async def test_what_a_helper_llm_withdrew_is_not_added_again(world: World) -> None:
    await world.say("I live in Leeds.")
    async with world.pool.transaction(TENANT) as connection:
        leeds = (await world.rows())["Lives in Leeds"]["memory_id"]
        await connection.execute(SQL["learning.withdraw"], TENANT, world.talk.user, [leeds], NOW, "not_found_by_llm")
    assert (await world.relearn(has_helper=True)).lines == []
    assert await world.rows() == {}
