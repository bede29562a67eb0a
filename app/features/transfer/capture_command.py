"""`mneme capture …`: captured calls out of a running Mneme, and into it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import httpx
from rich.console import Console
from rich.progress import Progress, TextColumn

from app.console import base_of, failing_clearly, load_settings, show
from app.errors import MnemeError
from mneme_replay.bodies import parse_json
from mneme_replay.cassette import Cassette, CassetteError
from mneme_replay.fileformat import document, read
from mneme_replay.files import load, name_of, write
from mneme_replay.har import har
from mneme_replay.redacting import KeyFound, Redaction

# The client side of `mneme capture`: cassettes between a running Mneme and a folder.

TIMEOUT_S = 300.0
"""Seconds between two parts of the answer, and for the answer to one part of an import."""
PART_CALLS = 200
PART_BYTES = 4 * 1024 * 1024
"""A part of an import: so many cassettes, or so many bytes; one alone may be larger."""
MAX_TOLD = 20
"""Calls with keys in them that are named."""
PATH = "/api/v1/cassettes"


class CaptureFailed(MnemeError):
    """The export or the import failed."""


def export_cassettes(
    params: Sequence[tuple[str, str]], base: str, key: str | None, out: Path, redaction: Redaction, archive: Path | None
) -> list[Path]:
    """Write the calls that `params` ask for as files into `out`; which. All of them, or, where one holds a key or the export
    broke off, none. Raises CaptureFailed."""
    staged = out / f".export-{os.getpid()}"
    kept: list[Cassette] = []
    keys: list[str] = []
    fetched = 0
    try:
        for cassette in _fetched(params, base, key):
            fetched += 1
            try:
                shown = redaction.apply(cassette)
            except KeyFound as error:
                keys.append(str(error))
                continue
            if not keys:
                write(staged, [(name_of(shown), shown)])
            kept += [shown] if archive is not None else []
        if keys:
            more = f"\n… and {len(keys) - MAX_TOLD} more" if len(keys) > MAX_TOLD else ""
            raise CaptureFailed("Nothing was exported:\n" + "\n".join(keys[:MAX_TOLD]) + more)
        if missing := max(0, len({value for name, value in params if name == "call"}) - fetched):
            raise CaptureFailed(
                f"Nothing was exported: of the calls that are named, {missing} are not there, or left out."
            )
        if archive is not None:
            text = json.dumps(har(kept, version("mneme-proxy")), ensure_ascii=False, indent=1)
            archive.write_text(text + "\n", encoding="utf-8")
        return _moved(staged, out)
    except CassetteError as error:
        raise CaptureFailed(str(error)) from error
    except OSError as error:
        raise CaptureFailed(f"{error.filename or out} cannot be written: {error.strerror}.") from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _moved(staged: Path, out: Path) -> list[Path]:
    return [file.replace(out / file.name) for file in sorted(staged.iterdir())] if staged.is_dir() else []


def _fetched(params: Sequence[tuple[str, str]], base: str, key: str | None) -> Iterator[Cassette]:
    headers = {"x-mneme-key": key} if key is not None else {}
    with (
        httpx.Client(base_url=base, headers=headers, timeout=TIMEOUT_S) as client,
        Progress(TextColumn("exporting {task.completed} calls"), console=Console(stderr=True)) as progress,
    ):
        task = progress.add_task("export", total=None)
        try:
            with client.stream("GET", PATH, params=list(params)) as answer:
                if answer.status_code != 200:
                    answer.read()
                    raise CaptureFailed(f"{base} refused: {_reason(answer)}")
                for line in _lines(answer):
                    doc = parse_json(line.decode())
                    if "end" in doc:
                        return
                    if "error" in doc and "request" not in doc:
                        raise CaptureFailed(f"The export broke off: {doc['error']['message']}")
                    progress.advance(task)
                    yield read(doc, "the export")
        except httpx.HTTPError as error:
            raise CaptureFailed(
                f"{base} cannot be reached, or broke off: {error}. Is `mneme serve` running?"
            ) from error
    raise CaptureFailed("The export broke off: its last line is missing. Try again.")


def _lines(answer: httpx.Response) -> Iterator[bytes]:
    """The lines of an answer: only \\n ends one, whatever else stands in a text."""
    begun: list[bytes] = []
    for piece in answer.iter_bytes():
        *ended, rest = piece.split(b"\n")
        for each in ended:
            yield b"".join([*begun, each])
            begun = []
        begun.append(rest)


def import_cassettes(paths: Sequence[Path], user: str | None, base: str, key: str | None) -> dict[str, int]:
    """Send cassettes; how many were imported and skipped. What was imported before a part failed stays, and is skipped when it
    is sent again. Raises CaptureFailed."""
    try:
        cassettes = load(paths)
    except CassetteError as error:
        raise CaptureFailed(str(error)) from error
    if user is not None:
        cassettes = [replace(each, call={**each.call, "user": user}) for each in cassettes]
    headers = {"content-type": "application/x-ndjson"} | ({"x-mneme-key": key} if key is not None else {})
    totals = {"imported": 0, "skipped": 0}
    with httpx.Client(base_url=base, headers=headers, timeout=TIMEOUT_S) as client:
        for names, part in _parts(cassettes):
            try:
                answer = client.post(PATH, content=b"\n".join(part))
            except httpx.HTTPError as error:
                raise CaptureFailed(f"{base} cannot be reached: {error}. Is `mneme serve` running?") from error
            if answer.status_code != 200:
                raise CaptureFailed(f"{base} refused a part ({names[0]} to {names[-1]}): {_reason(answer)}")
            done: Mapping[str, int] = answer.json()
            totals = {name: count + done[name] for name, count in totals.items()}
    return totals


def _parts(cassettes: Sequence[Cassette]) -> Iterator[tuple[list[str], list[bytes]]]:
    names, part, size = list[str](), list[bytes](), 0
    for each in cassettes:
        line = json.dumps(document(each), ensure_ascii=False, separators=(",", ":")).encode()
        if part and (len(part) == PART_CALLS or size + len(line) > PART_BYTES):
            yield names, part
            names, part, size = [], [], 0
        names.append(each.name)
        part.append(line)
        size += len(line)
    if part:
        yield names, part


def _reason(answer: httpx.Response) -> str:
    try:
        error: dict[str, Any] = answer.json()["error"]
        return str(error["message"])
    except (ValueError, LookupError, TypeError):
        return f"HTTP {answer.status_code}"


@click.group()
def capture() -> None:
    """Export captured calls as cassettes, and import them."""


@capture.command()
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="A folder: a file a call.")
@click.option("--user", help="Only calls of this user.")
@click.option("--session", help="Only calls of this session.")
@click.option("--since", type=click.DateTime(), help="Only calls from then on, UTC.")
@click.option("--until", type=click.DateTime(), help="Only calls before, UTC.")
@click.option("--model", help="Only calls for this model, as the client asked for it.")
@click.option("--status", type=click.IntRange(100, 599), help="Only calls with this answer.")
@click.option("--label", "labels", multiple=True, help="Only calls with this label; of several, all.")
@click.option("--call", "calls", multiple=True, metavar="ID", help="Only this call; may be given several times.")
@click.option("--redact", multiple=True, metavar="PATH", help="A JSON path to take out of the bodies, such as $.user.")
@click.option("--redact-header", multiple=True, metavar="NAME", help="A header to take the value out of.")
@click.option("--mask-keys", is_flag=True, help="Write asterisks in the place of keys, rather than refuse.")
@click.option("--har", type=click.Path(dir_okay=False, path_type=Path), help="Write them as one HAR 1.2 file, too.")
@click.option("--base", help="A running Mneme; by default the one at MNEME_HOST and MNEME_PORT.")
@click.option("--key", help="A Mneme key, where the server asks for one.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@failing_clearly
def export(
    out: Path,
    user: str | None,
    session: str | None,
    since: datetime | None,
    until: datetime | None,
    model: str | None,
    status: int | None,
    labels: tuple[str, ...],
    calls: tuple[str, ...],
    redact: tuple[str, ...],
    redact_header: tuple[str, ...],
    mask_keys: bool,
    har: Path | None,
    base: str | None,
    key: str | None,
    as_json: bool,
) -> None:
    """Write captured calls as cassettes into a folder.

    Nothing is written if one of them holds what looks like a key: take it out with --redact, or use --mask-keys.
    """

    try:
        redaction = Redaction(redact, redact_header, mask_keys=mask_keys)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--redact") from error
    wanted = {
        "user": user,
        "session": session,
        "since": since.isoformat() if since else None,
        "until": until.isoformat() if until else None,
        "model": model,
        "status": status,
    }
    params = [(name, str(value)) for name, value in wanted.items() if value is not None]
    params += [*(("label", each) for each in labels), *(("call", each) for each in calls)]
    files = export_cassettes(params, base or base_of(load_settings()), key, out, redaction, har)
    show(
        {"cassettes": len(files), "folder": str(out)}, as_json, lambda: click.echo(f"{len(files)} cassettes in {out}.")
    )


@capture.command("import")
@click.argument("cassettes", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--user", help="Whose they become; else that of the user whom each names.")
@click.option("--base", help="A running Mneme; by default the one at MNEME_HOST and MNEME_PORT.")
@click.option("--key", help="A Mneme key, where the server asks for one.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@failing_clearly
def import_(cassettes: tuple[Path, ...], user: str | None, base: str | None, key: str | None, as_json: bool) -> None:
    """Put CASSETTES (files, or folders of them) into a running Mneme, as calls to be read and replayed. Nothing is learned
    from them. A call that is there is left alone."""

    done = import_cassettes(cassettes, user, base or base_of(load_settings()), key)
    show(done, as_json, lambda: click.echo(f"{done['imported']} calls imported, {done['skipped']} skipped."))
