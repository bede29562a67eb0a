"""`mneme capture …`: captured calls out of a running Mneme, and into it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click

from app.console import failing_clearly, load_settings, show


@click.group()
def capture() -> None:
    """Export captured calls as cassettes, and import them."""


@capture.command()
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="A folder: a file a call.")
@click.option("--user", help="Only calls of this user.")
@click.option("--session", help="Only calls of this session.")
@click.option("--since", type=click.DateTime(), help="Only calls from then on, UTC.")
@click.option("--until", type=click.DateTime(), help="Only calls before, UTC.")
@click.option("--model", help="Only calls for this model, as the client asked for it.")
@click.option("--status", type=click.IntRange(100, 599), help="Only calls with this answer.")
@click.option("--label", "labels", multiple=True, help="Only calls with this label; of several, all.")
@click.option("--call", "calls", multiple=True, metavar="ID", help="Only this call; may be given several times.")
@click.option("--redact", multiple=True, metavar="PATH", help="A JSON path to take out of the bodies, such as $.user.")
@click.option("--redact-header", multiple=True, metavar="NAME", help="A header to take the value out of.")
@click.option("--mask-keys", is_flag=True, help="Write asterisks in the place of keys, rather than refuse.")
@click.option("--har", type=click.Path(dir_okay=False, path_type=Path), help="Write them as one HAR 1.2 file, too.")
@click.option("--base", help="A running Mneme; by default the one at MNEME_HOST and MNEME_PORT.")
@click.option("--key", help="A Mneme key, where the server asks for one.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@failing_clearly
def export(
    out: Path,
    user: str | None,
    session: str | None,
    since: datetime | None,
    until: datetime | None,
    model: str | None,
    status: int | None,
    labels: tuple[str, ...],
    calls: tuple[str, ...],
    redact: tuple[str, ...],
    redact_header: tuple[str, ...],
    mask_keys: bool,
    har: Path | None,
    base: str | None,
    key: str | None,
    as_json: bool,
) -> None:
    """Write captured calls as cassettes into a folder.

    Nothing is written if one of them holds what looks like a key: take it out with --redact, or use --mask-keys.
    """
    from app.capturing import export_cassettes
    from app.importing import base_of
    from mneme_replay.redacting import Redaction

    try:
        redaction = Redaction(redact, redact_header, mask_keys=mask_keys)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--redact") from error
    wanted = {
        "user": user,
        "session": session,
        "since": since.isoformat() if since else None,
        "until": until.isoformat() if until else None,
        "model": model,
        "status": status,
    }
    params = [(name, str(value)) for name, value in wanted.items() if value is not None]
    params += [*(("label", each) for each in labels), *(("call", each) for each in calls)]
    files = export_cassettes(params, base or base_of(load_settings()), key, out, redaction, har)
    show(
        {"cassettes": len(files), "folder": str(out)}, as_json, lambda: click.echo(f"{len(files)} cassettes in {out}.")
    )


@capture.command("import")
@click.argument("cassettes", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--user", help="Whose they become; else that of the user whom each names.")
@click.option("--base", help="A running Mneme; by default the one at MNEME_HOST and MNEME_PORT.")
@click.option("--key", help="A Mneme key, where the server asks for one.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@failing_clearly
def import_(cassettes: tuple[Path, ...], user: str | None, base: str | None, key: str | None, as_json: bool) -> None:
    """Put CASSETTES (files, or folders of them) into a running Mneme, as calls to be read and replayed. Nothing is learned
    from them. A call that is there is left alone."""
    from app.capturing import import_cassettes
    from app.importing import base_of

    done = import_cassettes(cassettes, user, base or base_of(load_settings()), key)
    show(done, as_json, lambda: click.echo(f"{done['imported']} calls imported, {done['skipped']} skipped."))
