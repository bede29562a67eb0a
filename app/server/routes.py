"""The routes under /api/v1 and those of operation, wired."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter

from app.api.intake import IntakeCheck, IntakePreparer
from app.api.memories import MemoryRoutes, memories_router
from app.api.ops import ops_router, queue_router, storage_router
from app.api.probes import Probes
from app.api.scope import Gate
from app.api.search import Filtering, SearchRoutes, search_router
from app.api.sessions import SessionRoutes, history_router, sessions_router, working_router
from app.api.spaces import spaces_router
from app.api.tenant import keys_router, tenant_router
from app.api.users import me_router, users_router
from app.context.transcript import chain, tail_hash
from app.features import Features
from app.jobs.learn import WorkingMemory
from app.memory.secrets import unwelcome
from app.metrics import Metrics
from app.optional import imported
from app.server.core import Core, process_of
from app.server.proxy import Proxy
from app.server.worker import eraser_of
from app.store.erasure import ERASER_ROLE, Deleter, own_connection
from app.store.history import History
from app.store.memories import Memories
from app.store.queue import Queue
from app.store.retention import Storage
from app.store.sessions import SESSION_TTL, Sessions
from app.store.spaces import SharedSpaces
from app.store.tenancy import Instructions
from app.store.validation import Validation


def open_routes(
    core: Core, proxy: Proxy, metrics: Metrics, probes: Probes, space: int | None, features: Features
) -> list[APIRouter]:
    """Wire the routes under /api/v1, those of the features last, and those of operation."""
    pool, sql, clock, settings = core.pools.background, core.queries, core.clock, core.settings
    gate = Gate(proxy.authenticator)
    sessions = Sessions(pool, sql, clock, ttl=SESSION_TTL, space=space)
    history = History(pool, sql, sessions, clock, chain=chain, tail=tail_hash, ttl=SESSION_TTL, space=space)
    memories = Memories(pool, sql, clock, space=space)
    spaces = SharedSpaces(pool, sql, clock)
    preparer = IntakePreparer(core.embedder, core.counter, clock)
    intake_check = IntakeCheck(unwelcome(settings.store_secrets, settings.refuse_pii, settings.refuse_patterns))
    as_eraser = own_connection(settings.direct(core.dsn), ERASER_ROLE)
    eraser = eraser_of(settings, features, settings.direct(core.dsn), sql, clock)
    deleter = Deleter(as_eraser, sql, clock)
    filtering, validation = (
        Filtering(memories, settings.memory_budget_tokens),
        Validation(pool, sql, clock, space=space),
    )
    of_sessions = SessionRoutes(sessions, history, proxy.path.cards, preparer, deleter)
    told = imported("commands.routes")
    latest = partial(told.latest, told.CommandStore(pool, sql, clock)) if told is not None else None
    process = process_of(core, metrics, space=space, path=proxy.path)
    return [
        ops_router(probes),
        search_router(gate, SearchRoutes(sessions, proxy.path.compiler, clock, filtering, spaces, proxy.path.knower)),
        memories_router(gate, MemoryRoutes(memories, sessions, validation, spaces, preparer, intake_check)),
        me_router(gate, latest),
        users_router(gate, proxy.tenancy, clock, eraser, core.tasks),
        spaces_router(gate, spaces, eraser, deleter, core.tasks),
        sessions_router(gate, of_sessions),
        history_router(gate, of_sessions),
        working_router(gate, sessions, WorkingMemory(pool, sql, clock)),
        queue_router(gate, Queue(pool, sql), core.helper_usage if core.helper is not None else None),
        keys_router(gate, proxy.tenancy, clock),
        storage_router(gate, Storage(pool, sql).figures),
        tenant_router(gate, Instructions(pool, sql, clock)),
        *features.routes(process, settings, gate),
    ]
