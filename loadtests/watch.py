"""What processes hold: memory, files, threads; and whether it grows."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtests import cpu

FIELDS = {"Pss": "resident", "Pss_Anon": "own"}


@dataclass(frozen=True, slots=True)
class Held:
    """A process with all its children. Memory in MiB: `resident` counts a page that several share once in all; `own` is what no
    file and no shared memory stands behind: where a leak shows."""

    resident: float
    own: float
    files: int
    threads: int


def held(root: int) -> Held:
    """What it holds now; processes that end meanwhile do not count."""
    found = cpu.processes()
    memory = {"resident": 0, "own": 0}
    files = threads = 0
    for pid in cpu.tree(found, root):
        with contextlib.suppress(OSError):
            for name, kib in rollup((cpu.PROC / str(pid) / "smaps_rollup").read_text()).items():
                memory[name] += kib
            files += len(os.listdir(cpu.PROC / str(pid) / "fd"))
            threads += len(os.listdir(cpu.PROC / str(pid) / "task"))
    return Held(memory["resident"] / 1024, memory["own"] / 1024, files, threads)


def rollup(text: str) -> dict[str, int]:
    """KiB by `FIELDS`, of a file /proc/PID/smaps_rollup."""
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name in FIELDS:
            found[FIELDS[name]] = int(value.split()[0])
    return found


def folder_mb(folder: Path) -> float:
    """MiB that the files of a folder take on disk; 0 where there is none."""
    total = 0
    for base, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # it has gone meanwhile
                total += os.stat(os.path.join(base, name), follow_symlinks=False).st_blocks * 512
    return total / 2**20


@dataclass(frozen=True, slots=True)
class Slope:
    """A straight line through measurements: how much `per_hour`, and the standard error of that."""

    per_hour: float
    error: float


def slope(seconds: Sequence[float], values: Sequence[float]) -> Slope:
    """The least-squares line; NaN where there are fewer than three points. The error takes the points for independent: what
    wanders slowly is less sure than it says."""
    n = len(seconds)
    if n < 3:
        return Slope(math.nan, math.nan)
    middle_x, middle_y = sum(seconds) / n, sum(values) / n
    spread = sum((x - middle_x) ** 2 for x in seconds)
    if spread == 0:
        return Slope(math.nan, math.nan)
    steep = sum((x - middle_x) * (y - middle_y) for x, y in zip(seconds, values, strict=True)) / spread
    rest = sum((y - middle_y - steep * (x - middle_x)) ** 2 for x, y in zip(seconds, values, strict=True))
    return Slope(3600 * steep, 3600 * math.sqrt(rest / (n - 2) / spread))
