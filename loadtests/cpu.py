"""CPU time and memory of processes and all their children (Linux)."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
CPUCLOCK_SCHED = 2
"""In the id of a process's CPU clock: user and system time of all its threads, in nanoseconds (clock_getcpuclockid(3)). The
same in /proc/PID/stat has steps of 10 ms, more than one request costs."""


class Process(NamedTuple):
    """`ticks`: user and system time of its own; `reaped`: of the children that have ended; `pages`: resident memory."""

    parent: int
    ticks: int
    reaped: int
    pages: int


def parse_stat(text: str) -> Process:
    """A line of /proc/PID/stat. The name in it may hold anything, so fields count from its closing bracket."""
    fields = text.rpartition(")")[2].split()
    # state(0) ppid(1) … utime(11) stime cutime cstime … rss(21)
    utime, stime, cutime, cstime = map(int, fields[11:15])
    return Process(int(fields[1]), utime + stime, cutime + cstime, int(fields[21]))


def processes() -> dict[int, Process]:
    """All that run now."""
    found = {}
    for name in os.listdir(PROC):
        if name.isdigit():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                found[int(name)] = parse_stat((PROC / name / "stat").read_text(encoding="utf-8", errors="replace"))
    return found


def tree(found: Mapping[int, Process], root: int) -> set[int]:
    """A process and all that it started, directly or not."""
    members = {root} & found.keys()
    while more := {pid for pid, each in found.items() if each.parent in members} - members:
        members |= more
    return members


def cpu_s(root: int) -> float:
    """Seconds of CPU that a process and its children have used so far; those that have ended count with who reaped them."""
    found = processes()
    return sum(_own_s(pid, found[pid]) + _seconds(found[pid].reaped) for pid in tree(found, root))


def _own_s(pid: int, process: Process) -> float:
    try:
        return time.clock_gettime(~pid << 3 | CPUCLOCK_SCHED)
    except OSError:
        return _seconds(process.ticks)


def _seconds(ticks: int) -> float:
    return ticks / os.sysconf("SC_CLK_TCK")


def resident_mb(root: int) -> float:
    """Resident memory in MiB; a page that several processes share counts once in all, where this user may see that."""
    found = processes()
    return sum(_resident_bytes(pid, found[pid]) for pid in tree(found, root)) / 2**20


def _resident_bytes(pid: int, process: Process) -> int:
    with contextlib.suppress(OSError):
        for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return process.pages * os.sysconf("SC_PAGE_SIZE")
