"""The paging of one call, an addon's part in it: what was decided for its prompt, and what its model asked of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol
from uuid import UUID

from msgspec import field
from msgspec.structs import replace

from app.dialects.base import ChatRequest
from app.features.paging.body import without_tools
from app.features.paging.ledger import HiddenLegs
from app.features.paging.record import PagingPartRecord, allowed, frozen, thawed
from app.features.paging.tools import Names, Offer, PhantomCall, offer
from app.features.paging.values import NOTHING_PAGED, Fault, Paged, PagingRecord, SemanticObject
from app.gateway.addon import CallPart, Joint
from app.gateway.redact import Redactor


class Paging(CallPart):
    """What the pager made of a request, and what its faults add.

    `state`: as it was stored; `objects`: those that stand in this request, as they are shown, without contents but for
    the new ones. `handles`: the object of each handle that may stand in this session's prompts. `insertions`: objects that are
    shown shorter, and exchanges of the ledger; the tools are with them. `saved`: tokens that this takes from the client's
    messages (less than 0: exchanges cost more). `names`: of the phantom tools; None: they are not offered, for `declined`.
    `record`: without `faults` and the exchange of this very call, which come from `faults` and `hidden`. `scale`: tokens of the
    model for one as they are stored (o200k). `explained`: see `explaining`.
    """

    name: ClassVar[str] = "paging"
    tenant_id: UUID
    user_id: UUID
    session_id: UUID
    turn: int
    budget: int
    state: Paged
    record: PagingRecord
    objects: Sequence[SemanticObject] = ()
    handles: dict[str, UUID] = field(default_factory=dict)
    saved: int = 0
    names: Names | None = None
    declined: str | None = None
    room: int = 0
    """Tokens that results of faults may add to this call's prompts, all together."""
    scale: float = 1.0
    faults: list[Fault] = field(default_factory=list)
    hidden: HiddenLegs = field(default_factory=HiddenLegs)

    # --- as `CallPart` has it ---

    @property
    def shown_tokens(self) -> int:
        return self.record.shown_tokens

    @property
    def has_tools(self) -> bool:
        return self.names is not None

    def compiled(self, tokens: int) -> None:
        record = self.record
        self.record = replace(record, tokens=record.tokens + tokens, shown_tokens=record.shown_tokens + tokens)
        self.room = max(0, self.budget - self.record.shown_tokens)

    def without_tools(self, chat: ChatRequest, sent: bytes) -> bytes:
        assert self.names is not None, "it has tools"
        made, names = offer(chat), self.names
        ours = made.insertions if isinstance(made, Offer) else ()
        self.insertions = [each for each in self.insertions if each not in ours]
        self.names, self.declined = None, "refused"
        self.explained = {**self.explained, "tools": None, "declined": self.declined}
        self.record = replace(self.record, offered=self.state.offered)
        return without_tools(sent, names)

    def headers(self, joint: Joint | None) -> dict[str, str]:
        """What is known when the head goes out: of a stream, how often its model asked back before its first event ("2+")."""
        record = self.record
        told = f"zone={record.zone};tokens={record.shown_tokens};budget={self.budget};saved={self.saved}"
        more = "+" if joint is not None and not joint.whole else ""
        last = f"faults={len(self.faults)}{more}" if self.names is not None else f"tools={self.declined or 'none'}"
        return {"x-mneme-paging": f"{told};{last}"}

    def recorded(self, chat: ChatRequest, answer_chain: bytes | None, redactor: Redactor) -> PagingPartRecord:
        """With its faults, and the exchange behind the answer."""
        hidden = dict(self.record.hidden)
        if answer_chain is not None and self.hidden != HiddenLegs():
            hidden[answer_chain] = self.hidden.as_json()
        record = replace(self.record, faults=tuple(self.faults), hidden=hidden)
        return PagingPartRecord(allowed(record, self.hidden, chat, redactor) if redactor else record)

    def frozen(self, chat: ChatRequest, redactor: Redactor) -> dict[str, Any]:
        own = b"\0"  # stands for the answer, whose chain is not known before its place is
        record = self.recorded(chat, own, redactor).record
        beside = {key: each for key, each in record.hidden.items() if key != own}
        return {
            "session": str(self.session_id),
            "turn": self.turn,
            "budget": self.budget,
            "record": frozen(replace(record, hidden=beside)),
            "hidden": frozen(record.hidden[own]) if own in record.hidden else None,
        }

    @classmethod
    def thawed(cls, kept: Mapping[str, Any], tenant: UUID, user: UUID) -> Paging:
        """As the call stood at its end."""
        record: PagingRecord = thawed(PagingRecord, kept["record"])
        hidden = kept["hidden"]
        return cls(
            tenant_id=tenant,
            user_id=user,
            session_id=UUID(kept["session"]),
            turn=kept["turn"],
            budget=kept["budget"],
            state=NOTHING_PAGED,
            record=replace(record, faults=()),
            faults=list(record.faults),
            hidden=HiddenLegs.of_json(json.loads(hidden)) if hidden is not None else HiddenLegs(),
        )


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
