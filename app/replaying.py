"""What `mneme replay serve` does: cassettes from disk, and a server of them in the foreground."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

import click

from app.errors import MnemeError
from mneme_replay.cassette import CassetteError
from mneme_replay.deck import Deck, Miss, Reuse
from mneme_replay.files import answered, load
from mneme_replay.player import App, Player
from mneme_replay.requests import Reader
from mneme_replay.serving import bound, server_of, url_of


class ReplayFailed(MnemeError):
    """The cassettes cannot be played."""


def serve_cassettes(
    paths: Sequence[Path], host: str, port: int, *, speed: float, matching: str, ignore: Sequence[str], reuse: Reuse
) -> None:
    """Serve until stopped. Raises ReplayFailed for cassettes that are not whole, for none, and for an address that is taken."""
    try:
        deck = Deck(load(paths, answers=False), Reader.of(matching, ignore), reuse)
    except CassetteError as error:
        raise ReplayFailed(str(error)) from error
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if not deck:
        raise ReplayFailed(f"There is no cassette in {', '.join(map(str, paths))}.")
    app = App()
    app.mount("", Player(deck, speed=speed, on_miss=_tell, answered=answered))
    try:
        sock = bound(host, port)
    except OSError as error:
        raise ReplayFailed(f"{host}:{port} cannot be listened on: {error.strerror}.") from error
    with sock:
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(
                each, lambda *_: None
            )  # uvicorn ends in good order, and then passes the signal on to whom it found
        click.echo(f"{len(deck)} cassettes on {url_of(sock)}/v1")
        server_of(app).run(sockets=[sock])


def _tell(miss: Miss) -> None:
    click.echo(miss.told, err=True)
