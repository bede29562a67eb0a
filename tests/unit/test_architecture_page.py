"""docs/explanation/architecture.md names every folder of the application."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_all_folders_are_on_the_page() -> None:
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
    folders = {f"app/{path.name}/" for path in (ROOT / "app").iterdir() if (path / "__init__.py").is_file()}
    assert folders == set(re.findall(r"`(app/\w+/)`", page))


HOPS, FILES = 25, 20
"""Most that one plain chat goes through, so that it can be followed in an afternoon."""


def test_the_way_of_a_plain_chat_is_there_and_short() -> None:
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
    rows = re.findall(r"^\| (\d+) \| (.+?) \| (.+?) \|", page, re.M)
    assert [int(number) for number, *_ in rows] == list(range(1, len(rows) + 1))
    found = set()
    for _, functions, files in rows:
        folder, texts = "", ""
        for name in re.findall(r"`([\w/]+\.py)`", files):
            folder = name.rpartition("/")[0] or folder
            path = ROOT / "app" / folder / Path(name).name
            found.add(path)
            texts += path.read_text()
        for each in re.findall(r"`([\w.]+)`", functions):
            owner, _, function = each.rpartition(".")
            assert re.search(rf"\bdef {function}\(", texts), each
            assert not owner or re.search(rf"\bclass {owner}\b", texts), each
    assert 0 < len(rows) <= HOPS
    assert 0 < len(found) <= FILES
