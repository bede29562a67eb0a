"""Tables, diffs, listings and search results."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.features.paging.shrink import CHANGED, FILE, HUNK, diff, listing, separator, shrink, table
from app.features.paging.values import ContentKind
from tests.unit.paging.made import COUNT

FOLDER = Path(__file__).parents[2] / "fixtures" / "micro_faults"


@pytest.mark.parametrize(
    ("lines", "split"),
    [
        (["a,b,c", "1,2,3", "4,5,6"], ","),
        (["a\tb", "1\t2", "3\t4"], "\t"),
        (["| a | b |", "|---|---|", "| 1 | 2 |", "| 3 | 4 |"], "|"),
        (["a;b;c", "1;2;3", "4;5;6"], ";"),
        (["one, two", "three", "four, five"], None),
        (["a,b,c"], None),
    ],
)
def test_columns(lines: list[str], split: str | None) -> None:
    assert separator(lines) == split


def test_a_table_by_its_columns() -> None:
    made = table("city,kind,units\n" + "".join(f"{['Oslo', 'Lyon'][i % 2]},x,{i}\n" for i in range(50)))
    assert made is not None
    assert made.head == ("table: 50 rows, 3 columns (city, kind, units)",)
    assert [each.text for each in made.lines[:3]] == [
        "city: Oslo (25), Lyon (25)",
        "kind: x (50)",
        "units: 0 to 49, sum 1225",
    ]
    assert table("no table here") is None


def test_the_levels_of_a_table_know_its_sums() -> None:
    made = shrink((FOLDER / "sales.csv").read_text(), ContentKind.TABLE, COUNT)
    assert "store: Malmo (40), Porto (40), Turin (40), Leeds (40)" in made.compact.text
    assert "its columns, their ranges and how many rows it has" in made.detailed.can_answer
    assert "you need a row that is not shown, or a sum over all rows" in made.fault_when


def test_a_diff_by_its_files() -> None:
    made = diff((FOLDER / "change.diff").read_text())
    assert made.head[0].startswith("diff: 3 files, +")
    assert next(each.text for each in made.lines if each.group == FILE).startswith("billing/invoice.py: +")
    assert sum(each.group == HUNK for each in made.lines) == 4
    plus = sum(each.text.startswith("+") for each in made.lines if each.group == CHANGED)
    assert made.head[0].startswith(f"diff: 3 files, +{plus} ")


def test_a_search_by_its_files() -> None:
    made = listing((FOLDER / "search.txt").read_text())
    assert made.head == ("24 matches in 11 files",)
    assert "services/common/cache.py: 6" in [each.text for each in made.lines]


def test_a_directory_by_its_folders() -> None:
    made = listing("src:\nsrc/a.py\nsrc/b.py\ndocs/x.md\n")
    assert made.head[0].startswith("3 entries in 2 folders")
