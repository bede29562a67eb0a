"""/api/v1/commands: what users told memory to do in a chat, and how it is undone."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel

from app.api.common import DEFAULT_PAGE, PREFIX, Cursor, Limit, StoredUserName, decode_cursor, paged
from app.api.scope import Admitted, Gate
from app.api.users import CommandItem, CommandOut
from app.errors import NotFound
from app.features.commands.store import CommandRow, CommandStore
from app.metrics import Metrics
from app.store import ids

LATEST = 10
"""Commands that /api/v1/me tells: `GET /api/v1/commands` has all of them."""


class CommandPage(BaseModel):
    commands: list[CommandOut]
    next: str | None


class Undone(BaseModel):
    """What was undone."""

    id: UUID
    undone: Literal[True] = True


def commands_router(gate: Gate, commands: CommandStore, metrics: Metrics) -> APIRouter:

    async def listing(
        scope: Admitted,
        user: Annotated[StoredUserName | None, Query(description="Of this user only.")] = None,
        limit: Limit = DEFAULT_PAGE,
        cursor: Cursor = None,
    ) -> CommandPage:
        """List what users told memory to do in a chat, newest first."""
        after = decode_cursor(cursor, (datetime, UUID))
        named = scope.named(user)
        rows = await commands.page(
            scope.tenant, named.id if named else None, after=after and (after[0], after[1]), limit=limit + 1
        )
        page, following = paged(rows, limit, lambda row: (row.at, row.command_id))
        return CommandPage(commands=[_out(row) for row in page], next=following)

    async def undo(scope: Admitted, command_id: str) -> Undone:
        """Make memory as it was before a command: what it hid is found and said again. 409: it was undone already, or it did
        nothing."""
        command, named = ids.issued(command_id), scope.named()
        if command is None:
            raise NotFound("There is no such command.")
        kind = await commands.undo(scope.tenant, command, named.id if named else None)
        metrics.commanded(kind, "undone")
        return Undone(id=command)

    router = gate.router("memories")
    router.add_api_route("/commands", listing, methods=["GET"], response_model=CommandPage)
    router.add_api_route("/commands/{command_id}/undo", undo, methods=["POST"], response_model=Undone)
    return router


async def latest(commands: CommandStore, tenant: UUID, user: UUID) -> list[CommandOut]:
    """What a user told memory to do last."""
    return [_out(row) for row in await commands.page(tenant, user, after=None, limit=LATEST)]


def _out(row: CommandRow) -> CommandOut:
    undoable = row.outcome == "done" and row.undone_at is None
    return CommandOut(
        id=row.command_id,
        user=row.user_external_id,
        session_id=row.session_id,
        message_id=row.message_id,
        kind=row.kind,
        scope=row.scope,
        outcome=row.outcome,
        items=[CommandItem(id=each.id, kind=each.kind, text=row.texts.get(each.id)) for each in row.items],
        correction=row.heir,
        at=row.at,
        undone_at=row.undone_at,
        undo=f"{PREFIX}/commands/{row.command_id}/undo" if undoable else None,
    )
