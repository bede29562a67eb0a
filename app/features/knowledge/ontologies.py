"""A tenant's ontology, kept at hand: every question needs it, and it changes a few times a year."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from app.errors import StoreUnavailable
from app.features.knowledge.ontology import NO_ONTOLOGY, Ontology, Relation, entity_type
from app.features.knowledge.ontology_store import OntologyRows, OntologyStore, RelationRow

if TYPE_CHECKING:
    from app.features.knowledge.ontology_yaml import OntologyDraft  # reads YAML, which no process needs at its start

FRESH_S = 5.0
"""Seconds that it is not asked whether there is a newer one: what was loaded counts everywhere so much later."""
TENANTS = 1000
"""Tenants whose ontologies are kept; a large one takes some 500 KB."""


class Ontologies:
    """The ontologies of tenants, by their version."""

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
        return assembled(await self._store.read(tenant)) if version else NO_ONTOLOGY


def assembled(rows: OntologyRows) -> Ontology:
    """The ontology of these rows."""
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
