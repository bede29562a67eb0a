"""CPU time and memory of processes and all their children, from /proc (Linux)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")


class Process(NamedTuple):
    """`ticks`: user and system time, of its own and of the children that it has reaped; `pages`: resident memory."""

    parent: int
    ticks: int
    pages: int


def parse_stat(text: str) -> Process:
    """A line of /proc/PID/stat. The name in it may hold anything, so fields count from its closing bracket."""
    fields = text.rpartition(")")[2].split()
    # state ppid … utime(11) stime cutime cstime … rss(21)
    return Process(int(fields[1]), sum(map(int, fields[11:15])), int(fields[21]))


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


def cpu_s(found: Mapping[int, Process], root: int) -> float:
    """Seconds of CPU that a process and its children have used: those that have ended count with the one that reaped them."""
    return sum(found[pid].ticks for pid in tree(found, root)) / os.sysconf("SC_CLK_TCK")


def resident_mb(found: Mapping[int, Process], root: int) -> float:
    """Resident memory in MiB; pages that are shared count once for each process."""
    return sum(found[pid].pages for pid in tree(found, root)) * os.sysconf("SC_PAGE_SIZE") / 2**20
