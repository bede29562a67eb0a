"""What the compiler chooses among: memories and raw messages in one shape.

Retrieval fills these values; everything after it (score, pack, assemble, audit) is plain computation on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple, get_args
from uuid import UUID

from app.store.kinds import SUMMARIES
from app.store.user_profile import EndedFact

Channel = Literal["vector", "text", "entity", "time", "recent", "summary"]
"""What brings a candidate: two retrieval channels of seed 000 §6.4 phase 3, and those of seed 004 (sources 2 to 4)."""
CHANNELS: tuple[Channel, ...] = get_args(Channel)
"""As one number, several are the sum of 2^n."""
CHANNEL_SETS: tuple[frozenset[str], ...] = tuple(
    frozenset(name for bit, name in enumerate(CHANNELS) if number >> bit & 1) for number in range(2 ** len(CHANNELS))
)
"""By such a number the channels."""

LONG = 60.0
"""Tokens from which a message is long: it is shown as a passage (see `retrieve`), which may not be the one."""


class ItemSource(NamedTuple):
    """One message that an item comes from. `session` is the external id of its session."""

    session: str
    message_id: UUID
    turn_index: int | None
    metadata: Mapping[str, Any]


class Candidate(NamedTuple):
    """One item that could go into the prompt. A plain tuple, because a compile makes a hundred and more of them.

    `token_count` is the stored count of `text` (o200k), never counted again. `similarity` is a cosine in −1..1; None:
    that channel did not see the item. `tier` is 0–4 for a memory (seed 000 §5.1); a message has no tier: None. `session_name`
    is the external id of a message's session; `sources` are a memory's, as stored, and `origin` the only message that it comes
    from: None for a message, or for a memory with no source or several.

    `near_text`, `near_vector`: how well it and its neighbours answer, 1 the best of all that was looked at (`rank`); `named`: 1
    where the question names who said it; `timely`: 1 where it is of the time that the question speaks of. `reinforcements`: how
    often a memory was said again, `sure_since`: when it was last known to be right. `kind`
    passage: `text` is the characters `span` of a message of `whole_tokens`.
    """

    id: UUID
    source: Literal["memory", "message"]
    kind: str
    text: str
    role: str | None
    speaker: str | None
    session_id: UUID | None
    turn_index: int | None
    tier: int | None
    created_at: datetime
    last_accessed_at: datetime | None
    token_count: int
    confidence: float
    provenance_type: int
    importance: float
    access_count: int
    content_hash: bytes
    channels: frozenset[str]
    similarity: float | None
    entity_ids: Sequence[str] = ()
    origin: UUID | None = None
    session_name: str | None = None
    metadata: Mapping[str, Any] | None = None
    sources: Sequence[Mapping[str, Any]] | None = None
    near_text: float = 0.0
    near_vector: float = 0.0
    named: float = 0.0
    span: tuple[int, int] | None = None
    whole_tokens: int | None = None
    timely: float = 0.0
    reinforcements: int = 0
    sure_since: datetime | None = None
    odds: float | None = None
    """Log-odds that it carries what is asked for, as far as the ranking's columns tell (`worth`); None: nobody asked."""
    ended: Sequence[EndedFact] = ()
    """What it says that is so no more."""
    space: str | None = None
    """The shared space that it is of, by name; None: it is the user's own."""
    space_id: UUID | None = None

    @property
    def digest(self) -> bool:
        """Whether it sums up much."""
        return self.source == "memory" and self.kind in SUMMARIES

    @property
    def of_session(self) -> bool:
        """Whether it is the summary of a session."""
        return self.source == "memory" and self.kind == "summary" and self.session_id is not None

    @property
    def provenance(self) -> tuple[ItemSource, ...]:
        """The messages that it comes from; that of a message is the message itself."""
        if self.source == "message":
            session = self.session_name or str(self.session_id)  # as the client called it, else by its id
            return (ItemSource(session, self.id, self.turn_index, self.metadata or {}),)
        return tuple(
            ItemSource(
                each.get("session") or "", UUID(each["message_id"]), each.get("turn_index"), each.get("metadata") or {}
            )
            for each in self.sources or ()
            if each.get("message_id")
        )
