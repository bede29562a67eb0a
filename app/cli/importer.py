"""The client side of `mneme import`: a file of JSON lines, sent in parts, with progress."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import httpx
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from app.cli.console import failing_clearly, load_settings, show
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


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--base", help="A running Mneme; by default the one at MNEME_HOST and MNEME_PORT.")
@click.option("--key", help="A Mneme key, where the server asks for one.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@failing_clearly
def import_(file: Path, base: str | None, key: str | None, as_json: bool) -> None:
    """Import past conversations (JSON lines) into a running Mneme."""
    result = send_file(file, base or base_of(load_settings()), key)
    show(
        result,
        as_json,
        lambda: click.echo(f"{result['imported']} messages imported, {result['duplicates']} were there already."),
    )
