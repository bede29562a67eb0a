"""Reads in a user's message what it ends, and what of the words just before it takes back (seed 004: temporal changes).

A message is read clause by clause. The signs are data: `[changes]` and `[taken_back]` of app/languages/<code>.txt.

    [changes]      pattern => nothing           a clause that only looks like an end: "I almost sold the Golf"
                   pattern => ends              the words `old` name what is so no more
                   pattern => now               `new` is the value instead of what the clause before ended
                   pattern => parts             the same of somebody who died or left: it is said of the user's people, too
                   pattern => ends=diet,age     memories with one of these predicates, said of the user, are so no more
    [taken_back]   pattern => joke              the last statements were not meant; with `old`, those that name it
                   pattern => fix               the last statement was wrong; what is right follows
                   pattern => other             the last statement is true of somebody else (`who`)

A clause must fit a pattern as a whole, so that "The shop sold a Stratocaster" and "Otis died of boredom" end nothing.
`new` is the value that takes the place of the old one. Plain computation over plain values.
"""

from __future__ import annotations

import re
from calendar import day_name, month_name
from collections.abc import Collection, Iterator, Sequence
from difflib import SequenceMatcher
from functools import cache
from typing import Literal, NamedTuple

from app.index.analyse import STEMMERS, asked
from app.languages import LANGUAGES, Sentence, function_word, language, language_of, sentences
from app.memory.extract_clauses import masked
from app.text_cache import of_texts

MAX_CHARS = 600
"""Characters of a message that is read: what a turn's own learning reads, too. A longer message is a text."""
CLOSES = 0.75
"""Least share of the words that name what ended which a memory must have to be closed: three of four."""
DOUBTS = 0.6
"""Least share from which a memory is doubted, more than half."""
SIMILAR = 0.6
"""Least likeness (0 to 1, `difflib`) of a misspelt word and its correction: "Jonh" and "John" have .75."""

KEPT = 256
"""Messages of which the changes are kept: each is asked for by learning and by the prompts that quote it."""

Reversal = Literal["joke", "fix", "other"]


class Change(NamedTuple):
    """Memories that a clause ends: those that have the words `old`, or those with one of `predicates`. `new`: the value
    instead. `parts`: somebody died or left."""

    old: str
    predicates: tuple[str, ...]
    new: str
    parts: bool = False
    follows: bool = False
    """`new` is told in a clause of its own: "I no longer work at Acme, now I'm at Globex"."""
    lead: str = ""
    """What makes a whole clause of `old`, in the message's language: "I "."""


class StoredStatement(NamedTuple):
    """A memory in force, as far as a change needs it."""

    kind: str
    text: str
    subject: str | None
    predicate: str | None
    value: str | None
    quotes: tuple[str, ...]


class TakenBack(NamedTuple):
    """The words that take back what was said before them. `span`: its place in the message; `old`: words that name what was
    wrong, or none; `right`: the words behind it, which may say what is right; `typo`: it corrects one word's spelling."""

    kind: Reversal
    span: tuple[int, int]
    old: str
    right: str
    typo: bool = False


def find_changes(message: str) -> list[Change]:
    """Return what the user's own statements in a message end; most messages end nothing."""
    if len(message) > MAX_CHARS:
        return []
    return list(_find_changes(message))


@of_texts(KEPT)
def _find_changes(message: str) -> tuple[Change, ...]:
    changes: list[Change] = []
    text = masked(message)
    for clause, code in _split_clauses(text):
        for pattern, gives in _rules(code, "changes"):
            if (match := pattern.fullmatch(clause)) is None:
                continue
            if gives == "nothing":
                break
            groups = match.groupdict()
            if gives == "now":
                if changes and not changes[-1].new:
                    changes[-1] = changes[-1]._replace(new=groups["new"].strip(), follows=True)
                break
            predicates = tuple(gives.partition("=")[2].split(",")) if "=" in gives else ()
            old = " ".join(part for part in (groups.get("old"), groups.get("rest")) if part)
            changes.append(
                Change(
                    old.strip(),
                    predicates,
                    (groups.get("new") or "").strip(),
                    gives == "parts",
                    lead=language(code).texts.get("ellipsis", ""),
                )
            )
            break
    return tuple(changes)


@of_texts(KEPT)
def has_sign(message: str) -> bool:
    """Tell whether a message ends something, or takes something back."""
    return bool(find_changes(message)) or find_taken_back(message) is not None


@cache
def list_ended_slots() -> frozenset[str]:
    """Return the predicates that some sign ends without naming their value."""
    gives = (line for code in LANGUAGES for _, line in language(code).changes if "=" in line)
    return frozenset(predicate for line in gives for predicate in line.partition("=")[2].split(","))


def find_taken_back(message: str) -> TakenBack | None:
    """Return what a message takes back of the words before it, or None."""
    if len(message) > MAX_CHARS:
        return None
    return _find_taken_back(message)


@of_texts(KEPT)
def _find_taken_back(message: str) -> TakenBack | None:
    text = masked(message)
    if typo := _TYPO.fullmatch(message.strip()):
        return TakenBack("fix", (0, len(message)), "", typo["right"] or typo["left"], typo=True)
    for sentence in sentences(text):
        if sentence.asked:
            continue
        for start, end in _clause_spans(text, sentence, whole_first=True):
            clause = text[start:end]
            for code in _languages_of(text):
                for pattern, gives in _rules(code, "taken_back"):
                    match = pattern.match(clause)
                    if match is None or ((rest := clause[match.end() :]) and rest[0].isalnum() and _is_spaced(code)):
                        continue
                    if gives.endswith("?") and rest.strip():
                        continue
                    kind: Reversal = "joke" if gives == "joke" else "fix" if gives == "fix" else "other"
                    stop = start + match.end()
                    old = match.groupdict().get("old") or ""
                    return TakenBack(kind, (start, stop), old, message[stop:].strip(_EDGES))
    return None


def blank(message: str, span: tuple[int, int]) -> str:
    """Return the message with a part turned into a line end and spaces, so that all else keeps its place."""
    start, end = span
    stop = end + len(message[end:]) - len(message[end:].lstrip(_EDGES))
    return message[:start] + " " * (stop - start - 1) + "\n" * (stop > start) + message[stop:]


def restate(statement: str, old: str, right: str, *, typo: bool = False) -> str | None:
    """Return an earlier message with the right value in the place of the wrong one, or None where its place is not clear.

    Args:
        statement: The user's earlier words.
        old: Words that name what was wrong; empty where nothing does.
        right: What is right, as the user says it: "it's 1200 euros".
        typo: `right` is one word, which was misspelt.
    """
    right = _IT_IS.sub("", right, count=1).strip(_EDGES)
    if not right or len(right.split()) > _VALUE_WORDS:
        return None
    if typo:
        if right.isdigit():
            numbers = list(_NUMBER.finditer(statement))
            return _replace_only(statement, numbers, right)
        words = [match for match in _WORD.finditer(statement) if _likeness(match[0], right) >= SIMILAR]
        best = max(words, key=lambda match: _likeness(match[0], right), default=None)
        return (
            statement[: best.start()] + right + statement[best.end() :]
            if best is not None and best[0] != right
            else None
        )
    if old and (place := re.search(re.escape(old), statement, re.IGNORECASE)) is not None:
        return statement[: place.start()] + right + statement[place.end() :]
    if (number := _NUMBER.search(right)) and (not number.start() or not right[0].islower()):
        return _replace_only(statement, list(_NUMBER.finditer(statement)), number[0])
    names = list(_NAME.finditer(statement))
    if _PROPER.fullmatch(right) and len(names) == 1 and is_of_calendar(right) == is_of_calendar(names[0][1]):
        start, end = names[0].span(1)
        return statement[:start] + right + statement[end:]
    return None


def _replace_only(statement: str, places: Sequence[re.Match[str]], right: str) -> str | None:
    """Return the statement with the right value in the only place there is, or None."""
    if len(places) != 1:
        return None
    return statement[: places[0].start()] + right + statement[places[0].end() :]


def measure_overlap(change: Change, texts: Sequence[str]) -> float:
    """Return the share (0 to 1) of the words naming what ended that a memory's texts have, by the index's own terms."""
    content = " ".join(word for word in change.old.split() if not function_word(word.lower().strip(_EDGES)))
    wanted = [frozenset(term.hashes) for term in asked(content or change.old, _CODES)]
    if not wanted:
        return 0.0
    there = collect_terms(texts)
    return sum(not hashes.isdisjoint(there) for hashes in wanted) / len(wanted)


def judge_change(change: Change, memory: StoredStatement) -> Literal["closes", "doubts"] | None:
    """Return what a change does to a memory: closes it, puts it in doubt where it is unclear, or nothing."""
    about_user = memory.subject in (None, "user")
    if change.predicates:
        return "closes" if memory.subject == "user" and memory.predicate in change.predicates else None
    overlap = measure_overlap(change, (memory.text, *memory.quotes))
    if (part := _PART_OF.match(change.old)) and not measure_overlap(change._replace(old=part[1]), (memory.text,)):
        return None  # who sold the tyres of the Golf has the Golf
    if not measure_overlap(change, (memory.text, memory.value or "")):
        return None  # only the message that it was learned from has the words: "I work at Acme as an engineer"
    if overlap < DOUBTS or not (about_user or change.parts) or _PARTLY.match(change.old):
        return None
    several = bool(_SEVERAL.search(memory.value or ""))
    unclear = overlap < CLOSES or several or (change.parts and memory.predicate is None)
    if memory.kind == "preference" and len(change.old.split()) < _WHOLE_WORDS:
        unclear = True  # "I quit chess" says nothing of whether it is liked
    return "doubts" if unclear else "closes"


def list_search_patterns(change: Change) -> list[str]:
    """Return LIKE patterns of which a memory that a change names fits one."""
    found = [match[0] for match in _SEARCHED.finditer(change.old) if not function_word(match[0].lower())]
    pairs = [word[at : at + 2] for word in found if _HAN.match(word) for at in range(len(word) - 1)]
    spaced = [word[: max(_STEM_CHARS, len(word) - 2)] for word in found if not _HAN.match(word)]
    return [f"%{word}%" for word in (*pairs, *spaced) if "%" not in word and "_" not in word]


def collect_terms(texts: Sequence[str]) -> frozenset[int]:
    """Return the index's terms of some texts, under every language that has rules."""
    return frozenset(term_hash for text in texts for term in asked(text, _CODES) for term_hash in term.hashes)


def tells_what_is_so_now(statement: str) -> bool:
    """Tell whether a statement has a word by which it takes the place of what was so before."""
    return _NOW.search(statement) is not None


def shares_words(text: str, others: Collection[str]) -> bool:
    """Tell whether a text has a telling word of one of the others."""
    return not collect_terms([text]).isdisjoint(collect_terms(list(others)))


# --- clauses -------------------------------------------------------------------------------------------------------------

_CODES = tuple(code for code in LANGUAGES if code in STEMMERS)
_EDGES = " \t\n\r.,;:!?…，。！？；：、'\"“”«»–—-"
_COMMA = re.compile(r"\s*[,;:，；：–—]\s*|\s+-\s+")
_TYPO = re.compile(r"\*(?P<right>[^\W_][\w'’-]*)[.!]?|(?P<left>[^\W_][\w'’-]*)\*[.!]?")
_WORD = re.compile(r"[^\W_][\w'’-]*")
_NUMBER = re.compile(r"\d[\d.,]*\d|\d|[一二三四五六七八九十百千万两]+(?=元|块|岁|个|点)")
_NAME = re.compile(r"(?<=[^\s.!?…] )([A-ZÀ-ÖØ-Þ][\w'’-]*(?: [A-ZÀ-ÖØ-Þ][\w'’-]*)*)")
_PROPER = re.compile(r"[A-ZÀ-ÖØ-Þ][\w'’-]*(?: [A-ZÀ-ÖØ-Þ][\w'’-]*)*")
_ENGLISH_CALENDAR = frozenset(name.lower() for name in (*day_name, *month_name) if name)
_IT_IS = re.compile(
    r"^(?:(?:it|that|he|she)(?:'s| is| was)|it's|es (?:ist|sind|waren)|(?:es|era|son)(?= )|c'(?:est|était)|é|era|是|应该是|"
    r"it should be|in|at|à|en|em|auf) ?",
    re.IGNORECASE,
)
_SEVERAL = re.compile(r", | (?:and|und|y|et|e) |和|、")
_NOW = re.compile(
    r"\b(?:now|nowadays|these days|instead|jetzt|inzwischen|stattdessen|nun|ahora|maintenant|désormais|agora|adesso|nu)\b"
    r"|现在|改",
    re.IGNORECASE,
)
_PARTLY = re.compile(
    r"(?:some|few|a few|most|half|one|two|three|\d+|one of|einige|ein paar|zwei|drei|algun[oa]s|dos|tres|quelques|deux|trois|"
    r"algumas?|alguns|dois|duas|三|两|几|一些)\b",
    re.IGNORECASE,
)
"""Words that name a part: who sells three stamps has others."""
_PART_OF = re.compile(r"(.+?) (?:of|from|del?|du|des|vom|von|d[ao]s?) .+", re.IGNORECASE)
"""A part of something, or a thing from somewhere: the words before the preposition say what it is."""
_WHOLE_WORDS = 2
"""Words from which what ended has its verb: "like chess"."""
_SEARCHED = re.compile(r"[\u3400-\u9fff]{2,}|[^\W_\u3400-\u9fff]{3,}")
_HAN = re.compile(r"[\u3400-\u9fff]")
_STEM_CHARS = 4
"""Letters of a word that a search keeps at least, without its ending."""
_SURE_WORDS = 9
"""Words of a message from which its language is hardly misjudged."""
_VALUE_WORDS = 5
"""Words of a value: a place, a sum, a name."""


@cache
def _calendar_words() -> frozenset[str]:
    texts = (language(code).texts for code in LANGUAGES)
    listed = (word for text in texts for name in ("months", "weekdays") for word in text.get(name, "").split())
    return _ENGLISH_CALENDAR | {form for word in listed for form in word.split("|")}


def is_of_calendar(value: str) -> bool:
    """Tell whether a value is a weekday or a month, which no place or person is corrected to."""
    return value.casefold() in _calendar_words()


def _likeness(word: str, second: str) -> float:
    return SequenceMatcher(None, word.casefold(), second.casefold()).ratio()


def _is_spaced(code: str) -> bool:
    return language(code).texts.get("spaces") != "no"


def _languages_of(text: str) -> tuple[str, ...]:
    """Return the language of a text; first that one and then all others where the text is too short to be sure."""
    code = language_of(text)
    if code and len(text.split()) >= _SURE_WORDS:
        return (code,)
    return (code, *(second for second in LANGUAGES if second != code)) if code else LANGUAGES


def _split_clauses(text: str) -> Iterator[tuple[str, str]]:
    """Each clause of the statements, with each language that it may be in."""
    codes = _languages_of(text)
    for sentence in sentences(text):
        if sentence.asked:
            continue
        for start, end in _clause_spans(text, sentence, whole_first=True):
            for code in codes:
                yield text[start:end], code


def _clause_spans(text: str, sentence: Sentence, *, whole_first: bool) -> Iterator[tuple[int, int]]:
    """The whole sentence, and its parts between commas."""
    if whole_first:
        yield sentence.start, sentence.end
    begin = sentence.start
    for comma in _COMMA.finditer(text, sentence.start, sentence.end):
        yield begin, comma.start()
        begin = comma.end()
    if begin > sentence.start:
        yield begin, sentence.end


@cache
def _rules(code: str, section: Literal["changes", "taken_back"]) -> tuple[tuple[re.Pattern[str], str], ...]:
    lines = language(code).changes if section == "changes" else language(code).taken_back
    return tuple((re.compile(pattern, re.IGNORECASE), gives) for pattern, gives in lines)
