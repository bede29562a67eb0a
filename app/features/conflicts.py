"""Where memories contradict each other, or the business's own database (seed 004, table 9): the log of it, read and decided by
/api/v1/conflicts and `mneme conflicts`.

    open ──the user answers, or says what is right; its memory ends; the row comes to agree, or says something else──> resolved
      └──POST /api/v1/conflicts/{id}/resolve ──────────────────────────────────────────────────────────────────────> resolved

What a row decides is logged as resolved (`app/features/knowledge/jobs.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar
from uuid import UUID

import click
from asyncpg.exceptions import UniqueViolationError
from asyncpg.pool import PoolConnectionProxy
from fastapi import APIRouter, Query
from msgspec import Struct
from pydantic import AfterValidator, BaseModel, Field, StringConstraints

from app.api.common import DEFAULT_PAGE, Cursor, Limit, Model, Name, StoredUserName, clean, decode_cursor, paged
from app.api.scope import Admitted, CallerScope, Gate
from app.clock import Clock, SystemClock
from app.console import failing_clearly, load_settings, show, with_database
from app.errors import BadBody, Conflict, NotFound
from app.features import Process
from app.settings import Settings
from app.store import ids
from app.store.memories import IN_FORCE
from app.store.pools import Pool, command_pool
from app.store.queries import Queries
from app.store.records import LoggedConflict
from app.store.tenancy import Tenancy

Keep = Literal["memory", "domain", "other", "both"]


class ConflictStore:
    def __init__(self, pool: Pool, sql: Queries, clock: Clock) -> None:
        self._pool = pool
        self._sql = sql
        self._clock = clock

    async def page(
        self,
        tenant: UUID,
        user: UUID | None = None,
        *,
        status: str | None = None,
        kind: str | None = None,
        entity: str | None = None,
        after: tuple[datetime, UUID] | None = None,
        limit: int,
    ) -> list[LoggedConflict]:
        """Contradictions, newest first, after a place in that order. None: of all users, open or
        resolved, of any type, about anything."""
        asked: list[object] = [
            tenant,
            None if status is None else status == "open",
            kind,
            entity,
            *(after or (None, None)),
            limit,
        ]
        name = "conflicts.list_of_tenant"
        if user is not None:
            name = "conflicts.list_of_user"
            asked.append(user)
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql[name], *asked)
        return [LoggedConflict(**dict(row)) for row in rows]

    async def one(self, tenant: UUID, conflict: UUID, user: UUID | None = None) -> LoggedConflict | None:
        """A contradiction; `user`: only of this one. None: there is none."""
        async with self._pool.transaction(tenant) as connection:
            row = await connection.fetchrow(self._sql["conflicts.one"], tenant, conflict, user)
        return LoggedConflict(**dict(row)) if row is not None else None

    async def resolve(
        self,
        tenant: UUID,
        user: UUID,
        conflict: UUID,
        keep: Keep,
        *,
        memory: UUID | None = None,
        note: str | None = None,
    ) -> None:
        """Decide it: what stands is in force, what does not is not. `memory`: which memory stands, where there are two. Raises
        NotFound, Conflict where it is decided, or BadBody where it has no such side."""
        now = self._clock.now()
        async with self._pool.transaction(tenant) as connection:
            await connection.execute(self._sql["learning.lock"], user)
            held = await connection.fetchrow(self._sql["conflicts.hold"], tenant, user, conflict)
            if held is None:
                raise NotFound("There is no such conflict.")
            if held["resolved_at"] is not None:
                raise Conflict("This conflict is resolved already.", code="resolved")
            stays, goes = _sides(held["memory_ids"], "db_source" in held["conflict_data"], keep, memory)
            rows = await connection.fetch(self._sql["conflicts.held_memories"], tenant, user, [*stays, *goes])
            memories = {row["memory_id"]: row for row in rows}
            outcome: dict[str, Any] = {
                "action": "keep_both" if keep == "both" else "keep_memory" if stays else "supersede_memory",
                "keep": keep,
                "memory_updates": [{"memory_id": each, "new_status": "active"} for each in stays if each in memories]
                + [
                    {"memory_id": each, "new_status": "superseded" if stays else "invalidated"}
                    for each in goes
                    if each in memories
                ],
                "user_response": keep,
            }
            if note:
                outcome["note"] = note
            # First the log: what follows for the memories decides open contradictions.
            await connection.execute(self._sql["conflicts.resolve"], tenant, user, conflict, outcome, now)
            effects = _Effects(connection, self._sql, tenant, user, now)
            if keep == "both":
                await effects.stand(stays)
                return
            for each in goes:
                if each in memories:
                    await effects.end(memories[each], stays[0] if stays else None)
            for each in stays:
                if each in memories:
                    await effects.keep(memories[each])


def _sides(memories: Sequence[UUID], has_row: bool, keep: Keep, memory: UUID | None) -> tuple[list[UUID], list[UUID]]:
    """The memories that stay, and those that go."""
    if memory is not None and memory not in memories:
        raise BadBody("This memory has no part in the conflict.", param="memory_id")
    if keep == "domain":
        if not has_row:
            raise BadBody("No row has a part in this conflict: keep `memory`, `other` or `both`.", param="keep")
        return [], list(memories)
    if keep == "both":
        return list(memories), []
    if keep == "other" and len(memories) < 2:
        raise BadBody("This conflict has one memory: keep `memory`, `domain` or `both`.", param="keep")
    stays = memory if memory is not None else memories[0 if keep == "memory" else 1]
    return [stays], [each for each in memories if each != stays]


class _Effects(Struct, frozen=True):
    """What a decision does to memories, within its transaction."""

    connection: PoolConnectionProxy[Any]
    sql: Queries
    tenant: UUID
    user: UUID
    now: datetime

    async def end(self, row: Any, heir: UUID | None) -> None:
        if row["status"] not in IN_FORCE:
            return
        memory = row["memory_id"]
        after: dict[str, Any]
        if heir is None:
            await self._run("memories.set_status", memory, "invalidated", self.now, self.now)
            after = {"status": "invalidated"}
        else:
            await self._run("lifecycle.supersede", memory, heir, self.now)
            after = {"status": "superseded", "superseded_by": heir}
        await self._tell(memory, after["status"], row["status"], after)

    async def keep(self, row: Any) -> None:
        """The user vouches for it: back in force, where it was not."""
        memory = row["memory_id"]
        if row["status"] in IN_FORCE:
            await self.connection.fetchrow(self.sql["lifecycle.confirm"], self.tenant, self.user, memory, self.now)
            await self._tell(memory, "confirmed", row["status"], {"status": "active"})
            return
        try:
            async with self.connection.transaction():
                await self._run("memories.set_status", memory, "active", None, self.now)
        except UniqueViolationError as error:
            raise Conflict("Another memory in force says the same.") from error
        await self._tell(memory, "restored", row["status"], {"status": "active"})

    async def stand(self, memories: Sequence[UUID]) -> None:
        """In doubt no more, for this reason; nobody vouches for them."""
        sql = self.sql["conflicts.stand"]
        for row in await self.connection.fetch(sql, self.tenant, self.user, list(memories), self.now):
            await self._tell(row["memory_id"], "confirmed", "aging", {"status": "active"})

    async def _tell(self, memory: UUID, event: str, before: str, after: dict[str, Any]) -> None:
        told = after | {"reason": "conflict"}
        await self._run("memories.event", memory, self.now, event, {"status": before}, told, "api")

    async def _run(self, name: str, *arguments: object) -> None:
        await self.connection.execute(self.sql[name], self.tenant, self.user, *arguments)


# --- /api/v1/conflicts ---------------------------------------------------------------------------------------------------

Type = Literal["memory_vs_memory", "memory_vs_db", "temporal"]
MAX_NOTE_CHARS = 2000
"""Longest note, characters: why somebody decided so."""


class Resolution(Model):
    """What stands. `memory_id`: which memory, where there are two."""

    keep: Keep = Field(description="memory: the (first) memory; other: the second; domain: the row; both.")
    memory_id: UUID | None = None
    note: Annotated[str, StringConstraints(max_length=MAX_NOTE_CHARS), AfterValidator(clean)] | None = None


class ConflictOut(BaseModel):
    """A contradiction: `data` and `outcome` are seed 004's `conflict_data` and `resolution_outcome`."""

    id: UUID
    user: str | None
    session_id: UUID | None
    type: Type
    entity: str | None
    predicate: str | None
    status: Literal["open", "resolved"]
    strategy: str | None
    memory_ids: list[UUID]
    data: dict[str, Any]
    outcome: dict[str, Any] | None
    message_id: UUID | None
    created_at: datetime
    resolved_at: datetime | None


class ConflictPage(BaseModel):
    conflicts: list[ConflictOut]
    next: str | None


def conflicts_router(gate: Gate, conflicts: ConflictStore) -> APIRouter:
    async def _named(scope: CallerScope, text: str) -> LoggedConflict:
        conflict = ids.issued(text)
        named = scope.named()
        found = None
        if conflict is not None:
            found = await conflicts.one(scope.tenant, conflict, named.id if named else None)
        if found is None:
            raise NotFound("There is no such conflict.")
        return found

    async def listing(
        scope: Admitted,
        user: Annotated[StoredUserName | None, Query(description="Of this user only.")] = None,
        status: Literal["open", "resolved"] | None = None,
        type: Annotated[Type | None, Query(description="Of this type only.")] = None,  # noqa: A002 - the parameter's name
        entity: Annotated[Name | None, Query(description="About this thing: its id.")] = None,
        limit: Limit = DEFAULT_PAGE,
        cursor: Cursor = None,
    ) -> ConflictPage:
        """List contradictions, newest first."""
        after = decode_cursor(cursor, (datetime, UUID))
        named = scope.named(user)
        rows = await conflicts.page(
            scope.tenant,
            named.id if named else None,
            status=status,
            kind=type,
            entity=entity,
            after=after and (after[0], after[1]),
            limit=limit + 1,
        )
        page, following = paged(rows, limit, lambda row: (row.created_at, row.conflict_id))
        return ConflictPage(conflicts=[conflict_out(row) for row in page], next=following)

    async def get(scope: Admitted, conflict_id: str) -> ConflictOut:
        """Read a contradiction: both sides, and what became of it."""
        return conflict_out(await _named(scope, conflict_id))

    async def resolve(scope: Admitted, conflict_id: str, body: Resolution) -> ConflictOut:
        """Decide an open contradiction. What stands is in force afterwards, what does not is invalidated or superseded. 409: it
        is resolved already."""
        found = await _named(scope, conflict_id)
        await conflicts.resolve(
            scope.tenant, found.user_id, found.conflict_id, body.keep, memory=body.memory_id, note=body.note
        )
        return await get(scope, conflict_id)

    router = gate.router("conflicts")
    router.add_api_route("/conflicts", listing, methods=["GET"], response_model=ConflictPage)
    router.add_api_route("/conflicts/{conflict_id}", get, methods=["GET"], response_model=ConflictOut)
    router.add_api_route("/conflicts/{conflict_id}/resolve", resolve, methods=["POST"], response_model=ConflictOut)
    return router


def conflict_out(row: LoggedConflict) -> ConflictOut:
    data = row.conflict_data
    first: dict[str, Any] = data.get("memory") or next(iter(data.get("memories") or ()), {})
    return ConflictOut(
        id=row.conflict_id,
        user=row.user_external_id,
        session_id=row.session_id,
        type=row.conflict_type,
        entity=row.entity_id,
        predicate=first.get("predicate"),
        status="open" if row.resolved_at is None else "resolved",
        strategy=row.resolution_strategy,
        memory_ids=row.memory_ids,
        data=data,
        outcome=row.resolution_outcome,
        message_id=row.detected_at_message,
        created_at=row.created_at,
        resolved_at=row.resolved_at,
    )


def routes(process: Process, settings: Settings, gate: Gate) -> Sequence[APIRouter]:
    return (conflicts_router(gate, ConflictStore(process.pool, process.queries, process.clock)),)


# --- `mneme conflicts` ---------------------------------------------------------------------------------------------------

T = TypeVar("T")

PAGE = 100
"""Contradictions listed, unless another number is asked for."""
MAX_PAGE = 1000

_TENANT = click.option("--tenant", default="local", show_default=True, help="Name of the tenant.")
_USER = click.option("--user", help="Of this user only, as the application calls them.")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _with_store(tenant: str, work: Callable[[ConflictStore, UUID], Coroutine[Any, Any, T]]) -> T:
    settings = load_settings()

    async def run(dsn: str) -> T:
        async with command_pool(settings, dsn) as pool:
            sql, clock = Queries.load(), SystemClock()
            owner = await Tenancy(pool, sql, clock).tenant(tenant)
            if owner is None:
                raise NotFound(f"There is no tenant {tenant}.")
            return await work(ConflictStore(pool, sql, clock), owner)

    return with_database(settings, run)


async def _one(store: ConflictStore, tenant: UUID, conflict: UUID, user: str | None) -> LoggedConflict:
    found = await store.one(tenant, conflict, None if user is None else ids.user_id(tenant, user))
    if found is None:
        raise NotFound("There is no such conflict.")
    return found


@click.group()
def conflicts() -> None:
    """Contradictions between memories, and with the business's own database."""


@conflicts.command("list")
@_TENANT
@_USER
@click.option("--status", type=click.Choice(["open", "resolved"]), help="Only these.")
@click.option(
    "--type", "kind", type=click.Choice(["memory_vs_memory", "memory_vs_db", "temporal"]), help="Only of this type."
)
@click.option("--entity", help="Only about this thing, such as customer:gai_123.")
@click.option("--limit", type=click.IntRange(1, MAX_PAGE), default=PAGE, show_default=True, help="At most so many.")
@_JSON
@failing_clearly
def list_(
    tenant: str, user: str | None, status: str | None, kind: str | None, entity: str | None, limit: int, as_json: bool
) -> None:
    """List contradictions, the newest first."""

    async def work(store: ConflictStore, owner: UUID) -> list[ConflictOut]:
        whose = None if user is None else ids.user_id(owner, user)
        rows = await store.page(owner, whose, status=status, kind=kind, entity=entity, limit=limit)
        return [conflict_out(row) for row in rows]

    found = _with_store(tenant, work)

    def text() -> None:
        for each in found:
            click.echo(f"{each.id}  {each.status}  {each.user or ''}  {each.entity or ''}  {told(each)}")
        if not found:
            click.echo("None.")

    show([each.model_dump(mode="json") for each in found], as_json, text)


@conflicts.command("show")
@click.argument("conflict_id", type=click.UUID)
@_TENANT
@_USER
@_JSON
@failing_clearly
def show_(conflict_id: UUID, tenant: str, user: str | None, as_json: bool) -> None:
    """Show both sides of a contradiction, and what became of it."""
    _shown(_with_store(tenant, lambda store, owner: _one(store, owner, conflict_id, user)), as_json)


@conflicts.command("resolve")
@click.argument("conflict_id", type=click.UUID)
@click.option(
    "--keep",
    required=True,
    type=click.Choice(["memory", "domain", "other", "both"]),
    help="What stands: the (first) memory, the row, the second memory, or both.",
)
@click.option("--memory", type=click.UUID, help="Which memory, where there are two.")
@click.option("--note", help="Why.")
@_TENANT
@_USER
@_JSON
@failing_clearly
def resolve(
    conflict_id: UUID, keep: Any, memory: UUID | None, note: str | None, tenant: str, user: str | None, as_json: bool
) -> None:
    """Decide an open contradiction: what does not stand is not in force any more."""

    async def work(store: ConflictStore, owner: UUID) -> LoggedConflict:
        whose = (await _one(store, owner, conflict_id, user)).user_id
        await store.resolve(owner, whose, conflict_id, keep, memory=memory, note=note)
        return await _one(store, owner, conflict_id, user)

    _shown(_with_store(tenant, work), as_json)


def _shown(row: LoggedConflict, as_json: bool) -> None:
    found = conflict_out(row)

    def text() -> None:
        click.echo(f"{found.id}  {found.status}  {found.type}")
        click.echo(f"  {told(found)}")
        click.echo(f"  strategy: {found.strategy}")
        if found.data.get("reason"):
            click.echo(f"  noticed because: {found.data['reason']} (the helper LLM's judgement)")
        if found.outcome:
            why = found.outcome.get("rationale") or found.outcome.get("note") or ""
            click.echo(f"  outcome: {found.outcome.get('action', '')}  {why}".rstrip())

    show(found.model_dump(mode="json"), as_json, text)


def told(found: ConflictOut) -> str:
    """Both sides in a line: `payment_terms: "NET30" (memory) against "NET15" (domain.customers.payment_terms)`."""
    row = found.data.get("db_source")
    sides = [found.data["memory"]] if "memory" in found.data else list(found.data.get("memories") or ())
    said = [f'"{each.get("value")}" (memory)' for each in sides]
    if row:
        said.append(f'"{row["value"]}" ({row["table"]}.{row["field"]})')
    return f"{found.predicate or ''}: {' against '.join(said)}"
