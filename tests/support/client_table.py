"""The table of docs/how-to/clients.md, made by the test run: a row for each client that was run, kept between the marks."""

from __future__ import annotations

import fcntl
from collections.abc import Collection, Mapping
from pathlib import Path

SCENARIOS = (
    "chat", "stream", "asynchronous", "tools", "structured", "error", "timeout", "abort", "turns", "session", "image",
    "responses",
)  # fmt: skip
REPLAYS = ("replay", "Mneme over replay")
"""What else the same scenarios are played against, from the calls that were recorded of the client."""
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
NONE = "·"
BEGIN, END = "<!-- begin: made by tests/acceptance/test_clients.py -->", "<!-- end -->"


def share(cells: Mapping[str, str], passed: Collection[str]) -> str:
    """How many of the scenarios that a client has were passed, and which were not."""
    offered = [scenario for scenario in SCENARIOS if cells.get(scenario) != NONE]
    failed = [scenario for scenario in offered if scenario not in passed]
    told = f"{len(offered) - len(failed)} of {len(offered)}"
    return told + (f", **not** {', '.join(failed)}" if failed else "")


def write(path: Path, client: str, version: str, cells: Mapping[str, str]) -> None:
    """Put a client's row into the table, in place of the one of before. Processes may do so side by side. `cells`: by scenario,
    and by what was replayed; what is not there failed."""
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
    columns = (*SCENARIOS, *REPLAYS)
    head = f"| client | version | {' | '.join(columns)} |\n|---|---|{'---|' * len(columns)}\n"
    rows = {
        line.split("|")[1].strip(): line for line in table.splitlines() if line.startswith("| ") and "---" not in line
    }
    rows.pop("client", None)
    told = [cells.get(column, "**no**") for column in columns]
    rows[client] = f"| {client} | {version} | {' | '.join(told)} |"
    return head + "\n".join(rows.values()) + "\n"
