"""docs/generated/benchmarks.md, made from the newest run of each measurement; and the section of `loadtests.bench` in it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from loadtests import results, sections
from loadtests.figures import COLUMNS, Cell, growth, number, ratio, row
from loadtests.work import CHUNKS, CONTENDERS, GAPS_MS, STREAM_S, Kind

HEAD = ("name", "at", "quick", "machine")
PAGE = Path(__file__).parents[1] / "docs" / "generated" / "benchmarks.md"
TITLES: dict[Kind, str] = {
    "reply": f"Plain answers ({CHUNKS['reply']} words)",
    "stream": f"Streams of {CHUNKS['stream']} chunks, {GAPS_MS['stream']} ms apart",
}


@dataclass(frozen=True, slots=True)
class Report:
    """A run of `loadtests.bench`. `settings`: how it was called; `filled`: what was in the memory; `resident_mb`: at the end;
    `worker_ms`: CPU of the worker and Postgres per turn that it learned from, NaN where it was not measured."""

    head: Mapping[str, Any]
    settings: dict[str, Any]
    filled: dict[str, int]
    resident_mb: dict[str, float]
    worker_ms: float
    cells: list[Cell]

    def document(self) -> dict[str, Any]:
        """As it is kept."""
        return {
            **self.head,
            "settings": self.settings,
            "filled": self.filled,
            "resident_mb": self.resident_mb,
            "worker_ms": self.worker_ms,
            "cells": [asdict(each) for each in self.cells],
        }

    @classmethod
    def of(cls, document: results.Document) -> Report:
        """From what was kept: null was NaN."""
        return cls(
            head={name: document[name] for name in HEAD},
            settings=document["settings"],
            filled=document["filled"],
            resident_mb=document["resident_mb"],
            worker_ms=_known(document["worker_ms"]),
            cells=[Cell(**{name: _known(value) for name, value in each.items()}) for each in document["cells"]],
        )


def _known(value: Any) -> Any:
    return math.nan if value is None else value


def save(document: results.Document) -> Path:
    """Keep a run, and make the page again, with what the other measurements found when they last ran."""
    path = results.write(document)
    PAGE.write_text(page(results.latest()), encoding="utf-8")
    return path


def page(documents: Mapping[str, results.Document]) -> str:
    """docs/generated/benchmarks.md."""
    lines = [
        "# What Mneme costs",
        "",
        "Made by `make bench` (some ninety minutes; `make bench BENCH=--quick`: ten, for the shape). Do not edit.",
        "Each section tells one measurement, which can be run by itself, and the machine that it ran on. The figures are in",
        "`loadtests/results/`. Absolute times belong to the machine; ratios are what to compare.",
        "`costs.md` tells where the time goes, and what was tried.",
        "",
    ]
    for name, document in documents.items():
        lines += [*sections.introduction(document), *SECTIONS[name](document)]
    return "\n".join(lines)


def section(document: results.Document) -> list[str]:
    """What a request costs."""
    report = Report.of(document)
    measured = {each.contender for each in report.cells}
    kinds = [kind for kind in TITLES if any(each.kind == kind for each in report.cells)]
    return [
        "Ratios are medians over rounds in which everyone was measured in turn.",
        "",
        *(f"- *{each.name}*: {each.title}" for each in CONTENDERS.values() if each.name in measured),
        "",
        *(line for kind in kinds for line in _table(report.cells, kind)),
        *_bars(report),
        *_method(report),
    ]


SECTIONS: Mapping[str, Callable[[results.Document], list[str]]] = {
    "bench": section,
    "scale": sections.scale,
    "wal": sections.wal,
    "prefix": sections.prefix,
    "replaying": sections.replaying,
    "resolving": sections.resolving,
    "soak": sections.soak,
}


def _table(cells: Sequence[Cell], kind: Kind) -> list[str]:
    head = ["| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    body = ["| " + " | ".join(row(each)) + " |" for each in cells if each.kind == kind]
    return [f"### {TITLES[kind]}", "", *head, *body, ""]


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
        "### The bars",
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
        "### How it is measured",
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
