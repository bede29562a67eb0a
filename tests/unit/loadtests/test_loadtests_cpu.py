"""CPU time of process trees."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from loadtests.cpu import PROC, Process, cpu_s, parse_stat, processes, resident_mb, tree

needs_proc = pytest.mark.skipif(not (PROC / "self").exists(), reason="CPU is counted from Linux's /proc")

BURN = "import time\nwhile time.process_time() < 0.2: pass\n"
CHILD = (
    f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BURN!r}])\nprint('done', flush=True)\ninput()\n"
)


def test_the_name_in_a_stat_line_may_hold_anything() -> None:
    line = f"42 (evil) R 1 ( x) S 7 {' '.join(str(n) for n in range(5, 60))}"
    # Fields of proc(5): 14 utime, 15 stime, 16 cutime, 17 cstime, 24 rss.
    assert parse_stat(line) == Process(parent=7, ticks=14 + 15, reaped=16 + 17, pages=24)


def test_a_tree_has_all_descendants_and_nobody_else() -> None:
    found = {pid: Process(parent, 0, 0, 0) for pid, parent in ((1, 0), (2, 1), (3, 2), (4, 3), (5, 1), (6, 5))}
    assert tree(found, 2) == {2, 3, 4}
    assert tree(found, 99) == set()


@needs_proc
def test_this_process_is_there() -> None:
    assert processes()[os.getpid()].parent == os.getppid()
    assert resident_mb(os.getpid()) > 1


@needs_proc
def test_a_child_that_has_ended_still_counts() -> None:
    with subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"done\n"
        # What it burned, less the two steps of 10 ms by which a reaped child's times are rounded down.
        assert cpu_s(parent.pid) >= 0.18
        parent.communicate(b"\n")
