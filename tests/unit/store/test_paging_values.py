"""The seed's words, and an object at its levels."""

from __future__ import annotations

from app.features.paging.values import Fidelity, ObjectType, RelationType, Trigger, Zone
from tests.unit.paging.made import sized


def test_the_words_of_the_seed() -> None:
    assert [each.value for each in ObjectType] == [
        "conversation_phase",
        "design_decision",
        "debugging_session",
        "file_context",
        "tool_result",
        "plan",
        "error_context",
        "external_reference",
    ]
    assert {each.value for each in RelationType} == {"parent_of", "caused_by", "references", "supersedes", "depends_on"}
    assert {each.value for each in Trigger} == {"pressure", "access", "fault", "cooperative", "goal_change"}
    assert [each.value for each in Zone] == ["normal", "caution", "warning", "critical", "emergency"]
    assert list(map(int, Fidelity)) == [0, 1, 2, 3, 4]


def test_tokens_at_each_level() -> None:
    assert [sized(1, 1000).tokens_at(each) for each in Fidelity] == [1000, 300, 50, 30, 0]


def test_a_level_that_was_not_made_counts_nothing_and_is_not_had() -> None:
    bare = sized(1, 1000, levels=False)
    assert [bare.tokens_at(each) for each in Fidelity] == [1000, 0, 0, 30, 0]
    assert [bare.has(each) for each in Fidelity] == [True, False, False, True, True]
    assert [bare.text_at(each) for each in Fidelity] == ["", "", "", "Read file 1", ""]
