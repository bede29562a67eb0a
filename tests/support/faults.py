"""A pager that offers its tools in every request and shows nothing shorter, and what answers its model's calls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from app.features.paging.state import Paging
from app.features.paging.tools import Names, PhantomCall, ToolInsertion, offer
from app.features.paging.values import NOTHING_PAGED, Fault, FaultType, PagingRecord, Zone
from app.gateway.call import Parsed
from app.gateway.dialects.base import ChatRequest
from app.gateway.reconcile import Place
from app.store.ids import uuid7
from tests.support.journey import Message, Reply, completion
from tests.support.phantoms import call, calls, event, usage

AT = datetime(2026, 11, 1, tzinfo=UTC)
DONE = b"data: [DONE]\n\n"


class StubPager:
    """Offers the tools wherever they can be. `paged`: what it made."""

    def __init__(self) -> None:
        self.paged: list[Paging] = []

    async def page(self, call: Parsed, chat: ChatRequest, place: Place, budget: int | None = None) -> Paging:
        made = offer(chat)
        names = made.names if isinstance(made, ToolInsertion) else None
        paging = self._paging(call, place, names)
        if isinstance(made, ToolInsertion):
            paging.insertions = made.insertions
        else:
            paging.declined = made
        return paging

    async def repeated(self, call: Parsed, sent: bytes, place: Place, most: int | None = None) -> Paging:
        return self._paging(call, place, Names())

    def _paging(self, call: Parsed, place: Place, names: Names | None) -> Paging:
        record = PagingRecord(place.session_id, 1, Zone.CAUTION, 1000, 0, 0, offered=names is not None)
        paging = Paging(
            call.identity.tenant_id, place.user_id, place.session_id, 1, 1000, NOTHING_PAGED, record, names=names
        )
        self.paged.append(paging)
        return paging


class StubAnswers:
    """Tells each call what `say` makes of its arguments. `hold`: waited for; `fail`: raised."""

    def __init__(self, say: Callable[[PhantomCall], str] = lambda call: f"told {call.arguments}") -> None:
        self.say = say
        self.asked: list[Sequence[PhantomCall]] = []
        self.hold: asyncio.Event | None = None
        self.fail: Exception | None = None
        self.cancelled = False

    async def answer(
        self, paging: Paging, calls: Sequence[PhantomCall], said: Mapping[str, Any] | None = None
    ) -> list[str]:
        self.asked.append(calls)
        if self.hold is not None:
            try:
                await self.hold.wait()
            except asyncio.CancelledError:
                self.cancelled = True
                raise
        if self.fail is not None:
            raise self.fail
        for each in calls:
            paging.faults.append(Fault(_id(), FaultType.MICRO_FAULT, paging.turn, AT, question=each.arguments))
        return [self.say(each) for each in calls]

    def remembered(self, texts: Sequence[str]) -> list[str]:
        return [f"remembered {text}" for text in texts]


def _id() -> UUID:
    return uuid7(AT)


def said(asked: dict[str, Any]) -> list[str]:
    """What a request's results of our tools say, in their order."""
    return [each["content"] for each in asked["messages"] if each["role"] == "tool"]


# --- legs, for the upstream inside the process -----------------------------------------------------------------


def events(*made: Any, end: Sequence[Any] = ()) -> Reply:
    return Reply(headers=[(b"content-type", b"text/event-stream")], chunks=[*made, *end])


def asking(question: str, *, text: str = "", told: int | None = None, finish: str = "tool_calls") -> Reply:
    """A leg that ends in a call of ours."""
    arguments = json.dumps({"question": question})
    begun = [event({"role": "assistant", "content": text})] if text else [event({"role": "assistant", "content": ""})]
    figures = [usage(told, 5)] if told is not None else []
    return events(
        *begun, event(calls(call(0, "memory_query", "", "c1"))), event(calls(call(0, None, arguments))),
        event(finish=finish), *figures, DONE,
    )  # fmt: skip


def saying(text: str, *, told: int | None = None) -> Reply:
    figures = [usage(told, 7)] if told is not None else []
    return events(event({"role": "assistant", "content": text}), event(finish="stop"), *figures, DONE)


def whole(text: str | None = None, question: str | None = None) -> Reply:
    """The same in one piece; asking, if there is a question."""
    if question is None:
        return completion(text)
    function = {"name": "memory_query", "arguments": json.dumps({"question": question})}
    return completion(text, tool_calls=[{"id": "c1", "type": "function", "function": function}])


def bytes_of(reply: Reply) -> bytes:
    return b"".join(each for each in reply.chunks if isinstance(each, bytes))


def in_turn(*replies: Reply | Exception) -> Callable[[Message], Reply | Exception]:
    left = list(replies)
    return lambda asked: left.pop(0) if len(left) > 1 else left[0]
