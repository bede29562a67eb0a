"""`mneme ontology …`: what a business's own tables mean, drafted, checked and loaded; what `mneme doctor` says of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import click

from app.clock import SystemClock
from app.console import failing_clearly, load_settings, show, with_database
from app.errors import DomainAway, MnemeError, NotFound
from app.features import Finding
from app.features.knowledge.domain import DomainPool
from app.features.knowledge.domain_sql import DomainColumn
from app.features.knowledge.ontologies import OntologyStore, rows_of
from app.features.knowledge.ontology_yaml import OntologyDraft, YamlFinding, read
from app.features.knowledge.schema import CatalogTable, ForeignKey, check, draft
from app.settings import Settings
from app.store.pools import command_pool
from app.store.queries import Queries
from app.store.tenancy import Tenancy

PATIENCE_S = 30.0
"""Seconds for a look at a catalog: nobody's request waits."""
MAX_TABLES = 500
"""Tables of a draft: as many types as a file may have."""


@asynccontextmanager
async def domain_pool(settings: Settings, name: str, tenant: str | None = None) -> AsyncIterator[DomainPool]:
    """The domain of this name, which must be one of the tenant's. Raises NotFound."""
    source = settings.domains.get(name)
    if source is None or (tenant is not None and tenant not in source.tenants):
        known = ", ".join(each for each, found in settings.domains.items() if tenant is None or tenant in found.tenants)
        whose = "" if tenant is None else f" of the tenant {tenant}"
        raise NotFound(f"MNEME_DOMAINS has no domain {name}{whose}; it has {known or 'none'}.")
    slow = source.model_copy(update={"statement_timeout_ms": int(PATIENCE_S * 1000)})
    pool = DomainPool(name, slow, Queries.load())
    try:
        yield pool
    finally:
        await pool.close()


async def drafted(settings: Settings, name: str) -> str:
    """An ontology's YAML, from the domain's catalog. Raises NotFound, DomainAway."""
    async with domain_pool(settings, name) as pool:
        tables = await pool.query("own_tables", MAX_TABLES, timeout_s=PATIENCE_S)
        oids = [each["oid"] for each in tables]
        columns = await pool.query("own_columns", oids, timeout_s=PATIENCE_S)
        keys = await pool.query("foreign_keys", oids, timeout_s=PATIENCE_S)
    place = {each["oid"]: (each["schema"], each["name"]) for each in tables}
    of_table: dict[int, list[tuple[DomainColumn, str | None]]] = {}
    for each in columns:
        column = DomainColumn(each["name"], each["type"], each["is_array"])
        of_table.setdefault(each["oid"], []).append((column, each["comment"]))
    return draft(
        name,
        [
            CatalogTable(*place[row["oid"]], row["comment"], tuple(row["key"] or ()), tuple(of_table.get(row["oid"], ())))
            for row in tables
        ],
        [
            ForeignKey(
                place[row["child"]], place[row["parent"]], tuple(row["child_columns"]), tuple(row["parent_columns"]),
                row["is_unique"],
            )
            for row in keys
        ],
    )  # fmt: skip


async def checked(settings: Settings, found: OntologyDraft, tenant: str) -> tuple[YamlFinding, ...]:
    """What the domain's catalog has against a file. Raises NotFound, DomainAway."""
    async with domain_pool(settings, found.domain, tenant) as pool:
        tables = await pool.catalog([each.table for each in found.types.values()], PATIENCE_S)
        return check(found, tables, allow_writer=pool.source.allow_writer)


async def load(settings: Settings, dsn: str, found: OntologyDraft, source: str, tenant: str) -> int:
    """Store a file; its version. Raises NotFound, Conflict, StoreUnavailable."""
    async with command_pool(settings, dsn) as pool:
        sql, clock = Queries.load(), SystemClock()
        owner = await Tenancy(pool, sql, clock).tenant(tenant)
        if owner is None:
            raise NotFound(f"There is no tenant {tenant!r}.")
        return await OntologyStore(pool, sql, clock).load(owner, found.domain, source, *rows_of(found))


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


def _examined(file: Path, tenant: str, offline: bool) -> tuple[OntologyDraft | None, Sequence[YamlFinding]]:
    """What a file says (None: it has errors), and all that was found."""

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


def _tell(file: Path, findings: Sequence[YamlFinding], as_json: bool) -> None:
    """Each finding as compilers write them."""
    told = [each._asdict() for each in findings]

    def text() -> None:
        for each in findings:
            click.echo(f"{file}:{each.line}:{each.column}: {each.level}: {each.message}")

    show(told, as_json, text)


# --- what `mneme doctor` says --------------------------------------------------------------------------------------------

ASK_S = 5.0
"""Seconds that a domain has to answer."""


async def findings(settings: Settings, dsn: str | None) -> list[Finding]:
    """Each domain: whether it answers, whether its role could write, and whether its tenants' ontologies fit its tables."""
    found = []
    for name, source in settings.domains.items():
        pool = DomainPool(name, source, Queries.load())
        try:
            role = (await pool.query("writer", timeout_s=ASK_S))[0]
            found.append(Finding("ok", f"The domain {name} answers, as {role['role']}."))
            if role["is_superuser"] and not source.allow_writer:
                mend = "Make a role that can only read: docs/how-to/domain-database.md has the commands."
                found.append(
                    Finding("error", f"{role['role']} is a superuser in {name}: nothing is asked there.", mend)
                )
            if dsn is not None:
                found += [await _ontology(settings, dsn, pool, tenant) for tenant in source.tenants]
        except DomainAway as away:
            found.append(Finding("error", away.message, f"Check the dsn of {name} in MNEME_DOMAINS, and that it runs."))
        except MnemeError as error:
            found.append(Finding("warning", f"The ontology of {name} cannot be read: {error.message}", "See above."))
        finally:
            await pool.close()
    return found


async def _ontology(settings: Settings, dsn: str, domain: DomainPool, tenant: str) -> Finding:
    """A tenant's ontology, against the tables of its domain."""
    async with command_pool(settings, dsn) as pool:
        sql, clock = Queries.load(), SystemClock()
        owner = await Tenancy(pool, sql, clock).tenant(tenant)
        rows = await OntologyStore(pool, sql, clock).sources(owner) if owner is not None else []
    whose = f"The ontology of {domain.name} (tenant {tenant})"
    draft = next((read(each.source).draft for each in rows if each.domain == domain.name), None)
    if draft is None:
        mend = (
            f"Run `mneme ontology draft --domain {domain.name}`, look at it, and load it: nothing is asked there else."
        )
        return Finding("warning", f"{whose} is not loaded.", mend)
    tables = await domain.catalog([each.table for each in draft.types.values()], ASK_S)
    findings = check(draft, tables, allow_writer=domain.source.allow_writer)
    errors = [each for each in findings if each.level == "error"]
    if errors:
        told = f"{whose}, line {errors[0].line}: {errors[0].message}"
        return Finding("error", told, f"{len(errors)} errors in all: `mneme ontology check` tells each.")
    return Finding("ok", f"{whose} fits its {len(tables)} tables; {len(findings)} warnings.")
