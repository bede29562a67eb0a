"""All functions, constants, SQL and tests that docs/reference/formulas.md names exist."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.named_code import find_missing

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "formulas.md"
TEST = re.compile(r"`(test_\w+)::(test_\w+)`")


def read_rows() -> list[list[str]]:
    """Return the cells of each formula: seed, formula, function, test, where it is off."""
    lines = [line for line in PAGE.read_text().splitlines() if re.match(r"\| 00\d", line)]
    rows = [[cell.strip() for cell in line.strip().strip("|").split(" | ")] for line in lines]
    assert len(rows) > 30
    return rows


def test_every_function_that_the_page_names_is_in_the_file_it_names() -> None:
    assert [name for row in read_rows() for name in find_missing(row[2])] == []


def test_every_test_that_the_page_names_exists() -> None:
    named = set(TEST.findall(PAGE.read_text()))
    assert len(named) > 40
    files = {path.stem: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    lost = sorted(f"{file}::{test}" for file, test in named if f"def {test}(" not in files.get(file, ""))
    assert lost == []


def test_every_formula_has_a_test_or_says_why_not() -> None:
    assert [row for row in read_rows() if not TEST.search(row[3]) and "none: a bill" not in row[2]] == []
