"""Puts the user's later own words beside what a prompt tells of them, so that nothing is told as true that they have revised.

Learning closes what it understands to have ended. Whatever it misses is caught here: where a message that the user wrote later
shares the telling words of a memory (`app/index/later_mentions.py`), the memory's line quotes it, or the memory is left out.
Plain computation over plain values.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from app.context.assemble import neutralise
from app.context.candidates import Candidate
from app.context.notes import Count
from app.context.pack import Packed, Reason, Verdict
from app.memory.changes import has_sign
from app.store.kinds import DOUBTABLE
from app.store.user_profile import StandingFact


class LaterWordsShown(NamedTuple):
    """What stands behind lines. `words`: by the id of an item, or of a fact's note; `messages`: the quoted ones; `left_out`:
    memories for whose later words there is no room; `tokens`: what the words cost."""

    words: Mapping[UUID, str] = MappingProxyType({})
    messages: Sequence[UUID] = ()
    left_out: Collection[UUID] = frozenset()
    tokens: int = 0


NONE_SHOWN = LaterWordsShown()


def attach_later_words(
    packed: Packed,
    facts: Sequence[StandingFact],
    later: Mapping[UUID, Sequence[Candidate]],
    visible: Collection[UUID],
    room: int,
    count: Count,
) -> tuple[Packed, LaterWordsShown]:
    """Choose the later words behind each line, and leave out the memories for which there is no room.

    Args:
        packed: The items that were chosen.
        facts: The facts that are told beside them.
        later: By item, messages of the user's own that share its telling words, the latest last.
        visible: Items that the prompt shows already.
        room: Tokens that are left.
        count: Tokens of a text.
    """
    standing = {*visible, *(item.id for item in packed.candidates)}
    words: dict[UUID, str] = {}
    messages: list[UUID] = []
    left_out: set[UUID] = set()
    tokens = 0
    lines: list[tuple[UUID, UUID, Collection[UUID]]] = [
        (fact.note, fact.memory, fact.messages) for fact in facts if fact.memory is not None
    ]
    lines += [(item.id, item.id, _list_sources(item)) for item in packed.candidates if _may_have_ended(item)]
    for line, memory, sources in lines:
        own = [message for message in later.get(memory, ()) if message.id not in sources]
        new = [message for message in own if message.id not in standing]
        told = "".join(map(_quote, new))
        cost = count(told) + 1 if told else 0
        if tokens + cost > room:
            left_out.add(memory)
        elif told:
            words[line] = told
            tokens += cost
            standing.update(message.id for message in new)
            messages += [message.id for message in new]
    for item in packed.candidates:
        if item.source == "message" and item.role == "user" and item.span is None:
            new = [each for each in later.get(item.id, ()) if each.id not in standing and has_sign(each.text)]
            told = "".join(map(_quote, new))
            cost = count(told) + 1 if told else 0
            if told and tokens + cost <= room:
                words[item.id] = told
                tokens += cost
                standing.update(message.id for message in new)
                messages += [message.id for message in new]
    if not words and not left_out:
        return packed, NONE_SHOWN
    return _leave_out(packed, left_out), LaterWordsShown(words, messages, left_out, tokens)


def _leave_out(packed: Packed, memories: Collection[UUID]) -> Packed:
    gone = [each for each in packed.chosen if each.candidate.id in memories]
    if not gone:
        return packed
    left = tuple(each for each in packed.chosen if each.candidate.id not in memories)
    dropped = (*packed.dropped, *(Verdict(each, Reason.OVER_BUDGET) for each in gone))
    return Packed(left, dropped, packed.tokens if left else 0)


def _may_have_ended(item: Candidate) -> bool:
    return item.source == "memory" and item.kind in DOUBTABLE and item.space is None


def _list_sources(item: Candidate) -> Collection[UUID]:
    return [source.message_id for source in item.provenance]


def _quote(message: Candidate) -> str:
    day = message.created_at.astimezone(UTC).date().isoformat()
    return f" (later said, {day}: “{neutralise(message.text)}”)"
