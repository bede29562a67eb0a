"""`python -m tests.conformance`: try a proxy, or several, and tell what differs."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from urllib.parse import urlsplit

import click
from rich.console import Console
from rich.progress import Progress

from loadtests.peers import PeerFailed
from tests.conformance import report as reports
from tests.conformance.checks import Check, Result, all_checks
from tests.conformance.contenders import CONTENDERS, opened, reachable
from tests.conformance.report import Report
from tests.conformance.runner import run
from tests.conformance.stage import MODEL, Stage, Way
from tests.support.replies import reply_json
from tests.support.scripted import ScriptedUpstream

WIDTH = 140
"""Of the table where there is no terminal."""


def way_to(base_url: str, headers: Sequence[str], model: str, grows: bool) -> Way:
    """How to ask the proxy with this base URL. Raises click.BadParameter."""
    url = urlsplit(base_url)
    if url.scheme != "http" or url.hostname is None:
        raise click.BadParameter("a base URL over plain HTTP: the suite looks at every byte", param_hint="--base-url")
    lines = []
    for each in headers:
        name, colon, value = each.partition(":")
        if not colon:
            raise click.BadParameter(f"{each!r} is not NAME: VALUE", param_hint="--header")
        lines.append((name.strip().lower(), value.strip()))
    return Way(url.hostname, url.port or 80, url.path.rstrip("/"), lines, model, grows)


@click.command()
@click.option("--base-url", help="A proxy that runs, such as http://127.0.0.1:8080/v1.")
@click.option("--upstream-port", default=0, help="Port of the scripted upstream, which that proxy asks as its /v1.")
@click.option("--proxy", "names", multiple=True, type=click.Choice(list(CONTENDERS)), help="Start this one.")
@click.option(
    "--all", "everyone", is_flag=True, help="Start each of them in turn; peers are installed when first used."
)
@click.option(
    "--header", "headers", multiple=True, help="NAME: VALUE that the proxy wants to be told, with --base-url."
)
@click.option(
    "--model", default=MODEL, show_default=True, help=f"What the proxy calls the model {MODEL!r}, with --base-url."
)
@click.option("--messages-may-grow", is_flag=True, help="The proxy adds to `messages`, with --base-url.")
@click.option("--only", multiple=True, help="Checks whose names begin so.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write all results there.")
@click.option("--write", "page", type=click.Path(path_type=Path), help="Keep the results, and write the page.")
def main(
    base_url: str | None,
    upstream_port: int,
    names: Sequence[str],
    everyone: bool,
    headers: Sequence[str],
    model: str,
    messages_may_grow: bool,
    only: Sequence[str],
    file: Path | None,
    page: Path | None,
) -> None:
    """Try what OpenAI-compatible proxies leave alone. Exits with 1 where anything differs."""
    out = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    checks = [each for each in all_checks() if not only or each.name.startswith(tuple(only))]
    if not checks:
        raise click.BadParameter("no check begins so", param_hint="--only")
    if page is not None and (only or base_url):
        raise click.UsageError("the page tells of all checks, of the proxies that this suite starts")
    if base_url is not None:
        way = way_to(base_url, headers, model, messages_may_grow)
        done = [_tried(Report(base_url, base_url, "", "", []), nullcontext(way), upstream_port, checks, out)]
    else:
        chosen = [*CONTENDERS] if everyone else [*names]
        if not chosen:
            raise click.UsageError("say --base-url, --proxy or --all")
        done = [_contender(each, upstream_port, checks, out) for each in chosen]
    for each in done:
        out.print(reports.table(each, checks) if each.results else f"{each.title}: {each.why_not}")
    if file is not None:
        file.write_text(json.dumps([each.document() for each in done], indent=1, ensure_ascii=False), encoding="utf-8")
    if page is not None:
        for each in done:
            reports.keep(each)
        page.write_text(reports.page(reports.kept(), checks), encoding="utf-8")
    if any(each.different or not each.results for each in done):
        raise SystemExit(1)


def _contender(name: str, port: int, checks: Sequence[Check], out: Console) -> Report:
    known = CONTENDERS[name]
    blank = Report(known.name, known.title, known.version, known.settings, [])
    with ScriptedUpstream(reply_json({}), port=port) as upstream:
        try:
            with opened(name, upstream.url) as way:
                return _report(blank, upstream, way, checks, out)
        except PeerFailed as error:
            return Report(
                known.name, known.title, known.version, known.settings, [], why_not=str(error).splitlines()[0]
            )


def _tried(
    blank: Report, opening: AbstractContextManager[Way], port: int, checks: Sequence[Check], out: Console
) -> Report:
    with ScriptedUpstream(reply_json({}), port=port) as upstream, opening as way:
        if not reachable(way):
            raise click.ClickException(f"nothing listens on {blank.name}")
        return _report(blank, upstream, way, checks, out)


def _report(blank: Report, upstream: ScriptedUpstream, way: Way, checks: Sequence[Check], out: Console) -> Report:
    with Progress(console=out, transient=True) as progress:
        task = progress.add_task(blank.title, total=len(checks))

        def tell(check: Check, result: Result) -> None:
            progress.update(task, advance=1, description=f"{blank.title} {check.name}")

        results = asyncio.run(run(Stage(upstream, way), checks, tell))
    return Report(blank.name, blank.title, blank.version, blank.settings, results)


if __name__ == "__main__":
    main()
