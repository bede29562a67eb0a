"""What a run leaves behind: a JSON file in `loadtests/results/`, and docs/benchmarks.md, which is made from it."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson

from loadtests.figures import COLUMNS, Cell, growth, number, ratio, row
from loadtests.work import CHUNKS, CONTENDERS, GAPS_MS, STREAM_S, Kind

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
PACKAGES = ("aiohttp", "asyncpg", "httptools", "orjson", "uvicorn", "uvloop")
TITLES: dict[Kind, str] = {
    "reply": f"Plain answers ({CHUNKS['reply']} words)",
    "stream": f"Streams of {CHUNKS['stream']} chunks, {GAPS_MS['stream']} ms apart",
}


@dataclass(frozen=True, slots=True)
class Report:
    """A run. `settings`: how it was called; `filled`: what was in the memory; `resident_mb`: at the end; `worker_ms`: CPU of
    the worker and Postgres per turn that it learned from, NaN where it was not measured."""

    at: str
    quick: bool
    machine: dict[str, str]
    settings: dict[str, Any]
    filled: dict[str, int]
    resident_mb: dict[str, float]
    worker_ms: float
    cells: list[Cell]


def machine(postgres: str) -> dict[str, str]:
    """What it ran on, without names of machines or people."""
    return {
        "CPU": f"{os.cpu_count()} × {_cpu_model()}",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "Python": platform.python_version(),
        "PostgreSQL": postgres,
        **{name: version(name) for name in PACKAGES},
        "Mneme": version("mneme-proxy"),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown CPU")


def save(report: Report) -> Path:
    """Write both. The JSON is one line a cell, so that two runs can be compared line by line."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{report.at[:10]}{'-quick' if report.quick else ''}.json"
    path.write_bytes(as_json(report))
    PAGE.write_text(page(report), encoding="utf-8")
    return path


def as_json(report: Report) -> bytes:
    """NaN becomes null; figures keep four significant digits."""
    head = {name: value for name, value in asdict(report).items() if name != "cells"}
    lines = [f"  {orjson.dumps(name).decode()}: {_dump(value)}" for name, value in head.items()]
    cells = ",\n".join(f"    {_dump(asdict(each))}" for each in report.cells)
    return ("{\n" + ",\n".join(lines) + ',\n  "cells": [\n' + cells + "\n  ]\n}\n").encode()


def _dump(value: Any) -> str:
    return orjson.dumps(_rounded(value)).decode()


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, float):
        return None if math.isnan(value) else float(f"{value:.4g}")
    return value


def page(report: Report) -> str:
    """docs/benchmarks.md."""
    kinds = [kind for kind in TITLES if any(each.kind == kind for each in report.cells)]
    return "\n".join(
        [
            *_introduction(report),
            *(line for kind in kinds for line in _table(report.cells, kind)),
            *_bars(report),
            *_method(report),
        ]
    )


def _introduction(report: Report) -> list[str]:
    told = ", ".join(f"{name} {value}" for name, value in report.machine.items() if name not in ("CPU", "memory"))
    kept = "This was a quick run, on a machine that was doing other things: the shape counts, not the figures."
    return [
        "# What Mneme costs",
        "",
        "Made by `make bench` (some ten minutes; `.venv/bin/python -m loadtests.bench --quick`: one). Do not edit.",
        "",
        f"{report.at[:10]}, {report.machine['CPU']}, {report.machine['memory']}; {told}.",
        *(["", kept] if report.quick else []),
        "",
        "Ratios are what to compare: medians over rounds in which everyone was measured in turn. Absolute times belong to this",
        "machine.",
        "",
        *(f"- *{each.name}*: {each.title}" for each in CONTENDERS.values()),
        "",
    ]


def _table(cells: Sequence[Cell], kind: Kind) -> list[str]:
    head = ["| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    body = ["| " + " | ".join(row(each)) + " |" for each in cells if each.kind == kind]
    return [f"## {TITLES[kind]}", "", *head, *body, ""]


def _bars(report: Report) -> list[str]:
    """What is asked of Mneme, beside what was measured."""
    by = {(each.contender, each.kind, each.clients): each for each in report.cells}
    most = max((each.clients for each in report.cells), default=0)

    def ratios(contender: str, kind: Kind) -> str:
        found = [each for (name, of, _), each in by.items() if name == contender and of == kind]
        return " / ".join(number(each.cpu_floor) for each in sorted(found, key=lambda c: c.clients))

    lines = ["| what | asked | measured |", "| --- | --- | --- |"]
    if by.keys() & {("off", "reply", most), ("off", "stream", most)}:
        grown = number(growth(report.cells, "off", "reply"))
        lines.append(f"| pass-through, CPU ÷ floor | ≤ 3 at 16 and 64 clients | {ratios('off', 'reply')} |")
        lines.append(f"| its growth from the fewest to the most clients | none (≤ 1) | {grown} |")
        lines.append(f"| pass-through, stream, CPU ÷ floor | ≤ 2 | {ratios('off', 'stream')} |")
    if by.keys() & {("memory", "reply", most), ("memory", "stream", most)}:
        lines.append(f"| whole path, CPU ÷ floor | as Portkey | {ratios('memory', 'reply')} |")
        lines.append(f"| whole path, stream, CPU ÷ floor | ≤ 2 | {ratios('memory', 'stream')} |")
        lines.append(f"| worker, CPU ms per turn | told beside | {number(report.worker_ms)} |")
    for peer, figure, asked in (("portkey", "cpu_ms", "≤ 1"), ("litellm", "rps", "≥ 8")):
        pairs = [
            ratio(getattr(each, figure), getattr(by[peer, "reply", clients], figure))
            for (name, kind, clients), each in sorted(by.items(), key=lambda item: item[0][2])
            if (name, kind) == ("memory", "reply") and (peer, "reply", clients) in by
        ]
        if pairs:
            what = "CPU" if figure == "cpu_ms" else "requests/s"
            told = " / ".join(map(number, pairs))
            lines.append(f"| whole path, {what} ÷ {peer}'s bare pass-through | {asked} | {told} |")
    resident = ", ".join(f"{name} {value:.0f} MB" for name, value in report.resident_mb.items())
    counts = " / ".join(str(each) for each in sorted({each.clients for each in report.cells}))
    return [
        "## The bars",
        "",
        f"Where there are several figures, they are those at {counts} clients.",
        "",
        *lines,
        "",
        f"Resident memory at the end: {resident}.",
        "",
    ]


def _method(report: Report) -> list[str]:
    filled, settings = report.filled, report.settings
    return [
        "## How it is measured",
        "",
        "- Everything runs on loopback, in processes of its own: a scripted upstream, the floor, `mneme serve` with one server",
        "  process on its embedded Postgres with fsync on, and a load client on keep-alive connections, pinned to one core.",
        f"- Memory: {filled['users']} users, each with {filled['messages']} messages in sessions of ten turns, sent to",
        f"  `/api/v1/import`, and {filled['memories']} memories learned from them (of the first user). Every request begins a",
        "  new conversation of one of them with a question of its own, so each user's messages grow a little during a run",
        f"  (to {filled['messages_after']} on average at its end).",
        "- The job worker is off while requests are measured; what it costs is measured afterwards, on the turns they left.",
        "- CPU is user and system time of all of a proxy's processes, and of all of Postgres' (with its background writers),",
        "  ÷ requests. It is steadier than requests per second, for which client and upstream compete.",
        f"- Each chunk of a stream comes by itself, {GAPS_MS['stream']} ms after the last. So a stream takes",
        f"  {STREAM_S:g} s, and its requests/s tell only whether anyone falls behind. Plain answers come at once.",
        "- Deadlines are lifted: an overloaded Mneme would otherwise answer without memory (*degraded*, counted under errors).",
        f"- {settings['rounds']} rounds ({settings['stream_rounds']} of streams) of {settings['seconds']:g} s each; in a round",
        "  everyone is measured in turn. What Postgres still does when the last answer is out counts, for up to half a second.",
        "",
    ]
