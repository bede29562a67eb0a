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

from app.context.resolution import Clash, RowValue
from app.memory.claims import same_value
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
