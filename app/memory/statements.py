"""The segments of a user's message with their frames, and what it states about the user, in the user's own words.

The tagger marks each word; a statement is a run of words worth keeping on one line, in a segment that is the user's own.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from app.languages import ends_unfinished, function_word, language
from app.memory.candidate import IMPORTANCE, MemoryCandidate, SourceExchange, make_candidate, placed
from app.memory.chinese_clauses import complete_clauses
from app.memory.extract_clauses import MASK, masked
from app.memory.extract_dates import FoundDate, find_spoken_date
from app.memory.extract_grammar import capital, depersonalise
from app.memory.tagger import (
    FRAMES,
    KINDS,
    SUBJECTS,
    Floats,
    Frame,
    StatementKind,
    Subject,
    TaggedMessage,
    load_shipped_tagger,
    split_words,
)
from app.memory.text import injected_spans
from app.store.kinds import LearnedKind
from app.text_cache import of_texts

MIN_PROBABILITY = 0.75
"""The least probability of a statement that is kept. Chosen on 500 labelled conversations that the tagger was not fitted on: a
lower one loses more precision than it gains recall (`loadtests/results/learning.md` has the curve)."""
MIN_WORD_PROBABILITY = 0.3
"""The least probability of a word that belongs to a statement."""
MIN_BEGIN_PROBABILITY = 0.5
"""The least probability that a word begins a statement of its own."""
_MIN_WORDS_BEFORE_NEXT = 2
MIN_STATEMENT_WORDS, MAX_STATEMENT_WORDS = 2, 30
"""Words of a statement; one word says nothing by itself, and a longer run is a document."""
MIN_OWN_PROBABILITY = 0.5
"""The least probability that a statement's words are the user's own, or an order that names something of the user's."""
_OWN_FRAME_COUNT = 2
"""`own` and `task` are the first two of `FRAMES`: an order for one task may name "my Django app"."""
OWN_FRAMES = frozenset(FRAMES[:_OWN_FRAME_COUNT])
"""Frames of the user's own words."""
MIN_ROLE_PROBABILITY = 0.8
"""The least mean probability of a line that begins a role play, which sets aside what follows in the session."""
_MAX_CONFIDENCE = 0.9
"""Nobody vouches for the tagger's reading as for a rule's."""
_CLOSING = ")%"
_TITLES = frozenset({"dr", "dra", "prof", "mr", "mrs", "ms", "st", "sr", "sra", "mme"})
"""Abbreviations before a name, whose full stop ends no sentence."""
_LOOSE_SIGNS = " ,;:，、"
_RANGE = re.compile(r"\s*(?:[-–—]\s*\d|to \d|and \d|through |(?:mornings|afternoons|evenings|nights)\b)")
"""Words that follow the first of several days."""
_NEARLY = re.compile(r"\s+(?:about|around|over|almost|nearly|roughly|just|only)$", re.IGNORECASE)
_LINK = re.compile(r"\b(?:of|by|until|till|for|from|before|after|since|to|between|with|due)$", re.IGNORECASE)
AT_ONCE = 2
"""Messages whose tags are kept."""

_KIND: dict[StatementKind, LearnedKind] = {
    "fact": "fact",
    "preference": "preference",
    "project": "fact",
    "plan": "fact",
    "person": "fact",
}
"""Standing wishes are read by rules alone: a wrong one changes every later answer."""

_SPOKEN_WORD = re.compile(r"[^\W_]+")


class Segment(NamedTuple):
    """A stretch of a message (start, end, in characters) with its frame."""

    start: int
    end: int
    frame: Frame


class UserStatement(Struct, frozen=True):
    """A stretch of the user's own words that says something lasting. `probability` in 0..1 that a reader would keep it."""

    start: int
    end: int
    kind: StatementKind
    subject: Subject
    probability: float


@of_texts(AT_ONCE)
def tag_message(text: str, *, number: int = 0, in_role_play: bool = False) -> TaggedMessage:
    """Tag a message with the shipped tagger. `number`: how many messages the user sent before it in the session.

    The last messages are kept: statements, segments and role play are asked for one after the other.
    """
    return load_shipped_tagger().tag(split_words(text, number=number, in_role_play=in_role_play))


def find_segments(message: TaggedMessage) -> list[Segment]:
    """Return the segments of a message in order: neighbouring lines of one frame."""
    segments: list[Segment] = []
    for first, last in _find_lines(message):
        frame = FRAMES[int(message.frames[first:last].mean(axis=0).argmax())]
        start, end = message.words.starts[first], message.words.ends[last - 1]
        if segments and segments[-1].frame == frame:
            segments[-1] = segments[-1]._replace(end=end)
        else:
            segments.append(Segment(start, end, frame))
    return segments


def _find_lines(message: TaggedMessage) -> Iterator[tuple[int, int]]:
    lines = message.words.lines
    if not len(lines):
        return
    bounds = [0, *(np.flatnonzero(np.diff(lines)) + 1).tolist(), len(lines)]
    yield from pairwise(bounds)


def is_role_play_start(exchange: SourceExchange) -> bool:
    """Return whether the user's message begins a role play or a story, which lasts over the session's later messages."""
    tagged = tag_message(exchange.user_text, number=exchange.number, in_role_play=exchange.in_role_play)
    role = FRAMES.index("role")
    return any(
        tagged.frames[first:last].mean(axis=0)[role] >= MIN_ROLE_PROBABILITY for first, last in _find_lines(tagged)
    )


def is_own_throughout(text: str) -> bool:
    """Return whether each line of a message is in the user's own words, but for parts that plainly are not."""
    tagged, own_words = tag_message(text), masked(text)
    return all(
        _sum_own_frames(tagged.frames[first:last]) >= MIN_OWN_PROBABILITY
        for first, last in _find_lines(tagged)
        if own_words[tagged.words.starts[first] : tagged.words.ends[last - 1]].strip(MASK)
    )


def find_statements(message: TaggedMessage, *, min_probability: float = MIN_PROBABILITY) -> list[UserStatement]:
    """Return the statements of a message in order, each on one line and at most `MAX_STATEMENT_WORDS` words long."""
    statements: list[UserStatement] = []
    for first, last in _find_runs(message):
        probability = _average_upper_half(message.keep[first:last])
        if probability < min_probability or not MIN_STATEMENT_WORDS <= last - first <= MAX_STATEMENT_WORDS:
            continue
        if _sum_own_frames(message.frames[first:last]) < MIN_OWN_PROBABILITY:
            continue
        statements.append(
            UserStatement(
                message.words.starts[first],
                message.words.ends[last - 1],
                KINDS[int(message.kinds[first:last].mean(axis=0).argmax())],
                SUBJECTS[int(message.subjects[first:last].mean(axis=0).argmax())],
                probability,
            )
        )
    return statements


def _find_runs(message: TaggedMessage) -> Iterator[tuple[int, int]]:
    """Find the runs of words worth keeping, without punctuation at their ends, nor a function word where the sentence goes on
    after it ("… in Leeds as well as")."""
    words, lines = message.words.words, message.words.lines
    inside = (message.keep >= MIN_WORD_PROBABILITY).tolist()
    begins = (message.begins > MIN_BEGIN_PROBABILITY).tolist()
    place, count = 0, len(words)
    while place < count:
        if not inside[place]:
            place += 1
            continue
        end = place + 1
        while end < count and inside[end] and lines[end] == lines[place]:
            if begins[end] and end - place > _MIN_WORDS_BEFORE_NEXT:
                break
            end += 1
        while (
            words[end - 1].lower() in _TITLES
            and words[end : end + 1] == ["."]
            and "".join(words[end + 1 : end + 2]).istitle()
        ):
            end += 2  # "My dentist is Dr. Kolb"
        first, last = place, end
        while first < last and not words[first][0].isalnum():
            first += 1
        cut_short = last < count and lines[last] == lines[place] and words[last][0].isalnum()
        while last > first and not (words[last - 1][0].isalnum() or words[last - 1] in _CLOSING):
            last -= 1
        while cut_short and last > first and function_word(words[last - 1].lower()):
            last -= 1
        if last > first:
            yield first, last
        place = end


class SpanReading(NamedTuple):
    """The probabilities, 0 to 1, that a stretch of a message is in the user's own words, and that a reader would keep it."""

    own_probability: float
    keep_probability: float


def read_span(message: TaggedMessage, start: int, end: int) -> SpanReading:
    """Return the tagger's probabilities of the words between two places of a message, or 1 where there are none."""
    first, last = bisect_right(message.words.ends, start), bisect_left(message.words.starts, end)
    if first >= last:
        return SpanReading(1.0, 1.0)
    return SpanReading(_sum_own_frames(message.frames[first:last]), _average_upper_half(message.keep[first:last]))


def _sum_own_frames(frames: Floats) -> float:
    """Return the mean probability that some words, (n, frames), are in the user's own frames."""
    return float(frames.mean(axis=0)[:_OWN_FRAME_COUNT].sum())


def _average_upper_half(keep: Floats) -> float:
    """Return the mean of the greater half of the words' probabilities: function words say little of a statement."""
    ordered = np.sort(keep)[::-1]
    return float(ordered[: (len(ordered) + 1) // 2].mean())


def is_fragment(quote: str, code: str) -> bool:
    """Return whether words were cut short, or say nothing but a number: "I don't have access to the", "I have $0".

    `code`: the message's language, as `language_of` gives it.
    """
    words = _SPOKEN_WORD.findall(quote)
    if not words or ends_unfinished(quote, code):
        return True
    content = [word for word in words if not function_word(word.lower())]
    return bool(content) and all(word.isdigit() for word in content)


def build_candidates(
    statements: Sequence[UserStatement], text: str, now: datetime, *, code: str
) -> list[MemoryCandidate]:
    """Return a candidate for each statement, in the user's own words with pronouns and days resolved.

    Args:
        statements: what was found in the message.
        text: the message as it came.
        now: when it was said, in the user's zone.
        code: the message's language; other languages than English keep their pronouns, and "" has no dates.
    """
    candidates: list[MemoryCandidate] = []
    injected = injected_spans(text)
    spans = complete_clauses([(statement.start, statement.end) for statement in statements], text)
    for statement, span in zip(statements, spans, strict=True):
        kind = _KIND.get(statement.kind)
        if kind is None or span is None or any(start < span[1] and span[0] < end for start, end in injected):
            continue
        quote = " ".join(text[span[0] : span[1]].split())
        when = find_spoken_date(quote, code, now)
        repeats = language(code or "en").pattern("repeats")
        if when is not None:
            # "le jeudi" is every Thursday, "jeudi" the next one: the day's own words tell it in other languages than English.
            searched_end = when.start if code in ("", "en") else when.end
            when = None if repeats.search(quote[:searched_end]) or _RANGE.match(quote, when.end) else when
        content = _resolve_words(quote, when, english=code in ("", "en"))
        if content is None or (" " not in content and content.isascii()):
            continue  # "my brother" or "next week" alone says nothing
        if when is not None and kind == "fact":
            kind = "event"
        draft = make_candidate(
            content,
            kind,
            importance=IMPORTANCE[kind],
            confidence=round(min(statement.probability, _MAX_CONFIDENCE), 3),
            tag=statement.kind,
            value=quote,
            when=when.iso if when else None,
            way="judge",
        )
        candidates += placed([draft], text, *span)
    return candidates


def _resolve_words(quote: str, when: FoundDate | None, *, english: bool) -> str | None:
    """Return a statement without its first person and with its day, or None where it says nothing but the day."""
    if when is None:
        return (depersonalise(quote) if english else None) or capital(quote)
    before, after = _NEARLY.sub("", quote[: when.start].rstrip(_LOOSE_SIGNS)), quote[when.end :].lstrip(_LOOSE_SIGNS)
    if not before and not after:
        return None
    if not english:
        return f"{capital(quote)} ({when.iso})"
    linked = _LINK.search(before) is not None  # "by 3 March", not "by on 3 March"
    words = (before, when.iso if linked else when.phrase, after) if before else (after, when.phrase)
    resolved = " ".join(part for part in words if part)
    return depersonalise(resolved) or capital(resolved)
