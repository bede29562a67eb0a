"""The JSON and the page."""

from __future__ import annotations

import json
import math

from loadtests.figures import COLUMNS, Measure, summarise
from loadtests.load import Summary
from loadtests.report import Report, as_json, machine, page
from loadtests.work import Kind

KINDS: tuple[Kind, ...] = ("reply", "stream")


def report(*contenders: str, quick: bool = True) -> Report:
    answers = Summary(100, 0, 0, 123.456, 1.0, 2.0, 1.0, 1.0, 3.0)
    measures = [
        Measure(name, kind, clients, 0, answers, cost, 0.0)
        for kind in KINDS
        for clients in (1, 16)
        for name, cost in zip(contenders, (0.0, 0.5, 1.25), strict=False)
    ]
    return Report(
        at="2026-11-20T12:00:00+00:00",
        quick=quick,
        machine=machine("18.1"),
        settings={"rounds": 2, "stream_rounds": 1, "seconds": 0.4, "users": 6},
        filled={"users": 6, "messages": 1000, "memories": 169, "messages_after": 1200},
        resident_mb={"server": 150.0},
        worker_ms=math.nan,
        cells=summarise(measures),
    )


def test_the_json_is_one_line_a_cell() -> None:
    text = as_json(report("direct", "floor", "off")).decode()
    read = json.loads(text)
    assert len(read["cells"]) == 12
    assert sum(line.startswith("    {") for line in text.splitlines()) == 12
    assert read["worker_ms"] is None
    off = next(each for each in read["cells"] if each["contender"] == "off")
    assert (off["cpu_floor"], off["rps"]) == (2.5, 123.5)


def test_the_page_has_a_table_for_each_kind_and_the_bars() -> None:
    text = page(report("direct", "floor", "off"))
    assert text.count("| off | ") == 4
    assert "| pass-through, CPU ÷ floor | ≤ 3 at 16 and 64 clients | 2.50 / 2.50 |" in text
    assert "whole path, CPU" not in text
    tables = [line for line in text.splitlines() if line.startswith("| off")]
    assert {line.count("|") for line in tables} == {len(COLUMNS) + 1}
    assert text.endswith("\n")


def test_a_quick_run_says_so() -> None:
    assert "quick run" in page(report("direct"))
    assert "quick run" not in page(report("direct", quick=False))


def test_the_machine_is_told_without_its_name() -> None:
    told = machine("18.1")
    assert told["PostgreSQL"] == "18.1"
    assert {"CPU", "Python", "aiohttp", "Mneme"} <= told.keys()
