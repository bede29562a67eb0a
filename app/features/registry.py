"""Which features there are, which of them the settings ask for, and all of those as one."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from app.errors import NotReady
from app.features import Feature, Process
from app.settings import Settings

if TYPE_CHECKING:
    from fastapi import APIRouter
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics import MetricWrapperBase
    from starlette.types import ASGIApp

    from app.api.auth import Authenticator
    from app.api.card_models import KeepsCards
    from app.api.probes import Check
    from app.api.scope import Gate
    from app.clock import Clock
    from app.context.knower import Knows
    from app.gateway.addon import Addon
    from app.gateway.admission import Admits
    from app.gateway.keeper import Keeps
    from app.gateway.redact import Redactor
    from app.gateway.turn import Application
    from app.gateway.turn import Authenticator as Authenticates
    from app.gateway.upstream import Transport
    from app.jobs.learn import Hearing, Noting
    from app.jobs.schedule import Tick
    from app.jobs.worker import Handler
    from app.metrics import Metrics
    from app.providers.models import ModelRegistry
    from app.store.erasure import Elsewhere
    from app.store.pools import Pool
    from app.store.queries import Queries
    from app.tasks import Supervisor

log = logging.getLogger("mneme")

T = TypeVar("T")

FEATURES: Mapping[str, str | None] = {
    "tracing": "otel", "knowledge": "domains", "paging": "paging", "webhooks": "webhooks", "mcp": "mcp", "ui": "ui",
    "insights": "insights", "limits": "budget_without_database", "cards": "card_tools",
    "consolidation": "consolidation", "archive": "history_days", "spool": None, "transfer": None,
    "outcomes": None, "replay": None, "calls": None, "chat": None, "preview": None, "conflicts": None,
    "facts": None, "overview": None,
}  # fmt: skip
"""Every feature by its folder, with the setting that leaves it out where it is `off`, and needs it where it is given otherwise;
None: no setting does. In this order they are asked."""
ALWAYS = frozenset({"paging", "consolidation"})
"""Those that are there though their setting is `off`: that is what holds where a request does not ask."""


class Features:
    """The features of a process: each hook of `Feature` is that of all of them. `work` is each one's own: iterate."""

    def __init__(self, loaded: Mapping[str, Feature]) -> None:
        self._loaded = dict(loaded)

    def __iter__(self) -> Iterator[tuple[str, Feature]]:
        return iter(self._loaded.items())

    def check(self) -> None:
        for each in self._loaded.values():
            each.check()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for each in self._loaded.values():
                await stack.enter_async_context(each.running())
            yield

    @asynccontextmanager
    async def opened(self, process: Process) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for each in self._loaded.values():
                await stack.enter_async_context(each.opened(process))
            yield

    def knower(self, process: Process, pool: Pool) -> Knows | None:
        return self._only(lambda each: each.knower(process, pool))

    def addon(self, process: Process, pool: Pool) -> Addon | None:
        return self._only(lambda each: each.addon(process, pool))

    def hearing(self, process: Process) -> Hearing | None:
        return self._only(lambda each: each.hearing(process))

    def noting(self, process: Process) -> Noting | None:
        return self._only(lambda each: each.noting(process))

    def cards(self, process: Process, pool: Pool) -> KeepsCards | None:
        return self._only(lambda each: each.cards(process, pool))

    def routes(self, process: Process, gate: Gate) -> Sequence[APIRouter]:
        return [router for each in self._loaded.values() for router in each.routes(process, gate)]

    @asynccontextmanager
    async def mounts(
        self, authenticator: Authenticator, api: ASGIApp
    ) -> AsyncIterator[Mapping[str, Callable[[], ASGIApp]]]:
        async with AsyncExitStack() as stack:
            found: dict[str, Callable[[], ASGIApp]] = {}
            for each in self._loaded.values():
                found |= await stack.enter_async_context(each.mounts(authenticator, api))
            yield found

    def gauges(self, process: Process, metrics: Metrics) -> Sequence[Check]:
        return [check for each in self._loaded.values() for check in each.gauges(process, metrics)]

    def jobs(self, process: Process) -> Mapping[str, Handler]:
        return {name: job for each in self._loaded.values() for name, job in each.jobs(process).items()}

    def ticks(self, queries: Queries) -> Sequence[Tick]:
        return [tick for each in self._loaded.values() for tick in each.ticks(queries)]

    def elsewhere(self, dsn: str, queries: Queries, clock: Clock) -> Sequence[Elsewhere]:
        found = (each.elsewhere(dsn, queries, clock) for each in self._loaded.values())
        return [each for each in found if each is not None]

    def metrics(self, registry: CollectorRegistry) -> Metrics | None:
        return self._only(lambda each: each.metrics(registry))

    def admits(self, process: Process, pool: Pool, models: ModelRegistry) -> Admits | None:
        return self._only(lambda each: each.admits(process, pool, models))

    def keeper(self, redactor: Redactor, metrics: Metrics, tasks: Supervisor) -> Keeps | None:
        return self._only(lambda each: each.keeper(redactor, metrics, tasks))

    def own_metrics(self, registry: CollectorRegistry) -> Sequence[MetricWrapperBase]:
        return [metric for each in self._loaded.values() for metric in each.own_metrics(registry)]

    def _only(self, hook: Callable[[Feature], T | None]) -> T | None:
        """What the one feature has that has any. Raises NotReady where there are two: which of them took part would hang on
        their order."""
        made = {name: one for name, each in self._loaded.items() if (one := hook(each)) is not None}
        if len(made) > 1:
            raise NotReady(f"Only one feature can do this, and here are {len(made)} that do: {', '.join(made)}.")
        return next(iter(made.values()), None)

    def gateway(self, gateway: Application) -> Application:
        for each in self._loaded.values():
            gateway = each.gateway(gateway)
        return gateway

    def authenticator(self, authenticator: Authenticates) -> Authenticates:
        for each in self._loaded.values():
            authenticator = each.authenticator(authenticator)
        return authenticator

    def transports(self, transports: Mapping[bool, Transport]) -> Mapping[bool, Transport]:
        for each in self._loaded.values():
            transports = each.transports(transports)
        return transports

    def handlers(self, handlers: Mapping[str, Handler]) -> Mapping[str, Handler]:
        for each in self._loaded.values():
            handlers = each.handlers(handlers)
        return handlers


def load(settings: Settings) -> Features:
    """The features that the settings ask for. One whose folder is not there is left out.

    Raises NotReady where that is one that the settings name.
    """
    wanted = [
        name for name, asks in FEATURES.items() if asks is None or name in ALWAYS or getattr(settings, asks) != "off"
    ]
    found = {name: _load(name, settings) for name in wanted}
    return Features({name: feature for name, feature in found.items() if feature is not None})


def _imported(name: str) -> ModuleType:
    """The package of a feature. Raises ModuleNotFoundError, also where only what Python compiled is left of its folder."""
    module = import_module(f"app.features.{name}")
    if hasattr(module, "__path__") and getattr(module, "__file__", None) is None:
        raise ModuleNotFoundError(f"No module named {module.__name__!r}", name=module.__name__)
    return module


def _load(name: str, settings: Settings) -> Feature | None:
    folder, asks = f"app.features.{name}", FEATURES[name]
    try:
        made: Feature = _imported(name).FEATURE(settings)
    except ModuleNotFoundError as error:
        if error.name != folder:
            raise
        if asks is not None and asks in settings.model_fields_set and getattr(settings, asks) != "off":
            raise NotReady(f"MNEME_{asks.upper()}: this installation has no {folder}.") from error
        log.info("a feature is not there", extra={"feature": name})
        return None
    return made
