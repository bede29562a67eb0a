from __future__ import annotations

from uuid import UUID

import pytest

from app.context.candidates import Provenance
from tests.support.context_samples import memory, message, source


def test_provenance_is_numbered_as_in_seed_000_section_2_2() -> None:
    assert [each.name.lower() for each in sorted(Provenance)] == [
        "user_stated",
        "system_inferred",
        "correction",
        "preference",
        "fact",
        "instruction",
        "tool_output",
    ]
    assert [int(each) for each in sorted(Provenance)] == list(range(7))


@pytest.mark.parametrize(
    ("role", "provenance"),
    [
        ("user", Provenance.USER_STATED),
        ("assistant", Provenance.SYSTEM_INFERRED),
        ("tool", Provenance.TOOL_OUTPUT),
        ("function", Provenance.TOOL_OUTPUT),
        (None, Provenance.SYSTEM_INFERRED),
    ],
)
def test_provenance_of_a_raw_message(role: str | None, provenance: Provenance) -> None:
    assert Provenance.of_role(role) is provenance


def test_a_memory_with_one_source_knows_it() -> None:
    assert memory(1, provenance=(source(7),)).sole_message() == UUID(int=7)
    assert memory(1, provenance=(source(7), source(7))).sole_message() == UUID(int=7)
    assert memory(1, provenance=(source(7), source(8))).sole_message() is None
    assert memory(1, provenance=()).sole_message() is None
    assert message(7).sole_message() is None


def test_own_words_are_raw_messages_of_the_user() -> None:
    assert message(1).own_words
    assert not message(1, role="assistant").own_words
    assert not memory(1, role="user").own_words
