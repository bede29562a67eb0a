"""What is stored of the paging of a session, as a request reads it, and what one call changes of it. Values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any
from uuid import UUID

from app.paging.entropy import Asked
from app.paging.values import Admission, FaultType, Relationship, SemanticObject, Shrunk, Transition, Zone

NO_QUESTIONS: Mapping[UUID, tuple[Asked, ...]] = MappingProxyType({})
NO_EXCHANGES: Mapping[bytes, Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Paged:
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
    asked: Mapping[UUID, tuple[Asked, ...]] = field(default_factory=lambda: NO_QUESTIONS)
    hidden: Mapping[bytes, Mapping[str, Any]] = field(default_factory=lambda: NO_EXCHANGES)


NOTHING_PAGED = Paged()


@dataclass(frozen=True, slots=True)
class Fault:
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


@dataclass(frozen=True, slots=True)
class PagingRecord:
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
    admissions: tuple[Admission, ...] = ()
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


@dataclass(frozen=True, slots=True)
class Levels:
    """L1 and L2 of an object, as a job made them. `compact` is None where it would not be shorter."""

    object_id: UUID
    detailed: Shrunk | None
    compact: Shrunk | None
    fault_when: tuple[str, ...] = ()
