"""What becomes of a statement that was found: repeated, refined, corrected, or new (seed 000 §5.4 and §7.2).

    new statement ── same words (SHA-256) ─────────────────> reinforces what is known
          │          near (cosine > τ) and the same claim ──> says more: takes its place, which stays in the chain
          │                                                └> says no more: reinforces it
          └── nothing like it ──────────────────────────────> is kept: L1 for a day, or L2, L3, L4 where the user said so
    a correction, besides, takes the place of what the same subject and predicate said before.

Plain computation over plain values; the statements come in the order in which they were said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from app.memory.drafts import L1_CONFIDENCE, SEMANTIC, SESSION, Draft, Place
from app.memory.ingest_text import more_specific, same_claim
from app.store.learning import MAX_SOURCES, Changes, Event, KnownMemory, MemoryRow, Near, Reinforcement
from app.store.memory_rows import TTL

LOCAL, GLOBAL = 0, 1
"""`memory_scope` of seed 000 §2.2."""

REPEATED = 0.05
"""What saying it again adds to a memory's importance (seed 001 §4.3)."""


@dataclass(slots=True)
class _Item:
    """A memory while the job's statements are taken in: one that is known, or one that this job makes."""

    id: UUID
    text: str
    tier: int
    scope: int
    session_id: UUID | None
    kind: str
    importance: float
    confidence: float
    expires_at: datetime | None
    validated: bool
    access_count: int
    reinforcement_count: int
    claim: tuple[str, str] | None
    value: str | None
    sources: list[dict[str, Any]]
    source_message_ids: list[UUID]
    draft: Draft | None = None  # of a memory that this job makes
    times: int = 0
    added: list[dict[str, Any]] = field(default_factory=list)
    added_ids: list[UUID] = field(default_factory=list)
    heir: UUID | None = None


class Ingest:
    """Takes statements in, one after the other, and says at the end what is to be written."""

    def __init__(
        self,
        place: Place,
        known: Sequence[KnownMemory],
        near: Sequence[Near],
        *,
        threshold: float,
        now: datetime,
        l1_ttl: timedelta,
        new_id: Callable[[], UUID],
    ) -> None:
        """`near`: for each statement, by its place among them, the known memories near it. `threshold`: cosine above
        which two statements of this job are near each other."""
        self._place = place
        self._threshold = threshold
        self._now = now
        self._l1_ttl = l1_ttl
        self._new_id = new_id
        self._items: dict[UUID, _Item] = {}
        self._by_hash: dict[bytes, UUID] = {}
        self._events: list[Event] = []
        self._near: Mapping[int, list[Near]] = _by_place(near)
        for each in known:
            self._items[each.memory_id] = _known_item(each)
            self._by_hash[each.content_hash] = each.memory_id

    def take_all(self, statements: Sequence[Draft]) -> Changes:
        """What to write for all of them."""
        for n, draft in enumerate(statements):
            self._take(n, draft)
        items = self._items.values()
        return Changes(
            new=[_new_row(each, each.draft) for each in items if each.draft is not None],
            reinforced=[_reinforcement(each) for each in items if each.draft is None and each.times and not each.heir],
            superseded=[(each.id, each.heir) for each in items if each.draft is None and each.heir is not None],
            events=self._events,
        )

    def _take(self, n: int, draft: Draft) -> None:
        same = self._same(draft)
        twin = same or self._nearest(n, draft)
        if twin is None:
            kept = self._keep(draft)
            self._tell(kept, "created", None, _shown(kept))
        elif twin is not same and more_specific(draft.text, twin.text):
            kept = self._refine(draft, twin)
        else:
            kept = twin
            self._repeat(draft, twin)
        self._correct(draft, kept)

    def _same(self, draft: Draft) -> _Item | None:
        """The active memory of the very same words."""
        found = self._by_hash.get(draft.content_hash)
        return self._items[found] if found is not None and self._items[found].heir is None else None

    def _nearest(self, n: int, draft: Draft) -> _Item | None:
        """The nearest active memory that makes the same claim, known or of this job."""
        found = [(each.similarity, self._items[each.memory_id]) for each in self._near.get(n, ())]
        if draft.vector is not None:
            for item in self._items.values():
                if item.draft is not None and item.draft.vector is not None:
                    similarity = float(draft.vector @ item.draft.vector)
                    if similarity > self._threshold:
                        found.append((similarity, item))
        for _, item in sorted(found, key=lambda each: -each[0]):
            if item.heir is None and same_claim(draft.text, item.text) and not _contradicts(draft, item):
                return item
        return None

    def _keep(self, draft: Draft) -> _Item:
        candidate, message = draft.candidate, draft.message
        tier, triple = draft.tier, candidate.triple
        item = _Item(
            id=self._new_id(),
            text=draft.text,
            tier=tier,
            scope=self._scope(tier),
            session_id=self._place.session_id,
            kind=candidate.kind,
            importance=candidate.importance,
            confidence=candidate.confidence if draft.stated else min(candidate.confidence, L1_CONFIDENCE),
            expires_at=self._expiry(tier),
            validated=draft.stated,
            access_count=0,
            reinforcement_count=0,
            claim=draft.claim,
            value=triple.value if triple else None,
            sources=[self._source(draft)],
            source_message_ids=[message.message_id],
            draft=draft,
        )
        self._items[item.id] = item
        self._by_hash[draft.content_hash] = item.id
        return item

    def _refine(self, draft: Draft, old: _Item) -> _Item:
        """The more specific text wins and goes on with what the older one had gathered (seed 001 §4.3)."""
        item = self._keep(draft)
        item.tier = max(item.tier, old.tier)
        item.scope = max(item.scope, self._shared(old))
        item.expires_at = _later(item.expires_at, old.expires_at) if item.tier < SEMANTIC else None
        item.importance = min(1.0, max(item.importance, old.importance) + REPEATED)
        item.confidence = max(item.confidence, old.confidence)
        item.validated = item.validated or old.validated
        item.access_count = old.access_count + old.times + 1
        item.reinforcement_count = old.reinforcement_count + old.times + 1
        item.sources = (old.sources + old.added)[: MAX_SOURCES - 1] + item.sources
        item.source_message_ids = (old.source_message_ids + old.added_ids)[: MAX_SOURCES - 1] + item.source_message_ids
        self._tell(item, "merged", {"memory_id": old.id, "text": old.text}, _shown(item))
        self._supersede(old, item)
        return item

    def _repeat(self, draft: Draft, item: _Item) -> None:
        item.times += 1
        item.tier = max(item.tier, draft.tier)
        item.scope = max(self._shared(item), self._scope(draft.tier))
        item.expires_at = _later(item.expires_at, self._expiry(draft.tier)) if item.tier < SEMANTIC else None
        item.importance = min(1.0, max(item.importance, draft.candidate.importance) + REPEATED)
        item.confidence = max(item.confidence, draft.candidate.confidence if draft.stated else L1_CONFIDENCE)
        item.validated = item.validated or draft.stated
        item.added.append(self._source(draft))
        item.added_ids.append(draft.message.message_id)
        self._tell(item, "reinforced", None, {"message_id": draft.message.message_id})

    def _correct(self, draft: Draft, kept: _Item) -> None:
        """A correction ends what the same subject and predicate said before, if it was another value."""
        triple = draft.candidate.triple
        if triple is None or not draft.corrects:
            return
        for item in list(self._items.values()):
            other = item.id != kept.id and item.heir is None and item.claim == draft.claim
            if other and (item.value or "").casefold() != triple.value.casefold():
                self._supersede(item, kept)

    def _supersede(self, old: _Item, heir: _Item) -> None:
        old.heir = heir.id
        self._tell(old, "superseded", {"status": "active"}, {"status": "superseded", "superseded_by": heir.id})

    def _scope(self, tier: int) -> int:
        return LOCAL if tier == SESSION or self._place.confined else GLOBAL

    def _shared(self, item: _Item) -> int:
        """What is said in two sessions belongs to both: it is no longer the first one's alone."""
        elsewhere = item.session_id != self._place.session_id and not self._place.confined
        return GLOBAL if elsewhere else item.scope

    def _expiry(self, tier: int) -> datetime | None:
        """Seed 000 §5.1. Counted from when it was learned, not from when it was said: imports are old."""
        life = self._l1_ttl if tier == SESSION else TTL.get(tier)
        return self._now + life if life is not None else None

    def _source(self, draft: Draft) -> dict[str, Any]:
        message = draft.message
        return {
            "session": self._place.name,
            "session_id": self._place.session_id,
            "message_id": message.message_id,
            "turn_index": message.turn_index,
            "quote": draft.candidate.quote,
            "created_at": message.created_at,
            "metadata": message.metadata,
        }

    def _tell(self, item: _Item, event: str, before: dict[str, Any] | None, after: dict[str, Any] | None) -> None:
        self._events.append(Event(item.id, event, before, after))


def _by_place(near: Sequence[Near]) -> dict[int, list[Near]]:
    places: dict[int, list[Near]] = {}
    for each in near:
        places.setdefault(each.n, []).append(each)
    return places


def _contradicts(draft: Draft, item: _Item) -> bool:
    """The same subject and predicate with another value: two facts, however alike their words are. Of preferences there
    may be many."""
    triple = draft.candidate.triple
    if triple is None or item.value is None or item.claim != (triple.subject, triple.predicate):
        return False
    one, other = triple.value.casefold(), item.value.casefold()
    return draft.candidate.kind in ("fact", "correction") and one not in other and other not in one


def _later(one: datetime | None, other: datetime | None) -> datetime | None:
    """None is never."""
    return None if one is None or other is None else max(one, other)


def _shown(item: _Item) -> dict[str, Any]:
    return {"text": item.text, "tier": item.tier, "kind": item.kind}


def _known_item(known: KnownMemory) -> _Item:
    claim = (known.subject_entity_id, known.predicate) if known.subject_entity_id and known.predicate else None
    return _Item(
        id=known.memory_id,
        text=known.content_text,
        tier=known.memory_tier,
        scope=known.memory_scope,
        session_id=known.session_id,
        kind=known.kind,
        importance=known.importance,
        confidence=known.confidence,
        expires_at=known.expires_at,
        validated=known.is_validated,
        access_count=known.access_count,
        reinforcement_count=known.reinforcement_count,
        claim=claim,
        value=known.object_value,
        sources=known.sources,
        source_message_ids=known.source_message_ids,
    )


def _new_row(item: _Item, draft: Draft) -> MemoryRow:
    candidate = draft.candidate
    return MemoryRow(
        memory_id=item.id,
        session_id=item.session_id,
        tier=item.tier,
        scope=item.scope,
        kind=item.kind,
        text=item.text,
        content_hash=draft.content_hash,
        provenance_type=candidate.provenance_type,
        turn_id=draft.message.message_id,
        turn_index=draft.message.turn_index,
        source_message_ids=(item.source_message_ids + item.added_ids)[:MAX_SOURCES],
        sources=(item.sources + item.added)[:MAX_SOURCES],
        confidence=item.confidence,
        importance=item.importance,
        access_count=item.access_count + item.times,
        reinforcement_count=item.reinforcement_count + item.times,
        created_at=draft.message.created_at,
        expires_at=item.expires_at,
        validated=item.validated,
        token_count=draft.token_count,
        vector=draft.vector,
        subject=item.claim[0] if item.claim else None,
        predicate=item.claim[1] if item.claim else None,
        object=item.value,
        entity_ids=candidate.entity_ids,
        tags=candidate.tags,
        details={"when": candidate.when} if candidate.when else None,
        superseded_by=item.heir,
    )


def _reinforcement(item: _Item) -> Reinforcement:
    return Reinforcement(
        item.id,
        item.times,
        item.tier,
        item.scope,
        item.importance,
        item.confidence,
        item.expires_at,
        item.validated,
        item.added[:MAX_SOURCES],
        item.added_ids[:MAX_SOURCES],
    )
