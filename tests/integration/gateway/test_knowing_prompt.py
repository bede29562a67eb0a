"""What is known of the things that a request names, on its way into the prompt, into the account, and back as of then."""

from __future__ import annotations

import itertools
import json
import time
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from msgspec.structs import replace

from app.context.rank import ENTITY_CHANNEL, TEXT_CHANNEL, VECTOR_CHANNEL
from app.context.request import SearchRequest
from app.context.resolution import EarlierMessage, Who
from app.context.retrieve import Retriever, Scope
from app.context.score import ProfileName
from app.errors import StoreUnavailable
from app.features.preview import Previewer, PreviewRequest
from app.gateway.upstream import Router
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.records import ResolutionStore
from app.store.tenancy import UserRef
from app.tasks import Supervisor
from tests.integration.api.test_replay import Desk
from tests.support.journey import Message, assistant, user
from tests.support.knowledge import GAI, Answer, Business, clash, fact, nobody, query, terms
from tests.support.rows import find_tables, read_audit, set_memory
from tests.support.stored_stage import ANA, TENANT, StoredStage, make_stage

QUESTION = "What are the terms of Gai Media?"
SQL = Queries.load()


class Told:
    """A gateway whose tenant has a business that is known."""

    def __init__(self, stage: StoredStage, business: Business, tasks: Supervisor) -> None:
        self.stage = stage
        self.business = business
        self.tasks = tasks
        self.transcript: list[Message] = []

    async def tie(self, text: str, value: str | None = None) -> UUID:
        """A memory that is tied to Gai Media; `value`: what it says of its payment terms."""
        (memory,) = await self.stage.remember(text)
        terms = {"subject_entity_id": GAI.id, "predicate": "payment_terms", "object_value": value} if value else {}
        await set_memory(self.stage.admin, memory, entity_ids=["gai-media", GAI.id], **terms)
        return memory

    async def ask(self, question: str = QUESTION, **given: Any) -> Any:
        self.transcript.append(user(question))
        answer = await self.stage.ask(list(self.transcript), **given)
        self.transcript.append(assistant(answer.text))
        return answer

    @property
    def prompt(self) -> str:
        """What stood in the last user message."""
        messages = json.loads(self.stage.sent())["messages"]
        text: str = messages[-1]["content"]
        return text


async def told_by(pool: Pool, admin: asyncpg.Connection[Any], business: Business, **settings: Any) -> Told:
    tasks = Supervisor()
    business.store = business.store or ResolutionStore(pool, SQL)
    deadline = settings.pop("domain_deadline_s", 5.0)
    return Told(await make_stage(pool, admin, knower=business.knower(tasks, deadline), **settings), business, tasks)


@pytest.fixture
async def told(pool: Pool, admin: asyncpg.Connection[Any]) -> Told:
    return await told_by(pool, admin, Business())


# --- into the prompt --------------------------------------------------------------------------------------------------------


async def test_the_row_wins_and_the_prompt_says_so(told: Told) -> None:
    """NET30 against NET15 (seed 004, table 9)."""
    memory = await told.tie("Gai Media pays NET30", "NET30")
    await told.tie("Gai Media likes Friday deliveries")
    answer = await told.ask()
    assert (answer.headers["x-mneme-status"], answer.headers.get("x-mneme-reason")) == ("ok", None)
    assert "  Customer Gai Media Entertainment: payment terms NET15\n" in told.prompt
    assert "the company's records say NET15 (authoritative, read 2024-10-15); a memory of " in told.prompt
    assert "- [fact] Gai Media likes Friday deliveries (" in told.prompt
    assert ", confidence 0.70)" in told.prompt
    assert "[fact] Gai Media pays NET30" not in told.prompt
    account = await read_audit(told.stage.admin)
    assert account["counts"]["outranked"] == 1
    assert account["conflicts"][0]["memory"]["memory_id"] == str(memory)
    assert "NET30" not in json.dumps(account)
    assert account["domain"]["queries"][0]["table"] == "domain.customers"
    assert account["entities"][0]["method"] == "known_alias"
    assert told.business.heard == [(Who(TENANT, ANA), ())]


async def test_what_is_tied_to_a_thing_is_found_without_its_words(told: Told) -> None:
    """Neither words nor vectors lead from the books to an accountant."""
    leave = await told.tie("Their accountant is on leave in May")
    for n in range(70):
        await told.stage.remember(f"Somebody does the books, number {n}")
    await told.ask("Who does the books at Gai Media?")
    assert "Their accountant is on leave in May" in told.prompt
    account = await read_audit(told.stage.admin)
    place = account["items"]["id"].index(str(leave))
    assert account["items"]["legs"][place] & (VECTOR_CHANNEL | TEXT_CHANNEL | ENTITY_CHANNEL) == ENTITY_CHANNEL
    told.business.names = {}
    told.transcript.clear()
    await told.ask("Who does the books at Gai Media?")
    assert "Their accountant" not in told.prompt


async def test_a_habit_looks_for_facts_of_the_thing_that_is_named(told: Told) -> None:
    """Seed 004's memory_predicate, with its importance_boost: what has neither the question's words nor its thing as a tag."""
    sought, other = await told.stage.remember("Nothing before the tenth", "Nothing after the ninth")
    for memory, subject in ((sought, GAI.id), (other, "customer:kai_456")):
        await set_memory(told.stage.admin, memory, subject_entity_id=subject, predicate="payment_window")
    for n in range(70):
        await told.stage.remember(f"Somebody does the books, number {n}")
    question = "Who does the books at Gai Media?"
    await told.ask(question)
    plain = told.prompt
    assert "Nothing before" not in plain
    (habit,) = await told.stage.remember("After books, the user then asks about payment")
    details = {
        "trigger": {"topics": ["book"], "entity_types": ["customer"], "intent": "question"},
        "action": {
            "augment_retrieval": [{"memory_predicate": "payment_.*", "entity": "{customer}", "importance_boost": 0.2}]
        },
    }
    await set_memory(told.stage.admin, habit, kind="procedure", details=json.dumps(details))
    told.transcript.clear()
    await told.ask(question, session="with the habit")
    account = await read_audit(told.stage.admin)
    place = account["items"]["id"].index(str(sought))
    assert account["items"]["legs"][place] & ENTITY_CHANNEL
    asked = SearchRequest(Scope(TENANT, ANA), question, told.stage.clock.now(), token_budget=8000)
    found = await told.stage.compiler().search(
        replace(
            asked, inquiry=await told.business.knower(told.tasks).inquire(Who(TENANT, ANA), question, (), asked.now)
        )
    )
    gained = {each.candidate.id: each.candidate.importance for each in found.items}
    assert gained[sought] == pytest.approx(0.5)
    assert gained.get(other, 0.3) == pytest.approx(0.3)
    told.transcript.clear()
    await told.ask("What does Gai Media sell?", session="without a trigger")
    assert str(sought) not in json.dumps(await read_audit(told.stage.admin))


async def test_what_does_not_matter_is_no_candidate_of_seed_001(told: Told) -> None:
    """Its §3.3: importance of 0.1 and more."""
    faded, kept = await told.stage.remember("The kettle is blue", "The kettle is tall")
    await set_memory(told.stage.admin, faded, importance=0.09)
    asked = SearchRequest(Scope(TENANT, ANA), "Which kettle?", told.stage.clock.now())
    compiler = told.stage.compiler()

    async def found(profile: ProfileName) -> set[UUID]:
        return {each.candidate.id for each in (await compiler.search(replace(asked, profile=profile))).items}

    assert (await found("tri_layer"), await found("auto")) == ({kept}, {faded, kept})


async def test_a_search_finds_what_is_tied_as_well(told: Told) -> None:
    leave = await told.tie("Their accountant is on leave in May")
    knower = told.business.knower(told.tasks)
    compiler = told.stage.compiler()
    asked = SearchRequest(Scope(TENANT, ANA), "Who does the books at Gai Media?", told.stage.clock.now())
    inquiry = await knower.inquire(Who(TENANT, ANA), asked.query, (), asked.now)
    found = await compiler.search(replace(asked, inquiry=inquiry))
    assert [each.candidate.id for each in found.items] == [leave]
    assert (await compiler.search(asked)).items == ()
    assert "domain" not in told.business.asked


async def test_a_tenant_of_whom_nothing_is_known_has_the_prompt_that_it_had(
    pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    told = await told_by(pool, admin, nobody())
    await told.tie("Gai Media pays NET30", "NET30")
    await told.ask()
    assert "payment terms: NET30" in told.prompt
    assert "confidence" not in told.prompt
    assert not {"entities", "query", "domain", "conflicts"} & (await read_audit(told.stage.admin)).keys()
    await told.ask()
    assert told.business.asked == ["ontology", "things"]


async def test_who_is_nobody_knows_what_the_tenant_knows(told: Told) -> None:
    await told.ask(user="")  # a user was meant, and nobody is named
    principal = told.stage.journey.caller.principal
    told.stage.journey.caller.principal = replace(principal, mode="keys")
    told.transcript.clear()
    await told.ask()
    assert [who.user for who, _ in told.business.heard] == [None, None]
    assert "payment terms NET15" in told.prompt


async def test_what_was_said_before_comes_with_the_question_whoever_supplies_it(told: Told) -> None:
    for n in range(7):
        await told.ask(f"Question {n}, Gai Media?")
    _, before = told.business.heard[-1]
    assert len(before) == 10
    assert before[-2:] == (
        EarlierMessage("user", "Question 5, Gai Media?"),
        EarlierMessage("assistant", "You said: Question 5, Gai Media?"),
    )
    for text in ("Gai Media, first", "Gai Media, second"):
        await told.stage.ask([user(text)], session="s")
    assert told.business.heard[-1][1] == (
        EarlierMessage("user", "Gai Media, first"),
        EarlierMessage("assistant", "You said: Gai Media, first"),
    )


async def test_habits_widen_what_is_asked_of_the_domain(told: Told) -> None:
    (habit,) = await told.stage.remember("After terms, the user then asks about invoices")
    details = json.dumps({"trigger": {"topics": ["term"]}, "action": {"topics": ["invoice"]}})
    await set_memory(told.stage.admin, habit, kind="procedure", details=details)
    await told.ask()
    account = await read_audit(told.stage.admin)
    assert told.business.widened == [word for each in account["widened"] for word in each["words"]] == ["invoice"]


# --- once, and up to date -----------------------------------------------------------------------------------------------------


async def test_twenty_turns_share_their_prefix_but_for_the_one_change(told: Told) -> None:
    await told.tie("Gai Media pays NET30", "NET30")
    sent = []
    for turn in range(20):
        if turn == 9:
            told.business.answer = Answer(
                (query(),), (fact("Customer Gai Media Entertainment: payment terms NET45"),),
                rows={GAI.id: {"payment_terms": terms("NET45")}},
            )  # fmt: skip
        await told.ask("And lunch?" if turn in (9, 10) else f"Turn {turn}, Gai Media?")
        sent.append(json.loads(told.stage.sent())["messages"])
    for turn, (earlier, later) in enumerate(itertools.pairwise(sent), 1):
        assert (later[: len(earlier)] == earlier) is (turn != 11), turn
    assert "payment terms NET15" not in json.dumps(sent[-1])
    for each in sent:
        assert json.dumps(each).count("From the company's own records") == 1
        assert json.dumps(each).count("Conflict: ") == 1
    assert len(told.tasks) == 0


# --- in time --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("part", "reason"), [("domain", "domain"), ("log", "domain"), ("resolve", "entities")])
@pytest.mark.parametrize("how", ["hangs", "fails"])
async def test_what_is_away_or_late_is_left_out_and_said(
    pool: Pool, admin: asyncpg.Connection[Any], part: str, reason: str, how: str
) -> None:
    business = Business(hangs={part}) if how == "hangs" else Business(fails={part: StoreUnavailable("away")})
    told = await told_by(pool, admin, business, retrieval_deadline_ms=2000, domain_deadline_s=0.2)
    await told.tie("Gai Media likes Friday deliveries")
    await told.stage.ask([user("warm")])
    began = time.monotonic()
    answer = await told.ask()
    assert time.monotonic() - began < 2.0 + 2.0  # the rest is the machine's
    assert (answer.headers["x-mneme-status"], answer.headers["x-mneme-reason"]) == ("degraded", reason)
    assert "Gai Media likes Friday deliveries" in told.prompt  # the search was not taken along
    assert ("payment terms NET15" in told.prompt) is (part == "log")
    account = await read_audit(told.stage.admin)
    assert (account["status"], account["reason"], account["domain"]["reason"]) == ("degraded", reason, reason)
    assert told.stage.journey.count("mneme_degradations_total", reason=reason) >= 1
    assert len(told.tasks) == 0


async def test_a_search_that_comes_too_late_leaves_what_the_database_said(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object, **__: object) -> Any:
        raise StoreUnavailable("away")

    monkeypatch.setattr(Retriever, "candidates", away)
    answer = await told.ask()
    assert answer.headers["x-mneme-reason"] == "store"
    assert len(told.tasks) == 0


# --- the account ----------------------------------------------------------------------------------------------------------


async def test_a_preview_tells_it_as_the_call_would(told: Told) -> None:
    await told.tie("Gai Media pays NET30", "NET30")
    gateway = told.stage.journey.gateway
    preparer = gateway._augmenter._preparer
    router = Router.from_settings(told.stage.settings)
    previewer = Previewer(preparer, router, told.stage.clock, "gpt-4o")
    asked = PreviewRequest(TENANT, UserRef(ANA, "local"), None, None, [user(QUESTION)], None, None)
    shown = await previewer.preview(asked)
    assert "payment terms NET15" in shown["messages"][0]["content"]
    assert shown["conflicts"][0]["memory"]["value"] == "NET30"
    assert shown["domain"]["facts"][0]["text"] == fact().text
    assert shown["query"]["category"] == "factual"


async def test_the_route_of_a_call_tells_what_the_memory_said_while_it_is_stored(told: Told, pool: Pool) -> None:
    memory = await told.tie("Gai Media pays NET30", "NET30")
    call = (await told.ask()).headers["x-mneme-call-id"]
    async with Desk(told.stage, pool).client() as client:
        shown = (await client.get(f"/api/v1/calls/{call}/context")).json()
        assert shown["conflicts"][0]["memory"]["value"] == "NET30"
        assert shown["conflicts"][0]["db_source"]["value"] == "NET15"
        assert shown["entities"][0]["canonical_id"] == GAI.id
        assert shown["domain"]["facts"][0]["chosen"]
        await told.stage.memories.forget(TENANT, ANA, memory)
        shown = (await client.get(f"/api/v1/calls/{call}/context")).json()
        assert shown["conflicts"][0]["memory"]["value"] is None


async def test_what_a_forgotten_memory_said_is_kept_nowhere(told: Told) -> None:
    memory = await told.tie("Gai Media pays NET30", "NET30")
    await told.ask()
    assert b"said NET30" in told.stage.sent()
    await told.stage.memories.forget(TENANT, ANA, memory)
    assert not {"compilations", "context_blocks"} & await find_tables(told.stage.admin, "NET30")


async def test_a_logged_conflict_is_told_with_its_number(told: Told) -> None:
    memory = await told.tie("Gai Media pays NET30", "NET30")
    told.business.logged = [clash(memory_id=memory, conflict_id=UUID(int=9))]
    await told.ask()
    assert [each["id"] for each in (await read_audit(told.stage.admin))["conflicts"]] == [str(UUID(int=9))]
