"""Compares what today's learning finds in a user's history with what is stored, and plans what is to change (`mneme relearn`).

found again ─> keeps its id, uses and confidence; gets the words and the end that today's learning gives it
found newly ─> added, unless somebody denied or ended it, or it would have expired by now
not found   ─> retired, if every message that said it was read again and nobody has confirmed it
Plain computation over plain values.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from msgspec import Struct, field

from app.memory.candidate import Triple
from app.memory.claims import TripleRelation, relation
from app.memory.compare import may_be_one
from app.memory.drafts import like
from app.memory.text import gist

IN_FORCE = ("active", "aging")
MERGED = "merged"


class ReviewedMemory(Struct, frozen=True):
    """A memory that is stored, or that today's learning makes. `is_fixed`: learning again leaves it as it is. `columns`: the
    whole row, as JSON."""

    memory_id: UUID
    content_text: str
    content_hash: bytes
    kind: str
    status: str
    superseded_by: UUID | None
    superseded_how: str | None
    subject: str | None
    predicate: str | None
    value: str | None
    source_message_ids: list[UUID]
    stated_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    columns: dict[str, Any]
    is_fixed: bool

    @property
    def is_active(self) -> bool:
        """Return whether the memory is in force."""
        return self.status in IN_FORCE

    @property
    def is_variant(self) -> bool:
        """Return whether the memory is only another wording of one."""
        return self.superseded_how == MERGED

    @property
    def triple(self) -> Triple | None:
        """The memory's subject, predicate and value, or None."""
        return Triple(self.subject, self.predicate, self.value or "") if self.subject and self.predicate else None


class Settlement(NamedTuple):
    """The new state of a memory that is stored."""

    memory: ReviewedMemory
    status: str
    superseded_by: UUID | None
    superseded_how: str | None
    valid_to: str | None
    details: dict[str, Any]


class Rewording(NamedTuple):
    """A stored memory, and the one of today's learning that says the same in other words."""

    stored: ReviewedMemory
    found: ReviewedMemory


class RelearnPlan(Struct):
    """All that changes among the memories of one user. `unchanged`: how many memories today's learning finds as they are.
    `id_by_found`: for a memory of today's learning the id under which it is stored."""

    added: list[ReviewedMemory] = field(default_factory=list)
    reworded: list[Rewording] = field(default_factory=list)
    settled: list[Settlement] = field(default_factory=list)
    retired: list[ReviewedMemory] = field(default_factory=list)
    unchanged: int = 0
    id_by_found: dict[UUID, UUID] = field(default_factory=dict)

    def settle_as(self, memory: ReviewedMemory, found: ReviewedMemory) -> Settlement:
        """Return the state that today's learning gives to a memory."""
        heir = None if found.superseded_by is None else self.id_by_found.get(found.superseded_by)
        details = found.columns["details"] if found.status == "aging" else {}
        return Settlement(memory, found.status, heir, found.superseded_how, found.columns["valid_to"], details)


def is_same_statement(
    stored: ReviewedMemory, found: ReviewedMemory, near: Collection[tuple[UUID, UUID]] = frozenset()
) -> bool:
    """Return whether two memories are readings of the same statement. `near`: (found, stored) ids with near vectors."""
    if stored.content_hash == found.content_hash:
        return True
    if not like(stored.kind, found.kind):
        return False
    if _share_quotation(stored, found):
        (old_denies, old_words), (new_denies, new_words) = gist(stored.content_text), gist(found.content_text)
        if old_denies == new_denies and (old_words <= new_words or new_words <= old_words):
            return True
    related = relation(stored.triple, found.triple)
    if related is not TripleRelation.NONE:
        return related is TripleRelation.SAME
    return (found.memory_id, stored.memory_id) in near and may_be_one(stored.content_text, found.content_text)


def _share_quotation(stored: ReviewedMemory, found: ReviewedMemory) -> bool:
    """Return whether both memories were read in the same words of the same message."""
    quotes = {source["message_id"]: source.get("quote") or "" for source in stored.columns["sources"]}
    pairs = [(quotes.get(source["message_id"], ""), source["quote"]) for source in found.columns["sources"]]
    return any(old and (old in new or new in old) for old, new in pairs)


class _Lookup:
    """Memories by what readings of the same statement may share: the text, a message, a subject and predicate, near vectors."""

    def __init__(self, memories: Iterable[ReviewedMemory], near: Collection[tuple[UUID, UUID]]) -> None:
        self._near = near
        self._by_key: dict[object, list[ReviewedMemory]] = defaultdict(list)
        for memory in memories:
            for key in (*_list_keys(memory), *(found for found, stored in near if stored == memory.memory_id)):
                self._by_key[key].append(memory)

    def find_same(self, found: ReviewedMemory) -> list[ReviewedMemory]:
        """Return the memories that are readings of the same statement, each once."""
        candidates = {
            memory.memory_id: memory
            for key in (*_list_keys(found), found.memory_id)
            for memory in self._by_key.get(key, ())
        }
        return [memory for memory in candidates.values() if is_same_statement(memory, found, self._near)]


def _list_keys(memory: ReviewedMemory) -> list[object]:
    claims = [(memory.subject, memory.predicate)] if memory.triple is not None else []
    return [memory.content_hash, *(("message", message) for message in memory.source_message_ids), *claims]


def plan_relearning(
    stored: Sequence[ReviewedMemory],
    found: Sequence[ReviewedMemory],
    read: Collection[UUID],
    near: Collection[tuple[UUID, UUID]],
    now: datetime,
) -> RelearnPlan:
    """Return what is to change among a user's memories.

    Args:
        stored: The user's memories, in force or not.
        found: The memories that today's learning has made of the history.
        read: The messages that today's learning has read.
        near: (found, stored) ids of memories whose vectors are near each other.
        now: The time; what has expired by then is not added.
    """
    plan, stored_by_id = RelearnPlan(), {memory.memory_id: memory for memory in stored}
    found = sorted(found, key=lambda memory: (memory.stated_at, memory.content_text))
    found_by_id = {memory.memory_id: memory for memory in found}
    undecided = {memory.memory_id: memory for memory in stored if _is_open(memory, read)}
    pairs: dict[UUID, ReviewedMemory] = {}

    def pair(memory: ReviewedMemory, old: ReviewedMemory) -> None:
        pairs[memory.memory_id] = old
        plan.id_by_found[memory.memory_id] = old.memory_id
        undecided.pop(old.memory_id, None)

    open_by_hash: dict[bytes, ReviewedMemory] = {}
    for memory in sorted(stored, key=lambda memory: not memory.is_active):
        root = _find_root(memory, stored_by_id)
        if root.memory_id in undecided:
            open_by_hash.setdefault(memory.content_hash, root)
    settled_hashes = {
        memory.content_hash for memory in stored if memory.is_active and memory.memory_id not in undecided
    }
    for memory in sorted(found, key=lambda memory: (memory.is_variant, not memory.is_active)):
        old, main = open_by_hash.get(memory.content_hash), _find_root(memory, found_by_id)
        is_free = main.memory_id not in pairs and main.content_hash not in settled_hashes
        if old is not None and old.memory_id in undecided and is_free:
            pair(main, old)
    fixed = _Lookup((memory for memory in stored if memory.is_fixed or _is_kept(memory, read)), near)
    open_memories = _Lookup(undecided.values(), near)
    closed = {memory.content_hash: memory for memory in stored if not memory.is_active and not memory.is_fixed}
    hashes = {memory.content_hash for memory in stored}
    for memory in found:
        if memory.memory_id in pairs or memory.is_variant:
            continue
        if any(old.is_active or memory.stated_at <= old.updated_at for old in fixed.find_same(memory)):
            continue
        old = next((old for old in open_memories.find_same(memory) if old.memory_id in undecided), None)
        if old is None and memory.is_active and not closed.get(memory.content_hash, memory).is_variant:
            old = closed.get(memory.content_hash)
        if old is not None:
            pair(memory, old)
        elif memory.is_active or memory.content_hash not in hashes:
            _plan_addition(plan, memory, now)
            hashes.add(memory.content_hash)
    for memory in found:
        has_stored_root = _find_root(memory, found_by_id).memory_id in plan.id_by_found
        if (
            memory.is_variant
            and has_stored_root
            and memory.memory_id not in pairs
            and memory.content_hash not in hashes
        ):
            _plan_addition(plan, memory, now)
            hashes.add(memory.content_hash)
    _decide_stored(plan, pairs, found_by_id, undecided.values(), near)
    return plan


def _is_open(memory: ReviewedMemory, read: Collection[UUID]) -> bool:
    return memory.is_active and not memory.is_fixed and not _is_kept(memory, read)


def _is_kept(memory: ReviewedMemory, read: Collection[UUID]) -> bool:
    """Return whether a memory in force stays because not every message that said it was read again."""
    return memory.is_active and not set(memory.source_message_ids) <= set(read)


def _find_root(memory: ReviewedMemory, memories: Mapping[UUID, ReviewedMemory]) -> ReviewedMemory:
    """Return the memory into which a wording was merged, or the memory itself."""
    for _ in range(len(memories)):
        heir = memory.superseded_by if memory.is_variant else None
        if heir is None or heir not in memories:
            break
        memory = memories[heir]
    return memory


def _plan_addition(plan: RelearnPlan, memory: ReviewedMemory, now: datetime) -> None:
    if memory.expires_at is None or memory.expires_at > now:
        plan.added.append(memory)
        plan.id_by_found[memory.memory_id] = memory.memory_id


def _decide_stored(
    plan: RelearnPlan,
    pairs: Mapping[UUID, ReviewedMemory],
    found: Mapping[UUID, ReviewedMemory],
    unfound: Iterable[ReviewedMemory],
    near: Collection[tuple[UUID, UUID]],
) -> None:
    """Plan the changes of stored memories, found again (`pairs`) or not (`unfound`)."""
    for found_id, old in pairs.items():
        memory = found[found_id]
        is_settled = old.is_active == memory.is_active and (memory.status, old.status) != ("aging", "active")
        is_worded = old.content_hash == memory.content_hash and (old.predicate or not memory.predicate)
        if not is_settled:
            plan.settled.append(plan.settle_as(old, memory))
        if memory.is_active and not is_worded:
            plan.reworded.append(Rewording(old, memory))
        plan.unchanged += bool(is_settled and (is_worded or not memory.is_active))
    for old in unfound:
        same = (
            memory
            for memory in found.values()
            if memory.is_active and memory.memory_id in plan.id_by_found and is_same_statement(old, memory, near)
        )
        heir = next(same, None)
        if heir is None:
            plan.retired.append(old)
        else:
            plan.settled.append(Settlement(old, "superseded", plan.id_by_found[heir.memory_id], MERGED, None, {}))
