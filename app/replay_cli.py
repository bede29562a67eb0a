"""`mneme replay …`: recorded calls, played again."""

from __future__ import annotations

import click


@click.group()
def replay() -> None:
    """Play recorded calls again."""
