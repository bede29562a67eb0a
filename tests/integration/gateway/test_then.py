"""Captured requests compiled again, on a real store: as of then to the byte, whatever memory has become since."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from app.api.auth import Principal
from app.context.differ import compare
from app.context.profiles import PROFILES, STRATEGY_SIGNALS, STRATEGY_WEIGHTS, strategies
from app.errors import Conflict, NotFound, StoreUnavailable, UpstreamUnreachable
from app.gateway.asking import answer_of
from app.gateway.responses import RESPONSES
from app.gateway.then import Again
from app.memory.ingest_text import content_hash
from app.settings import Placement
from app.store import ids
from app.store.captures import Captures
from app.store.erasure import own_connection
from app.store.facts import Facts
from app.store.instructions import Instructions
from app.store.memory_rows import MemoryChange, MemoryText
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.retention import Limits, Retention
from app.store.tenancy import UserRef
from tests.support.journey import (
    UPSTREAM,
    Answer,
    Message,
    Reply,
    assistant,
    completion,
    system,
    user,
)
from tests.support.replaying import ANA, TENANT, ReplayStage, make_stage
from tests.support.responses import asked_last, events_of, response_of, said

FACTS = (
    "Ana plays chess on Mondays.",
    "Ana's chess club is in Graz.",
    "Ana prefers the Sicilian in chess.",
    "Ana drinks tea while she plays chess.",
)


@pytest.fixture(params=["tail", "system", "second_system"])
async def stage(request: pytest.FixtureRequest, pool: Pool, admin: asyncpg.Connection[Any]) -> ReplayStage:
    placement: Placement = request.param
    return await make_stage(pool, admin, placement=placement)


QUESTIONS = ("What about my chess?", "Where is the chess club?", "And the tea?", "Which chess opening do I prefer?")


async def client_managed(stage: ReplayStage) -> list[tuple[Answer, bytes]]:
    transcript: list[Message] = [system("Be brief.")]
    made = []
    for question in QUESTIONS:
        transcript.append(user(question))
        answer = await stage.ask(transcript)
        made.append((answer, stage.sent()))
        transcript.append(assistant(answer.text))
    return made


async def server_managed(stage: ReplayStage) -> list[tuple[Answer, bytes]]:
    made = []
    for n, question in enumerate(QUESTIONS):
        said = [user(question)] if n else [system("Be brief."), user(question)]
        answer = await stage.ask(said, session="s")
        made.append((answer, stage.sent()))
    return made


@dataclass
class Talk:
    """A conversation that was had, and what went upstream for each turn."""

    stage: ReplayStage
    memories: list[UUID]
    turns: list[tuple[Answer, bytes]]

    async def exact(self) -> None:
        for answer, sent in self.turns:
            again = await self.stage.again(answer)
            assert again.body == sent
            assert again.identical
            assert again.notes == []


@pytest.fixture(params=[client_managed, server_managed])
async def talk(request: pytest.FixtureRequest, stage: ReplayStage) -> Talk:
    way: Callable[..., Any] = request.param
    memories = await stage.remember(*FACTS)
    # Another session, whose turns are found as well, one of them so long that only a passage is shown.
    await stage.ask([user("My chess teacher is called Ivo.")], session="other")
    await stage.ask([user("Chess notes. " + "The knight moves oddly in chess openings. " * 40)], session="other")
    made = await way(stage)
    assert any(text.encode() in sent for text in FACTS for _, sent in made), "something is remembered"
    return Talk(stage, memories, made)


async def test_as_of_then_to_the_byte_whatever_became_since(talk: Talk) -> None:
    await talk.exact()
    await unchanged(talk)
    await today(talk)
    await later(talk)
    await forgotten(talk)


async def unchanged(talk: Talk) -> None:
    for answer, _ in talk.turns:
        told = difference(await talk.stage.again(answer))
        assert {each["change"] for each in told["items"]} <= {"kept"}
        assert told["eta"]["was"] == pytest.approx(told["eta"]["now"], abs=1e-4)
        assert told["tokens"]["was"] == told["tokens"]["now"]


async def today(talk: Talk) -> None:
    """Today's memory, at the place of then: what was said later in the same conversation is not known there."""
    stage = talk.stage
    told = difference(await stage.again(talk.turns[0][0], "today"))
    assert told["changes"]["new"] == 0
    (new,) = await stage.remember("What about chess: Ana became champion in chess.")
    again = await stage.again(talk.turns[0][0], "today")
    assert str(new) in {each["id"] for each in difference(again)["items"] if each["change"] == "new"}
    assert b"champion" in again.body
    assert not again.identical


async def later(talk: Talk) -> None:
    """Memory goes on: new ones, used ones, superseded, edited and invalidated ones; other settings."""
    stage = talk.stage
    stage.clock.move(timedelta(days=40))
    await stage.remember("Ana now hates chess.", "Ana's chess club has moved to Linz.")
    await stage.admin.execute("UPDATE agent_data.memory_store SET access_count = 500, importance = 1, confidence = 0.1")
    await stage.admin.execute(
        "UPDATE agent_data.memory_store SET status = 'superseded', valid_to = now() WHERE memory_id = $1",
        talk.memories[3],
    )
    await stage.memories.change(TENANT, ANA, talk.memories[1], change_of("Ana's club is elsewhere."))
    await stage.memories.invalidate(TENANT, ANA, talk.memories[2], None)
    await stage.ask([user("More chess?")], session="s")
    await talk.exact()
    again = await stage.again(talk.turns[0][0], default_context_window=500, memory_budget_tokens=60)
    assert again.body == talk.turns[0][1]


async def forgotten(talk: Talk) -> None:
    """What was forgotten does not come back, and is said to be that."""
    stage, gone = talk.stage, str(talk.memories[0])
    await stage.memories.forget(TENANT, ANA, talk.memories[0])
    shown = 0
    for answer, sent in talk.turns:
        again = await stage.again(answer)
        assert FACTS[0].encode() not in again.body
        if FACTS[0].encode() in sent:
            shown += 1
            assert not again.identical
            if gone in {str(each) for each in again.before["items"]["id"]}:
                assert again.fates[gone] == "forgotten"
            else:  # it stood in an earlier block, which went with its words
                assert again.notes == ["Memory blocks of then quoted what was deleted since: all of them are gone."]
        for item in difference(again)["items"]:
            if item["id"] == gone:
                assert (item["change"], item["now"]["reason"]) == ("gone", "forgotten")
    assert shown


def difference(again: Again) -> dict[str, Any]:
    return compare(again.before, json.loads(json.dumps(again.compilation.audit, default=str)), again.fates)


async def test_a_deleted_message_does_not_come_back(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    stage = await make_stage(pool, admin)
    made = await server_managed(stage)
    message = await admin.fetchval(
        "SELECT message_id FROM agent_data.conversation_history WHERE content = $1", QUESTIONS[1]
    )
    await admin.execute(
        "INSERT INTO agent_data.suppressions (user_id, tenant_id, item_id, reason) VALUES ($1, $2, $3, 'deleted')",
        ANA, TENANT, message,
    )  # fmt: skip
    again = await stage.again(made[-1][0])
    said = json.dumps({"role": "user", "content": QUESTIONS[1]}, separators=(",", ":")).encode()
    assert said in made[-1][1]
    assert said not in again.body
    assert again.notes == ["1 earlier messages of the session are not shown any more."]


async def test_a_rebase_is_done_again(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    """A small window: the blocks of an epoch use up their budget, or quote what was superseded, and are begun anew."""
    stage = await make_stage(pool, admin, default_context_window=1500, model_windows={"gpt-4o": 1500})
    memories = await stage.remember(
        *FACTS, *(f"Chess fact {n}: the rook number {n} is {n} cm tall." for n in range(30))
    )
    made, rebased = [], 0
    transcript: list[Message] = []
    for n in range(14):
        transcript.append(user(f"What about chess fact {2 * n} and {2 * n + 1}?"))
        answer = await stage.ask(transcript, max_tokens=100)
        made.append((answer, stage.sent()))
        transcript.append(assistant(answer.text))
        if n == 8:
            await admin.execute(
                "UPDATE agent_data.memory_store SET status = 'superseded' WHERE memory_id = ANY ($1)", memories[:20]
            )
    for answer, sent in made:
        again = await stage.again(answer)
        assert again.body == sent
        rebased += again.before["rebased"] is not None
    assert rebased


async def test_history_that_did_not_fit_is_left_out_again(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    stage = await make_stage(pool, admin, model_windows={"gpt-4o": 900})
    await stage.remember(*FACTS)
    made = []
    for n in range(12):
        answer = await stage.ask(
            [user(f"Chess {n}? " + "and then some more words " * 12)], session="long", max_tokens=100
        )
        made.append((answer, stage.sent()))
        if n == 6:  # a summary, as the session-end work writes it
            await admin.execute(
                "UPDATE agent_data.sessions SET summary_text = 'They spoke of chess.', summary_token_count = 6"
            )
    assert b"They spoke of chess." in made[-1][1] or any(b"They spoke of chess." in sent for _, sent in made)
    for answer, sent in made:
        assert (await stage.again(answer)).body == sent
    await admin.execute("UPDATE agent_data.sessions SET summary_text = NULL")
    told = next(answer for answer, sent in made if b"They spoke of chess." in sent)
    again = await stage.again(told)
    assert b"They spoke of chess." not in again.body
    assert "The session's summary of then is not stored any more." in again.notes


async def test_a_branch_and_a_regeneration(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    stage = await make_stage(pool, admin)
    await stage.remember(*FACTS)
    made = await client_managed(stage)
    first = [system("Be brief."), user(QUESTIONS[0]), assistant(made[0][0].text)]
    for messages in ([*first, user("Or about my chess teacher?")], [*first, user(QUESTIONS[1])]):
        answer = await stage.ask(messages)
        made.append((answer, stage.sent()))
    for answer, sent in made:
        assert (await stage.again(answer)).body == sent
        await stage.again(answer, "today")


async def test_of_very_many_candidates_the_explained_ones_are_enough(
    pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    stage = await make_stage(pool, admin)
    await stage.remember(*(f"Chess fact {n}: rook {n}." for n in range(150)))
    answer = await stage.ask([user("What are the chess facts?")])
    again = await stage.again(answer)
    assert again.before["omitted"] > 0
    assert again.body == stage.sent()


async def test_a_search_that_failed_fails_again(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    """Its prompt had no memory, and has none as of then; today it would."""
    stage = await make_stage(pool, admin)
    await stage.remember(*FACTS)

    async def away(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable

    found, stage.store.retrieve = stage.store.retrieve, away  # type: ignore[method-assign]
    answer = await stage.ask([user(QUESTIONS[0])])
    stage.store.retrieve = found  # type: ignore[method-assign]
    assert answer.headers["x-mneme-status"] == "degraded"
    assert (await stage.again(answer)).body == stage.sent()
    assert FACTS[0].encode() in (await stage.again(answer, "today")).body


async def test_nobodys_session_has_its_own_memory_again(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    stage = await make_stage(pool, admin, model_windows={"gpt-4o": 1300})
    stage.journey.caller.principal = Principal(TENANT, UUID(int=7), None, frozenset(), "keys")
    made = []
    for n in range(14):
        text = f"What did I say about chess {n}? " + "and then some more words about chess " * 8
        answer = await stage.ask([user(text)], session="s", max_tokens=100)
        made.append((answer, stage.sent()))
    assert any(b"mneme-memory" in sent for _, sent in made), "what no longer fits is found again"
    for answer, sent in made:
        call = UUID(answer.headers["x-mneme-call-id"])
        assert (await stage.recompiler().run(TENANT, call, None, "as_of")).body == sent


async def test_the_upstreams_own_name_for_the_model_is_there_again(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    """An alias, and an upstream that stood in for another, which calls the model something else."""
    first = {
        "name": "a",
        "base_url": UPSTREAM,
        "models": ["*"],
        "aliases": {"gpt-4o": "gpt-4o-mini"},
        "fallbacks": ["b"],
    }
    second = {"name": "b", "base_url": "http://other.test/v1", "models": [], "aliases": {"gpt-4o": "gpt-4.1"}}
    upstreams: dict[str, Any] = {"upstream_base_url": None, "upstreams": [first, second]}
    stage = await make_stage(pool, admin, **upstreams)
    await stage.remember(*FACTS)
    answer = await stage.ask([user(QUESTIONS[0])])
    assert b"gpt-4o-mini" in stage.sent()
    assert (await stage.again(answer, **upstreams)).body == stage.sent()
    script = stage.journey.upstream.script

    def refusing(asked: Message) -> Any:
        return UpstreamUnreachable("away") if asked["model"] == "gpt-4o-mini" else script(asked)

    stage.journey.upstream.script = refusing
    answer = await stage.ask([user(QUESTIONS[1])])
    assert b"gpt-4.1" in stage.sent()
    again = await stage.again(answer, **upstreams)
    assert again.body == stage.sent()
    assert (await stage.again(answer, "today", **upstreams)).target.model_alias == "gpt-4o-mini"


async def test_what_cannot_be_compiled_again_says_why(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    stage = await make_stage(pool, admin)

    async def why(**headers: str) -> str:
        answer = await stage.journey.ask([user("hi")], headers={k.replace("_", "-"): v for k, v in headers.items()})
        with pytest.raises(Conflict) as told:
            await stage.again(answer)
        return str(told.value.code)

    assert await why(x_mneme_memory="off") == "not_compiled"
    assert await why(x_mneme_capture="off") == "not_captured"
    with pytest.raises(NotFound):
        await stage.recompiler().run(TENANT, ids.uuid7(stage.clock.now()), None, "as_of")
    answer = await stage.ask([user("hi")])
    call = UUID(answer.headers["x-mneme-call-id"])
    with pytest.raises(NotFound):  # another user's
        await stage.recompiler().run(TENANT, call, ids.user_id(TENANT, "bob"), "as_of")
    await admin.execute("UPDATE agent_data.compilations SET inputs = '{}'")
    with pytest.raises(Conflict) as told:
        await stage.again(answer)
    assert told.value.code == "version"


async def test_redacted_captures_are_not_compiled_again(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    stage = await make_stage(pool, admin, redact_paths=["$.messages[*].content"])
    answer = await stage.ask([user("secret")])
    with pytest.raises(Conflict) as told:
        await stage.again(answer)
    assert told.value.code == "capture_redacted"


@dataclass
class Told:
    """A conversation whose prompts have the tenant's profile, facts about the user, and a question."""

    stage: ReplayStage
    facts: Facts
    doubtful: UUID
    turns: list[tuple[Answer, bytes]]

    async def exact(self) -> None:
        for answer, sent in self.turns:
            again = await self.stage.again(answer)
            assert (again.body, again.notes) == (sent, [])


@pytest.fixture
async def told(stage: ReplayStage, pool: Pool) -> Told:
    facts = Facts(pool, stage.sql, stage.clock)
    await Instructions(pool, stage.sql, stage.clock).write_profile(
        TENANT, "- Business: Mumbai Bakery\n- Blog: 18 posts"
    )
    for key, value in (("lives_in", "Lisbon"), ("name", "Ana")):
        await know(facts, key, value)
    await stage.remember(*FACTS)
    (doubtful,) = await stage.remember("Ana wants chess deliveries on Fridays.")
    await stage.admin.execute("UPDATE agent_data.memory_store SET status = 'aging' WHERE memory_id = $1", doubtful)
    questions = (
        "When are my chess deliveries on Fridays?",
        "What happened at the chess club yesterday?",
        "And the tea?",
    )
    transcript: list[Message] = [system("Be brief.")]
    turns = []
    for question in questions:
        transcript.append(user(question))
        answer = await stage.ask(transcript, profile="strategy")
        turns.append((answer, stage.sent()))
        transcript.append(assistant(answer.text))
    first = turns[0][1]
    assert b"Tenant context: - Business: Mumbai Bakery" in first
    assert b"lives in: Lisbon" in first
    assert b"To be confirmed by the user: " in first
    return Told(stage, facts, doubtful, turns)


async def know(facts: Facts, key: str, value: str) -> UUID:
    fact, _ = await facts.put(TENANT, UserRef(ANA, "local"), key, value, category=None, confidence=90)
    return fact.fact_id


async def test_what_was_said_beside_memories_is_said_again(told: Told, pool: Pool) -> None:
    """The profile, the facts, the question and the strategy of then, whatever the user and the tenant said since."""
    stage = told.stage
    await told.exact()
    assert {(await stage.again(answer)).compilation.audit["strategy"] for answer, _ in told.turns} > {
        "temporal_focused"
    }
    stage.clock.move(timedelta(days=40))
    await know(told.facts, "lives_in", "Porto")
    await know(told.facts, "employer", "a bakery")
    await Instructions(pool, stage.sql, stage.clock).write_profile(TENANT, "A shoe shop")
    await stage.memories.invalidate(TENANT, ANA, told.doubtful, None)
    await told.exact()
    now = await stage.again(told.turns[0][0], "today")
    assert b"lives in: Porto" in now.body
    assert b"A shoe shop" in now.body
    assert b"Lisbon" not in now.body
    assert b"To be confirmed" not in now.body
    compared = difference(now)["sections"]
    assert compared["was"]["questions"]["asked"] == [str(told.doubtful)]
    assert "questions" not in compared["now"]
    last = await stage.again(told.turns[-1][0], "today")  # a block of then says what is not so any more
    assert b"Lisbon" not in last.body
    assert b"lives in: Porto" in last.body


async def test_a_forgotten_fact_is_not_said_again(told: Told) -> None:
    stage = told.stage
    stage.clock.move(timedelta(days=1))
    fact = await know(told.facts, "lives_in", "Porto")
    await told.exact()
    await told.facts.delete(TENANT, ANA, fact)
    for answer, sent in told.turns:
        again = await stage.again(answer)
        if b"Lisbon" in sent:
            assert b"Lisbon" not in again.body
            assert b"About the user: name: Ana" in again.body
            assert "Of the facts about the user 1 were forgotten since." in again.notes
    kept = str(await stage.admin.fetch("SELECT inputs FROM agent_data.compilations"))
    assert "Lisbon" not in kept
    assert "lives_in" not in kept


def answered(asked: Message) -> Reply:
    """The Responses API: each answer has an id of its own, by which the next request can name it."""
    text = asked_last(asked).rsplit("\n", 1)[-1]
    made = response_of(asked, [said(f"You said: {text}")], "resp_" + sha256(json.dumps(asked).encode()).hexdigest()[:8])
    if asked.get("stream"):
        return Reply(200, [(b"content-type", b"text/event-stream")], events_of(made))
    return Reply(200, [(b"content-type", b"application/json")], [json.dumps(made).encode()])


async def responses(stage: ReplayStage, way: str) -> list[tuple[Answer, bytes]]:
    """The same questions over the Responses API: the client has the conversation, or Mneme, or the upstream."""
    stage.journey.upstream.script = answered
    made: list[tuple[Answer, bytes]] = []
    items: list[Message] = []
    last = None
    for n, question in enumerate(QUESTIONS):
        document: Message = {"model": "gpt-4o", "stream": n % 2 == 0, "instructions": "Be brief."}
        items.append({"role": "user", "content": question})
        document |= {"input": items if way == "client" else question}
        if way == "upstream" and last is not None:
            document["previous_response_id"] = last
        stage.clock.move(timedelta(seconds=60))
        headers = {"x-mneme-session": "s"} if way == "mneme" else None
        answer = await stage.journey.post(json.dumps(document).encode(), headers=headers, path="/v1/responses")
        assert answer.status == 200, answer.body
        await stage.journey.settled()
        told = answer_of(answer.body, RESPONSES)
        last = told.id
        items.append({"role": "assistant", "content": told.choices[0].content})
        made.append((answer, stage.sent()))
    return made


@pytest.mark.parametrize("way", ["client", "mneme", "upstream"])
async def test_a_call_of_the_responses_api_is_read_as_it_speaks(stage: ReplayStage, way: str) -> None:
    memories = await stage.remember(*FACTS)
    made = await responses(stage, way)
    assert any(text.encode() in sent for text in FACTS for _, sent in made)
    talk = Talk(stage, memories, made)
    await talk.exact()
    stage.clock.move(timedelta(days=9))
    await stage.remember("What about chess: Ana became champion in chess.")
    await stage.memories.change(TENANT, ANA, memories[1], change_of("Ana's club is elsewhere."))
    await talk.exact()
    assert b"champion" in (await stage.again(made[0][0], "today")).body


async def test_the_settings_of_then(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    """Weights of the operator's own, MMR, budgets of sections and no questions: as they were set."""
    weights = {name: dict.fromkeys(STRATEGY_SIGNALS, 0.2) for name in STRATEGY_WEIGHTS}
    profiles = {**PROFILES, **strategies(weights)}
    stage = await make_stage(
        pool,
        admin,
        profiles=profiles,
        diversity=0.5,
        facts_budget_tokens=12,
        questions_per_turn=0,
        memory_budget_tokens=90,
    )
    facts = Facts(pool, stage.sql, stage.clock)
    for key in ("lives_in", "employer", "name"):
        await know(facts, key, "a value of some length")
    await stage.remember(*FACTS, *(f"Chess fact {n}: rook {n} of chess." for n in range(20)))
    for profile in ("auto", "strategy", "prefill", "tri_layer"):
        answer = await stage.ask([user("What are the chess facts of this week?")], session=profile, profile=profile)
        again = await stage.again(answer)
        assert again.body == stage.sent()
        assert json_of(again.compilation.audit)["items"] == again.before["items"]


def json_of(audit: Any) -> Any:
    return json.loads(json.dumps(audit, default=str))


def change_of(text: str) -> MemoryChange:
    """An edited text, as the door makes one."""
    return MemoryChange(text=MemoryText(text, content_hash(text), len(text.split()), None))


async def test_a_call_whose_time_is_over_says_so(pool: Pool, admin: asyncpg.Connection[Any], database: str) -> None:
    stage = await make_stage(pool, admin)
    answer = await stage.ask([user("hi")])
    stage.clock.move(timedelta(days=3))
    kept = await stage.ask([user("hello")])
    owner = await own_connection(database, "mneme_owner")()
    try:
        await Retention(Queries.load(), Limits(days=1)).run(owner, stage.clock.now())
    finally:
        await owner.close()
    with pytest.raises(NotFound, match="the time of its capture is over"):
        await stage.again(answer)
    assert (await stage.again(kept)).body == stage.sent()


async def test_a_call_says_how_many_tools_its_answer_called(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    stage = await make_stage(pool, admin)
    called = [{"id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for n in range(2)]
    stage.journey.upstream.script = lambda asked: completion(None, tool_calls=called)
    answer = await stage.ask([user("hi")])
    found = await Captures(pool, Queries.load()).one(TENANT, UUID(answer.headers["x-mneme-call-id"]), None)
    assert found is not None
    assert found.tool_calls == 2
