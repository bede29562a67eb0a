"""`mneme replay run`: the command line of regression replays."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import click
import orjson

from app.console import failing_clearly, load_settings, show

MOMENT = click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%dT%H:%M:%S.%f%z"])


@click.command("run")
@click.option("--call", "calls", multiple=True, help="A call's id; may be given several times, and no filter then.")
@click.option("--user", help="Calls of this user.")
@click.option("--session", help="Calls of this session.")
@click.option("--model", help="Calls that asked for this model.")
@click.option("--label", "labels", multiple=True, help="Calls with this label; of several, all.")
@click.option("--since", type=MOMENT, help="Calls that came in then or later (UTC, unless it says otherwise).")
@click.option("--until", type=MOMENT, help="Calls that came in before that.")
@click.option("--limit", type=click.IntRange(1), default=1000, show_default=True, help="Most calls, the newest.")
@click.option("--as-of", is_flag=True, help="With the inputs of then, not with today's memory and settings.")
@click.option("--send", is_flag=True, help="Send them upstream, and compare the answers. It costs what calls cost.")
@click.option("--authorization", help="For the upstream, with --send, where Mneme has no key of its own for it.")
@click.option("--fail-under", type=click.FloatRange(0, 1), help="Exit 1 if a smaller share of prompts is identical.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="A file for the report as JSON.")
@click.option("--base", help="A running Mneme; by default the one at MNEME_HOST and MNEME_PORT.")
@click.option("--key", help="A Mneme key, where the server asks for one.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@failing_clearly
def replay_run(
    calls: tuple[str, ...],
    labels: tuple[str, ...],
    since: datetime | None,
    until: datetime | None,
    limit: int,
    as_of: bool,
    send: bool,
    authorization: str | None,
    fail_under: float | None,
    out: Path | None,
    base: str | None,
    key: str | None,
    as_json: bool,
    **named: Any,
) -> None:
    """Compile captured calls again, and report what changed: items, tokens, eta, answers.

    By default with today's memory, code and settings; with --as-of with the inputs of then, so that all that differs is the
    code. With --fail-under it exits 1 where too many prompts are not what they were, or none was compiled again.
    """
    from rich.console import Console

    from app.importing import base_of
    from app.regressing import ReplayFailed, Selection, Wish, readable, run

    filters = {name: value for name, value in named.items() if value is not None}
    filters |= {name: each.isoformat() for name, each in (("since", since), ("until", until)) if each is not None}
    filters |= {"label": list(labels)} if labels else {}
    if calls and filters:
        raise click.UsageError("--call names the calls: with it no filter counts.")
    told = run(
        base or base_of(load_settings()),
        key,
        authorization,
        Selection(calls, filters, limit),
        Wish("as_of" if as_of else "today", send),
        console=Console(stderr=True),
    )
    if out is not None:
        try:
            out.write_bytes(orjson.dumps(told, option=orjson.OPT_INDENT_2))
        except OSError as error:
            raise ReplayFailed(f"{out} cannot be written: {error}.") from error
    show(told, as_json, lambda: click.echo(readable(told)))
    if fail_under is not None and (told["share_identical"] is None or told["share_identical"] < fail_under):
        click.echo(f"Fewer than {fail_under:.1%} of the prompts are what they were.", err=True)
        raise SystemExit(1)
