"""The commands. Each exits with 0, 1 (it failed) or 2 (wrong use), and prints JSON with `--json`."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import os
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from functools import wraps
from pathlib import Path
from tomllib import TOMLDecodeError
from typing import Any, TypeVar

import click
from pydantic import ValidationError
from pydantic_settings import SettingsError

from app import logs
from app.errors import MnemeError
from app.settings import Settings, unknown_names

T = TypeVar("T")


def load_settings(**given: Any) -> Settings:
    """The settings, with what the command line says on top. Wrong ones are wrong use."""
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        lines = [f"  MNEME_{'_'.join(map(str, each['loc'])).upper()}: {each['msg']}" for each in error.errors()]
        raise click.UsageError("These settings are wrong:\n" + "\n".join(lines)) from error
    except SettingsError as error:
        raise click.UsageError(f"A setting is no JSON: {error}.") from error
    except TOMLDecodeError as error:
        raise click.UsageError(f"mneme.toml cannot be read: {error}.") from error


def show(data: Any, as_json: bool, text: Callable[[], None]) -> None:
    """Print `data` as JSON, or let `text` say it to a person."""
    if as_json:
        click.echo(json.dumps(data, default=str, indent=2))
    else:
        text()


def failing_clearly(command: Callable[..., T]) -> Callable[..., T]:
    """An error of Mneme's own is one line on standard error and exit code 1."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> T:
        try:
            return command(*args, **kwargs)
        except MnemeError as error:
            raise click.ClickException(error.message) from error

    return run


def with_database(settings: Settings, work: Callable[[str], Coroutine[Any, Any, T]]) -> T:
    """Run `work` with a DSN: the configured one, or the embedded server, started for as long as it takes."""
    from app.supervise import database

    with database(settings, lambda line: click.echo(line, err=True)) as dsn:
        return asyncio.run(work(dsn))


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="mneme-proxy", prog_name="mneme")
def main() -> None:
    """Mneme: an OpenAI-compatible proxy that remembers."""


@main.command()
@click.option("--host", help="Address to listen on (MNEME_HOST, 127.0.0.1).")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on (MNEME_PORT, 8080).")
@click.option("--workers", type=click.IntRange(1), help="Server processes (MNEME_WORKERS, 1).")
@click.option("--no-worker", is_flag=True, help="Do not start a job worker (MNEME_WORKER=off).")
@failing_clearly
def serve(host: str | None, port: int | None, workers: int | None, no_worker: bool) -> None:
    """Start the proxy, its worker and, without MNEME_DATABASE_URL, the embedded Postgres."""
    from app.gateway.redact import Redactor
    from app.main import prepare_database
    from app.supervise import database
    from app.supervise import serve as run

    settings = load_settings(host=host, port=port, workers=workers, worker="off" if no_worker else None)
    Redactor(settings.redact_paths)  # says what is wrong with them, before anything begins
    logs.set_up(settings.log_level, settings.log_format)
    log = logging.getLogger("mneme")
    for unknown in unknown_names(os.environ):
        log.warning(unknown.told)
    with database(settings, log.info) as dsn:
        asyncio.run(prepare_database(settings, dsn, lambda name: log.info("migrated", extra={"file": name})))
        run(settings, dsn)


@main.command()
@failing_clearly
def worker() -> None:
    """Run jobs until stopped: embeddings, extraction, the schedule."""
    from app.work import run_worker

    settings = load_settings()
    logs.set_up(settings.log_level, settings.log_format)
    asyncio.run(run_worker(settings))


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@failing_clearly
def migrate(as_json: bool) -> None:
    """Bring the database up to date."""
    from rich.console import Console

    from app.main import prepare_database

    settings = load_settings()
    done: list[str] = []
    console = Console(stderr=True)
    with console.status("migrating …") as status:

        def progress(name: str) -> None:
            done.append(name)
            status.update(f"applied {name}")

        with_database(settings, lambda dsn: prepare_database(settings, dsn, progress))
    show({"applied": done}, as_json, lambda: click.echo(f"{len(done)} steps applied." if done else "Up to date."))


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@failing_clearly
def doctor(as_json: bool) -> None:
    """Find what is wrong with this installation, and say how to mend it."""
    from app.doctor import examine

    findings = examine(load_settings())

    def text() -> None:
        for each in findings:
            mark = {"ok": "✓", "warning": "!", "error": "✗"}[each.level]
            click.echo(f"{mark} {each.what}")
            if each.mend:
                click.echo(f"    {each.mend}")

    show([vars_of(each) for each in findings], as_json, text)
    if any(each.level == "error" for each in findings):
        raise SystemExit(1)


def vars_of(finding: Any) -> dict[str, Any]:
    """A finding as JSON."""
    return {"level": finding.level, "what": finding.what, "mend": finding.mend}


@main.group()
def keys() -> None:
    """API keys."""


def _with_tenancy(settings: Settings, work: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
    from app.main import open_tenancy

    async def run(dsn: str) -> T:
        async with open_tenancy(settings, dsn) as tenancy:
            return await work(tenancy)

    return with_database(settings, run)


@keys.command("create")
@click.argument("name")
@click.option("--tenant", default="local", show_default=True, help="Name of the tenant; made if it is new.")
@click.option("--user", help="Make it a key for this one user.")
@click.option("--scope", "scopes", multiple=True, help="What it may do: read, write, proxy (default: all).")
@click.option("--days", type=click.IntRange(1), help="Days until it expires (default: never).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@failing_clearly
def keys_create(
    name: str, tenant: str, user: str | None, scopes: tuple[str, ...], days: int | None, as_json: bool
) -> None:
    """Make a key called NAME. It is shown once; only its hash is kept."""
    expires = datetime.now(UTC) + timedelta(days=days) if days is not None else None
    key, row = _with_tenancy(
        load_settings(), lambda tenancy: tenancy.create_key(tenant, name, user=user, expires_at=expires, scopes=scopes)
    )
    data = {"key": key, "id": str(row.key_id), "tenant": tenant, "name": name, "user": user, "expires_at": expires}
    show(data, as_json, lambda: click.echo(key))


@keys.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@failing_clearly
def keys_list(as_json: bool) -> None:
    """List all keys: never the keys themselves."""
    rows = _with_tenancy(load_settings(), lambda tenancy: tenancy.list_keys())
    data = [
        {
            "id": str(row.key_id),
            "tenant": str(row.tenant_id),
            "name": row.name,
            "hint": row.hint,
            "user": row.user_external_id,
            "scopes": list(row.scopes),
            "expires_at": row.expires_at,
            "revoked_at": row.revoked_at,
        }
        for row in rows
    ]

    def text() -> None:
        for each in data:
            state = "revoked" if each["revoked_at"] else f"until {each['expires_at']}" if each["expires_at"] else ""
            click.echo(f"{each['id']}  {each['hint']}…  {each['name']}  {each['user'] or ''}  {state}".rstrip())

    show(data, as_json, text)


@keys.command("revoke")
@click.argument("key_id", type=click.UUID)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@failing_clearly
def keys_revoke(key_id: Any, as_json: bool) -> None:
    """Revoke the key with this id (see `mneme keys list`)."""
    found = _with_tenancy(load_settings(), lambda tenancy: tenancy.revoke_key(key_id))
    if not found:
        raise click.ClickException(f"There is no key {key_id}; `mneme keys list` shows all.")
    show({"revoked": str(key_id)}, as_json, lambda: click.echo("Revoked."))


@main.command()
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@failing_clearly
def retention(dry_run: bool, as_json: bool) -> None:
    """Drop captured calls past MNEME_CAPTURE_DAYS and MNEME_CAPTURE_MAX_GB, as the worker does by itself."""
    from app.keeping import retain

    settings = load_settings()
    outcome = with_database(settings, lambda dsn: retain(settings, dsn, dry=dry_run))
    done = "would be" if dry_run else "were"
    what = f"{len(outcome.months)} months ({outcome.bytes} bytes) and {outcome.calls} further calls {done} dropped"

    def text() -> None:
        click.echo(f"Of the captures before {outcome.before}, {what}." if outcome.before else "All captures stay.")
        if outcome.collected:
            click.echo(f"{outcome.collected} rows that nothing referred to any more were collected.")

    show(dataclasses.asdict(outcome) | {"dry_run": dry_run}, as_json, text)


@main.command()
@click.option("--user", required=True, help="The user, as the application calls them.")
@click.option("--tenant", default="local", show_default=True, help="Name of the tenant.")
@click.option("--no-tombstones", is_flag=True, help="Keep no keyed hashes: what a client sends again is learned again.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@failing_clearly
def erase(user: str, tenant: str, no_tombstones: bool, as_json: bool) -> None:
    """Erase every trace of a user. It can be stopped, and goes on when it is asked for again."""
    from rich.console import Console

    from app.keeping import erase_user
    from app.store.erasure import NOTE

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
        "note": NOTE,
    }

    def text() -> None:
        click.echo(f"{receipt.rows} rows erased (receipt {receipt.erasure_id}).")
        for table, rows in sorted(receipt.counts.items()):
            click.echo(f"  {table}: {rows}")
        click.echo(NOTE)

    show(data, as_json, text)


@main.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--base", help="A running Mneme; by default the one at MNEME_HOST and MNEME_PORT.")
@click.option("--key", help="A Mneme key, where the server asks for one.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@failing_clearly
def import_(file: Path, base: str | None, key: str | None, as_json: bool) -> None:
    """Import past conversations (JSON lines) into a running Mneme."""
    from app.importing import base_of, send_file

    result = send_file(file, base or base_of(load_settings()), key)
    show(
        result,
        as_json,
        lambda: click.echo(f"{result['imported']} messages imported, {result['duplicates']} were there already."),
    )


if __name__ == "__main__":
    main()
