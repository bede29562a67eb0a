"""`mneme conflicts`: where memories contradict each other, or the business's own database; read and decided."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from uuid import UUID

import click

from app.clock import SystemClock
from app.console import failing_clearly, load_settings, show, with_database
from app.errors import NotFound
from app.features.conflicts.routes import ConflictOut, conflict_out
from app.features.conflicts.store import ConflictFilter, ConflictStore
from app.store import ids
from app.store.pools import command_pool
from app.store.queries import Queries
from app.store.tenancy import Tenancy

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


def _user_id(tenant: UUID, user: str | None) -> UUID | None:

    return None if user is None else ids.user_id(tenant, user)


async def _one(store: ConflictStore, tenant: UUID, conflict: UUID, user: str | None) -> tuple[UUID, ConflictOut]:

    found = await store.one(tenant, conflict, _user_id(tenant, user))
    if found is None:
        raise NotFound("There is no such conflict.")
    return found.user_id, conflict_out(found)


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

        state = None if status is None else status == "open"
        wanted = ConflictFilter(user=_user_id(owner, user), open=state, type=kind, entity=entity)
        return [conflict_out(row) for row in await store.page(owner, wanted, after=None, limit=limit)]

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
    _, found = _with_store(tenant, lambda store, owner: _one(store, owner, conflict_id, user))
    _shown(found, as_json)


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

    async def work(store: ConflictStore, owner: UUID) -> ConflictOut:
        whose, _ = await _one(store, owner, conflict_id, user)
        await store.resolve(owner, whose, conflict_id, keep, memory=memory, note=note)
        return (await _one(store, owner, conflict_id, user))[1]

    _shown(_with_store(tenant, work), as_json)


def _shown(found: ConflictOut, as_json: bool) -> None:
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
