"""What the page tells of each measurement."""

from __future__ import annotations

from typing import Any

import pytest

from loadtests import sections
from loadtests.report import SECTIONS, page
from loadtests.results import NAMES


def head(name: str, quick: bool = False) -> dict[str, Any]:
    machine = {"CPU": "2 × some CPU", "memory": "4 GiB", "Python": "3.12.1", "PostgreSQL": "18.1"}
    return {"name": name, "at": "2026-01-02T03:04:05+00:00", "quick": quick, "machine": machine}


def cell(case: str, memories: int, p99_ms: float, cpu_ms: float) -> dict[str, Any]:
    figures = {"p50_ms": 2.0, "p99_ms": p99_ms, "server_ms": cpu_ms - 1, "postgres_ms": 1.0, "cpu_ms": cpu_ms}
    return {"case": case, "title": f"the {case} user", "memories": memories, "pace_ms": 8.0, "compiles": 9, **figures}


def scale(cpu_ms: float = 5.0, p99_ms: float = 12.0, recall: float = 0.99, rows: int = 500) -> dict[str, Any]:
    found = {
        "recall": recall,
        "recall_least": 0.9,
        "rows": 500.0,
        "rows_least": rows,
        "asked": 500,
        "exact_ms": 7.0,
        "graph_ms": 1.0,
    }
    return head("scale") | {
        "amount": {"sizes": [1000, 1_000_000], "compiles": 500, "messages": 1000, "questions": 100},
        "cells": [cell("light", 1000, 3.0, 4.0), cell("heavy", 1_000_000, p99_ms, 6.0), cell("light", 1_000_000, 4.0, cpu_ms)],
        "recalls": [{"memories": 1_000_000, "own": 12_400, "graph": 250_000, **found}],
    }  # fmt: skip


def wal(amplification: float = 1.4) -> dict[str, Any]:
    parts = {"rows": 1.0, "updates": 0.0, "stored": 900.0, "heap": 1000.0, "indexes": 90.0}
    kind = {
        "kind": "stream", "turns": 60, "wal": 30_000.0, "images": 0.0, "image_count": 0.0, "vectors": 3000.0,
        "amplification": amplification, "amplification_plain": 0.6, "tables": [{"table": "streams", **parts}],
    }  # fmt: skip
    return head("wal") | {
        "turns": 200, "streams": 60, "messages": 1000, "kinds": [kind], "learned": 4000.0,
        "events": {"one_row": 5000.0, "row_each": 90_000.0, "events": 203.0, "ratio": 18.0},
        "after_checkpoint": [kind | {"wal": 40_000.0, "images": 12_000.0, "image_count": 7.0}],
    }  # fmt: skip


def prefix(reused: float | None = 1.0) -> dict[str, Any]:
    same = {"turns": 20, "rebases": 1, "changed": 19, "prompt_bytes": 50_000, "reused_least": 0.99, "reused_all": 0.95}
    sessions = [{"placement": "tail", "reused": reused, **same}, {"placement": "system", "reused": 0.03, **same}]
    return head("prefix") | {"messages": 1000, "sessions": sessions}


def replaying(p95_ms: float = 2.5, equal: int = 270, chunks_equal: int = 90) -> dict[str, Any]:
    recorded = {"session": "captures", "calls": 90, "outcomes": {"broken": 3, "complete": 87}, "with_memory": 40, "errors": 25,
                "bytes": 100_000, "pieces": 850, "seconds": 10.0}  # fmt: skip
    counts = {"calls": 270, "equal": equal, "chunked": 90, "chunks_equal": chunks_equal, "pieces": 2300, "timed": 2500}
    times = {"p50_ms": 1.0, "p95_ms": p95_ms, "max_ms": 9.0, "late_ms": 0.5, "timer_p95_ms": 1.2}
    played = [{"session": "captures", "clients": 1, "rounds": 3, **counts, **times}]
    return head("replaying") | {"rounds": 3, "tolerance_ms": 10.0, "recorded": [recorded], "played": played}


def resolving(near_ms: float = 20.0, known_ms: float = 9.0) -> dict[str, Any]:
    right = {"labelled": 12, "right": 9, "precision": 1.0, "recall": 0.75}
    costs = {"stages 1 and 2: names": known_ms, "stages 1 to 3: a name with a slip": near_ms, "a text": 99.0}
    spent = {"count": 1000, "p99_ms": 99.0, "server_ms": 1.0, "postgres_ms": 5.0}
    return head("resolving") | {
        "things": 100_000,
        "accuracy": [{"set": "heldout", "stage": "fuzzy", **right}],
        "stages": [{"kind": kind, "p50_ms": ms, **spent} for kind, ms in costs.items()],
    }


def soak(against: list[str], tasks: float | None = 9.0) -> dict[str, Any]:
    held = {"server": 100, "worker": 90, "Postgres": 200}
    sample = {
        "resident": held,
        "files": held,
        "threads": held,
        "connections": 12,
        "tasks": tasks,
        "data_mb": 80.0,
        "spool_mb": 0.0,
    }
    return head("soak") | {
        "minutes": 30.0, "clients": 6, "users": 16, "done": {"searches": 18_000}, "degraded": 2, "errors": {}, "leaked": {},
        "slopes": {name: {"per_hour": 1.5, "error": 0.5} for name in held},
        "at_rest": [sample, sample, sample], "samples": [sample, sample], "against": against,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (sections.scale(scale()), "(× 2.00) | × 1.25 | yes |"),
        (sections.scale(scale(cpu_ms=9.0)), "(× 2.00) | × 2.25 | **no** |"),
        (sections.scale(scale()), "≤ 15 ms (the slowest line) | 12.0 ms | yes |"),
        (sections.scale(scale(p99_ms=16.0)), "≤ 15 ms (the slowest line) | 16.0 ms | **no** |"),
        (sections.scale(scale()), "≥ 0.98 | 0.990 | yes |"),
        (sections.scale(scale(recall=0.97)), "≥ 0.98 | 0.970 | **no** |"),
        (sections.scale(scale(rows=499)), "rows really returned | 499 | **no** |"),
        (sections.wal(wal()), "≤ 1.5 | 1.40 | yes |"),
        (sections.wal(wal(1.6)), "≤ 1.5 | 1.60 | **no** |"),
        (sections.wal(wal()), "| a stream of 200 chunks | 30.0 | 3.00 | 1.40 | 0.60 | 40.0 | 12.0 (7.00) |"),
        (sections.prefix(prefix()), "≥ 99% | 100.0% | yes |"),
        (sections.prefix(prefix(0.98)), "≥ 99% | 98.0% | **no** |"),
        (sections.prefix(prefix(None)), "≥ 99% | – | **no** |"),
        (sections.replaying(replaying()), "| 270 of 270 | yes |"),
        (sections.replaying(replaying(equal=269)), "| 269 of 270 | **no** |"),
        (sections.replaying(replaying(chunks_equal=89)), "| 89 of 90 answers | **no** |"),
        (sections.replaying(replaying()), "within 10 ms of their time (p95) | 2.50 ms | yes |"),
        (sections.replaying(replaying(p95_ms=12.0)), "within 10 ms of their time (p95) | 12.0 ms | **no** |"),
        (sections.replaying(replaying()), "| 90 | 3 broken, 87 complete | 40 | 25 | 100,000 | 850 | 10.0 |"),
        (sections.resolving(resolving()), "| heldout | fuzzy | 12 | 1.000 | 0.750 |"),
        (sections.resolving(resolving()), "< 15 ms (the slowest line) | 9.00 ms | yes |"),
        (sections.resolving(resolving()), "< 30 ms (the slowest line) | 20.0 ms | yes |"),
        (sections.resolving(resolving(near_ms=31.0)), "< 30 ms (the slowest line) | 31.0 ms | **no** |"),
        (sections.soak(soak([])), "**Passed.**"),
        (sections.soak(soak(["it leaks", "it grows"])), "**Failed:** it leaks; it grows."),
        (sections.soak(soak([])), "tasks of the server 9 → 9"),
    ],
)
def test_each_bar_is_told_beside_what_was_measured(lines: list[str], told: str) -> None:
    assert told in " ".join(lines)


def test_a_case_that_was_measured_once_has_no_growth() -> None:
    assert "the heavy user: CPU from" not in "\n".join(sections.scale(scale()))


def test_what_is_not_told_by_the_server_is_left_out() -> None:
    assert "tasks" not in "\n".join(sections.soak(soak([], tasks=None)))


def test_the_page_says_where_and_how_each_was_measured() -> None:
    documents = {
        "scale": scale(),
        "wal": wal(),
        "prefix": prefix(),
        "replaying": replaying(),
        "resolving": resolving(),
        "soak": soak([]),
    }
    text = page(documents)
    for name in documents:
        assert f"`.venv/bin/python -m loadtests.{name}`" in text
        assert sections.ABOUT[name].title in text  # type: ignore[index]  # a name of theirs
    assert text.count("### How it is measured") == len(documents)
    assert " ".join(text.split()).count("2026-01-02, 2 × some CPU, 4 GiB; Python 3.12.1") == len(documents)
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.endswith("|") for line in tables)
    assert all(len(line) <= 130 for line in text.splitlines() if not line.startswith("|"))


def test_every_measurement_has_a_section() -> None:
    assert tuple(SECTIONS) == tuple(sections.ABOUT) == NAMES


def test_a_quick_run_says_so() -> None:
    assert "quick run" in page({"wal": wal() | {"quick": True}})
    assert "quick run" not in page({"wal": wal()})
