"""What a prompt says beside what was found: the tenant's profile, the user's facts, what is in doubt, what habits add."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from app.clock import SystemClock
from app.context.assemble import ABOUT, NOTE
from app.context.compile import Compiler
from app.context.request import Compilation, CompileRequest
from app.context.retrieve import Retriever, Scope
from app.features.facts import Facts
from app.settings import Settings
from app.store import ids
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.tenancy import Instructions, UserRef
from app.store.turns import TurnStore
from app.store.user_profile import MAX_FACTS, NOTHING
from tests.support.gateway_world import PATIENT, World
from tests.support.indexes import indexes_of
from tests.support.journey import UPSTREAM, Message, assistant, build_journey, user
from tests.support.rows import (
    read_audit,
    read_blocks,
    read_memory,
    read_memory_events,
    set_memory,
    update_rows,
)
from tests.support.wired_api import HashEmbedder, make_space

SQL = Queries.load()
LOCAL = UserRef(ids.user_id(ids.LOCAL_TENANT, "local"), "local")
PROFILE = "- Business: Mumbai Bakery (food & bakery)\n- Blog: 18 posts"


@pytest.fixture
async def world(pool: Pool, admin: asyncpg.Connection[Any]) -> World:
    store = TurnStore(pool, SQL)
    await make_space(admin)
    settings = Settings(upstream_base_url=UPSTREAM, retrieval_deadline_ms=PATIENT)
    return World(build_journey(store, embedder=HashEmbedder(), settings=settings), store, admin)


@pytest.fixture
def facts(pool: Pool) -> Facts:
    return Facts(pool, SQL, SystemClock())


async def know(facts: Facts, key: str, value: Any, **more: Any) -> UUID:
    fact, _ = await facts.put(ids.LOCAL_TENANT, LOCAL, key, value, category=None, confidence=90, **more)
    return fact.id


def prompt(world: World, number: int = -1) -> list[Message]:
    found: list[Message] = world.journey.upstream.asked[number]["messages"]
    return found


async def talk_on(world: World, transcript: list[Message], question: str) -> str | None:
    transcript.append(user(question))
    answer = await world.ask(transcript)
    transcript.append(assistant(answer.text))
    return answer.session


async def test_the_profile_and_the_facts_stand_in_the_first_block_and_nowhere_else(
    world: World, facts: Facts, pool: Pool
) -> None:
    await Instructions(pool, SQL, SystemClock()).write_profile(ids.LOCAL_TENANT, PROFILE)
    await know(facts, "lives_in", "Lisbon")
    await know(facts, "name", "Ana")
    transcript: list[Message] = []
    for n in range(4):
        await world.remember(f"Fact {n}: Ana counts {n} sheep")
        await talk_on(world, transcript, f"What do you know about me, and how many sheep, {n}?")
    first = prompt(world, 0)[0]["content"]
    lines = first.split("\n")
    assert lines[1:4] == [ABOUT, "- name: Ana", "- lives in: Lisbon"]
    assert lines[4:6] == [NOTE, "Tenant context: - Business: Mumbai Bakery (food & bakery) - Blog: 18 posts"]
    assert "(20" in lines[6]  # what was found comes after it
    asked = world.journey.upstream.asked
    for earlier, later in itertools.pairwise(asked):
        assert later["messages"][: len(earlier["messages"])] == earlier["messages"]
    assert json.dumps(asked[-1]).count("Mumbai Bakery") == 1
    assert json.dumps(asked[-1]).count("lives in") == 1
    told = (await read_audit(world.admin))["sections"]
    assert told["facts"]["visible"] == 2
    assert told["facts"]["tokens"] == 0


async def test_the_account_tells_every_section(world: World, facts: Facts, pool: Pool) -> None:
    await Instructions(pool, SQL, SystemClock()).write_profile(ids.LOCAL_TENANT, PROFILE + "\n- more words" * 200)
    known = await know(facts, "lives_in", "Lisbon")
    too_long = await know(facts, "motto", "word " * 60)
    await world.remember("Ana counts sheep")
    idle = await know(facts, "likes:tea", "tea")
    await world.ask([user("What is my motto, and does Ana who lives in Lisbon count sheep?")])
    told = (await read_audit(world.admin))["sections"]
    assert told["profile"]["budget"] == 200
    assert 0 < told["profile"]["tokens"] <= 200
    ((what, why, how_many),) = told["profile"]["dropped"]
    assert (what, why) == ("lines", "over_budget")
    assert how_many + told["profile"]["lines"] == 202
    assert told["facts"]["chosen"] == [str(known)]
    assert told["facts"]["why"] == ["words"]
    assert told["facts"]["dropped"] == [[str(idle), "not_asked"], [str(too_long), "over_budget"]]
    assert told["memories"]["budget"] == 1500
    assert told["memories"]["tokens"] > 0
    assert {"history", "tools"} <= told.keys()
    assert "Lisbon" not in json.dumps(told)
    assert (await read_audit(world.admin))["tokens"] == sum(
        told[name]["tokens"] for name in ("profile", "facts", "memories")
    )
    assert {"wishes", "questions"}.isdisjoint(told)


async def test_a_changed_fact_begins_the_blocks_anew(world: World, facts: Facts) -> None:
    await know(facts, "lives_in", "Lisbon")
    transcript: list[Message] = []
    await talk_on(world, transcript, "Where do I live?")
    assert "Lisbon" in json.dumps(prompt(world))
    await know(facts, "lives_in", "Porto")
    await talk_on(world, transcript, "And where do I live now?")
    assert (await read_audit(world.admin))["rebased"] == "items_gone"
    assert "Lisbon" not in json.dumps(prompt(world))
    assert "lives in: Porto (since 20" in prompt(world)[-1]["content"]
    await talk_on(world, transcript, "Once more?")
    assert (await read_audit(world.admin))["rebased"] is None


@pytest.mark.parametrize("how", ["deleted", "rated"])
async def test_a_fact_that_is_gone_leaves_the_prompt(world: World, facts: Facts, how: str) -> None:
    fact = await know(facts, "lives_in", "Lisbon")
    transcript: list[Message] = []
    await talk_on(world, transcript, "Where do I live?")
    assert "Lisbon" in json.dumps(prompt(world))
    if how == "deleted":
        await facts.delete(ids.LOCAL_TENANT, LOCAL.id, fact)
        assert await read_blocks(world.admin) == []  # its words are nowhere any more
    else:
        await facts.rate(ids.LOCAL_TENANT, LOCAL.id, fact, 10)
    await talk_on(world, transcript, "And now?")
    assert "Lisbon" not in json.dumps(prompt(world))


async def test_a_fact_learned_beside_very_many_leaves_the_blocks_as_they_are(
    world: World, facts: Facts, admin: asyncpg.Connection[Any]
) -> None:
    """The first of them is not read any more. What an earlier block says of it is so still, until it goes."""
    for n in range(MAX_FACTS):
        await know(facts, f"fact {n}", f"value {n}")
    transcript: list[Message] = []
    for n in range(3):
        await talk_on(world, transcript, f"Tell me about me, number {n}")
    assert "fact 0: value 0" in str(prompt(world))
    before = prompt(world)
    await know(facts, "lives_in", "Lisbon")
    await talk_on(world, transcript, "And where do I live?")
    assert (await read_audit(world.admin))["rebased"] is None
    assert prompt(world)[: len(before)] == before
    assert "lives in: Lisbon" in str(prompt(world)[-1])
    await update_rows(admin, "user_facts", {"fact_key": "fact 0"}, fact_value='"other"')
    await talk_on(world, transcript, "Anything else?")
    assert (await read_audit(world.admin))["rebased"] == "items_gone"


async def test_a_changed_profile_begins_the_blocks_anew(world: World, pool: Pool) -> None:
    store = Instructions(pool, SQL, SystemClock())
    await store.write_profile(ids.LOCAL_TENANT, "Bakery in Mumbai")
    transcript: list[Message] = []
    await talk_on(world, transcript, "Hello there")
    await store.write_profile(ids.LOCAL_TENANT, None)
    await talk_on(world, transcript, "And now?")
    assert (await read_audit(world.admin))["rebased"] == "items_gone"
    assert "Mumbai" not in json.dumps(prompt(world))


async def test_a_fact_and_its_memory_are_said_once_and_both_count(world: World, facts: Facts) -> None:
    memory = await world.remember("Lives in Lisbon with two cats")
    await set_memory(world.admin, memory, subject_entity_id="user", predicate="lives_in")
    await know(facts, "lives_in", "Lisbon")
    await update_rows(world.admin, "user_facts", {}, source_memory_id=memory, source_memory_ids=[memory])
    await world.ask([user("Who lives in Lisbon with cats?")])
    text = prompt(world)[-1]["content"]
    assert text.count("Lisbon") == 2  # the fact, and the question
    assert "- lives in: Lisbon" in text.split("\n")
    told = (await read_audit(world.admin))["sections"]["facts"]
    assert (told["memories"], told["dropped"]) == ([str(memory)], [])
    assert (await read_memory(world.admin, memory))["access_count"] == 1  # it was of use, by the line that stood for it
    # Of something else nothing is said.
    await world.ask([user("Good morning")])
    assert "lives in: Lisbon" not in json.dumps(prompt(world))


async def test_nobody_has_no_facts(world: World, facts: Facts, pool: Pool) -> None:
    await Instructions(pool, SQL, SystemClock()).write_profile(ids.LOCAL_TENANT, PROFILE)
    nobody = UserRef(ids.nobody(ids.LOCAL_TENANT), "nobody")
    await facts.put(ids.LOCAL_TENANT, nobody, "lives_in", "Lisbon", category=None, confidence=90)
    principal = world.journey.caller.principal
    world.journey.caller.principal = principal.__class__(
        ids.LOCAL_TENANT, ids.uuid7(datetime.now(UTC)), None, frozenset(), "keys"
    )
    await world.ask([user("Hello there")])
    assert "Mumbai" in json.dumps(prompt(world))
    assert "Lisbon" not in json.dumps(prompt(world))


# --- what is in doubt -----------------------------------------------------------------------------------------------------


async def doubt(world: World, text: str, days: int = 120) -> UUID:
    memory = await world.remember(text, kind="preference")
    at = datetime.now(UTC) - timedelta(days=days)
    await set_memory(world.admin, memory, status="aging", created_at=at, last_validated_at=at)
    return memory


async def test_a_memory_in_doubt_that_was_found_is_asked_about_once(world: World) -> None:
    memory = await doubt(world, "Prefers Friday deliveries")
    await doubt(world, "Keeps parrots at home")
    await world.ask([user("When shall we send the Friday deliveries?")])
    text = prompt(world)[-1]["content"]
    assert text.count("To be confirmed by the user: I have a note from ") == 1
    assert "that says “Prefers Friday deliveries”; is that still right?" in text
    assert (await read_audit(world.admin))["sections"]["questions"]["asked"] == [str(memory)]
    details = json.loads((await read_memory(world.admin, memory))["details"])
    assert details["asked"] == 1
    assert [each["event"] for each in await read_memory_events(world.admin, memory_id=memory)] == ["asked"]
    # Not again, in this conversation or in another, for a week.
    await world.ask([user("Which day for the Friday deliveries?")])
    assert "Prefers Friday deliveries" in json.dumps(prompt(world))
    assert "To be confirmed" not in json.dumps(prompt(world))
    details["asked_at"] = (datetime.now(UTC) - timedelta(days=8)).isoformat()
    await set_memory(world.admin, memory, details=json.dumps(details))
    await world.ask([user("So what about Friday deliveries?")])
    assert "To be confirmed" in json.dumps(prompt(world))


# --- habits ---------------------------------------------------------------------------------------------------------------


async def test_a_procedure_widens_the_search(world: World) -> None:
    wanted = await world.remember("Ana has three unpaid invoices")
    await world.remember("Nine parrots live next door")
    await world.ask([user("What about my delivery?")])
    before = await read_audit(world.admin)
    assert before["widened"] == []
    habit = await world.remember("After delivery, the user then asks about invoice", kind="procedure")
    details = {
        "trigger": {"topics": ["delivery"], "intent": "question"},
        "action": {"action_type": "augment_retrieval", "topics": ["invoice"]},
    }
    await set_memory(world.admin, habit, details=json.dumps(details))
    await world.ask([user("What about my delivery?")], headers={"x-mneme-session": "another"})
    told = await read_audit(world.admin)
    assert told["widened"] == [{"procedure": str(habit), "words": ["invoice"]}]
    at = told["items"]["id"].index(str(wanted))
    assert told["items"]["reason"][at] == "chosen"
    assert told["items"]["legs"][at] & 2  # found by its words
    # A search knows it, too: that user's, and nobody else's.
    retriever = Retriever(world.store, HashEmbedder(), len, indexes_of(world.store._pool, 8))
    found = await retriever.habits(Scope(ids.LOCAL_TENANT, LOCAL.id))
    assert [(each.memory_id, each.details) for each in found.procedures] == [(habit, details)]
    assert (found.facts, found.due) == ((), None)
    for other in (
        Scope(ids.LOCAL_TENANT, UUID(int=5)), Scope(UUID(int=5), LOCAL.id),
        Scope(ids.LOCAL_TENANT, LOCAL.id, confine=UUID(int=5)),
    ):  # fmt: skip
        assert await retriever.habits(other) == NOTHING
    await world.ask([user("Good morning to you")], headers={"x-mneme-session": "a third"})
    assert (await read_audit(world.admin))["widened"] == []


# --- the user's clock ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("zone", "offset"), [("Asia/Tokyo", timedelta(hours=9)), ("nowhere at all", timedelta(0))])
async def test_a_question_is_asked_by_the_users_clock(
    world: World, facts: Facts, zone: str, offset: timedelta, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_prompt, moments = Compiler.compile, list[datetime]()

    async def compile_and_note(compiler: Compiler, request: CompileRequest) -> Compilation:
        moments.append(request.now)
        return await compile_prompt(compiler, request)

    monkeypatch.setattr(Compiler, "compile", compile_and_note)
    await know(facts, "time_zone", zone)
    await world.ask([user("What did I say yesterday?")])
    (asked,) = moments
    assert asked.utcoffset() == offset
    assert abs(asked - datetime.now(UTC)) < timedelta(minutes=5)
