from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import orjson

from app.context.audit import fill, quoted_memories, recalled, told_known
from app.context.facts_section import Learned, naming, tellings
from app.context.inputs import KnownThen
from app.context.question import understand
from app.context.resolution import Clash, Known
from tests.support.knowledge import GAI, RESOLVED, UNCLEAR, clash, fact, query

NOW = datetime(2024, 10, 15, 12, tzinfo=UTC)
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
    learned = Learned(known, clashes)
    asked = naming(understand("What did Gai Media order last month?", NOW), known.resolutions)
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


def test_what_was_known_comes_back() -> None:
    then, lost = recalled(stored(), KnownThen(KNOWN.related), VALUES)
    assert lost == 0
    assert then._known == KNOWN._replace(resolutions=tuple(each._replace(start=0) for each in KNOWN.resolutions))


def test_what_was_forgotten_since_does_not_come_back() -> None:
    then, lost = recalled(stored(), KnownThen(), {UUID(int=5): "NET30"})
    assert lost == 1
    assert [each.memory_id for each in then._known.clashes] == [UUID(int=5)]


def test_of_facts_beyond_the_budget_the_number_is_kept() -> None:
    """As many as fill it, so that as of then it is shared out in the same way."""
    many = tuple(fact("five words and no more", f"erp/{n}") for n in range(10))
    told = stored(Known((RESOLVED,), facts=many), (), budget=17)
    assert len(told["domain"]["facts"]) == 3
    assert told["domain"]["omitted"] == 7
