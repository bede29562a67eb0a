"""/api/v1/commands: what users told memory to do in a chat, and taking it back."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel

from app.api.common import DEFAULT_PAGE, PREFIX, Cursor, Limit, Name, decode_cursor, paged
from app.api.scope import Admitted, Gate
from app.errors import NotFound
from app.metrics import Metrics
from app.store import ids
from app.store.commands import CommandRow, CommandStore


class CommandItem(BaseModel):
    """Something that was hidden. `text`: of a memory; a message stands in its conversation."""

    id: UUID
    kind: Literal["memory", "message"]
    text: str | None = None


class CommandOut(BaseModel):
    """A command. `kind`: `stop` and `allow` take a standing wish back, to do something or not to. `outcome`: done; ask: it
    was not clear what was meant; confirm: it was too much to do unasked. `correction`: of `correct`, the memory that says
    what is right. `message_id`: that said it. `undo`: the path to POST to, for it to be as it was before; null: nothing was
    done, or it was undone."""

    id: UUID
    user: str | None
    session_id: UUID
    message_id: UUID | None
    kind: Literal["forget", "correct", "stop", "allow"]
    scope: Literal["thing", "this", "everything"]
    outcome: Literal["done", "ask", "confirm"]
    items: list[CommandItem]
    correction: UUID | None
    at: datetime
    undone_at: datetime | None
    undo: str | None


class CommandPage(BaseModel):
    commands: list[CommandOut]
    next: str | None


class Undone(BaseModel):
    """What was undone."""

    id: UUID
    undone: Literal[True] = True


def commands_router(gate: Gate, commands: CommandStore, metrics: Metrics) -> APIRouter:
    """The routes of /api/v1/commands."""

    async def listing(
        scope: Admitted,
        user: Annotated[Name | None, Query(description="Of this user only.")] = None,
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
        return CommandPage(commands=[shown(row) for row in page], next=following)

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


def shown(row: CommandRow) -> CommandOut:
    """A command as its user sees it."""
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
