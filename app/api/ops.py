"""Operations: is it alive and ready, what is stored, what work is left; and /docs.

/docs is one page without script, style sheet or any other asset: FastAPI's own loads its assets from another site.
`/openapi.json` has everything, for whichever viewer one prefers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import datetime
from html import escape
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Request
from msgspec import Struct
from msgspec.structs import asdict
from pydantic import BaseModel
from starlette.responses import HTMLResponse, JSONResponse, Response

from app.api.common import DEFAULT_PAGE, Cursor, Limit, decode_cursor, encode_cursor
from app.api.probes import Probes
from app.api.scope import Admitted, Gate
from app.errors import BadRequest, Forbidden, NotFound
from app.store.helper_usage import HelperUsage
from app.store.ids import LOCAL_TENANT
from app.store.queue import Queue
from app.store.retention import StoredTables, by_group

_MAX_JOB = 2**62
"""Bound of a job's number: within Postgres' bigint."""
_STYLE = (
    "body{font:16px/1.5 sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}code{background:#8882;padding:0 .2em}"
    "dt{margin-top:.5rem}dd{margin-left:1.5rem}summary{cursor:pointer}"
)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_METHODS = ("get", "post", "put", "patch", "delete")


# --- probes --------------------------------------------------------------------------------------------------------------


def ops_router(probes: Probes) -> APIRouter:
    """/healthz, /readyz and /metrics, for the OpenAPI document and for what `Probes` leaves."""

    async def metrics(accept: Annotated[str | None, Header()] = None) -> Response:
        """What was counted, for Prometheus."""
        return await probes.metrics(accept)

    router = APIRouter(tags=["operations"])
    router.add_api_route("/healthz", probes.healthz, methods=["GET"])
    router.add_api_route("/healthz", probes.healthz, methods=["HEAD"], include_in_schema=False)
    router.add_api_route("/readyz", probes.readyz, methods=["GET"], response_class=JSONResponse)
    router.add_api_route(
        "/readyz", probes.readyz, methods=["HEAD"], response_class=JSONResponse, include_in_schema=False
    )
    router.add_api_route("/metrics", metrics, methods=["GET"], response_class=Response)
    return router


# --- storage -------------------------------------------------------------------------------------------------------------


class StoredOut(BaseModel):
    """A group of tables, or one month of it: bytes of files, indexes included; rows as Postgres estimates them."""

    group: str
    month: str | None
    bytes: int
    rows: int


class StorageOut(BaseModel):
    """How much is stored, of all tenants together: files do not know tenants."""

    bytes: int
    groups: dict[str, int]
    tables: list[StoredOut]


def storage_router(gate: Gate, figures: Callable[[], Awaitable[list[StoredTables]]]) -> APIRouter:
    """/api/v1/storage."""

    async def storage(scope: Admitted) -> StorageOut:
        """How much is stored, by group of tables and by month. For keys of the tenant `local` only, who is the operator."""
        if scope.confined is not None or scope.tenant != LOCAL_TENANT:
            raise Forbidden(
                "Storage is everybody's: it is told to keys of the tenant `local`, made for no single user."
            )
        found = await figures()
        groups = by_group(found)
        tables = [StoredOut.model_validate(each, from_attributes=True) for each in found]
        return StorageOut(bytes=sum(groups.values()), groups=groups, tables=tables)

    router = gate.router("operations")
    router.add_api_route("/storage", storage, methods=["GET"])
    return router


# --- the queue -----------------------------------------------------------------------------------------------------------


class HelperOut(BaseModel):
    """What the helper LLM was used for today (UTC), for all tenants together. `messages`: those of users that it read;
    `unread_…`: those that it did not, by reason; `tokens_per_day`: its budget, 0 for none."""

    calls: int
    tokens: int
    tokens_per_day: int
    messages: int
    unread_budget: int
    unread_shape: int
    unread_away: int


class QueueOut(BaseModel):
    """The work that memory still has to do now; what is scheduled for later is not in it. `dead`: jobs that failed for good.
    `helper`: left out where there is no helper LLM, and for keys other than the operator's (see `/storage`)."""

    queued: int
    running: int
    dead: int
    helper: HelperOut | None = None


class DeadOut(BaseModel):
    """A job that failed for good. `payload` holds ids, never texts."""

    id: int
    entrypoint: str
    payload: dict[str, Any]
    attempts: int
    created_at: datetime
    failed_at: datetime
    error: str | None


class DeadPage(BaseModel):
    dead: list[DeadOut]
    next: str | None


class Retried(BaseModel):
    id: int
    retried: bool


def queue_router(gate: Gate, queue: Queue, usage: HelperUsage | None) -> APIRouter:
    """/api/v1/queue, of the key's tenant. `usage`: of the helper LLM; None: there is none."""
    routes = _QueueRoutes(queue, usage)
    router = gate.router("queue")
    router.add_api_route("/queue", routes.counts, methods=["GET"], response_model_exclude_none=True)
    router.add_api_route("/queue/dead", routes.dead, methods=["GET"])
    router.add_api_route("/queue/dead/{job}/retry", routes.retry, methods=["POST"])
    return router


class _QueueRoutes(Struct, frozen=True):
    queue: Queue
    usage: HelperUsage | None

    async def counts(self, scope: Admitted) -> QueueOut:
        """How much work is left."""
        found = await self.queue.counts(scope.tenant)
        helper = None
        if self.usage is not None and scope.confined is None and scope.tenant == LOCAL_TENANT:
            day = asdict(await self.usage.read_day())
            helper = HelperOut(**day, tokens_per_day=self.usage.tokens_per_day)
        return QueueOut(queued=found.queued, running=found.running, dead=found.dead, helper=helper)

    async def dead(self, scope: Admitted, limit: Limit = DEFAULT_PAGE, cursor: Cursor = None) -> DeadPage:
        """List jobs that failed for good, newest first, each with its last error."""
        _whole_tenant(scope.confined)
        (after,) = decode_cursor(cursor, (str,)) or (None,)
        if after is not None and not (after.isascii() and after.isdigit() and int(after) <= _MAX_JOB):
            raise BadRequest("This cursor is not one that this list gave out.", param="cursor")
        before = int(after) if after is not None else None
        found, following = await self.queue.dead_letters(limit, before, scope.tenant)
        return DeadPage(
            dead=[DeadOut.model_validate(each, from_attributes=True) for each in found],
            next=encode_cursor([str(following)]) if following is not None else None,
        )

    async def retry(self, scope: Admitted, job: Annotated[int, Path(ge=0, le=_MAX_JOB)]) -> Retried:
        """Try a job again that failed for good. 409: the same work was queued since."""
        _whole_tenant(scope.confined)
        if not await self.queue.retry(job, scope.tenant):
            raise NotFound("There is no such dead letter.")
        return Retried(id=job, retried=True)


def _whole_tenant(confined: str | None) -> None:
    if confined is not None:
        raise Forbidden("This key was made for one user; jobs belong to the whole tenant.")


# --- the reference -------------------------------------------------------------------------------------------------------


def reference_router() -> APIRouter:
    """GET /docs."""

    async def docs(request: Request) -> HTMLResponse:
        return HTMLResponse(page(request.app.openapi()), headers={"content-security-policy": _POLICY})

    router = APIRouter()
    router.add_api_route("/docs", docs, methods=["GET"], include_in_schema=False)
    return router


def page(schema: Mapping[str, Any]) -> str:
    """An OpenAPI document as HTML, its operations by tag."""
    title = escape(f"{schema['info']['title']} {schema['info']['version']}")
    groups: dict[str, list[str]] = {}
    for path, operations in schema["paths"].items():
        for method in _METHODS:
            if (operation := operations.get(method)) is not None:
                tag = (operation.get("tags") or ["other"])[0]
                groups.setdefault(tag, []).append("".join(_operation(method, path, operation)))
    parts = [f"<h2>{escape(tag)}</h2>{''.join(found)}" for tag, found in groups.items()]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style><h1>{title}</h1>'
        "<p>Everything under <code>/v1</code> is the upstream’s own. The whole description, with all schemas: "
        f'<a href="openapi.json">openapi.json</a>.</p>{"".join(parts)}</html>'
    )


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"<details><summary><code>{method.upper()} {escape(path)}</code></summary>"
    yield f"<p>{escape(operation.get('description') or operation.get('summary') or '')}</p><dl>"
    for each in operation.get("parameters", ()):
        needed = ", required" if each.get("required") else ""
        yield f"<dt><code>{escape(each['name'])}</code> ({escape(each['in'])}{needed})</dt>"
        yield f"<dd>{escape(each.get('description', ''))}</dd>"
    for kind, body in operation.get("requestBody", {}).get("content", {}).items():
        yield f"<dt>body, <code>{escape(kind)}</code></dt><dd>{escape(_schema_name(body.get('schema', {})))}</dd>"
    yield "</dl></details>"


def _schema_name(schema: Mapping[str, Any]) -> str:
    """What a schema is called."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(_schema_name(each) for each in options)
    if schema.get("type") == "array":
        return f"list of {_schema_name(schema.get('items', {}))}"
    return str(schema.get("title") or schema.get("type") or "")
