"""Finds statements from old messages that repeat what was denied, or has ended, since. Plain computation over plain values.

"Not true" on the page, an answer "no", "forget that" or a later message of the user counts for all that was said until then,
whoever reads it again. What the user says after that is news: it was stated later.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from app.memory.candidate import Triple
from app.memory.claims import TripleRelation, relation
from app.memory.drafts import Draft
from app.memory.llm_reading import telling_words
from app.memory.text import normalise
from app.store.learning import DeniedMemory, Member

SAME_WORDS_SHARE = 0.5
"""The least share, 0 to 1, of two stretches of a message, or of the telling words of two statements, that is common to both
where they count as the same."""


def find_denied(
    statements: Sequence[Draft], denied: Sequence[DeniedMemory], members: Sequence[Member]
) -> frozenset[int]:
    """Return the places, from 0, of statements that say what was denied after they were stated.

    Args:
        statements: The statements that a job has found.
        denied: Memories that are true no more, with their other wordings.
        members: Wordings of memories in force; another statement of the same clause may be one of these.
    """
    if not denied:
        return frozenset()
    in_force = {member.content_hash for member in members}
    return frozenset(
        place
        for place, draft in enumerate(statements)
        for memory in denied
        if memory.denied_at >= draft.stated_at
        and (_says_same(draft, memory) or (draft.content_hash not in in_force and _has_same_source(draft, memory)))
    )


def _read_triple(memory: DeniedMemory) -> Triple | None:
    if memory.subject_entity_id is None or memory.predicate is None:
        return None
    return Triple(memory.subject_entity_id, memory.predicate, memory.object_value or "")


def _says_same(draft: Draft, memory: DeniedMemory) -> bool:
    if draft.content_hash == memory.content_hash:
        return True
    return relation(draft.candidate.triple, _read_triple(memory)) is TripleRelation.SAME


def _has_same_source(draft: Draft, memory: DeniedMemory) -> bool:
    """Return whether a statement comes from the words that the memory came from, and has no other value.

    One clause may say who somebody is and where they live.
    """
    stated, triple = draft.candidate.triple, _read_triple(memory)
    if stated is not None and triple is not None and not telling_words(stated.value) & telling_words(triple.value):
        return False
    return any(_has_same_words(draft, memory, source) for source in memory.sources)


def _has_same_words(draft: Draft, memory: DeniedMemory, source: Mapping[str, Any]) -> bool:
    """Return whether a statement comes from the words that a source quotes, in that message or in a copy of it."""
    quote = draft.candidate.quote
    if not quote or not source.get("quote"):
        return False
    if normalise(quote).casefold() == normalise(source["quote"]).casefold():
        return True
    if str(draft.message.message_id) != source.get("message_id") or not source.get("span"):
        return False
    (start, end), (first, last) = draft.candidate.span, source["span"]
    common = min(end, last) - max(start, first)
    if common <= 0:
        return False
    whole = max(end, last) - min(start, first)
    return common >= SAME_WORDS_SHARE * whole or _share_most(
        telling_words(draft.text), telling_words(memory.content_text)
    )


def _share_most(words: Collection[str], others: Collection[str]) -> bool:
    least = min(len(words), len(others))
    return least > 0 and len(set(words) & set(others)) >= SAME_WORDS_SHARE * least
