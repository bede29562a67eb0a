"""When answers are played."""

from __future__ import annotations

import pytest

from mneme_replay.timing import parse_speed
from tests.support.tables import each_of


@each_of(("text", "speed"), [("0", 0.0), ("1", 1.0), ("2.5", 2.5), ("1e3", 1000.0)])
def test_a_speed(text: str, speed: float) -> None:
    assert parse_speed(text) == speed


@each_of("text", ["-1", "nan", "inf", "fast", ""])
def test_what_is_no_speed(text: str) -> None:
    with pytest.raises(ValueError, match=r"a speed is|could not convert"):
        parse_speed(text)
