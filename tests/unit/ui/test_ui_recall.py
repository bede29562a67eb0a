"""The filters of pages about memories, without api."""

from __future__ import annotations

import pytest

from app.features.ui.memories import MemoryQuery, json_object, tier, told, words, written
from app.features.ui.visit import Refused
from app.store.kinds import KINDS


def test_a_list_is_asked_for_what_was_typed() -> None:
    wanted = MemoryQuery(tier="3", kind="fact", status="all", tags="home, travel,", metadata='{"a": 1}')
    assert wanted.listing() == {
        "tier": "3", "kind": "fact", "status": "all", "tag": ["home", "travel"], "metadata": '{"a": 1}',
    }  # fmt: skip
    assert wanted.query == {
        "q": "", "tier": "3", "kind": "fact", "status": "all", "tags": "home, travel,", "metadata": '{"a": 1}', "said": "",
    }  # fmt: skip


def test_a_search_is_bounded_and_looks_among_memories_unless_messages_are_wanted() -> None:
    body = MemoryQuery(q="tea?").searching()
    assert (body["query"], body["k"], body["history"]) == ("tea?", 50, False)
    assert body["kinds"] == list(KINDS)
    assert not {"tiers", "tags", "metadata"} & set(body), "what is not asked for is left to the route"
    assert "message" in MemoryQuery(q="tea?", said="on").searching()["kinds"]
    narrow = MemoryQuery(q="tea?", kind="fact", tier="3", tags="a,b", metadata='{"a": 1}', said="on").searching()
    assert (narrow["kinds"], narrow["tiers"], narrow["tags"], narrow["metadata"]) == (
        ["fact"],
        [3],
        ["a", "b"],
        {"a": 1},
    )


@pytest.mark.parametrize(
    ("status", "history", "kept"),
    [
        ("", False, {"active", "aging", "superseded"}),  # the route tells what is in force
        ("active", False, {"active"}),
        ("aging", False, {"aging"}),
        ("superseded", True, {"superseded"}),
        ("all", True, {"active", "aging", "superseded"}),
    ],
)
def test_a_search_by_status(status: str, history: bool, kept: set[str]) -> None:
    wanted = MemoryQuery(q="tea?", status=status)
    assert wanted.searching()["history"] is history
    assert {each for each in ("active", "aging", "superseded") if wanted.keeps(each)} == kept


@pytest.mark.parametrize(("text", "asked"), [("3", 3), ("semantic", "semantic"), ("²", "²"), ("9" * 5000, "9" * 5000)])
def test_a_tier_is_a_number_or_what_the_route_makes_of_it(text: str, asked: int | str) -> None:
    assert tier(text) == asked
    assert MemoryQuery(q="tea?", tier=text).searching()["tiers"] == [asked]


def test_whether_anything_is_left_out() -> None:
    assert not MemoryQuery().narrowed
    assert not MemoryQuery(status="all").narrowed
    assert MemoryQuery(kind="fact").narrowed
    assert MemoryQuery(q="tea?").narrowed


def test_signals_that_say_something_the_strongest_first() -> None:
    assert told({"own_words": 0.2, "excess": 0.9, "text": 0.004, "vector": 1.0}) == [
        ("vector", 1.0, False),
        ("excess", 0.9, True),
        ("own words", 0.2, False),
    ]


def test_what_is_typed() -> None:
    assert words(" a, b c ,,d,") == ["a", "b c", "d"]
    assert json_object("  ") == {}
    assert json_object('{"a": [1]}') == {"a": [1]}
    for wrong in ("[1]", '"x"', "{", "null"):
        with pytest.raises(Refused, match="JSON object") as refused:
            json_object(wrong)
        assert refused.value.status == 400


def test_values_are_written_for_people() -> None:
    assert written("<b>") == "<b>"
    assert written(["a", "b"]) == "a, b"
    assert written([1, "b"]) == '[1,"b"]'
    assert written(7) == "7"
    assert written({"a": 1}) == '{\n  "a": 1\n}'
