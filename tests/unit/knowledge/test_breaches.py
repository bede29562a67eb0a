"""Rows that are not as the ontology says: by value, and by number."""

from __future__ import annotations

from typing import Any

from app.context.resolution import Entity
from app.features.knowledge.domain_sql import DomainColumn, Table, TraversalQuery
from app.features.knowledge.ontology import EntityType, Relation, entity_type
from app.features.knowledge.ontology_yaml import read
from app.features.knowledge.render_facts import MAX_FINDINGS, FactRow, breach, findings
from app.features.knowledge.schema import check
from tests.support.tables import each_of

ORDER = EntityType("order", "erp", "orders", "id", "id", "{id}", rules={"total": {"required": True, "min": "0"}})
ACME = Entity("customer:acme", "customer", "Acme")


@each_of(
    ("rule", "value", "told"),
    [
        ({"required": True}, None, "is missing"),
        ({"required": False, "min": "1"}, None, None),
        ({"min": "0"}, "-0.5", "is -0.5, less than 0"),
        ({"max": "100"}, "1e3", "is 1e3, more than 100"),
        ({"min": "0", "max": "100"}, "100", None),
        ({"min": "0"}, "ten", "is ten, no number"),
        ({"min": "0"}, "NaN", "is NaN, no number"),
        ({"one_of": ["a", "b"]}, "c", "is c, none of a, b"),
        ({"one_of": ["a", "b"]}, "b", None),
    ],
)
def test_what_a_value_must_be(rule: dict[str, Any], value: str | None, told: str | None) -> None:
    assert breach(rule, value) == told


def test_a_second_row_where_there_may_be_one() -> None:
    rows = [
        FactRow("SO-1", "acme", {"total": "1"}),
        FactRow("SO-2", "acme", {"total": "2"}),
        FactRow("SO-3", "b", {"total": "3"}),
    ]
    for cardinality, backwards, wrong in (
        ("many_to_one", False, True), ("one_to_one", False, True), ("one_to_many", True, True),
        ("one_to_many", False, False), ("many_to_many", False, False),
    ):  # fmt: skip
        relation = Relation("erp", "customer", "has", "order", cardinality, "", (("id", "customer"),))  # type: ignore[arg-type]
        found = findings(TraversalQuery(ORDER, ACME, relation, backwards), rows, ("total",))
        assert found == ((f"has ({cardinality}): acme has 2 of order",) if wrong else ())


def test_a_column_that_is_gone_breaks_no_rule_and_what_is_told_is_bounded() -> None:
    rows = [FactRow(f"SO-{n}", None, {"total": None}) for n in range(40)]
    assert findings(TraversalQuery(ORDER, ACME), rows, ()) == ()
    assert len(findings(TraversalQuery(ORDER, ACME), rows, ("total",))) == MAX_FINDINGS


FILE = """
domain: erp
types:
  order:
    table: orders
    key: id
    rules:
      total: {required: true, min: 0, max: 100}
      status: {one_of: [new, done]}
"""


def test_rules_are_read_kept_and_held_against_the_table() -> None:
    draft = read(FILE).draft
    assert draft is not None
    kind = draft.types["order"]
    assert kind.rules == {"total": {"required": True, "min": "0", "max": "100"}, "status": {"one_of": ["new", "done"]}}
    assert entity_type(kind.spec()) == kind
    text = {name: DomainColumn(name, "text") for name in ("id", "total")}
    told = {each.message for each in check(draft, {"orders": Table(text, False, frozenset({"id"}))})}
    assert told == {
        "total is of type text: min and max are of numbers",
        "orders has no column status that the domain's role may read",
    }


@each_of(
    ("rule", "told"),
    [
        ("{min: much}", "min is a number"),
        ("{min: 2, max: 1}", "min 2 is more than max 1"),
        ("{}", "say required, min, max or one_of"),
        ("{least: 1}", "least"),
        ("{required: maybe}", "true or false"),
    ],
)
def test_rules_that_are_none_are_refused_with_their_line(rule: str, told: str) -> None:
    reading = read(FILE.replace("{one_of: [new, done]}", rule))
    assert reading.draft is None
    assert any(told in each.message and each.line == 9 for each in reading.errors), reading.errors
