"""Each row of docs/explanation/seeds.md has one state, and names code, tests, commands and figures that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from tests.support.named_code import COMMAND, NAMED, find_missing

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "seeds.md"
STATES = ("built", "decided otherwise", "partial", "not built")
STATE = re.compile(r"(built)$|\*\*(decided otherwise|partial|not built):\*\* \S")
BARE = re.compile(r"(?<!no )`([a-z]+(?:_[a-z0-9]+)+|(?!MNEME_)[A-Z]+(?:_[A-Z]+)+)`")
"""A name without its file, which must be somewhere in the code; `no x_y` says that there is none."""


class Row(NamedTuple):
    seed: str
    section: str
    demand: str
    where: str
    test: str
    reason: str

    @property
    def state(self) -> str:
        match = STATE.match(self.reason)
        assert match, f"{self.section}, {self.demand}: no state, but {self.reason!r}"
        return match[1] or match[2]


def read_rows() -> list[Row]:
    """Return the rows of all seeds."""
    rows = []
    for part in PAGE.read_text().split("\n## Seed ")[1:]:
        for line in part.splitlines():
            if line.startswith("| ") and not line.startswith(("| § ", "| ---")):
                cells = [cell.strip() for cell in re.split(r"\|(?: |$)", line.strip())[1:-1]]
                assert len(cells) == 5, line
                rows.append(Row(part[:3], *cells))
    assert len(rows) > 600
    return rows


def test_each_row_has_a_state() -> None:
    assert {row.state for row in read_rows()} == set(STATES)


def test_what_is_named_is_there() -> None:
    assert [name for row in read_rows() for name in find_missing(f"{row.where} {row.test} {row.reason}")] == []


def test_names_without_a_file_are_in_the_code() -> None:
    files = [path for folder in ("app", "sql") for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".sql"}]
    words = set(re.findall(r"\w+", "\n".join(path.read_text() for path in files)))
    assert [name for row in read_rows() for name in BARE.findall(row.reason) if name not in words] == []


def test_what_is_built_has_code_and_something_that_shows_it() -> None:
    built = [row for row in read_rows() if row.state == "built"]
    assert [row for row in built if not NAMED.search(row.where)] == []
    assert [row for row in built if "`tests/" not in row.test and not COMMAND.search(row.test)] == []


def test_what_is_not_built_names_no_code_and_nothing_else_does_so() -> None:
    rows = read_rows()
    assert [row for row in rows if (row.state == "not built") != (row.where == "none")] == []
    assert [row for row in rows if not (NAMED.search(row.where) or row.where == "none")] == []
