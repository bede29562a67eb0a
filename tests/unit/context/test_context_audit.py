"""The compile explained: made, read back, and what was known of things."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import orjson

from app.context.audit import (
    MAX_ITEMS,
    Explained,
    expand,
    explain,
    fill,
    quoted_memories,
    shown_texts,
    told_known,
    used_memories,
)
from app.context.facts_section import FactsFound, naming, tellings
from app.context.pack import Packed, PlainMeter, efficiency, pack
from app.context.question import understand
from app.context.resolution import Clash, Known
from app.context.score import PREFILL, QuerySignals, score
from tests.support.context_samples import NOW, memory, message, scored, source
from tests.support.knowledge import GAI, RESOLVED, UNCLEAR, clash, fact, query

ITEMS = [
    memory(
        1,
        "Likes tea.",
        similarity=0.91234567,
        provenance=(source(7), source(8)),
        channels=frozenset({"vector", "text"}),
    ),
    message(3, "A long story.", similarity=0.5, token_count=500),
    memory(4, "Likes tea.", similarity=0.1, confidence=0.1),
    memory(5, similarity=0.2, provenance=(source(9),)),
]


TOLD: dict[str, Any] = {
    "status": "ok",
    "reason": None,
    "budget": {"window": 8192, "available": 3000, "memory": 100},
    "task": "knowledge_intensive",
    "strategy": "prefill",
    "placement": "tail",
    "rebased": None,
    "live_blocks": 0,
    "tokens": 10,
    "sections": {},
    "widened": [],
    "history": {"source": "client", "messages": 12, "tokens": 900, "dropped": 0, "first_kept": 0, "summary": False},
}


def explained(packed: Packed | None = None, most: int = MAX_ITEMS, **more: Any) -> Explained:
    if packed is None:
        packed = pack(score(ITEMS, QuerySignals(), PREFILL, NOW), 100, PlainMeter(), visible={UUID(int=9)})
    return explain(packed, efficiency(packed.chosen, packed.eligible, 100), TOLD | more, most)


def test_everything_considered_is_explained() -> None:
    stored = orjson.loads(orjson.dumps(explained()))
    shown = expand(stored, {str(UUID(int=1)): "Likes tea."})
    by_id = {UUID(each["id"]).int: each for each in shown["items"]}
    assert {number: each["reason"] for number, each in by_id.items()} == {
        1: "chosen",
        3: "over_budget",
        4: "duplicate",
        5: "visible",
    }
    first = by_id[1]
    assert first["chosen"] is True
    assert first["text"] == "Likes tea."
    assert first["signals"]["similarity"] == 0.9123
    assert set(first["signals"]) == set(PREFILL.weights)
    assert first["legs"] == ["vector", "text"]
    assert first["provenance"] == [
        {"session": "session", "message_id": str(UUID(int=7)), "turn_index": 7},
        {"session": "session", "message_id": str(UUID(int=8)), "turn_index": 8},
    ]
    assert (first["kind"], first["tier"], first["token_count"], first["source"]) == ("fact", 1, 10, "memory")
    assert by_id[3]["provenance"] == [{"session": str(UUID(int=1)), "message_id": str(UUID(int=3)), "turn_index": 3}]
    assert (by_id[3]["chosen"], "text" in by_id[3]) == (False, False)
    assert by_id[4]["because_of"] == str(UUID(int=1))


def test_texts_are_not_stored() -> None:
    stored = orjson.dumps(explained()).decode()
    assert "Likes tea" not in stored
    assert "long story" not in stored


def test_what_is_beyond_the_limit_is_counted() -> None:
    stored = explained(most=2)
    assert len(stored["items"]["id"]) == 2
    assert stored["omitted"] == 2
    assert sum(stored["counts"].values()) == 4
    assert expand(stored)["omitted"] == 2
    # The chosen ones are never cut off.
    assert len(explained(most=0)["items"]["id"]) == 1


def test_texts_to_look_up() -> None:
    wanted = shown_texts(explained())
    assert wanted["message"] == [str(UUID(int=3))]
    assert set(wanted["memory"]) == {str(UUID(int=each)) for each in (1, 4, 5)}


def test_a_compile_that_found_nothing() -> None:
    empty = explained(pack([], 100, PlainMeter()), status="degraded", reason="retrieval_timeout")
    shown = expand(orjson.loads(orjson.dumps(empty)))
    assert shown["items"] == []
    assert (shown["status"], shown["reason"]) == ("degraded", "retrieval_timeout")


def test_memories_that_were_of_use() -> None:
    assert used_memories(explained()) == [
        (UUID(int=1), round(score(ITEMS, QuerySignals(), PREFILL, NOW)[0].score, 4)),
        (UUID(int=4), 0.2384),  # its message stood for it
    ]
    told = {"facts": {"memories": [UUID(int=4), UUID(int=77), None]}}
    spoken = dict(used_memories(explained(sections=told)))
    assert spoken[UUID(int=77)] == 1.0, "a fact's line stood for it"
    assert used_memories({"sections": told}) == [(UUID(int=4), 1.0), (UUID(int=77), 1.0)]
    assert used_memories({}) == []
    assert used_memories(explained(pack([], 1000, PlainMeter()))) == [], "a user of whom nothing is known yet"


def test_relevance_is_a_part_of_the_best_where_scores_exceed_one() -> None:
    """U(m) of seed 000 §5.3 takes a mean relevance of 0..1; `auto`'s weights do not sum to 1."""

    def used(*scores: float) -> list[float]:
        items = [scored(memory(n), each) for n, each in enumerate(scores, 1)]
        packed = pack(items, 1000, PlainMeter(), order="score")
        return [relevance for _, relevance in used_memories(explained(packed))]

    assert used(1.6, 0.8, 0.4) == [1.0, 0.5, 0.25]
    assert used(0.8, 0.4) == [0.8, 0.4], "a score within 0..1 is the relevance"
    assert used(0.5, -0.3) == [0.5, 0.0], "a long text's price is no harm done"


def test_a_passage_says_which_part_of_its_message_it_is() -> None:
    passage = message(1, "a part", kind="passage", span=(10, 16), whole_tokens=300)
    packed = pack([scored(passage, 0.5)], 100, PlainMeter())
    stored = orjson.loads(orjson.dumps(explained(packed)))
    (item,) = expand(stored)["items"]
    assert item["kind"] == "passage"
    assert item["provenance"] == [
        {"session": str(UUID(int=1)), "message_id": str(UUID(int=1)), "turn_index": 1, "span": [10, 16]}
    ]
    del stored["items"]["spans"]  # as it was stored before there were passages
    assert "span" not in expand(stored)["items"][0]["provenance"][0]


# --- what was known of things -----------------------------------------------------------------------------------------

THEN = datetime(2024, 10, 15, 12, tzinfo=UTC)
OTHER = clash(
    6, conflict_type="memory_vs_memory", row=None, stands="other", other_id=UUID(int=7), other_value="NET60",
    other_at=datetime(2024, 9, 2, tzinfo=UTC), conflict_id=UUID(int=99), since=datetime(2024, 9, 2, tzinfo=UTC),
)  # fmt: skip
KNOWN = Known(
    resolutions=(RESOLVED, UNCLEAR),
    related=frozenset({"sales_order:SO-1045"}),
    facts=(fact(), fact("Orders: 2", "erp/customer:gai_123/sales_order")),
    queries=(query(), query("timeout")),
    clashes=(clash(), OTHER),
    reason="domain",
)
VALUES = {UUID(int=5): "NET30", UUID(int=6): "NET30", UUID(int=7): "NET60"}


def count(text: str) -> int:
    return len(text.split())


def stored(
    known: Known = KNOWN,
    clashes: tuple[Clash, ...] = KNOWN.clashes,
    budget: int = 100,
    chosen: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """The explanation as it comes back from the database."""
    learned = FactsFound(known, clashes)
    asked = naming(understand("What did Gai Media order last month?", THEN), known.resolutions)
    told = told_known(asked, learned, tellings(learned, ()), chosen or {}, budget, count)
    found: dict[str, Any] = orjson.loads(orjson.dumps(told, default=str))
    return found


def test_the_shape_of_the_explanation() -> None:
    """Seed 004's own example: which mention is which thing, by which stage, and what was asked of the database."""
    told = stored(chosen={"erp/customer:gai_123": 9})
    assert told["entities"][0] == {
        "mention": "Gai Media",
        "canonical_id": "customer:gai_123",
        "canonical_name": "Gai Media Entertainment",
        "type": "customer",
        "confidence": 0.95,
        "method": "known_alias",
        "requires_disambiguation": False,
        "alternatives": [],
    }
    assert [each["canonical_id"] for each in told["entities"][1]["alternatives"]] == [GAI.id, "customer:gail_7"]
    assert told["query"] == {
        "category": "factual",
        "entity_focused": True,
        "time_focused": True,
        "procedural": False,
        "requires_domain_db": True,
        "strategy": "factual_entity_focused",
        "temporal_scope": {"start": "2024-09-01", "end": "2024-09-30"},
    }
    assert (told["domain"]["status"], told["domain"]["reason"]) == ("degraded", "domain")
    assert told["domain"]["queries"][1]["error"] == "timeout"
    assert told["domain"]["queries"][0]["filters"] == {"customer_id": "gai_123"}
    assert [(each["subject"], each["chosen"], each["tokens"]) for each in told["domain"]["facts"]] == [
        ("erp/customer:gai_123", True, 9),
        ("erp/customer:gai_123/sales_order", False, 0),
    ]
    first, second = told["conflicts"]
    assert first["db_source"] == {
        "domain": "erp",
        "table": "domain.customers",
        "field": "payment_terms",
        "value": "NET15",
        "queried_at": "2024-10-15T10:00:00+00:00",
    }
    assert (first["strategy"], first["stands"], "id" in first) == ("trust_db", "domain", False)
    assert (second["id"], second["db_source"]) == (str(UUID(int=99)), None)


def test_nothing_asked_is_none() -> None:
    told = stored(Known(resolutions=(UNCLEAR,)), ())
    assert told["domain"] == {"status": "none", "reason": None, "queries": [], "facts": []}
    assert told["query"]["requires_domain_db"] is False
    assert stored(Known(resolutions=(UNCLEAR,), queries=(query(),)), ())["domain"]["status"] == "ok"


def test_what_memories_said_is_joined_when_it_is_shown() -> None:
    told = stored()
    assert "NET30" not in json.dumps(told)
    assert quoted_memories(told) == [UUID(int=5), UUID(int=6), UUID(int=7)]
    fill(told, {UUID(int=5): "NET30"})
    assert told["conflicts"][0]["memory"]["value"] == "NET30"
    assert told["conflicts"][1]["other"]["value"] is None  # forgotten since
    assert quoted_memories({}) == []


def test_of_facts_beyond_the_budget_the_number_is_kept() -> None:
    many = tuple(fact("five words and no more", f"erp/{n}") for n in range(10))
    told = stored(Known((RESOLVED,), facts=many), (), budget=17)
    assert len(told["domain"]["facts"]) == 3
    assert told["domain"]["omitted"] == 7
