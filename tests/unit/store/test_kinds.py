"""A kind of memory is known wherever kinds are listed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from app.api.chat import MEMORY_TYPES
from app.features.mcp.tools import Kind as ToolKind
from app.store.memories import KINDS, STATUSES

SCHEMA = Path(__file__).parents[3] / "sql" / "schema" / "003_memory.sql"


def checked(column: str) -> set[str]:
    """What the table's CHECK lets in."""
    found = re.search(rf"\n    {column} +text NOT NULL[^(]*CHECK \({column} IN \(([^)]*)\)", SCHEMA.read_text())
    assert found is not None
    return set(re.findall(r"'(\w+)'", found[1]))


def test_kinds_and_statuses_are_the_tables() -> None:
    assert set(KINDS) == checked("kind")
    assert set(STATUSES) == checked("status")


def test_every_kind_has_a_type_in_an_answer_and_a_tool_names_no_other() -> None:
    assert set(KINDS) <= set(MEMORY_TYPES)
    assert set(get_args(ToolKind)) <= set(KINDS)
