"""What the user says to "I have a note from 3 May that …; is that still right?" (seed 004, active validation flow).

A question counts as put only if the assistant's words put it, at their end; and an answer only if it begins with one. What is
unclear is none: the note stays in doubt, and is asked about again.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Literal

from msgspec import Struct

from app.memory.claims import single_valued
from app.memory.text import sentences, strip_injected, terms

MAX_ANSWER = 400
"""Characters of a message that are looked at: an answer stands at its beginning."""
MAX_VALUE_WORDS = 5
"""Of what is right instead: "No, Thursday now"."""
NAMES_IT = 0.5
"""Share of a note's words that a question about it has: what the assistant says in its own words."""

_YES = re.compile(
    r"\s*(?:yes|yep|yeah|yup|correct|exactly|indeed|absolutely|definitely|of course|right(?=\s*(?:[.!]|$))|sure is|"
    r"(?:it|that) (?:still )?is|it (?:still )?does|i (?:still )?do|"
    r"(?:that's|it's|that is|it is) (?:still )?(?:right|correct|true|accurate|the case|so)|"
    r"still (?:right|correct|true|accurate|so)|no change|nothing (?:has )?changed)\b",
    re.IGNORECASE,
)
_NO = re.compile(
    r"\s*(?:no(?! (?:problem|worries|need|idea|thanks|thank|rush|doubt|change|one|clue|matter|way|longer sure)\b)|nope|nah|"
    r"not (?:any ?more|any longer|quite|really|right|true)|wrong|incorrect|"
    r"(?:that|it) (?:isn't|is not|doesn't|does not|is no longer|no longer is)|"
    r"i (?:don't|do not)(?! (?:know|think|remember|recall|care|mind)\b)|"
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


class Note(Struct, frozen=True):
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


def puts(said: str, note: Note) -> bool:
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
    return len(wanted & around) >= NAMES_IT * len(wanted)


def reply_to(note: Note, text: str) -> Reply | None:
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


def _instead(note: Note, rest: str) -> tuple[str, str | None] | None:
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
