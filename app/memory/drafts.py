"""Statements made ready to be kept: normalised, hashed, counted, and placed in their tier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from uuid import UUID

from msgspec import Struct

from app.memory.candidate import Candidate, Provenance
from app.memory.ingest_claims import base_confidence
from app.memory.text import Gist, Rank, content_hash, gist, normalise, rank
from app.store.learning import SourceMessage
from app.store.records import Vector

SESSION, EPISODIC, SEMANTIC, PROCEDURAL = 1, 2, 3, 4
"""`memory_tier` of seed 000 §5.1; L0 is not a row."""

L1_CONFIDENCE = 0.5
"""The most that is believed of what nobody confirmed (seed 000 §5.4, step 3)."""

_OWN_WORDS = frozenset(
    {Provenance.USER_STATED, Provenance.CORRECTION, Provenance.PREFERENCE, Provenance.FACT, Provenance.INSTRUCTION}
)


class Place(Struct, frozen=True):
    """Where a statement was said. `name`: what the client calls the session. `confined`: nobody's session, of which no
    memory leaves it."""

    session_id: UUID
    name: str
    confined: bool = False


class Draft(Struct, frozen=True):
    """A candidate made ready: its normalised text, the hash and the o200k tokens of that, and where it comes from.
    `vector` has length 1; None: there is none."""

    candidate: Candidate
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

    @property
    def confidence(self) -> float:
        """How far it is believed, said once."""
        return base_confidence(self.candidate) if self.stated else min(self.candidate.confidence, L1_CONFIDENCE)

    @property
    def tier(self) -> int:
        """Where it begins. What is concluded, and what a tool gave, stays in the session (L1). Of what the user said,
        preferences and instructions are procedural (L4), facts semantic (L3), and what happens on a day episodic (L2),
        unless the user asked that it be remembered (seed 000 §5.1: a direct statement goes to L3)."""
        kind, explicit = self.candidate.kind, self.candidate.explicit
        if not self.stated or (kind == "tool_outcome" and not explicit):
            return SESSION
        if kind in ("preference", "instruction"):
            return PROCEDURAL
        return EPISODIC if kind == "event" and not explicit else SEMANTIC


def make_drafts(
    found: Sequence[tuple[Candidate, SourceMessage]],
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
