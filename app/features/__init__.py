"""What the core does without: features, each a module or a folder of its own.

A feature is a subclass of `Feature`, and overrides the hooks by which it takes part: those of the base do nothing. `load` makes
those that the settings ask for; no feature knows another. The class is `FEATURE` of the module, or of the folder's `__init__`,
which imports next to nothing: what a hook needs it imports itself. What is routes and nothing else is in `ROUTES`.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Literal, TypeVar

from msgspec import DecodeError, Struct, json

from app.errors import BadBody, NotReady
from app.optional import imported, is_there, require
from app.settings import Settings

if TYPE_CHECKING:
    from fastapi import APIRouter
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics import MetricWrapperBase
    from starlette.types import ASGIApp

    from app.api.auth import Authenticator
    from app.api.common import KeepsCards
    from app.api.probes import Check
    from app.api.scope import Gate
    from app.clock import Clock
    from app.context.compile import Compiler
    from app.context.resolution import Knows
    from app.gateway.addon import Addon
    from app.gateway.call import Admits, Keeper
    from app.gateway.forward import Sender
    from app.gateway.headers import Redactor
    from app.gateway.turn import Application
    from app.gateway.turn import Authenticator as Authenticates
    from app.gateway.upstream import Router, Transport
    from app.jobs.learn import Hearing, Noting
    from app.jobs.schedule import Tick
    from app.jobs.worker import Connect, Handler
    from app.metrics import Metrics
    from app.providers.embeddings import Embedder
    from app.providers.helper import Helper
    from app.providers.models import ModelRegistry
    from app.providers.tokens import CountCache, Tokenizers
    from app.store.erasure import Elsewhere
    from app.store.pools import Pool
    from app.store.queries import Queries
    from app.store.turns import TurnStore
    from app.tasks import Supervisor


log = logging.getLogger("mneme")

T = TypeVar("T")


def parsed(payload: bytes, shape: type[T]) -> T:
    """A job's payload. Raises BadBody: what cannot be read now cannot be read later."""
    try:
        return json.decode(payload, type=shape)
    except DecodeError as error:
        raise BadBody("This job's payload cannot be read.") from error


class CallPath(Struct, frozen=True):
    """The path of a request, as routes have it: what these look for must not keep a prompt waiting. `nonce_key`: as the
    compiler has it."""

    turns: TurnStore
    compiler: Compiler
    nonce_key: bytes
    knower: Knows | None
    cards: KeepsCards | None
    addon: Addon | None
    router: Router
    sender: Sender
    gateway: Application


class Process(Struct, frozen=True):
    """What a feature may use of the process that it is in, a server's or the worker's.

    `pool`: for whatever no request under /v1 waits for. `owner`: connects as the owner of the tables, around PgBouncer; the
    name is what pg_stat_activity shows. `count`: tokens of o200k. `helper`: the helper LLM; None: there is none. `metrics`: a
    server's; None in what is no server. `space`: the number of the embedder's space; None: there is none, or no database
    yet. `path`: where routes are asked for.
    """

    clock: Clock
    queries: Queries
    pool: Pool
    owner: Callable[[str], Connect]
    embedder: Embedder
    count: Callable[[str], int]
    tasks: Supervisor
    models: ModelRegistry
    tokenizers: Tokenizers
    counts: CountCache
    helper: Helper | None = None
    metrics: Metrics | None = None
    space: int | None = None
    path: CallPath | None = None


class Finding(Struct, frozen=True):
    """One thing that `mneme doctor` looked at. `mend`: what to do, where something is to be done."""

    level: Literal["ok", "warning", "error"]
    what: str
    mend: str = ""


def writable(folder: Path) -> bool:
    """Whether a file can be made in a folder, or in the nearest one above it that is there."""
    while not folder.exists():
        folder = folder.parent
    try:
        with TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def sync(folder: Path) -> None:
    """The names in a folder are on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Around:
    """What is put around parts of the core: here nothing."""

    def metrics(self, registry: CollectorRegistry) -> Metrics:
        """The metrics of a server."""
        from app.metrics import Metrics

        return Metrics(registry)

    def gateway(self, gateway: Application) -> Application:
        """What answers under /v1."""
        return gateway

    def authenticator(self, authenticator: Authenticates) -> Authenticates:
        """The gateway's authenticator."""
        return authenticator

    def transports(self, transports: Mapping[bool, Transport]) -> Mapping[bool, Transport]:
        """To the upstreams, by whether their answers are only simulated."""
        return transports

    def handlers(self, handlers: Mapping[str, Handler]) -> Mapping[str, Handler]:
        """All jobs of the worker, by their entrypoint."""
        return handlers


class Feature:
    """A part of Mneme that the core does without. Made once in each process, from its settings."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    # --- in every process ------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises NotReady where it cannot start: before anything else does."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Around the life of the process: entered before anything is opened, left after all is closed. Raises NotReady."""
        yield

    @asynccontextmanager
    async def opened(self, process: Process) -> AsyncIterator[None]:
        """Around its work: entered when what it may use is open, left before that is closed."""
        yield

    # --- what takes part in requests and in learning ---------------------------------------------------------------------

    def knower(self, process: Process, pool: Pool) -> Knows | None:
        """In a server: who finds out what is known of the things that requests name. `pool`: what it reads with."""
        return None

    def addon(self, process: Process, pool: Pool) -> Addon | None:
        """In a server: what takes part in chats beside memory. `pool`: what it reads with."""
        return None

    def hearing(self, process: Process) -> Hearing | None:
        """What finds out which things a turn names, before it is learned from."""
        return None

    def noting(self, process: Process) -> Noting | None:
        """What notes more of a turn that is learned from."""
        return None

    def cards(self, process: Process, pool: Pool) -> KeepsCards | None:
        """In a server: who keeps the cards that are shown with answers. `pool`: what it reads and writes with."""
        return None

    def admits(self, process: Process, pool: Pool, models: ModelRegistry) -> Admits | None:
        """In a server: who lets calls in, and settles them when they are over. `pool`: what it waits for before a call."""
        return None

    def keeper(self, redactor: Redactor, tasks: Supervisor) -> Keeper | None:
        """In a server: who keeps calls until Postgres has them. Asked in a thread, before the database is there."""
        return None

    # --- what a server answers -------------------------------------------------------------------------------------------

    def routes(self, process: Process, gate: Gate) -> Sequence[APIRouter]:
        """Its routes under /api/v1, each made by `gate.router`."""
        return ()

    @asynccontextmanager
    async def mounts(
        self, authenticator: Authenticator, api: ASGIApp, gateway: Application
    ) -> AsyncIterator[Mapping[str, Callable[[], ASGIApp]]]:
        """Around the life of a server: by path, what makes the ASGI application that answers there and below. It is made, in a
        thread, when the first request asks for it. `api`, `gateway`: what answers under /api/v1 and /v1, asked from within."""
        yield {}

    def own_metrics(self, registry: CollectorRegistry) -> Sequence[MetricWrapperBase]:
        """Its metrics beside the core's, made in `registry`: once, before anything of a server is opened."""
        return ()

    def gauges(self, process: Process, metrics: Metrics) -> Sequence[Check]:
        """What brings its gauges up to date before /metrics shows them."""
        return ()

    # --- what the worker does --------------------------------------------------------------------------------------------

    def jobs(self, process: Process) -> Mapping[str, Handler]:
        """Its jobs, by their entrypoint in the queue."""
        return {}

    def ticks(self, queries: Queries) -> Sequence[Tick]:
        """What the schedule does for it again and again."""
        return ()

    async def work(self, process: Process, stop: asyncio.Event) -> None:
        """What it does beside the queue, until `stop`."""

    # --- what is erased ----------------------------------------------------------------------------------------------------

    def elsewhere(self, dsn: str, queries: Queries, clock: Clock) -> Sequence[Elsewhere]:
        """What erases users from where it keeps something of them, outside of Postgres. `dsn`: a direct way to the database."""
        return ()

    # --- what a command says ---------------------------------------------------------------------------------------------

    async def findings(self, dsn: str | None) -> Sequence[Finding]:
        """What `mneme doctor` says of it. `dsn`: a direct way to the database; None: it is away, or its schema does not fit."""
        return ()

    # --- what it puts around parts of the core ---------------------------------------------------------------------------

    def around(self) -> Around | None:
        """Asked while it runs."""
        return None


# --- which there are, which the settings ask for, and how all of those are asked -----------------------------------------

FEATURES: Mapping[str, str | None] = {
    "tracing": "otel", "knowledge": "domains", "paging": "paging", "webhooks": "webhooks", "mcp": "mcp", "ui": "ui",
    "insights": "insights", "limits": None, "cards": "card_tools",
    "consolidation": "consolidation", "archive": "history_days", "spool": None, "replicas": None, "transfer": None,
    "replay": None, "commands": None,
}  # fmt: skip
"""Every feature that has hooks, by its name, with the setting that leaves it out where it is `off`, and needs it where it is
given otherwise; None: no setting does. In this order they are asked."""
ALWAYS = frozenset({"paging", "consolidation"})
"""Those that are there though their setting is `off`: that is what holds where a request does not ask."""
NEEDED = {
    "helper_base_url": "helper", "helper_model": "helper", "database_history_url": "replicas",
    "database_memory_url": "replicas", "spool_dir": "spool",
    "spool_max_bytes": "spool", "archive_dir": "archive", "archive_days": "archive",
}  # fmt: skip
"""Further settings, each with what it needs where it is given."""
ROUTES = ("outcomes", "calls", "chat", "preview", "conflicts", "facts", "overview")
"""Those that are routes of a server and nothing else. Each is a module whose `routes` makes them; the first request for a route
loads it."""
BY_NAME = (
    "responses", "messages", "multilingual", "helper", "minilm", "embedded", "simulated", "reembed", "evaluate",
    "labels",
)  # fmt: skip
"""Those that have no hook: what needs one finds it by its name."""


class Features:
    """The features of a process, in their order, each asked by a hook of `Feature`."""

    def __init__(self, loaded: Mapping[str, Feature], absent: Sequence[str] = (), routes: Sequence[str] = ()) -> None:
        """`absent`: those that this installation lacks. `routes`: of `ROUTES`, those that are there."""
        self._loaded = dict(loaded)
        self._routes = routes
        self.absent = absent

    def __iter__(self) -> Iterator[tuple[str, Feature]]:
        return iter(self._loaded.items())

    def all(self, hook: Callable[[Feature], Iterable[T]]) -> list[T]:
        """What they all have."""
        return [one for each in self._loaded.values() for one in hook(each)]

    def routes(self, process: Process, settings: Settings, gate: Gate) -> list[APIRouter]:
        """The routes of all under /api/v1, each made by `gate.router`."""
        made = self.all(lambda each: each.routes(process, gate))
        for name in self._routes:
            made += import_module(f"app.features.{name}").routes(process, settings, gate)
        return made

    def only(self, hook: Callable[[Feature], T | None]) -> T | None:
        """What the one feature has that has any. Raises NotReady where there are two: which of them took part would hang on
        their order."""
        made = {name: one for name, each in self._loaded.items() if (one := hook(each)) is not None}
        if len(made) > 1:
            raise NotReady(f"Only one feature can do this, and here are {len(made)} that do: {', '.join(made)}.")
        return next(iter(made.values()), None)

    @property
    def around(self) -> Around:
        """What the one feature puts around parts of the core that puts anything there."""
        return self.only(lambda each: each.around()) or Around()

    @asynccontextmanager
    async def within(self, hook: Callable[[Feature], AbstractAsyncContextManager[T]]) -> AsyncIterator[list[T]]:
        """What all of them have open; the last is closed first."""
        async with AsyncExitStack() as stack:
            yield [await stack.enter_async_context(hook(each)) for each in self._loaded.values()]


def load(settings: Settings) -> Features:
    """The features that the settings ask for. One that is not there is left out.

    Raises NotReady where that is one that the settings name.
    """
    for setting, name in NEEDED.items():
        if setting in settings.model_fields_set and getattr(settings, setting):
            require(name, f"MNEME_{setting.upper()}")
    wanted = [
        name for name, asks in FEATURES.items() if asks is None or name in ALWAYS or getattr(settings, asks) != "off"
    ]
    found = {name: _load(name, settings) for name in wanted}
    routes = [name for name in ROUTES if is_there(name)]
    absent = [name for name, feature in found.items() if feature is None] + [
        each for each in ROUTES if each not in routes
    ]
    for name in absent:
        log.info("a feature is not there", extra={"feature": name})
    return Features({name: feature for name, feature in found.items() if feature is not None}, absent, routes)


def _load(name: str, settings: Settings) -> Feature | None:
    asks = FEATURES[name]
    if asks is not None and asks in settings.model_fields_set and getattr(settings, asks) != "off":
        require(name, f"MNEME_{asks}".upper())
    module = imported(name)
    made: Feature | None = module.FEATURE(settings) if module is not None else None
    return made
