"""docs/how-to/mcp.md says what there is."""

from __future__ import annotations

import json
import re
from pathlib import Path

from app.features.mcp import mcp
from app.features.mcp.server import MAX_LISTED, MAX_SHOWN_CHARS, PROFILE, SESSION, TOOLS

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "mcp.md").read_text()


def test_the_page_names_every_tool_with_its_arguments_and_its_scope() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (read|write) \| .+ \|$", PAGE, re.MULTILINE)
    told = {name: (set(re.findall(r"`(\w+)`", takes)), scope) for name, takes, scope in rows}
    assert told == {each.name: (set(each.arguments.model_fields), "read" if each.reads else "write") for each in TOOLS}


def test_the_page_has_the_bounds_and_the_resources() -> None:
    assert f"{MAX_SHOWN_CHARS:,} characters" in PAGE
    assert f"the last {MAX_LISTED} messages" in PAGE
    assert f"`{PROFILE}`" in PAGE
    assert f"`{SESSION}{{session}}`" in PAGE


def test_the_configurations_are_ones_that_the_command_takes() -> None:
    stdio, http = (
        json.loads(each)["mcpServers"]["mneme"] for each in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    )
    name, *arguments = stdio["args"]
    assert name == mcp.name
    assert mcp.make_context(name, arguments).params["user"] == "ana"
    assert http["url"].endswith("/mcp")
