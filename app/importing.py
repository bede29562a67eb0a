"""The client side of `mneme import`: a file of JSON lines, sent in parts, with progress."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from app.errors import MnemeError
from app.settings import Settings

PART_LINES = 5000
"""Lines sent at once: one answer every second or so, and what failed is told soon."""
TIMEOUT_S = 300.0
"""Seconds for the answer to one part."""
TOTALS = ("imported", "duplicates", "sessions", "users")


class ImportFailed(MnemeError):
    """The import failed."""


def base_of(settings: Settings) -> str:
    """The URL of the server that runs with these settings; one that listens everywhere is asked on loopback."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104 - asked, not bound
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"


def _parts(file: Path) -> Iterator[tuple[int, list[bytes]]]:
    """(number of the first line, lines)."""
    part: list[bytes] = []
    first = 1
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            part.append(line)
            if len(part) >= PART_LINES:
                yield first, part
                first, part = number + 1, []
    if part:
        yield first, part


def send_file(file: Path, base: str, key: str | None) -> dict[str, int]:
    """Import `file` into the Mneme at `base`. Returns the totals. Raises ImportFailed with the line that is wrong."""
    headers = {"content-type": "application/x-ndjson"}
    if key is not None:
        headers["x-mneme-key"] = key
    totals = dict.fromkeys(TOTALS, 0)
    with file.open("rb") as lines:
        count = sum(1 for _ in lines)
    columns = (TextColumn("importing"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with (
        httpx.Client(base_url=base, headers=headers, timeout=TIMEOUT_S) as client,
        Progress(*columns, console=Console(stderr=True)) as progress,
    ):
        task = progress.add_task("import", total=count)
        for first, part in _parts(file):
            try:
                answer = client.post("/api/v1/import", content=b"".join(part))
            except httpx.HTTPError as error:
                raise ImportFailed(f"{base} cannot be reached: {error}. Is `mneme serve` running?") from error
            if answer.status_code != 200:
                raise ImportFailed(f"Lines {first} to {first + len(part) - 1} were refused: {_reason(answer, first)}")
            for name, value in answer.json().items():
                if name in totals and isinstance(value, int):
                    totals[name] += value
            progress.advance(task, len(part))
    return totals


def _reason(answer: httpx.Response, first: int) -> str:
    """What was wrong, of a part that begins with line `first` of the file."""
    try:
        told = answer.json()
        if wrong := told.get("errors"):
            return f"nothing of them was stored; line {first - 1 + wrong[0]['line']}: {wrong[0]['error']}"
        return str(told["error"]["message"])
    except (ValueError, LookupError, TypeError, AttributeError):
        return f"HTTP {answer.status_code}"
