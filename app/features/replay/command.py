"""`mneme replay …`: serve captured calls from cassettes, or have a running Mneme send them again and compare the answers."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from statistics import mean
from typing import Any

import click
import httpx
import orjson
from msgspec import Struct, field
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from app.console import base_of, failing_clearly, load_settings, show
from app.errors import MnemeError
from app.gateway.dialects import dialect_of
from mneme_replay.cassette import CassetteError
from mneme_replay.deck import Deck, Reuse
from mneme_replay.files import answered, load
from mneme_replay.player import App, Player
from mneme_replay.requests import MATCHINGS, Matching, Reader
from mneme_replay.serving import bound, server_of, url_of
from mneme_replay.timing import parse_speed

# --- `mneme replay serve`: cassettes from disk, and a server of them in the foreground -----------------------------------


class ReplayFailed(MnemeError):
    """The cassettes cannot be played, or a replay of them failed."""


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
    app.mount("", Player(deck, speed=speed, on_miss=lambda miss: click.echo(miss.told, err=True), answered=answered))
    try:
        sock = bound(host, port)
    except OSError as error:
        raise ReplayFailed(f"{host}:{port} cannot be listened on: {error.strerror}.") from error
    with sock:
        # uvicorn ends in good order, and then passes the signal on to whom it found.
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, lambda *_: None)
        click.echo(f"{len(deck)} cassettes on {url_of(sock)}/v1")
        server_of(app).run(sockets=[sock])


# --- `mneme replay run`: captured calls sent again by a running Mneme, and a report of their answers ---------------------

TIMEOUT_S = 300.0
"""Seconds for one replay: an upstream answers."""
PAGE = 200
"""Calls listed at a time."""
MAX_SHOWN = 20
"""Changed answers that the readable report names; the JSON has all."""
MAX_SHOWN_LINES = 6
"""Lines of a changed answer's difference that the readable report has."""
FIGURES = ("latency_ms", "prompt_tokens", "completion_tokens")


class Selection(Struct, frozen=True):
    """Which calls: these ids, else those that the filters of GET /api/v1/calls choose, newest first, `limit` at most."""

    ids: Sequence[str] = ()
    filters: Mapping[str, Any] = field(default_factory=dict)
    limit: int = 1000


def run(
    base: str,
    key: str | None,
    authorization: str | None,
    selection: Selection,
    *,
    console: Console,
) -> dict[str, Any]:
    """Replay a selection on the Mneme at `base`, and report. `authorization`: for the upstream, where Mneme has no key of its
    own. Raises ReplayFailed; why a single call could not be replayed stands in the report."""
    headers = {"x-mneme-key": key} if key is not None else {}
    if authorization is not None:
        headers["authorization"] = authorization
    columns = (TextColumn("replaying"), BarColumn(), MofNCompleteColumn())
    with (
        httpx.Client(base_url=base, headers=headers, timeout=TIMEOUT_S) as client,
        Progress(*columns, console=console) as progress,
    ):
        try:
            wanted = list(selection.ids) or list(_listed(client, selection))
            task = progress.add_task("replay", total=len(wanted))
            outcomes = []
            for each in wanted:
                outcomes.append(_replay(client, each))
                progress.advance(task)
        except httpx.HTTPError as error:
            raise ReplayFailed(f"{base} cannot be reached: {error}. Is `mneme serve` running?") from error
    return report(outcomes)


def _listed(client: httpx.Client, selection: Selection) -> Iterator[str]:
    """The ids of the calls that had memory, of those that the filters choose."""
    cursor, left = None, selection.limit
    while left > 0:
        params = {**selection.filters, "limit": PAGE} | ({"cursor": cursor} if cursor is not None else {})
        answer = client.get("/api/v1/calls", params=params)
        if answer.status_code != 200:
            raise ReplayFailed(f"The calls cannot be listed: {_reason(answer)[1]}")
        page = answer.json()
        for each in page["calls"]:
            if dialect_of(each["method"], each["path"].partition("?")[0]) is not None and left > 0:
                left -= 1
                yield each["id"]
        cursor = page["next"]
        if cursor is None:
            return


def _replay(client: httpx.Client, call: str) -> dict[str, Any]:
    answer = client.post(f"/api/v1/calls/{call}/replay", json={})
    if answer.status_code == 200:
        return {"call_id": call, **answer.json()}
    if answer.status_code in (401, 403) or answer.status_code >= 500:
        # What is wrong with the key or the server is wrong with every call.
        raise ReplayFailed(f"The call {call} was not replayed: {_reason(answer)[1]}")
    code, message = _reason(answer)
    return {"call_id": call, "skipped": code, "why": message}


def report(outcomes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the report over all calls.

    `identical`: answers that are the same, of the replayed calls; `failed`: those to which the upstream gave an error or
    nothing; the figures are means over the calls; `skipped`: calls that could not be sent again, by reason.
    """
    replayed = [outcome for outcome in outcomes if "skipped" not in outcome]
    answers = [outcome["answer"] for outcome in replayed]
    identical = sum(answer["identical"] for answer in answers)
    return {
        "calls": len(outcomes),
        "replayed": len(replayed),
        "skipped": dict(Counter(outcome["skipped"] for outcome in outcomes if "skipped" in outcome)),
        "identical": identical,
        "share_identical": identical / len(replayed) if replayed else None,
        "failed": sum(answer["status"]["now"] is None or answer["status"]["now"] >= 300 for answer in answers),
        **{
            name: {side: _mean([answer[name][side] for answer in answers]) for side in ("was", "now")}
            for name in FIGURES
        },
        "changed": [dict(outcome) for outcome in replayed if not outcome["answer"]["identical"]],
        "not_replayed": [dict(outcome) for outcome in outcomes if "skipped" in outcome],
    }


def readable(summary: Mapping[str, Any]) -> str:
    """Return a report as text."""
    if not summary["calls"]:
        return "No call was chosen."
    lines = [f"{summary['replayed']} of {summary['calls']} calls sent again."]
    lines += [f"  {count} skipped: {why}" for why, count in summary["skipped"].items()]
    if not summary["replayed"]:
        return "\n".join(lines)
    lines += [
        f"{summary['identical']} answers identical ({summary['share_identical']:.1%}), {summary['failed']} failed.",
        f"Latency {_pair(summary['latency_ms'], '.0f')} ms, tokens {_pair(summary['completion_tokens'], '.1f')} (means).",
    ]
    for outcome in summary["changed"][:MAX_SHOWN]:
        answer = outcome["answer"]
        lines.append(f"  {outcome['call_id']}  {answer['error']['now'] or 'another answer'}")
        lines += [f"      {line[:100]}" for line in answer["text"]["difference"][:MAX_SHOWN_LINES]]
    if len(summary["changed"]) > MAX_SHOWN:
        lines.append(f"  and {len(summary['changed']) - MAX_SHOWN} more; --json has all.")
    return "\n".join(lines)


def _pair(sides: Mapping[str, float | None], form: str) -> str:
    was, now = (f"{each:{form}}" if each is not None else "?" for each in (sides["was"], sides["now"]))
    return f"{was} → {now}"


def _mean(values: Sequence[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return round(mean(known), 4) if known else None


def _reason(answer: httpx.Response) -> tuple[str, str]:
    try:
        error = answer.json()["error"]
        return str(error["code"] or f"http_{answer.status_code}"), str(error["message"])
    except (ValueError, LookupError, TypeError):
        return f"http_{answer.status_code}", f"HTTP {answer.status_code}"


# --- the command line ----------------------------------------------------------------------------------------------------

MOMENT = click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%dT%H:%M:%S.%f%z"])


def refuse_option(instead: str) -> Callable[[click.Context, click.Parameter, bool], None]:
    """Return a callback that fails the use of an option that was removed, and says what to do instead."""

    def refuse(context: click.Context, parameter: click.Parameter, used: bool) -> None:
        if used:
            raise click.UsageError(f"{parameter.opts[0]} is no longer an option: {instead}", context)

    return refuse


@click.group()
def replay() -> None:
    """Replay captured calls: serve them from cassettes, or send them again and compare the answers."""


@replay.command("run")
@click.option("--call", "calls", multiple=True, help="A call's id; may be given several times, and no filter then.")
@click.option("--user", help="Calls of this user.")
@click.option("--session", help="Calls of this session.")
@click.option("--model", help="Calls that asked for this model.")
@click.option("--label", "labels", multiple=True, help="Calls with this label; of several, all.")
@click.option("--since", type=MOMENT, help="Calls that came in then or later (UTC, unless it says otherwise).")
@click.option("--until", type=MOMENT, help="Calls that came in before that.")
@click.option("--limit", type=click.IntRange(1), default=1000, show_default=True, help="Most calls, the newest.")
@click.option(
    "--as-of",
    is_flag=True,
    hidden=True,
    expose_value=False,
    callback=refuse_option("a replay sends the stored requests as they are; leave it out."),
)
@click.option(
    "--send",
    is_flag=True,
    hidden=True,
    expose_value=False,
    callback=refuse_option("a replay always sends the requests; leave it out."),
)
@click.option("--authorization", help="For the upstream, where Mneme has no key of its own for it.")
@click.option("--fail-under", type=click.FloatRange(0, 1), help="Exit 1 if a smaller share of answers is identical.")
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
    authorization: str | None,
    fail_under: float | None,
    out: Path | None,
    base: str | None,
    key: str | None,
    as_json: bool,
    **named: Any,
) -> None:
    """Send captured calls upstream again, as they were, and compare the answers. It costs what the calls cost.

    With --fail-under it exits 1 where too few answers are what they were, or none was sent again.
    """
    filters = {name: value for name, value in named.items() if value is not None}
    filters |= {name: each.isoformat() for name, each in (("since", since), ("until", until)) if each is not None}
    filters |= {"label": list(labels)} if labels else {}
    if calls and filters:
        raise click.UsageError("--call names the calls: with it no filter counts.")
    summary = run(
        base or base_of(load_settings()),
        key,
        authorization,
        Selection(calls, filters, limit),
        console=Console(stderr=True),
    )
    if out is not None:
        try:
            out.write_bytes(orjson.dumps(summary, option=orjson.OPT_INDENT_2))
        except OSError as error:
            raise ReplayFailed(f"{out} cannot be written: {error}.") from error
    show(summary, as_json, lambda: click.echo(readable(summary)))
    if fail_under is not None and (summary["share_identical"] is None or summary["share_identical"] < fail_under):
        click.echo(f"Fewer than {fail_under:.1%} of the answers are what they were.", err=True)
        raise SystemExit(1)


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
    serve_cassettes(
        cassettes, host, port, speed=speed, matching=matching, ignore=ignore, reuse="once" if once else "again"
    )
