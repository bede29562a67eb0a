"""app/features/cards/store.py: which of a tool's result's values are cards."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.common import MAX_CARD_BYTES
from app.features.cards.store import MAX_RESULT_CHARS, MAX_TAKEN, cards_of
from app.sources import CardTool
from tests.support.tables import each_of

ONE = CardTool(type="chart")
LIST = CardTool(type="product_card", items="data.results", title="names.0")


def result(value: object) -> str:
    return orjson.dumps(value).decode()


@each_of(
    ("tool", "value", "data"),
    [
        (ONE, {"points": [1, 2]}, [{"points": [1, 2]}]),
        (ONE, [1, 2], [{"value": [1, 2]}]),
        (ONE, None, [{"value": None}]),
        (ONE, {"a\0": ["b\0"]}, [{"a\ufffd": ["b\ufffd"]}]),
        (
            LIST,
            {"data": {"results": [{"sku": 1, "names": ["Lamp"]}, {"sku": 2}, "three"]}},
            [{"title": "Lamp", "sku": 1, "names": ["Lamp"]}, {"sku": 2}, {"value": "three"}],
        ),
        (LIST, {"data": {"results": [{"title": "Own", "names": ["Lamp"]}]}}, [{"title": "Own", "names": ["Lamp"]}]),
        (LIST, {"data": {"results": [{"names": [{"no": "text"}]}]}}, [{"names": [{"no": "text"}]}]),
        (LIST, {"data": {"results": []}}, []),
        (CardTool(type="c", items="1.0"), [0, [[5]]], [{"value": 5}]),
    ],
)
def test_what_is_a_card(tool: CardTool, value: object, data: list[dict[str, Any]]) -> None:
    taken = cards_of(result(value), tool)
    assert not isinstance(taken, str)
    assert [each.data for each in taken] == data
    assert [orjson.loads(each.text) for each in taken] == data
    assert {each.kind for each in taken} <= {tool.type}


@each_of(
    ("tool", "text", "why"),
    [
        (ONE, "no json", "it is no JSON"),
        (ONE, "", "it is no JSON"),
        (ONE, '"\\ud800"', "it is no JSON"),
        (ONE, '"' + "x" * MAX_RESULT_CHARS + '"', "longer than"),
        (ONE, result({"x": "y" * MAX_CARD_BYTES}), "more than 65536 bytes"),
        (ONE, "[" * 400 + "]" * 400, "nested too deep"),
        (LIST, "{}", "it has no list at 'data.results'"),
        (LIST, '{"data": {"results": {}}}', "it has no list"),
        (CardTool(type="c", items="7"), "[1]", "it has no list"),
        (LIST, result({"data": {"results": [0] * (MAX_TAKEN + 1)}}), "it has 101 items"),
    ],
)
def test_why_there_are_none(tool: CardTool, text: str, why: str) -> None:
    taken = cards_of(text, tool)
    assert isinstance(taken, str)
    assert why in taken


@given(st.text(), st.sampled_from([ONE, LIST]))
def test_any_result_is_read_or_passed_over(text: str, tool: CardTool) -> None:
    assert isinstance(cards_of(text, tool), str | list)


@each_of(
    "wrong", [{}, {"type": ""}, {"type": "t", "items": ""}, {"type": "t", "items": "a..b"}, {"type": "t", "of": "x"}]
)
def test_settings_that_say_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        CardTool.model_validate(wrong)
