"""`mneme import`, `mneme export` and `mneme capture`, the clients of a running Mneme: JSON lines sent in parts, everything that
it has of a user as JSON lines, and captured calls as cassettes.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import quote

import click
import httpx
import orjson
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from app.console import base_of, failing_clearly, load_settings, show
from app.errors import MnemeError
from app.features.transfer.store import IN_SPACES, said_line
from app.store.pools import content_of
from app.store.records import ROLES
from mneme_replay.bodies import parse_json
from mneme_replay.cassette import Cassette, CassetteError
from mneme_replay.fileformat import document, read
from mneme_replay.files import load, name_of, write
from mneme_replay.har import har
from mneme_replay.redacting import KeyFound, Redaction

# --- an export, read -----------------------------------------------------------------------------------------------------

HEAD = b'{"export":'
END = b'{"end":'
STILL_SAID = ("superseded", "resent")
"""Why something may be suppressed that was said all the same."""
KEPT = ("name", "tool_calls", "tool_call_id")


class BrokenExport(MnemeError):
    """This export cannot be read."""


class _Place(NamedTuple):
    """Of a message: where it stands in its session, and its line in the file."""

    session: str
    turn_index: int
    sibling: int
    message_id: str
    at: int
    size: int


class Exported:
    """An export that is whole. `left_out`: rows by table that are no messages."""

    def __init__(self, file: Path) -> None:
        """Raises BrokenExport."""
        self._file = file
        self._user = ""
        self._sessions: dict[str, str] = {}
        self._shared: list[tuple[int, int]] = []
        self.left_out = Counter[str]()
        self._places = self._read()

    @classmethod
    def is_one(cls, file: Path) -> bool:
        """Whether a file begins as an export does."""
        with file.open("rb") as lines:
            return lines.read(len(HEAD)) == HEAD

    def __len__(self) -> int:
        return len(self._places) + len(self._shared)

    def lines(self) -> Iterator[bytes]:
        """The messages, each session in its order; not what was forgotten, nor what was not to be found."""
        with self._file.open("rb") as file:
            for place in self._places:
                file.seek(place.at)
                yield self._line(orjson.loads(file.read(place.size))["row"])
            for at, size in self._shared:
                file.seek(at)
                said = said_line(orjson.loads(file.read(size))["row"], self._user)
                yield orjson.dumps(said, option=orjson.OPT_APPEND_NEWLINE)

    def _line(self, row: dict[str, Any]) -> bytes:
        session = str(row["session_id"])
        line = {
            "session": self._sessions.get(session) or session,
            "user": self._user,
            "role": row["role"],
            "content": content_of(row["content"], row["content_parts"]),
            "created_at": row["created_at"],
            "metadata": row["metadata"],
        }
        line |= {name: row[name] for name in KEPT if row.get(name)}
        return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)

    def _read(self) -> list[_Place]:
        found: list[_Place] = []
        gone: set[str] = set()
        at, line = 0, b""
        try:
            with self._file.open("rb") as lines:
                for line in lines:
                    self._take(orjson.loads(line), at, len(line), found, gone)
                    at += len(line)
        except (ValueError, LookupError, TypeError) as error:
            raise BrokenExport(f"{self._file}, at byte {at}: this is no line of an export ({error}).") from error
        if not line.startswith(END):
            raise BrokenExport(f"{self._file} broke off: its last line is missing. Export the user again.")
        return sorted(each for each in found if each.message_id not in gone)

    def _take(self, told: dict[str, Any], at: int, size: int, found: list[_Place], gone: set[str]) -> None:
        if "export" in told:
            self._user = told["export"]["user"]
            return
        if "end" in told:
            return
        table, row = told["table"], told["row"]
        if table == "sessions":
            self._sessions[row["session_id"]] = row["external_id"] or ""
        elif table == "suppressions" and row["reason"] not in STILL_SAID:
            gone.add(row["item_id"])
        if table == IN_SPACES and row["kind"] == "message":
            self._shared.append((at, size))
        elif table != "conversation_history":
            self.left_out[table] += 1
        elif row["role"] in ROLES and not row["hidden"]:
            place = (row["session_id"], row["turn_index"], row["sibling"], row["message_id"])
            found.append(_Place(*place, at, size))


# --- `mneme import` and `mneme export` -----------------------------------------------------------------------------------

PART_LINES = 5000
"""Lines sent at once: one answer every second or so, and what failed is told soon."""
TIMEOUT_S = 300.0
"""Seconds for the answer to one part of an import, and between two parts of an export."""
TOTALS = ("imported", "duplicates", "sessions", "users")


class ImportFailed(MnemeError):
    """The import failed."""


def _parts(lines: Iterable[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """(number of the first line, lines)."""
    part: list[bytes] = []
    first = 1
    for number, line in enumerate(lines, start=1):
        part.append(line)
        if len(part) >= PART_LINES:
            yield first, part
            first, part = number + 1, []
    if part:
        yield first, part


@contextmanager
def _messages(file: Path) -> Iterator[tuple[int, Iterable[bytes]]]:
    """How many lines are to be sent, and these: a file's own, or the messages of an export. Raises BrokenExport."""
    if Exported.is_one(file):
        exported = Exported(file)
        yield len(exported), exported.lines()
        return
    with file.open("rb") as lines:
        count = sum(1 for _ in lines)
        lines.seek(0)
        yield count, lines


def send_file(file: Path, base: str, key: str | None) -> dict[str, int]:
    """Import `file`, JSON lines of messages or a user's whole export, into the Mneme at `base`. Returns the totals. Raises
    ImportFailed with the line that is wrong, BrokenExport."""
    headers = {"content-type": "application/x-ndjson"}
    if key is not None:
        headers["x-mneme-key"] = key
    totals = dict.fromkeys(TOTALS, 0)
    columns = (TextColumn("importing"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with (
        _messages(file) as (count, lines),
        httpx.Client(base_url=base, headers=headers, timeout=TIMEOUT_S) as client,
        Progress(*columns, console=Console(stderr=True)) as progress,
    ):
        task = progress.add_task("import", total=count)
        for first, part in _parts(lines):
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


class ExportFailed(MnemeError):
    """The export failed."""


def fetch_user(user: str, base: str, key: str | None, out: Path | None, *, messages: bool) -> int:
    """Write the export of `user` from the Mneme at `base` to `out` (None: standard output); how many lines. A file is only
    there once it is whole. Raises ExportFailed, also for an export that broke off."""
    headers = {"x-mneme-key": key} if key is not None else {}
    path = f"/api/v1/users/{quote(user, safe='')}/export"
    columns = (TextColumn("exporting"), DownloadColumn(), TransferSpeedColumn())
    seen = _Seen()
    with (
        _target(out) as file,
        httpx.Client(base_url=base, headers=headers, timeout=TIMEOUT_S) as client,
        Progress(*columns, console=Console(stderr=True)) as progress,
    ):
        task = progress.add_task("export", total=None)
        try:
            with client.stream("GET", path, params={"part": "messages" if messages else "all"}) as answer:
                if answer.status_code != 200:
                    answer.read()
                    raise ExportFailed(f"{base} refused: {_reason(answer)}")
                for chunk in answer.iter_bytes():
                    file.write(chunk)
                    seen.add(chunk)
                    progress.advance(task, len(chunk))
        except httpx.HTTPError as error:
            raise ExportFailed(f"{base} cannot be reached, or broke off: {error}. Is `mneme serve` running?") from error
        if not messages and seen.last != END:
            raise ExportFailed("The export broke off: its last line is missing. Try again.")
    return seen.lines


class _Seen:
    """The lines so far: how many, and how the last whole one begins."""

    def __init__(self) -> None:
        self.lines = 0
        self.last = b""
        self._begun = b""

    def add(self, chunk: bytes) -> None:
        """Some further bytes, wherever they are cut."""
        for n, piece in enumerate(chunk.split(b"\n")):
            if n:
                self.lines += 1
                self.last, self._begun = self._begun, b""
            self._begun = (self._begun + piece[: len(END)])[: len(END)]


@contextmanager
def _target(out: Path | None) -> Iterator[IO[bytes]]:
    if out is None:
        yield sys.stdout.buffer
        return
    part = out.with_name(out.name + ".part")
    try:
        with part.open("wb") as file:
            yield file
        part.replace(out)
    except OSError as error:
        raise ExportFailed(f"{out} cannot be written: {error}.") from error
    finally:
        part.unlink(missing_ok=True)


def _reason(answer: httpx.Response, first: int = 1) -> str:
    """Why it was refused; of an import, a part that begins with line `first` of the file."""
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
    """Import past conversations (JSON lines) into a running Mneme.

    Of what `mneme export` wrote, the messages are read.
    """
    result = send_file(file, base or base_of(load_settings()), key)
    show(
        result,
        as_json,
        lambda: click.echo(f"{result['imported']} messages imported, {result['duplicates']} were there already."),
    )


@click.command()
@click.option("--user", required=True, help="The user, as the application calls them.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="A file; else standard output.")
@click.option("--messages", is_flag=True, help="Only the messages, as `mneme import` takes them.")
@click.option("--base", help="A running Mneme; by default the one at MNEME_HOST and MNEME_PORT.")
@click.option("--key", help="A Mneme key, where the server asks for one.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON; with --out.")
@failing_clearly
def export(user: str, out: Path | None, messages: bool, base: str | None, key: str | None, as_json: bool) -> None:
    """Export everything that is stored of a user, as JSON lines."""
    if as_json and out is None:
        raise click.UsageError("--json needs --out: standard output has the export.")
    lines = fetch_user(user, base or base_of(load_settings()), key, out, messages=messages)
    if out is not None:
        show({"lines": lines, "file": str(out)}, as_json, lambda: click.echo(f"{lines} lines in {out}."))


# --- `mneme capture` -----------------------------------------------------------------------------------------------------

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
        for names, part in _cassette_parts(cassettes):
            try:
                answer = client.post(PATH, content=b"\n".join(part))
            except httpx.HTTPError as error:
                raise CaptureFailed(f"{base} cannot be reached: {error}. Is `mneme serve` running?") from error
            if answer.status_code != 200:
                raise CaptureFailed(f"{base} refused a part ({names[0]} to {names[-1]}): {_reason(answer)}")
            done: Mapping[str, int] = answer.json()
            totals = {name: count + done[name] for name, count in totals.items()}
    return totals


def _cassette_parts(cassettes: Sequence[Cassette]) -> Iterator[tuple[list[str], list[bytes]]]:
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


@click.group()
def capture() -> None:
    """Export captured calls as cassettes, and import them."""


@capture.command("export")
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
def capture_export(
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
def capture_import(
    cassettes: tuple[Path, ...], user: str | None, base: str | None, key: str | None, as_json: bool
) -> None:
    """Put CASSETTES (files, or folders of them) into a running Mneme, as calls to be read and replayed. Nothing is learned
    from them. A call that is there is left alone."""
    done = import_cassettes(cassettes, user, base or base_of(load_settings()), key)
    show(done, as_json, lambda: click.echo(f"{done['imported']} calls imported, {done['skipped']} skipped."))
