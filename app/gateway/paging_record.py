"""What of a call's paging is stored: with its turn, and until Postgres takes that, beside the call on disk. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from app.dialects.base import ChatRequest
from app.gateway.redact import Redactor
from app.paging.ledger import Hidden
from app.paging.segment import marks
from app.paging.state import Paging
from app.store.paging_values import NOTHING_PAGED, PagingRecord
from app.store.texts import storable


def record_of(
    paging: Paging, chat: ChatRequest, answer_chain: bytes | None, redactor: Redactor | None = None
) -> PagingRecord:
    """The record of a call that has ended, with its faults, and the exchange behind its answer (`answer_chain`:
    `Exchange.answer_chains[0]`; None: nothing came that a client could send back)."""
    hidden = dict(paging.record.hidden)
    if answer_chain is not None and paging.hidden != Hidden():
        hidden[answer_chain] = paging.hidden.as_json()
    record = replace(paging.record, faults=tuple(paging.faults), hidden=hidden)
    return _allowed(record, paging.hidden, chat, redactor) if redactor else record


def _allowed(record: PagingRecord, hidden: Hidden, chat: ChatRequest, redactor: Redactor) -> PagingRecord:
    """Without objects that stand in messages which may not be stored as they are; nor what a model asked and was told, which
    may quote any of them."""
    told = redactor.value(chat.document)
    kept = chat.messages if told is chat.document else chat.dialect.messages(told) or ()
    own = chat.messages
    whole = len(kept) == len(own) and all(one == other for one, other in zip(kept, own, strict=True))
    said = {"choices": [{"message": each} for each in hidden.legs], "messages": list(hidden.legs)}
    if whole and redactor.value(said) is said:
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
        faults=tuple(replace(each, question=None, answer=None) for each in record.faults),
        hidden={},
    )


# --- on disk ----------------------------------------------------------------------------------------------------------------


def frozen(paging: Paging, chat: ChatRequest, redactor: Redactor) -> dict[str, Any]:
    """What a call that waits for Postgres keeps of its paging, as JSON."""
    own = b"\0"  # stands for the answer, whose chain is not known before its place is
    record = record_of(paging, chat, own, redactor)
    beside = {key: each for key, each in record.hidden.items() if key != own}
    return {
        "session": str(paging.session_id),
        "turn": paging.turn,
        "budget": paging.budget,
        "record": _frozen(replace(record, hidden=beside)),
        "hidden": _frozen(record.hidden[own]) if own in record.hidden else None,
    }


def thawed(kept: Mapping[str, Any], tenant: UUID, user: UUID) -> Paging:
    """The same, for the call as it stood at its end. Raises ValueError, KeyError, TypeError for what no Mneme has written."""
    record: PagingRecord = _thawed(PagingRecord, kept["record"])
    hidden = kept["hidden"]
    return Paging(
        tenant_id=tenant,
        user_id=user,
        session_id=UUID(kept["session"]),
        turn=kept["turn"],
        budget=kept["budget"],
        state=NOTHING_PAGED,
        record=replace(record, faults=()),
        faults=list(record.faults),
        hidden=Hidden.of_json(json.loads(hidden)) if hidden is not None else Hidden(),
    )


def _frozen(value: Any) -> Any:
    """A value of `paging.state` as JSON: structs by their fields, bytes as hex, what is free in its form as JSON text."""
    if isinstance(value, Struct):
        return {name: _frozen(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        if all(isinstance(key, bytes) for key in value):
            return {key.hex(): _frozen(each) for key, each in value.items()}
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
        return [_frozen(each) for each in value]
    return value


_hints = cache(get_type_hints)


def _thawed(kind: Any, value: Any) -> Any:
    """A value of this type again."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        if value is None:
            return None
        return _thawed(next(each for each in arguments if each is not NoneType), value)
    if origin in (tuple, frozenset):
        return origin(_thawed(arguments[0], each) for each in value)
    if origin is not None:  # a mapping: by bytes, or of any form
        if arguments[0] is bytes:
            return {bytes.fromhex(key): _thawed(arguments[1], each) for key, each in value.items()}
        return json.loads(value)
    if isinstance(kind, type) and issubclass(kind, Struct):
        hints = _hints(kind)
        return kind(**{name: _thawed(hints[name], each) for name, each in value.items()})
    if kind is bytes:
        return bytes.fromhex(value)
    if kind is datetime:
        return datetime.fromisoformat(value)
    return kind(value) if isinstance(kind, type) and not isinstance(value, kind) else value
