"""`mneme migrate`."""

from __future__ import annotations

import click
from rich.console import Console

from app.cli.console import failing_clearly, load_settings, show, with_database
from app.server.core import prepare_database


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
