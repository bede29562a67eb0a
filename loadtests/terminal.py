"""What the measurements have in common on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click
from rich.console import Console

from loadtests import report, results
from loadtests.bench import WIDTH, ended_by_sigterm
from loadtests.stack import StackFailed


def console() -> Console:
    """A console; where there is no terminal to say how wide, as wide as the tables need."""
    found = Console()
    return found if found.is_terminal else Console(width=WIDTH)


@contextmanager
def measuring() -> Iterator[None]:
    """SIGTERM and Ctrl-C end a measurement with everything that it started; what did not start is told in one line."""
    with ended_by_sigterm():
        try:
            yield
        except StackFailed as error:
            raise click.ClickException(str(error)) from error
        except KeyboardInterrupt:
            raise click.Abort from None


def keep(out: Console, document: results.Document, no_save: bool) -> None:
    """Keep what was found, and make the page again."""
    if not no_save:
        out.print(f"written: {report.save(document)}, {report.PAGE}")
