"""The paging of one call, an addon's part in it: what was decided for its prompt, and what its model asked of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, ClassVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from asyncpg.pool import PoolConnectionProxy
from msgspec import Struct, field
from msgspec.structs import replace

from app.features.paging.body import BLOCKS, HiddenLegs, without_tools
from app.features.paging.segment import marks
from app.features.paging.store import write
from app.features.paging.tools import Names, ToolInsertion, offer
from app.features.paging.values import NOTHING_PAGED, Fault, Paged, PagingRecord, SemanticObject
from app.gateway.addon import CallPart, Joint
from app.gateway.dialects.base import ChatRequest
from app.gateway.headers import Redactor
from app.metrics import Metrics
from app.store.pools import storable
from app.store.queries import Queries
from app.store.records import CallRecord


class PagingPartRecord(Struct, frozen=True):
    record: PagingRecord

    @property
    def session_id(self) -> UUID:
        return self.record.session_id

    @property
    def size(self) -> int:
        return sum(len(each.content) for each in self.record.objects)

    async def write(self, connection: PoolConnectionProxy[Any], sql: Queries, call: CallRecord) -> None:
        await write(connection, sql, call.tenant_id, call.user_id, call.call_id, call.created_at, self.record)

    def count(self, metrics: Metrics, *, legs: int) -> None:
        metrics.paged(self.record.zone, avoided=self.record.avoided_tokens, legs=legs)


def allowed(record: PagingRecord, hidden: HiddenLegs, chat: ChatRequest, redactor: Redactor) -> PagingRecord:
    """Without objects that stand in messages which may not be stored as they are; nor what a model asked and was told, which
    may quote any of them."""
    told = redactor.value(chat.document)
    kept = chat.messages if told is chat.document else chat.dialect.messages(told) or ()
    own = chat.messages
    whole = len(kept) == len(own) and all(one == other for one, other in zip(kept, own, strict=True))
    said: list[Mapping[str, Any]] = [
        {"choices": [{"message": each} for each in hidden.legs], "messages": list(hidden.legs)}
    ]
    for blocks in [
        each[BLOCKS] for each in hidden.legs if BLOCKS in each
    ]:  # as /v1/messages has them: asked, told, and in events
        said += [{"messages": [{"content": blocks}], "content": blocks}]
        said += [{"content_block": each, "delta": each} for each in blocks]
    if whole and all(redactor.value(each) is each for each in said):
        return record
    lacking = {
        mark
        for n, mark in enumerate(marks(chat.transcript))
        if mark is not None and (len(kept) != len(own) or kept[n] != own[n])
    }
    gone = {each.id for each in record.objects if any(part.mark in lacking for part in each.parts)}
    return replace(
        record,
        objects=tuple(each for each in record.objects if each.id not in gone),
        relationships=tuple(each for each in record.relationships if not {each.source, each.target} & gone),
        admissions=tuple(each for each in record.admissions if each.admitted and each.object_id not in gone),
        transitions=tuple(each for each in record.transitions if each.object_id not in gone),
        pinned=record.pinned - gone,
        uses=record.uses - gone,
        levels=tuple(made for made in record.levels if made.object_id not in gone),
        faults=tuple(replace(each, question=None, answer=None) for each in record.faults),
        hidden={},
    )


def frozen(value: Any) -> Any:
    """A value of `values` as JSON: structs by their fields, bytes as hex, what is free in its form as JSON text."""
    if isinstance(value, Struct):
        return {name: frozen(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        if all(isinstance(key, bytes) for key in value):
            return {key.hex(): frozen(each) for key, each in value.items()}
        return json.dumps(value, default=str)  # keeps lone surrogates
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, tuple | frozenset):
        return [frozen(each) for each in value]
    return value


_hints = cache(get_type_hints)


def thawed(kind: Any, value: Any) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        if value is None:
            return None
        return thawed(next(each for each in arguments if each is not NoneType), value)
    if origin in (tuple, frozenset):
        return origin(thawed(arguments[0], each) for each in value)
    if origin is not None:  # a mapping: by bytes, or of any form
        if arguments[0] is bytes:
            return {bytes.fromhex(key): thawed(arguments[1], each) for key, each in value.items()}
        return json.loads(value)
    if isinstance(kind, type) and issubclass(kind, Struct):
        hints = _hints(kind)
        return kind(**{name: thawed(hints[name], each) for name, each in value.items()})
    if kind is bytes:
        return bytes.fromhex(value)
    if kind is datetime:
        return datetime.fromisoformat(value)
    return kind(value) if isinstance(kind, type) and not isinstance(value, kind) else value


class Paging(CallPart):
    """What the pager made of a request, and what its faults add.

    `state`: as it was stored; `objects`: those that stand in this request, as they are shown, without contents but for
    the new ones. `handles`: the object of each handle that may stand in this session's prompts. `insertions`: objects that are
    shown shorter, and exchanges of the ledger; the tools are with them. `saved`: tokens that this takes from the client's
    messages (less than 0: exchanges cost more). `names`: of the phantom tools; None: they are not offered, for `declined`.
    `record`: without `faults` and the exchange of this very call, which come from `faults` and `hidden`. `scale`: tokens of the
    model for one as they are stored (o200k). `explained`: see `explanation`.
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
        ours = made.insertions if isinstance(made, ToolInsertion) else ()
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
