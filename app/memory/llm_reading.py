"""The helper LLM's reading of a user's messages: the request, the answer, and the changes of memories in force. Pure.

The LLM decides little by itself. A statement needs a quotation of the user's own words (`app/features/helper.py`). A memory is
closed only where those words share a telling word with it; else it is in doubt until the user has spoken.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from msgspec import Struct

from app.languages import function_word
from app.memory.candidate import EXPLICIT_IMPORTANCE, MemoryCandidate, SourceExchange
from app.memory.drafts import known_item, logged_side
from app.memory.text import NO_TOPIC
from app.store.kinds import LEARNED
from app.store.learning import (
    Changes,
    Contradiction,
    DoubtedMemory,
    HistoryEvent,
    KnownMemory,
    RuleChange,
    SourceMessage,
    Superseded,
)

MAX_RELATED = 40
"""Memories that the LLM sees beside the messages, some 1,000 tokens: the profile of most users is whole within it."""
LLM_TAG = "llm"
"""The tag of memories that the LLM stated."""
ROUNDING = 0.001
"""An importance is stored as a `real`, which holds no 0.9."""
_STEM = 4
"""Letters by which "vegetarian" and "vegetarians", "lives" and "living" are one word."""
_MIN_WORD = 3
"""Letters of the shortest word that tells something: "dog", "dev"."""
_WORD = re.compile(r"[^\W\d_]+|\d+")
_SPELT_NAME = re.compile(
    r"(?<![^\W_])(?:[^\W\d_]+(?:[.-][^\W\d_]+)+|[^\W_]+[+#]+|[^\W\d_]*[a-z][A-Z][^\W_]*|[A-Z]{1,3})(?![^\W_+#])"
)
_HAN_RUN = re.compile(r"[\u3400-\u9fff]+")
_HAN_EMPTY = frozenset("我你您他她它们的了是在有和也很就把被吗呢吧")


class ReadingRequest(Struct, frozen=True):
    """Exchanges of one user for one call, oldest first, and the memories in force that belong to them.

    Attributes:
        exchanges: The user's messages with their answers.
        related: Memories in force.
        learned_here: Those of them that rules took from these very messages.
        rule_changes: Memories that rules ended or doubted because of these messages; none of them is among `related`.
        message_ids: The id of each exchange's message.
    """

    exchanges: tuple[SourceExchange, ...]
    related: tuple[KnownMemory, ...] = ()
    learned_here: frozenset[UUID] = frozenset()
    rule_changes: tuple[RuleChange, ...] = ()
    message_ids: tuple[UUID, ...] = ()


class ReadStatement(Struct, frozen=True):
    """A statement that holds. `exchange`: its place in the request. `replaces`: the memory that is no longer so because of it;
    `over`: nothing else is so instead."""

    exchange: int
    candidate: MemoryCandidate
    replaces: UUID | None = None
    over: bool = False


class LlmReading(Struct, frozen=True):
    """The items of an answer that hold. `kept`: memories that the LLM calls right. `refused`: how many items did not hold.
    `changed`: memories that it says have changed or ended."""

    statements: tuple[ReadStatement, ...] = ()
    kept: frozenset[UUID] = frozenset()
    refused: int = 0
    changed: frozenset[UUID] = frozenset()


# --- words that tell something, in any language --------------------------------------------------------------------------


def telling_words(text: str) -> set[str]:
    """Return the stems of content words, the numbers, and of Chinese the pairs of characters that a text has."""
    folded = text.casefold().replace("’", "'")
    found: set[str] = set()
    for word in _WORD.findall(folded):
        if word.isdigit():
            found.add(word)
        elif len(word) >= _MIN_WORD and not _HAN_RUN.search(word) and word not in NO_TOPIC and not function_word(word):
            found.add(word[:_STEM])
    for run in _HAN_RUN.findall(folded):
        found.update(run[n : n + 2] for n in range(len(run) - 1) if not _HAN_EMPTY & set(run[n : n + 2]))
    return found


def _find_names(text: str) -> set[str]:
    """Return the words of a text that only their spelling makes names: with signs or capitals inside ("Next.js", "C++"), or
    short ones in capitals ("R", "UX")."""
    return {
        re.sub(r"[.-]", "", word).casefold()
        for word in _SPELT_NAME.findall(text)
        if not function_word(word.casefold()) and word.casefold() not in NO_TOPIC
    }


def share_content(first: str, second: str) -> bool:
    """Return whether two texts share a telling word; "dev" and "developer" are one."""
    ours, theirs = telling_words(first), telling_words(second)
    if ours & theirs or _find_names(first) & _find_names(second):
        return True
    return any(
        first.startswith(second) or second.startswith(first)
        for first in ours
        for second in theirs
        if min(len(first), len(second)) == _MIN_WORD and first.isalpha() and second.isalpha()
    )


def select_related(
    memories: Sequence[KnownMemory], texts: Sequence[str], near: Mapping[UUID, float], read: Collection[UUID]
) -> ReadingRequest:
    """Choose the memories to show with messages, at most `MAX_RELATED`: first what was learned from them, then what is about
    the same.

    Args:
        memories: in force.
        texts: the messages.
        near: cosines to the messages, of those that have one worth naming.
        read: ids of the messages.

    Returns: a request without its exchanges.
    """
    here = {memory.memory_id for memory in memories if is_learned_here(memory, read)}
    words = {memory.memory_id: telling_words(memory.content_text) for memory in memories}
    spread = Counter(word for telling in words.values() for word in telling)
    message_words = set[str]().union(*(telling_words(text) for text in texts))

    def rank(memory: KnownMemory) -> tuple[bool, float, float]:
        shared = sum(1 / spread[word] for word in words[memory.memory_id] & message_words)  # a rare word tells more
        return memory.memory_id in here, shared + near.get(memory.memory_id, 0.0), memory.stated_at.timestamp()

    chosen = sorted(memories, key=rank, reverse=True)[:MAX_RELATED]
    return ReadingRequest((), tuple(chosen), frozenset(here & {memory.memory_id for memory in chosen}))


def is_learned_here(memory: KnownMemory, read: Collection[UUID]) -> bool:
    """Return whether rules learned a memory from these messages alone, and nobody has vouched for it since: the user neither
    asked that it be remembered, nor confirmed it, nor did a row of the business."""
    return (
        memory.kind in LEARNED
        and memory.kind != "tool_outcome"
        and LLM_TAG not in memory.tags
        and memory.importance < EXPLICIT_IMPORTANCE - ROUNDING
        and memory.reinforcement_count == 0
        and memory.validated_by != "domain"
        and bool(memory.source_message_ids)
        and set(memory.source_message_ids) <= set(read)
    )


# --- what follows ---------------------------------------------------------------------------------------------------------


class Replacement(Struct, frozen=True):
    """A memory that the LLM calls no longer so: by which statement, said in `message`, kept as the memory `heir`."""

    memory: KnownMemory
    heir: UUID
    statement: ReadStatement
    message: SourceMessage
    session: UUID


def plan_replacements(
    replacements: Sequence[Replacement], logged: Collection[frozenset[UUID]], new_id: Callable[[], UUID]
) -> Changes:
    """Return what closes or doubts the replaced memories.

    A memory is closed if the quotation shares a telling word with it, and is in doubt otherwise. What was said later than
    the quotation, and what a row of the business confirmed, stays. `logged`: the memories of each conflict noticed before.
    """
    superseded: list[Superseded] = []
    events: list[HistoryEvent] = []
    conflicts: list[Contradiction] = []
    doubted: list[DoubtedMemory] = []
    ended: list[UUID] = []
    closed_ids: set[UUID] = set()
    for replacement in replacements:
        old, heir, candidate = replacement.memory, replacement.heir, replacement.statement.candidate
        said_at = replacement.message.created_at
        pair = {old.memory_id, heir}
        if (
            old.memory_id in closed_ids
            or old.memory_id == heir
            or old.stated_at > said_at
            or old.validated_by == "domain"
        ):
            continue
        if any(pair <= memories for memories in logged):
            continue
        closed_ids.add(old.memory_id)
        certain = share_content(candidate.quote, old.content_text)
        conflict = _build_conflict(replacement, new_id(), certain=certain)
        conflicts.append(conflict)
        if not certain:
            doubted.append(DoubtedMemory(old.memory_id, conflict.conflict_id, replacement.message.message_id))
            after: dict[str, Any] = {"status": "aging", "doubted_by": replacement.message.message_id}
            events.append(HistoryEvent(old.memory_id, "aging", {"status": "active"}, after))
            continue
        how = "corrected" if candidate.kind == "correction" else "conflict"
        superseded.append(Superseded(old.memory_id, heir, how, old.valid_to or max(said_at, old.valid_from)))
        after = {"status": "superseded", "superseded_by": heir}
        events.append(HistoryEvent(old.memory_id, "superseded", {"status": "active"}, after))
        if replacement.statement.over:
            ended.append(old.memory_id)
    return Changes(superseded=superseded, events=events, conflicts=conflicts, doubted=doubted, ended=ended)


def _build_conflict(replacement: Replacement, conflict: UUID, *, certain: bool) -> Contradiction:
    old, candidate = replacement.memory, replacement.statement.candidate
    later = {"memory_id": replacement.heir, "value": candidate.content, "stated_at": replacement.message.created_at}
    earlier = logged_side(known_item(old)) | {"value": old.content_text}
    data = {
        "conflict_type": "temporal",
        "subject": old.subject_entity_id,
        "memories": [later, earlier],
        "judged_by": "helper",
        "reason": candidate.quote[:MAX_REASON_CHARS],
    }
    outcome = None
    if certain:
        outcome = {"action": "close_earlier", "later": replacement.heir, "earlier": old.memory_id}
        outcome["valid_to"] = replacement.message.created_at
    return Contradiction(
        conflict,
        replacement.message.message_id,
        "temporal",
        data,
        "both" if certain else "ask_user",
        outcome,
        [replacement.heir, old.memory_id],
        replacement.session,
        old.subject_entity_id if ":" in (old.subject_entity_id or "") else None,
    )


MAX_REASON_CHARS = 200
"""Characters of the quotation that a conflict shows as its reason."""
