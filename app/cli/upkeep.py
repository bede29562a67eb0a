"""`mneme migrate`, `mneme sweep`, `mneme retention` and `mneme erase`: what is done to the database by hand."""

from __future__ import annotations

import asyncpg
import click
import msgspec
from rich.console import Console

from app.clock import SystemClock
from app.console import failing_clearly, load_settings, show, with_database
from app.errors import StoreUnavailable
from app.features import load
from app.server.core import prepare_database
from app.server.worker import capture_limits, eraser_of, schedule
from app.settings import Settings
from app.store import ids
from app.store.erasure import Progress, Receipt, own_connection
from app.store.pools import OWNER_ROLE
from app.store.queries import Queries
from app.store.retention import Retention, RetentionRun


async def run_task(settings: Settings, dsn: str, name: str) -> int:
    """Run a task of the schedule now; what it changed. Raises NotFound, StoreUnavailable."""
    try:
        return await schedule(settings, load(settings), dsn, Queries.load(), SystemClock()).sweep(name)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise StoreUnavailable(f"The sweep did not come to its end: {error}. It can be run again.") from error


async def retain(settings: Settings, dsn: str, *, dry: bool) -> RetentionRun:
    """Drop what the settings say is over. Raises StoreUnavailable."""
    try:
        connection = await own_connection(settings.direct(dsn), OWNER_ROLE)()
        try:
            return await Retention(Queries.load(), capture_limits(settings)).run(
                connection, SystemClock().now(), dry=dry
            )
        finally:
            connection.terminate()
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise StoreUnavailable(f"The captures could not be dropped: {error}. It can be run again.") from error


async def erase_user(
    settings: Settings, dsn: str, tenant: str, user: str, *, tombstones: bool, progress: Progress
) -> Receipt:
    """Erase a user of the tenant of that name. Raises NotFound, Conflict, StoreUnavailable."""
    eraser = eraser_of(settings, load(settings), settings.direct(dsn), Queries.load(), SystemClock())
    owner = await eraser.tenant(tenant)
    return await eraser.erase(owner, ids.user_id(owner, user), external=user, tombstones=tombstones, progress=progress)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@failing_clearly
def migrate(as_json: bool) -> None:
    """Bring the database up to date."""

    settings = load_settings()
    done: list[str] = []
    console = Console(stderr=True)
    with console.status("migrating …") as status:

        def progress(name: str) -> None:
            done.append(name)
            status.update(f"applied {name}")

        with_database(settings, lambda dsn: prepare_database(settings, dsn, progress))
    show({"applied": done}, as_json, lambda: click.echo(f"{len(done)} steps applied." if done else "Up to date."))


@click.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@failing_clearly
def sweep(name: str, as_json: bool) -> None:
    """Run one task of the schedule now: promotion, demotion, aging, decay, prune, expiry, …"""
    settings = load_settings()
    changed = with_database(settings, lambda dsn: run_task(settings, dsn, name))
    show({"sweep": name, "changed": changed}, as_json, lambda: click.echo(f"{name}: {changed} changed."))


@click.command()
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@failing_clearly
def retention(dry_run: bool, as_json: bool) -> None:
    """Drop captured calls past MNEME_CAPTURE_DAYS and MNEME_CAPTURE_MAX_GB, as the worker does by itself."""
    settings = load_settings()
    outcome = with_database(settings, lambda dsn: retain(settings, dsn, dry=dry_run))
    done = "would be" if dry_run else "were"
    what = f"{len(outcome.months)} months ({outcome.bytes} bytes) and {outcome.calls} further calls {done} dropped"

    def text() -> None:
        click.echo(f"Of the captures before {outcome.before}, {what}." if outcome.before else "All captures stay.")
        if outcome.collected:
            click.echo(f"{outcome.collected} rows that nothing referred to any more were collected.")

    show(msgspec.structs.asdict(outcome) | {"dry_run": dry_run}, as_json, text)


@click.command()
@click.option("--user", required=True, help="The user, as the application calls them.")
@click.option("--tenant", default="local", show_default=True, help="Name of the tenant.")
@click.option("--no-tombstones", is_flag=True, help="Keep no keyed hashes: what a client sends again is learned again.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@failing_clearly
def erase(user: str, tenant: str, no_tombstones: bool, as_json: bool) -> None:
    """Erase every trace of a user. It can be stopped, and goes on when it is asked for again."""

    settings = load_settings()
    console = Console(stderr=True)
    with console.status(f"erasing {user} …") as status:

        def progress(table: str, rows: int) -> None:
            status.update(f"{table}: {rows} rows")

        receipt = with_database(
            settings,
            lambda dsn: erase_user(settings, dsn, tenant, user, tombstones=not no_tombstones, progress=progress),
        )
    data = {
        "id": str(receipt.erasure_id),
        "tenant": str(receipt.tenant_id),
        "user_hash": receipt.user_hash.hex(),
        "tombstones": receipt.tombstones,
        "rows": receipt.rows,
        "tables": receipt.counts,
        "began_at": receipt.began_at,
        "finished_at": receipt.finished_at,
        "note": receipt.note,
    }

    def text() -> None:
        click.echo(f"{receipt.rows} rows erased (receipt {receipt.erasure_id}).")
        for table, rows in sorted(receipt.counts.items()):
            click.echo(f"  {table}: {rows}")
        click.echo(receipt.note)

    show(data, as_json, text)
