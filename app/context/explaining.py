"""What was known of the things that a question names, as the explanation of a compile keeps it, and read back from there.

What a memory said is not kept: its value is read by its id when it is shown, or compiled again, so that what was forgotten
since is not there any more. What the business's own database said is kept as it was told: as of then nobody asks it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from app.context.asked import Asked, query_type, temporal_scope
from app.context.facts_section import Learned, Tellings, fact_cost
from app.context.inputs import KnownThen
from app.context.notes import Count
from app.context.resolution import Alternative, Clash, DomainFact, DomainQuery, Entity, Known, Resolution, RowValue


def told_known(
    asked: Asked, learned: Learned, told: Tellings, chosen: Mapping[str, int], budget: int, count: Count
) -> dict[str, Any]:
    """The keys that a compile with knowledge adds to its explanation. `chosen`: tokens of the facts that are told, by subject;
    `budget`: tokens that they may take at most. Of facts beyond it only the number is kept."""
    known = learned.known
    return {
        "entities": [_entity(each) for each in known.resolutions],
        "query": _query(asked, bool(known.queries)),
        "domain": {
            "status": "degraded" if known.reason == "domain" else "ok" if known.queries else "none",
            "reason": known.reason,
            "queries": [each._asdict() | {"filters": dict(each.filters)} for each in known.queries],
        }
        | _facts(told, chosen, budget, count),
        "conflicts": [_clash(each) for each in learned.clashes],
    }


def _entity(each: Resolution) -> dict[str, Any]:
    found = each.entity
    return {
        "mention": each.mention,
        "canonical_id": found.id if found is not None else None,
        "canonical_name": found.name if found is not None else None,
        "type": found.type if found is not None else None,
        "confidence": each.confidence,
        "method": each.method,
        "requires_disambiguation": each.requires_disambiguation,
        "alternatives": [
            {
                "canonical_id": other.entity.id,
                "canonical_name": other.entity.name,
                "type": other.entity.type,
                "confidence": other.confidence,
            }
            for other in each.alternatives
        ],
    }


def _query(asked: Asked, domain: bool) -> dict[str, Any]:
    kind = query_type(asked, resolved=bool(asked.things), domain=domain)
    return kind._asdict() | {"temporal_scope": temporal_scope(asked.span)}


def _facts(told: Tellings, chosen: Mapping[str, int], budget: int, count: Count) -> dict[str, Any]:
    """As many of them as fill the budget, so that a compile as of then shares out the same, and those that earlier blocks tell:
    should one have to go, it is told again."""
    kept, room = [], budget
    for each in told.facts:
        if room <= 0:
            break
        room -= fact_cost(each, count)
        kept.append(_fact(each, each.subject in chosen, chosen.get(each.subject, 0)))
    kept += [_fact(each, False, 0) | {"visible": True} for each in told.seen]
    omitted = len(told.facts) + len(told.seen) - len(kept)
    return {"facts": kept} | ({"omitted": omitted} if omitted else {})


def _fact(each: DomainFact, chosen: bool, tokens: int) -> dict[str, Any]:
    return each._asdict() | {"chosen": chosen, "tokens": tokens}


def _clash(each: Clash) -> dict[str, Any]:
    row = each.row
    told: dict[str, Any] = {
        "conflict_type": each.conflict_type,
        "entity_id": each.entity_id,
        "entity_name": each.entity_name,
        "predicate": each.predicate,
        "memory": {
            "memory_id": each.memory_id,
            "confidence": round(each.memory_confidence, 4),
            "said_at": each.memory_at,
        },
        "db_source": None,
        "other": None,
        "strategy": each.strategy,
        "stands": each.stands,
        "since": each.since,
    }
    if row is not None:
        told["db_source"] = {
            "domain": row.domain,
            "table": row.table,
            "field": row.field,
            "value": row.value,
            "queried_at": row.queried_at,
        }
    if each.other_id is not None:
        told["other"] = {"memory_id": each.other_id, "said_at": each.other_at}
    return {"id": each.conflict_id} | told if each.conflict_id is not None else told


def quoted_memories(audit: Mapping[str, Any]) -> list[UUID]:
    """The memories whose values the conflicts of an explanation tell."""
    sides = [side for each in audit.get("conflicts", ()) for side in (each["memory"], each["other"]) if side]
    return [UUID(str(side["memory_id"])) for side in sides if side["memory_id"] is not None]


def fill(explained: dict[str, Any], values: Mapping[UUID, str]) -> None:
    """Put in what these memories say; None: it was forgotten since."""
    for each in explained.get("conflicts", ()):
        for side in (each["memory"], each["other"]):
            if side:
                side["value"] = values.get(UUID(str(side["memory_id"]))) if side["memory_id"] is not None else None


# --- as of then ----------------------------------------------------------------------------------------------------------


class Recalled:
    """What was known then: an `Inquiry` that asks nobody."""

    def __init__(self, known: Known) -> None:
        self._known = known

    @property
    def resolutions(self) -> Sequence[Resolution]:
        return self._known.resolutions

    @property
    def related(self) -> frozenset[str]:
        return self._known.related

    def begin(self, widened: Sequence[str] = ()) -> None:
        return None

    async def known(self) -> Known:
        return self._known

    async def against(self, user: UUID, memories: Sequence[UUID]) -> Sequence[Clash]:
        return ()

    def close(self) -> None:
        return None


def recalled(audit: Mapping[str, Any], kept: KnownThen, values: Mapping[UUID, str]) -> tuple[Recalled, int]:
    """What was known when this explanation was made, and how many conflicts are not told any more, because the words of their
    memory are gone. `values`: what memories say, by their ids."""
    clashes = [_clash_then(each, values) for each in audit["conflicts"]]
    domain = audit["domain"]
    known = Known(
        resolutions=tuple(_resolution_then(each) for each in audit["entities"]),
        related=kept.related,
        facts=tuple(
            DomainFact(each["subject"], each["entity"], each["query_type"], each["text"]) for each in domain["facts"]
        ),
        queries=tuple(DomainQuery(**each) for each in domain["queries"]),
        clashes=tuple(each for each in clashes if each is not None),
        reason=domain["reason"],
    )
    return Recalled(known), sum(each is None for each in clashes)


def _resolution_then(each: Mapping[str, Any]) -> Resolution:
    return Resolution(
        mention=each["mention"],
        start=0,
        entity=_entity_then(each) if each["canonical_id"] is not None else None,
        confidence=each["confidence"],
        method=each["method"],
        alternatives=tuple(Alternative(_entity_then(other), other["confidence"]) for other in each["alternatives"]),
        requires_disambiguation=each["requires_disambiguation"],
    )


def _entity_then(each: Mapping[str, Any]) -> Entity:
    return Entity(each["canonical_id"], each["type"], each["canonical_name"])


def _clash_then(each: Mapping[str, Any], values: Mapping[UUID, str]) -> Clash | None:
    memory, other, row = each["memory"], each["other"], each["db_source"]
    ids = [UUID(side["memory_id"]) for side in (memory, other) if side and side["memory_id"] is not None]
    if not ids or any(one not in values for one in ids):
        return None
    return Clash(
        conflict_type=each["conflict_type"],
        entity_id=each["entity_id"],
        entity_name=each["entity_name"],
        predicate=each["predicate"],
        memory_id=ids[0],
        memory_value=values[ids[0]],
        memory_at=datetime.fromisoformat(memory["said_at"]),
        memory_confidence=memory["confidence"],
        row=RowValue(strategy=each["strategy"], **row | {"queried_at": datetime.fromisoformat(row["queried_at"])})
        if row
        else None,
        strategy=each["strategy"],
        stands=each["stands"],
        other_id=ids[1] if len(ids) > 1 else None,
        other_value=values[ids[1]] if len(ids) > 1 else None,
        other_at=datetime.fromisoformat(other["said_at"]) if other and other["said_at"] else None,
        conflict_id=UUID(each["id"]) if "id" in each else None,
        since=datetime.fromisoformat(each["since"]) if each["since"] else None,
    )
