"""The answer of POST /api/v1/chat, from an explanation: the worked example of seed 004 and what it leaves out."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args
from uuid import UUID

import pytest

from app.context.candidates import Candidate
from app.features.chat import (
    MEMORY_TYPES,
    ChatOut,
    Made,
    MadeMemory,
    TurnMessages,
    domain_queries,
    entities_resolved,
    first_choice,
    memories_created,
    retrieved,
)
from app.store.kinds import MemoryType

ROOT = Path(__file__).parents[3]
AUGUST = datetime(2024, 8, 1, 10, tzinfo=UTC)


def candidate(number: int, kind: str = "fact", **given: Any) -> Candidate:
    raw = kind in ("message", "passage", "turn")
    whole = dict[str, Any](
        id=UUID(int=number), source="message" if raw else "memory", kind=kind, text=f"text {number}", role=None,
        speaker=None, session_id=None, turn_index=None, tier=None, created_at=AUGUST, last_accessed_at=None, token_count=5,
        confidence=0.85, provenance_type=0, importance=0.5, access_count=0, content_hash=b"", channels=frozenset(),
        similarity=None,
    )  # fmt: skip
    return Candidate(**whole | given)


def item(number: int, score: float, *, chosen: bool = True, span: list[int] | None = None) -> dict[str, Any]:
    source: dict[str, Any] = {"message_id": str(UUID(int=number))}
    return {
        "id": str(UUID(int=number)),
        "score": score,
        "chosen": chosen,
        "provenance": [source | ({"span": span} if span else {})],
    }


def test_the_worked_example_of_seed_004() -> None:
    """Stage 7: three memories, a query of orders, one alias, an episode."""
    explained = {
        "items": [item(456, 0.89), item(789, 0.82), item(12, 0.78), item(13, 0.7, chosen=False)],
        "entities": [
            {
                "mention": "Gai Media",
                "canonical_id": "customer:gai_123",
                "canonical_name": "Gai Media Entertainment",
                "type": "customer",
                "confidence": 0.95,
                "method": "known_alias",
                "requires_disambiguation": False,
                "alternatives": [],
            }
        ],
        "domain": {
            "status": "ok",
            "reason": None,
            "facts": [],
            "queries": [
                {
                    "domain": "erp",
                    "query_type": "orders",
                    "entity": "customer:gai_123",
                    "table": "domain.sales_orders",
                    "filters": {"date_range": ["2024-09-01", "2024-09-30"]},
                    "result_count": 2,
                    "took_ms": 4.0,
                }
            ],
        },
    }
    considered = [
        candidate(456, text="Gai Media: delivery_preference = Friday"),
        candidate(789, "message", text="Discussed Gai Media's September orders"),
        candidate(12, "entity_profile", text="Gai Media Entertainment customer profile"),
        candidate(13),
    ]
    assert retrieved(explained, considered) == [
        {
            "memory_id": f"semantic:{UUID(int=456)}",
            "memory_type": "semantic",
            "summary": "Gai Media: delivery_preference = Friday",
            "relevance_score": 0.89,
            "confidence": 0.85,
            "created_at": AUGUST,
        },
        {
            "memory_id": f"episodic:{UUID(int=789)}",
            "memory_type": "episodic",
            "summary": "Discussed Gai Media's September orders",
            "relevance_score": 0.82,
            "created_at": AUGUST,
        },
        {
            "memory_id": f"summary:{UUID(int=12)}",
            "memory_type": "summary",
            "summary": "Gai Media Entertainment customer profile",
            "relevance_score": 0.78,
            "confidence": 0.85,
            "created_at": AUGUST,
        },
    ]
    assert domain_queries(explained) == [
        {
            "query_type": "orders",
            "entity": "customer:gai_123",
            "filters": {"date_range": ["2024-09-01", "2024-09-30"]},
            "result_count": 2,
        }
    ]
    assert entities_resolved(explained) == [
        {
            "mention": "Gai Media",
            "canonical_id": "customer:gai_123",
            "canonical_name": "Gai Media Entertainment",
            "confidence": 0.95,
            "method": "known_alias",
        }
    ]
    said = TurnMessages((UUID(int=1001), UUID(int=1002)), UUID(int=1001))
    question = "What did Gai Media order last month?"
    assert memories_created(question, said, Made("question", ())) == [
        {
            "memory_id": f"episodic:{UUID(int=1001)}",
            "memory_type": "episodic",
            "summary": "User asked: What did Gai Media order last month?",
        }
    ]


def test_without_knowledge_there_is_nothing_to_tell() -> None:
    assert retrieved({}, ()) == domain_queries({}) == entities_resolved({}) == []
    assert memories_created("Hi", None, None) == []


def test_scores_above_one_are_parts_of_the_best() -> None:
    explained = {"items": [item(1, 2.0), item(2, 1.0), item(3, -0.5)]}
    told = retrieved(explained, [candidate(1), candidate(2), candidate(3)])
    assert [each["relevance_score"] for each in told] == [1.0, 0.5, 0.0]


def test_two_passages_of_one_message_keep_their_own_words() -> None:
    explained = {"items": [item(1, 0.5, span=[0, 5]), item(1, 0.4, span=[6, 9])]}
    both = [candidate(1, "passage", text="first", span=(0, 5)), candidate(1, "passage", text="2nd", span=(6, 9))]
    assert [each["summary"] for each in retrieved(explained, both)] == ["first", "2nd"]


def test_who_may_be_meant_is_told_and_what_means_nothing_is_not() -> None:
    unsure = {
        "mention": "Gai",
        "canonical_id": None,
        "canonical_name": None,
        "type": None,
        "confidence": 0.0,
        "method": None,
        "requires_disambiguation": True,
        "alternatives": [{"canonical_id": "customer:a", "canonical_name": "Gai Media", "confidence": 0.82}],
    }
    nothing = {**unsure, "mention": "Nix", "requires_disambiguation": False, "alternatives": []}
    (told,) = entities_resolved({"entities": [unsure, nothing]})
    assert told["mention"] == "Gai"
    assert told["requires_disambiguation"] is True
    assert told["alternatives"] == unsure["alternatives"]


def test_a_query_without_an_answer_says_why() -> None:
    query = {"query_type": "orders", "entity": "customer:a", "filters": {}, "result_count": 0, "error": "timeout"}
    assert domain_queries({"domain": {"queries": [query]}})[0]["error"] == "timeout"


def test_memories_follow_their_episode() -> None:
    said = TurnMessages((UUID(int=1), UUID(int=2)), UUID(int=1))
    made = Made("statement", (MadeMemory(UUID(int=7), "preference", "Gai Media prefers Friday", 0.7),))
    told = memories_created("Remember,\n Gai Media  prefers Friday " + "x" * 300, said, made)
    assert [each["memory_id"] for each in told] == [f"episodic:{UUID(int=1)}", f"semantic:{UUID(int=7)}"]
    assert told[0]["summary"].startswith("User stated: Remember, Gai Media prefers Friday xx")
    assert told[0]["summary"].endswith("x…")
    assert memories_created("x", said, Made(None, made.memories)) == told[1:]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"model": "m", "choices": [{"message": {"role": "assistant", "content": "Hi"}}]}, ("Hi", "assistant", "m")),
        ({"choices": [{"message": {"content": None, "refusal": "No"}}]}, ("No", "assistant", "")),
        ({"choices": [{"message": {"role": 1, "content": [1]}}]}, (None, "assistant", "")),
    ],
)
def test_what_was_answered(document: object, expected: tuple[str | None, str, str]) -> None:
    found = first_choice(document)
    assert found is not None
    assert (found[0]["content"], found[0]["role"], found[1]) == expected


@pytest.mark.parametrize("document", [None, [], {}, {"choices": []}, {"choices": "x"}, {"choices": [{"message": "x"}]}])
def test_what_is_no_answer(document: object) -> None:
    assert first_choice(document) is None


def test_every_kind_is_of_a_type() -> None:
    """Those of the table, and raw text."""
    schema = (ROOT / "sql/schema/003_memory.sql").read_text()
    kinds = re.search(r"CHECK \(kind IN \(([^)]+)\)", schema)
    assert kinds is not None
    assert MEMORY_TYPES.keys() == {*re.findall(r"'(\w+)'", kinds[1]), "turn", "message", "passage"}
    assert set(MEMORY_TYPES.values()) == set(get_args(MemoryType))


def test_the_shape_is_the_seeds() -> None:
    assert list(ChatOut.model_fields) == [
        "response", "augmentation", "memories_created", "entities_resolved", "conflicts", "metadata",
    ]  # fmt: skip
