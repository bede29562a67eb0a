"""docs/reference/formulas.md names tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`(test_\w+)::(test_\w+)`")


def test_every_test_that_the_page_names_exists() -> None:
    page = (ROOT / "docs" / "reference" / "formulas.md").read_text()
    named = set(NAMED.findall(page))
    assert len(named) > 40
    files = {path.stem: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    lost = sorted(f"{file}::{test}" for file, test in named if f"def {test}(" not in files.get(file, ""))
    assert lost == []


def test_every_built_formula_has_a_test_or_says_why_not() -> None:
    page = (ROOT / "docs" / "reference" / "formulas.md").read_text().partition("Not built yet")[0]
    rows = [line for line in page.splitlines() if re.match(r"\| 00\d", line)]
    assert len(rows) > 30
    assert [row for row in rows if not NAMED.search(row) and "none: a bill" not in row] == []
