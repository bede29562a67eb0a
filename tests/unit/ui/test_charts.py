"""The geometry of charts: what stands where."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.features.ui import overview
from app.features.ui.overview import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    compact,
    duration,
    lines,
    moments,
    scale,
    share,
)
from tests.support.tables import each_of

SINCE = datetime(2026, 3, 4, 10, 0, tzinfo=UTC)
FLOOR = HEIGHT - BOTTOM

values = st.lists(st.floats(0, 1e12, allow_subnormal=False), min_size=1, max_size=60)


@given(values, values)
def test_columns_stand_on_one_another_inside_the_chart(one: list[float], two: list[float]) -> None:
    many = min(len(one), len(two))
    drawn = overview.columns([one[:many], two[:many]], SINCE, 60, ["t"] * many, compact)
    for column in drawn.columns:
        below, above = column.parts
        assert below.y + below.height == pytest.approx(FLOOR, abs=0.02)
        assert above.y + above.height == pytest.approx(below.y, abs=0.02)
        assert min(part.y for part in column.parts) >= TOP - 0.01
        assert LEFT <= column.hover.x <= below.x
        assert below.x + below.width <= column.hover.x + column.hover.width + 0.02 <= WIDTH - RIGHT + 0.05


@given(st.floats(1e-6, 1e15))
def test_marks_reach_over_the_highest_value_and_are_few(highest: float) -> None:
    ticks, top = scale(highest, str)
    assert top >= highest * (1 - 1e-6)
    assert 2 <= len(ticks) <= 5
    assert (ticks[0].at, ticks[-1].at) == (FLOOR, TOP)
    assert top <= highest * 2, "at least half of the chart is used"


def test_marks_are_round() -> None:
    assert [tick.label for tick in scale(87, compact)[0]] == ["0", "50", "100"]
    assert [tick.label for tick in scale(1_200_000, compact)[0]] == ["0", "500k", "1M", "1.5M"]
    assert [tick.label for tick in scale(2, compact, least=1)[0]] == ["0", "1", "2"], "there are no half calls"
    assert [tick.label for tick in scale(0, compact)[0]] == ["0"]


def test_a_line_has_gaps_where_nothing_was_measured() -> None:
    drawn = lines([[1, 2, None, 4, None, 5, 6]], SINCE, 60, list("abcdefg"), duration)
    (stretches,), (dots,) = drawn.lines, drawn.dots
    assert [len(each.split()) for each in stretches] == [2, 2]
    assert len(dots) == 1
    assert drawn.columns[3].hover.x <= dots[0][0] <= drawn.columns[4].hover.x
    nothing = lines([[None, None]], SINCE, 60, ["a", "b"], duration)
    assert (nothing.lines, nothing.dots) == (((),), ((),))


@each_of(
    ("step", "many", "labels"),
    [
        (120, 31, ["10:00", "10:10", "10:20", "10:30", "10:40", "10:50", "11:00"]),
        (1800, 49, ["12:00", "15:00", "18:00", "21:00", "00:00", "03:00", "06:00", "09:00"]),
        (10_800, 57, [f"{day} Mar" for day in range(5, 12)]),
    ],
)
def test_time_is_marked_where_clocks_strike(step: int, many: int, labels: list[str]) -> None:
    found = [tick.label for tick in moments(SINCE, step, many)]
    assert found == labels


def test_values_as_axes_have_them() -> None:
    assert [compact(each) for each in (0, 0.5, 7, 999, 1000, 1_250_000, 2e9)] == [
        "0",
        "0.5",
        "7",
        "999",
        "1k",
        "1.25M",
        "2G",
    ]
    assert [duration(each) for each in (0, 0.5, 12, 2500)] == ["0 ms", "0.5 ms", "12 ms", "2.5 s"]
    assert share([2, 1, 0]) == [1, 0.5, 0]
    assert share([0, 0]) == [0, 0]
