"""`mneme replay …`: recorded calls, played again; the group that its commands join."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from app.console import failing_clearly
from mneme_replay.requests import MATCHINGS
from mneme_replay.timing import parse_speed

if TYPE_CHECKING:
    from mneme_replay.requests import Matching


@click.group()
def replay() -> None:
    """Replay captured calls: serve them from cassettes, or compile them again."""


@replay.command()
@click.argument("cassettes", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8090, show_default=True, type=click.IntRange(0, 65535), help="0: any that is free.")
@click.option(
    "--speed",
    default=1.0,
    show_default=True,
    type=parse_speed,
    metavar="SPEED",
    help="1: as recorded; 2: twice as fast; 0: at once.",
)
@click.option("--match", "matching", default="normalised", show_default=True, type=click.Choice(MATCHINGS))
@click.option("--ignore", multiple=True, metavar="PATH", help="A JSON path of the body that does not count.")
@click.option("--once", is_flag=True, help="Play each cassette once; else the last of equal ones goes on answering.")
@failing_clearly
def serve(
    cassettes: tuple[Path, ...],
    host: str,
    port: int,
    speed: float,
    matching: Matching,
    ignore: tuple[str, ...],
    once: bool,
) -> None:
    """Answer as an OpenAI-compatible server from CASSETTES: files, or folders of them. Needs no database.

    A request gets what was recorded for its like, in the same pieces, at the same pace; one that nothing was recorded for
    gets a 404 that says what is nearest, and how it differs.
    """
    from app.replaying import serve_cassettes

    serve_cassettes(
        cassettes, host, port, speed=speed, matching=matching, ignore=ignore, reuse="once" if once else "again"
    )
