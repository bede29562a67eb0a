"""What of a call's paging is stored: it goes with the turn, and until Postgres takes that, beside the call on disk."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from asyncpg.pool import PoolConnectionProxy
from msgspec import Struct
from msgspec.structs import replace

from app.dialects.base import ChatRequest
from app.features.paging.ledger import BLOCKS, HiddenLegs
from app.features.paging.segment import marks
from app.features.paging.store import write
from app.features.paging.values import PagingRecord
from app.gateway.redact import Redactor
from app.metrics import Metrics
from app.store.queries import Queries
from app.store.records import CallRecord
from app.store.texts import storable


class PagingPartRecord(Struct, frozen=True):
    """A record, written with its turn."""

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
    """A value of this type again."""
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
