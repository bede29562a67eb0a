"""All measurements in turn."""

from __future__ import annotations

import subprocess
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


STUBBORN = """
import signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell starts what it puts in the background
from loadtests.bench import ended_by_sigterm
try:
    with ended_by_sigterm():
        print("ready", flush=True)
        time.sleep(60)
except KeyboardInterrupt:
    print("ended in order")
"""


def test_sigterm_ends_a_measurement_in_the_background_too() -> None:
    with subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        assert process.communicate(timeout=30)[0] == "ended in order\n"
