"""What speaks against a long run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loadtests.soak import TASKS, WHO, Sample, counts, leaks, pooled, slopes, verdict
from loadtests.watch import Slope

FLAT = {name: Slope(0.0, 1.0) for name in WHO}


def sample(
    at_s: float = 0.0, mb: float = 100.0, files: int = 10, connections: int = 3, tasks: float | None = 5
) -> Sample:
    same = dict.fromkeys(WHO, mb)
    return Sample(at_s, same, same, dict.fromkeys(WHO, files), dict.fromkeys(WHO, 2), connections, tasks, 50.0, 0.0)


def test_what_is_held_at_rest_afterwards_and_was_not_after_half_leaked() -> None:
    assert leaks(sample(), sample(mb=900.0)) == {}
    assert leaks(sample(files=12), sample(files=10)) == {}
    assert leaks(sample(), sample(files=12, connections=4, tasks=6)) == {
        "files beside connections": 3,
        "tasks of the server": 1,
    }


def test_a_pool_may_open_up_to_its_size() -> None:
    full = sample(connections=pooled(), files=10 + pooled())
    assert leaks(full, full) == {}
    found = leaks(full, sample(connections=pooled() + 2, files=11 + pooled()))
    assert found == {"connections to Postgres than the pools may hold": 2}


def test_postgres_opens_files_as_it_likes() -> None:
    before = sample()
    assert leaks(before, replace(before, files={**before.files, "Postgres": 999})) == {}


def test_tasks_count_where_they_are_told() -> None:
    assert "tasks of the server" not in counts(sample(tasks=None))
    text = "# TYPE mneme_event_loop_tasks gauge\nmneme_event_loop_tasks 12.0\nmneme_event_loop_tasks_other 9.0\n"
    assert TASKS.findall(text) == ["12.0"]


def test_the_slope_is_that_of_the_second_half() -> None:
    samples = [sample(10.0 * n, 100.0 + min(n, 50)) for n in range(100)]
    assert all(each.per_hour == pytest.approx(0) for each in slopes(samples).values())
    assert slopes(samples[:50])["server"].per_hour == pytest.approx(360)


def test_a_run_passes_or_says_why_not() -> None:
    assert verdict(30, FLAT, {}, {}) == []
    assert verdict(30, FLAT, {"files beside connections": 2.0}, {"reply: status 500": 3}) == [
        "3 × reply: status 500",
        "2 more files beside connections",
    ]
    steep = {**FLAT, "worker": Slope(60.0, 5.0)}
    assert verdict(30, steep, {}, {}) == ["worker grows by 60 MB an hour"]
    assert verdict(2, steep, {}, {}) == []
    unsure = {**FLAT, "worker": Slope(60.0, 40.0)}
    assert verdict(30, unsure, {}, {}) == []
