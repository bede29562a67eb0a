"""What an account has only sometimes: names, records, conflicts, cards, questions, paging."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from app.context.resolution import DomainQuery
from app.features.ui import call_prompt
from app.features.ui.rendering import environment

HOSTILE = "<b onclick=x>"
MEMORY, OTHER = str(UUID(int=1)), str(UUID(int=2))
QUERY = DomainQuery(
    domain="erp",
    query_type="entity",
    entity="customer:1",
    table="customers",
    filters={"name": HOSTILE},
    result_count=2,
    took_ms=1.5,
    error=None,
)
CONFLICT = {
    "id": OTHER,
    "conflict_type": "memory_vs_db",
    "entity_id": "customer:1",
    "entity_name": HOSTILE,
    "predicate": "payment_terms",
    "memory": {"memory_id": MEMORY, "value": "NET30", "confidence": 0.8, "said_at": "2024-08-01T00:00:00+00:00"},
    "db_source": {
        "domain": "erp",
        "table": "customers",
        "field": "terms",
        "value": "NET15",
        "queried_at": "2024-10-15T00:00:00",
    },
    "other": None,
    "strategy": "trust_db",
    "stands": "db",
    "since": None,
}
CONTEXT: dict[str, Any] = {
    "sections": {
        "facts": {
            "budget": 55,
            "tokens": 5,
            "chosen": [OTHER],
            "dropped": [[OTHER, "outranked", MEMORY]],
            "visible": 2,
        },
        "questions": {"budget": 80, "tokens": 30, "asked": [MEMORY], "dropped": [[OTHER, "over_budget"]]},
        "cards": {"budget": 200, "tokens": 30, "chosen": [OTHER], "dropped": [], "visible": [MEMORY]},
    },
    "entities": [
        {
            "mention": HOSTILE,
            "canonical_id": "customer:1",
            "canonical_name": "Gai Media",
            "type": "customer",
            "confidence": 0.9,
            "method": "exact",
            "requires_disambiguation": True,
            "alternatives": [{"canonical_id": "x", "canonical_name": "Gail", "type": "customer", "confidence": 0.4}],
        },
        {
            "mention": "them",
            "canonical_id": None,
            "canonical_name": None,
            "type": None,
            "confidence": 0.0,
            "method": "none",
            "requires_disambiguation": False,
            "alternatives": [],
        },
    ],
    "domain": {
        "status": "degraded",
        "reason": "domain",
        "queries": [QUERY._asdict()],
        "facts": [
            {"subject": "s", "entity": "e", "query_type": "entity", "text": HOSTILE, "chosen": True, "tokens": 9},
            {
                "subject": "s",
                "entity": "e",
                "query_type": "entity",
                "text": "old",
                "chosen": False,
                "tokens": 0,
                "visible": True,
            },
        ],
    },
    "conflicts": [
        CONFLICT,
        {key: value for key, value in CONFLICT.items() if key != "id"}
        | {
            "memory": {"memory_id": MEMORY, "value": None},
            "db_source": None,
            "other": {"memory_id": OTHER, "value": "x"},
        },
    ],
    "paging": {
        "turn": 1,
        "budget": 8000,
        "zone": "critical",
        "tokens": 9000,
        "shown_tokens": 300,
        "tools": None,
        "declined": "tool-choice",
        "objects": {"L0": 1, "L1": 0, "L2": 0, "L3": 2, "L4": 0},
        "shown": [],
        "exchanges": 0,
        "transitions": [{"object_id": MEMORY, "from_fidelity": 0, "to_fidelity": 3, "trigger": "pressure"}],
    },
}


def rendered(context: dict[str, Any], user: str | None = "ana") -> str:
    call = {"id": OTHER, "user": user}
    values = {
        "context": context,
        "call": call,
        "explained": {"ids": {MEMORY: 30}},
        "words": call_prompt,
        "csrf": "",
        "here": "",
    }
    return environment().get_template("call_known.html").render(values)


def test_all_of_it_is_told() -> None:
    html = rendered(CONTEXT)
    assert HOSTILE not in html
    for told in (
        "1 fact said, 2 said in earlier blocks, 1 left out",
        "Outranked",
        f"from=30#i-{MEMORY}",
        "1 memory in doubt was asked about; 1 another time",
        "1 card told, 1 told before",
        "unclear",
        "Gail (40 %)",
        "is not known",
        "2 rows, 1.5 ms",
        "the business&#39;s own database did not answer in time",
        "there already",
        "payment terms",
        "NET15",
        f'href="/ui/conflicts/{OTHER}"',
        "(forgotten)",
        "9,000 tokens shown as 300",
        "2 objects: a line",
        "whole → a line (pressure)",
        "No tools were offered: tool choice.",
    ):
        assert told in html, told


def test_what_is_not_there_takes_no_room() -> None:
    empty = {"sections": {"memories": {}}, "domain": {"status": "none", "reason": None, "queries": [], "facts": []}}
    assert rendered(empty).strip() == ""


def test_a_call_that_was_not_paged_says_why() -> None:
    assert "Not paged: calls of this dialect are not paged." in rendered(
        {"sections": {}, "paging": {"reason": "dialect"}}, None
    )


def test_paging_as_it_is_stored_which_nobody_explains_is_left_out() -> None:
    stored = {"zone": "normal", "tokens": 9, "shown_tokens": 3, "budget": 9, "at": [1, 0, 0, 0, 0], "transitions": []}
    shown: dict[str, Any] = {
        "shown": {"ids": "", "levels": ""},
        "exchanges": [],
        "tools": None,
        "declined": None,
        "turn": 1,
    }
    assert rendered({"sections": {}, "paging": stored | shown}).strip() == ""
