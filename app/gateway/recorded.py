"""What a compile is given in place of a search and of a model's figures, where it is done again as of then (`then`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from app.context.asked import Asked
from app.context.audit import LEGS
from app.context.candidates import Candidate
from app.context.inputs import Kept, Numbers, unpack
from app.context.profiles import Profile
from app.context.retrieve import Retrieved, Retriever, Scope, Wanted
from app.errors import Conflict
from app.memory.candidate import Provenance
from app.providers.models import ModelRegistry
from app.store.records import ROLE_NAMES
from app.store.replays import ItemThen
from app.store.standing import Ended


class Recorded(Retriever):
    """Finds what was found then."""

    def __init__(self, found: Sequence[Candidate], asked: bool | None = None, ended: Sequence[Ended] = ()) -> None:
        self._found = [each._replace(ended=tuple(e for e in ended if e.item == each.id)) for each in found]
        self._asked = asked

    async def candidates(
        self, asked: Asked, scope: Scope, wanted: Wanted, profile: Profile, limits: object = None
    ) -> Retrieved:
        return Retrieved(list(self._found), {}, self._asked)


class ModelThen(ModelRegistry):
    """A model with the window and the reserve of then."""

    def __init__(self, window: int, reserve: int) -> None:
        super().__init__()
        self._then = (window, reserve)

    def window(self, model: str) -> int:
        return self._then[0]

    def response_reserve(self, model: str, requested: int | None) -> int:
        return self._then[1]


def ended_of(kept: Kept, items: Mapping[UUID, ItemThen]) -> list[Ended]:
    """What was said to be so no more, as far as it may still be shown."""
    found = []
    for item, memory, at, heir in kept.ended:
        old, new = items.get(memory), items.get(heir) if heir is not None else None
        if old is not None and (heir is None or new is not None):
            found.append(Ended(item, memory, old.text, None, at, heir, new.text if new is not None else None))
    return found


def candidates_of(kept: Kept, audit: Mapping[str, Any], items: Mapping[UUID, ItemThen]) -> list[Candidate]:
    """The candidates of then, as far as they may still be shown. Raises Conflict for numbers that do not belong to them."""
    columns = audit["items"]
    try:
        numbers = unpack(kept.packed, columns["source"])
    except ValueError as error:
        raise Conflict(f"What was kept of this compile does not fit together: {error}.", code="version") from error
    spans = columns.get("spans") or [None] * len(numbers)
    rows = zip(
        columns["id"], columns["kind"], columns["tier"], columns["tokens"], columns["legs"], columns["sources"], spans,
        numbers, strict=True,
    )  # fmt: skip
    found = []
    for identity, kind, tier, tokens, legs, sources, span, own in rows:
        item = items.get(UUID(str(identity)))
        if item is not None:
            found.append(_candidate(item, kind, tier, tokens, legs, sources, span, own))
    return found


def _candidate(
    item: ItemThen, kind: str, tier: int | None, tokens: int, legs: int, sources: Any, span: Any, own: Numbers
) -> Candidate:
    role = ROLE_NAMES.get(item.role) if item.role is not None else None
    text = item.text[slice(*span)] if span is not None else item.text
    origin = None
    if own.alone:
        origin = UUID(str(sources[0][0])) if sources and sources[0][0] is not None else item.origin
    return Candidate(
        item.id,
        "memory" if item.memory else "message",
        kind,
        text,
        role,
        item.name,
        item.session_id,
        item.turn_index,
        tier,
        item.created_at,
        own.last_accessed_at,
        tokens,
        own.confidence,
        own.provenance_type if own.provenance_type is not None else int(Provenance.of_role(role)),
        own.importance,
        own.access_count,
        item.content_hash or b"",
        frozenset(name for bit, name in enumerate(LEGS) if legs >> bit & 1),
        own.similarity,
        item.entity_ids or (),
        origin,
        item.external_id,
        item.metadata,
        item.sources,
        own.near_text,
        own.near_vector,
        own.named,
        tuple(span) if span is not None else None,
        tokens if item.memory else item.token_count,
        own.timely,
        own.reinforcements,
        own.sure_since,
        own.odds,
    )


def fate(item: ItemThen | None) -> str | None:
    """What became of an item of then; None: it is as it was."""
    if item is None:
        return "forgotten"
    return None if item.in_force else "not_in_force"
