"""Quotes the user's later own words in the prompt's lines, so that no line states as true what the user has revised.

Learning closes the memories that it understands to have ended, and misses some. Where a later message of the user shares the
telling words of a memory (`app/index/later_mentions.py`), the memory's line quotes it, or the memory is left out. Plain
computation over plain values.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from app.context.assemble import neutralise
from app.context.bearing import read
from app.context.candidates import Candidate
from app.context.notes import Count
from app.context.pack import Packed, Reason, Verdict
from app.context.retrieve import LaterMessages
from app.memory.changes import MAX_CHARS, has_change_sign, shares_words
from app.memory.extract_clauses import find_own_words
from app.memory.speakers import is_bot
from app.store.kinds import DOUBTABLE
from app.store.turns import RetrievedRow
from app.store.user_profile import StandingFact

MOST_QUOTED = 2
"""The most later messages that stand behind a line; they are the latest ones."""
_QUESTION_MARKS = ("?", "？", "؟")
_CLAUSE_END = re.compile(r"[,;:.!?，。；：！？–—]")
_WORD = re.compile(r"[^\W_]+")
_QUESTION_TEXT = """
    how what where who whom which when why wie wo was wer wann welche welcher welches welchem wohin woher warum cómo dónde
    qué quién cuándo cuál comment où que quel quelle quels quelles qui quand como onde qual quais quem quando
"""
_QUESTION_WORDS = frozenset(_QUESTION_TEXT.split())
"""A bare question has one of these among its first two words ("In which city …")."""
_QUESTION_SIGNS = re.compile("[\u4e00-\u9fff].*(?:什么|哪|谁|怎么|怎样|几|多少|吗|呢)")
QUOTE_CHARS = 240
"""Most characters of a later message that are quoted: two sentences, as in `BRIEF_CHARS`."""


class LaterWordsShown(NamedTuple):
    """The later words behind lines. `words`: by the id of an item or of a fact's note; `messages`: ids of the quoted messages;
    `left_out`: memories for whose later words there is no room; `tokens`: the words' length."""

    words: Mapping[UUID, str] = MappingProxyType({})
    messages: Sequence[UUID] = ()
    left_out: Collection[UUID] = frozenset()
    tokens: int = 0


NONE_SHOWN = LaterWordsShown()


def attach_later_words(
    packed: Packed,
    facts: Sequence[StandingFact],
    later: LaterMessages,
    visible: Collection[UUID],
    room: int,
    count: Count,
    *,
    asks_about_user: bool = False,
) -> tuple[Packed, LaterWordsShown]:
    """Choose the later words behind each line, and leave out the memories for which there is no room.

    Args:
        packed: The chosen items.
        facts: The facts shown beside them.
        later: By item, the user's own messages that share its telling words, the latest last.
        visible: Items that the prompt shows already.
        room: Tokens that are left.
        count: Counts the tokens of a text.
        asks_about_user: Whether the request is about the user; then a message has the later words of its memory, too.
    """
    later = _drop_questions(later)
    chosen = _Choice({*visible, *[item.id for item in packed.candidates]}, room, count)
    for fact in facts:
        if fact.memory is not None and (messages := later.get(fact.memory.hex)):
            messages = [row for row in messages if row.item_id not in fact.messages]
            chosen.add(fact.note, fact.memory, _select_own(fact.value, messages))
    # A memory may have given way to its own message, which then is the line that its later words concern.
    memory_by_message = {
        verdict.because_of: verdict.item.candidate
        for verdict in packed.dropped
        if verdict.reason == Reason.DUPLICATE and verdict.item.candidate.source == "memory"
    }
    for item in packed.candidates:
        if item.space is not None:
            continue
        messages = later.get(item.id.hex, ())
        memory = item if item.source == "memory" else memory_by_message.get(item.id)
        if item.source == "message":
            change_messages = [row for row in messages if has_change_sign(row.content)]
            memory_messages = _select_later_messages(memory, later) if asks_about_user and memory is not None else []
            chosen.add(item.id, None, change_messages or memory_messages[-1:])
        elif memory is not None:
            chosen.add(item.id, item.id, _select_later_messages(memory, later))
    if not chosen.words and not chosen.left_out:
        return packed, NONE_SHOWN
    words = LaterWordsShown(chosen.words, chosen.messages, chosen.left_out, chosen.tokens)
    return _leave_out(packed, chosen.left_out), words


class _Choice:
    """The later words chosen so far. `visible`: items that the prompt shows, to which quoted messages are added."""

    def __init__(self, visible: set[UUID], room: int, count: Count) -> None:
        self.words: dict[UUID, str] = {}
        self.messages: list[UUID] = []
        self.left_out: set[UUID] = set()
        self.tokens = 0
        self._visible = visible
        self._room = room
        self._count = count

    def add(self, line: UUID, memory: UUID | None, messages: Sequence[RetrievedRow]) -> None:
        """Quote messages behind a line, each only once in a block; where there is no room, leave out the line's memory."""
        new = [message for message in messages if message.item_id not in self._visible]
        if not new:
            return
        text = "".join([_quote(message) for message in new])
        cost = self._count(text) + 1
        if self.tokens + cost <= self._room:
            self.words[line] = text
            self.tokens += cost
            self.messages += [message.item_id for message in new]
            self._visible.update([message.item_id for message in new])
        elif memory is not None:
            self.left_out.add(memory)


def _select_later_messages(memory: Candidate, later: LaterMessages) -> list[RetrievedRow]:
    """Return the user's later words about a memory, without the messages that it was learned from."""
    if memory.kind not in DOUBTABLE:
        return []
    sources = [source.message_id for source in memory.provenance]
    return _select_own(memory.text, [row for row in later.get(memory.id.hex, ()) if row.item_id not in sources])


def _select_own(text: str, messages: Sequence[RetrievedRow]) -> list[RetrievedRow]:
    """Return the messages of which the user's own words have a word of a text: what was pasted says nothing of the user.

    A message with more own words than changes are read in is a text itself.
    """
    selected = []
    for row in messages:
        own_words = find_own_words(row.content)
        is_unmixed = len(own_words) == len(row.content)
        if own_words and len(own_words) <= MAX_CHARS and (is_unmixed or shares_words(text, [own_words])):
            selected.append(row)
    return selected


def _drop_questions(later: LaterMessages) -> LaterMessages:
    """Return the latest messages of each item, without bare questions and what bots say."""
    return {
        item: [
            row for row in messages if not is_bare_question(row.content) and (row.name is None or not is_bot(row.name))
        ][-MOST_QUOTED:]
        for item, messages in later.items()
    }


def is_bare_question(text: str) -> bool:
    """Return whether a message only asks something, as "Where do I live?", and states nothing, as "I moved, did I say so?"."""
    text = " ".join(text.split()).rstrip()
    reading = read(text)
    if reading.whole or reading.only:
        return True
    if not text.endswith(_QUESTION_MARKS) or _CLAUSE_END.search(text[:-1]):
        return False
    return not _QUESTION_WORDS.isdisjoint(_WORD.findall(text.lower())[:2]) or _QUESTION_SIGNS.search(text) is not None


def _leave_out(packed: Packed, memories: Collection[UUID]) -> Packed:
    removed = [item for item in packed.chosen if item.candidate.id in memories]
    if not removed:
        return packed
    chosen = tuple(item for item in packed.chosen if item.candidate.id not in memories)
    dropped = (*packed.dropped, *(Verdict(item, Reason.OVER_BUDGET) for item in removed))
    return Packed(chosen, dropped, packed.tokens if chosen else 0)


def _quote(message: RetrievedRow) -> str:
    day = message.created_at.astimezone(UTC).date().isoformat()
    text = neutralise(find_own_words(message.content))
    if len(text) > QUOTE_CHARS:
        text = text[:QUOTE_CHARS].rpartition(" ")[0] + " …"
    return f" (later said, {day}: “{text}”)"
