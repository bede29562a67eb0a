"""What processes hold."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from loadtests.cpu import PROC
from loadtests.watch import folder_mb, held, rollup, slope

# Opens a file and starts a thread when it is told to, and ends when it is told again.
CHILD = """
import sys, threading
print("started", flush=True)
input()
opened, end = open(sys.argv[1], "w"), threading.Event()
thread = threading.Thread(target=end.wait)
thread.start()
print("open", flush=True)
input()
end.set()
"""

needs_proc = pytest.mark.skipif(
    not (PROC / "self" / "smaps_rollup").exists(), reason="memory is read from Linux's /proc"
)


def test_of_a_rollup_what_is_shared_counts_in_parts() -> None:
    text = "55d0-7ffd ---p 00000000 00:00 0  [rollup]\nRss:  900 kB\nPss:  400 kB\nPss_Dirty: 7 kB\nPss_Anon:  300 kB\n"
    assert rollup(text) == {"resident": 400, "own": 300}


@needs_proc
def test_an_open_file_and_a_thread_are_seen(tmp_path: Path) -> None:
    # A process of its own: this one also holds what other tests left for the garbage collector.
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path / "open")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == b"started\n"
        before = held(child.pid)
        assert before.resident >= before.own > 1
        child.stdin.write(b"\n")
        child.stdin.flush()
        assert child.stdout.readline() == b"open\n"
        after = held(child.pid)
        child.communicate(b"\n")
    assert (after.files - before.files, after.threads - before.threads) == (1, 1)


def test_a_process_that_is_gone_holds_nothing() -> None:
    assert held(-1).files == 0


def test_a_folder_is_as_large_as_its_files(tmp_path: Path) -> None:
    assert folder_mb(tmp_path / "none") == 0
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "file").write_bytes(os.urandom(2**20))
    assert folder_mb(tmp_path) == pytest.approx(1, abs=0.1)


def test_a_line_is_found_with_its_error() -> None:
    times = [float(n) for n in range(0, 600, 10)]
    exact = slope(times, [100 + at / 360 for at in times])
    assert exact.per_hour == pytest.approx(10)
    assert exact.error == pytest.approx(0, abs=1e-6)
    noisy = slope(times, [100 + (n % 2) for n in range(len(times))])
    assert abs(noisy.per_hour) < 2 * noisy.error
    assert math.isnan(slope([1.0, 2.0], [1.0, 2.0]).per_hour)
    assert math.isnan(slope([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]).per_hour)
