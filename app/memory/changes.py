"""Finds what a user's message ends, and what it takes back of the words before it (seed 004: temporal changes).

A message is read clause by clause. The signs are data: `[changes]` and `[taken_back]` of app/languages/<code>.txt.

    [changes]      pattern => nothing           a clause that only looks like an end: "I almost sold the Golf"
                   pattern => ends              the words `old` name what is true no more
                   pattern => now               `new` is the value that replaces what the clause before ended
                   pattern => parts             as `ends`, for somebody who died or left: memories about others count, too
                   pattern => ends=diet,age     memories about the user with one of these predicates are true no more
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
"""Most characters of a message that is read, as in a turn's own learning. A longer message is a text."""
MIN_CLOSING_SHARE = 0.75
"""The least share of the words naming what ended that a memory must have to be closed: three of four."""
MIN_DOUBTING_SHARE = 0.6
"""The least share from which a memory is doubted: more than half."""
MIN_SIMILARITY = 0.6
"""The least similarity (0 to 1, `difflib`) of a misspelt word and its correction: "Jonh" and "John" have .75."""
MESSAGES_CACHED = 256
"""Messages whose changes are cached: learning asks for them, and so do the prompts that quote the message."""

Reversal = Literal["joke", "fix", "other"]


class StatedChange(NamedTuple):
    """A clause that ends the memories that have the words `old`, or one of `predicates`. `new`: the value that replaces theirs.
    `parts`: somebody died or left."""

    old: str
    predicates: tuple[str, ...]
    new: str
    parts: bool = False
    follows: bool = False
    """`new` stands in a clause of its own: "I no longer work at Acme, now I'm at Globex"."""
    lead: str = ""
    """The words that make a whole clause of `old`, in the message's language: "I "."""


class StoredStatement(NamedTuple):
    """A memory in force, with the fields that a change needs."""

    kind: str
    text: str
    subject: str | None
    predicate: str | None
    value: str | None
    quotes: tuple[str, ...]


class Retraction(NamedTuple):
    """The words that take back what was said before them. `span`: their place in the message; `old`: words that name what was
    wrong, or none; `right`: the words behind them, which may say what is right; `typo`: they correct one word's spelling."""

    kind: Reversal
    span: tuple[int, int]
    old: str
    right: str
    typo: bool = False


def find_changes(message: str) -> list[StatedChange]:
    """Return what the user's own statements in a message end; most messages end nothing."""
    if len(message) > MAX_CHARS:
        return []
    return list(_find_changes(message))


@of_texts(MESSAGES_CACHED)
def _find_changes(message: str) -> tuple[StatedChange, ...]:
    changes: list[StatedChange] = []
    text = masked(message)
    for clause, code in _split_clauses(text):
        for pattern, action in _read_rules(code, "changes"):
            if (match := pattern.fullmatch(clause)) is None:
                continue
            if action == "nothing":
                break
            groups = match.groupdict()
            if action == "now":
                if changes and not changes[-1].new:
                    changes[-1] = changes[-1]._replace(new=groups["new"].strip(), follows=True)
                break
            predicates = tuple(action.partition("=")[2].split(",")) if "=" in action else ()
            old = " ".join(part for part in (groups.get("old"), groups.get("rest")) if part)
            changes.append(
                StatedChange(
                    old.strip(),
                    predicates,
                    (groups.get("new") or "").strip(),
                    action == "parts",
                    lead=language(code).texts.get("ellipsis", ""),
                )
            )
            break
    return tuple(changes)


@of_texts(MESSAGES_CACHED)
def has_change_sign(message: str) -> bool:
    """Return whether a message ends something, or takes something back."""
    return bool(find_changes(message)) or find_retraction(message) is not None


@cache
def list_ended_slots() -> frozenset[str]:
    """Return the predicates that some sign ends without naming their value."""
    actions = (action for code in LANGUAGES for _, action in language(code).changes if "=" in action)
    return frozenset(predicate for action in actions for predicate in action.partition("=")[2].split(","))


def find_retraction(message: str) -> Retraction | None:
    """Return what a message takes back of the words before it, or None."""
    if len(message) > MAX_CHARS:
        return None
    return _find_retraction(message)


@of_texts(MESSAGES_CACHED)
def _find_retraction(message: str) -> Retraction | None:
    text = masked(message)
    if typo := _TYPO.fullmatch(message.strip()):
        return Retraction("fix", (0, len(message)), "", typo["right"] or typo["left"], typo=True)
    codes = _list_languages(text)
    for sentence in sentences(text):
        if sentence.asked:
            continue
        for start, end in _find_clause_spans(text, sentence):
            clause = text[start:end]
            for code in codes:
                for pattern, action in _read_rules(code, "taken_back"):
                    match = pattern.match(clause)
                    if match is None or ((rest := clause[match.end() :]) and rest[0].isalnum() and _is_spaced(code)):
                        continue
                    if action.endswith("?") and rest.strip():
                        continue
                    kind: Reversal = "joke" if action == "joke" else "fix" if action == "fix" else "other"
                    stop = start + match.end()
                    old = match.groupdict().get("old") or ""
                    return Retraction(kind, (start, stop), old, message[stop:].strip(_EDGES))
    return None


def blank_span(message: str, span: tuple[int, int]) -> str:
    """Return the message with a part replaced by spaces and a line end, so that all else keeps its place."""
    start, end = span
    stop = end + len(message[end:]) - len(message[end:].lstrip(_EDGES))
    return message[:start] + " " * (stop - start - 1) + "\n" * (stop > start) + message[stop:]


def restate(statement: str, old: str, right: str, *, typo: bool = False) -> str | None:
    """Return an earlier message with the right value in the place of the wrong one, or None where its place is not clear.

    Args:
        statement: The user's earlier words.
        old: Words that name what was wrong, or "".
        right: The right value, as the user says it: "it's 1200 euros".
        typo: `right` is one word, which was misspelt.
    """
    right = _IT_IS.sub("", right, count=1).strip(_EDGES)
    if not right or len(right.split()) > _VALUE_WORDS:
        return None
    if typo:
        if right.isdigit():
            numbers = list(_NUMBER.finditer(statement))
            return _replace_only(statement, numbers, right)
        words = [match for match in _WORD.finditer(statement) if _measure_similarity(match[0], right) >= MIN_SIMILARITY]
        best = max(words, key=lambda match: _measure_similarity(match[0], right), default=None)
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
    if _PROPER.fullmatch(right) and len(names) == 1 and is_calendar_word(right) == is_calendar_word(names[0][1]):
        start, end = names[0].span(1)
        return statement[:start] + right + statement[end:]
    return None


def _replace_only(statement: str, places: Sequence[re.Match[str]], right: str) -> str | None:
    """Return the statement with the right value in its only place, or None where there is not exactly one."""
    if len(places) != 1:
        return None
    return statement[: places[0].start()] + right + statement[places[0].end() :]


def measure_overlap(change: StatedChange, texts: Sequence[str]) -> float:
    """Return the share (0 to 1) of the words naming what ended that a memory's texts have, by the index's own terms."""
    content = " ".join(word for word in change.old.split() if not function_word(word.lower().strip(_EDGES)))
    wanted = [frozenset(term.hashes) for term in asked(content or change.old, _CODES)]
    if not wanted:
        return 0.0
    present = collect_terms(texts)
    return sum(not hashes.isdisjoint(present) for hashes in wanted) / len(wanted)


def judge_change(change: StatedChange, memory: StoredStatement) -> Literal["closes", "doubts"] | None:
    """Return what a change does to a memory: it closes it, puts it in doubt where the change is unclear, or does nothing."""
    about_user = memory.subject in (None, "user")
    if change.predicates:
        return "closes" if memory.subject == "user" and memory.predicate in change.predicates else None
    overlap = measure_overlap(change, (memory.text, *memory.quotes))
    if (part := _PART_OF.match(change.old)) and not measure_overlap(change._replace(old=part[1]), (memory.text,)):
        return None  # who sold the tyres of the Golf still has the Golf
    if not measure_overlap(change, (memory.text, memory.value or "")):
        return None  # only the message that it was learned from has the words: "I work at Acme as an engineer"
    if overlap < MIN_DOUBTING_SHARE or not (about_user or change.parts) or _PARTLY.match(change.old):
        return None
    several = bool(_SEVERAL.search(memory.value or ""))
    unclear = overlap < MIN_CLOSING_SHARE or several or (change.parts and memory.predicate is None)
    if memory.kind == "preference" and len(change.old.split()) < _WHOLE_WORDS:
        unclear = True  # "I quit chess" says nothing of whether it is liked
    return "doubts" if unclear else "closes"


def list_search_patterns(change: StatedChange) -> list[str]:
    """Return LIKE patterns, one of which fits each memory that a change names."""
    words = [match[0] for match in _SEARCHED.finditer(change.old) if not function_word(match[0].lower())]
    pairs = [word[at : at + 2] for word in words if _HAN.match(word) for at in range(len(word) - 1)]
    spaced = [word[: max(_STEM_CHARS, len(word) - 2)] for word in words if not _HAN.match(word)]
    return [f"%{word}%" for word in (*pairs, *spaced) if "%" not in word and "_" not in word]


def collect_terms(texts: Sequence[str]) -> frozenset[int]:
    """Return the index's terms of some texts, under every language that has rules."""
    return frozenset(term_hash for text in texts for term in asked(text, _CODES) for term_hash in term.hashes)


def has_now_word(statement: str) -> bool:
    """Return whether a statement has a word such as "now" or "instead", by which it replaces an earlier one."""
    return _NOW.search(statement) is not None


def shares_words(text: str, others: Collection[str]) -> bool:
    """Return whether a text has a telling word of one of the others."""
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
    r"^(?:(?:it|that|he|she)(?:'s| is| was)|es (?:ist|sind|waren)|(?:es|era|son)(?= )|c'(?:est|était)|é|era|是|应该是|"
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
"""Words that name a part: who sells three stamps may have others."""
_PART_OF = re.compile(r"(.+?) (?:of|from|del?|du|des|vom|von|d[ao]s?) .+", re.IGNORECASE)
"""A part of something, or a thing from somewhere. The words before the preposition say what it is."""
_WHOLE_WORDS = 2
"""The least number of words that name what ended with its verb: "like chess"."""
_SEARCHED = re.compile(r"[\u3400-\u9fff]{2,}|[^\W_\u3400-\u9fff]{3,}")
_HAN = re.compile(r"[\u3400-\u9fff]")
_STEM_CHARS = 4
"""The fewest letters of a word that a search keeps when it cuts the ending."""
_SURE_WORDS = 9
"""The number of words from which a message's language is hardly misjudged."""
_QUESTION_WORD = re.compile(r"[\u3400-\u9fff]|[^\W_\u3400-\u9fff]+")
_LEAST_QUESTION_WORDS = 4
"""The fewest words, or Chinese characters, behind a comma that ask something of their own; fewer ask about the words before."""
_VALUE_WORDS = 5
"""Most words of a value: a place, a sum, a name."""


@cache
def _list_calendar_words() -> frozenset[str]:
    texts = (language(code).texts for code in LANGUAGES)
    listed = (word for text in texts for name in ("months", "weekdays") for word in text.get(name, "").split())
    return _ENGLISH_CALENDAR | {form for word in listed for form in word.split("|")}


def is_calendar_word(value: str) -> bool:
    """Return whether a value is a weekday or a month: no place or person is corrected to one."""
    return value.casefold() in _list_calendar_words()


def _measure_similarity(first: str, second: str) -> float:
    return SequenceMatcher(None, first.casefold(), second.casefold()).ratio()


def _is_spaced(code: str) -> bool:
    return language(code).texts.get("spaces") != "no"


def _list_languages(text: str) -> tuple[str, ...]:
    """Return the language of a text; where the text is too short to be sure, the others follow it."""
    code = language_of(text)
    if code and len(text.split()) >= _SURE_WORDS:
        return (code,)
    return (code, *(second for second in LANGUAGES if second != code)) if code else LANGUAGES


def _split_clauses(text: str) -> Iterator[tuple[str, str]]:
    """Yield each clause of the text's statements, with each language that it may be in."""
    codes = _list_languages(text)
    for sentence in sentences(text):
        spans = list(_find_clause_spans(text, sentence))
        # "I no longer live in Leeds, whom do I tell?" states its first part; "I sold the Golf, right?" states nothing.
        if sentence.asked:
            asked_words = text[slice(*spans[-1])]
            is_tag = len(_QUESTION_WORD.findall(asked_words)) < _LEAST_QUESTION_WORDS
            spans = [] if len(spans) == 1 or is_tag else spans[1:2]
        for start, end in spans:
            for code in codes:
                yield text[start:end], code


def _find_clause_spans(text: str, sentence: Sentence) -> Iterator[tuple[int, int]]:
    """Yield the place of the whole sentence, then of its parts between commas."""
    yield sentence.start, sentence.end
    begin = sentence.start
    for comma in _COMMA.finditer(text, sentence.start, sentence.end):
        yield begin, comma.start()
        begin = comma.end()
    if begin > sentence.start:
        yield begin, sentence.end


@cache
def _read_rules(code: str, section: Literal["changes", "taken_back"]) -> tuple[tuple[re.Pattern[str], str], ...]:
    lines = language(code).changes if section == "changes" else language(code).taken_back
    return tuple((re.compile(pattern, re.IGNORECASE), action) for pattern, action in lines)
