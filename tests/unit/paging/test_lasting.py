"""Which objects of a session outlast it, and in which words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.context.transcript import Transcript
from app.features.paging.persistent_objects import (
    MEMORY_TOKENS,
    MOST,
    Content,
    ObjectEvidence,
    Origin,
    by_tool,
    evidence,
    file_of,
    lasting,
    latest,
    origins_of,
    place_of,
    text_of,
    told_of,
)
from app.features.paging.segment import marks
from tests.unit.paging.made import COUNT, LONG_CODE, TRACEBACK, user

AT = datetime(2026, 11, 1, tzinfo=UTC)


def reading(n: int = 0, key: str | None = "src/a.py", said: str = "a", **given: Any) -> ObjectEvidence:
    plain: dict[str, Any] = {
        "object_id": UUID(int=n + 1),
        "object_type": "file_context",
        "kind": "code",
        "source_tool": "Read",
        "source_key": key,
        "family": "read",
        "content_hash": said.encode().ljust(16, b"\0"),
        "stub": "Read src/a.py (365 lines, Python: MoneyError)",
        "marks": (bytes([n]),),
        "tokens_l0": 3000,
        "created_at": AT + timedelta(minutes=n),
        "fault_count": 0,
        "asked_turns": 0,
        "pinned": False,
        "again": False,
        "remembered": 0,
    }
    return ObjectEvidence(**plain | given)


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ({}, 0),
        ({"fault_count": 1}, 1),
        ({"fault_count": 2, "pinned": True}, 2),  # a restoration pins: that says nothing more
        ({"pinned": True}, 1),
        ({"asked_turns": 1}, 0),
        ({"asked_turns": 2}, 2),
        ({"asked_turns": 3, "pinned": True, "again": True}, 4),
        ({"again": True}, 1),
    ],
)
def test_what_speaks_for_an_object(given_: dict[str, Any], expected: int) -> None:
    assert evidence(reading(**given_)) == expected


def test_only_the_last_reading_of_a_place_lasts() -> None:
    old, new = reading(0, said="a", fault_count=5), reading(1, said="b", fault_count=1)
    assert [each.reading for each in lasting([old, new])] == [new]
    assert lasting([old, reading(1, said="b")]) == []
    assert latest([old, new]) == {"object:read:src/a.py": new}


def test_the_same_content_read_twice_is_one() -> None:
    (found,) = lasting([reading(0, fault_count=2, remembered=1), reading(1, asked_turns=2), reading(2, "src/b.py")])
    assert found.reading.object_id == UUID(int=2)
    assert (found.evidence, found.fresh) == (4, 3)


def test_what_is_remembered_already_is_not_again() -> None:
    assert lasting([reading(fault_count=2, remembered=2)]) == []
    assert lasting([reading(fault_count=1, remembered=2)]) == []


def test_an_edit_ends_what_was_read_before_and_is_none_itself() -> None:
    """The note of an edit says what was done; the file is another since."""
    edit = reading(1, said="b", source_tool="Edit", family="edit", fault_count=3, created_at=AT)
    part = reading(2, "src/a.py:10-40", "c", fault_count=1, created_at=AT)
    assert (place_of(edit), file_of(edit)) == (None, "object:file:src/a.py")
    assert file_of(part) == file_of(edit)
    # Objects of one request have one time: their order counts.
    assert lasting([reading(0, fault_count=1, created_at=AT), edit]) == []
    assert [each.reading for each in lasting([edit, part])] == [part]
    assert lasting([part, edit]) == []
    assert file_of(reading(source_tool="ls", family="list")) is None


def test_keys_of_other_families_are_other_places() -> None:
    listed = reading(1, said="b", source_tool="ls", family="list")
    assert [each.reading.object_id for each in lasting([reading(fault_count=1), listed])] == [UUID(int=1)]


def test_pastes_have_no_place() -> None:
    pastes = [reading(n, key=None, said=str(n), source_tool="Pasted", family="other", fault_count=1) for n in range(2)]
    assert [place_of(each) for each in pastes] == [None, None]
    assert len(lasting(pastes)) == 2
    assert [
        by_tool(each) for each in (pastes[0], reading(), reading(source_tool="Said"), reading(source_tool=None))
    ] == [
        False,
        True,
        False,
        False,
    ]


def test_the_most_wanted_come_first_and_not_too_many() -> None:
    many = [reading(n, f"{n}.py", str(n), fault_count=n + 1) for n in range(MOST + 10)]
    found = lasting(many)
    assert [each.evidence for each in found] == list(range(MOST + 10, 10, -1))


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3), st.integers(0, 3), st.integers(0, 2), st.integers(0, 3), st.booleans(), st.booleans()
        ),
        max_size=12,
    )
)
def test_what_lasts_is_spoken_for_and_not_stale(drawn: list[tuple[int, int, int, int, bool, bool]]) -> None:
    given_ = [
        reading(
            n, f"{key}.py" if key else None, str(said), fault_count=restores, asked_turns=asked, pinned=pin, again=again
        )
        for n, (key, said, restores, asked, pin, again) in enumerate(drawn)
    ]
    last = latest(given_)
    for each in lasting(given_):
        place = place_of(each.reading)
        assert each.fresh == each.evidence > 0
        assert place is None or last[place].content_hash == each.reading.content_hash
        assert {one.content_hash for one in each.readings} == {each.reading.content_hash}


def test_messages_that_say_the_same_are_told_apart() -> None:
    messages = [user("again"), user("once"), user("again"), user("again")]
    transcript = Transcript.of(messages)
    origins = [
        Origin(UUID(int=n), UUID(int=9), n, AT, hashed, None, True)
        for n, hashed in enumerate(transcript.hashes)
        if hashed
    ]
    objects = [reading(n, marks=(mark,)) for n, mark in enumerate(marks(transcript)) if mark is not None]
    found = origins_of(objects, origins)
    assert [found[each.object_id].message_id.int for each in objects] == [0, 1, 2, 3]
    assert origins_of([reading(marks=(b"unknown",)), reading(1, marks=())], origins) == {}


def test_a_memory_is_one_line_of_the_contents_own_words() -> None:
    text = text_of(reading(), Content(LONG_CODE, None, ("What does helper_17 add?",)), COUNT)
    assert text.startswith("Read src/a.py (365 lines")
    assert "Adds 17." in text
    assert "class MoneyError(ValueError)" in text
    assert "\n" not in text
    assert COUNT(text) <= MEMORY_TOKENS
    assert text == text_of(reading(), Content(LONG_CODE, None, ("What does helper_17 add?",)), COUNT)


def test_l2_is_taken_as_it_is() -> None:
    assert text_of(reading(), Content(LONG_CODE, "Money,\nin short.", ()), COUNT).endswith(" – Money, in short")


@pytest.mark.parametrize("content", ["", "x", "\0", "y" * 100_000, TRACEBACK])
def test_any_content_has_a_text(content: str) -> None:
    text = text_of(reading(kind="log"), Content(content, None, ("why?", "")), COUNT)
    assert text
    assert COUNT(text) <= MEMORY_TOKENS


def test_what_a_memory_tells_of_its_object() -> None:
    assert told_of(reading()) == {
        "id": str(UUID(int=1)),
        "type": "file_context",
        "tool": "Read",
        "key": "src/a.py",
        "hash": b"a".ljust(16, b"\0").hex(),
        "tokens": 3000,
    }
