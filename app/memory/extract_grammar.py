"""From "I live with my parents" to "Lives with their parents": English sentences without their first person."""

from __future__ import annotations

import re

from app.memory.extract_words import words

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
