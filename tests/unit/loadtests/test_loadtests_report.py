"""The JSON and the page."""

from __future__ import annotations

import json
import math

from loadtests.figures import COLUMNS, Measure, summarise
from loadtests.load import Summary
from loadtests.report import Report, page, section
from loadtests.results import as_json, head
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
        head=head("bench", quick=quick, postgres="18.1"),
        settings={"rounds": 2, "stream_rounds": 1, "seconds": 0.4, "users": 6},
        filled={"users": 6, "messages": 1000, "memories": 169, "messages_after": 1200},
        resident_mb={"server": 150.0},
        worker_ms=math.nan,
        cells=summarise(measures),
    )


def told(found: Report) -> str:
    """As it is read from its file again."""
    return "\n".join(section(json.loads(as_json(found.document()))))


def test_the_json_is_one_line_a_cell() -> None:
    text = as_json(report("direct", "floor", "off").document()).decode()
    read = json.loads(text)
    assert len(read["cells"]) == 12
    assert sum(line.startswith("    {") for line in text.splitlines()) == 12
    assert read["worker_ms"] is None
    off = next(each for each in read["cells"] if each["contender"] == "off")
    assert (off["cpu_floor"], off["rps"]) == (2.5, 123.5)


def test_what_is_kept_can_be_read_again() -> None:
    kept = json.loads(as_json(report("floor").document()))
    read = Report.of(kept)
    assert math.isnan(read.worker_ms)
    assert math.isnan(read.cells[0].rps_direct)  # there was no `direct` to compare with
    assert json.loads(as_json(read.document())) == kept


def test_the_section_has_a_table_for_each_kind_and_the_bars() -> None:
    text = told(report("direct", "floor", "off"))
    assert text.count("| off | ") == 4
    assert "| pass-through, CPU ÷ floor | ≤ 3 at 16 and 64 clients | 2.50 / 2.50 |" in text
    assert "whole path, CPU" not in text
    tables = [line for line in text.splitlines() if line.startswith("| off")]
    assert {line.count("|") for line in tables} == {len(COLUMNS) + 1}


def test_the_page_tells_every_measurement_that_there_is() -> None:
    quick, full = report("direct").document(), report("direct", quick=False).document()
    assert "quick run" in page({"bench": quick})
    text = page({"bench": full})
    assert "quick run" not in text
    assert "## What a request costs" in text
    assert "loadtests.bench`" in text
    assert text.endswith("\n")
    assert "##" not in page({})
