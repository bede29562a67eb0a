"""JSON by its shape."""

from __future__ import annotations

import json

from app.features.paging.shrink import FIRST_ELEMENT, FURTHER_ELEMENT, NAME, SHAPE, SINGLE, json_outline, parse, shrink
from app.features.paging.values import ContentKind
from tests.unit.paging.made import COUNT

VALUE = {"page": 1, "orders": [{"id": i, "status": ["open", "paid"][i % 2], "total": i * 1.5} for i in range(40)]}


def test_shape_values_and_names() -> None:
    made = json_outline(json.dumps(VALUE))
    assert made is not None
    found = {line.text: line.group for line in made.lines}
    assert found["orders: list of 40"] == SHAPE
    assert found["orders[].total: number 0–58.5"] == SHAPE
    assert found["orders[].status: text: open (20), paid (20)"] == SHAPE
    assert found["page = 1"] == SINGLE
    assert found["orders[3]: id = 3"] == NAME
    assert found["orders[0].status = open"] == FIRST_ELEMENT
    assert found["orders[7].total = 10.5"] == FURTHER_ELEMENT


def test_both_levels_know_the_fields() -> None:
    made = shrink(json.dumps(VALUE), ContentKind.JSON, COUNT)
    assert "orders[].status" in made.compact.text
    assert made.detailed.can_answer[0].startswith("what fields it has")
    assert "you need the values of an element that is not shown" in made.fault_when


def test_lines_of_json_are_a_list() -> None:
    assert parse('{"a": 1}\n{"a": 2}\n') == [{"a": 1}, {"a": 2}]


def test_what_is_none() -> None:
    assert parse("[1, 2") is None
    assert parse("hello") is None
    assert parse('"text"') is None
    assert parse("[" * 100_000) is None
    assert json_outline("7") is None


def test_strange_values() -> None:
    made = json_outline('[null, true, "", {}, [], {"": {"": 1e400}}]'.replace("1e400", "12345678901234567890"))
    assert made is not None
    assert any("[5]" in line.text for line in made.lines)


def test_deep_but_legal() -> None:
    deep = "[" * 500 + "1" + "]" * 500
    made = json_outline(deep)
    assert made is not None
