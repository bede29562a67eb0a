"""What is kept of a run, and which run is told."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from loadtests.results import as_json, head, latest, machine, write


def document(name: str, at: str, quick: bool, **more: Any) -> dict[str, Any]:
    return {"name": name, "at": f"{at}T12:00:00+00:00", "quick": quick, "machine": {}, **more}


def test_the_newest_full_run_is_told_else_the_newest_quick_one(tmp_path: Path) -> None:
    for at, quick in (("2026-01-03", True), ("2026-01-01", False), ("2026-01-02", False)):
        write(document("wal", at, quick), tmp_path)
    write(document("soak", "2026-01-01", True), tmp_path)
    write(document("soak", "2026-01-02", True), tmp_path)
    (tmp_path / "old.json").write_text('{"cells": []}')
    found = latest(tmp_path)
    assert [(name, each["at"][:10], each["quick"]) for name, each in found.items()] == [
        ("wal", "2026-01-02", False),
        ("soak", "2026-01-02", True),
    ]


def test_a_quick_run_does_not_take_the_place_of_a_full_one(tmp_path: Path) -> None:
    full = write(document("wal", "2026-01-01", False, figure=1), tmp_path)
    quick = write(document("wal", "2026-01-01", True, figure=2), tmp_path)
    assert full != quick
    assert write(document("wal", "2026-01-01", False, figure=3), tmp_path) == full
    assert latest(tmp_path)["wal"]["figure"] == 3


def test_figures_are_rounded_and_entries_have_a_line_each() -> None:
    text = as_json(document("wal", "2026-01-01", True, one=1.23456, deep={"x": [0.000123456, math.nan]}, rows=[{}, {}]))
    read = json.loads(text)
    assert (read["one"], read["deep"]) == (1.235, {"x": [0.0001235, None]})
    assert text.decode().splitlines().count("    {},") == 1


def test_the_machine_is_told_without_its_name() -> None:
    told = machine("18.1")
    assert told["PostgreSQL"] == "18.1"
    assert {"CPU", "Python", "aiohttp", "Mneme"} <= told.keys()
    assert head("wal", quick=True, postgres="18.1")["machine"] == told
