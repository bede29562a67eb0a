"""POST /api/v1/calls/{id}/replay: a captured request compiled again, compared item by item, and, on request, answered again."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

import orjson
from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from app.api.common import Model
from app.api.scope import Admitted, CallerScope, Gate, find_call
from app.errors import Forbidden
from app.features.replay.ask_again import Replayer
from app.features.replay.compare import compare
from app.features.replay.recompile import Mode, Recompiled, Recompiler
from app.store.captures import Captures, text_of_item


class ReplayIn(Model):
    """How to replay. `as_of`: the present code with the inputs of then; `today`: with today's memory and settings, too."""

    mode: Mode = "today"
    send: bool = Field(False, description="Send it upstream, and compare the answers. It costs what a call costs.")
    messages: bool = Field(
        False, description="Show the messages that would go upstream, in the shape of chat completions."
    )


class Side(BaseModel):
    """One of the two compiles about an item. `rank`: its place among the chosen; null: it is not in the prompt."""

    rank: int | None
    score: float | None
    reason: str
    signals: dict[str, float]


class ReplayItem(BaseModel, extra="allow"):
    """An item that is, or was, in the prompt. `text` is null where it was forgotten or erased since."""

    id: UUID
    source: str
    kind: str
    text: str | None
    change: Literal["kept", "moved", "rescored", "new", "gone"]
    was: Side
    now: Side


class ReplayOut(BaseModel, extra="allow"):
    """A replay. `identical`: what would go upstream is to the byte what went then."""

    call_id: UUID
    mode: Mode
    identical: bool
    sha256: dict[str, str | None]
    changes: dict[str, int]
    items: list[ReplayItem]
    notes: list[str]


def replay_router(gate: Gate, captures: Captures, recompiler: Recompiler, caller: Replayer) -> APIRouter:
    """POST /api/v1/calls/{id}/replay."""
    routes = _ReplayRoutes(captures, recompiler, caller)
    router = gate.router("calls")
    router.add_api_route("/calls/{call_id}/replay", routes.replay, methods=["POST"], response_model=ReplayOut)
    return router


class _ReplayRoutes:
    def __init__(self, captures: Captures, recompiler: Recompiler, caller: Replayer) -> None:
        self._captures = captures
        self._recompiler = recompiler
        self._caller = caller

    async def replay(
        self, scope: Admitted, request: Request, call_id: str, body: ReplayIn | None = None
    ) -> dict[str, Any]:
        """Compile a captured request again and compare it with what was compiled then, item by item; with `send`, ask the
        upstream again as well. Nothing of it is recorded as a turn, captured, learned from, or counted as a use of a memory."""
        wanted = body or ReplayIn()
        if wanted.send:
            _may_send(scope)
        named = scope.named()
        again = await self._recompiler.run(
            scope.tenant, find_call(call_id), named.id if named is not None else None, wanted.mode
        )
        # Ids as text, as what is stored has them.
        after = orjson.loads(orjson.dumps(again.compilation.audit, default=str))
        told = compare(again.before, after, again.fates)
        await self._with_texts(scope.tenant, again, told["items"])
        told |= {
            "call_id": again.call.call_id,
            "mode": again.mode,
            "created_at": again.call.created_at,
            "model": again.call.model,
            "identical": again.identical,
            "sha256": {"was": again.was, "now": again.now},
            "version": {"was": again.mneme, "now": again.compilation.inputs["mneme"]},
            "notes": list(again.notes),
        }
        if wanted.messages:
            told["messages"] = again.chat.dialect.messages(orjson.loads(again.body)) or []
        if wanted.send:
            told["answer"] = await self._caller.ask(
                scope.tenant, again, list(request.headers.raw), scope.principal.key_id
            )
        return told

    async def _with_texts(self, tenant: UUID, again: Recompiled, items: list[dict[str, Any]]) -> None:
        said, known = (
            [UUID(each["id"]) for each in items if each["source"] == source] for source in ("message", "memory")
        )
        shown = await self._captures.shown(tenant, again.call.user_id, messages=said, memories=known)
        for each in items:
            each["text"] = text_of_item(each, shown.get(UUID(each["id"])))


def _may_send(scope: CallerScope) -> None:
    if not scope.principal.allows("proxy"):
        raise Forbidden("This key has no scope to call models.", code="missing_scope")
    if scope.principal.limits is not None and scope.principal.limits.limiting:
        raise Forbidden(
            "This key has limits, and a replay is admitted by none: send it with a key that has no limits.",
            code="limited_key",
        )
