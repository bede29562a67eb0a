"""docs/architecture.md names every file of every room, and none that is not there."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOUSE = (ROOT / "docs" / "architecture.md").read_text().split("```")[1]
COLUMN = 38
"""Where the names of a room's files begin: before them stand its folder and what it is for."""
ROOMS = re.findall(r"^((?:app|mneme_replay)/(?:\w+/)?) ", HOUSE, re.MULTILINE)
IN_PROSE = {"app/ui/"}


def named(room: str) -> tuple[set[str], set[str]]:
    """The names and patterns that the page gives for a room, and those of them that only begin others: of `legs (leg)` and
    `paged (_plan  _body)` there are legs, leg, paged_plan and paged_body; whether there is a `paged`, it does not say."""
    found = re.search(rf"^{re.escape(room)} .*\n(?:  .*\n)*", HOUSE, re.MULTILINE)
    assert found is not None
    text = " ".join(line[COLUMN:] for line in found[0].splitlines())
    names: set[str] = set()
    stems: set[str] = set()
    for name, inner in re.findall(r"([\w*]+)(?:\s*\(([^)]*)\))?", text):
        names.add(name)
        ends = inner.split()
        names.update(name + each if each.startswith("_") else each for each in ends)
        if ends and all(each.startswith("_") for each in ends):
            stems.add(name)
    return names, stems


def test_all_rooms_are_on_the_page() -> None:
    folders = {f"app/{path.name}/" for path in (ROOT / "app").iterdir() if (path / "__init__.py").is_file()}
    assert set(ROOMS) == folders | {"mneme_replay/"}


@pytest.mark.parametrize("room", sorted(set(ROOMS) - IN_PROSE))
def test_the_page_names_the_files_of_a_room(room: str) -> None:
    files = {path.stem for path in (ROOT / room).glob("*.py")} - {"__init__", "__main__"}
    names, stems = named(room)
    assert [each for each in sorted(files) if not any(fnmatchcase(each, name) for name in names)] == []
    assert [each for each in sorted(names - stems) if not any(fnmatchcase(name, each) for name in files)] == []


def test_the_page_names_what_stands_beside_the_rooms() -> None:
    files = {path.stem for path in (ROOT / "app").glob("*.py")} - {"__init__"}
    assert files - set(re.findall(r"\w+", HOUSE)) == set()
