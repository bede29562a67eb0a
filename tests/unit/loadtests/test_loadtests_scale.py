"""The figures of growing tables."""

from __future__ import annotations

import math

import orjson
import pytest

from loadtests.compiles import Spent, figures
from loadtests.crowd import Person
from loadtests.scale import HEAVY, LIGHT, LONG, LONG_TURNS, cases, long_session, newcomers
from loadtests.sections import grown


def test_quantiles_are_of_all_rounds_and_cpu_is_that_of_the_median_round() -> None:
    rounds = [Spent([1.0, 2.0], [1.0, 3.0]), Spent([3.0, 100.0], [5.0, 5.0]), Spent([4.0, 5.0], [4.0, 4.0])]
    found = figures(rounds, [1.0, 9.0, 2.0])
    assert (found["compiles"], found["p50_ms"], found["p99_ms"]) == (6, 3.0, 100.0)
    assert (found["server_ms"], found["postgres_ms"], found["cpu_ms"]) == (4.0, 2.0, 6.0)


def test_growth_is_told_beside_that_of_the_logarithm() -> None:
    cells = [{"case": "a", "memories": n, "cpu_ms": cost} for n, cost in ((1000, 2.0), (1_000_000, 3.0), (10_000, 9.0))]
    times, allowed = grown(cells, "a", "cpu_ms")
    assert times == 1.5
    assert allowed == pytest.approx(2.0)
    assert math.isnan(grown(cells, "b", "cpu_ms")[0])


def test_the_long_session_is_the_same_as_imported_and_as_sent() -> None:
    lines, transcript = long_session("u")
    imported = [orjson.loads(each) for each in lines.splitlines()]
    assert len(imported) == 2 * LONG_TURNS
    assert [(each["role"], each["content"]) for each in imported] == [
        (each["role"], each["content"]) for each in transcript[1:]
    ]
    assert {each["session"] for each in imported} == {LONG}


def test_the_cases_are_those_of_two_users() -> None:
    light, heavy = Person("light", LIGHT, LIGHT), Person("heavy", HEAVY, LIGHT)
    found = cases(light, heavy, [{"role": "user", "content": "x"}])
    assert [each.user for each in found] == ["light", "heavy", "heavy", "heavy"]
    assert [(each.session, len(each.transcript)) for each in found] == [(None, 0), (None, 0), (None, 1), (LONG, 0)]


def test_a_growing_table_takes_in_whom_it_has_room_for() -> None:
    first = [Person("light", 1000, 10), Person("heavy", 10_000, 10)]
    stored, names = 0, []
    for size in (1000, 11_000, 13_000, 15_000):
        people = newcomers(first, stored, size, 10)
        stored += sum(each.memories for each in people)
        assert stored == size
        names += [each.name for each in people]
    assert names[:2] == ["light", "heavy"]
    assert len(set(names)) == len(names) == 6
    assert [each.name for each in newcomers(first, 0, 12_000, 10)] == ["light", "heavy", "crowd-11000"]
