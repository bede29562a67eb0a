"""/api/v1/insights: what the business's own tables are asked again and again, and whose memory the answers become."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Path, Response
from pydantic import AfterValidator, BaseModel, Field, StringConstraints

from app.api.common import DEFAULT_PAGE, Cursor, Limit, Model, Word, clean, decode_cursor, paged
from app.api.scope import Admitted, CallerScope, Gate
from app.api.tenant import check_admin
from app.clock import Clock
from app.errors import NotFound
from app.features.insights.engine import DomainAsker, Insight, InsightStore, StoredInsight, bounds_of, said

MAX_SQL_CHARS = 8000
"""Longest query, characters: what is longer belongs into a view of the domain's."""
MAX_TITLE_CHARS = 200
MAX_UNIT_CHARS = 40
MAX_PERIOD_DAYS = 366
MAX_EVERY_HOURS = 24 * 31

NameInPath = Annotated[str, Path(pattern=r"^[a-z][a-z0-9_-]{0,62}$")]


def _line(length: int, least: int = 1) -> StringConstraints:
    return StringConstraints(strip_whitespace=True, min_length=least, max_length=length, pattern=r"^[^\r\n]*$")


class InsightIn(Model):
    """What is asked."""

    domain: Word = Field(description="One of the tenant's domains (MNEME_DOMAINS).")
    title: Annotated[str, _line(MAX_TITLE_CHARS), AfterValidator(clean)] = Field(
        description="What the figures are: `Views of the blog`."
    )
    unit: Annotated[str, _line(MAX_UNIT_CHARS, 0), AfterValidator(clean)] = ""
    sql: Annotated[str, StringConstraints(min_length=1, max_length=MAX_SQL_CHARS), AfterValidator(clean)] = Field(
        description="One SELECT with a column `value` and at most `label` beside it. `$1` and `$2`: the period's begin, and "
        "its end, which is not in it any more."
    )
    period_days: Annotated[int, Field(ge=1, le=MAX_PERIOD_DAYS)] = 7
    every_hours: Annotated[int, Field(ge=1, le=MAX_EVERY_HOURS)] = 6

    def named(self, name: str) -> Insight:
        return Insight(name, self.domain, self.title, self.sql, self.unit, self.period_days, self.every_hours)


class Tried(BaseModel):
    """What it would say now. `text` null: there is nothing to say. `change`: against the period before, as a share of that."""

    text: str | None
    kind: Literal["fact", "pattern"] | None
    total: float | None
    change: float | None


class InsightOut(BaseModel):
    """An insight. `memory`: what it said last; `error`: why it said nothing when it was last asked."""

    name: str
    user: str
    domain: str
    title: str
    unit: str
    sql: str
    period_days: int
    every_hours: int
    due_at: datetime
    ran_at: datetime | None
    memory: UUID | None
    error: str | None


class InsightPage(BaseModel):
    insights: list[InsightOut]
    next: str | None


class InsightDeleted(BaseModel):
    name: str
    deleted: bool


def insights_router(gate: Gate, store: InsightStore, caller: DomainAsker, clock: Clock) -> APIRouter:
    """All for a key that may manage the tenant: a query reads whatever the domain's role may read, of whomever."""

    async def _tried(scope: CallerScope, insight: Insight) -> Tried:
        bounds = bounds_of(insight.period_days, clock.now())
        told = said(insight, await caller.ask(scope.tenant, insight.domain, insight.source, bounds), bounds)
        if told is None:
            return Tried(text=None, kind=None, total=None, change=None)
        return Tried(text=told.text, kind=told.kind, total=told.total, change=told.change)

    async def _one(scope: CallerScope, name: str) -> StoredInsight:
        found = await store.one(scope.tenant, scope.user().id, name)
        if found is None:
            raise NotFound("There is no such insight.")
        return found

    async def listing(scope: Admitted, limit: Limit = DEFAULT_PAGE, cursor: Cursor = None) -> InsightPage:
        """List the insights of a user or of all, with a key that may manage the tenant."""
        check_admin(scope)
        after = decode_cursor(cursor, (UUID, str))
        named = scope.named()
        rows = await store.page(
            scope.tenant, named.id if named else None, after=after and (after[0], after[1]), limit=limit + 1
        )
        page, following = paged(rows, limit, lambda row: (row.user_id, row.name))
        return InsightPage(insights=[_out(row) for row in page], next=following)

    async def dry_run(scope: Admitted, body: InsightIn) -> Tried:
        """Ask once what an insight would say now, and keep nothing."""
        check_admin(scope)
        return await _tried(scope, body.named("dry-run"))

    async def get(scope: Admitted, name: NameInPath) -> InsightOut:
        """Read an insight."""
        check_admin(scope)
        return _out(await _one(scope, name))

    async def put(scope: Admitted, response: Response, name: NameInPath, body: InsightIn) -> InsightOut:
        """Say what is asked again and again (201: it is new). It is asked once before it is kept: what the domain refuses is
        refused."""
        check_admin(scope)
        user, insight = scope.user(), body.named(name)
        await _tried(scope, insight)
        if await store.put(scope.tenant, user, insight):
            response.status_code = 201
        return _out(await _one(scope, name))

    async def delete(scope: Admitted, name: NameInPath) -> InsightDeleted:
        """Ask no more. What it said last stays until it expires; forget it under /api/v1/memories."""
        check_admin(scope)
        if not await store.drop(scope.tenant, scope.user().id, name):
            raise NotFound("There is no such insight.")
        return InsightDeleted(name=name, deleted=True)

    router = gate.router("knowledge")
    one = "/insights/{name}"
    router.add_api_route("/insights", listing, methods=["GET"], response_model=InsightPage)
    router.add_api_route("/insights/dry-run", dry_run, methods=["POST"], response_model=Tried)
    router.add_api_route(one, get, methods=["GET"], response_model=InsightOut)
    router.add_api_route(one, put, methods=["PUT"], response_model=InsightOut)
    router.add_api_route(one, delete, methods=["DELETE"], response_model=InsightDeleted)
    return router


def _out(row: StoredInsight) -> InsightOut:
    return InsightOut(
        name=row.name,
        user=row.user_external_id,
        domain=row.domain,
        title=row.title,
        unit=row.unit,
        sql=row.source,
        period_days=row.period_days,
        every_hours=row.every_hours,
        due_at=row.due_at,
        ran_at=row.ran_at,
        memory=row.memory_id,
        error=row.error,
    )
