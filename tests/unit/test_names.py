"""Each word has one meaning: no two public classes of the application share a name, and the glossary's places are there."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

from tests.support.tables import each_of

ROOT = Path(__file__).parents[2]
APART = (
    "api/",
    "features/ui/",
    "features/mcp/",
    "features/calls.py",
    "features/chat.py",
    "features/conflicts.py",
    "features/facts.py",
)
"""Where classes are of one page or route each: a schema of the API keeps its name, which clients see."""
PORTS = {"Authenticator"}
"""A protocol of `gateway/turn.py`, named as what has it."""


def classes() -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "app").rglob("*.py")):
        place = path.relative_to(ROOT / "app").as_posix()
        if not place.startswith(APART):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(place)
    return found


def test_a_class_has_its_name_alone() -> None:
    assert {name: places for name, places in classes().items() if len(places) > 1 and name not in PORTS} == {}


def glossary() -> list[str]:
    page = (ROOT / "docs" / "reference" / "glossary.md").read_text()
    return [
        each for row in re.findall(r"^\|.*\|(.*)\|$", page, re.M) for each in re.findall(r"`([a-z_]+\.[\w.]+)`", row)
    ]


@each_of("place", sorted(set(glossary())))
def test_the_glossary_names_what_is_there(place: str) -> None:
    """A module, or a name in it; or a column of a table."""
    parts = place.split(".")
    for many in range(len(parts), 0, -1):
        within = ROOT if parts[0] == "mneme_replay" else ROOT / "app"
        path = within / Path(*parts[:many])
        if path.is_dir() or path.with_suffix(".py").is_file():
            text = "" if path.is_dir() else path.with_suffix(".py").read_text()
            assert all(re.search(rf"\b{re.escape(each)}\b", text) for each in parts[many:]), place
            return
    sql = "\n".join(each.read_text() for each in (ROOT / "sql" / "schema").glob("*.sql"))
    assert re.search(rf"\b{parts[0]}\b", sql), place
    assert re.search(rf"\b{parts[1]}\b", sql), place
