"""A pager with a store in memory, and a session that grows request by request."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast
from uuid import UUID

import orjson
from msgspec.structs import replace

from app.api.auth import Principal
from app.features.paging.faults import FaultAnswers
from app.features.paging.pager import Pager
from app.features.paging.shrink import shrink
from app.features.paging.state import Paging
from app.features.paging.store import PagingStore
from app.features.paging.tools import PhantomCall
from app.features.paging.values import (
    Fault,
    FaultType,
    Fidelity,
    Paged,
    PagingRecord,
    Relationship,
    SemanticObject,
    Shrunk,
)
from app.gateway.call import Remembered
from app.gateway.dialects.base import ChatRequest, Dialect
from app.gateway.dialects.chat import CHAT
from app.gateway.identify import Identity, Switches
from app.gateway.prepare import unwoven
from app.gateway.reconcile import Place
from app.gateway.relay import Inbound
from app.gateway.upstream import Target
from app.providers.models import ModelRegistry
from app.providers.tokens import CountCache, Tokenizers, prompt_tokens, tools_tokens
from app.tasks import Supervisor

TENANT, USER, SESSION = UUID(int=1), UUID(int=2), UUID(int=3)
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
TOKENIZERS = Tokenizers()
MODEL = "gpt-4o"
COUNTER = TOKENIZERS.for_model(MODEL)
Message = dict[str, Any]


@dataclass
class MemoryShelf:
    """Keeps what `record` is given as the store does, and makes L1 and L2 at once, as its jobs do in time. `fail`: raised by
    every call."""

    objects: dict[UUID, SemanticObject] = field(default_factory=dict)
    relations: list[Relationship] = field(default_factory=list)
    marks: frozenset[bytes] = frozenset()
    hidden: dict[bytes, Mapping[str, Any]] = field(default_factory=dict)
    last: PagingRecord | None = None
    offered: bool = False
    restored: frozenset[UUID] = frozenset()
    raised: frozenset[UUID] = frozenset()
    released: frozenset[UUID] = frozenset()
    kept: list[PagingRecord] = field(default_factory=list)
    read_texts: list[Mapping[UUID, Fidelity]] = field(default_factory=list)
    fail: Exception | None = None
    shrinks: bool = True

    async def read(self, tenant: UUID, user: UUID, session: UUID, *, chains: Sequence[bytes] = ()) -> Paged:
        if self.fail is not None:
            raise self.fail
        return Paged(
            zone=self.last.zone if self.last is not None else Paged().zone,
            offered=self.offered,
            marks=self.marks,
            objects=tuple(_as_read(each) for each in self.objects.values()),
            relationships=tuple(self.relations),
            restored=self.restored,
            raised=self.raised,
            released=self.released,
            hidden={key: self.hidden[key] for key in chains if key in self.hidden},
        )

    async def texts(self, tenant: UUID, user: UUID, objects: Mapping[UUID, Fidelity]) -> dict[UUID, str]:
        self.read_texts.append(objects)
        return {key: self.objects[key].text_at(level) for key, level in objects.items()}

    async def keep(self, tenant: UUID, user: UUID, call_id: UUID | None, record: PagingRecord) -> None:
        self.kept.append(record)
        self.record(record)

    def record(self, record: PagingRecord) -> None:
        """What `agent_data.record_paging` does."""
        self.last = record
        self.offered |= record.offered
        self.marks |= record.marks
        for each in record.objects:
            self.objects.setdefault(each.id, self._shrunk(each))
        for levels in record.levels:
            self._change(
                levels.object_id,
                detailed=levels.detailed,
                compact=levels.compact,
                fault_when=levels.fault_when,
                shrunk=True,
            )
        self.relations += record.relationships
        for change in record.transitions:
            self._change(change.object_id, fidelity=change.after)
        for key in record.pinned:
            self._change(key, pinned=True)
        for key in record.uses:
            self._change(key, last_accessed=record.turn, access_count=self.objects[key].access_count + 1)
        self.restored -= record.heard
        self.raised -= record.heard
        self.released -= record.heard
        for fault in record.faults:
            if fault.object_id is not None and fault.pin:
                self.restored |= {fault.object_id}
        self.hidden |= record.hidden

    def _change(self, key: UUID, **fields: Any) -> None:
        self.objects[key] = replace(self.objects[key], **fields)

    def _shrunk(self, made: SemanticObject) -> SemanticObject:
        if not self.shrinks:
            return made
        levels = shrink(made.content, made.kind, COUNTER.count, made.source_key, made.tokens_l0)
        return replace(made, detailed=levels.detailed, compact=levels.compact, fault_when=levels.fault_when)


def _as_read(made: SemanticObject) -> SemanticObject:
    """Without its content, and with no text of a level but the one that it is shown at."""

    def bare(shrunk: Shrunk | None, level: Fidelity) -> Shrunk | None:
        return shrunk if shrunk is None or made.fidelity == level else replace(shrunk, text="")

    return replace(
        made,
        content="",
        detailed=bare(made.detailed, Fidelity.DETAILED),
        compact=bare(made.compact, Fidelity.COMPACT),
    )


@dataclass
class Told(FaultAnswers):
    """Answers every call with the same words; a restoration is a fault on the object of its handle."""

    asked: list[PhantomCall] = field(default_factory=list)

    async def answer(
        self, paging: Paging, calls: Sequence[PhantomCall], said: Mapping[str, Any] | None = None
    ) -> list[str]:
        self.asked += calls
        for each in calls:
            handle = json.loads(each.arguments).get("object_id")
            if handle in paging.handles:
                kind = FaultType.FULL_RESTORE
                paging.faults.append(Fault(UUID(int=1), kind, paging.turn, NOW, paging.handles[handle], pin=True))
        return [f"told {each.id}" for each in calls]

    def remembered(self, texts: Sequence[str]) -> list[str]:
        return [f"remembered: {text}" for text in texts]


def chat_of(
    messages: Sequence[Message], *, body: bytes | None = None, dialect: Dialect = CHAT, **fields: Any
) -> ChatRequest:
    """A request; `body`: its bytes, where they are not those of `json.dumps`."""
    if body is None:
        body = json.dumps({"model": MODEL, "messages": list(messages), **fields}).encode()
    chat = dialect.read(body, orjson.loads(body))
    assert chat is not None
    return chat


async def _nobody(*_: Any) -> Any:
    raise AssertionError("nobody asks")


def call_of(chat: ChatRequest, **fields: Any) -> Remembered:
    """A call on its way."""
    plain: dict[str, Any] = {
        "id": UUID(int=9),
        "at": NOW,
        "started_ns": 0,
        "method": "POST",
        "path": "/v1/chat/completions",
        "raw_path": b"",
        "query": b"",
        "raw_headers": [],
        "headers": {},
        "principal": Principal(TENANT, None, None, frozenset(), "open"),
        "switches": Switches(paging="on"),
        "identity": Identity(TENANT, "ana", USER, False, None, None, None, 0, None),
        "target": Target("up", "http://up/v1", None, None, "tail"),
        "inbound": Inbound(_nobody),
        "send": _nobody,
        "chat": chat,
        "dialect": chat.dialect,
        "body": chat.body,
        "sent": chat.body,
    }
    return Remembered(**plain | fields)


PLACE = Place(SESSION, False, "continue", False, 0, USER)


@dataclass
class Asked:
    """A request that was paged. `tokens`: of all that is sent, counted anew."""

    paging: Paging
    chat: ChatRequest
    body: bytes

    @property
    def messages(self) -> list[Message]:
        return list(orjson.loads(self.body)["messages"])

    @property
    def tokens(self) -> int:
        sent = orjson.loads(self.body)
        return prompt_tokens(sent["messages"], COUNTER) + tools_tokens(sent.get("tools"), COUNTER)


class Desk:
    """Pages the requests of one session, and records each."""

    def __init__(self, *, budget: int = 24_000, deadline_s: float = 30.0, **fields: Any) -> None:
        self.shelf, self.answers, self.tasks = MemoryShelf(), Told(), Supervisor()
        self.budget = budget
        self.fields = fields
        self.counts = CountCache()
        self.pager = Pager(
            cast("PagingStore", self.shelf),
            self.answers,
            ModelRegistry(),
            TOKENIZERS,
            self.counts,
            self.tasks,
            nonce_key=lambda: b"a test's secret",
            memory_cap=0,
            deadline_s=deadline_s,
        )

    async def ask(
        self, messages: Sequence[Message], *, record: bool = True, place: Place = PLACE, **fields: Any
    ) -> Asked:
        chat = chat_of(messages, **self.fields | fields)
        paging = await self.pager.page(call_of(chat), chat, place, self.budget)
        if record:
            self.shelf.record(replace(paging.record, faults=tuple(paging.faults)))
        return Asked(paging, chat, unwoven(chat, None, paging.insertions))
