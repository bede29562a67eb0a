"""`mneme replay …`: the group that its commands join."""

from __future__ import annotations

import click


@click.group()
def replay() -> None:
    """Replay captured calls: serve them from cassettes, or compile them again."""
