"""What two statements about one subject are to each other, when their values are the same however they are written, which one
stands, and how far a memory is believed.

Seed 004 ("Transformation 2") tells four cases for (subject, predicate, value): new, the same value, a conflict, a correction;
seed 000 §5.5 the order in which a conflict is decided. Pure functions over plain values.
"""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Literal

from msgspec import Struct

from app.memory.candidate import Ended, MemoryCandidate, Provenance, Triple
from app.memory.extract_dates import MONTHS
from app.memory.extract_grammar import words
from app.memory.text import sentences, strip_injected, terms
from app.store.kinds import LearnedKind


class Trust(Struct, frozen=True, forbid_unknown_fields=True):
    """How far statements are believed: `system_config.confidence`, and what is shipped there.

    Said once: facts and what is to be remembered, preferences, corrections (seed 004, `should_extract_semantic`). Boosts: what
    the first, second, third and every further confirmation adds (seed 004, `compute_reinforcement_boost`). `most`: nothing is
    ever quite sure (seed 004, "epistemic humility").
    """

    fact: float = 0.7
    preference: float = 0.6
    correction: float = 0.85
    boost_1: float = 0.15
    boost_2: float = 0.1
    boost_3: float = 0.05
    boost_more: float = 0.02
    most: float = 0.95

    @property
    def boosts(self) -> tuple[float, ...]:
        """Those that are told one by one."""
        return self.boost_1, self.boost_2, self.boost_3


SHIPPED = Trust()


def gained(confirmations: int, trust: Trust = SHIPPED) -> float:
    """What so many confirmations add together."""
    return sum(trust.boosts[:confirmations]) + trust.boost_more * max(0, confirmations - len(trust.boosts))


def base_confidence(candidate: MemoryCandidate, trust: Trust = SHIPPED) -> float:
    """What is believed of a statement that was made once: the figure for its kind, or less where extraction itself is less sure
    of having understood it."""
    of_kind = trust.fact
    if candidate.kind == "correction":
        of_kind = trust.correction
    elif candidate.kind == "preference" and not candidate.explicit:
        of_kind = trust.preference
    return min(candidate.confidence, of_kind)


def confirmed(confidence: float, count: int, base: float, times: int, trust: Trust = SHIPPED) -> float:
    """The confidence of a memory, now `confidence` after `count` confirmations, after `times` more by statements of which the
    surest is worth `base`. Depends on how many there were, not on their order; never less than it was."""
    began = max(confidence - gained(count, trust), base)
    return max(confidence, min(trust.most, began + gained(count + times, trust)))


def predicate_type(kind: LearnedKind, predicate: str) -> str:
    """Seed 004, table 5: preference, requirement, observation, policy or attribute."""
    if kind == "event":
        return "observation"
    if kind == "instruction":
        return "policy"
    if predicate in words("requirements"):
        return "requirement"
    return "preference" if kind == "preference" or predicate.startswith("favourite_") else "attribute"


# --- relations -----------------------------------------------------------------------------------------------------------

_WORD = re.compile(r"[^\W_]+(?:['’.:/-][^\W_]+)*")
_SHORT = 3  # letters: "gas" and "bus" are no plurals
_ARTICLES = frozenset(["a", "an", "the", "their", "his", "her", "my", "our"])


class TripleRelation(StrEnum):
    """What the triple of one statement is to that of another."""

    NONE = "none"
    SAME = "same"
    CONFLICT = "conflict"
    BESIDE = "beside"  # another value where there may well be two


def relation(one: Triple | None, other: Triple | None) -> TripleRelation:
    """The same both ways round. Predicates of which a subject has one at a time conflict by another value; `likes` and
    `dislikes`, and a predicate and its `not_`, by the same one."""
    if one is None or other is None or one.subject != other.subject:
        return TripleRelation.NONE
    ours, theirs = _value(one.value), _value(other.value)
    if opposite(one.predicate) == other.predicate:
        return TripleRelation.CONFLICT if ours == theirs else TripleRelation.NONE
    if one.predicate != other.predicate:
        return TripleRelation.NONE
    if ours == theirs or (_of_thing(one) and same_value(one.value, other.value)):
        return TripleRelation.SAME
    if not (single_valued(one.predicate) or _of_thing(one)):
        return TripleRelation.NONE
    if ours and theirs and (ours <= theirs or theirs <= ours):
        return TripleRelation.SAME
    if one.predicate == "diet":
        sorts = _diets(one.value)
        if sorts != _diets(other.value) or "diet_of_bodies" in sorts:
            return TripleRelation.NONE
    several = one.predicate in words("may_be_several") or one.subject in words("several_of_them")
    return TripleRelation.BESIDE if several else TripleRelation.CONFLICT


def single_valued(predicate: str) -> bool:
    """Has a subject one of these at a time?"""
    single = words("single_valued") | words("terms_of_business")
    return predicate in single or predicate.startswith("favourite_")


def _of_thing(triple: Triple) -> bool:
    """Whether it tells an attribute of a thing with an id ("customer:gai_123"): of these it has one at a time, as a row has one
    value in each column; but not of what one may like, or avoid, any number."""
    many = triple.predicate in words("many_valued") or triple.predicate.startswith("not_")
    return ":" in triple.subject and not many


def replaces(new: Triple | None, old: Triple | None) -> bool:
    """Does a correction that says `new` take the place of `old`? Of one value at a time it does, and of what no list knows."""
    found = relation(new, old)
    if found in (TripleRelation.CONFLICT, TripleRelation.BESIDE):
        return True
    if found is TripleRelation.SAME or new is None or old is None:
        return False
    same = (new.subject, new.predicate) == (old.subject, old.predicate)
    return (
        same
        and new.predicate != "diet"
        and not (new.predicate in words("many_valued") or new.predicate.startswith("not_"))
    )


def ends(ended: Ended, triple: Triple | None) -> bool:
    """Is a triple what is not so any more? "I left Acme" ends `works_at Acme`, and being "a data engineer at Acme" as well; but
    "I quit Apple Music" no work at Apple: where somebody works or lives is meant as a whole ("Berlin" of "Berlin, Germany")."""
    if triple is None or triple.subject != ended.subject or triple.predicate.startswith("not_"):
        return False
    if ended.predicate is None and ended.value is None:
        return triple.subject not in words("several_of_them")  # of two dogs nobody knows which
    if ended.value is None:
        return ended.predicate == triple.predicate
    ours, theirs = _value(ended.value), _value(triple.value)
    if not ours or not ours <= theirs:
        return False
    if ended.predicate == triple.predicate and triple.predicate in _NAMED:
        return any(ours == _value(part) for part in (triple.value, triple.value.partition(",")[0]))
    work = words("of_work")
    return (
        ended.predicate is None
        or ended.predicate == triple.predicate
        or (ended.predicate in work and triple.predicate in work)
    )


_NAMED = frozenset(["works_at", "lives_in"])
"""Predicates whose value is a name."""
_OPPOSITES = {"likes": "dislikes", "dislikes": "likes"}


def opposite(predicate: str) -> str:
    """The predicate that denies this one."""
    if predicate in _OPPOSITES:
        return _OPPOSITES[predicate]
    return predicate.removeprefix("not_") if predicate.startswith("not_") else "not_" + predicate


def _diets(value: str) -> frozenset[str]:
    """Of which sorts a diet is: who goes gluten-free stays a vegetarian."""
    said = frozenset(value.casefold().split())
    sorts = ("diet_of_animals", "diet_of_bodies", "diet_of_faiths", "diet_of_plans")
    return frozenset(sort for sort in sorts if said & words(sort))


def _value(text: str) -> frozenset[str]:
    """The words of a value, without articles, in the singular: "a peanut allergy" is one to "peanuts"."""
    found = (word.removesuffix("'s") for word in _WORD.findall(text.replace("’", "'").casefold()))
    return frozenset(_singular(word) for word in found if word not in _ARTICLES)


def _singular(word: str) -> str:
    plural = len(word) > _SHORT and word.endswith("s") and not word.endswith(("ss", "us", "is"))
    return word[:-1] if plural else word


# --- the same value, however it is written: "NET 30" and "net-30 days", "$3,500" and "3500.00" ---------------------------
# What counts is told in docs/explanation/conflicts.md. In doubt two values differ: then somebody looks, and nothing is lost.

_CURRENCIES = {"$": "usd", "€": "eur", "£": "gbp", "¥": "jpy", "us$": "usd"}
_CODES = frozenset({"usd", "eur", "gbp", "jpy", "chf", "cad", "aud", "sek", "nok", "dkk", "pln", "inr", "cny"})
_TRUE = frozenset({"true", "yes", "y", "t"})
_FALSE = frozenset({"false", "no", "n", "f"})
_SPAN_UNITS = frozenset({"day", "days"})
"""After a word and a number they add nothing: "NET 30 days". After a number alone they are its unit."""
_MAX_VALUE_CHARS = 400
"""Characters of a value that are compared: longer ones are texts, and compared as they begin."""

_NUMBER = re.compile(
    r"(?P<before>us\$|[$€£¥]|[a-z]{3}\b)?\s*(?P<sign>[+-]?)(?P<digits>\d{1,3}(?:[,' ]\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)"
    r"\s*(?P<after>[$€£¥%]|[a-z]+)?"
)
_MOMENT = re.compile(r"(\d{4}-\d{2}-\d{2})(?:[t ](\d{2}:\d{2}.*))?")
_SPOKEN = re.compile(
    r"(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day,? )?(?:(?P<d1>\d{1,2})(?:st|nd|rd|th)?(?: of)? (?P<m1>[a-z]+)\.?|"
    r"(?P<m2>[a-z]+)\.? (?P<d2>\d{1,2})(?:st|nd|rd|th)?),? (?P<y>\d{4})"
)
_RUNS = re.compile(r"[^\W\d_]+|\d+")


def same_value(one: str, other: str) -> bool:
    """Whether two values say the same. Symmetric, and every value is the same as itself."""
    ours, theirs = _plain(one), _plain(other)
    if ours == theirs:
        return True
    if (left := _moment(ours)) is not None and (right := _moment(theirs)) is not None:
        return _same_moment(left, right)
    if (first := _number(ours)) is not None and (second := _number(theirs)) is not None:
        (amount, unit), (other_amount, other_unit) = first, second
        return amount == other_amount and (unit == other_unit or not unit or not other_unit)
    if {ours, theirs} <= _TRUE | _FALSE:
        return (ours in _TRUE) == (theirs in _TRUE)
    said, told = _words(ours), _words(theirs)
    return said == told and said != ""


def _plain(text: str) -> str:
    """Without case, widths of letters, outer marks and doubled spaces."""
    plain = unicodedata.normalize("NFKC", text[:_MAX_VALUE_CHARS]).casefold().replace("’", "'")
    return " ".join(plain.split()).strip(" .,;:!\"'“”")


def _moment(text: str) -> date | datetime | None:
    if match := _MOMENT.fullmatch(text):
        try:
            if match[2] is None:
                return date.fromisoformat(match[1])
            moment = datetime.fromisoformat(f"{match[1]}T{match[2].upper().replace(' ', '')}")
        except ValueError:
            return None
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    if match := _SPOKEN.fullmatch(text):
        month = MONTHS.get(match["m1"] or match["m2"])
        try:
            return date(int(match["y"]), month, int(match["d1"] or match["d2"])) if month is not None else None
        except ValueError:
            return None
    return None


def _same_moment(one: date | datetime, other: date | datetime) -> bool:
    """A day is the same as any moment of it."""
    if isinstance(one, datetime) and isinstance(other, datetime):
        return one == other
    ours, theirs = (each.date() if isinstance(each, datetime) else each for each in (one, other))
    return ours == theirs


def _number(text: str) -> tuple[Decimal, str] | None:
    """An amount and its unit, "" for none."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    before, after = match["before"] or "", match["after"] or ""
    if before and before not in _CURRENCIES and before not in _CODES:
        return None  # "net 30" is a term, and no thirty of anything
    units = {_CURRENCIES.get(each, each) for each in (before, after) if each}
    if len(units) > 1:
        return None
    unit = next(iter(units), "")
    try:
        amount = Decimal(match["sign"] + re.sub(r"[,' ]", "", match["digits"]))
    except InvalidOperation:  # pragma: no cover - the pattern admits numbers only
        return None
    return amount, unit.removesuffix("s") if unit not in _CODES else unit


def _words(text: str) -> str:
    """Letters and digits alone, numbers apart from each other; without the days of "net 30 days"."""
    runs = _RUNS.findall(text)
    if len(runs) > 2 and runs[-1] in _SPAN_UNITS and runs[-2].isdigit():
        runs.pop()
    parts: list[str] = []
    for before, run in zip(["", *runs], runs, strict=False):
        parts += ["|", run] if before.isdigit() and run.isdigit() else [run]
    return "".join(parts)


# --- conflicts -----------------------------------------------------------------------------------------------------------

AUTHORITY = {
    Provenance.USER_STATED: 3,
    Provenance.PREFERENCE: 3,
    Provenance.FACT: 3,
    Provenance.INSTRUCTION: 3,
    Provenance.CORRECTION: 2,
    Provenance.TOOL_OUTPUT: 1,
    Provenance.SYSTEM_INFERRED: 0,
}
"""Seed 000 §5.5: user_stated > correction > system_inferred. Facts and the like are what the user stated."""


class ClaimSide(Struct, frozen=True):
    """One side of a conflict. `domain`: the domain database says so. `stated_at`: when it was last said."""

    domain: bool
    stated_at: datetime
    authority: int
    confidence: float
    text: str


def prefer(one: ClaimSide, other: ClaimSide) -> tuple[bool, str]:
    """Whether `one` stands, and by what (the strategies of seed 004, table 9): a domain row before all; then seed 000 §5.5:
    the more recent, the higher authority, the more confident. The text decides what nothing else does, so that no order of
    arrival can."""
    for ours, theirs, strategy in (
        (one.domain, other.domain, "trust_db"),
        (one.stated_at, other.stated_at, "trust_recent"),
        (one.authority, other.authority, "trust_authority"),
        (one.confidence, other.confidence, "trust_confidence"),
    ):
        if ours != theirs:
            return ours > theirs, strategy  # type: ignore[operator]  # each pair is of one ordered type
    return one.text > other.text, "trust_confidence"


# --- answers to "I have a note from 3 May that …; is that still right?" (seed 004, active validation flow) ---------------
# A question counts as put only if the assistant's words put it, at their end; and an answer only if it begins with one. What is
# unclear is none: the note stays in doubt, and is asked about again.

MAX_ANSWER = 400
"""Characters of a message that are looked at: an answer stands at its beginning."""
MAX_VALUE_WORDS = 5
"""Of what is right instead: "No, Thursday now"."""
_NAMES_IT = 0.5
"""Share of a note's words that a question about it has: what the assistant says in its own words."""

_YES = re.compile(
    r"\s*(?:yes|yep|yeah|yup|correct|exactly|indeed|absolutely|definitely|of course|right(?=\s*(?:[.!]|$))|sure is|"
    r"(?:it|that) (?:still )?is|it (?:still )?does|i (?:still )?do|"
    r"(?:that's|it's|that is|it is) (?:still )?(?:right|correct|true|accurate|the case|so)|"
    r"still (?:right|correct|true|accurate|so)|no change|nothing (?:has )?changed)\b",
    re.IGNORECASE,
)
_NO = re.compile(
    r"\s*(?:no(?! (?:problem|worries|need|idea|thanks|thank|rush|doubt|change|one|clue|matter|way|longer sure)\b)|nope|"
    r"nah|not (?:any ?more|any longer|quite|really|right|true)|wrong|incorrect|(?:that|it) (?:isn't|is not|doesn't|"
    r"does not|is no longer|no longer is)|i (?:don't|do not)(?! (?:know|think|remember|recall|care|mind)\b)|"
    r"(?:that's|it's|that is|it is) (?:not|no longer|outdated|out of date|wrong|incorrect|old))\b",
    re.IGNORECASE,
)
_THANKS = re.compile(r"[\s,.!-]*(?:thanks|thank you)\b", re.IGNORECASE)
_QUALIFIED = re.compile(
    r"\b(?:but|except|although|though|only|until|unless|instead|not|no longer|anymore)\b", re.IGNORECASE
)
_FILLER = re.compile(
    r"(?:it's now|it's|it is|that's|that is|make it|now it's|rather|actually|now|we (?:now )?(?:use|have)|"
    r"i (?:now )?(?:prefer|use|like))\b[\s,:]*",
    re.IGNORECASE,
)
_LATELY = re.compile(r"[\s,]*\b(?:now|nowadays|these days|instead|at the moment|currently)\b[\s.!]*$", re.IGNORECASE)
_NO_WORD = re.compile(
    r"(?:thanks?|thank you|sorry|please|forget|never ?mind|delete|drop|remove|it|that|this|i|we|you|not|any ?more|"
    r"wh(?:at|en|ere|ich|o|ose|y)|how|but|and|or|so|if|because|can|could|would|will|shall|should|do|don't|did|does|is|are|was|"
    r"tell|give|show|send|make|let|let's|go|come|get|take|put|keep|use|try|just|wait|stop|start|ask|call|write|read|find|look|"
    r"book|order|buy|cancel|change|move|add|set|help|explain|summari[sz]e|translate|check|leave|skip|continue|of course)\b",
    re.IGNORECASE,
)
"""What no value begins with: the user goes on to something else."""
_OFFER = re.compile(
    r"\b(?:shall|should|may|can|could|will|would) (?:i|we)\b|\b(?:would you like|(?:do )?you want|want me|let me)\b",
    re.IGNORECASE,
)
"""A question for leave to do something: yes is to that."""
_ASKING_TEXT = "still right correct true accurate current valid case hold stand apply remain date confirm ok okay same"
_ASKING = frozenset(_ASKING_TEXT.split())
"""Terms of a question that only asks whether the sentence before it is so."""
_SORTS = (
    re.compile(r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b", re.IGNORECASE),
    re.compile(
        r"\b(?:january|february|march|april|may|june|july|august|september|october|november|december)\b", re.IGNORECASE
    ),
    re.compile(r"\b\d[\d.,:]*\b"),
)
"""What one word may take the place of another of its sort: a day, a month, a number."""


class AskedMemory(Struct, frozen=True):
    """A memory that the user was asked about. `value`: the object of its triple, `predicate` that one's."""

    text: str
    value: str | None = None
    predicate: str | None = None


class Reply(Struct, frozen=True):
    """`text`, `value`: what is right instead, where the answer says so."""

    verdict: Literal["yes", "no"]
    text: str | None = None
    value: str | None = None


def may_answer(text: str) -> bool:
    """Whether a message begins as an answer does: a cheap look, before anything is read."""
    return _verdict(text) is not None


def puts(said: str, note: AskedMemory) -> bool:
    """Whether the assistant's last question is about this note, and asks for no leave: it names half of its words, by
    itself or, where it only asks whether the sentence before it is so, with that."""
    told = sentences(said)
    last = max((i for i, each in enumerate(told) if each.endswith("?")), default=None)
    wanted = set(terms(note.text))
    if last is None or not wanted or _OFFER.search(told[last]):
        return False
    # "You used to prefer Fridays. Is that still so?" But a question before it is another one; so is "Is it for him?".
    bare = wanted | _ASKING >= set(terms(told[last]))
    begin = last - 1 if last and bare and not told[last - 1].endswith("?") else last
    around = set(terms(" ".join(told[begin : last + 1])))
    return len(wanted & around) >= _NAMES_IT * len(wanted)


def reply_to(note: AskedMemory, text: str) -> Reply | None:
    """What the user's message says of the note; None: nothing that is clear."""
    verdict = _verdict(text)
    if verdict is None:
        return None
    word, rest = verdict
    first = rest.split("\n", 1)[0]
    if word == "yes":
        begun = re.split(r"(?<=[.!?])\s", first, maxsplit=1)[0]
        return None if _QUALIFIED.search(begun) else Reply("yes")
    found = _instead(note, first)
    return Reply("no", *found) if found is not None else Reply("no")


def _verdict(text: str) -> tuple[Literal["yes", "no"], str] | None:
    """yes or no, and what follows it. What goes on with thanks may decline anything."""
    head = strip_injected(text)[:MAX_ANSWER].replace("’", "'")
    pairs: tuple[tuple[Literal["yes", "no"], re.Pattern[str]], ...] = (("no", _NO), ("yes", _YES))
    for word, pattern in pairs:
        match = pattern.match(head)
        if match is not None:
            rest = head[match.end() :]
            unclear = rest.startswith("?") or (word == "no" and _THANKS.match(rest))
            return None if unclear else (word, rest.lstrip(" .,;:!–—-"))
    return None


def _instead(note: AskedMemory, rest: str) -> tuple[str, str | None] | None:
    """The note as it is right, and its value, where the answer names a word that fits the place of one in the note."""
    said, *more = re.split(r"([.!?;,])", rest.strip(), maxsplit=1)
    right = _LATELY.sub("", _FILLER.sub("", said, count=1) if _FILLER.match(said) else said).strip()
    if not right or len(right.split()) > MAX_VALUE_WORDS or _NO_WORD.match(right) or more[:1] == ["?"]:
        return None
    for sort in _SORTS:
        new, old = sort.findall(right), sort.findall(note.text)
        if len(new) == 1 and len(set(old)) == 1:
            changed, was = _as(new[0], old[0]), old[0]
            value = note.value.replace(was, changed) if note.value else None
            return (note.text.replace(was, changed), value) if changed.lower() != was.lower() else None
        if new or old:
            return None  # a day is no answer to a number
    if right == said.strip() and right[:1].islower() and (note.value or "")[:1].isupper():
        return None  # nothing says that it is a name, as the old value is
    if note.value and note.predicate and single_valued(note.predicate) and note.text.count(note.value) == 1:
        return (note.text.replace(note.value, right), right) if right.lower() != note.value.lower() else None
    return None


def _as(new: str, old: str) -> str:
    """A word in the form of another: "Thursday" for "Fridays" is "Thursdays"."""
    plural = old.lower().endswith("days")
    stem = new[:-1] if new.lower().endswith("days") else new
    stem = stem[:1].upper() + stem[1:] if old[:1].isupper() else stem
    return stem + "s" if plural else stem


def validation_question(text: str, noted: datetime) -> str:
    """What to ask the user about an aging memory (seed 004, active validation flow). `noted`: when it was said, or last
    confirmed."""
    return f"I have a note from {noted.day} {noted:%B %Y} that says “{text}”; is that still right?"
