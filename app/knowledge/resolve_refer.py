"""What words that point back mean (stage 4 of seed 004), and which alternative a user picks (stage 5). Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from app.context.known import Alternative, Entity
from app.knowledge.mentions import Piece, Pointer, count_words, find, normalise
from app.knowledge.ontology import Ontology

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


class Pick(NamedTuple):
    """An alternative that a message picks, by these of its words."""

    choice: Alternative
    piece: Piece


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


def pick(text: str, options: Sequence[Alternative]) -> Pick | None:
    """The one of `options` that a text picks: by id, by its name or words of it that no other has, or by its place."""
    if not may_pick(text) or len(options) < 2:
        return None
    return _by_id(text, options) or _by_name(text, options) or _by_place(text, options)


def _by_id(text: str, options: Sequence[Alternative]) -> Pick | None:
    low = text.casefold()
    for option in options:
        for name in (option.entity.id, option.entity.id.partition(":")[2]):
            # A key may be a single digit, which is a place first.
            at = low.find(name.casefold()) if len(name) > 2 else -1
            if at >= 0 and len(low) == len(text) and _stands_alone(low, at, at + len(name)):
                return Pick(option, _cut(text, at, at + len(name)))
    return None


def _stands_alone(text: str, start: int, end: int) -> bool:
    return not (text[start - 1 : start].isalnum() or text[end : end + 1].isalnum())


def _by_name(text: str, options: Sequence[Alternative]) -> Pick | None:
    grams = {each.norm: each for each in reversed(find(text).grams)}
    names = [normalise(each.entity.name) for each in options]
    whole = [n for n, name in enumerate(names) if name in grams]
    if len(whole) == 1:
        return Pick(options[whole[0]], grams[names[whole[0]]])
    words = [set(re.findall(r"\w+", name)) for name in names]
    found = []
    for n, own in enumerate(words):
        others = set().union(*(each for m, each in enumerate(words) if m != n))
        hits = [grams[word] for word in own - others if word in grams]
        if hits:
            found.append(Pick(options[n], min(hits, key=lambda piece: piece.start)))
    return found[0] if len(found) == 1 else None


def _by_place(text: str, options: Sequence[Alternative]) -> Pick | None:
    match = _ORDINAL.search(text)
    if match is None:
        return None
    if (nth := match["nth"] or match["that"]) is not None:
        n = len(options) - 1 if nth.casefold() in ("last", "latter") else _NTH[nth.casefold()]
    else:
        n = _NUMBER[(match["number"] or match["bare"]).casefold()]
    return Pick(options[n], _cut(text, *match.span())) if n < len(options) else None


def _cut(text: str, start: int, end: int) -> Piece:
    return Piece(start, end, text[start:end], normalise(text[start:end]))
