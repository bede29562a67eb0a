"""What all sessions of a user come to, over a real Postgres: patterns, entity summaries, procedures, and forgetting."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import orjson
import pytest

from app.errors import BadBody, HelperError
from app.features.consolidation.jobs import Consolidator
from app.features.consolidation.store import ConsolidationStore
from app.jobs.learn import Learner, Notes
from app.providers.embeddings import NoEmbedder
from app.store.learning import LearningStore
from app.store.memories import Memories
from app.store.pools import Pool, open_pool
from tests.support.clock import FakeClock
from tests.support.jobs import SQL
from tests.support.learning import NOW, TENANT, Talk, by_rules
from tests.support.rows import (
    rate_call,
    read_consolidation,
    read_episodes,
    read_memories,
    read_memory_events,
    read_messages,
    read_suppressions,
    set_config,
    set_message,
)

Admin = asyncpg.Connection


def count(text: str) -> int:
    return len(text.split())


def consolidator(pool: Pool, helper: Any = None) -> Consolidator:
    return Consolidator(
        ConsolidationStore(pool, SQL),
        embedder=NoEmbedder(),
        space=None,
        count=count,
        clock=FakeClock(NOW),
        helper=helper,
    )


def payload(talk: Talk, *entities: str) -> bytes:
    fields = {"tenant": talk.tenant, "user": talk.user, "id": uuid4(), "entities": entities}
    return orjson.dumps(fields, default=str)


async def tell(pool: Pool, talk: Talk, *texts: str) -> None:
    """Say and learn, each text an answered exchange."""
    clock = FakeClock(NOW)
    do = Learner(
        LearningStore(pool, SQL),
        embedder=NoEmbedder(),
        space=None,
        extract=by_rules,
        count=count,
        clock=clock,
        note=Notes(clock),
    )
    for text in texts:
        said = await talk.say(pool, text)
        said += await talk.say(pool, "All right.", role="assistant")
        await do.learn(talk.job(said))


async def drawn(admin: Admin, kind: str, status: str = "active") -> list[dict[str, Any]]:
    found = await read_memories(admin, kind=kind, status=status)
    return [each | {"details": orjson.loads(each["details"])} for each in found]


FACTS = (
    "Please remember that my sister Clara lives in Porto.",
    "Please remember that my sister Clara is a nurse.",
    "Please remember that my sister Clara is allergic to peanuts.",
)


async def of_clara(pool: Pool) -> Talk:
    for n, text in enumerate(FACTS):
        await tell(pool, Talk(name=f"chat-{n}"), text)
    return Talk()


async def test_five_episodes_with_one_theme_become_a_pattern_and_more_of_them_a_newer_one(
    pool: Pool, admin: Admin
) -> None:
    views = [("recipe", 340), ("recipe", 290), ("recipe", 280), ("news", 95), ("news", 110)]
    await tell(pool, Talk(), *(f"Suggested {sort} post → {many} views" for sort, many in views[:4]))
    do = consolidator(pool)
    await do.consolidate(payload(Talk()))
    assert not await drawn(admin, "pattern")
    await tell(pool, Talk(), "Suggested news post → 110 views")
    job = payload(Talk())
    await do.consolidate(job)
    await do.consolidate(job)  # a lost lease
    await do.consolidate(payload(Talk()))  # nothing new
    (pattern,) = await drawn(admin, "pattern")
    assert pattern["content_text"].startswith("Recipe post has 2.96 times the views of news post")
    assert len(pattern["source_message_ids"]) == 5
    assert pattern["details"]["observed_count"] == 5
    await tell(pool, Talk(), *(f"Suggested recipe post → {300 + n} views" for n in range(4)))
    await do.consolidate(payload(Talk()))
    (newer,) = await drawn(admin, "pattern")
    (older,) = await drawn(admin, "pattern", "superseded")
    assert older["superseded_by"] == newer["memory_id"]
    assert newer["details"]["observed_count"] == 9
    assert orjson.loads(newer["confidence_factors"]) == {
        "base_confidence": 0.7,
        "reinforcement_boost": 0.2,
        "reinforcement_count": 4,
        "source_type": "consolidation",
        "final_confidence": 0.9,
    }


async def rate(pool: Pool, admin: Admin, scores: list[float]) -> None:
    """Each question of the history was answered by a call, which is rated."""
    asked = await read_messages(admin, role=1)
    assert len(asked) == len(scores)
    for row, score in zip(asked, scores, strict=True):
        await set_message(admin, row["message_id"], call_id=row["message_id"])
        await rate_call(admin, TENANT, Talk().user, row["message_id"], score, NOW)


async def test_rated_answers_with_one_theme_become_a_pattern_and_change_with_the_rating(
    pool: Pool, admin: Admin
) -> None:
    await tell(pool, Talk(), "Write a recipe for soup", "A recipe of bread please", "One more recipe with rice")
    do = consolidator(pool)
    await rate(pool, admin, [1, 1, 0])
    await do.consolidate(payload(Talk()))
    assert not await drawn(admin, "pattern")
    await rate(pool, admin, [1, 1, 0.5])
    await do.consolidate(payload(Talk()))
    (good,) = await drawn(admin, "pattern")
    assert good["content_text"] == "Answers about recipe were rated good 3 of 3 times"
    assert len(good["source_message_ids"]) == 3
    await rate(pool, admin, [-1, -1, -1])
    await do.consolidate(payload(Talk()))
    (bad,) = await drawn(admin, "pattern")
    assert bad["content_text"] == "Answers about recipe were rated bad 3 of 3 times"
    (older,) = await drawn(admin, "pattern", "superseded")
    assert older["superseded_by"] == bad["memory_id"]


async def test_three_sessions_about_an_entity_become_a_summary_that_confirms_its_facts(
    pool: Pool, admin: Admin
) -> None:
    talk = await of_clara(pool)
    before = {row["memory_id"]: row["confidence"] for row in await read_memories(admin)}
    await consolidator(pool).consolidate(payload(talk))
    (summary,) = [each for each in await drawn(admin, "summary") if each["details"]["scope_identifier"] == "clara"]
    for word in ("Porto", "nurse", "peanuts"):
        assert word in summary["content_text"]
    assert summary["importance"] == pytest.approx(0.9)
    assert len(orjson.loads(summary["sources"])) >= 3
    confirmed = await read_memory_events(admin, event="confirmed")
    assert len(confirmed) >= 3
    after = {row["memory_id"]: row["confidence"] for row in await read_memories(admin)}
    for row in confirmed:
        old = before[row["memory_id"]]
        assert after[row["memory_id"]] == pytest.approx(max(old, min(0.95, old + 0.05)))
    await consolidator(pool).consolidate(payload(talk))  # nothing new: the same stands, and confirms nothing twice
    again = await read_memory_events(admin, event="confirmed")
    assert len(again) == len(confirmed)


async def test_two_sessions_are_too_few_unless_it_is_asked_for(pool: Pool, admin: Admin) -> None:
    for n, text in enumerate(FACTS[:2]):
        await tell(pool, Talk(name=f"chat-{n}"), text)
    await consolidator(pool).consolidate(payload(Talk()))
    assert not await drawn(admin, "summary")
    entity = next(entity for episode in await read_episodes(admin) for entity in episode["entities"])
    await consolidator(pool).consolidate(payload(Talk(), entity))
    assert await drawn(admin, "summary")


async def test_a_summary_gives_way_to_a_newer_one(pool: Pool, admin: Admin) -> None:
    talk = await of_clara(pool)
    await consolidator(pool).consolidate(payload(talk))
    older = await drawn(admin, "summary")
    more = (
        "Please remember that my sister Clara has two cats.",
        "Please remember that my sister Clara plays the violin.",
        "Please remember that my sister Clara drives a red van.",
    )
    for n, text in enumerate(more):
        await tell(pool, Talk(name=f"late-{n}"), text)
    await consolidator(pool).consolidate(payload(talk))
    gone = {each["memory_id"]: each for each in await drawn(admin, "summary", "superseded")}
    newer = {each["memory_id"]: each for each in await drawn(admin, "summary")}
    assert gone
    assert set(gone) <= {each["memory_id"] for each in older}
    assert all(each["superseded_by"] in newer for each in gone.values())


async def test_a_repeated_sequence_becomes_a_procedure(pool: Pool, admin: Admin) -> None:
    for n in range(5):
        await tell(pool, Talk(name=f"chat-{n}"), "When is the delivery?", "Are there open invoices?")
    await consolidator(pool).consolidate(payload(Talk()))
    (procedure,) = await drawn(admin, "procedure")
    assert procedure["memory_tier"] == 4
    assert procedure["details"]["action"]["topics"] == ["invoice"]
    assert procedure["confidence"] == pytest.approx(0.7)


async def find_facts(admin: Admin, *words: str) -> list[dict[str, Any]]:
    """Return the memories besides summaries that have one of these words."""
    found = [row for row in await read_memories(admin) if row["kind"] != "summary"]
    return [row for row in found if any(word in row["content_text"] for word in words)]


async def find_suppressed_texts(admin: Admin) -> list[str]:
    hidden = {row["item_id"] for row in await read_suppressions(admin)}
    return [row["content"] for row in await read_messages(admin) if row["message_id"] in hidden]


async def forget(pool: Pool, talk: Talk, memory: UUID) -> None:
    assert await Memories(pool, SQL, FakeClock(NOW), space=None).forget(talk.tenant, talk.user, memory)


async def test_what_is_forgotten_leaves_what_was_drawn_from_it_at_once_and_does_not_come_back(
    pool: Pool, admin: Admin
) -> None:
    talk = await of_clara(pool)
    # A fourth one: three sessions are left when the message that said so is forgotten as well.
    await tell(pool, Talk(name="chat-3"), "Please remember that my sister Clara plays the cello.")
    await consolidator(pool).consolidate(payload(talk))
    (row,) = await find_facts(admin, "peanuts")
    await forget(pool, talk, row["memory_id"])
    held = await read_memories(admin, kind="summary")
    assert not any("peanuts" in str(each) for each in held)
    events = await read_memory_events(admin)
    assert not any("peanuts" in str(each) for each in events)
    await consolidator(pool).consolidate(payload(talk))
    again = await drawn(admin, "summary")
    assert again
    assert not any("peanuts" in str(each) for each in again)


async def test_what_is_superseded_takes_its_summary_out_of_force(pool: Pool, admin: Admin) -> None:
    talk = await of_clara(pool)
    await consolidator(pool).consolidate(payload(talk))
    (row,) = await find_facts(admin, "Porto")
    memories = Memories(pool, SQL, FakeClock(NOW), space=None)
    assert await memories.invalidate(talk.tenant, talk.user, row["memory_id"], None)
    assert not any("Porto" in each["content_text"] for each in await drawn(admin, "summary"))
    await consolidator(pool).consolidate(payload(talk))
    assert not any("Porto" in each["content_text"] for each in await drawn(admin, "summary"))


@pytest.mark.parametrize("how", ["forgotten", "invalidated", "the summary is forgotten"])
async def test_what_else_a_summary_was_drawn_from_stays(pool: Pool, admin: Admin, how: str) -> None:
    talk = await of_clara(pool)
    await consolidator(pool).consolidate(payload(talk))
    (row,) = await (drawn(admin, "summary") if "summary" in how else find_facts(admin, "Porto"))
    memories = Memories(pool, SQL, FakeClock(NOW), space=None)
    if how == "invalidated":
        assert await memories.invalidate(talk.tenant, talk.user, row["memory_id"], None)
    else:
        assert await memories.forget(talk.tenant, talk.user, row["memory_id"])
    hidden = [FACTS[0]] if "summary" not in how else []
    assert await find_suppressed_texts(admin) == hidden
    if how == "invalidated":
        assert await memories.restore(talk.tenant, talk.user, row["memory_id"])
        assert not await find_suppressed_texts(admin)


async def test_a_pattern_that_its_user_forgot_is_not_drawn_again(pool: Pool, admin: Admin) -> None:
    talk = Talk()
    for n in range(6):
        await tell(pool, Talk(name=f"chat-{n}"), f"When does delivery number {n} leave?")
    await consolidator(pool).consolidate(payload(talk))
    (pattern,) = await drawn(admin, "pattern")
    await forget(pool, talk, pattern["memory_id"])
    for n in range(6):
        await tell(pool, Talk(name=f"late-{n}"), f"When does delivery number {n} leave?")
    await consolidator(pool).consolidate(payload(talk))
    assert not await drawn(admin, "pattern")


class Helper:
    def __init__(self, then: Any = None, *, fails: bool = False, invents: bool = False) -> None:
        self.then, self.fails, self.invents = then, fails, invents
        self.asked = 0

    async def ask(self, shape: Any, *, system: str, user: str, max_tokens: int) -> Any:
        self.asked += 1
        if self.fails:
            raise HelperError("the helper LLM answered half a JSON object")
        if self.then is not None:
            await self.then()
        text = "Loves bananas" if self.invents else user.splitlines()[1].partition(": ")[2]
        return shape.model_validate({"points": [{"text": text, "lines": [1]}]})


async def test_with_a_helper_one_that_invents_and_one_that_fails(pool: Pool, admin: Admin) -> None:
    talk = await of_clara(pool)
    with pytest.raises(HelperError):
        await consolidator(pool, Helper(fails=True)).consolidate(payload(talk))
    assert not await drawn(admin, "summary")
    await consolidator(pool, Helper(invents=True)).consolidate(payload(talk))
    found = await drawn(admin, "summary")
    assert found
    assert not any("bananas" in each["content_text"] for each in found)


async def test_what_is_forgotten_meanwhile_is_not_in_what_is_written(pool: Pool, admin: Admin) -> None:
    talk = await of_clara(pool)

    async def meanwhile() -> None:
        for row in await find_facts(admin, "peanuts"):
            await forget(pool, talk, row["memory_id"])

    helper = Helper(meanwhile)
    await consolidator(pool, helper).consolidate(payload(talk))
    assert not any("peanuts" in each["content_text"] for each in await drawn(admin, "summary"))


async def test_two_workers_at_once_draw_everything_once(pool: Pool, admin: Admin) -> None:
    talk = await of_clara(pool)
    await asyncio.gather(*(consolidator(pool).consolidate(payload(talk)) for _ in range(2)))
    found = [each["details"]["key"] for each in await drawn(admin, "summary")]
    assert len(found) == len(set(found))


async def test_nobody_s_sessions_are_not_drawn_together_and_a_payload_must_be_one(pool: Pool, admin: Admin) -> None:
    for n, text in enumerate(FACTS):
        await tell(pool, Talk(name=f"chat-{n}", confined=True), text)
    await consolidator(pool).consolidate(payload(Talk(confined=True)))
    assert not await drawn(admin, "summary")
    with pytest.raises(BadBody):
        await consolidator(pool).consolidate(b"[]")


async def test_one_run_is_bounded_and_the_rest_is_due_again(pool: Pool, admin: Admin) -> None:
    names = ["Anna", "Bruno", "Carla", "Dmitri", "Elena", "Farid", "Greta"]
    for n in range(3):
        await tell(
            pool, Talk(name=f"chat-{n}"), *(f"Yesterday I met {name} near harbour {n} for lunch" for name in names)
        )
    await consolidator(pool).consolidate(payload(Talk()))
    assert len(await drawn(admin, "summary")) == 5
    assert [row["due_at"] is not None for row in await read_consolidation(admin)] == [True]
    await consolidator(pool).consolidate(payload(Talk()))
    assert len(await drawn(admin, "summary")) >= 7


async def test_forgetting_and_drawing_at_once_neither_wait_in_a_circle_nor_leave_anything(
    pool: Pool, admin: Admin, database: str
) -> None:
    talk = await of_clara(pool)
    wide = await open_pool(
        database, size=6, timeout_ms=20_000, statement_timeout_ms=20_000, statement_cache_size=256, role="mneme_app"
    )
    try:
        facts = await find_facts(admin, "Porto", "nurse", "peanuts")
        assert len(facts) == 3
        memories = Memories(wide, SQL, FakeClock(NOW), space=None)
        await asyncio.gather(
            *(consolidator(wide).consolidate(payload(talk, "clara")) for _ in range(4)),
            *(memories.forget(talk.tenant, talk.user, each["memory_id"]) for each in facts),
        )
    finally:
        await wide.close()
    held = await read_memories(admin, kind="summary")
    for word in ("Porto", "nurse", "peanuts"):
        assert not any(word in each["content_text"] for each in held)


async def test_a_better_wording_of_a_fact_leaves_its_summary_in_force(pool: Pool, admin: Admin) -> None:
    """Merged into a wording that says more, a fact still holds; corrected after that, what was drawn from either is void."""
    talk = await of_clara(pool)
    await consolidator(pool).consolidate(payload(talk))
    (summary,) = await drawn(admin, "summary")
    await tell(pool, Talk(name="more"), "Please remember that my sister Clara is a trained nurse.")
    merged = [row for row in await read_memories(admin, superseded_how="merged") if row["kind"] != "summary"]
    assert len(merged) == 1
    (still,) = await drawn(admin, "summary")
    assert still["memory_id"] == summary["memory_id"]
    store = Memories(pool, SQL, FakeClock(NOW), space=None)
    await store.invalidate(TENANT, talk.user, merged[0]["superseded_by"], reason=None)
    assert await drawn(admin, "summary") == []


async def test_an_operator_may_change_when_a_summary_is_due(pool: Pool, admin: Admin) -> None:
    talk = await of_clara(pool)
    await set_config(admin, "consolidation", {"sessions": 4})
    await consolidator(pool).consolidate(payload(talk))
    assert not await drawn(admin, "summary")
    await set_config(admin, "consolidation", {"sessions": 3, "gain": 0.2})
    before = {each["memory_id"]: each["confidence"] for each in await drawn(admin, "fact")}
    await consolidator(pool).consolidate(payload(talk))
    assert await drawn(admin, "summary")
    gained = {round(each["confidence"] - before[each["memory_id"]], 3) for each in await drawn(admin, "fact")}
    assert 0.2 in gained


GARDEN = (
    "Please remember that my garden faces north.",
    "What can I plant in a garden under a tree?",
    "Please remember that the garden gets water on Mondays.",
    "When does one cut the hedge of a garden?",
    "Please remember that the garden has clay soil.",
)
GROWN = (
    "we mow the garden on Fridays",
    "a neighbour waters the garden in August",
    "a fox sleeps in the garden at night",
)


async def of_the_garden(pool: Pool) -> Talk:
    for n, text in enumerate(GARDEN):
        await tell(pool, Talk(name=f"chat-{n % 3}"), text)
    return Talk()


def topic(summaries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in summaries if each["details"]["scope_type"] == "topic"]


async def test_a_topic_of_three_sessions_has_a_summary_with_facts_that_say_where_they_are_from(
    pool: Pool, admin: Admin
) -> None:
    talk = await of_the_garden(pool)
    await consolidator(pool).consolidate(payload(talk))
    await consolidator(pool).consolidate(payload(talk))  # nothing new
    (summary,) = topic(await drawn(admin, "summary"))
    details = summary["details"]
    assert details["scope_identifier"] == "garden"
    assert orjson.loads(summary["confidence_factors"])["final_confidence"] == 0.8
    assert summary["content_text"].startswith("Garden: ")
    told = details["key_facts"]["topic_profile"]["facts"]
    facts = {str(each["memory_id"]): each["content_text"] for each in await drawn(admin, "fact")}
    assert {each["memory_id"]: each["text"] for each in told} == facts
    assert len(facts) == 3
    assert set(details["source_data"]["memory_ids"]) == set(facts)
    assert details["key_facts"]["interaction_patterns"]["session_count"] == 3

    # What is added is told by a newer one.
    await tell(pool, Talk(name="chat-0"), *(f"Please remember that {each}." for each in GROWN))
    await consolidator(pool).consolidate(payload(talk))
    (newer,) = topic(await drawn(admin, "summary"))
    (older,) = topic(await drawn(admin, "summary", "superseded"))
    assert older["superseded_by"] == newer["memory_id"]
    assert "fox" in newer["content_text"]

    # Asked for as a thing: one summary is enough.
    await consolidator(pool).consolidate(payload(talk, "garden"))
    (summary,) = [each for each in await drawn(admin, "summary") if each["content_text"].startswith("Garden: ")]
    assert summary["details"]["scope_type"] == "entity"
    ended = {each["memory_id"]: each["superseded_by"] for each in topic(await drawn(admin, "summary", "superseded"))}
    assert ended[newer["memory_id"]] == summary["memory_id"]


@pytest.mark.parametrize("kind", ["fact", "summary"])
async def test_what_is_forgotten_of_a_topic_is_gone_from_its_summary(pool: Pool, admin: Admin, kind: str) -> None:
    talk = await of_the_garden(pool)
    await consolidator(pool).consolidate(payload(talk))
    (memory,) = [each["memory_id"] for each in await drawn(admin, kind) if "clay" in each["content_text"]]
    await forget(pool, talk, memory)
    await tell(pool, Talk(name="chat-0"), "Please remember that the garden faces a river.")
    await consolidator(pool).consolidate(payload(talk))
    assert not any("clay" in str(row) for row in await read_memories(admin, kind="summary"))
    again = topic(await drawn(admin, "summary"))
    assert bool(again) == (kind == "fact"), "a summary that was forgotten is not made again"


async def test_a_topic_without_facts_or_in_two_sessions_has_no_summary(pool: Pool, admin: Admin) -> None:
    for n in range(6):
        await tell(pool, Talk(name=f"chat-{n}"), f"When does delivery number {n} leave?")
        await tell(pool, Talk(name=f"talk-{n % 2}"), GARDEN[n % 5])
    await consolidator(pool).consolidate(payload(Talk()))
    assert await drawn(admin, "pattern")
    assert not topic(await drawn(admin, "summary"))


async def test_what_has_a_summary_of_its_own_is_no_topic(pool: Pool, admin: Admin) -> None:
    talk = await of_clara(pool)
    for n in range(3):
        await tell(pool, Talk(name=f"chat-{n}"), "What should I give my sister Clara for her birthday?")
    await consolidator(pool).consolidate(payload(talk))
    scopes = [each["details"]["scope_type"] for each in await drawn(admin, "summary")]
    assert scopes
    assert set(scopes) == {"entity"}
