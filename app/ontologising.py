"""What the commands `mneme ontology …` do: read a domain's catalog, hold a file against it, load it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app.clock import SystemClock
from app.core import command_pool
from app.errors import NotFound
from app.knowledge.checking import check
from app.knowledge.domain_pool import DomainPool
from app.knowledge.domain_sql import Column
from app.knowledge.drafting import CatalogTable, ForeignKey, draft
from app.knowledge.ontologies import rows_of
from app.knowledge.ontology_yaml import Draft
from app.knowledge.yaml_nodes import Finding
from app.settings import Settings
from app.store.ontology import OntologyStore
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
    of_table: dict[int, list[tuple[Column, str | None]]] = {}
    for each in columns:
        column = Column(each["name"], each["type"], each["is_array"])
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


async def checked(settings: Settings, found: Draft, tenant: str) -> tuple[Finding, ...]:
    """What the domain's catalog has against a file. Raises NotFound, DomainAway."""
    async with domain_pool(settings, found.domain, tenant) as pool:
        tables = await pool.catalog([each.table for each in found.types.values()], PATIENCE_S)
        return check(found, tables, allow_writer=pool.source.allow_writer)


async def load(settings: Settings, dsn: str, found: Draft, source: str, tenant: str) -> int:
    """Store a file; its version. Raises NotFound, Conflict, StoreUnavailable."""
    async with command_pool(settings, dsn) as pool:
        sql, clock = Queries.load(), SystemClock()
        owner = await Tenancy(pool, sql, clock).tenant(tenant)
        if owner is None:
            raise NotFound(f"There is no tenant {tenant!r}.")
        return await OntologyStore(pool, sql, clock).load(owner, found.domain, source, *rows_of(found))
