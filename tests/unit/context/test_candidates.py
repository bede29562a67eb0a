from __future__ import annotations

from uuid import UUID

from app.context.candidates import ItemSource
from app.memory.candidate import Provenance
from tests.support.context_samples import message
from tests.support.tables import each_of


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


@each_of(
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


def test_a_message_is_its_own_source() -> None:
    assert message(7, session_name="s", metadata={"a": 1}).provenance == (ItemSource("s", UUID(int=7), 7, {"a": 1}),)
    assert message(7).provenance == (ItemSource(str(UUID(int=1)), UUID(int=7), 7, {}),)
