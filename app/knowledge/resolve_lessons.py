"""What a text teaches about what things are called (seed 004, "On Success: Learn/Reinforce Alias"). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from app.knowledge import resolve_rank as rank
from app.knowledge.mentions import normalise, plain
from app.knowledge.resolve_rank import Choice, Hit
from app.knowledge.resolve_types import Found
from app.store.entities import Lessons, Taught, Thing


def stated(
    mention: str, entity: str, *, own: bool, confidence: float = rank.ALIAS, metadata: Mapping[str, Any] | None = None
) -> Taught:
    """An alias that somebody said outright: for a user (`own`), or for the whole tenant."""
    return Taught(own, normalise(mention), plain(mention), entity, "user_stated", confidence, metadata or {})


def chosen(mention: str, entity: str, alternatives: Sequence[str], now: datetime) -> Taught:
    """What a user's choice among alternatives teaches; its metadata are as in seed 004, table 3."""
    metadata = {
        "disambiguation_context": {"alternative_entities": list(alternatives), "preferred_for_user": True},
        "disambiguation_history": [{"chosen_at": now.date().isoformat(), "alternatives_count": len(alternatives) + 1}],
    }
    return stated(mention, entity, own=True, confidence=rank.CHOICE, metadata=metadata)


def lessons_of(hits: Sequence[Hit], choice: Choice | None, pointed: Sequence[str], now: datetime) -> Lessons:
    """What was found in a text, and was chosen by it; `pointed`: ids of what it points back to."""
    things: list[Thing] = []
    aliases: list[Taught] = []
    for piece, outcome in hits:
        things += map(_thing, outcome.found)
        text = plain(piece.text)
        if outcome.method == "domain_db":
            # A key means its row to everybody, of several everybody has to choose; one thing that a part of a name led to is
            # what this user meant: another business of just that name may yet come.
            own = outcome.clear and not any(each.exact for each in outcome.found)
            aliases += [
                Taught(own, piece.norm, text, each.entity.id, "domain_db", rank.DOMAIN_NAME, {})
                for each in outcome.options
                if normalise(each.entity.name) != piece.norm
            ]
        elif outcome.method == "fuzzy" and outcome.clear:
            best = outcome.best
            aliases.append(Taught(True, piece.norm, text, best.entity.id, "fuzzy", best.confidence, {}))
        aliases += [
            Taught(each.own, each.norm, text, each.entity_id, "learned", each.confidence, {}) for each in outcome.alias
        ]
    if choice is not None:
        asked, picked = choice.asked, choice.option.entity.id
        things += map(_thing, asked.outcome.found)
        others = [each.entity.id for each in asked.outcome.options if each.entity.id != picked]
        aliases.append(chosen(asked.piece.text, picked, others, now))
    spoken = [each.outcome.best.entity.id for each in hits if each.outcome.clear]
    return Lessons(tuple(things), tuple(aliases), tuple(dict.fromkeys([*spoken, *pointed])))


def _thing(found: Found) -> Thing:
    entity = found.entity
    ref = {"domain": found.domain, "table": found.table, "column": found.column, "key": found.key}
    return Thing(entity.id, entity.type, entity.name, normalise(entity.name), ref, dict(found.properties))
