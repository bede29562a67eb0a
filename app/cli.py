"""The commands. Each exits with 0, 1 (it failed) or 2 (wrong use), and prints JSON with `--json`."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import Any

import click
import msgspec

from app import collector, logs
from app.capture_cli import capture
from app.conflicts_cli import conflicts
from app.console import failing_clearly, load_settings, show, with_database
from app.keys import keys
from app.mcp_cli import mcp
from app.ontology_cli import ontology
from app.reembed import reembed
from app.replay_cli import replay
from app.replay_run import replay_run
from app.settings import unknown_names


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
    collector.hold()
    from app import mcp, tracing
    from app.core import prepare_database
    from app.gateway.redact import Redactor
    from app.providers.tokens import Tokenizers
    from app.supervise import LOOPBACK, check_upstreams, database
    from app.supervise import serve as run

    settings = load_settings(host=host, port=port, workers=workers, worker="off" if no_worker else None)
    Redactor(settings.redact_paths)  # says what is wrong with them, before anything begins
    Tokenizers(settings.tokenizer_json)  # likewise
    check_upstreams(settings)
    if settings.mcp == "on":
        mcp.check_sdk()
    if settings.otel == "on":
        tracing.check_sdk()
    logs.set_up(settings.log_level, settings.log_format)
    log = logging.getLogger("mneme")
    for unknown in unknown_names(os.environ):
        log.warning(unknown.told)
    if settings.auth_mode == "open" and settings.host not in LOOPBACK:
        log.warning("everybody who reaches this address may read all memory: MNEME_AUTH is `open`")
    with database(settings, log.info) as dsn:
        asyncio.run(prepare_database(settings, dsn, lambda name: log.info("migrated", extra={"file": name})))
        run(settings, dsn)


@main.command()
@failing_clearly
def worker() -> None:
    """Run jobs until stopped: embeddings, extraction, the schedule."""
    collector.hold()
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

    from app.core import prepare_database

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


main.add_command(keys)
main.add_command(reembed)
main.add_command(replay)
replay.add_command(replay_run)
main.add_command(capture)
main.add_command(ontology)
main.add_command(conflicts)
main.add_command(mcp)


@main.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@failing_clearly
def sweep(name: str, as_json: bool) -> None:
    """Run one task of the schedule now: promotion, demotion, aging, decay, prune, expiry, …"""
    from app.keeping import sweep as run

    settings = load_settings()
    changed = with_database(settings, lambda dsn: run(settings, dsn, name))
    show({"sweep": name, "changed": changed}, as_json, lambda: click.echo(f"{name}: {changed} changed."))


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

    show(msgspec.structs.asdict(outcome) | {"dry_run": dry_run}, as_json, text)


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


@main.command()
@click.option("--user", required=True, help="The user, as the application calls them.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="A file; else standard output.")
@click.option("--messages", is_flag=True, help="Only the messages, as `mneme import` takes them.")
@click.option("--base", help="A running Mneme; by default the one at MNEME_HOST and MNEME_PORT.")
@click.option("--key", help="A Mneme key, where the server asks for one.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON; with --out.")
@failing_clearly
def export(user: str, out: Path | None, messages: bool, base: str | None, key: str | None, as_json: bool) -> None:
    """Export everything that is stored of a user, as JSON lines."""
    from app.exporting import fetch_user
    from app.importing import base_of

    if as_json and out is None:
        raise click.UsageError("--json needs --out: standard output has the export.")
    lines = fetch_user(user, base or base_of(load_settings()), key, out, messages=messages)
    if out is not None:
        show({"lines": lines, "file": str(out)}, as_json, lambda: click.echo(f"{lines} lines in {out}."))


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


@main.command("eval")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--budget", "budgets", type=click.IntRange(1), multiple=True, help="Tokens; may be given several times.")
@click.option("--profile", default="auto", show_default=True, help="How what was found is scored.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@failing_clearly
def eval_(file: Path, budgets: tuple[int, ...], profile: str, as_json: bool) -> None:
    """Measure how much of what answers a question is found within a budget.

    FILE has conversations and questions, one JSON object a line: docs/recall.md has the format. They are stored in a
    database of their own, which is removed at the end.
    """
    from app.context.profiles import PROFILE_NAMES
    from app.evaluating import BUDGETS, evaluate, table

    if profile not in PROFILE_NAMES:
        raise click.BadParameter(f"one of {', '.join(sorted(PROFILE_NAMES))}", param_hint="--profile")
    result = evaluate(
        load_settings(), file, profile=profile, budgets=budgets or BUDGETS, say=lambda line: click.echo(line, err=True)
    )
    show(result, as_json, lambda: click.echo(table(result)))


if __name__ == "__main__":
    main()
