"""A gateway between a scripted client and a scripted upstream, with a preparer and a recorder that fail as they are told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from app.capture.facts import CallFacts, CompileFacts, Exchange
from app.context.assemble import Prepend
from app.context.request import Compilation
from app.gateway.addon import CallPart
from app.gateway.dialects.base import ChatRequest, renamed
from app.gateway.dialects.splice import splice
from app.gateway.identify import EarlierAnswer
from app.gateway.prepare import Prepared, weave
from app.gateway.reconcile import Place
from app.settings import Settings
from tests.support.journey import (
    UPSTREAM,
    Journey,
    Message,
    Reply,
    build_journey,
)

SESSION = UUID(int=3)
BLOCK = "<memory> "


class StubPreparer:
    """Knows one session, and adds a block to the last message. `fail`: raised, or waited for, where it stands."""

    def __init__(self) -> None:
        self.fail: dict[str, BaseException | asyncio.Event] = {}
        self.found: EarlierAnswer | None = None
        self.steps: list[str] = []
        self.reason: str | None = None
        """What the search had to do without."""
        self.late_of: list[Any] = []
        """Whose requests were at their deadline."""

    async def _step(self, name: str) -> None:
        self.steps.append(name)
        trouble = self.fail.get(name)
        if isinstance(trouble, asyncio.Event):
            await trouble.wait()
        elif trouble is not None:
            raise trouble

    def late(self, identity: Any) -> None:
        self.late_of.append(identity.user_id)

    async def replay(self, identity: Any, chat: ChatRequest) -> EarlierAnswer | None:
        await self._step("replay")
        return self.found

    async def place(self, identity: Any, chat: ChatRequest, switches: Any, now: Any) -> Place:
        self.identity = identity
        await self._step("place")
        return Place(SESSION, True, "new", False, 0, identity.user_id)

    async def find(
        self, identity: Any, chat: ChatRequest, switches: Any, now: Any, deadline_s: float | None = None
    ) -> tuple[Place, None]:
        return await self.place(identity, chat, switches, now), None

    async def compile(
        self,
        identity: Any,
        chat: ChatRequest,
        place: Place,
        target: Any,
        now: Any,
        *,
        search: bool = True,
        profile: str = "auto",
        price: str | None = None,
        learns: bool = False,
        inquiry: object = None,
        deadline_s: float | None = None,
        part: CallPart | None = None,
        obeyed: object = None,
    ) -> Prepared:
        self.profile, self.price = profile, price
        await self._step("compile" if search else "compile-without-search")
        edits = [Prepend(len(chat.messages) - 1, BLOCK)]
        audit = {"history": {"messages": 1}}
        compiled = Compilation(edits, [], 0, None, 0, 2, 30, 100, 0.9, audit, self.reason)
        shown = part.insertions if part is not None else ()
        body = splice(chat.body, [*weave(chat.dialect.canvas(chat), edits), *shown, *renamed(chat, target.model_alias)])
        return Prepared(body, compiled)


class StubRecorder:
    """Keeps what it is given. `fail` is raised, or waited for, instead."""

    def __init__(self) -> None:
        self.records: list[tuple[CallFacts, Exchange | None, CompileFacts | None]] = []
        self.fail: BaseException | None = None
        self.hold: asyncio.Event | None = None

    async def record(self, facts: CallFacts, exchange: Exchange | None, compiled: CompileFacts | None) -> bool:
        if self.hold is not None:
            await self.hold.wait()
        if self.fail is not None:
            raise self.fail
        self.records.append((facts, exchange, compiled))
        return True

    @property
    def last(self) -> CallFacts:
        return self.records[-1][0]


class GatewayStage:
    """A gateway between a scripted client and a scripted upstream."""

    def __init__(
        self,
        *,
        pager: Any = None,
        answers: Any = None,
        spool: Path | None = None,
        ledger: Any = None,
        constants: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        """`constants`: arguments of `build_journey` in place of the server's constants."""
        self.preparer, self.recorder = StubPreparer(), StubRecorder()
        self.journey: Journey = build_journey(
            None,
            settings=Settings(**{"upstream_base_url": UPSTREAM, "retrieval_deadline_ms": 5000, **settings}),
            preparer=self.preparer,
            recorder=self.recorder,
            pager=pager,
            answers=answers,
            spool=spool,
            ledger=ledger,
            **(constants or {}),
        )
        self.upstream = self.journey.upstream
        self.ask, self.post = self.journey.ask, self.journey.post

    def answering(self, script: Callable[[Message], Reply | Exception]) -> GatewayStage:
        self.upstream.script = script
        return self
