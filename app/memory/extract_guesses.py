"""What a user says half-heartedly: "I might move to Berlin", "I think I'm allergic to nuts", "I'm thinking about a dog".

Nobody vouches for it, so it begins in the session (L1) and has to prove of use (seed 000 §5). It contradicts nothing, ends
nothing and has no triple. The hedges are data: `[guesses]` of app/languages/<code>.txt.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import NamedTuple

from msgspec.structs import replace

from app.languages.data import LANGUAGES, Language, language
from app.memory.candidate import MemoryCandidate, Provenance, make_candidate
from app.memory.extract_grammar import EDGES, inner
from app.memory.secrets import looks_secret
from app.memory.text import normalise

GUESS_CONFIDENCE = 0.4
"""Below the 0.5 of what is plainly concluded (seed 000 §5.4, step 3): the user is in two minds."""
GUESS_IMPORTANCE = 0.4
"""Between what a tool did (0.3) and what happened on a day (0.55)."""
MAX_WORDS, MAX_CHARS, MAX_HAN = 12, 100, 20
"""As long as a value of a fact may be (`features/multilingual`)."""

GUESSES = frozenset({"fact", "preference", "event"})
"""Kinds of statements of which there are guesses: an order is one, or is none."""

_SAID = "{said}"
_HAN = re.compile(r"[\u3400-\u9fff]")


class _Rule(NamedTuple):
    """`label`: what stands before and after what is guessed. `states`: that is a statement which a rule of facts must know."""

    pattern: re.Pattern[str]
    label: str
    states: bool


@cache
def _rules(code: str) -> tuple[_Rule, ...]:
    return tuple(
        _Rule(re.compile(pattern.replace("…", "(?P<v>.+)"), re.IGNORECASE), gives, _SAID in gives)
        for pattern, gives in language(code).guesses
    )


@cache
def _labels() -> tuple[str, ...]:
    """What each language puts before a statement that was hedged."""
    return tuple({rule.label.replace(_SAID, "") for code in LANGUAGES for rule in _rules(code) if rule.states})


def guessed(text: str) -> str | None:
    """The statement of which a memory says that it may be so ("Perhaps: …"); None where it says no such thing."""
    return next((text[len(label) :] for label in _labels() if text.startswith(label)), None)


def vouched(guess: str, text: str) -> bool:
    """Whether a statement says without a doubt what a guess says."""
    said = guessed(guess)
    return said is not None and said.casefold() == text.casefold()


def guess(body: str, spoken: Language, facts: Callable[[str], Iterable[MemoryCandidate]]) -> list[MemoryCandidate]:
    """What a hedged clause says. `facts`: what the rules find in a statement."""
    for rule in _rules(spoken.code):
        match = rule.pattern.fullmatch(body)
        if match is None:
            continue
        groups = match.groupdict()
        if not rule.states:
            told = _weighed(groups["v"], spoken)
            if told is not None:
                content = rule.label.format(v=told)
                return [
                    as_guess(make_candidate(content, "fact", importance=1.0, confidence=1.0, tag="guess", value=told))
                ]
            continue
        between = "" if spoken.texts.get("spaces") == "no" else " "
        said = groups["v"] if groups.get("v") else f"{groups['a']}{between}{groups['b']}"
        found = _hedged(facts(said), rule.label)
        if found:
            return found
    return []


def _hedged(found: Iterable[MemoryCandidate], label: str) -> list[MemoryCandidate]:
    """Statements as guesses; what orders something, or sets something right, is no guess."""
    return [
        as_guess(replace(each, content=normalise(label.format(said=each.content))))
        for each in found
        if each.kind in GUESSES and not each.ends
    ]


def as_guess(candidate: MemoryCandidate) -> MemoryCandidate:
    """The same, with nobody to vouch for it."""
    return replace(
        candidate,
        provenance_type=Provenance.SYSTEM_INFERRED,
        confidence=min(candidate.confidence, GUESS_CONFIDENCE),
        importance=min(candidate.importance, GUESS_IMPORTANCE),
        explicit=False,
        triple=None,
        since=None,
        until=None,
        doubts=(),
    )


def placed(found: Iterable[MemoryCandidate], message: str, start: int, end: int) -> list[MemoryCandidate]:
    """With the place in the message where it was said."""
    quote = message[start:end]
    return [
        replace(each, quote=quote, span=(start, end), secret=looks_secret(quote) or looks_secret(each.content))
        for each in found
    ]


def _weighed(value: str, spoken: Language) -> str | None:
    told = " ".join(value.strip(EDGES + "，、：。；").split())
    fits = len(told.split()) <= MAX_WORDS and len(told) <= MAX_CHARS and len(_HAN.findall(told)) <= MAX_HAN
    if not fits or not any(each.isalnum() for each in told):
        return None
    if spoken.pattern("no_guess").search(told) or spoken.pattern("pointing").match(told):
        return None
    return inner(told) if spoken.code == "en" else told
