"""The paging of one call: what was decided for its prompt, and what its model asked of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID

from msgspec import Struct, field

from app.dialects.splice import Insertion
from app.paging.ledger import HiddenLegs
from app.paging.tools import Names, PhantomCall
from app.store.paging_values import Fault, Paged, PagingRecord, SemanticObject


class Paging(Struct):
    """What the pager made of a request, and what its faults add.

    `state`: as it was stored; `objects`: those that stand in this request, as they are shown, without contents but for
    the new ones. `handles`:
    the object of each handle that may stand in this session's prompts. `insertions`: into the client's own bytes: objects
    that are shown shorter, and exchanges of the ledger; the tools are with them. `saved`: tokens that this takes from the
    client's messages (less than 0: exchanges cost more). `names`: of the phantom tools; None: they are not offered, for
    `declined`. `record`: without `faults` and the exchange of this very call, which come from `faults` and `hidden`. `costs`:
    tokens of each message as it goes out, with the exchange that belongs to it; `schemas`: of our tools; `window`: tokens that
    prompt and answer may take together. `scale`: tokens of the model for one as they are stored (o200k). `explained`: for the
    audit (`paging.explaining`).
    """

    tenant_id: UUID
    user_id: UUID
    session_id: UUID
    turn: int
    budget: int
    state: Paged
    record: PagingRecord
    objects: Sequence[SemanticObject] = ()
    handles: dict[str, UUID] = field(default_factory=dict)
    insertions: Sequence[Insertion] = ()
    saved: int = 0
    names: Names | None = None
    declined: str | None = None
    room: int = 0
    """Tokens that results of faults may add to this call's prompts, all together."""
    scale: float = 1.0
    costs: Sequence[int] | None = None
    schemas: Sequence[object] = ()
    window: int | None = None
    explained: Mapping[str, Any] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    hidden: HiddenLegs = field(default_factory=HiddenLegs)


class Answering(Protocol):
    """Runs what a model calls (`faults.py`)."""

    async def answer(
        self, paging: Paging, calls: Sequence[PhantomCall], said: Mapping[str, Any] | None = None
    ) -> list[str]:
        """What each call is told, in their order; adds to `paging.faults`, and takes from `paging.room`. `said`: the message
        that they stand in, where that goes into the next prompt beside them and takes of the room as well. Never raises: what
        cannot be looked up is told so."""
        ...

    def remembered(self, calls: Sequence[PhantomCall], texts: Sequence[str]) -> list[str]:
        """What later requests tell of these results: an answer as it was; of a restoration that the object stands in full at
        its place, for there it is shown from the next request on."""
        ...
