"""docs/explanation/architecture.md names every folder of the application."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_all_folders_are_on_the_page() -> None:
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
    folders = {f"app/{path.name}/" for path in (ROOT / "app").iterdir() if (path / "__init__.py").is_file()}
    assert folders == set(re.findall(r"`(app/\w+/)`", page))
