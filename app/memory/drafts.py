"""Statements made ready to be kept: normalised, hashed, counted, and placed in their tier (`Draft`); and memories while a job's
statements are taken in, from the rows that are known to the rows that are written (`IngestItem`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from msgspec import Struct, field

from app.memory.candidate import MemoryCandidate, Provenance, Triple
from app.memory.claims import Trust, base_confidence, gained, predicate_type
from app.memory.text import Gist, Rank, content_hash, gist, normalise, rank
from app.store.kinds import BEHAVIOUR, DOUBTABLE, LEARNED
from app.store.learning import MAX_SOURCES, KnownMemory, Member, MemoryRow, Reinforcement, SourceMessage, Superseded
from app.store.records import Vector

SESSION, EPISODIC, SEMANTIC, PROCEDURAL = 1, 2, 3, 4
"""`memory_tier` of seed 000 §5.1; L0 is not a row."""

L1_CONFIDENCE = 0.5
"""The most that is believed of what nobody confirmed (seed 000 §5.4, step 3)."""

_OWN_WORDS = frozenset(
    {Provenance.USER_STATED, Provenance.CORRECTION, Provenance.PREFERENCE, Provenance.FACT, Provenance.INSTRUCTION}
)


class StatementPlace(Struct, frozen=True):
    """Where a statement was said. `name`: what the client calls the session. `confined`: nobody's session, of which no
    memory leaves it."""

    session_id: UUID
    name: str
    confined: bool = False


class Draft(Struct, frozen=True):
    """A candidate made ready: its normalised text, the hash and the o200k tokens of that, and where it comes from.
    `vector` has length 1; None: there is none."""

    candidate: MemoryCandidate
    message: SourceMessage
    text: str
    content_hash: bytes
    token_count: int
    rank: Rank
    gist: Gist
    vector: Vector | None = None

    @property
    def stated(self) -> bool:
        """Whether the user said so, rather than that it was concluded."""
        return self.candidate.explicit or self.candidate.provenance_type in _OWN_WORDS

    @property
    def guess(self) -> bool:
        """Whether nobody vouches for what is said in it."""
        return not self.stated and self.candidate.provenance_type == Provenance.SYSTEM_INFERRED

    @property
    def corrects(self) -> bool:
        """Whether it sets right what was said before."""
        return self.candidate.kind == "correction" or self.candidate.provenance_type == Provenance.CORRECTION

    @property
    def stated_at(self) -> datetime:
        """When it was said."""
        return self.message.created_at

    @property
    def valid_from(self) -> datetime:
        """Since when it is so, as far as anybody said: what was so until May was so then at the latest."""
        said = self.candidate.since or self.message.created_at
        return said if self.candidate.until is None else min(said, self.candidate.until)

    def believed(self, trust: Trust) -> float:
        """How far, said once."""
        return base_confidence(self.candidate, trust) if self.stated else min(self.candidate.confidence, L1_CONFIDENCE)

    @property
    def tier(self) -> int:
        """Where it begins. What is concluded, and what a tool gave, stays in the session (L1). Of what the user said,
        preferences and instructions are procedural (L4), facts semantic (L3), and what happens on a day episodic (L2),
        unless the user asked that it be remembered (seed 000 §5.1: a direct statement goes to L3)."""
        kind, explicit = self.candidate.kind, self.candidate.explicit
        if not self.stated or (kind == "tool_outcome" and not explicit):
            return SESSION
        if kind in BEHAVIOUR:
            return PROCEDURAL
        return EPISODIC if kind == "event" and not explicit else SEMANTIC


def make_drafts(
    found: Sequence[tuple[MemoryCandidate, SourceMessage]],
    count: Callable[[str], int],
    *,
    store_secrets: bool,
    refuses: Callable[[str], bool] = lambda _: False,
) -> list[Draft]:
    """Candidates in their stored form, in order; without those that say nothing, without secrets unless these are wanted, and
    without those of which `refuses` says so: neither their words nor the user's are kept. `count`: tokens of o200k."""
    made = []
    for candidate, message in found:
        text = normalise(candidate.content)
        unwanted = (candidate.secret and not store_secrets) or refuses(text) or refuses(candidate.quote)
        if text and not unwanted:
            made.append(Draft(candidate, message, text, content_hash(text), count(text), rank(text), gist(text)))
    return made


# --- memories while a job takes statements in ----------------------------------------------------------------------------


_EVER = datetime(1, 1, 1, tzinfo=UTC)


class IngestItem(Struct):
    """A memory that is known, one that this job makes, or (with an heir) another wording of one, of which only what comparing
    needs is set. `times`, `added`: what this job's statements give to it. `confidence` is kept up to date."""

    id: UUID
    text: str
    rank: Rank
    gist: Gist
    content_hash: bytes
    kind: str
    triple: Triple | None
    tier: int = 0
    scope: int = 0
    session_id: UUID | None = None
    importance: float = 0.0
    confidence: float = 0.0
    provenance: int = Provenance.SYSTEM_INFERRED
    expires_at: datetime | None = None
    validated: bool = False
    valid_from: datetime = _EVER
    stated_at: datetime = _EVER
    sources: list[dict[str, Any]] = field(default_factory=list)
    source_message_ids: list[UUID] = field(default_factory=list)
    access_count: int = 0
    reinforcement_count: int = 0
    domain: bool = False
    valid_to: datetime | None = None  # up to when it is so, where it says that itself
    dated: bool = False  # it says itself since when it is so
    draft: Draft | None = None  # of a memory that this job makes
    times: int = 0
    added: list[dict[str, Any]] = field(default_factory=list)
    added_ids: list[UUID] = field(default_factory=list)
    heir: UUID | None = None
    how: str = ""
    speaker: str | None = None

    @property
    def confirmations(self) -> int:
        """How often it was confirmed, by this job too."""
        return self.reinforcement_count + self.times

    @property
    def guess(self) -> bool:
        """Whether it began as a guess, and nobody has vouched for it."""
        return self.provenance == Provenance.SYSTEM_INFERRED and self.kind in LEARNED and not self.validated

    @property
    def corrects(self) -> bool:
        """Whether it set something right."""
        return self.kind == "correction" or self.provenance == Provenance.CORRECTION


def like(one: str, other: str) -> bool:
    """May memories of these two kinds say the same? What was learned never merges with what was drawn together."""
    return one == other in LEARNED or {one, other} <= DOUBTABLE


def shown(item: IngestItem) -> dict[str, Any]:
    """What its history tells of it."""
    return {"text": item.text, "tier": item.tier, "kind": item.kind}


def logged_side(item: IngestItem) -> dict[str, Any]:
    """What the log of contradictions tells of one side."""
    return {
        "memory_id": item.id,
        "predicate": item.triple.predicate if item.triple else None,
        "value": item.triple.value if item.triple else None,
        "confidence": round(item.confidence, 4),
        "stated_at": item.stated_at,
    }


def _triple(subject: str | None, predicate: str | None, value: str | None) -> Triple | None:
    return Triple(subject, predicate, value or "") if subject and predicate else None


def known_item(known: KnownMemory) -> IngestItem:
    """A memory in force."""
    return IngestItem(
        id=known.memory_id,
        text=known.content_text,
        rank=rank(known.content_text),
        gist=gist(known.content_text),
        content_hash=known.content_hash,
        kind=known.kind,
        triple=_triple(known.subject_entity_id, known.predicate, known.object_value),
        tier=known.memory_tier,
        scope=known.memory_scope,
        session_id=known.session_id,
        importance=known.importance,
        confidence=known.confidence,
        provenance=known.provenance_type,
        expires_at=known.expires_at,
        validated=known.is_validated,
        valid_from=known.valid_from,
        stated_at=known.stated_at,
        sources=known.sources,
        source_message_ids=known.source_message_ids,
        access_count=known.access_count,
        reinforcement_count=known.reinforcement_count,
        domain=known.validated_by == "domain",
        valid_to=known.valid_to,
        dated=known.dated,
        speaker=known.speaker,
    )


def member_item(member: Member) -> IngestItem:
    """Another wording of a memory in force: only what comparing needs."""
    return IngestItem(
        id=member.memory_id,
        text=member.content_text,
        rank=rank(member.content_text),
        gist=gist(member.content_text),
        content_hash=member.content_hash,
        kind=member.kind,
        triple=_triple(member.subject_entity_id, member.predicate, member.object_value),
        valid_to=member.valid_to,
        heir=member.root,
        how="merged",
        speaker=member.speaker,
    )


def new_row(item: IngestItem, draft: Draft, gone: Superseded | None, trust: Trust) -> MemoryRow:
    """What is stored of a memory that this job makes. `gone`: it was replaced within the very same job."""
    candidate, triple = draft.candidate, item.triple
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
        confidence_factors=factors(item, trust),
        importance=item.importance,
        access_count=item.access_count + item.times,
        reinforcement_count=item.confirmations,
        created_at=draft.message.created_at,
        expires_at=item.expires_at,
        validated=item.validated,
        token_count=draft.token_count,
        valid_from=item.valid_from,
        stated_at=item.stated_at,
        vector=draft.vector,
        subject=triple.subject if triple else None,
        predicate=triple.predicate if triple else None,
        predicate_type=predicate_type(candidate.kind, triple.predicate) if triple else None,
        object=triple.value if triple else None,
        entity_ids=candidate.entity_ids,
        tags=candidate.tags,
        details=_details(candidate),
        superseded_by=gone.heir if gone else None,
        superseded_how=gone.how if gone else None,
        valid_to=gone.valid_to if gone else item.valid_to,
        speaker=candidate.speaker,
    )


def _details(candidate: MemoryCandidate) -> dict[str, Any] | None:
    told = {"when": candidate.when, "since": candidate.since}
    return {name: value for name, value in told.items() if value is not None} or None


def reinforcement(item: IngestItem, trust: Trust) -> Reinforcement:
    """What is written of a memory that was said again."""
    return Reinforcement(
        item.id,
        item.times,
        item.tier,
        item.scope,
        item.importance,
        item.confidence,
        factors(item, trust),
        item.expires_at,
        item.validated,
        item.valid_from,
        item.stated_at,
        item.added[:MAX_SOURCES],
        item.added_ids[:MAX_SOURCES],
    )


def factors(item: IngestItem, trust: Trust) -> dict[str, Any]:
    """Why it is believed as far as it is (seed 004, `confidence_factors`)."""
    boost = gained(item.confirmations, trust)
    return {
        "base_confidence": round(max(0.0, min(item.confidence, item.confidence - boost)), 4),
        "reinforcement_boost": round(boost, 4),
        "reinforcement_count": item.confirmations,
        "source_type": "correction" if item.corrects else "episodic",
        "final_confidence": round(item.confidence, 4),
    }
