"""Of which type a content is."""

from __future__ import annotations

import time

import pytest

from app.features.paging.keys import Family, UnderstoodCall, entities
from app.features.paging.segment import PASTE_TOKENS, failed, of_paste, of_result, of_statement, pastes
from app.features.paging.shrink import kind_of
from app.features.paging.values import ObjectType
from tests.unit.paging.made import COUNT, LONG_CODE, PROSE, TRACEBACK


@pytest.mark.parametrize(
    ("family", "text", "expected"),
    [
        (Family.READ, TRACEBACK, ObjectType.FILE_CONTEXT),
        (Family.SHELL, "all good", ObjectType.TOOL_RESULT),
        (Family.SHELL, TRACEBACK, ObjectType.ERROR_CONTEXT),
        (Family.OTHER, "Exit code: 2", ObjectType.ERROR_CONTEXT),
        (Family.FETCH, "x", ObjectType.EXTERNAL_REFERENCE),
        (Family.PLAN, "x", ObjectType.PLAN),
        (Family.SEARCH, "error: 1 failed", ObjectType.TOOL_RESULT),
        (Family.EDIT, "updated", ObjectType.FILE_CONTEXT),
    ],
)
def test_results(family: Family, text: str, expected: ObjectType) -> None:
    assert of_result(text, UnderstoodCall("t", family, "k")) == expected


@pytest.mark.parametrize(
    ("text", "bad"),
    [
        ("exited with code 1", True),
        ('{"exit_code": 127}', True),
        ("Exit code: 0", False),
        ("2 failed, 211 passed", True),
        ("0 failed, 211 passed", False),
        ("error[E0382]: borrow of moved value", True),
        ("panic: runtime error", True),
        ("it failed to impress", False),
        ("x" * 9_000 + "\nexit status 3\n", True),
    ],
)
def test_failures(text: str, bad: bool) -> None:
    assert failed(text) is bad


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The plan:\n1. read\n2. write\n3. test\n4. ship\n", ObjectType.PLAN),
        ("1. a\n2. b\n3. c\n4. d\n", None),
        ("I decided on Postgres; the trade-off is latency.", ObjectType.DESIGN_DECISION),
        ("I chose it, chose it, chose it.", None),
        ("Hello.", None),
    ],
)
def test_statements(text: str, expected: ObjectType | None) -> None:
    assert of_statement(text) == expected


def test_a_fenced_paste_leaves_the_question_outside() -> None:
    text = f"Why is this slow?\n```python\n{LONG_CODE}```\nPlease be brief."
    (piece,) = pastes(text, COUNT)
    assert text[piece.start : piece.stop] == LONG_CODE
    assert piece.object_type == ObjectType.FILE_CONTEXT


def test_fences_are_read_in_one_pass() -> None:
    inner = PROSE * 15
    text = f"~~~\n```\n{inner}```\n~~~\nand\n```md\n{inner}"
    first, second = pastes(text, COUNT)
    assert text[first.start : first.stop] == f"```\n{inner}```\n"
    assert text[second.start : second.stop] == inner, "not closed: to the end"


@pytest.mark.parametrize(
    "text",
    [
        "\n" * 300_000,
        "".join("`" * i + "\n" for i in range(3, 1200)),
        " \t" * 200_000,
        "a/" * 150_000,
        "A" * 300_000,
        "_a" * 150_000,
    ],
)
def test_hostile_texts_take_no_time(text: str) -> None:
    began = time.process_time()
    failed(text)
    of_statement(text)
    pastes(text, lambda each: len(each) // 4)
    kind_of(text)
    entities(text)
    assert time.process_time() - began < 3


def test_a_paste_without_a_fence_leaves_both_ends() -> None:
    text = "What does this say about ice?\n\n" + PROSE * 30 + "\n\nAnswer in one line."
    (piece,) = pastes(text, COUNT)
    assert text[: piece.start].strip() == "What does this say about ice?"
    assert text[piece.stop :].strip() == "Answer in one line."
    wall = PROSE * 40
    (piece,) = pastes(wall, COUNT)
    assert 0 < piece.start < piece.stop < len(wall)


def test_what_is_short_is_no_paste() -> None:
    assert pastes("Why?", COUNT) == []
    assert pastes("a " * (PASTE_TOKENS - 100), COUNT) == []
    assert of_paste(TRACEBACK) == ObjectType.ERROR_CONTEXT
    assert of_paste(PROSE) == ObjectType.EXTERNAL_REFERENCE
