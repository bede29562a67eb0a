"""Finds the text that a message brings along: a sentence to be checked or translated, what somebody else says, a job
advertisement or a review. Such a text teaches and ends nothing, although it says "I".

The signs are data: `app/languages/brought_text.txt`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

Span = tuple[int, int]

_HINTS = frozenset({"follows", "I", "we"})
"""The kinds of lines that help to read a sign and are none."""
FILE = Path(__file__).parents[1] / "languages" / "brought_text.txt"
_SENTENCE_END = re.compile(r"[.!?。！？\n]")
_LINE_END = re.compile(r"\n")
_WORD = re.compile(r"\w")
_SAID_END = re.compile(r"[.!?](?=\s)|[。！？\n]")
_OPENING_QUOTE = re.compile(r"\s*[\"'“„«「『‘]")
_SHORT_CALL_CHARS = 14
"""Characters up to which a call ("Guess what!") opens what somebody says and is not all of it; read off short messages."""


class BroughtTextSign(NamedTuple):
    """A line of the file. `parts`: parts of words, lower case; a message without any of them need not be searched."""

    kind: str
    parts: tuple[str, ...]
    pattern: re.Pattern[str]


@cache
def _read_signs() -> tuple[BroughtTextSign, ...]:
    signs = []
    for line in FILE.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            head, _, pattern = line.partition(" => ")
            kind, _, parts = head.partition(":")
            signs.append(BroughtTextSign(kind, tuple(parts.split()), re.compile(pattern, re.IGNORECASE | re.MULTILINE)))
    return tuple(signs)


def find_brought_text(text: str) -> list[Span]:
    """Return the places (start, end) of a message where the text stands that it brings along, in order.

    Args:
        text: The message, with straight apostrophes.
    """
    lowered = text.lower()
    return merge_spans(
        span
        for sign in _read_signs()
        if sign.kind not in _HINTS and any(part in lowered for part in sign.parts)
        for match in sign.pattern.finditer(text)
        if (span := _find_span(text, sign.kind, match)) is not None
    )


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """Return spans in order, those that overlap or touch as one."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _find_span(text: str, kind: str, match: re.Match[str]) -> Span | None:
    """Return the place of the text that a sign belongs to, or None where there are no words."""
    before, after = (0, match.start()), (match.end(), len(text))
    span: Span | None
    if kind == "asks":
        span = after if _has_words(text, after) else before
    elif kind == "unsure":
        span = _find_sentence_before(text, match.start()) if _has_words(text, before) else _find_following(text, match)
    elif kind == "points":
        span = before if _has_words(text, before) else _find_following(text, match)
    elif kind == "heads":
        span = after
    elif kind == "opens":
        span = (match.start(), len(text))
    elif kind == "advert":
        span = (match.start(), _find_own_sentence(text, match.end()))
    elif kind == "parts":
        span = (match.start(), len(text)) if _has_hint("follows", text[: match.start()]) else None
    elif kind == "says":  # "She wrote:" says nothing of its own either
        span = (match.start(), _find_end_of_speech(text, match.end()))
    else:
        end = _SENTENCE_END.search(text, match.end())
        span = (match.end(), end.start() if end else len(text))
    return span if span is not None and _has_words(text, span) else None


def _find_following(text: str, match: re.Match[str]) -> Span | None:
    """Return the place behind a sign if its words, or an empty line, show that a text follows."""
    follows = _has_hint("follows", match[0]) or match[0].endswith("\n\n")
    return (match.end(), len(text)) if follows else None


def _find_end_of_speech(text: str, start: int) -> int:
    """Return where the words end that somebody else is announced to say."""
    line_end = _LINE_END.search(text, start)
    end_of_line = line_end.start() if line_end else len(text)
    if not _has_words(text, (start, end_of_line)):
        return len(text)
    if _OPENING_QUOTE.match(text, start):
        return end_of_line
    ends = (end for end in _SAID_END.finditer(text, start, end_of_line) if _has_words(text, (start, end.start())))
    sentence_end = next(
        (end.end() for end in ends if end[0] in ".。" or end.start() - start > _SHORT_CALL_CHARS), end_of_line
    )
    sentence = text[start:sentence_end]
    return end_of_line if _has_hint("I", sentence) or _has_hint("we", sentence) else sentence_end


def _find_own_sentence(text: str, start: int) -> int:
    """Return where the first sentence behind a place begins in which somebody says I, or the end of the text."""
    hint = next((match for sign in _read_hints("I") if (match := sign.pattern.search(text, start))), None)
    if hint is None:
        return len(text)
    return max([start, *(end.end() for end in _SENTENCE_END.finditer(text, start, hint.start()))])


def _read_hints(kind: str) -> list[BroughtTextSign]:
    return [sign for sign in _read_signs() if sign.kind == kind]


def _has_hint(kind: str, text: str) -> bool:
    return any(sign.pattern.search(text) is not None for sign in _read_hints(kind))


def _find_sentence_before(text: str, place: int) -> Span:
    """Return where the last sentence before a place stands that has words."""
    starts = [0, *(end.end() for end in _SENTENCE_END.finditer(text, 0, place))]
    return next((start, place) for start in reversed(starts) if _has_words(text, (start, place)))


def _has_words(text: str, span: Span) -> bool:
    return _WORD.search(text, *span) is not None
