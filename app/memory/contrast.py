"""What two texts whose vectors are near are to each other: whether one denies the other, in any of the six languages. Pure.

The words are data: `antonyms`, `negative` and `tone` of [texts] in app/languages/<code>.txt; the negative words of English are
those of `ingest_text`. Texts of two languages, or of none that is known, are compared as English ones."""

from __future__ import annotations

import re
from functools import cache
from typing import Literal, NamedTuple

from app.languages.data import language
from app.languages.detect import language_of
from app.memory.ingest_text import Gist, gist, normalise, singular

Contrast = Literal["denied", "changed"]

_WORD = re.compile(r"[^\W_]+")
_NUMBER = re.compile(r"\d+")
_LEAST_HAN = 2
"""Characters that two Chinese texts have in common beside what differs."""


class _Words(NamedTuple):
    """`pairs`: words of which one says what the other denies; `negative`: those that deny; `tone`: those that say neither."""

    pairs: frozenset[frozenset[str]]
    negative: frozenset[str]
    tone: frozenset[str]


@cache
def _words(code: str) -> _Words:
    texts = language(code).texts
    pairs = (frozenset(pair.split("/")) for pair in texts["antonyms"].split())
    if code == "en":
        pairs = (frozenset(map(singular, pair)) for pair in pairs)
    return _Words(frozenset(pairs), *(frozenset(texts.get(name, "").split()) for name in ("negative", "tone")))


def contrast(one: str, other: str) -> Contrast | None:
    """The same both ways round.

    denied: they have the same words but for those of tone, and one denies and the other does not; or but for one word in the
    place of its antonym ("likes/hates"). changed: but for one number in the place of another: the value may have changed, or
    both may be so. None: more differs.
    """
    codes = {language_of(one), language_of(other)} - {""}
    code = codes.pop() if len(codes) == 1 else "en"
    if code == "zh":
        return _of_characters(one, other, _words(code))
    (denied, ours), (too, theirs) = _gist(one, code), _gist(other, code)
    if ours == theirs:
        return "denied" if denied != too else None
    left, right = ours - theirs, theirs - ours
    pairs = _words(code).pairs
    if len(left | right) == 1 and denied != too:  # "hates" only denies, where "likes" is a word
        return "denied" if any(pair & (left | right) for pair in pairs) else None
    if len(left) != 1 or len(right) != 1 or not ours & theirs or denied != too:
        return None
    (a,), (b,) = left, right
    if a[0].isdigit() and b[0].isdigit():
        return "changed"
    return "denied" if frozenset((a, b)) in pairs else None


def _gist(text: str, code: str) -> Gist:
    """As `gist`, in the language."""
    if code == "en":
        return gist(text)
    found, own = _WORD.findall(normalise(text).casefold()), _words(code)
    denies = sum(word in own.negative for word in found) % 2 == 1
    return denies, frozenset(found) - own.negative - own.tone


def _of_characters(one: str, other: str, own: _Words) -> Contrast | None:
    """Of a language without spaces: what is left without the characters that differ."""
    ours, theirs = normalise(one), normalise(other)
    (denied, left), (too, right) = _bare(ours, own), _bare(theirs, own)
    if left == right:
        return "denied" if denied != too else None
    if denied != too:
        return None
    if _NUMBER.sub("", ours) == _NUMBER.sub("", theirs):
        return "changed" if len(_NUMBER.sub("", ours)) >= _LEAST_HAN else None
    for pair in own.pairs:
        for a, b in (tuple(pair), tuple(pair)[::-1]):
            rest = left.replace(a, "", 1)
            if a in left and b in right and rest == right.replace(b, "", 1) and len(rest) >= _LEAST_HAN:
                return "denied"
    return None


def _bare(text: str, own: _Words) -> tuple[bool, str]:
    """Whether a text denies, and the rest of it."""
    for word in sorted(own.tone, key=len, reverse=True):
        text = text.replace(word, "")
    denied = False
    for word in sorted(own.negative, key=len, reverse=True):
        denied ^= text.count(word) % 2 == 1
        text = text.replace(word, "")
    return denied, text
