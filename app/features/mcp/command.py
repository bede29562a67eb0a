"""`mneme mcp`: the MCP server on standard input and output."""

from __future__ import annotations

import re

import click

from app import logs
from app.console import base_of, failing_clearly, load_settings
from app.features.mcp import check_sdk
from app.settings import KEY


@click.command()
@click.option("--base", help="A running Mneme; by default the one at MNEME_HOST and MNEME_PORT.")
@click.option("--key", envvar=KEY, help="A Mneme key, where the server asks for one; better in MNEME_KEY.")
@click.option("--user", help="Whose memory it is; needed unless the key was made for one user, or the server is open.")
@failing_clearly
def mcp(base: str | None, key: str | None, user: str | None) -> None:
    """Offer the memory of a running Mneme as an MCP server, on standard input and output."""
    check_sdk()
    from app.features.mcp.server import run

    if base is not None and not re.fullmatch(r"https?://[^\s/]+(/\S*)?", base):
        raise click.BadParameter("a URL such as http://127.0.0.1:8080", param_hint="--base")
    if key is not None and not re.fullmatch(r"[!-~]+", key):
        raise click.BadParameter("not what a key looks like", param_hint="--key")
    if user is not None and re.search("[\ud800-\udfff]", user):
        raise click.BadParameter("not valid Unicode", param_hint="--user")
    settings = load_settings()
    logs.set_up(settings.log_level, settings.log_format)
    run(base or base_of(settings), key, user)
