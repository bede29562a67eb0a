"""Candidates for a prompt or a search, from the store in one round trip (seed 000 §6.4 phase 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from app.context.candidates import Candidate, Provenance
from app.providers.embeddings import Embedder
from app.store.turns import ROLE_NAMES, RetrievedRow, TurnStore


class Limits(NamedTuple):
    """How many candidates each leg may bring."""

    vectors: int
    texts: int
    frequent: int


PROMPT_LIMITS = Limits(vectors=50, texts=30, frequent=10)
"""For a prompt. Seed 000 §6.4 names 50, 20 and 20, for memories alone; raw turns, of which there are many more, share the
legs here. A block of 1,500 tokens holds some 40 items, and each further candidate costs 20 µs. Evidence recall in such a
block, chat / work: .770 / .592 with these, .773 / .590 with 80, 50 and 20, .773 / .599 with 120, 80 and 20."""
SEARCH_LIMITS = Limits(vectors=300, texts=300, frequent=20)
"""For a search: both legs find what the other misses up to some 300 each (measured on long conversations)."""

RAW_KINDS = frozenset({"turn", "message", "passage"})
"""The kinds of raw text; all others are kinds of memories."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose memory, and what of it is not wanted because it stands in the prompt already (see `agent_data.retrieve`)."""

    tenant_id: UUID
    user_id: UUID
    confine: UUID | None = None
    session: UUID | None = None
    visible_from: int = 1
    ancestors: Sequence[UUID] = ()
    history: bool = False


class Retriever:
    """Turns a question into candidates."""

    def __init__(self, store: TurnStore, embedder: Embedder) -> None:
        self._store = store
        self._embedder = embedder
        self._space: int | None = None

    async def candidates(
        self, query: str, scope: Scope, limits: Limits, *, only: int | None = None
    ) -> tuple[list[Candidate], dict[UUID, str]]:
        """Candidates, unscored, and the status of those that are not in force (only with `history`). `only`: raw messages
        (0) or memories (1).

        Raises StoreUnavailable, Unavailable (a remote embedder).
        """
        query = query.replace("\0", " ")  # Postgres takes none
        vector = None
        if self._embedder.dimensions and query:
            if self._space is None:
                self._space = await self._store.space_of(self._embedder.space)
            if self._space is not None:
                vector = (await self._embedder.embed([query]))[0]
        rows = await self._store.retrieve(
            scope.tenant_id,
            scope.user_id,
            query=query,
            vector=vector if vector is not None and vector.any() else None,
            space=self._space,
            confine=scope.confine,
            session=scope.session,
            visible=scope.visible_from,
            ancestors=scope.ancestors,
            history=scope.history,
            limits=limits,
            only=only,
        )
        found = [_candidate(row) for row in rows]
        return found, {row.item_id: row.status for row in rows if row.status not in ("active", "aging")}


_LEGS: tuple[frozenset[str], ...] = tuple(
    frozenset(name for bit, name in enumerate(("vector", "text", "frequent")) if number >> bit & 1)
    for number in range(8)
)
"""Which legs brought an item, by number: 1 vector, 2 text, 4 frequent."""
_PROVENANCE = {name: int(Provenance.of_role(name)) for name in (None, *ROLE_NAMES.values())}


def _candidate(row: RetrievedRow) -> Candidate:
    (
        item_id, item_kind, similarity, text_score, frequent, kind, content, role_number, name, session_id, external_id,
        turn_index, tier, provenance_type, confidence, importance, access_count, last_accessed_at, created_at, token_count,
        content_hash, _, entity_ids, origin, sources, metadata,
    ) = row  # fmt: skip
    memory = item_kind == 1
    role = ROLE_NAMES.get(role_number) if role_number is not None else None
    return Candidate(
        item_id,
        "memory" if memory else "message",
        kind,
        content,
        role,
        name,
        session_id,
        turn_index,
        tier,
        created_at,
        last_accessed_at,
        token_count,
        confidence,
        provenance_type if memory else _PROVENANCE[role],
        importance,
        access_count,
        content_hash or b"",
        _LEGS[(similarity is not None) + 2 * (text_score is not None) + 4 * frequent],
        similarity,
        text_score,
        entity_ids or (),
        origin,
        external_id,
        metadata,
        sources,
    )
