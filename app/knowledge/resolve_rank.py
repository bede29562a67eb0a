"""What a mention most likely means, by what was looked up: stages 1 to 3 of seed 004 and what the domain found. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from app.context.known import Alternative, Entity, Method
from app.knowledge.mentions import Piece, normalise
from app.knowledge.resolve_types import Found
from app.store.entities import Match

EXACT = 1.0
"""Confidence of a canonical name (seed 004, stage 1)."""
ALIAS = 0.95
"""Of a known alias, at most (stage 2)."""
USES = 0.1
"""What ln(1 + uses) adds to an alias's rank (stage 2, "ORDER BY")."""
ALIAS_DECAY = 0.01
"""What an alias's confidence loses a day without use: e^(−0.01 · days), as seed 004 has it for what is remembered."""
ALIAS_CLOSE = 0.9
"""Share of the best rank from which another thing of the same alias is as likely."""
FUZZY_FROM, FUZZY_LOW, FUZZY_SPAN = 0.7, 0.70, 0.15
"""Similarity from which a name is nearly the same (stage 3), and the confidence that it begins and spreads over."""
FUZZY_CLOSE = 0.06
"""Confidence within which two are as likely: seed 004's own example (0.82 and 0.72, which is 0.05 apart) is put to the user."""
COREFERENCE, COREFERENCE_DECAY = 0.60, 0.5
"""Of the message before, and what each further message takes (stage 4)."""
CHOICE = 0.85
"""Of what the user chose (stage 5)."""
DOMAIN_KEY, DOMAIN_NAME = 0.95, 0.8
"""Of a row whose key the mention is, and of one whose name it is (seed 004, "Lazy Entity Discovery")."""
MAX_ALTERNATIVES = 5
"""Things that are offered at most (stage 3, "LIMIT 5")."""

DAY_S = 86_400.0
_DIGITS = re.compile(r"\d+")


class Outcome(NamedTuple):
    """What a mention may mean, best first; `clear`: it is the first. `alias`: the rows by which it was known; `found`: those
    of the business's own database."""

    method: Method
    options: tuple[Alternative, ...]
    clear: bool
    alias: tuple[Match, ...] = ()
    found: tuple[Found, ...] = ()

    @property
    def best(self) -> Alternative:
        return self.options[0]


class Hit(NamedTuple):
    """What stands in a text, and what it may mean."""

    piece: Piece
    outcome: Outcome


class Choice(NamedTuple):
    """One of the alternatives of an earlier mention (`asked`), which the words `piece` pick."""

    asked: Hit
    option: Alternative
    piece: Piece


def faded(confidence: float, since: datetime | None, now: datetime) -> float:
    """An alias's confidence after the days without use."""
    days = max(0.0, (now - since).total_seconds() / DAY_S) if since is not None else 0.0
    return confidence * math.exp(-ALIAS_DECAY * days)


def alias_rank(match: Match, now: datetime) -> float:
    """confidence · (1 + 0.1 · ln(1 + uses)), the confidence faded, but for what the domain calls a thing."""
    sure = match.confidence if match.source == "domain_db" else faded(match.confidence, match.last_used_at, now)
    return sure * (1 + USES * math.log1p(match.use_count))


def fuzzy_confidence(similarity: float) -> float:
    """0.70 + 0.15 · (s − 0.7) / 0.3: seed 004's range. Its "0.7 · s" never exceeds 0.7."""
    return FUZZY_LOW + FUZZY_SPAN * (min(1.0, max(FUZZY_FROM, similarity)) - FUZZY_FROM) / (1 - FUZZY_FROM)


def coreference_confidence(distance: int) -> float:
    """0.60 · e^(−0.5 · (d − 1)); d = 1: the message before."""
    return COREFERENCE * math.exp(-COREFERENCE_DECAY * (max(1, distance) - 1))


def known(matches: Sequence[Match], now: datetime) -> Outcome | None:
    """What a mention is known to mean, by name (stage 1) or alias (stage 2); `matches` are its own."""
    stated = _stated(matches)
    names = [each for each in matches if each.stage == "name"]
    if names:
        options = _distinct(
            (_entity(each), EXACT) for each in sorted(names, key=lambda each: (not each.own, each.entity_id))
        )
        chosen = [each for each in options if each.entity.id in stated]
        if len(options) > 1 and len(chosen) == 1:
            # Two are called so, and the user once said which is meant.
            option = Alternative(chosen[0].entity, ALIAS)
            return Outcome("known_alias", (option,), True, (stated[option.entity.id],))
        return Outcome("exact", options, len(options) == 1)
    aliases = [each for each in matches if each.stage == "alias"]
    if not aliases:
        return None
    # The user's own before the tenant's, what was stated before what was learned.
    standing = max(_standing(each) for each in aliases)
    rows = sorted(
        (each for each in aliases if _standing(each) == standing),
        key=lambda each: (-alias_rank(each, now), each.name, each.entity_id),
    )
    best = alias_rank(rows[0], now)
    close = [each for each in rows if alias_rank(each, now) >= ALIAS_CLOSE * best]
    options = _distinct((_entity(each), min(ALIAS, alias_rank(each, now))) for each in rows)
    clear = len({each.entity_id for each in close}) == 1
    return Outcome("known_alias", options, clear, tuple(rows[:1]) if clear else ())


def near(span: str, matches: Sequence[Match]) -> Outcome | None:
    """What a mention nearly spells (stage 3), or is the first words of, which counts as the least similarity. A number is never
    nearly another number."""
    digits = set(_DIGITS.findall(span))
    rated = [
        (_entity(each), fuzzy_confidence(each.similarity))
        for each in matches
        if (each.stage in ("near", "near_alias") and each.similarity > FUZZY_FROM) or each.stage == "part"
        if digits <= set(_DIGITS.findall(normalise(each.name))) or (each.stage == "near_alias" and not digits)
    ]
    return _closest("fuzzy", rated)


def discovered(mention: str, found: Sequence[Found]) -> Outcome | None:
    """What the business's own database has under a mention: rows whose key it is before those whose name it is."""
    if not found:
        return None
    exact = [each for each in found if each.exact] or [each for each in found if normalise(each.entity.name) == mention]
    rows = sorted(exact or found, key=lambda each: (each.entity.name, each.entity.id))
    options = _distinct((each.entity, DOMAIN_KEY if each.exact else DOMAIN_NAME) for each in rows)
    kept = {each.entity.id for each in options}
    return Outcome(
        "domain_db", options, len(options) == 1, found=tuple(each for each in rows if each.entity.id in kept)
    )


def _closest(method: Method, rated: Iterable[tuple[Entity, float]]) -> Outcome | None:
    options = _distinct(sorted(rated, key=lambda each: (-each[1], each[0].name, each[0].id)))
    if not options:
        return None
    close = [each for each in options if each.confidence > options[0].confidence - FUZZY_CLOSE]
    return Outcome(method, options if len(close) == 1 else tuple(close), len(close) == 1)


def _stated(matches: Sequence[Match]) -> dict[str, Match]:
    return {
        each.entity_id: each for each in matches if each.stage == "alias" and each.own and each.source == "user_stated"
    }


def _standing(match: Match) -> tuple[bool, bool]:
    return match.own, match.source == "user_stated"


def _entity(match: Match) -> Entity:
    return Entity(match.entity_id, match.entity_type, match.name)


def _distinct(rated: Iterable[tuple[Entity, float]]) -> tuple[Alternative, ...]:
    """Each thing once, as it comes first."""
    found: dict[str, Alternative] = {}
    for entity, confidence in rated:
        if entity.id not in found:
            found[entity.id] = Alternative(entity, confidence)
    return tuple(found.values())[:MAX_ALTERNATIVES]
