"""Languages: in which of them a message is written, the data of each whose rules are known (one file each), the sentences of a
message, and of whom it speaks."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice, zip_longest
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from app.text_cache import of_texts

# --- in which language a message is written, by its script and its function words ----------------------------------------
# No library does it in the 0.1 ms that a message may cost: langdetect takes milliseconds and answers differently from call to
# call, lingua holds hundreds of megabytes, fastText wants a model of its own. Function words are enough for sentences; where
# they say nothing ("Berlin?"), neither would a library that is honest about it.

LANGUAGES = ("en", "es", "de", "fr", "pt", "zh")
"""Those that have rules: app/languages/<code>.txt."""

READ_CHARS = 600
"""Of a message its beginning tells its language."""
_READ_WORDS = 100
"""As many words as that is."""
_LEAST = 0.5
"""A word of at most two languages, at least."""
_HAN_SHARE = 0.2
"""Of all letters: a Chinese sentence about software holds many Latin ones."""
TEXTS_CACHED = 4
"""The number of texts whose language is kept: statements, commands and changes of one message each ask for it."""
_MARKED = 2
"""What a letter that only few languages have is worth, in words."""

_SHORT_WORDS = 6
"""Words up to which a text is short: of longer ones function words tell enough."""
_ENDING = 0.5
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


_COMMON, _IN_SHORT, _UNFINISHED = "function_words.txt", "short_words.txt", "unfinished_words.txt"


@cache
def _endings() -> tuple[tuple[str, tuple[tuple[str, float], ...]], ...]:
    """Of `short_words.txt` those that are no words."""
    return tuple((word[1:], owners) for word, owners in _weights(_IN_SHORT).items() if word.startswith("-"))


_MARKS = (
    dict.fromkeys("ñ¿¡", "es") | dict.fromkeys("ßäüö", "de") | dict.fromkeys("ãõ", "pt") | dict.fromkeys("èœùûîë", "fr")
)


@of_texts(TEXTS_CACHED)
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
    for told in _short(words) if len(words) <= _SHORT_WORDS else (_weights(_COMMON).get(word, ()) for word in words):
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
    for word in islice(words, _READ_WORDS):
        if word in known and len(word) > 1:  # "I'm" has French's "m", and "i" stands in four languages
            for code, share in known[word]:
                scores[code] = scores.get(code, 0.0) + share
    for mark in _MARKS.keys() & set(text[:READ_CHARS]) if text else ():
        scores[_MARKS[mark]] = scores.get(_MARKS[mark], 0.0) + _MARKED
    if not scores:
        return ""
    best = max(scores, key=lambda code: (scores[code], code == "en", code))
    return best if scores[best] >= _LEAST else ""


def ends_unfinished(text: str, code: str) -> bool:
    """Return whether a text stops at a word that ends no sentence: "I live in the". A capital makes it a name: "The Who".

    Args:
        text: A stretch of a message.
        code: The message's language as `language_of` gives it; where it gives none, the text's words tell.
    """
    words = text.split()
    code = code or judged(_SPOKEN.findall(text.lower()), text)
    owners = _weights(_UNFINISHED)
    if code == "zh":
        return any(_HAN.match(word) and text.endswith(word) for word in owners)
    return bool(words) and any(owner == code for owner, _ in owners.get(words[-1], ()))


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
                yield tuple((code, share * _ENDING) for code, share in owners)


def function_word(word: str) -> bool:
    """Whether a word (lower case) says nothing by itself in one of the languages that are known."""
    return word in _weights(_COMMON)


# --- the data of one language, read once: patterns, words that stand for one meaning, and lines `pattern => what it gives`
#
#     <NAME> = …            a part of patterns, used in the lines below it
#     [section]
#     name = …              in [texts]: words or a template; in [patterns]: one pattern, without regard to case;
#                           in [kin]: words for a relative = their English name
#     pattern => … ; …      in [facts], [commands], [times]; in [guesses], [changes], [taken_back] without the options
#
# [texts] comes first: of its `months`, `weekdays` (from January, from Monday; `|` between wordings) and `numbers` (from one on)
# the parts <MONTH>, <WEEKDAY> and <COUNT> are made, of [kin] the part <KIN>.

_MACRO = re.compile(r"<([A-Z_]+)>")
DEFINITION = re.compile(r"<([A-Z_]+)> = (.+)")
_NOTHING = re.compile(r"(?!)")


class Language(Struct, frozen=True):
    """`texts` as they stand; `sources`: the patterns by name, macros resolved; `kin`: a word for a relative (lower case) and
    its English name; `facts`, `commands`, `guesses`, `times`, `changes`, `taken_back`: (pattern, what it gives)."""

    code: str
    texts: Mapping[str, str]
    sources: Mapping[str, str]
    kin: Mapping[str, str]
    facts: tuple[tuple[str, str], ...]
    commands: tuple[tuple[str, str], ...]
    guesses: tuple[tuple[str, str], ...]
    times: tuple[tuple[str, str], ...]
    changes: tuple[tuple[str, str], ...] = ()
    taken_back: tuple[tuple[str, str], ...] = ()

    def pattern(self, name: str) -> re.Pattern[str]:
        """A pattern, or one that matches nothing where the language has none of that name."""
        source = self.sources.get(name)
        return _NOTHING if source is None else _compiled(source)


@cache
def _compiled(source: str) -> re.Pattern[str]:
    return re.compile(source, re.IGNORECASE)


@cache
def language(code: str) -> Language:
    """The data of a language of `LANGUAGES`."""
    return read(code, (_FOLDER / f"{code}.txt").read_text(encoding="utf-8"))


def read(code: str, text: str) -> Language:
    """A file of the form told above. Raises `ValueError` for a line that is not."""
    macros: dict[str, str] = {}
    sections: dict[str, list[tuple[str, str]]] = {}
    current: list[tuple[str, str]] | None = None
    kin: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if head := re.fullmatch(r"\[(\w+)\]", line):
            current = sections.setdefault(head[1], [])
            if kin and "KIN" not in macros:
                macros["KIN"] = _alternatives(kin)
        elif definition := DEFINITION.fullmatch(line):
            macros[definition[1]] = expand(definition[2], macros)
        elif current is None:
            raise ValueError(f"a line before the first section: {line!r}")
        elif current is sections.get("kin"):
            words, _, meaning = line.partition(" = ")
            kin |= dict.fromkeys((word.strip() for word in words.split(",")), meaning.strip())
        else:
            named = current is sections.get("patterns") or current is sections.get("texts")
            split = " = " if named else " => "
            left, found, right = line.partition(split)
            if not found:
                raise ValueError(f"not `…{split}…`: {line!r}")
            if current is sections.get("texts"):
                current.append((left, right))
                if macro := _WORDS.get(left):
                    macros[macro] = _alternatives([each.replace("_", " ") for each in right.replace("|", " ").split()])
            elif named:
                current.append((left, expand(right, macros)))
            else:
                current.append((expand(left, macros), right))
    texts, sources = (dict(sections.get(name, ())) for name in ("texts", "patterns"))
    lines = (tuple(sections.get(name, ())) for name in _RULE_SECTIONS)
    return Language(code, texts, sources, kin, *lines)


_RULE_SECTIONS = ("facts", "commands", "guesses", "times", "changes", "taken_back")
_WORDS = {"months": "MONTH", "weekdays": "WEEKDAY", "numbers": "COUNT"}


def _alternatives(words: Iterable[str]) -> str:
    """Any of the words, the longest first."""
    return "(?:" + "|".join(sorted(map(re.escape, words), key=len, reverse=True)) + ")"


def expand(pattern: str, macros: Mapping[str, str]) -> str:
    """A pattern with its parts put in. Raises `ValueError` for one that is not defined."""

    def part(name: re.Match[str]) -> str:
        if name[1] not in macros:
            raise ValueError(f"<{name[1]}> is not defined, in {pattern!r}")
        return macros[name[1]]

    return _MACRO.sub(part, pattern)


@cache
def all_of(name: str) -> re.Pattern[str]:
    """One pattern for what any of the languages has under that name: a document is pasted in any of them."""
    return re.compile(
        "|".join(source for code in LANGUAGES if (source := language(code).sources.get(name))),
        re.IGNORECASE | re.MULTILINE,
    )


# --- the sentences of a message in any of the languages ------------------------------------------------------------------

_MAX_SENTENCES = 60
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
        if count >= _MAX_SENTENCES:
            return


def _stops(text: str) -> Iterator[tuple[int, int]]:
    for stop in _STOP.finditer(text):
        if not (stop[0] == "." and _ABBREVIATED.search(text, max(0, stop.start() - 6), stop.start())):
            yield stop.span()
    yield len(text), len(text)


# --- of whom a message speaks, and whether of anything but the talk itself: words, by language (`speech.toml`) -----------

FILE = Path(__file__).with_name("speech.toml")
UNSPACED = ("zh", "ja")
"""The tables of scripts without spaces."""
_SPOKEN = re.compile(r"[^\W_]+")


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
    words = _SPOKEN.findall(lowered)
    spoken, own = frozenset(words), _words("mine")
    mine = not own.isdisjoint(spoken) or any(each in lowered for each in _signs("mine"))
    plain = _toward().sub(" ", lowered)
    first = mine or not _words("me").isdisjoint(_SPOKEN.findall(plain)) or any(each in plain for each in _signs("me"))
    begins = next((word for word in words if word not in _words("please")), "")
    task = begins in _words("task") or begins.lstrip("".join(_signs("please"))).startswith(_signs("task"))
    return Speech(first, mine, spoken <= _words("talk"), task)


def replies(text: str) -> bool:
    """Whether a text has no words but those of an answer that says nothing of any matter: "Noted, thanks for telling me!"."""
    known = _words("talk") | _words("reply")
    return all(word in known or _made_of_replies().fullmatch(word) for word in _SPOKEN.findall(text.lower()))


def bids(text: str) -> bool:
    """Whether a text is a bare request that says nothing of who asks: "Suggest a dish"."""
    lowered = text.lower()
    words = (word for word in _SPOKEN.findall(lowered) if word not in _words("please"))
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
    return frozenset(word for table in _tables().values() for word in table.get(kind, "").split())


@cache
def _toward() -> re.Pattern[str]:
    """ "Tell me …" says nothing of the speaker."""
    return re.compile("|".join(table["toward"] for table in _tables().values() if "toward" in table))


@cache
def _signs(kind: str) -> tuple[str, ...]:
    """Those that stand within a longer run of signs."""
    return tuple(sign for code in UNSPACED for sign in _tables()[code].get(kind, "").split())


@cache
def _tables() -> dict[str, dict[str, str]]:
    """Read once: the file is part of the program."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))
