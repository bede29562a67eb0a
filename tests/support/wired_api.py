"""The API of /api/v1, put together for tests: real Postgres behind them, stand-ins for what is not theirs."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Mapping, Sequence, Set
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from hashlib import blake2b
from typing import Any, Literal, cast
from uuid import UUID

import asyncpg
import httpx
import numpy as np
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from numpy.typing import NDArray
from starlette.types import Receive, Scope, Send

from app.api.auth import Authenticator
from app.api.common import ApiMiddleware, add_routes, install_errors
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
from app.capture.record import Recorder
from app.clock import SystemClock
from app.context import transcript
from app.context.compile import Compiler
from app.context.request import SearchRequest, SearchResult
from app.errors import UpstreamUnreachable
from app.features.calls import calls_router
from app.features.cards.keeper import CardKeeper
from app.features.cards.routes import cards_router
from app.features.cards.store import Cards
from app.features.chat import LEARN_WAIT_MS, LearnedTurns, chat_router
from app.features.commands.routes import commands_router, latest
from app.features.commands.store import CommandStore
from app.features.conflicts import ConflictStore, conflicts_router
from app.features.consolidation.routes import consolidation_router
from app.features.consolidation.store import ConsolidationStore
from app.features.facts import Facts, facts_router
from app.features.insights.engine import DomainAsker as DomainAsker
from app.features.insights.engine import InsightStore
from app.features.insights.routes import insights_router
from app.features.knowledge.entities import EntityStore
from app.features.knowledge.ontologies import OntologyStore
from app.features.knowledge.ontology import NO_ONTOLOGY, Ontology
from app.features.knowledge.resolution import Finder
from app.features.knowledge.resolve import Resolver
from app.features.knowledge.routes import entities_router, ontology_router
from app.features.limits.limiter import LimitStore, SpendStore, spend_router
from app.features.outcomes import Outcomes, outcomes_router
from app.features.overview import OverviewStore, overview_router
from app.features.paging.faults import Writer
from app.features.paging.routes import objects_router
from app.features.paging.store import ObjectStore, PagingStore
from app.features.preview import Previewer, PreviewRequest, context_router
from app.features.replay.routes import Replayer, replay_router
from app.features.replay.store import ReplayStore
from app.features.transfer.routes import Importer, cassettes_router, export_router, importer_router
from app.features.transfer.store import CassetteStore, Export
from app.gateway.forward import Outgoing, Sender
from app.gateway.upstream import Router
from app.jobs.learn import WorkingMemory
from app.memory.secrets import unwelcome
from app.metrics import Exposition, Metrics, process_registry
from app.providers.models import ModelRegistry
from app.providers.tokens import CountCache
from app.settings import Settings
from app.store.captures import Captures
from app.store.erasure import ERASER_ROLE, Deleter, Eraser, own_connection
from app.store.history import History
from app.store.memories import Memories
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.queue import Queue
from app.store.records import ResolutionStore
from app.store.retention import Storage
from app.store.sessions import Sessions
from app.store.spaces import SharedSpaces
from app.store.tenancy import Instructions, Tenancy
from app.store.turns import TurnStore
from app.store.validation import Validation
from app.tasks import Supervisor
from tests.support.clock import FakeClock
from tests.support.journey import TOKENIZERS, UPSTREAM, Journey, build_journey
from tests.support.rows import ensure_space

DIMENSIONS = 8
SPACE = "test-8"
TTL = timedelta(days=90)
MAX_BODY = 1024 * 1024
PATIENT_MS = 20_000
"""A slow machine must not cost a test its memory."""


class HashEmbedder:
    """A vector for each text, from its hash: equal texts have equal vectors, and that is all there is to them."""

    space = SPACE
    dimensions = DIMENSIONS
    local = True
    duplicate_threshold = 0.99

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = [np.frombuffer(blake2b(each.encode(), digest_size=DIMENSIONS).digest(), np.uint8) for each in texts]
        out = np.array([row.astype(np.float32) + 1 for row in rows]).reshape(len(texts), DIMENSIONS)
        out /= np.linalg.norm(out, axis=1, keepdims=True)
        out[[not each.strip() for each in texts]] = 0
        return out

    async def close(self) -> None:
        return None


class WordCounter:
    """A token is a word."""

    name = "words"
    exact = True
    margin = 0.0

    def count(self, text: str) -> int:
        return len(text.split())


@dataclass
class StubSearcher:
    """Notes what it was asked, and answers what it was told."""

    result: SearchResult = field(default_factory=lambda: SearchResult((), 0))
    asked: list[SearchRequest] = field(default_factory=list)

    async def search(self, request: SearchRequest) -> SearchResult:
        self.asked.append(request)
        return self.result


@dataclass
class StubPreviewer:
    """The same for compiling."""

    asked: list[PreviewRequest] = field(default_factory=list)

    async def preview(self, request: PreviewRequest) -> dict[str, Any]:
        self.asked.append(request)
        return {"messages": list(request.messages), "budget": {}, "strategy": "auto", "items": []}


class UnreachableSender:
    """Reaches no upstream."""

    async def send(self, outgoing: Outgoing) -> Any:
        raise UpstreamUnreachable("no upstream")


class Part:
    """What a router has instead of the store, clock or gateway of this name: that of the app which is asked. So all apps of a
    process share their routers, which take longer to make than most requests to answer."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(_parts.get()[self._name], name)

    def __call__(self, *given: Any, **more: Any) -> Any:
        return _parts.get()[self._name](*given, **more)

    def __iter__(self) -> Iterator[Any]:
        return iter(_parts.get()[self._name])


_parts: ContextVar[Mapping[str, Any]] = ContextVar("parts")
"""Those of the app that is asked; none while a router is made, which may not look at them."""
_routers: dict[Hashable, tuple[APIRouter, list[re.Pattern[str]]]] = {}
"""The routers of this process, and the paths of each."""


class RoutesApp(FastAPI):
    """Has a router when the first request for one of its paths comes: most tests knock at one or two. They stand in the order
    of their makers all the same. `parts`: what the routers ask of this app; `made_of`: what else they are made of."""

    def __init__(self, parts: Mapping[str, Any], made_of: Hashable, *makers: Callable[[], APIRouter]) -> None:
        super().__init__()
        self._parts = parts
        self._makers: dict[Hashable, Callable[[], APIRouter]] = {(made_of, n): make for n, make in enumerate(makers)}
        self._own = list(self.router.routes)
        self._here: set[Hashable] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if len(self._here) < len(self._makers):
            path = scope.get("path", "")
            known = self._makers.keys() & _routers.keys()
            self._have({each for each in known if any(pattern.match(path) for pattern in _routers[each][1])})
        before = _parts.set(self._parts)
        try:
            await super().__call__(scope, receive, send)
        finally:
            _parts.reset(before)

    def openapi(self) -> dict[str, Any]:
        self._have(set())
        return super().openapi()

    def _have(self, wanted: Set[Hashable]) -> None:
        """These, or all, where none is known to be wanted."""
        wanted = wanted or self._makers.keys()
        if wanted <= self._here:
            return
        for each in wanted - _routers.keys():
            made = self._makers[each]()
            _routers[each] = made, [route.path_regex for route in made.routes if isinstance(route, APIRoute)]
        self._here |= wanted
        self.router.routes[:] = self._own
        for each in self._makers:
            if each in self._here:
                add_routes(self, _routers[each][0])


@dataclass
class WiredApi:
    """An app of all routers, and what stands behind them."""

    app: FastAPI
    clock: FakeClock
    tenancy: Tenancy
    authenticator: Authenticator
    sessions: Sessions
    history: History
    memories: Memories
    captures: Captures
    queue: Queue
    preparer: IntakePreparer
    metrics: Metrics
    searcher: StubSearcher
    previewer: StubPreviewer
    checks: dict[str, Any]
    journey: Journey
    """The gateway behind the chat's route, and its scripted upstream."""

    @asynccontextmanager
    async def client(
        self, key: str | None = None, *, forgiving: bool = False, **headers: str
    ) -> AsyncIterator[httpx.AsyncClient]:
        """A client of the app; `key` goes into Authorization. `forgiving`: a surprise inside is answered, as a server
        would, rather than raised here."""
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=not forgiving)
        async with httpx.AsyncClient(transport=transport, base_url="http://mneme", headers=headers) as client:
            yield client


@cache
def _patient() -> Settings:
    """Of the gateway behind the chat's route. To read settings takes 10 ms."""
    return Settings(upstream_base_url=UPSTREAM, retrieval_deadline_ms=PATIENT_MS)


async def build_api(
    pool: Pool,
    space: int,
    *,
    auth: Literal["open", "keys"] = "open",
    dsn: str = "postgresql://127.0.0.1:1/none",
    finder: Finder | None = None,
    ontology: Ontology | None = None,
    learn_wait_ms: int = LEARN_WAIT_MS,
    **given: Any,
) -> WiredApi:
    """The API on a database whose space `SPACE` has the number `space`. `dsn`: for what erases. `finder`, `ontology`: the
    business's own database. `given`: settings."""

    async def ontology_of(tenant: UUID) -> Ontology:
        return ontology or NO_ONTOLOGY

    queries, clock = Queries.load(), FakeClock(datetime.now(UTC))
    settings = Settings(auth=auth, **given)
    tenancy = Tenancy(pool, queries, clock)
    authenticator = Authenticator(tenancy, settings, clock)
    sessions = Sessions(pool, queries, clock, space=space, ttl=TTL)
    history = History(
        pool, queries, sessions, clock, chain=transcript.chain, tail=transcript.tail_hash, ttl=TTL, space=space
    )
    memories = Memories(pool, queries, clock, space=space)
    captures, queue, cards = Captures(pool, queries), Queue(pool, queries), Cards(pool, queries)
    keeper = CardKeeper(cards, queries, Supervisor(), WordCounter().count, clock)
    preparer = IntakePreparer(HashEmbedder(), WordCounter(), clock)
    intake_check = IntakeCheck(unwelcome(settings.store_secrets, settings.refuse_pii, settings.refuse_patterns))
    recorder = Recorder(TurnStore(pool, queries), HashEmbedder(), CountCache(), WordCounter())
    deleter = Deleter(own_connection(dsn, ERASER_ROLE), queries, clock)
    entities = EntityStore(pool, queries, clock)
    resolver = Resolver(entities, finder, clock)
    registry = process_registry()
    metrics = Metrics(registry)
    journey = build_journey(
        TurnStore(pool, queries),
        embedder=HashEmbedder(),
        settings=_patient(),
        authenticator=authenticator,
        ledger=LimitStore(pool, queries),
    )
    searcher, previewer, checks = StubSearcher(), StubPreviewer(), dict[str, Any]()
    wired = WiredApi(
        app=FastAPI(), clock=clock, tenancy=tenancy, authenticator=authenticator, sessions=sessions, history=history,
        memories=memories, captures=captures, queue=queue, preparer=preparer, metrics=metrics, searcher=searcher,
        previewer=previewer, checks=checks, journey=journey,
    )  # fmt: skip
    gateway, caller = journey.gateway, DomainAsker(settings.domains, tenancy.tenant, queries)
    parts: dict[str, Any] = {
        "pool": pool, "clock": clock, "tenancy": tenancy, "authenticator": authenticator, "sessions": sessions,
        "history": history, "memories": memories, "captures": captures, "queue": queue, "cards": cards, "keeper": keeper,
        "scribe": preparer, "welcome": intake_check, "recorder": recorder, "deleter": deleter, "entities": entities,
        "resolver": resolver, "registry": registry, "metrics": metrics, "searcher": searcher, "previewer": previewer,
        "checks": checks, "gateway": gateway, "asker": caller,
    }  # fmt: skip
    (
        pool, clock, tenancy, authenticator, sessions, history, memories, captures, queue, cards, keeper, preparer,
        intake_check, recorder, deleter, entities, resolver, registry, metrics, searcher, previewer, checks, gateway, caller,
    ) = (cast(Any, Part(name)) for name in parts)  # fmt: skip
    gate = Gate(authenticator)
    made_of = (space, dsn, settings.default_model, learn_wait_ms, id(ontology))
    app = RoutesApp(
        parts,
        made_of,
        lambda: memories_router(
            gate,
            MemoryRoutes(
                memories,
                sessions,
                Validation(pool, queries, clock, space=space),
                SharedSpaces(pool, queries, clock),
                preparer,
                intake_check,
            ),
        ),
        lambda: spaces_router(
            gate,
            SharedSpaces(pool, queries, clock),
            Eraser(own_connection(dsn, ERASER_ROLE), queries, clock),
            Deleter(own_connection(dsn, ERASER_ROLE), queries, clock),
            Supervisor(),
        ),
        lambda: search_router(
            gate,
            SearchRoutes(
                sessions,
                cast("Compiler", searcher),
                clock,
                Filtering(memories, 1500),
                SharedSpaces(pool, queries, clock),
            ),
        ),
        lambda: context_router(gate, cast("Previewer", previewer)),
        lambda: chat_router(
            gate,
            gateway,
            LearnedTurns(pool, queries),
            SystemClock(),
            default_model=settings.default_model,
            learn_wait_ms=learn_wait_ms,
        ),
        lambda: commands_router(gate, CommandStore(pool, queries, clock), metrics),
        lambda: me_router(gate, partial(latest, CommandStore(pool, queries, clock))),
        lambda: users_router(
            gate, tenancy, clock, Eraser(own_connection(dsn, ERASER_ROLE), queries, clock), Supervisor()
        ),
        lambda: sessions_router(gate, SessionRoutes(sessions, history, keeper, preparer, deleter)),
        lambda: history_router(gate, SessionRoutes(sessions, history, keeper, preparer, deleter)),
        lambda: cards_router(gate, sessions, cards, keeper),
        lambda: objects_router(
            gate,
            sessions,
            ObjectStore(pool, queries),
            PagingStore(pool, queries, clock),
            Writer(WordCounter().count),
            clock,
        ),
        lambda: working_router(gate, sessions, WorkingMemory(pool, queries, clock)),
        lambda: consolidation_router(gate, sessions, ConsolidationStore(pool, queries)),
        lambda: calls_router(gate, captures, sessions, ResolutionStore(pool, queries)),
        lambda: replay_router(
            gate,
            Replayer(
                cast(Sender, UnreachableSender()),
                Router.from_settings(Settings(upstream_base_url=UPSTREAM)),
                captures,
                ReplayStore(pool, queries),
                ModelRegistry(),
                TOKENIZERS,
                clock,
                max_bytes=1_000_000,
            ),
        ),
        lambda: cassettes_router(gate, captures, CassetteStore(pool, queries), sessions, recorder, clock),
        lambda: importer_router(
            gate, Importer(sessions, history, preparer, SharedSpaces(pool, queries, clock), intake_check)
        ),
        lambda: queue_router(gate, queue, None),
        lambda: overview_router(gate, OverviewStore(pool, queries), clock, 1500),
        lambda: keys_router(gate, tenancy, clock),
        lambda: spend_router(gate, SpendStore(pool, queries), clock),
        lambda: storage_router(gate, Storage(pool, queries).figures),
        lambda: facts_router(gate, Facts(pool, queries, clock), intake_check),
        lambda: entities_router(gate, entities, resolver, sessions, clock, intake_check, ontology_of),
        lambda: outcomes_router(gate, Outcomes(pool, queries, clock), captures),
        lambda: tenant_router(gate, Instructions(pool, queries, clock)),
        lambda: ontology_router(gate, OntologyStore(pool, queries, clock)),
        lambda: insights_router(gate, InsightStore(pool, queries, clock), caller, clock),
        lambda: conflicts_router(gate, ConflictStore(pool, queries, clock)),
        lambda: export_router(gate, Export(pool, queries), tenancy, clock),
        lambda: ops_router(Probes(checks, Exposition(registry))),
    )
    install_errors(app)
    app.add_middleware(ApiMiddleware, max_bytes=MAX_BODY)
    wired.app = app
    return wired


async def make_space(admin: asyncpg.Connection[Any]) -> int:
    """The number of `SPACE`, made where it is missing."""
    return await ensure_space(admin, SPACE, DIMENSIONS)


async def all_pages(client: httpx.AsyncClient, path: str, name: str, **params: Any) -> list[dict[str, Any]]:
    """Every row of a list, page by page."""
    rows: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        query: Mapping[str, Any] = params | ({"cursor": cursor} if cursor else {})
        answer = await client.get(path, params=query)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        assert len(page[name]) <= params.get("limit", 100)
        rows += page[name]
        cursor = page["next"]
        if cursor is None:
            return rows


def error_of(answer: httpx.Response) -> dict[str, Any]:
    """The error of an answer, which must have OpenAI's shape."""
    body = answer.json()
    error: dict[str, Any] = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert error["message"]
    assert isinstance(error["type"], str)
    return error
