"""Seed 004's worked example, end to end on the running server: a business's own database, a model, and what users say."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients import MODEL, call_of, prompt_of, sdk, user
from tests.support.database import connected
from tests.support.replies import Script, chat_script
from tests.support.rows import set_memory
from tests.support.sample_domain import ONTOLOGY_YAML, SampleDomain
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer
from tests.support.worked_example import (
    LAST_MONTH,
    SEPTEMBER,
    UNHURRIED,
    WHO,
    Tenant,
    business,
    domains,
    last_month,
    queried,
)  # fmt: skip

EXAMPLES: dict[str, Sequence[tuple[str, str]]] = {
    "worked": (
        ("Tell me about Gai Media", "first"),
        ("Remember, Gai Media prefers Friday deliveries", "before"),
        (SEPTEMBER, "now"),
    ),
    "terms": (
        ("Remember, Gai Media's payment terms are NET30", "monday"),
        ("What are Gai Media's payment terms?", "tuesday"),
    ),
    "they": (
        ("When does Gai Media want its deliveries?", "now"),
        ("They prefer Thursday now", "now"),
    ),
    "unclear": (
        ("What about Gai?", "monday"),
        ("Gai Media", "monday"),
        ("What are the payment terms of Gai?", "tuesday"),
    ),
    "other": (
        ("What about Gai?", "monday"),
        ("Gail Industries", "monday"),
        ("What are the payment terms of Gai?", "tuesday"),
    ),
    "spelling": (
        ("Gai Media Entertainment uses road cases for everything", "one"),
        ("What do we know about Gai Media Entertainmet?", "two"),
    ),
}
"""The seed's examples and two more: messages, each with its session."""
TENANTS = (
    "worked", "stream", "terms", "recent", "asked", "they", "unclear", "profile", "in order", "in turns",
    *(f"alone {name}" for name in EXAMPLES),
)  # fmt: skip
GAI = "customer:gai_123"
RESOLVED = {
    "mention": "Gai Media",
    "canonical_id": GAI,
    "canonical_name": "Gai Media Entertainment",
    "confidence": 0.95,
    "method": "known_alias",
}
"""As the seed has it in its response."""
CUSTOMER = (
    "Customer Gai Media Entertainment (customer:gai_123): industry: Entertainment; status: Active; payment_terms: NET15"
)
ORDERS = (
    "Sales orders of Gai Media Entertainment, September 2024:"
    " SO-1052 (2024-09-22): status: in_fulfillment, total_amount: 2200 — work orders: 1 in_progress;"
    " SO-1045 (2024-09-15): status: fulfilled, total_amount: 3500 — work orders: 2 done; 2 in all, total_amount 5700"
)
CONFIRM = "To be confirmed by the user: "


WORKER = True


@pytest.fixture(scope="module")
async def sample(postgres_server: str) -> AsyncIterator[SampleDomain]:
    async with business(postgres_server) as found:
        yield found


@pytest.fixture(scope="module")
def settings(sample: SampleDomain) -> dict[str, str]:
    return UNHURRIED | {"DOMAINS": domains(erp=(sample.dsn, TENANTS))}


@pytest.fixture(scope="module")
def script() -> Script:
    """A model that passes on what its context asks to have confirmed."""

    def answer(asked: dict[str, Any]) -> str:
        lines = str(asked["messages"][-1]["content"]).splitlines()
        return " ".join(["Noted.", *(each.removeprefix(CONFIRM) for each in lines if each.startswith(CONFIRM))])

    return chat_script(answer)


# --- "What did Gai Media order last month?" -----------------------------------------------------------------------------


def test_the_seeds_question_and_its_whole_response(mneme: MnemeServer, upstream: ScriptedUpstream) -> None:
    worked = Tenant(mneme, "worked")
    first = worked.chat("Tell me about Gai Media", "first")
    assert first["entities_resolved"] == [RESOLVED | {"confidence": 0.8, "method": "domain_db"}], "found in its row"
    assert first["conflicts"] is None
    worked.talk_before()

    told = worked.chat(SEPTEMBER, "now")
    prompt = prompt_of(upstream.requests[-1])
    assert CUSTOMER in prompt
    assert ORDERS in prompt
    assert "Friday" in prompt
    assert "Conflict" not in prompt
    assert "authoritative" in prompt

    retrieved = told["augmentation"].pop("retrieved_memories")
    assert any("Friday" in each["summary"] for each in retrieved)
    assert [each["relevance_score"] for each in retrieved] == sorted(
        (each["relevance_score"] for each in retrieved), reverse=True
    )
    ((kind, _, number),) = [each["memory_id"].partition(":") for each in told["memories_created"]]
    assert kind == "episodic"
    metadata = told.pop("metadata")
    assert metadata.pop("processing_time_ms") < 20_000
    call = metadata.pop("call_id")
    assert told == {
        "response": {"content": "Noted.", "role": "assistant"},
        "augmentation": {
            "domain_queries": [
                {"query_type": "customer", "entity": GAI, "filters": {"customer_id": "gai_123"}, "result_count": 1},
                {
                    "query_type": "sales_order", "entity": GAI, "result_count": 2,
                    "filters": {"customer_id": "gai_123", "date_range": ["2024-09-01", "2024-09-30"]},
                },
                {
                    "query_type": "work_order", "entity": GAI, "result_count": 3,
                    "filters": {"so_id": ["SO-1052", "SO-1045"]},
                },
            ]
        },
        "memories_created": [
            {"memory_id": f"episodic:{number}", "memory_type": "episodic", "summary": f"User asked: {SEPTEMBER}"}
        ],
        "entities_resolved": [RESOLVED],
        "conflicts": None,
    }  # fmt: skip
    assert metadata == {
        "retrieval_count": len(retrieved), "extraction_count": 1, "llm_model": MODEL, "learning": "done",
        "query_type": "factual_entity_focused", "session_id": metadata["session_id"], "status": "ok", "reason": None,
    }  # fmt: skip

    # The literal question: of the month before today.
    literal = worked.chat(LAST_MONTH, "today")
    begin, end = last_month()
    assert queried(literal)[1:] == [("sales_order", [str(begin), str(end)], 2), ("work_order", None, 3)]
    line = next(each for each in prompt_of(upstream.requests[-1]).splitlines() if f"{begin:%B %Y}" in each)
    assert "SO-2052" in line
    assert line.endswith("SO-2045 (" + str(begin.replace(day=15)) + "): status: fulfilled, total_amount: 3500"
                         " — work orders: 2 done; 2 in all, total_amount 5700")  # fmt: skip

    # The same by the proxy's own route, explained afterwards.
    answer = worked.completion(SEPTEMBER, "by the proxy")
    assert answer.json()["choices"][0]["message"]["content"] == "Noted."
    assert ORDERS in prompt_of(upstream.requests[-1])
    for explained in (worked.explained(call_of(answer)), worked.explained(call)):
        assert explained["entities"] == [
            RESOLVED | {"type": "customer", "requires_disambiguation": False, "alternatives": []}
        ]
        assert explained["query"] == {
            "category": "factual", "entity_focused": True, "time_focused": True, "procedural": False,
            "requires_domain_db": True, "strategy": "factual_entity_focused",
            "temporal_scope": {"start": "2024-09-01", "end": "2024-09-30"},
        }  # fmt: skip
        assert (explained["domain"]["status"], explained["domain"]["reason"]) == ("ok", None)
        assert [each["text"] for each in explained["domain"]["facts"] if each["chosen"]] == [CUSTOMER, ORDERS]
        assert [each["table"] for each in explained["domain"]["queries"]] == [
            "domain.customers", "domain.sales_orders", "domain.work_orders",
        ]  # fmt: skip
        assert explained["conflicts"] == []


def test_a_stream_has_it_too(mneme: MnemeServer, upstream: ScriptedUpstream) -> None:
    tenant = Tenant(mneme, "stream")
    with sdk(mneme.url, key=tenant.key, headers={"x-mneme-user": WHO}) as client:
        asked: Any = {"model": MODEL, "messages": [user(SEPTEMBER)], "stream": True}
        raw = client.chat.completions.with_raw_response.create(**asked)
        said = "".join(each.choices[0].delta.content or "" for each in raw.parse())
    assert said == "Noted."
    assert ORDERS in prompt_of(upstream.requests[-1])
    explained = tenant.explained(raw.headers["x-mneme-call-id"])
    assert [each["method"] for each in explained["entities"]] == ["domain_db"]
    assert [each["result_count"] for each in explained["domain"]["queries"]] == [1, 2, 3]


# --- NET30 against NET15 ------------------------------------------------------------------------------------------------


def test_the_row_wins_and_the_next_prompt_says_so(mneme: MnemeServer, upstream: ScriptedUpstream) -> None:
    tenant = Tenant(mneme, "terms")
    stated = tenant.chat("Remember, Gai Media's payment terms are NET30", "monday")
    (memory,) = [each for each in stated["memories_created"] if each["memory_type"] == "semantic"]
    number = memory["memory_id"].partition(":")[2]
    assert tenant.api().get(f"/memories/{number}")["status"] == "invalidated"
    assert tenant.memories() == []

    (logged,) = tenant.api().all("/conflicts", "conflicts")
    assert (logged["type"], logged["entity"], logged["predicate"]) == ("memory_vs_db", GAI, "payment_terms")
    assert (logged["status"], logged["strategy"]) == ("resolved", "trust_db")
    sides = logged["data"]
    assert (sides["memory"]["value"], sides["memory"]["memory_id"]) == ("NET30", number)
    assert (sides["db_source"]["table"], sides["db_source"]["value"]) == ("domain.customers", "NET15")
    assert logged["outcome"]["rationale"] == "Domain database is authoritative for payment terms"
    listed = mneme.command("conflicts", "list", "--tenant", tenant.name)
    assert listed.returncode == 0, listed.stderr
    assert (
        f'{logged["id"]}  resolved  {WHO}  {GAI}  payment_terms: "NET30" (memory)'
        ' against "NET15" (domain.customers.payment_terms)'
    ) in listed.stdout

    asked = tenant.chat("What are Gai Media's payment terms?", "tuesday")
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    prompt = prompt_of(upstream.requests[-1])
    assert CUSTOMER in prompt
    assert (
        "Conflict: Gai Media Entertainment, payment terms: the company's records say NET15"
        f" (authoritative since {today}, read {today}); a memory of {today} said NET30"
    ) in prompt
    assert prompt.count("NET30") == 1, "what lost is told as the conflict alone"
    assert queried(asked) == [("customer", None, 1)], "who asks about payment terms asks for no payments"
    (clash,) = asked["conflicts"]
    assert (clash["id"], clash["stands"], clash["strategy"]) == (logged["id"], "domain", "trust_db")
    assert (clash["memory"]["memory_id"], clash["memory"]["value"]) == (number, "NET30")
    assert clash["db_source"]["value"] == "NET15"
    assert clash["since"] is not None
    (explained,) = tenant.explained(asked["metadata"]["call_id"])["conflicts"]
    assert explained == clash, "one explanation, told twice"


async def test_what_was_said_after_the_row_was_changed_stands_where_the_recent_is_trusted(
    mneme: MnemeServer, upstream: ScriptedUpstream, sample: SampleDomain, tmp_path: Path
) -> None:
    """`trust_recent` goes by the column that `changed` names: said later, the memory stands; changed later, the row."""
    file = tmp_path / "recent.yaml"
    text = ONTOLOGY_YAML.replace("payment_terms: trust_db", "payment_terms: trust_recent")
    file.write_text(
        text.replace(
            "    title: name\n    identifier: '[a-z]",
            "    title: name\n    changed: created_at\n    identifier: '[a-z]",
        )
    )
    tenant = Tenant(mneme, "recent", str(file))
    tenant.chat("Remember, Delta Logistics' payment terms are NET30", "one")
    assert tenant.api().all("/conflicts", "conflicts") == [], "the row says nothing of it"
    tenant.chat("Remember, Gai Media's payment terms are NET30", "one")
    (logged,) = tenant.api().all("/conflicts", "conflicts")
    assert (logged["strategy"], logged["outcome"]["action"]) == ("trust_recent", "keep_memory")
    tenant.chat("What are Gai Media's payment terms?", "two")
    assert "said NET30" not in prompt_of(upstream.requests[-1])
    assert "says NET30 (it stands" in prompt_of(upstream.requests[-1])

    later = datetime.now(UTC) + timedelta(minutes=5)
    async with connected(sample.owner) as owner:
        await owner.execute("UPDATE domain.customers SET created_at = $1 WHERE customer_id = 'gai_123'", later)
    asked = tenant.chat("What are Gai Media's payment terms?", "three")
    assert [each["stands"] for each in asked["conflicts"]] == ["domain"]
    assert "the company's records say NET15 (authoritative" in prompt_of(upstream.requests[-1])


# --- "No, Thursday now" -------------------------------------------------------------------------------------------------


async def test_no_thursday_now(mneme: MnemeServer, upstream: ScriptedUpstream, module_database: str) -> None:
    """The seed's active validation: in doubt after a hundred days, put to the user by the model, and answered."""
    tenant = Tenant(mneme, "asked")
    tenant.chat("Remember, Gai Media prefers Friday deliveries", "then")
    (memory,) = tenant.memories()
    assert (memory["subject"], memory["predicate"], memory["object"]) == (GAI, "delivery_day_preference", "Friday")
    async with connected(module_database) as admin:
        at = datetime.now(UTC) - timedelta(days=100)
        ages = {"created_at": at, "last_validated_at": at, "stated_at": at}
        await set_memory(admin, memory["id"], confidence=0.85, **ages)
    done = mneme.command("sweep", "aging")
    assert done.returncode == 0, done.stderr

    asked = tenant.chat("When does Gai Media want its deliveries?", "now")
    assert "Gai Media prefers Friday deliveries”; is that still right?" in asked["response"]["content"]
    answered = tenant.chat("No, Thursday now", "now")
    assert [each["summary"] for each in answered["memories_created"] if each["memory_type"] == "episodic"] == [
        "User corrected: No, Thursday now"
    ]
    (new,) = tenant.memories()
    assert new["text"] == "Gai Media prefers Thursday deliveries"
    assert (new["subject"], new["object"], new["confidence"]) == (GAI, "Thursday", pytest.approx(0.85))
    old = tenant.api().get(f"/memories/{memory['id']}")
    assert (old["status"], old["superseded_by"]) == ("superseded", new["id"])
    tenant.chat("On which day do we deliver to Gai Media?", "later")
    prompt = prompt_of(upstream.requests[-1])
    assert "Gai Media prefers Thursday deliveries" in prompt
    assert "Remember, Gai Media prefers Friday deliveries" not in prompt


def test_they_prefer_thursday_now(mneme: MnemeServer, upstream: ScriptedUpstream) -> None:
    """A pronoun, followed back to what was named last."""
    tenant = Tenant(mneme, "they")
    tenant.chat("Remember, Gai Media prefers Friday deliveries", "then")
    (old,) = tenant.memories()
    tenant.chat("When does Gai Media want its deliveries?", "now")
    said = tenant.chat("They prefer Thursday now", "now")
    (they,) = said["entities_resolved"]
    assert (they["mention"], they["canonical_id"], they["method"]) == ("They", GAI, "coreference")
    assert 0 < they["confidence"] <= 0.6
    (new,) = tenant.memories()
    assert (new["subject"], new["predicate"], new["object"]) == (GAI, "delivery_day_preference", "Thursday")
    assert tenant.api().get(f"/memories/{old['id']}")["superseded_by"] == new["id"]
    tenant.chat("On which day do we deliver to Gai Media?", "later")
    prompt = prompt_of(upstream.requests[-1])
    assert "Thursday" in prompt
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    assert (
        f"Conflict: Gai Media Entertainment, delivery day preference: a memory of {today} says Thursday"
        f" (it stands since {today}); one of {today} said Friday"
    ) in prompt
    assert prompt.count("Friday") == 1


# --- "Gai" --------------------------------------------------------------------------------------------------------------


def test_what_is_unclear_is_asked_and_the_choice_is_that_users(mneme: MnemeServer, upstream: ScriptedUpstream) -> None:
    tenant = Tenant(mneme, "unclear")
    asked = tenant.chat("What about Gai?", "monday")
    (gai,) = asked["entities_resolved"]
    assert gai["requires_disambiguation"] is True
    assert gai["canonical_id"] is None
    assert [each["canonical_name"] for each in gai["alternatives"]] == ["Gai Media Entertainment", "Gail Industries"]
    assert asked["augmentation"]["domain_queries"] == [], "nothing is guessed"
    unclear = [each for each in prompt_of(upstream.requests[-1]).splitlines() if each.startswith("Unclear")]
    assert len(unclear) == 1
    assert "Gail Industries" in unclear[0]
    assert "Gai Media Entertainment" in unclear[0]

    chosen = tenant.chat("Gai Media", "monday")
    assert GAI in [each["canonical_id"] for each in chosen["entities_resolved"]]
    again = tenant.chat("What are the payment terms of Gai?", "tuesday")
    (gai,) = again["entities_resolved"]
    assert (gai["canonical_id"], gai["method"], gai["confidence"]) == (GAI, "known_alias", pytest.approx(0.85, abs=0.1))
    assert CUSTOMER in prompt_of(upstream.requests[-1])
    (other,) = tenant.chat("What are the payment terms of Gai?", "monday", who="somebody else")["entities_resolved"]
    assert other["requires_disambiguation"] is True, "a choice is the user's own"


# --- several users of one tenant ------------------------------------------------------------------------------------------


def say(tenant: Tenant, speaker: str, message: str, session: str) -> dict[str, Any]:
    """Send a user's message; return the resolved entities, the queries to the domain and the conflicts."""
    answer = tenant.chat(message, session, who=speaker)
    conflicts = [(clash["predicate"], clash["stands"]) for clash in answer["conflicts"] or ()]
    return {
        "entities": [found | {"confidence": round(found["confidence"], 4)} for found in answer["entities_resolved"]],
        "queries": answer["augmentation"]["domain_queries"],
        "conflicts": conflicts,
    }


def test_every_example_is_as_if_its_user_were_alone(mneme: MnemeServer) -> None:
    alone = {
        name: [say(tenant, "ana", *line) for line in talk]
        for name, talk in EXAMPLES.items()
        for tenant in [Tenant(mneme, f"alone {name}")]
    }
    assert alone["unclear"][0]["entities"][0]["requires_disambiguation"] is True
    assert [found["canonical_id"] for found in alone["unclear"][2]["entities"]] == [GAI]
    assert [found["method"] for found in alone["spelling"][1]["entities"]] == ["fuzzy"]

    ordered = Tenant(mneme, "in order")
    for place, names in (("forth", list(EXAMPLES)), ("back", list(reversed(EXAMPLES)))):
        for name in names:
            outcomes = [say(ordered, f"{place} {name}", *line) for line in EXAMPLES[name]]
            assert outcomes == alone[name], (place, name)

    turns = Tenant(mneme, "in turns")
    for n in range(max(map(len, EXAMPLES.values()))):
        for speaker in ("ana", "ben"):
            for name, talk in EXAMPLES.items():
                if n < len(talk):
                    assert say(turns, f"{speaker} {name}", *talk[n]) == alone[name][n], (speaker, name, n)


# --- the profile --------------------------------------------------------------------------------------------------------


def test_three_sessions_by_three_names_make_one_profile(mneme: MnemeServer, upstream: ScriptedUpstream) -> None:
    tenant = Tenant(mneme, "profile")
    tenant.chat("Remember, Gai Media prefers Friday deliveries", "one")
    tenant.chat("Remember, Gai Media Entertainment uses road cases for everything it rents out", "two")
    tenant.chat("Gai has a new buyer, note that her name is Ines", "three")
    for each in ("one", "two", "three"):
        tenant.api().post(f"/sessions/{each}/end", {})
        tenant.api().wait_for_quiet()
    summaries = [each for each in tenant.memories() if each["kind"] == "summary"]
    (profile,) = [each for each in summaries if each["details"].get("scope_type") == "entity"]
    assert profile["details"]["scope_identifier"] == GAI
    assert profile["details"]["source_data"]["sessions"] == 3
    assert profile["details"]["key_facts"]["entity_profile"]["facts"]["delivery_day_preference"]["value"] == "Friday"
    assert profile["text"].startswith("Gai Media Entertainment: ")
    assert GAI in profile["entity_ids"]
    told = tenant.chat("What do we know about Gai Media?", "four")
    assert f"summary:{profile['id']}" in [each["memory_id"] for each in told["augmentation"]["retrieved_memories"]]
    assert profile["text"] in prompt_of(upstream.requests[-1])
    assert json.dumps(told["augmentation"]).count("Friday") >= 1
