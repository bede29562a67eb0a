"""What paging speaks of (seed 002 §1): semantic objects at five fidelities, how they relate, and what became of them.
Values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from uuid import UUID

Counter = Callable[[str], int]
"""Tokens of a text, as the session's model counts them."""


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


@dataclass(frozen=True, slots=True)
class Part:
    """`text[start:stop]` of the message with this mark (`segment.marks`) in the transcript."""

    mark: bytes
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Shrunk:
    """An object's text at L1 or L2. `losses`: what it dropped of the level above; `can_answer`: what it still tells."""

    text: str
    tokens: int
    losses: tuple[str, ...] = ()
    can_answer: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SemanticObject:
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
    parts: tuple[Part, ...]
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


@dataclass(frozen=True, slots=True)
class Relationship:
    """`source` references (was caused by, supersedes, depends on, is the parent of) `target` (seed 002 §1.3)."""

    source: UUID
    target: UUID
    relation: RelationType


@dataclass(frozen=True, slots=True)
class Transition:
    """A change of fidelity (seed 002 §1.5). `token_count`: tokens of the whole prompt before the changes of that turn."""

    object_id: UUID
    before: Fidelity
    after: Fidelity
    trigger: Trigger
    turn: int
    zone: Zone
    token_count: int


@dataclass(frozen=True, slots=True)
class Admission:
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
    content_preview: str = field(repr=False)
