"""Runs a plan of asks against the domains within a deadline: those of one level at the same time, those below with its keys."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from app.context.known import DomainQuery, Entity
from app.errors import DomainAway
from app.knowledge.domain_pool import DomainPool
from app.knowledge.domain_sql import MAX_KEY_CHARS, Family, Statement, Table, by_key, related, wanted_columns
from app.knowledge.ontology import EntityType, Ontology
from app.knowledge.telling import Row, Told, days, shown
from app.knowledge.walk import Ask

_MS = 1000.0


class Part(NamedTuple):
    """Rows of one statement. `total`: that there are; `gone`: columns of the ontology that the table has not."""

    rows: tuple[Row, ...]
    families: Mapping[str, Family]
    total: int
    gone: tuple[str, ...]


async def read(
    pool: DomainPool,
    kind: EntityType,
    ontology: Ontology,
    make: Callable[[Mapping[str, Table]], Statement],
    timeout_s: float,
    needed: Sequence[tuple[str, str]] = (),
) -> Part:
    """The rows of a type. `needed`: tables and their columns without which there is no statement, beside its own key. Raises
    DomainAway, also where the role could write into any table of the ontology; columns that are only told may be gone."""
    until = time.monotonic() + timeout_s
    required = [(kind.table, kind.key), *needed]
    all_of_them = (each.table for each in ontology.types.values() if each.domain == kind.domain)
    tables = await pool.tables([*(table for table, _ in required), *all_of_them], timeout_s)
    for table, column in required:
        if table not in tables:
            raise DomainAway(pool.name, "changed", f"there is no table {table} that its role may read")
        if column not in tables[table].columns:
            raise DomainAway(pool.name, "changed", f"{table} has no column {column}")
    statement = make(tables)
    found = tables[kind.table].columns
    families = {each: found[each].family for each in statement.columns}
    rows = await pool.read(statement, until - time.monotonic())
    return Part(
        tuple(_row(each, statement.columns, families) for each in rows if _names(each["key"])),
        families,
        max((each["total"] for each in rows), default=0),
        tuple(each for each in wanted_columns(kind) if each not in found),
    )


def key_of(entity: Entity) -> str:
    """The key in a thing's id."""
    return entity.id.partition(":")[2]


class Run:
    """One plan."""

    def __init__(self, pools: Mapping[str, DomainPool], ontology: Ontology, until: float) -> None:
        """`pools`: the tenant's own. `until`: monotonic seconds."""
        self._pools = pools
        self._ontology = ontology
        self._until = until

    async def one(self, ask: Ask) -> Told:
        """A thing's own row, and what is asked for from it: at the same time, since its key is known."""
        key = key_of(ask.entity)
        own, *below = await asyncio.gather(
            self._own(ask, key), *(self._below(ask.type, each, [key]) for each in ask.onward)
        )
        return replace(own, onward=tuple(below))

    async def _own(self, ask: Ask, key: str) -> Told:
        kind = ask.type
        return await self._asked(ask, {kind.key: key}, lambda tables: by_key(kind, tables[kind.table], [key]))

    async def _below(self, source: EntityType, ask: Ask, keys: Sequence[str]) -> Told:
        """What a relation leads to from these rows, and onward from there."""
        relation, kind = ask.relation, ask.type
        assert relation is not None, "only a thing's own row is asked for without one"
        ends = [(b, a) if ask.backwards else (a, b) for a, b in relation.join]
        needed = [
            (source.table, source.key),
            *((source.table, a) for a, _ in ends),
            *((kind.table, b) for _, b in ends),
        ]
        filters: dict[str, Any] = {source.key: keys[0] if len(keys) == 1 else list(keys)}
        if ask.span is not None and kind.time:
            filters["date_range"] = days(ask.span)
        pool = self._pools.get(kind.domain)
        limit = min(ask.limit, pool.source.rows) if pool is not None and ask.listed else ask.limit
        told = await self._asked(
            ask,
            filters,
            lambda tables: related(
                source, tables[source.table], relation, kind, tables[kind.table], keys,
                backwards=ask.backwards, span=ask.span, limit=limit,
            ),
            needed,
        )  # fmt: skip
        if not told.rows or not ask.onward:
            return told
        keys = list(dict.fromkeys(each.key for each in told.rows))
        below = await asyncio.gather(*(self._below(kind, each, keys) for each in ask.onward))
        return replace(told, onward=tuple(below))

    async def _asked(
        self,
        ask: Ask,
        filters: Mapping[str, Any],
        make: Callable[[Mapping[str, Table]], Statement],
        needed: Sequence[tuple[str, str]] = (),
    ) -> Told:
        """One query, and the note of it. What is late or away is left out."""
        kind, began = ask.type, time.monotonic()
        error: str | None = None
        part = Part((), {}, 0, ())
        try:
            if (pool := self._pools.get(kind.domain)) is None:
                raise DomainAway(kind.domain, "refused", "it is no domain of this tenant's")
            if self._until <= began:
                raise DomainAway(kind.domain, "timeout", "the deadline had passed")
            part = await read(pool, kind, self._ontology, make, min(self._until - began, pool.patience_s), needed)
            if part.gone:
                error = f"changed ({kind.table} has no column {', '.join(part.gone)})"
        except DomainAway as away:
            error = f"{away.reason} ({away.detail})" if away.detail else away.reason
        took = round((time.monotonic() - began) * _MS, 1)
        query = DomainQuery(kind.domain, kind.name, ask.entity.id, kind.table, filters, len(part.rows), took, error)
        rows, total = part.rows, part.total
        if ask.listed and total <= len(rows):
            rows = tuple({each.key: each for each in rows}.values())  # one that several rows lead to is told once
            total = len(rows)
        return Told(ask, rows, total, part.families, error=error if not rows else None, query=query)


def _names(key: str | None) -> bool:
    """Whether a row can be spoken of by its key: in a view it may be NULL, and a text may be anything."""
    return key is not None and 0 < len(key) <= MAX_KEY_CHARS and key.isprintable()


def _row(found: Mapping[str, Any], columns: Sequence[str], families: Mapping[str, Family]) -> Row:
    values = {each: shown(found[f"c{n}"], families[each]) for n, each in enumerate(columns)}
    return Row(found["key"], found["parent"], values)
