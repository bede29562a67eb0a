"""`mneme archive run`, `list`, `restore` and `drop`: months of history in files."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import asyncpg
import click
import msgspec

from app.clock import SystemClock
from app.console import failing_clearly, load_settings, show, with_database
from app.errors import StoreUnavailable
from app.features.archive import HistoryArchives
from app.features.archive.archives import Archives, spelled
from app.store.erasure import own_connection
from app.store.pools import OWNER_ROLE
from app.store.queries import Queries

T = TypeVar("T")
_MONTH = re.compile(r"\d{4}-(0[1-9]|1[0-2])")
_PER_MB = 1e6


def _month(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not _MONTH.fullmatch(value):
        raise click.BadParameter(f"{value!r} is no month, such as 2026-01.")
    return None if value is None else value.replace("-", "")


def _with_archives(work: Callable[[Archives, asyncpg.Connection[Any]], Awaitable[T]]) -> T:
    settings = load_settings()

    async def run(dsn: str) -> T:
        try:
            connection = await own_connection(settings.direct(dsn), OWNER_ROLE)()
            try:
                return await work(HistoryArchives(settings).archives(Queries.load()), connection)
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
@click.option("--month", callback=_month, help="Only this month (2026-01), however young: it must have ended.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@failing_clearly
def run(month: str | None, dry_run: bool, as_json: bool) -> None:
    """Archive months past MNEME_HISTORY_DAYS and drop archives past MNEME_ARCHIVE_DAYS, as the worker does by itself."""
    now = SystemClock().now()
    done = _with_archives(lambda archives, connection: archives.run(connection, now, month=month, dry=dry_run))
    are = "would be" if dry_run else "were"

    def text() -> None:
        click.echo(f"{len(done.months)} months {are} archived{': ' if done.months else ''}{', '.join(done.months)}.")
        if not dry_run:
            click.echo(f"{done.rows} messages are in files of {done.size / _PER_MB:.1f} MB.")
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
    found = _with_archives(lambda archives, connection: archives.known(connection, check=check))
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
            click.echo(f"{month}  {states}: {rows} messages, {size / _PER_MB:.1f} MB")
        if not data:
            click.echo("Nothing is archived.")

    show(data, as_json, text)
    if wrong := [f"{part.file} {told}" for part, told in found if told]:
        raise click.ClickException("; ".join(wrong))


@archive.command()
@click.argument("month", callback=_month)
@click.option("--active", is_flag=True, help="Also into prompts and searches; then give them vectors: mneme reembed.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@failing_clearly
def restore(month: str, active: bool, as_json: bool) -> None:
    """Make the messages of a month (2026-01) rows again: in the history and exports, out of prompts and searches."""
    now = SystemClock().now()
    done = _with_archives(lambda archives, connection: archives.restore(connection, month, now, active=active))
    show(
        msgspec.structs.asdict(done) | {"active": active},
        as_json,
        lambda: click.echo(f"{done.rows} messages of {spelled(month)} are back."),
    )


@archive.command()
@click.argument("month", callback=_month)
@click.option("--yes", is_flag=True, help="Do not ask first.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@failing_clearly
def drop(month: str, yes: bool, as_json: bool) -> None:
    """Give up the archive of a month (2026-01): its files are deleted, or were lost, and its messages never come back."""
    if not yes:
        click.confirm(f"The archived messages of {spelled(month)} are gone for ever then. Go on?", abort=True)
    now = SystemClock().now()
    done = _with_archives(lambda archives, connection: archives.drop(connection, month, now))
    show(
        msgspec.structs.asdict(done),
        as_json,
        lambda: click.echo(f"{done.rows} messages of {spelled(month)} are gone, {done.dropped} files."),
    )
