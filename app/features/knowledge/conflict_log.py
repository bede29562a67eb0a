"""Contradictions in the log, as a prompt is told them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from app.context.resolution import Clash, RowValue
from app.features.knowledge.conflicts import Stands
from app.store.conflicts import LoggedConflict
from app.store.pools import Pool
from app.store.queries import Queries

MAX_TOLD = 32
"""Contradictions about the things of one request: a prompt has room for few of them."""

_OVER = frozenset({"row_agrees", "row_changed"})
"""Outcomes of which there is nothing to tell: no two sides are left."""


class ConflictLog:
    """Reads them for the things of a request."""

    def __init__(self, pool: Pool, sql: Queries) -> None:
        self._pool = pool
        self._sql = sql

    async def of_entities(self, tenant: UUID, user: UUID, entities: Sequence[str], *, since: datetime) -> list[Clash]:
        """Those that are open, or were resolved since then; the latest first, of at most `MAX_TOLD`."""
        if not entities:
            return []
        async with self._pool.transaction(tenant) as connection:
            asked = (tenant, user, list(entities), since, MAX_TOLD)
            rows = await connection.fetch(self._sql["conflicts.of_entities"], *asked)
        found = (clash_of(LoggedConflict(**dict(row))) for row in rows)
        return [clash for clash in found if clash is not None]


def clash_of(logged: LoggedConflict) -> Clash | None:
    """A contradiction of the log; None: its words were forgotten, or its row does not say so any more."""
    data = logged.conflict_data
    row = data.get("db_source")
    sides = [data["memory"]] if "memory" in data else list(data.get("memories") or ())
    if not sides or logged.entity_id is None or (logged.resolution_outcome or {}).get("action") in _OVER:
        return None
    first, other = sides[0], sides[1] if len(sides) > 1 else {}
    strategy = logged.resolution_strategy or "both"
    return Clash(
        logged.conflict_type,
        logged.entity_id,
        str(data.get("entity_name") or logged.entity_id),
        str(data.get("predicate") or first.get("predicate") or ""),
        _uuid(first.get("memory_id")),
        str(first.get("value") or ""),
        _moment(first.get("created_at") or first.get("stated_at")) or logged.created_at,
        float(first.get("confidence") or 0.0),
        _row(row, strategy) if row else None,
        strategy,
        _stands(logged),
        _uuid(other.get("memory_id")),
        other.get("value"),
        _moment(other.get("stated_at")),
        logged.conflict_id,
        logged.resolved_at or logged.created_at,
    )


def _row(row: Mapping[str, Any], strategy: str) -> RowValue:
    at = _moment(row["queried_at"])
    assert at is not None, "it is written with its time"
    return RowValue(row["domain"], row["table"], row["field"], row["value"], strategy, at)


def _stands(logged: LoggedConflict) -> Stands:
    """Which side stands: the user's word before all, then what the outcome did."""
    outcome = logged.resolution_outcome
    if outcome is None:
        return "both" if logged.resolution_strategy == "both" else None
    action, keep = outcome.get("action"), outcome.get("keep")
    if keep in ("memory", "domain", "other", "both"):
        standing: Stands = keep
        return standing
    if action in ("close_earlier", "keep_both"):
        return "both"
    if action == "keep_memory" or "winner" in outcome:
        return "memory"
    return "domain" if "db_source" in logged.conflict_data else "other"


def _uuid(value: object) -> UUID | None:
    return UUID(str(value)) if value else None


def _moment(value: object) -> datetime | None:
    return datetime.fromisoformat(str(value)) if value else None
