"""GET /api/v1/users/{user}/export: everything that is stored of a user, as JSON lines."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Literal

import orjson
from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from app.api.common import Segment
from app.api.scope import Admitted, Gate
from app.clock import Clock
from app.errors import NotFound
from app.store.export import LEFT_OUT, VERSION, Export
from app.store.tenancy import Tenancy

LINES = "application/x-ndjson"


class Lines(StreamingResponse):
    """JSON lines, as they come."""

    media_type = LINES


def export_router(gate: Gate, export: Export, tenancy: Tenancy, clock: Clock) -> APIRouter:
    """GET /api/v1/users/{user}/export."""
    router = gate.router("users")
    router.add_api_route(
        "/users/{user}/export",
        _Routes(export, tenancy, clock).export,
        methods=["GET"],
        response_class=Lines,
        responses={200: {"content": {LINES: {"schema": {"type": "string"}}}, "description": "JSON lines."}},
    )
    return router


class _Routes:
    def __init__(self, export: Export, tenancy: Tenancy, clock: Clock) -> None:
        self._export = export
        self._tenancy = tenancy
        self._clock = clock

    async def export(
        self,
        scope: Admitted,
        user: Segment,
        part: Annotated[
            Literal["all", "messages"], Query(description="messages: only these, as POST /api/v1/import takes them.")
        ] = "all",
    ) -> Lines:
        """Export a user, as JSON lines. First `{"export": {version, user, at, tables, left_out}}`, then `{"table", "row"}` for
        each row as it is stored, last `{"end": {table: rows}}`: without that line the export broke off. What is written
        meanwhile may or may not be in it."""
        owner = scope.user(user)
        if await self._tenancy.user(scope.tenant, owner.id) is None:
            raise NotFound("There is no such user.")
        if part == "messages":
            return Lines(self._export.messages(scope.tenant, owner.id, owner.external))
        tables = await self._export.tables(scope.tenant)
        head = {
            "version": VERSION,
            "user": owner.external,
            "at": self._clock.now(),
            "tables": tables,
            "left_out": LEFT_OUT,
        }
        first = orjson.dumps({"export": head}, option=orjson.OPT_APPEND_NEWLINE)

        async def lines() -> AsyncIterator[bytes]:
            yield first
            async for each in self._export.lines(scope.tenant, owner.id, tables):
                yield each

        return Lines(lines())
