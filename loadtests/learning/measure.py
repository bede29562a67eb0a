"""Recall and precision of the tagger on labelled conversations, by the least probability of a statement."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from app.memory.statements import UserStatement, find_segments, find_statements
from app.memory.tagger import MessageTagger, split_words
from loadtests.learning.conversations import Conversation, DevelopmentRow

THRESHOLDS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
MIN_OVERLAP = 0.5
"""A statement and a label agree if this share of the one stands in the other."""
MIN_SHARED_WORDS = 2
"""Telling words that a statement shares with a development label (one, if the label has only one)."""
MIN_SHARE_OF_STATEMENT, MIN_SHARE_OF_QUOTE, MIN_SHARE_OF_FACT = 1 / 2, 1 / 2, 1 / 3
"""Shares of the telling words that agree: the statement's with fact or quote, the quote's or the fact's with the statement."""

_WORD = re.compile(r"\w+")
_COMMON_WORDS = frozenset(
    _WORD.findall(
        """a about also am an and are as at be been by can could do does for from get got had has have he her him his i im in is
        it its just like likes me my of on or our really she so that the their them there they this to us use used user users
        uses using very want wanted wants was we were what when which who will with would you your"""
    )
)
_ENDING = re.compile(r"(?:ing|ed|es|s|ly)$")


class Score(NamedTuple):
    """`recall`: the share of sure labels that were found. `precision`: the share of what was found that has a label."""

    recall: float
    precision: float
    labels: int
    statements: int


class FoundStatement(NamedTuple):
    """A statement, the number of its message, and its words."""

    number: int
    statement: UserStatement
    text: str


FindStatements = Callable[[Conversation], Sequence[FoundStatement]]


def read_statements(tagger: MessageTagger, conversation: Conversation) -> list[FoundStatement]:
    """Return what the tagger finds in the messages of a conversation, with any probability, as the proxy would read them."""
    statements: list[FoundStatement] = []
    in_role_play = False
    for place, (number, text) in enumerate(sorted(conversation.messages.items())):
        tagged = tagger.tag(split_words(text, number=place, in_role_play=in_role_play))
        statements += [
            FoundStatement(number, statement, " ".join(text[statement.start : statement.end].split()))
            for statement in find_statements(tagged, min_probability=0.0)
        ]
        in_role_play = in_role_play or any(segment.frame == "role" for segment in find_segments(tagged))
    return statements


def select_statements(statements: Iterable[FoundStatement], threshold: float) -> list[FoundStatement]:
    """Return the statements of at least this probability."""
    return [found for found in statements if found.statement.probability >= threshold]


def score_places(
    conversations: Sequence[Conversation], statements: Sequence[Sequence[FoundStatement]], threshold: float
) -> Score:
    """Return the score against labels that have a place. `statements`: those of each conversation."""
    labels = hits = total = right = 0
    for conversation, found in zip(conversations, statements, strict=True):
        chosen = select_statements(found, threshold)
        for label in conversation.facts:
            if label.sure:
                labels += 1
                hits += any(
                    label.number == number
                    and _overlap(label.start, label.end, statement) >= MIN_OVERLAP * (label.end - label.start)
                    for number, statement, _ in chosen
                )
        total += len(chosen)
        right += sum(
            any(
                label.number == number
                and _overlap(label.start, label.end, statement) >= MIN_OVERLAP * (statement.end - statement.start)
                for label in conversation.facts
            )
            for number, statement, _ in chosen
        )
    return Score(hits / max(1, labels), right / max(1, total), labels, total)


def _overlap(start: int, end: int, statement: UserStatement) -> int:
    return min(end, statement.end) - max(start, statement.start)


def score_rows(
    conversations: Sequence[Conversation], statements: Sequence[Sequence[FoundStatement]], threshold: float
) -> Score:
    """Return the score against development labels, by shared words. Equal statements of a conversation count once, and so does
    each label in the precision."""
    sure = sure_hits = hits = wrong = 0
    for conversation, found in zip(conversations, statements, strict=True):
        texts = {text.lower() for _, _, text in select_statements(found, threshold)}
        has_statement = [any(agree(text, row) for text in texts) for row in conversation.rows]
        hits += sum(has_statement)
        sure += sum(row.sure for row in conversation.rows)
        sure_hits += sum(hit for hit, row in zip(has_statement, conversation.rows, strict=True) if row.sure)
        wrong += sum(not any(agree(text, row) for row in conversation.rows) for text in texts)
    return Score(sure_hits / max(1, sure), hits / max(1, hits + wrong), sure, hits + wrong)


def agree(text: str, row: DevelopmentRow) -> bool:
    """Return whether a statement says what a development label says."""
    words, quote, fact = _find_telling_words(text), _find_telling_words(row.quote), _find_telling_words(row.fact)
    if not words or len(words & (quote | fact)) < MIN_SHARE_OF_STATEMENT * len(words):
        return False
    return any(
        len(words & label) >= max(min(MIN_SHARED_WORDS, len(label)), share * len(label))
        for label, share in ((quote, MIN_SHARE_OF_QUOTE), (fact, MIN_SHARE_OF_FACT))
        if label
    )


def _find_telling_words(text: str) -> set[str]:
    words = _WORD.findall(text.lower())
    return {_ENDING.sub("", word) for word in words if len(word) > 1 and word not in _COMMON_WORDS}
