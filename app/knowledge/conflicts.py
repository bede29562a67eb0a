"""Where a memory and a row differ, and which of them stands (seed 004, table 9). Pure.

    trust_db       the row stands
    trust_recent   the row, for it is read now; but the memory where the row says that it was last changed before that was said
    ask_user       neither, until the user says so
    both           both

A row that says the same confirms the memory: `agreeing`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from app.context.resolution import Clash, RowValue
from app.memory.same_value import same_value
from app.store.conflicts import ConflictStore, LoggedConflict
from app.store.resolution import Claim

Rows = Mapping[str, Mapping[str, RowValue]]
"""What rows say, by thing and predicate."""
Stands = Literal["domain", "memory", "other", "both"] | None


def against_rows(claims: Sequence[Claim], rows: Rows, names: Mapping[str, str]) -> list[Clash]:
    """The claims that differ from what the row of their thing says, in their order. `names`: of things, by id."""
    return [
        Clash(
            "memory_vs_db",
            claim.entity_id,
            names.get(claim.entity_id, claim.entity_id),
            claim.predicate,
            claim.memory_id,
            claim.value,
            claim.stated_at,
            claim.confidence,
            row,
            row.strategy,
            stands(row, claim.stated_at),
        )
        for claim in claims
        if (row := _row(claim, rows)) is not None and not same_value(claim.value, row.value)
    ]


def agreeing(claims: Sequence[Claim], rows: Rows) -> list[Claim]:
    """The claims that a row confirms."""
    return [claim for claim in claims if (row := _row(claim, rows)) is not None and same_value(claim.value, row.value)]


def stands(row: RowValue, stated_at: datetime) -> Stands:
    """Which side is authoritative; None: nobody has decided."""
    if row.strategy == "ask_user":
        return None
    if row.strategy == "both":
        return "both"
    if row.strategy == "trust_recent" and row.changed_at is not None and stated_at > row.changed_at:
        return "memory"
    return "domain"


def _row(claim: Claim, rows: Rows) -> RowValue | None:
    return rows.get(claim.entity_id, {}).get(claim.predicate)


# --- as the log has it ------------------------------------------------------------------------------------------------


def logged_data(clash: Clash) -> dict[str, Any]:
    """`conflict_data` of seed 004's example, for a memory against a row."""
    assert clash.row is not None, "memory against memory is logged where statements are taken in"
    row = clash.row
    return {
        "conflict_type": clash.conflict_type,
        "entity_id": clash.entity_id,
        "entity_name": clash.entity_name,
        "predicate": clash.predicate,
        "memory": {
            "memory_id": clash.memory_id,
            "predicate": clash.predicate,
            "value": clash.memory_value,
            "confidence": round(clash.memory_confidence, 4),
            "created_at": clash.memory_at,
        },
        "db_source": {
            "domain": row.domain,
            "table": row.table,
            "field": row.field,
            "value": row.value,
            "queried_at": row.queried_at,
        },
    }


def logged_outcome(clash: Clash) -> dict[str, Any] | None:
    """`resolution_outcome` of seed 004's example; None: it stays open."""
    if clash.stands == "domain":
        why = (
            f"Domain database is authoritative for {clash.predicate.replace('_', ' ')}"
            if clash.strategy == "trust_db"
            else "What the row says now is later than what was said"
        )
        updates = [{"memory_id": clash.memory_id, "new_status": "invalidated"}]
        return {"action": "supersede_memory", "memory_updates": updates, "rationale": why}
    if clash.stands == "memory":
        why = "It was said after the row was last changed"
        return {"action": "keep_memory", "memory_updates": [], "rationale": why}
    return None


# Contradictions in the log, as a prompt is told them.

_OVER = frozenset({"row_agrees", "row_changed"})
"""Outcomes of which there is nothing to tell: no two sides are left."""


class ConflictLog:
    """Reads them for the things of a request."""

    def __init__(self, store: ConflictStore) -> None:
        self._store = store

    async def of_entities(self, tenant: UUID, user: UUID, entities: Sequence[str], *, since: datetime) -> list[Clash]:
        """Those that are open, or were resolved since then; the latest first."""
        found = await self._store.of_entities(tenant, user, entities, since=since)
        return [clash for each in found if (clash := clash_of(each)) is not None]


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
        _as_row(row, strategy) if row else None,
        strategy,
        _stands(logged),
        _uuid(other.get("memory_id")),
        other.get("value"),
        _moment(other.get("stated_at")),
        logged.conflict_id,
        logged.resolved_at or logged.created_at,
    )


def _as_row(row: Mapping[str, Any], strategy: str) -> RowValue:
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
