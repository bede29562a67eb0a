"""`mneme ontology …`: what a business's own tables mean, drafted, checked and loaded."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import click

from app.console import failing_clearly, load_settings, show, with_database
from app.knowledge.ontology_yaml import Draft, read
from app.knowledge.yaml_nodes import Finding


@click.group()
def ontology() -> None:
    """What the tables of a business's own database mean."""


_FILE = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
_TENANT = click.option("--tenant", default="local", show_default=True, help="Name of the tenant.")
_OFFLINE = click.option("--offline", is_flag=True, help="Look at the file alone, not at the database.")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@ontology.command("draft")
@click.option("--domain", required=True, help="Its name in MNEME_DOMAINS.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="A file; else standard output.")
@_JSON
@failing_clearly
def draft_(domain: str, out: Path | None, as_json: bool) -> None:
    """Draft an ontology from the tables, keys and names of a domain."""
    from app.ontologising import drafted

    if as_json and out is None:
        raise click.UsageError("--json needs --out: standard output has the draft.")
    text = asyncio.run(drafted(load_settings(), domain))
    if out is None:
        click.echo(text, nl=False)
        return
    out.write_text(text, encoding="utf-8")
    found = read(text).draft
    types, relations = (len(found.types), len(found.relations)) if found is not None else (0, 0)
    data = {"file": str(out), "types": types, "relations": relations}
    show(data, as_json, lambda: click.echo(f"{types} types and {relations} relations in {out}."))


@ontology.command("check")
@_FILE
@_TENANT
@_OFFLINE
@_JSON
@failing_clearly
def check_(file: Path, tenant: str, offline: bool, as_json: bool) -> None:
    """Check FILE, by itself and against its domain's tables. Exits with 1 where something is wrong."""
    found, findings = _examined(file, tenant, offline)
    _tell(file, findings, as_json)
    if not as_json:
        click.echo("Refused." if found is None else "Good.")
    if found is None:
        raise SystemExit(1)


@ontology.command("load")
@_FILE
@_TENANT
@_OFFLINE
@_JSON
@failing_clearly
def load_(file: Path, tenant: str, offline: bool, as_json: bool) -> None:
    """Check FILE and put it in the place of its domain's former ontology. With an error nothing is loaded."""
    from app.ontologising import load

    found, findings = _examined(file, tenant, offline)
    if found is None:
        _tell(file, findings, as_json)
        raise SystemExit(1)
    settings, source = load_settings(), _text(file)
    version = with_database(settings, lambda dsn: load(settings, dsn, found, source, tenant))
    data = {
        "domain": found.domain,
        "version": version,
        "types": len(found.types),
        "relations": len(found.relations),
        "findings": [each._asdict() for each in findings],
    }

    def text() -> None:
        _tell(file, findings, False)
        click.echo(f"{found.domain}, version {version}: {len(found.types)} types, {len(found.relations)} relations.")

    show(data, as_json, text)


def _examined(file: Path, tenant: str, offline: bool) -> tuple[Draft | None, Sequence[Finding]]:
    """What a file says (None: it has errors), and all that was found."""
    from app.ontologising import checked

    reading = read(_text(file))
    if reading.draft is None or offline:
        return reading.draft, reading.findings
    findings = (*reading.findings, *asyncio.run(checked(load_settings(), reading.draft, tenant)))
    wrong = any(each.level == "error" for each in findings)
    return None if wrong else reading.draft, sorted(findings, key=lambda each: (each.line, each.column))


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{file} is no UTF-8.") from error


def _tell(file: Path, findings: Sequence[Finding], as_json: bool) -> None:
    """Each finding as compilers write them."""
    told = [each._asdict() for each in findings]

    def text() -> None:
        for each in findings:
            click.echo(f"{file}:{each.line}:{each.column}: {each.level}: {each.message}")

    show(told, as_json, text)
