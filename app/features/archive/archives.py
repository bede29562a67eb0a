"""Old months of history in files: archived, restored, dropped, and erased from.

    detach     a month's partition stands by itself, in an instant, under a short lock
    leave      its messages leave the indexes, in batches; what was learned from them stays, and says that they are archived
    write      its rows go into a file (`Sink`), synced and named by its checksum
    drop       the file's checksum is noted and the table dropped, in one transaction, in which nobody can change either

A crash between any two leaves the rows in exactly one place that counts: the table until it is dropped, then the file. The
next run goes on. A message that was restored is `is_pruned`, and marked so in its metadata, unless it is wanted in prompts.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import logging
import os
import re
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from hmac import digest
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import asyncpg
import click
import msgspec
from msgspec import Struct, field

from app.clock import Clock, SystemClock
from app.console import failing_clearly, load_settings, show, with_database
from app.errors import Conflict, NotFound, NotReady, StoreUnavailable
from app.features import Finding, sync, writable
from app.features.archive import HistoryArchives
from app.settings import Settings
from app.store import ids
from app.store.erasure import own_connection
from app.store.pools import OWNER_ROLE
from app.store.queries import Queries
from app.store.retention import MB

log = logging.getLogger(__name__)

# --- files ---------------------------------------------------------------------------------------------------------------

LEVEL = 6
"""gzip's own default."""
PIECE = 1 << 20
"""Bytes read at once."""
UNDONE = ".part"
"""Ends the name of a file that is being written."""
NAMED = 16
"""Hexadecimal digits of the SHA-256 in a file's name."""


class Written(Struct, frozen=True):
    """A file of an archive. `file`: its path under the folder; `size`: its bytes."""

    file: str
    rows: int
    size: int
    sha256: bytes


class _Who(Struct, frozen=True):
    """Of a row, whose it is and what it said."""

    user_id: UUID
    tenant_id: UUID
    content_hash: str | None = None


_read_who = msgspec.json.Decoder(_Who).decode


class Sink:
    """A file that is being written, as `with` block; `done` gives it its name."""

    def __init__(self, folder: Path, part: str) -> None:
        self._folder, self._part = folder, part
        self._rows = 0

    def __enter__(self) -> Sink:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._path = self._folder / f"{self._part}{UNDONE}"
        self._raw = open(self._path, "wb")
        # Without name and time: the same rows are the same file.
        self._gzip = gzip.GzipFile("", "wb", LEVEL, self._raw, mtime=0)
        return self

    def write(self, lines: bytes) -> None:
        """Some lines, whole or not."""
        self._rows += lines.count(b"\n")
        self._gzip.write(lines)

    def done(self) -> Written:
        """On the disk, under its name."""
        self._gzip.close()
        self._raw.flush()
        os.fsync(self._raw.fileno())
        digest = digest_of(self._path)
        path = self._folder / f"{self._part}.{digest.hex()[:NAMED]}.jsonl.gz"
        os.replace(self._path, path)
        _sync(self._folder)
        return Written(f"{self._folder.name}/{path.name}", self._rows, path.stat().st_size, digest)

    def __exit__(self, *_: object) -> None:
        self._gzip.close()
        self._raw.close()
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()


def lines_of(path: Path) -> Iterator[bytes]:
    """The rows of a file, each with its newline."""
    with gzip.open(path, "rb") as stream:
        yield from stream


def digest_of(path: Path) -> bytes:
    whole = hashlib.sha256()
    with open(path, "rb") as stream:
        while piece := stream.read(PIECE):
            whole.update(piece)
    return whole.digest()


def without_user(path: Path, part: str, tenant: UUID, user: UUID) -> tuple[Written, list[bytes]] | None:
    """Write the file again without a user's rows, beside the old one; with the content hashes of those. None: it has no row of
    them, and stays."""
    mark = str(user).encode()
    # Most files have nothing of a user: a look at the bytes is ten times as fast as to read every row.
    if not any(mark in line for line in lines_of(path)):
        return None
    hashes: list[bytes] = []
    with Sink(path.parent, part) as sink:
        gone = 0
        for line in lines_of(path):
            if mark in line and (who := _read_who(line)).user_id == user and who.tenant_id == tenant:
                gone += 1
                if who.content_hash is not None:
                    hashes.append(bytes.fromhex(who.content_hash.removeprefix("\\x")))
            else:
                sink.write(line)
        return (sink.done(), hashes) if gone else None


def write_manifest(folder: Path, month: str, table: str, files: Sequence[Written]) -> None:
    """A month's, in place of the one before, for those who check files without the database: `sha256` as `sha256sum` has it."""
    told = [
        {"file": Path(each.file).name, "rows": each.rows, "bytes": each.size, "sha256": each.sha256.hex()}
        for each in files
    ]
    manifest = {"format": 1, "table": table, "month": month, "files": told}
    text = msgspec.json.format(msgspec.json.encode(manifest))
    undone = folder / f"manifest.json{UNDONE}"
    with open(undone, "wb") as stream:
        stream.write(text + b"\n")
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(undone, folder / "manifest.json")
    _sync(folder)


def take_away(folder: Path, part: str, but: str | None) -> int:
    """Remove the files of a part but the one in force; how many."""
    gone = 0
    for path in folder.glob(f"{part}.*"):
        if but is None or path.name != Path(but).name:
            path.unlink(missing_ok=True)
            gone += 1
    return gone


def _sync(folder: Path) -> None:
    with contextlib.suppress(OSError):  # of a mounted object store there is nothing to sync: it says so
        sync(folder)


# --- months --------------------------------------------------------------------------------------------------------------

Connection = asyncpg.Connection

TABLE = "conversation_history"
BATCH = 1000
"""Rows that leave the indexes, or come back, with one statement."""
STATEMENT_S = 600.0
"""Longest statement, seconds; the longest writes the rows of one part."""
LOCK_MS = 200
"""Milliseconds to wait for the lock under which a part is detached or made: recording waits behind it."""
LOCK_TRIES = 20
LOCK_PAUSE_S = 0.5
"""Tries, and seconds between them; then the part waits for the next run."""
COUNTED = 1000
"""Messages without a month's partition that are counted at most."""
CSV: Mapping[str, Any] = {"format": "csv", "delimiter": "\x01", "quote": "\x02", "escape": "\x02"}
"""COPY's form in which JSON stands as it is: it has no control characters."""


class ArchivePolicy(Struct, frozen=True):
    """How long history stays. `folder`: where archives are. `days`: from this age on whole months are archived; `archive_days`:
    from this age on archives are dropped; None: never."""

    folder: Path
    days: int | None = None
    archive_days: int | None = None


class ArchivePart(Struct, frozen=True):
    """A month of one hash partition, as `history_archives` has it."""

    part: str
    month: str
    remainder: int
    state: str
    file: str | None
    rows: int | None
    size: int | None
    sha256: bytes | None
    changed_at: datetime

    @property
    def written(self) -> Written:
        """Its file. Of an archived one."""
        assert self.file is not None
        assert self.rows is not None
        assert self.size is not None
        assert self.sha256 is not None
        return Written(self.file, self.rows, self.size, self.sha256)


class ArchiveRun(Struct):
    """What a run did. `months`: archived, or restored, or due if it was only asked; `rows`: messages that went to files or came
    back; `size`: bytes of files; `dropped`: archives whose time was over; `busy`: parts that could not be locked."""

    months: list[str] = field(default_factory=list)
    rows: int = 0
    size: int = 0
    dropped: int = 0
    busy: int = 0


class Archives:
    """Archives, restores and drops months of history. Each as mneme_owner, one at a time."""

    def __init__(self, sql: Queries, keep: ArchivePolicy) -> None:
        self._sql = sql
        self._keep = keep

    async def run(
        self, connection: Connection[Any], now: datetime, *, month: str | None = None, dry: bool = False
    ) -> ArchiveRun:
        """What is due: unfinished parts, months past `days` (or `month`, whatever its age, that has ended), files past
        `archive_days`. Raises Conflict while another run is at it, OSError where the folder cannot be written."""
        if month is not None and month >= _month_of(now):
            raise Conflict(f"The month {spelled(month)} has not ended.")
        done = ArchiveRun()
        async with self._alone(connection):
            for each in await parts_in(connection, self._sql, "detached", None):
                if not dry:
                    await self._write(connection, each, now, done)
            last = month or self._last(now, self._keep.days)
            for row in await connection.fetch(self._sql["archives.due"], last, month) if last else []:
                # A part that never left.
                part = ArchivePart(**row, state="", file=None, rows=None, size=None, sha256=None, changed_at=now)
                if dry or await self._archive(connection, part, now, done):
                    _add(done.months, row["month"])
            if (before := self._last(now, self._keep.archive_days)) is not None:
                for each in await parts_in(connection, self._sql, "archived", None):
                    if each.month <= before:
                        done.dropped += 1
                        if not dry:
                            await self._drop(connection, each, now)
        return done

    async def restore(self, connection: Connection[Any], month: str, now: datetime, *, active: bool) -> ArchiveRun:
        """Make a month's files rows again, each in one transaction; `active`: also in prompts and searches. Raises NotFound
        where no file of that month is known, Conflict where one is not as it was written, or the tables are in use."""
        done = ArchiveRun()
        async with self._alone(connection):
            found = await self._archived(connection, month)
            folder = await self.folder(connection)
            for each in found:
                await asyncio.to_thread(_check, folder, each)
            for each in found:
                await self._restore(connection, folder, each, now, done, active=active)
            _add(done.months, month)
        return done

    async def drop(self, connection: Connection[Any], month: str, now: datetime) -> ArchiveRun:
        """Give a month's archive up, whether its files are there or lost: nothing of it comes back, and no erasure waits for
        it any more. Raises NotFound where no file of that month is known."""
        done = ArchiveRun()
        async with self._alone(connection):
            for each in await self._archived(connection, month):
                await self._drop(connection, each, now)
                done.dropped += 1
                done.rows += each.written.rows
                done.size += each.written.size
        _add(done.months, month)
        return done

    async def known(self, connection: Connection[Any], *, check: bool = False) -> list[tuple[ArchivePart, str]]:
        """Every part that ever left, with what is wrong with its file, if anything is. `check`: its checksum is compared."""
        folder = await self.folder(connection)
        found = await parts_in(connection, self._sql, None, None)
        return [(each, await asyncio.to_thread(_wrong_with, folder, each, check)) for each in found]

    async def folder(self, connection: Connection[Any]) -> Path:
        """Where this database's archives are."""
        own: str = await connection.fetchval(self._sql["archives.folder"])
        return self._keep.folder / own

    async def beyond(self, connection: Connection[Any]) -> int:
        """Messages that no month has a partition for, and so are never archived; `COUNTED` says that there are more."""
        counted: int = await connection.fetchval(self._sql["archives.in_default"], COUNTED, timeout=STATEMENT_S)
        return counted

    # --- steps ---------------------------------------------------------------------------------------------------------

    async def _archive(self, connection: Connection[Any], part: ArchivePart, now: datetime, done: ArchiveRun) -> bool:
        """False: its lock was not to be had."""
        folder = await self.folder(connection)
        await asyncio.to_thread(
            folder.mkdir, parents=True, exist_ok=True
        )  # rather fail here than with the month half gone
        if not await self._briefly(connection, "detach", part.part, part.month, part.remainder, now):
            done.busy += 1
            return False
        await self._write(connection, part, now, done)
        return True

    async def _write(self, connection: Connection[Any], part: ArchivePart, now: datetime, done: ArchiveRun) -> None:
        """Write a part that stands by itself into its file, and drop it."""
        user: UUID | None = ids.NIL
        message: UUID | None = ids.NIL
        while user is not None:
            row = await self._row(connection, "leave_index", part.part, BATCH, user, message)
            user, message = row["p_user"], row["p_message"]
        async with _month(connection, self._sql, part.month):
            written = await self._write_file(connection, part, now)
            await self._tidy(connection, part)
        done.rows += written.rows
        done.size += written.size
        _add(done.months, part.month)

    async def _write_file(self, connection: Connection[Any], part: ArchivePart, now: datetime) -> Written:
        folder = await self.folder(connection) / part.month
        async with connection.transaction():
            # Nobody erases from it until it is in the file; then from there.
            await connection.execute(f'LOCK TABLE agent_data."{part.part}" IN SHARE MODE', timeout=STATEMENT_S)
            with Sink(folder, part.part) as sink:

                async def take(lines: bytes) -> None:
                    await asyncio.to_thread(sink.write, lines)

                rows = f'SELECT row_to_json(h) FROM agent_data."{part.part}" h ORDER BY user_id, created_at, message_id'  # noqa: S608
                await connection.copy_from_query(rows, output=take, timeout=STATEMENT_S, **CSV)
                written = await asyncio.to_thread(sink.done)
            arguments = (written.file, written.rows, written.size, written.sha256)
            await connection.execute(self._sql["archives.written"], part.part, *arguments, now, timeout=STATEMENT_S)
        return written

    async def _restore(
        self,
        connection: Connection[Any],
        folder: Path,
        part: ArchivePart,
        now: datetime,
        done: ArchiveRun,
        *,
        active: bool,
    ) -> None:
        first = date(int(part.month[:4]), int(part.month[4:]), 1)
        if not await self._briefly(connection, "months_anew", first):
            raise Conflict(f"The history is in use: {spelled(part.month)} is restored in part. Ask again.")
        if not await connection.fetchval(self._sql["archives.is_partition"], part.part):
            raise Conflict(
                f"Other messages of {spelled(part.month)} came meanwhile, and stand in no month's partition."
            )
        async with _month(connection, self._sql, part.month):
            async with connection.transaction():
                held = ArchivePart(**await self._row(connection, "held", part.part))
                if held.file is None:
                    return
                lines = lines_of(folder / held.file)
                while some := await asyncio.to_thread(lambda: [line.decode() for line in islice(lines, BATCH)]):
                    rows = await connection.fetchval(self._sql["archives.restore"], some, active, timeout=STATEMENT_S)
                    done.rows += rows
                await connection.execute(self._sql["archives.no_file"], part.part, "restored", now)
            await self._tidy(connection, part)
        done.size += part.size or 0

    async def _drop(self, connection: Connection[Any], part: ArchivePart, now: datetime) -> None:
        async with _month(connection, self._sql, part.month):
            await connection.execute(self._sql["archives.no_file"], part.part, "dropped", now)
            await self._tidy(connection, part)

    async def _tidy(self, connection: Connection[Any], part: ArchivePart) -> None:
        await tidy(connection, self._sql, await self.folder(connection), part)

    async def _briefly(self, connection: Connection[Any], name: str, *arguments: object) -> bool:
        """Run what needs a lock that others wait behind. False: it was not to be had."""
        for attempt in range(LOCK_TRIES):
            if attempt:
                await asyncio.sleep(LOCK_PAUSE_S)
            try:
                async with connection.transaction():
                    await connection.execute(self._sql["archives.hurry"], f"{LOCK_MS}ms")
                    await connection.execute(self._sql[f"archives.{name}"], *arguments, timeout=STATEMENT_S)
                return True
            except asyncpg.LockNotAvailableError:
                continue
        log.warning("a month of history is in use and could not be moved", extra={"part": str(arguments[0])})
        return False

    async def _row(self, connection: Connection[Any], name: str, *arguments: object) -> Any:
        row = await connection.fetchrow(self._sql[f"archives.{name}"], *arguments, timeout=STATEMENT_S)
        assert row is not None, "a function has one row, and parts stay known"
        return row

    async def _archived(self, connection: Connection[Any], month: str) -> list[ArchivePart]:
        if found := await parts_in(connection, self._sql, "archived", month):
            return found
        raise NotFound(f"Nothing of {spelled(month)} is archived.")

    def _last(self, now: datetime, days: int | None) -> str | None:
        """The last month that ended before so many days; None: never."""
        if days is None:
            return None
        first = (now - timedelta(days=days)).astimezone(UTC).replace(day=1)
        return _month_of(first - timedelta(days=1))

    @asynccontextmanager
    async def _alone(self, connection: Connection[Any]) -> AsyncIterator[None]:
        if not await connection.fetchval(self._sql["archives.alone"]):
            raise Conflict("History is being archived or restored already.")
        try:
            yield
        finally:
            if not connection.is_closed():
                await connection.execute(self._sql["archives.alone_no_more"])


# --- erasing a user ------------------------------------------------------------------------------------------------------


def erasing(
    keep: ArchivePolicy, connect: Callable[[], Awaitable[Connection[Any]]], sql: Queries, clock: Clock
) -> Callable[[UUID, UUID], Awaitable[Mapping[str, int]]]:
    """Erases a user from archives, for `Eraser`. `connect`: as mneme_eraser. Raises NotReady where a file cannot be had: the
    erasure goes on where the folder is."""

    async def erase(tenant: UUID, user: UUID) -> Mapping[str, int]:
        connection = await connect()
        try:
            await connection.execute(sql["erasure.set_tenant"], str(tenant))
            rows = 0
            for row in await connection.fetch(sql["archives.of_user"], user):
                async with _month(connection, sql, row["month"]):
                    held = await connection.fetchrow(sql["archives.held"], row["part"])
                    assert held is not None, "parts stay known"
                    part = ArchivePart(**held)
                    if part.state == "detached":
                        rows += await _from_table(connection, sql, part, tenant, user)
                    elif part.state == "archived":
                        rows += await _from_file(connection, sql, keep, part, tenant, user, clock.now())
            return {"archives": rows}
        except (OSError, EOFError, zlib.error, msgspec.DecodeError) as error:
            raise NotReady(
                f"The user cannot be erased from the archives: {error}. The erasure goes on when asked again, or "
                "by the worker's schedule, where MNEME_ARCHIVE_DIR is. Lost archives are given up with mneme archive drop."
            ) from error
        finally:
            connection.terminate()

    return erase


async def _from_table(connection: Connection[Any], sql: Queries, part: ArchivePart, tenant: UUID, user: UUID) -> int:
    total = 0
    while gone := await connection.fetchval(sql["erasure.rows"], tenant, user, part.part, BATCH, timeout=STATEMENT_S):
        total += gone
    return total


async def _from_file(
    connection: Connection[Any],
    sql: Queries,
    keep: ArchivePolicy,
    part: ArchivePart,
    tenant: UUID,
    user: UUID,
    now: datetime,
) -> int:
    folder = keep.folder / await connection.fetchval(sql["archives.folder"])
    gone = 0
    async with connection.transaction():
        row = await connection.fetchrow(sql["archives.held"], part.part)
        assert row is not None, "parts stay known"
        held = ArchivePart(**row)
        if held.state == "archived":
            path = folder / held.written.file
            if wrong := await asyncio.to_thread(_wrong_with, folder, held, True):
                raise OSError(f"{path} {wrong}")  # a file that somebody changed gets no new checksum
            found = await asyncio.to_thread(without_user, path, part.part, tenant, user)
            if found is not None:
                new, hidden = found
                gone = held.written.rows - new.rows
                key = await connection.fetchval(sql["archives.tombstones"], user)
                if key is not None:
                    marks = sorted({digest(bytes.fromhex(key), each, "sha256") for each in hidden})
                    await connection.execute(sql["archives.mark"], tenant, user, marks)
                arguments = (new.file, new.rows, new.size, new.sha256, now)
                await connection.execute(sql["archives.rewritten"], part.part, *arguments)
    # Also where nothing was found: a crash may have left the file of before.
    await tidy(connection, sql, folder, part)
    return gone


@asynccontextmanager
async def _month(connection: Connection[Any], sql: Queries, month: str) -> AsyncIterator[None]:
    """A month's files are nobody else's: which of them is in force stays so until those that are not are gone."""
    await connection.execute(sql["archives.lock_month"], month, timeout=STATEMENT_S)
    try:
        yield
    finally:
        if not connection.is_closed():
            await connection.execute(sql["archives.unlock_month"], month)


async def tidy(connection: Connection[Any], sql: Queries, folder: Path, part: ArchivePart) -> None:
    """Take away what is no part's file any more, and tell in the manifest what is. Within `_month`."""
    rows = await parts_in(connection, sql, "archived", part.month)
    now = next((each.file for each in rows if each.part == part.part), None)
    place = folder / part.month
    if not place.is_dir():
        return
    await asyncio.to_thread(take_away, place, part.part, now)
    await asyncio.to_thread(write_manifest, place, spelled(part.month), TABLE, [each.written for each in rows])


async def parts_in(
    connection: Connection[Any], sql: Queries, state: str | None, month: str | None
) -> list[ArchivePart]:
    return [ArchivePart(**row) for row in await connection.fetch(sql["archives.in_state"], state, month)]


def spelled(month: str) -> str:
    """202501 as 2025-01."""
    return f"{month[:4]}-{month[4:]}"


def _check(folder: Path, part: ArchivePart) -> None:
    if wrong := _wrong_with(folder, part, True):
        raise Conflict(f"{folder / part.written.file} {wrong}: nothing was restored.")


def _wrong_with(folder: Path, part: ArchivePart, whole: bool) -> str:
    if part.state != "archived":
        return ""
    path = folder / part.written.file
    try:
        if path.stat().st_size != part.size or (whole and digest_of(path) != part.sha256):
            return "is not as it was written"
    except FileNotFoundError:
        return "is not there"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return ""


def _month_of(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y%m")


def _add(months: list[str], month: str) -> None:
    if spelled(month) not in months:
        months.append(spelled(month))


# --- `mneme doctor` ------------------------------------------------------------------------------------------------------


async def findings(settings: Settings, archives: Archives, connection: asyncpg.Connection[Any]) -> list[Finding]:
    """Files of months that are archived, and what never will be. `connection`: as mneme_owner."""
    known = await archives.known(connection)
    folder = settings.archive_folder.absolute()
    found = []
    if settings.history_days is not None and not writable(folder):
        mend = "Set MNEME_ARCHIVE_DIR to a folder that this user may write to."
        found.append(Finding("error", f"Archives of history cannot be written ({folder}).", mend))
    found += [
        Finding("error", f"The archive {part.file} {wrong} ({folder}).", "Bring it back from a copy of the folder.")
        for part, wrong in known
        if wrong
    ]
    if any(part.state == "detached" for part, _ in known):
        told = "A month of history stands between its table and its archive."
        found.append(Finding("warning", told, "Run `mneme archive run`; the worker does so once a day."))
    beyond = await archives.beyond(connection) if settings.history_days is not None else 0
    if beyond:
        told = f"{beyond if beyond < COUNTED else f'{COUNTED} or more'} messages are of months that have no partition"
        found.append(Finding("warning", f"{told}: they are not archived.", "They were imported; they stay."))
    archived = [part for part, _ in known if part.state == "archived"]
    if archived and not any(each.level == "error" for each in found):
        size = sum(part.size or 0 for part in archived)
        months = len({part.month for part in archived})
        found.append(Finding("ok", f"{months} months of history are archived ({size / MB:,.0f} MB in {folder})."))
    return found


# --- `mneme archive` -----------------------------------------------------------------------------------------------------

T = TypeVar("T")
_MONTH = re.compile(r"\d{4}-(0[1-9]|1[0-2])")


def _month_option(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not _MONTH.fullmatch(value):
        raise click.BadParameter(f"{value!r} is no month, such as 2026-01.")
    return None if value is None else value.replace("-", "")


def _with_archives(work: Callable[[Archives, Connection[Any], datetime], Awaitable[T]]) -> T:
    settings = load_settings()

    async def run(dsn: str) -> T:
        try:
            connection = await own_connection(settings.direct(dsn), OWNER_ROLE)()
            try:
                archives = HistoryArchives(settings).archives(Queries.load())
                return await work(archives, connection, SystemClock().now())
            finally:
                connection.terminate()
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise StoreUnavailable(
                f"This did not come to its end: {error}. It can be run again, and goes on."
            ) from error

    return with_database(settings, run)


@click.group()
def archive() -> None:
    """Old months of history: put into files, listed, and restored."""


@archive.command()
@click.option("--month", callback=_month_option, help="Only this month (2026-01), however young: it must have ended.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@failing_clearly
def run(month: str | None, dry_run: bool, as_json: bool) -> None:
    """Archive months past MNEME_HISTORY_DAYS and drop archives past MNEME_ARCHIVE_DAYS, as the worker does by itself."""
    done = _with_archives(lambda archives, connection, now: archives.run(connection, now, month=month, dry=dry_run))
    are = "would be" if dry_run else "were"

    def text() -> None:
        click.echo(f"{len(done.months)} months {are} archived{': ' if done.months else ''}{', '.join(done.months)}.")
        if not dry_run:
            click.echo(f"{done.rows} messages are in files of {done.size / MB:.1f} MB.")
        if done.dropped:
            click.echo(f"{done.dropped} files {are} dropped.")
        if done.busy:
            click.echo(f"{done.busy} partitions were in use, and wait for the next run.")

    show(msgspec.structs.asdict(done) | {"dry_run": dry_run}, as_json, text)


@archive.command("list")
@click.option("--check", is_flag=True, help="Read every file, and compare its checksum.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@failing_clearly
def list_(check: bool, as_json: bool) -> None:
    """What is archived, was restored, or was dropped; fails where a file is not as it was written."""
    found = _with_archives(lambda archives, connection, _: archives.known(connection, check=check))
    data = [
        {
            "month": spelled(part.month),
            "part": part.part,
            "state": part.state,
            "file": part.file,
            "rows": part.rows,
            "bytes": part.size,
            "sha256": part.sha256.hex() if part.sha256 else None,
            "wrong": wrong or None,
        }
        for part, wrong in found
    ]

    def text() -> None:
        for month in dict.fromkeys(each["month"] for each in data):
            of = [each for each in data if each["month"] == month]
            states = ", ".join(sorted({str(each["state"]) for each in of}))
            rows = sum(part.rows or 0 for part, _ in found if spelled(part.month) == month)
            size = sum(part.size or 0 for part, _ in found if spelled(part.month) == month)
            click.echo(f"{month}  {states}: {rows} messages, {size / MB:.1f} MB")
        if not data:
            click.echo("Nothing is archived.")

    show(data, as_json, text)
    if wrong := [f"{part.file} {told}" for part, told in found if told]:
        raise click.ClickException("; ".join(wrong))


@archive.command()
@click.argument("month", callback=_month_option)
@click.option("--active", is_flag=True, help="Also into prompts and searches; then give them vectors: mneme reembed.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@failing_clearly
def restore(month: str, active: bool, as_json: bool) -> None:
    """Make the messages of a month (2026-01) rows again: in the history and exports, out of prompts and searches."""
    done = _with_archives(lambda archives, connection, now: archives.restore(connection, month, now, active=active))
    show(
        msgspec.structs.asdict(done) | {"active": active},
        as_json,
        lambda: click.echo(f"{done.rows} messages of {spelled(month)} are back."),
    )


@archive.command()
@click.argument("month", callback=_month_option)
@click.option("--yes", is_flag=True, help="Do not ask first.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@failing_clearly
def drop(month: str, yes: bool, as_json: bool) -> None:
    """Give up the archive of a month (2026-01): its files are deleted, or were lost, and its messages never come back."""
    if not yes:
        click.confirm(f"The archived messages of {spelled(month)} are gone for ever then. Go on?", abort=True)
    done = _with_archives(lambda archives, connection, now: archives.drop(connection, month, now))
    show(
        msgspec.structs.asdict(done),
        as_json,
        lambda: click.echo(f"{done.rows} messages of {spelled(month)} are gone, {done.dropped} files."),
    )
