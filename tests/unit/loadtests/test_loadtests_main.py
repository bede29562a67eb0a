"""All measurements in turn."""

from __future__ import annotations

import sys

from rich.console import Console

from loadtests.__main__ import commands, ended, left, run
from loadtests.results import NAMES
from loadtests.sections import ABOUT


def test_each_measurement_gets_the_options_that_it_knows() -> None:
    found = commands(NAMES, quick=True, peers=True)
    assert list(found) == list(NAMES)
    assert found["bench"][1:] == ["-m", "loadtests.bench", "--quick", "--peers"]
    assert found["soak"][1:] == ["-m", "loadtests.soak", "--quick"]
    assert commands(["wal"], quick=False, peers=True)["wal"][1:] == ["-m", "loadtests.wal"]


def test_the_time_that_is_left_is_told() -> None:
    assert left(["wal", "prefix"], quick=False) == f"some {ABOUT['wal'].minutes + ABOUT['prefix'].minutes:.0f} minutes"


def test_one_that_fails_does_not_stop_the_others() -> None:
    wrong, right = ([sys.executable, "-c", f"raise SystemExit({code})"] for code in (3, 0))
    assert ended(right) == 0
    assert run(Console(quiet=True), {"wal": wrong, "prefix": right, "soak": wrong}, quick=True) == ["wal", "soak"]
