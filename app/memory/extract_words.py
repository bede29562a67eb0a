"""Values of statements in general: trimming, word lists, and what points into the conversation instead of the world."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_LEXICON = Path(__file__).with_name("lexicon.txt")

_CUT = re.compile(
    r"\s+(?:which|who|whom|where|because|since|so|but|when|whenever|if|although|though|while|unless|until|even|lol|"
    r"and (?:i|i'm|we|my|you|please|so|then|now|also)|not)\b.*"
    r"|\s*[,(\[{].{0,40}\bnot\b.*|\s*[-–—]+\s.*|,\s+(?:the|it's|it|they|he|she|there|'?cause|wish)\b.*|\s*\n.*",
    re.IGNORECASE | re.DOTALL,
)
_TRAILING = re.compile(
    r"[\s,]+(?:now|currently|these days|nowadays|too|as well|though|actually|btw|by the way|please|right now|again|"
    r"a lot|"
    r"very much|so much|really|anyway|at the moment|at present|tbh|honestly|obviously|of course|thanks|thank you|"
    r"lately|"
    r"from now on|instead|any ?more|any longer|already|for now|especially|indeed|mate|man|dude|ok|okay|haha|today|"
    r"just|also|"
    r"to you|tho|either|by heart|more than anything|the most|most of all|by far|best|better|with you|for you|"
    r"in general|"
    r"all the time)$",
    re.IGNORECASE,
)
EDGES = " \t,.;:!?\"'“”„«»()[]*_-–—"
MAX_WORDS = 14
MAX_CHARS = 120
_YOU = re.compile(
    r"\b(?:you|your|yours|you're|yourself|above|below|this|that one|these ones|that's|it's)\b", re.IGNORECASE
)
_POINTS = re.compile(
    r"\b(?:it|them|him|her|those|these|that|one another|each other)\b(?! (?:is|are|of|who|have|make|makes|can|was|has|"
    r"tackle)\b)",
    re.IGNORECASE,
)


@cache
def words(section: str) -> frozenset[str]:
    """A word list of `lexicon.txt`."""
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in _LEXICON.read_text(encoding="utf-8").splitlines():
        line = line.partition("#")[0].strip()
        if line.startswith("["):
            current = found.setdefault(line.strip("[]"), [])
        else:
            current += line.split()
    return frozenset(found[section])


def alternatives(section: str) -> str:
    """A word list as a pattern; an underscore in it stands for a space."""
    return "(?:" + "|".join(re.escape(word.replace("_", " ")) for word in sorted(words(section))) + ")"


def trim(value: str) -> str:
    """Without the sub-clause that follows, trailing adverbs, quotation marks and punctuation."""
    while (shorter := _shorter(value)) != value:
        value = shorter
    return value


def _shorter(value: str) -> str:
    value = _CUT.sub("", " " + value).strip(EDGES)
    return " ".join(_TRAILING.sub("", value).strip(EDGES).split())


def lowered(value: str) -> list[str]:
    """The words of a value, lower case, without punctuation."""
    return [word.lower().strip(EDGES) for word in value.split()]


def is_short(value: str) -> bool:
    """Neither empty nor a paragraph."""
    return 1 <= len(value.split()) <= MAX_WORDS and len(value) <= MAX_CHARS and any(c.isalnum() for c in value)


def addresses(value: str) -> bool:
    """Does it speak to the reader, or of what stands above?"""
    return _YOU.search(value) is not None


def points(value: str) -> bool:
    """Is there a pronoun for something said elsewhere ("holding them")?"""
    return _POINTS.search(value) is not None


def thing(value: str) -> str | None:
    """A thing in the world: no pronoun, nothing of the conversation itself ("the second option", "your idea")."""
    value = trim(value)
    low = lowered(value)
    if not is_short(value) or addresses(value) or not any(c.isalpha() for c in value):
        return None
    if low[0] == "to":
        return value if len(low) > 1 and low[1] not in words("asking") | words("pointing") else None
    first = value.split()[0]
    if low[0] in words("pointing") and not (first.isupper() and len(first) > 1):  # "it", but not "IT"
        return None
    if low[0] in words("conversation") and len(low) == 2 and len(low[1]) == 1:  # "option B"
        return None
    if low[0] == "the" and not (len(low) > 1 and (low[1] in words("the_world") or value.split()[1][0].isupper())):
        return None  # "I love the idea" is a reaction; "the sea" and "the Beatles" are tastes
    return None if low[0] in ("a", "an") and (len(low) < 2 or low[1] in words("measures")) else value


def thing_of_mine(value: str) -> str | None:
    """As `thing`, and it may begin with "my" or "our"."""
    own = re.match(r"(?:my|our)(?: own)? ", value, re.IGNORECASE)
    found = thing(value[own.end() :]) if own else thing(value)
    return f"{own[0]}{found}" if own and found else found


def taste(value: str) -> str | None:
    """As `thing`, and nothing in it points elsewhere."""
    found = thing(value)
    return None if found is None or points(found) else found


def free(value: str) -> str | None:
    """Any short value that does not point into the conversation."""
    value = trim(value)
    return None if not is_short(value) or lowered(value)[0] in words("pointing") or addresses(value) else value


def as_is(value: str) -> str | None:
    """A value that the pattern itself spells out."""
    return " ".join(value.split())
