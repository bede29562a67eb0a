"""docs/explanation/seeds.md: each mechanism that the design documents ask for names code and tests that there are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "seeds.md"
NAMED = re.compile(r"`([\w./-]+?)(?:::?([\w.]+))?`")
STATES = ("**different:** ", "**partial:** ", "**not built**")


class Row(NamedTuple):
    section: str
    where: str
    test: str
    state: str


def rows(seed: str = "") -> list[Row]:
    """Of a seed ("004"), or of all."""
    told = [each for each in PAGE.read_text().split("\n## Seed ")[1:] if each.startswith(seed)]
    cells = [
        [each.strip() for each in line.strip().strip("|").split(" | ")]
        for line in "\n".join(told).splitlines()
        if line.startswith("| ") and not line.startswith(("| § ", "| ---"))
    ]
    assert {len(each) for each in cells} == {5}
    return [Row(section, where, test, state.strip()) for section, _, where, test, state in cells]


def lost(named: str) -> list[str]:
    """What of the files and names in a cell is not there."""
    missing = []
    for path, name in NAMED.findall(named):
        file = ROOT / path
        if not file.exists() or (name and not re.search(rf"\b{re.escape(name)}\b", file.read_text())):
            missing.append(f"{path}:{name}")
    return missing


def test_what_is_named_is_there() -> None:
    assert [each for row in rows() for each in (*lost(row.where), *lost(row.test))] == []


def test_each_mechanism_is_built_and_tested_or_says_how_far_it_is() -> None:
    found = rows()
    assert len(found) > 100
    assert [row for row in found if row.state and not row.state.startswith(STATES)] == []
    assert [row for row in found if not row.state and not (NAMED.search(row.where) and "`tests/" in row.test)] == []


def test_the_table_at_the_top_counts_the_rows() -> None:
    for seed in ("000", "001", "002", "003", "004"):
        counts = [sum(row.state.startswith(state) for row in rows(seed)) for state in STATES]
        told = [seed, len(rows(seed)) - sum(counts), *counts]
        assert f"| {' | '.join(map(str, told))} |" in PAGE.read_text()
