"""Prompts of every kind compiled again as of then: rebases, summaries, branches, failed searches, other models, settings."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from app.api.auth import Principal
from app.context.budget import Budgets
from app.context.score import PROFILES, STRATEGY_SIGNALS, STRATEGY_WEIGHTS, strategies
from app.errors import StoreUnavailable, UpstreamUnreachable
from app.features.facts import Facts
from app.store.captures import Captures
from app.store.indexed import IndexStore
from app.store.pools import Pool
from app.store.queries import Queries
from tests.support.journey import (
    UPSTREAM,
    Message,
    assistant,
    completion,
    system,
    user,
)
from tests.support.replaying import TENANT, make_stage
from tests.support.talks import FACTS, QUESTIONS, client_managed, know


async def test_a_rebase_is_done_again(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    """A small window: the blocks of an epoch use up their budget, or quote what was superseded, and are begun anew."""
    stage = await make_stage(pool, admin, model_windows={"gpt-4o": 1500}, price="thorough")
    memories = await stage.remember(
        *FACTS, *(f"Chess fact {n}: the rook number {n} is {n} cm tall." for n in range(30))
    )
    made, rebased = [], 0
    transcript: list[Message] = []
    for n in range(14):
        transcript.append(user(f"What about my chess fact {2 * n} and {2 * n + 1}?"))
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
    stage = await make_stage(pool, admin, price="thorough")
    await stage.remember(*(f"Chess fact {n}: rook {n}." for n in range(150)))
    answer = await stage.ask([user("What are my chess facts?")])
    again = await stage.again(answer)
    assert again.before["omitted"] > 0
    assert again.body == stage.sent()


async def test_a_search_that_failed_fails_again(
    pool: Pool, admin: asyncpg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its prompt had no memory, and has none as of then; today it would."""
    stage = await make_stage(pool, admin)
    await stage.remember(*FACTS)

    async def away(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable

    monkeypatch.setattr(IndexStore, "load", away)
    answer = await stage.ask([user(QUESTIONS[0])])
    monkeypatch.undo()
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


async def test_the_settings_of_then(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    """Weights of the operator's own, budgets of sections and no questions: as they were set."""
    weights = {name: dict.fromkeys(STRATEGY_SIGNALS, 0.2) for name in STRATEGY_WEIGHTS}
    profiles = {**PROFILES, **strategies(weights)}
    stage = await make_stage(
        pool,
        admin,
        profiles=profiles,
        budgets=Budgets(facts=12),
        questions=0,
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


async def test_a_call_says_how_many_tools_its_answer_called(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    stage = await make_stage(pool, admin)
    called = [{"id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for n in range(2)]
    stage.journey.upstream.script = lambda asked: completion(None, tool_calls=called)
    answer = await stage.ask([user("hi")])
    found = await Captures(pool, Queries.load()).one(TENANT, UUID(answer.headers["x-mneme-call-id"]), None)
    assert found is not None
    assert found.tool_calls == 2
