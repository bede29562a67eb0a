"""From "I live with my parents" to "Lives with their parents": English sentences without their first person."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

# Values of statements in general: trimming, word lists, and what points into the conversation instead of the world.

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


_IRREGULAR = {
    "am": "is",
    "'m": "is",
    "are": "is",
    "have": "has",
    "do": "does",
    "go": "goes",
    "'ve": "has",
    "were": "was",
}
_NEGATED = {
    "don't": "does not",
    "haven't": "has not",
    "aren't": "is not",
    "can't": "cannot",
    "won't": "will not",
    "wouldn't": "would not",
    "couldn't": "could not",
    "shouldn't": "should not",
    "didn't": "did not",
    "wasn't": "was not",
    "hadn't": "had not",
}
_DROPPED = frozenset(["also", "really", "just", "actually", "absolutely", "definitely", "truly", "finally", "probably"])
_SUBJECT = re.compile(r"^(?:I|we)(?P<short>'m|'re|'ve|'ll|'d)?\s+", re.IGNORECASE)
_INNER = re.compile(r"\b(I'm|I am|I've|I have|I'll|I'd|I|my|me|myself|mine|we're|we|our|ours|us|ourselves)\b(?!['’-])")
_INNER_FORMS = {
    "I'm": "they are",
    "I am": "they are",
    "I've": "they have",
    "I have": "they have",
    "I'll": "they will",
    "I'd": "they would",
    "I": "they",
    "my": "their",
    "me": "them",
    "myself": "themselves",
    "mine": "theirs",
    "we're": "they are",
    "we": "they",
    "our": "their",
    "ours": "theirs",
    "us": "them",
    "ourselves": "themselves",
}


def third_person(verb: str) -> str:
    """`live` → `lives`, `have` → `has`, `study` → `studies`; what does not change stays."""
    low = verb.lower()
    if low in _IRREGULAR:
        return _IRREGULAR[low]
    if low in words("unchanged") or low.endswith(("ed", "'t")):
        return low
    if low.endswith(("s", "x", "z", "ch", "sh", "o")):
        return low + "es"
    if low.endswith("y") and low[-2:-1] not in "aeiou":
        return low[:-1] + "ies"
    return low + "s"


def inner(text: str) -> str:
    """First-person words inside a statement: `my sister` → `their sister`. An "I" at the very end is a numeral."""
    return _INNER.sub(lambda m: "I" if m[1] == "I" and m.end() == len(text) else _INNER_FORMS[m[1]], text)


def capital(text: str) -> str:
    """The first letter in upper case, the rest as it is."""
    return text[:1].upper() + text[1:]


def depersonalise(clause: str) -> str | None:
    """A first-person statement without its person, or None when it has none.

    `I'm learning Go` → `Is learning Go`; `my car is red` → `Car is red`; `I don't eat meat` → `Does not eat meat`.
    """
    clause = clause.strip()
    if own := re.match(r"(?:my|our)\s+(?=\S)", clause, re.IGNORECASE):
        return capital(inner(clause[own.end() :]))
    found = _SUBJECT.match(clause)
    if found is None:
        return None
    rest = clause[found.end() :].split()
    if not rest:
        return None
    has = rest[:1] == ["have"] or found["short"] == "'ve"
    if has and "got" in rest[: 1 if found["short"] else 2]:
        rest.remove("got")  # "I've got a cat" has it now
    short = (found["short"] or "").lower()
    if short in ("'m", "'re", "'ve"):
        head = ["has" if short == "'ve" else "is"]
        return capital(" ".join([*head, inner(" ".join(rest))]))
    if short in ("'ll", "'d"):
        return capital(" ".join(["will" if short == "'ll" else "would", inner(" ".join(rest))]))
    lead: list[str] = []
    while len(rest) > 1 and rest[0].lower() in words("adverbs") | _DROPPED:
        adverb = rest.pop(0).lower()
        lead += [adverb] if adverb in words("adverbs") else []
    if not rest[0][0].isalpha() or not rest[0].replace("'", "").isalpha():
        return None
    verb = rest[0].lower()
    if verb == "do" and len(rest) > 1 and rest[1].lower() == "not":
        rest = ["don't", *rest[2:]]
        verb = "don't"
    form = _NEGATED.get(verb) or third_person(verb)
    return capital(" ".join([*lead, form, inner(" ".join(rest[1:]))]).strip())
