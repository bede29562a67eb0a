"""What paging speaks of (seed 002 §1): semantic objects at five fidelities, how they relate, and what became of them; what is
stored of a session's paging, as a request reads it, and what one call changes of it. Values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from msgspec import Struct, field

Counter = Callable[[str], int]
"""Tokens of a text, as the session's model counts them."""

WINDOW_TURNS = 10
"""Turns in which the questions about an object are counted."""
SEED_WEIGHTS = (0.7, 0.3)
"""Of likeness and words, in seed 002 §2.3."""
WEIGHTS = (0.3, 0.7)
"""Those that find more. With the packaged vectors, over a session of 160 results and 191 questions about them, the right object
is among the first three for all of them, with the seed's for 151; of the 94 questions of `loadtests.micro_faults` for all, with
either (docs/explanation/paging.md)."""
SATURATION = 1.2
"""k of the text score, x / (x + k): words that a content has once count for half."""


class ObjectType(StrEnum):
    """Seed 002 §1.2."""

    CONVERSATION_PHASE = "conversation_phase"
    DESIGN_DECISION = "design_decision"
    DEBUGGING_SESSION = "debugging_session"
    FILE_CONTEXT = "file_context"
    TOOL_RESULT = "tool_result"
    PLAN = "plan"
    ERROR_CONTEXT = "error_context"
    EXTERNAL_REFERENCE = "external_reference"


class Fidelity(IntEnum):
    """How much of an object is shown; a larger number is less (seed 002 §1.2)."""

    FULL = 0
    DETAILED = 1
    COMPACT = 2
    STUB = 3
    EVICTED = 4


class RelationType(StrEnum):
    """Seed 002 §1.3."""

    PARENT_OF = "parent_of"
    CAUSED_BY = "caused_by"
    REFERENCES = "references"
    SUPERSEDES = "supersedes"
    DEPENDS_ON = "depends_on"


class Trigger(StrEnum):
    """Why a fidelity changed (seed 002 §1.5)."""

    PRESSURE = "pressure"
    ACCESS = "access"
    FAULT = "fault"
    COOPERATIVE = "cooperative"
    GOAL_CHANGE = "goal_change"


class FaultType(StrEnum):
    """Seed 002 §1.4."""

    FULL_RESTORE = "full_restore"
    MICRO_FAULT = "micro_fault"
    ENTROPY_TRIGGERED = "entropy_triggered"


class Zone(StrEnum):
    """How full the prompt is (seed 002 §1.5); `pressure` has the borders."""

    NORMAL = "normal"
    CAUTION = "caution"
    WARNING = "warning"
    CRITICAL = "critical"
    EMERGENCY = "emergency"


class ContentKind(StrEnum):
    """What a content is made of: how it can be shortened."""

    CODE = "code"
    LOG = "log"
    JSON = "json"
    TABLE = "table"
    DIFF = "diff"
    LISTING = "listing"
    PROSE = "prose"


class ObjectSpan(Struct, frozen=True):
    """`text[start:stop]` of the message with this mark (`mark_of`) in the transcript."""

    mark: bytes
    start: int
    stop: int


class Shrunk(Struct, frozen=True):
    """An object's text at L1 or L2. `losses`: what it dropped of the level above; `can_answer`: what it still tells."""

    text: str
    tokens: int
    losses: tuple[str, ...] = ()
    can_answer: tuple[str, ...] = ()


class SemanticObject(Struct, frozen=True):
    """A row of `semantic_objects` (seed 002 §1.2). Turns count the requests of a session: the assistant's messages before it.

    `content`: L0, empty where the caller had no need to load it; of a phase each text is preceded by its speaker.
    `parts`: where it stands in the transcript, in order. `content_hash`: 16 bytes of BLAKE2b over the content, for the
    fault history. `detailed`, `compact`: L1 and L2, None until they were made. `tags`: the family of tools, the kind,
    the language. `last_accessed`: the turn.
    """

    id: UUID
    object_type: ObjectType
    kind: ContentKind
    content: str
    stub: str
    tokens_l0: int
    tokens_l3: int
    parts: tuple[ObjectSpan, ...]
    content_hash: bytes
    source_turn_start: int
    source_turn_end: int
    source_tool: str | None = None
    source_key: str | None = None
    detailed: Shrunk | None = None
    compact: Shrunk | None = None
    fault_when: tuple[str, ...] = ()
    key_entities: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    fidelity: Fidelity = Fidelity.FULL
    pinned: bool = False
    pin_reason: str | None = None
    last_accessed: int = 0
    access_count: int = 0
    fault_count: int = 0
    micro_fault_count: int = 0

    def has(self, level: Fidelity) -> bool:
        """Whether it can be shown at this level: L1 and L2 only once they were made."""
        if level == Fidelity.DETAILED:
            return self.detailed is not None
        if level == Fidelity.COMPACT:
            return self.compact is not None
        return True

    def tokens_at(self, level: Fidelity) -> int:
        """Tokens of its text at a level; 0 for one that was not made, as in the seed's query (§2.4)."""
        if level == Fidelity.FULL:
            return self.tokens_l0
        if level == Fidelity.DETAILED:
            return self.detailed.tokens if self.detailed else 0
        if level == Fidelity.COMPACT:
            return self.compact.tokens if self.compact else 0
        return self.tokens_l3 if level == Fidelity.STUB else 0

    def text_at(self, level: Fidelity) -> str:
        """Its text at a level; empty for one that was not made, and when evicted."""
        if level == Fidelity.FULL:
            return self.content
        if level == Fidelity.DETAILED:
            return self.detailed.text if self.detailed else ""
        if level == Fidelity.COMPACT:
            return self.compact.text if self.compact else ""
        return self.stub if level == Fidelity.STUB else ""


class Relationship(Struct, frozen=True):
    """`source` references (was caused by, supersedes, depends on, is the parent of) `target` (seed 002 §1.3)."""

    source: UUID
    target: UUID
    relation: RelationType


class Transition(Struct, frozen=True):
    """A change of fidelity (seed 002 §1.5). `token_count`: tokens of the whole prompt before the changes of that turn."""

    object_id: UUID
    before: Fidelity
    after: Fidelity
    trigger: Trigger
    turn: int
    zone: Zone
    token_count: int


class ObjectAdmission(Struct, frozen=True):
    """A decision on whether a content becomes an object (seed 002 §1.6). Scores are 0 to 1; `object_id` is None when
    rejected."""

    object_id: UUID | None
    admitted: bool
    total: float
    type: float
    novelty: float
    utility: float
    recency: float
    threshold: float
    content_preview: str


class FaultRecord(NamedTuple):
    """A micro-fault on one object."""

    turn: int
    question: str


NO_QUESTIONS: Mapping[UUID, tuple[FaultRecord, ...]] = MappingProxyType({})
NO_EXCHANGES: Mapping[bytes, Mapping[str, Any]] = MappingProxyType({})


class Paged(Struct, frozen=True):
    """The paging of a session, as stored.

    `objects`: in the order in which they were made, without their contents; of L1 and L2 the text is there only where it is
    what is shown now (`current_fidelity`), else it is empty (seed 002 §2.1). `marks`: of all messages that were segmented.
    `restored`: objects that the model asked back since the last decision; `raised`: that its questions are to raise;
    `released`: that somebody said are needed no more. `asked`: the questions of the last turns about each object. `hidden`:
    exchanges of the ledger, by the chain hash of the answer that they belong to, of those that were asked for. `offered`: a
    request of this session had the phantom tools.
    """

    zone: Zone = Zone.NORMAL
    offered: bool = False
    marks: frozenset[bytes] = frozenset()
    objects: tuple[SemanticObject, ...] = ()
    relationships: tuple[Relationship, ...] = ()
    restored: frozenset[UUID] = frozenset()
    raised: frozenset[UUID] = frozenset()
    released: frozenset[UUID] = frozenset()
    asked: Mapping[UUID, tuple[FaultRecord, ...]] = field(default_factory=lambda: NO_QUESTIONS)
    hidden: Mapping[bytes, Mapping[str, Any]] = field(default_factory=lambda: NO_EXCHANGES)


NOTHING_PAGED = Paged()


class Fault(Struct, frozen=True):
    """A question that the model asked, or an object that it wanted back (seed 002 §1.4).

    `object_id`: the best object; None where nothing answered. `avoided_tokens`: what the content would have cost beside the
    answer. `latency_ms`: to handle it. `pin`: it pins the object; `raises`: it is to be shown a level better from the next turn
    on.
    """

    fault_id: UUID
    fault_type: FaultType
    turn: int
    created_at: datetime
    object_id: UUID | None = None
    content_hash: bytes | None = None
    question: str | None = None
    answer: str | None = None
    answer_tokens: int = 0
    avoided_tokens: int = 0
    latency_ms: int = 0
    pin: bool = False
    raises: bool = False


class PagingRecord(Struct, frozen=True):
    """What one call changes of a session's paging; written in the transaction of its turn, once.

    `tokens`: of the prompt as the client wrote it, with memory; `shown_tokens`: as it was sent (what paging saved is the
    difference). `objects`: new ones, with their contents. `uses`: objects that the last messages name. `heard`: objects whose
    restoration or raise is part of this decision. `hidden`: exchanges for the ledger, by the chain hash of their answer; one
    that is there already is replaced. `marks`: new ones. `decided`: it is a request's decision; else only what was found out
    beside one (segmented late, asked through the API, asked of a body that was sent once more), and how full the session is
    stays as it was.
    """

    session_id: UUID
    turn: int
    zone: Zone
    budget: int
    tokens: int
    shown_tokens: int
    offered: bool = False
    marks: frozenset[bytes] = frozenset()
    objects: tuple[SemanticObject, ...] = ()
    relationships: tuple[Relationship, ...] = ()
    admissions: tuple[ObjectAdmission, ...] = ()
    transitions: tuple[Transition, ...] = ()
    pinned: frozenset[UUID] = frozenset()
    uses: frozenset[UUID] = frozenset()
    heard: frozenset[UUID] = frozenset()
    faults: tuple[Fault, ...] = ()
    hidden: Mapping[bytes, Mapping[str, Any]] = field(default_factory=lambda: NO_EXCHANGES)
    decided: bool = True

    @property
    def avoided_tokens(self) -> int:
        """Tokens that were not sent upstream: what was shown shorter, and what was answered rather than restored."""
        shown_shorter = max(0, self.tokens - self.shown_tokens) if self.decided else 0
        return shown_shorter + sum(each.avoided_tokens for each in self.faults)


class Levels(Struct, frozen=True):
    """L1 and L2 of an object, as a job made them. `compact` is None where it would not be shorter."""

    object_id: UUID
    detailed: Shrunk | None
    compact: Shrunk | None
    fault_when: tuple[str, ...] = ()
