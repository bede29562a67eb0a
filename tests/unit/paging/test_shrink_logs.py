"""Logs by their errors, ends and kinds of lines."""

from __future__ import annotations

import pytest

from app.features.paging.shrink import bad, log_outline, shrink, template
from app.features.paging.values import ContentKind
from tests.unit.paging.made import COUNT

LOG = (
    "12:00:00 INFO start 4.1\n"
    + "".join(f"12:00:{i % 60:02} INFO request {i} took {i * 3}ms\n" for i in range(500))
    + "12:09:01 ERROR disk /dev/sda1 is full\n"
    + "    at write (store.py:91)\n"
    + "".join(f"12:10:{i % 60:02} INFO request {i} took {i * 3}ms\n" for i in range(500))
    + "12:20:00 WARN slow 3s\n12:20:01 INFO one\n12:20:02 INFO two\n12:20:03 INFO stopped\n"
)


@pytest.mark.parametrize(
    ("line", "is_bad"),
    [
        ("ERROR: x", True),
        ("TypeError: x is not a function", True),
        ("2 failed, 0 errors", True),
        ("0 errors, 0 failed", False),
        ("tests/test_errors.py ....", False),
        ("npm ERR! code", True),
        ("info: all good", False),
        ("Connection refused", True),
    ],
)
def test_lines_that_tell_of_an_error(line: str, is_bad: bool) -> None:
    assert bad(line) is is_bad


def test_kinds_of_lines() -> None:
    assert template("12:00:01 request 5 took 3ms id=9f86d081") == template("12:00:59 request 17 took 300ms id=60303ae2")


def test_the_error_among_a_thousand_lines_is_in_both_levels() -> None:
    made = shrink(LOG, ContentKind.LOG, COUNT)
    for level in (made.detailed, made.compact):
        assert "disk /dev/sda1 is full" in level.text
        assert "which errors there are, one of each kind" in level.can_answer
    assert "INFO stopped" in made.compact.text
    assert "store.py:91" in made.detailed.text
    assert "1007 lines" in made.compact.text
    assert "INFO 1004; ERROR 1; WARN 1" in made.compact.text
    assert "you need every line, their times or their exact values" in made.fault_when


def test_nothing() -> None:
    assert log_outline("").lines == []
