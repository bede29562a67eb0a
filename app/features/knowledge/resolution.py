"""What a mention most likely means, as plain functions: stages 1 to 5 of seed 004, and what a text teaches. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from app.context.resolution import Alternative, Entity, Method
from app.features.knowledge.entities import SHIPPED, Confidences, LearnedNames, Match, Thing, UsedAlias
from app.features.knowledge.mentions import Pointer, TextSpan, count_words, find, normalise, plain
from app.features.knowledge.ontology import Ontology

# What the resolution of mentions is told, and what it asks a business's own database. Pure.


class RowQuery(NamedTuple):
    """What is looked for in the business's own database. `types`: of an identifier; (): all that are found by name."""

    mention: str
    types: tuple[str, ...]


class FoundRow(NamedTuple):
    """A row that a mention may mean. `key`: the row's, of `column`; `exact`: the mention is its key, not only (a part of) its
    name."""

    mention: str
    entity: Entity
    table: str
    column: str
    key: str
    domain: str
    properties: Mapping[str, Any]
    exact: bool


class FoundEntities(NamedTuple):
    """What a search came to. `away`: not everything was searched in time, so that what is not here may be there."""

    found: Sequence[FoundRow] = ()
    away: bool = False


class Finder(Protocol):
    """The business's own database. Raises nothing: one that is away has nothing, and says so."""

    async def find(self, tenant: UUID, mentions: Sequence[RowQuery]) -> FoundEntities: ...


# What a mention most likely means, by what was looked up: stages 1 to 3 of seed 004 and what the domain found. Pure.

USES = 0.1
"""What ln(1 + uses) adds to an alias's rank (stage 2, "ORDER BY")."""
ALIAS_DECAY = 0.01
"""What an alias's confidence loses a day without use: e^(−0.01 · days), as seed 004 has it for what is remembered."""
ALIAS_CLOSE = 0.9
"""Share of the best rank from which another thing of the same alias is as likely."""
FUZZY_FROM = 0.7
"""Similarity from which a name is nearly the same (stage 3)."""
FUZZY_CLOSE = 0.06
"""Confidence within which two are as likely: seed 004's own example (0.82 and 0.72, which is 0.05 apart) is put to the user."""
COREFERENCE_DECAY = 0.5
"""What each message further back takes (stage 4)."""
MAX_ALTERNATIVES = 5
"""Things that are offered at most (stage 3, "LIMIT 5")."""
DAY_S = 86_400.0
_DIGITS = re.compile(r"\d+")


class Meaning(NamedTuple):
    """What a mention may mean, best first; `clear`: it is the first. `alias`: the rows by which it was known; `found`: those
    of the business's own database."""

    method: Method
    options: tuple[Alternative, ...]
    clear: bool
    alias: tuple[Match, ...] = ()
    found: tuple[FoundRow, ...] = ()

    @property
    def best(self) -> Alternative:
        return self.options[0]


class Occurrence(NamedTuple):
    """What stands in a text, and what it may mean."""

    piece: TextSpan
    outcome: Meaning


class ChosenAlternative(NamedTuple):
    """One of the alternatives of an earlier mention (`asked`), which the words `piece` pick."""

    asked: Occurrence
    option: Alternative
    piece: TextSpan


def faded(confidence: float, since: datetime | None, now: datetime) -> float:
    """An alias's confidence after the days without use."""
    days = max(0.0, (now - since).total_seconds() / DAY_S) if since is not None else 0.0
    return confidence * math.exp(-ALIAS_DECAY * days)


def alias_rank(match: Match, now: datetime) -> float:
    """confidence · (1 + 0.1 · ln(1 + uses)), the confidence faded, but for what the domain calls a thing."""
    sure = match.confidence if match.source == "domain_db" else faded(match.confidence, match.last_used_at, now)
    return sure * (1 + USES * math.log1p(match.use_count))


def fuzzy_confidence(similarity: float, sure: Confidences = SHIPPED) -> float:
    """0.70 + 0.15 · (s − 0.7) / 0.3: seed 004's range. Its "0.7 · s" never exceeds 0.7."""
    likeness = (min(1.0, max(FUZZY_FROM, similarity)) - FUZZY_FROM) / (1 - FUZZY_FROM)
    return min(1.0, sure.fuzzy + sure.fuzzy_span * likeness)


def coreference_confidence(distance: int, sure: Confidences = SHIPPED) -> float:
    """0.60 · e^(−0.5 · (d − 1)); d = 1: the message before."""
    return sure.coreference * math.exp(-COREFERENCE_DECAY * (max(1, distance) - 1))


def known(matches: Sequence[Match], now: datetime, sure: Confidences = SHIPPED) -> Meaning | None:
    """What a mention is known to mean, by name (stage 1) or alias (stage 2); `matches` are its own."""
    stated = _stated(matches)
    names = [each for each in matches if each.stage == "name"]
    if names:
        options = _distinct(
            (_entity(each), sure.exact) for each in sorted(names, key=lambda each: (not each.own, each.entity_id))
        )
        chosen = [each for each in options if each.entity.id in stated]
        if len(options) > 1 and len(chosen) == 1:
            # Two are called so, and the user once said which is meant.
            option = Alternative(chosen[0].entity, sure.alias)
            return Meaning("known_alias", (option,), True, (stated[option.entity.id],))
        return Meaning("exact", options, len(options) == 1)
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
    options = _distinct((_entity(each), min(sure.alias, alias_rank(each, now))) for each in rows)
    clear = len({each.entity_id for each in close}) == 1
    return Meaning("known_alias", options, clear, tuple(rows[:1]) if clear else ())


def near(span: str, matches: Sequence[Match], sure: Confidences = SHIPPED) -> Meaning | None:
    """What a mention nearly spells (stage 3), or is the first words of, which counts as the least similarity. A number is never
    nearly another number."""
    digits = set(_DIGITS.findall(span))
    rated = [
        (_entity(each), fuzzy_confidence(each.similarity, sure))
        for each in matches
        if (each.stage in ("near", "near_alias") and each.similarity > FUZZY_FROM) or each.stage == "part"
        if digits <= set(_DIGITS.findall(normalise(each.name))) or (each.stage == "near_alias" and not digits)
    ]
    return _closest("fuzzy", rated)


def discovered(mention: str, found: Sequence[FoundRow], sure: Confidences = SHIPPED) -> Meaning | None:
    """What the business's own database has under a mention: rows whose key it is before those whose name it is."""
    if not found:
        return None
    exact = [each for each in found if each.exact] or [each for each in found if normalise(each.entity.name) == mention]
    rows = sorted(exact or found, key=lambda each: (each.entity.name, each.entity.id))
    options = _distinct((each.entity, sure.domain_key if each.exact else sure.domain_name) for each in rows)
    kept = {each.entity.id for each in options}
    return Meaning(
        "domain_db", options, len(options) == 1, found=tuple(each for each in rows if each.entity.id in kept)
    )


def _closest(method: Method, rated: Iterable[tuple[Entity, float]]) -> Meaning | None:
    options = _distinct(sorted(rated, key=lambda each: (-each[1], each[0].name, each[0].id)))
    if not options:
        return None
    close = [each for each in options if each.confidence > options[0].confidence - FUZZY_CLOSE]
    return Meaning(method, options if len(close) == 1 else tuple(close), len(close) == 1)


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


# What words that point back mean (stage 4 of seed 004), and which alternative a user picks (stage 5). Pure.

WINDOW = 10
"""Messages before this one that count (seed 004: "last 10 messages")."""
PICK_WORDS = 12
PICK_CHARS = 200
"""A longer message, in words or characters, is no answer to "which one?"."""
_AGENTS_TEXT = """
account agency association bank branch business buyer candidate carrier client colleague company contact contractor customer
dealer department distributor driver employee firm guest lead manager manufacturer member merchant office organisation
organization owner partner patient people person provider prospect rep school seller shop staff store student supplier team
technician tenant user vendor worker
"""
_AGENTS = frozenset(_AGENTS_TEXT.split())
"""Nouns for those of whom "they" is said rather than "it"."""
_PERSONS_TEXT = """
account buyer candidate client colleague contact contractor customer driver employee guest lead manager member owner partner
patient person prospect rep student technician tenant user worker
"""
_PERSONS = frozenset(_PERSONS_TEXT.split())
"""Nouns for those who may be "he" or "she"."""
_ORDINALS = (
    ("first", "1st", "one", "1"),
    ("second", "2nd", "two", "2"),
    ("third", "3rd", "three", "3"),
    ("fourth", "4th", "four", "4"),
    ("fifth", "5th", "five", "5"),
)
_NTH = {word: n for n, words in enumerate(_ORDINALS) for word in words[:2]} | {"former": 0}
_NUMBER = {word: n for n, words in enumerate(_ORDINALS) for word in words[-2:]}
_NAMES = f"{'|'.join(_NTH)}|last|latter"
_ORDINAL = re.compile(
    rf"(?:\bthe |^\W*)(?P<nth>{_NAMES})\b(?! (?:of|quarter|time|day|week|month|year|order|half)\b)(?: one| option)?"
    rf"|\b(?P<that>{_NAMES}) (?:one|option|choice)\b"
    rf"|\b(?:number|option|no\.?|choice|#) ?(?P<number>{'|'.join(_NUMBER)})\b|^\W*#?(?P<bare>[1-5])\W*$",
    re.IGNORECASE,
)


class Antecedent(NamedTuple):
    """A thing that was named `distance` messages ago (1: in the one before, or in this one: `here`), at `place` in it."""

    entity: Entity
    distance: int
    place: int
    here: bool = False


class PickedAlternative(NamedTuple):
    """An alternative that a message picks, by these of its words."""

    choice: Alternative
    piece: TextSpan


def refer(pointer: Pointer, antecedents: Sequence[Antecedent], ontology: Ontology) -> tuple[Antecedent, ...]:
    """Whom a pointer may mean, the likeliest first: those named last, first. "The customer" is a customer; "they" are
    rather people or organisations, "it" is rather neither; "she" is a person."""
    before = [each for each in antecedents if not each.here or each.place < pointer.piece.start]
    latest = sorted(before, key=lambda each: (each.distance, not each.here, -each.place))
    if pointer.kind == "type":
        fitting = [each for each in latest if each.entity.type in pointer.types]
    elif pointer.kind == "person":
        fitting = [each for each in latest if _is(each.entity, ontology, _PERSONS)]
    else:
        wanted = pointer.kind == "they"
        fitting = [each for each in latest if _is(each.entity, ontology, _AGENTS) is wanted] or latest
    once = {each.entity.id: each for each in reversed(fitting)}
    return tuple(sorted(once.values(), key=fitting.index))


def _is(entity: Entity, ontology: Ontology, nouns: frozenset[str]) -> bool:
    known = ontology.types.get(entity.type)
    words = {entity.type.casefold(), *(known.words if known is not None else ())}
    return any(part in nouns for word in words for part in normalise(word.replace("_", " ")).split())


def may_pick(text: str) -> bool:
    """Whether a text is short enough to be an answer to "which one?"."""
    return len(text) <= PICK_CHARS and count_words(text) <= PICK_WORDS


def pick(text: str, options: Sequence[Alternative]) -> PickedAlternative | None:
    """The one of `options` that a text picks: by id, by its name or words of it that no other has, or by its place."""
    if not may_pick(text) or len(options) < 2:
        return None
    return _by_id(text, options) or _by_name(text, options) or _by_place(text, options)


def _by_id(text: str, options: Sequence[Alternative]) -> PickedAlternative | None:
    low = text.casefold()
    for option in options:
        for name in (option.entity.id, option.entity.id.partition(":")[2]):
            # A key may be a single digit, which is a place first.
            at = low.find(name.casefold()) if len(name) > 2 else -1
            if at >= 0 and len(low) == len(text) and _stands_alone(low, at, at + len(name)):
                return PickedAlternative(option, _cut(text, at, at + len(name)))
    return None


def _stands_alone(text: str, start: int, end: int) -> bool:
    return not (text[start - 1 : start].isalnum() or text[end : end + 1].isalnum())


def _by_name(text: str, options: Sequence[Alternative]) -> PickedAlternative | None:
    grams = {each.norm: each for each in reversed(find(text).grams)}
    names = [normalise(each.entity.name) for each in options]
    whole = [n for n, name in enumerate(names) if name in grams]
    if len(whole) == 1:
        return PickedAlternative(options[whole[0]], grams[names[whole[0]]])
    words = [set(re.findall(r"\w+", name)) for name in names]
    found = []
    for n, own in enumerate(words):
        others = set().union(*(each for m, each in enumerate(words) if m != n))
        hits = [grams[word] for word in own - others if word in grams]
        if hits:
            found.append(PickedAlternative(options[n], min(hits, key=lambda piece: piece.start)))
    return found[0] if len(found) == 1 else None


def _by_place(text: str, options: Sequence[Alternative]) -> PickedAlternative | None:
    match = _ORDINAL.search(text)
    if match is None:
        return None
    if (nth := match["nth"] or match["that"]) is not None:
        n = len(options) - 1 if nth.casefold() in ("last", "latter") else _NTH[nth.casefold()]
    else:
        n = _NUMBER[(match["number"] or match["bare"]).casefold()]
    return PickedAlternative(options[n], _cut(text, *match.span())) if n < len(options) else None


def _cut(text: str, start: int, end: int) -> TextSpan:
    return TextSpan(start, end, text[start:end], normalise(text[start:end]))


def stated(
    mention: str, entity: str, *, own: bool, confidence: float, metadata: Mapping[str, Any] | None = None
) -> UsedAlias:
    """An alias that somebody said outright: for a user (`own`), or for the whole tenant."""
    return UsedAlias(own, normalise(mention), plain(mention), entity, "user_stated", confidence, metadata or {})


def chosen(
    mention: str, entity: str, alternatives: Sequence[str], now: datetime, sure: Confidences = SHIPPED
) -> UsedAlias:
    """What a user's choice among alternatives teaches; its metadata are as in seed 004, table 3."""
    metadata = {
        "disambiguation_context": {"alternative_entities": list(alternatives), "preferred_for_user": True},
        "disambiguation_history": [{"chosen_at": now.date().isoformat(), "alternatives_count": len(alternatives) + 1}],
    }
    return stated(mention, entity, own=True, confidence=sure.choice, metadata=metadata)


def lessons_of(
    hits: Sequence[Occurrence],
    choice: ChosenAlternative | None,
    pointed: Sequence[str],
    now: datetime,
    sure: Confidences = SHIPPED,
) -> LearnedNames:
    """What was found in a text, and was chosen by it; `pointed`: ids of what it points back to."""
    things: list[Thing] = []
    aliases: list[UsedAlias] = []
    for piece, outcome in hits:
        things += map(_thing, outcome.found)
        text = plain(piece.text)
        if outcome.method == "domain_db":
            # A key means its row to everybody, of several everybody has to choose; one thing that a part of a name led to is
            # what this user meant: another business of just that name may yet come.
            own = outcome.clear and not any(each.exact for each in outcome.found)
            aliases += [
                UsedAlias(own, piece.norm, text, each.entity.id, "domain_db", sure.domain_name, {})
                for each in outcome.options
                if normalise(each.entity.name) != piece.norm
            ]
        elif outcome.method == "fuzzy" and outcome.clear:
            best = outcome.best
            aliases.append(UsedAlias(True, piece.norm, text, best.entity.id, "fuzzy", best.confidence, {}))
        aliases += [
            UsedAlias(each.own, each.norm, text, each.entity_id, "learned", each.confidence, {})
            for each in outcome.alias
        ]
    if choice is not None:
        asked, picked = choice.asked, choice.option.entity.id
        things += map(_thing, asked.outcome.found)
        others = [each.entity.id for each in asked.outcome.options if each.entity.id != picked]
        aliases.append(chosen(asked.piece.text, picked, others, now, sure))
    spoken = [each.outcome.best.entity.id for each in hits if each.outcome.clear]
    return LearnedNames(tuple(things), tuple(aliases), tuple(dict.fromkeys([*spoken, *pointed])))


def _thing(found: FoundRow) -> Thing:
    entity = found.entity
    ref = {"domain": found.domain, "table": found.table, "column": found.column, "key": found.key}
    return Thing(entity.id, entity.type, entity.name, normalise(entity.name), ref, dict(found.properties))
