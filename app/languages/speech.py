"""The sentences of a message in any of the languages; of whom a message speaks, and whether of anything but the talk itself."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

MAX_SENTENCES = 60
MAX_SENTENCE_CHARS = 600
"""A longer sentence is nobody's talk."""
_STOP = re.compile(r"[.!?…]+(?=[\s)\"'”»]|$)|[。！？；]+|\n+|;\s")
_ABBREVIATED = re.compile(r"(?:\b(?:dr|sr|sra|st|mme|prof|z\.b|bzw|ca|etc|p\.ex|\d{1,2}|[A-Z]))$", re.IGNORECASE)
"""A full stop after "Dr" or, of a German day, after "3" ends no sentence."""
_BULLET = re.compile(r"[\s*•\-–—>#¿¡]*(?:\d{1,2}[.)]\s+)?[\s*•\-–—¿¡]*")
_CLOSING = " .!?…。！？;；,，:：)）"


class Sentence(NamedTuple):
    """(start, end) in the message, its closing marks left out; `asked`: it ends in a question mark."""

    start: int
    end: int
    asked: bool


def sentences(text: str) -> Iterator[Sentence]:
    """The sentences of a masked message, those that are too long for talk left out."""
    begin, count = 0, 0
    for at, end in _stops(text):
        begin = _BULLET.match(text, begin, at).end()  # type: ignore[union-attr]  # it matches the empty text
        stop = at
        while stop > begin and text[stop - 1] in _CLOSING:
            stop -= 1
        if begin < stop <= begin + MAX_SENTENCE_CHARS:
            yield Sentence(begin, stop, "?" in text[stop:end] or "？" in text[stop:end])
            count += 1
        begin = end
        if count >= MAX_SENTENCES:
            return


def _stops(text: str) -> Iterator[tuple[int, int]]:
    for stop in _STOP.finditer(text):
        if not (stop[0] == "." and _ABBREVIATED.search(text, max(0, stop.start() - 6), stop.start())):
            yield stop.span()
    yield len(text), len(text)


# --- of whom it speaks: words, by language (`speech.toml`) ------------------------------------------------------------

FILE = Path(__file__).with_name("speech.toml")
UNSPACED = "zh"
"""The table of a script without spaces."""
_WORD = re.compile(r"[^\W_]+")


class Speech(NamedTuple):
    """`first_person`: it speaks of "I" or "we"; `mine`: of what is theirs; `talk`: of nothing but the talk itself ("Go on",
    "Shorter please"), or it has no words at all; `task`: it asks for work on what it brings along ("Translate …")."""

    first_person: bool
    mine: bool
    talk: bool
    task: bool = False


def heard(text: str) -> Speech:
    """What its words say. Linear in the text."""
    lowered = text.lower()
    words = _WORD.findall(lowered)
    spoken, own = frozenset(words), _words("mine")
    mine = not own.isdisjoint(spoken) or any(each in lowered for each in _signs("mine"))
    plain = _toward().sub(" ", lowered)
    first = mine or not _words("me").isdisjoint(_WORD.findall(plain)) or any(each in plain for each in _signs("me"))
    begins = next((word for word in words if word not in _words("please")), "")
    task = begins in _words("task") or begins.lstrip("".join(_signs("please"))).startswith(_signs("task"))
    return Speech(first, mine, spoken <= _words("talk"), task)


def replies(text: str) -> bool:
    """Whether a text has no words but those of an answer that says nothing of any matter: "Noted, thanks for telling me!"."""
    known = _words("talk") | _words("reply")
    return all(word in known or _made_of_replies().fullmatch(word) for word in _WORD.findall(text.lower()))


def bids(text: str) -> bool:
    """Whether a text is a bare request that says nothing of who asks: "Suggest a dish"."""
    lowered = text.lower()
    words = (word for word in _WORD.findall(lowered) if word not in _words("please"))
    begins = next(words, "")
    if begins not in _words("bid") and not begins.lstrip("".join(_signs("please"))).startswith(_signs("bid")):
        return False
    return not heard(_toward().sub(" ", lowered)).first_person


@cache
def _made_of_replies() -> re.Pattern[str]:
    """Some of the words of the script without spaces, in a row."""
    return re.compile(f"(?:{'|'.join(sorted(_signs('reply') + _signs('talk'), key=len, reverse=True))})+")


@cache
def _words(kind: str) -> frozenset[str]:
    """Of all languages."""
    return frozenset(word for table in _tables().values() for word in table[kind].split())


@cache
def _toward() -> re.Pattern[str]:
    """ "Tell me …" says nothing of the speaker."""
    return re.compile("|".join(table["toward"] for table in _tables().values() if "toward" in table))


@cache
def _signs(kind: str) -> tuple[str, ...]:
    """Those that stand within a longer run of signs."""
    return tuple(_tables()[UNSPACED][kind].split())


@cache
def _tables() -> dict[str, dict[str, str]]:
    """Read once: the file is part of the program."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))
