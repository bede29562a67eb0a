"""In which language a message is written, by its script and its function words.

No library does it in the 0.1 ms that a message may cost: langdetect takes milliseconds and answers differently from call to
call,
lingua holds hundreds of megabytes, fastText wants a model of its own. Function words are enough for sentences; where they say
nothing ("Berlin?"), neither would a library that is honest about it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import islice, zip_longest
from pathlib import Path

LANGUAGES = ("en", "es", "de", "fr", "pt", "zh")
"""Those that have rules: app/languages/<code>.txt."""

READ_CHARS = 600
"""Of a message its beginning tells its language."""
READ_WORDS = 100
"""As many words as that is."""
_LEAST = 0.5
"""A word of at most two languages, at least."""
_HAN_SHARE = 0.2
"""Of all letters: a Chinese sentence about software holds many Latin ones."""
_MARKED = 2
"""What a letter that only few languages have is worth, in words."""

SHORT_WORDS = 6
"""Words up to which a text is short: of longer ones function words tell enough."""
ENDING = 0.5
"""What an ending is worth, in words: it may be another language's by chance."""

_WORD = re.compile(r"[^\W\d_]+(?:'(?:s|m|t|ve|re|ll|d)\b|')?")
"""With the apostrophe of "I'm" and of "j'habite"."""
_HAN = re.compile(r"[\u3400-\u9fff]")
_OTHER_SCRIPT = re.compile(r"[\u3040-\u30ff\uac00-\ud7af\u0400-\u04ff\u0590-\u06ff\u0900-\u0e7f]")
"""Kana, Hangul, Cyrillic, Hebrew, Arabic, Indic scripts, Thai: none of the six."""


_FOLDER = Path(__file__).parent
_Weights = dict[str, tuple[tuple[str, float], ...]]


@cache
def _weights(*files: str) -> _Weights:
    """Of each word of these files the languages that have it, each with its share in the word."""
    owners: dict[str, set[str]] = {}
    for line in (line for name in files for line in (_FOLDER / name).read_text(encoding="utf-8").splitlines()):
        code, _, words = line.partition(": ")
        if words and not line.startswith("#"):
            for word in words.split():
                owners.setdefault(word, set()).add(code)
    return {word: tuple((code, 1 / len(codes)) for code in codes) for word, codes in owners.items()}


_COMMON, _IN_SHORT = "function_words.txt", "short_words.txt"


@cache
def _endings() -> tuple[tuple[str, tuple[tuple[str, float], ...]], ...]:
    """Of `short_words.txt` those that are no words."""
    return tuple((word[1:], owners) for word, owners in _weights(_IN_SHORT).items() if word.startswith("-"))


_MARKS = {
    "ñ": "es",
    "¿": "es",
    "¡": "es",
    "ß": "de",
    "ä": "de",
    "ü": "de",
    "ö": "de",
    "ã": "pt",
    "õ": "pt",
} | dict.fromkeys("èœùûîë", "fr")


def language_of(text: str) -> str:
    """The language of a message ("en", "es", "de", "fr", "pt", "zh"), or "" where it is another one or nothing tells."""
    read = text[:READ_CHARS].lower().replace("’", "'")
    if not read.isascii():
        han = len(_HAN.findall(read))
        if _OTHER_SCRIPT.search(read):
            return ""
        if han and han >= _HAN_SHARE * len(re.findall(r"[^\W\d_]", read)):
            return "zh"
    scores: dict[str, float] = {}
    words = _WORD.findall(read)
    for told in _short(words) if len(words) <= SHORT_WORDS else (_weights(_COMMON).get(word, ()) for word in words):
        for code, share in told:
            scores[code] = scores.get(code, 0) + share
    if not read.isascii():
        for mark in _MARKS.keys() & set(read):
            scores[_MARKS[mark]] = scores.get(_MARKS[mark], 0) + _MARKED
    if not scores:
        return ""
    best = max(scores, key=lambda code: (scores[code], -(*LANGUAGES, code).index(code)))
    return best if best in LANGUAGES and scores[best] >= _LEAST else ""


def judged(words: Iterable[str], text: str = "") -> str:
    """The language that most function words are of among these words (lower case, cut at apostrophes), of all that are listed,
    those without rules, too; "" where nothing tells. Where it might be English it is. `text`: where they are from, if it holds
    letters beyond ASCII."""
    scores: dict[str, float] = {}
    known = _weights(_COMMON)
    for word in islice(words, READ_WORDS):
        if word in known and len(word) > 1:  # "I'm" has French's "m", and "i" stands in four languages
            for code, share in known[word]:
                scores[code] = scores.get(code, 0.0) + share
    for mark in _MARKS.keys() & set(text[:READ_CHARS]) if text else ():
        scores[_MARKS[mark]] = scores.get(_MARKS[mark], 0.0) + _MARKED
    if not scores:
        return ""
    best = max(scores, key=lambda code: (scores[code], code == "en", code))
    return best if scores[best] >= _LEAST else ""


def _short(words: Sequence[str]) -> Iterator[tuple[tuple[str, float], ...]]:
    """What the words of a short text say: each by itself, with the one after it, or by its ending."""
    weights = _weights(_COMMON, _IN_SHORT)
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        yield weights.get(f"{word}_{following}", ())
        if word in weights:
            yield weights[word]
            continue
        for ending, owners in _endings():
            if len(word) > len(ending) + 1 and word.endswith(ending):
                yield tuple((code, share * ENDING) for code, share in owners)


def function_word(word: str) -> bool:
    """Whether a word (lower case) says nothing by itself in one of the languages that are known."""
    return word in _weights(_COMMON)
