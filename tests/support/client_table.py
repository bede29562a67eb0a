"""The table of docs/clients.md, made by the test run: a row for each client that was run, kept between the marks."""

from __future__ import annotations

import fcntl
from collections.abc import Mapping
from pathlib import Path

SCENARIOS = (
    "chat", "stream", "asynchronous", "tools", "structured", "error", "timeout", "abort", "turns", "session", "image",
    "responses",
)  # fmt: skip
NOT_OFFERED = {
    "openai-node": ("asynchronous",),
    "curl": ("asynchronous",),
    "vercel-ai": ("asynchronous",),
    "pydantic-ai": ("asynchronous",),
    "llamaindex": ("responses",),
    "litellm": ("responses",),
}
"""What a client has no form of its own for: here everything is asynchronous, or nothing is; there is no Responses API, or it is
another client's."""
BEGIN, END = "<!-- begin: made by tests/acceptance/test_clients.py -->", "<!-- end -->"


def write(path: Path, client: str, version: str, cells: Mapping[str, str]) -> None:
    """Put a client's row into the table, in place of the one of before. Processes may do so side by side. `cells`: by scenario;
    what is not there failed."""
    with path.open("r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        text = file.read()
        before, _, rest = text.partition(BEGIN)
        table, _, after = rest.partition(END)
        made = before + BEGIN + "\n" + with_row(table, client, version, cells) + END + after
        file.seek(0)
        file.truncate()
        file.write(made)


def with_row(table: str, client: str, version: str, cells: Mapping[str, str]) -> str:
    """The table with the row of a client, in the order in which they first came."""
    head = f"| client | version | {' | '.join(SCENARIOS)} |\n|---|---|{'---|' * len(SCENARIOS)}\n"
    rows = {
        line.split("|")[1].strip(): line for line in table.splitlines() if line.startswith("| ") and "---" not in line
    }
    rows.pop("client", None)
    told = [cells.get(scenario, "**no**") for scenario in SCENARIOS]
    rows[client] = f"| {client} | {version} | {' | '.join(told)} |"
    return head + "\n".join(rows.values()) + "\n"
