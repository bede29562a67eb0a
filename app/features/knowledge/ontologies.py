"""The ontologies of tenants' domains: loaded whole, read whole, and kept at hand: every question needs one, and it changes a
few times a year."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from app.clock import Clock
from app.errors import Conflict, StoreUnavailable
from app.features.knowledge.ontology import NO_ONTOLOGY, Ontology, Relation, entity_type
from app.store.pools import Pool
from app.store.queries import Queries

if TYPE_CHECKING:
    from app.features.knowledge.ontology_yaml import OntologyDraft


class SourceRow(NamedTuple):
    """An ontology as it was loaded. `version`: from 1, one more with each load."""

    domain: str
    version: int
    source: str
    loaded_at: datetime


class RelationRow(NamedTuple):
    """A relation as seed 004's table 8 has it. `join_spec`: {"from_table", "to_table", "join_on", "columns": [[from, to]]}."""

    domain: str
    from_entity_type: str
    relation_type: str
    to_entity_type: str
    cardinality: str
    relation_semantics: str
    join_spec: Mapping[str, Any]
    constraints: Mapping[str, Any]
    relation_id: int = 0


class OntologyRows(NamedTuple):
    """All that a tenant has. `types`: specs, each with its `name` and `domain`."""

    version: int
    types: Sequence[Mapping[str, Any]]
    relations: Sequence[RelationRow]


class OntologyStore:
    def __init__(self, pool: Pool, sql: Queries, clock: Clock) -> None:
        self._pool = pool
        self._sql = sql
        self._clock = clock

    async def version(self, tenant: UUID) -> int:
        """What moves whenever one of the tenant's ontologies changes; 0: there is none."""
        async with self._pool.transaction(tenant) as connection:
            return int(await connection.fetchval(self._sql["ontology.version"], tenant))

    async def read(self, tenant: UUID) -> OntologyRows:
        """Everything, of one moment."""
        async with self._pool.transaction(tenant) as connection:
            version = int(await connection.fetchval(self._sql["ontology.version"], tenant))
            types = await connection.fetch(self._sql["ontology.types"], tenant) if version else []
            relations = await connection.fetch(self._sql["ontology.relations"], tenant) if version else []
        return OntologyRows(version, [row["spec"] for row in types], [RelationRow(**dict(row)) for row in relations])

    async def sources(self, tenant: UUID) -> list[SourceRow]:
        async with self._pool.transaction(tenant) as connection:
            return [SourceRow(**dict(row)) for row in await connection.fetch(self._sql["ontology.sources"], tenant)]

    async def load(
        self,
        tenant: UUID,
        domain: str,
        source: str,
        types: Sequence[Mapping[str, Any]],
        relations: Sequence[RelationRow],
    ) -> int:
        """Put an ontology in the place of the domain's former one, whole or not at all; its version. Raises Conflict where
        another domain has one of the types."""
        names = [each["name"] for each in types]
        async with self._pool.transaction(tenant) as connection:
            if (taken := await connection.fetchrow(self._sql["ontology.taken"], tenant, domain, names)) is not None:
                raise Conflict(
                    f"The domain {taken['domain']} has a type {taken['entity_type']} already: call this one otherwise."
                )
            version = int(
                await connection.fetchval(self._sql["ontology.put"], tenant, domain, source, self._clock.now())
            )
            await connection.execute(self._sql["ontology.clear_relations"], tenant, domain)
            await connection.execute(self._sql["ontology.clear_types"], tenant, domain)
            await connection.execute(self._sql["ontology.put_types"], tenant, domain, names, list(types))
            columns = list(zip(*(each[1:8] for each in relations), strict=True)) or [()] * 7
            await connection.execute(self._sql["ontology.put_relations"], tenant, domain, *map(list, columns))
        return version

    async def remove(self, tenant: UUID, domain: str) -> bool:
        """Take a domain's ontology away. False: there was none."""
        async with self._pool.transaction(tenant) as connection:
            return await connection.fetchval(self._sql["ontology.remove"], tenant, domain) is not None


# --- kept at hand --------------------------------------------------------------------------------------------------------

FRESH_S = 5.0
"""Seconds that it is not asked whether there is a newer one: what was loaded counts everywhere so much later."""
TENANTS = 1000
"""Tenants whose ontologies are kept; a large one takes some 500 KB."""


class Ontologies:
    def __init__(self, store: OntologyStore, *, now: Callable[[], float] = time.monotonic) -> None:
        """`now`: seconds on a clock that only goes forward."""
        self._store = store
        self._now = now
        self._known: OrderedDict[UUID, tuple[float, Ontology]] = OrderedDict()

    async def of(self, tenant: UUID) -> Ontology:
        """The tenant's ontology; NO_ONTOLOGY where there is none. While the database is away, the last one that was seen.
        Raises StoreUnavailable where none was."""
        known = self._known.get(tenant)
        if known is not None and self._now() - known[0] < FRESH_S:
            return known[1]
        try:
            found = await self._read(tenant, known[1] if known is not None else None)
        except StoreUnavailable:
            if known is None:
                raise
            return known[1]
        self._known[tenant] = (self._now(), found)
        self._known.move_to_end(tenant)
        if len(self._known) > TENANTS:
            self._known.popitem(last=False)
        return found

    async def _read(self, tenant: UUID, known: Ontology | None) -> Ontology:
        version = await self._store.version(tenant)
        if known is not None and version == known.version:
            return known
        if not version:
            return NO_ONTOLOGY
        rows = await self._store.read(tenant)
        types = {each["name"]: entity_type(each) for each in rows.types}
        return Ontology(types, tuple(_relation(each) for each in rows.relations), rows.version)


def rows_of(draft: OntologyDraft) -> tuple[list[dict[str, Any]], list[RelationRow]]:
    """Types and relations as the store keeps them; `join_on` as seed 004 writes it."""
    return [each.spec() for each in draft.types.values()], [_row(draft, each) for each in draft.relations]


def _row(draft: OntologyDraft, relation: Relation) -> RelationRow:
    source, target = draft.types[relation.source].table, draft.types[relation.target].table
    spec = {
        "from_table": source,
        "to_table": target,
        "join_on": " AND ".join(f"{source}.{a} = {target}.{b}" for a, b in relation.join),
        "columns": [list(pair) for pair in relation.join],
    }
    return RelationRow(
        relation.domain, relation.source, relation.name, relation.target, relation.cardinality, relation.semantics, spec,
        relation.constraints,
    )  # fmt: skip


def _relation(row: RelationRow) -> Relation:
    join = tuple((source, target) for source, target in row.join_spec["columns"])
    return Relation(
        row.domain, row.from_entity_type, row.relation_type, row.to_entity_type,
        row.cardinality,  # type: ignore[arg-type]  # the table's CHECK has them
        row.relation_semantics, join, row.constraints,
    )  # fmt: skip
