"""The ontologies of tenants' domains: loaded whole, read whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from app.clock import Clock
from app.errors import Conflict
from app.store.pools import Pool
from app.store.queries import Queries


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
    """Ontologies by tenant."""

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
        """The files, by domain."""
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
