"""Webhooks: others are told what becomes of memories and requests (docs/how-to/webhooks.md).

Triggers write the outbox; the worker empties it (`delivery`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from prometheus_client import Gauge

from app.features import Feature, Finding, Process

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from app.api.probes import Check
    from app.jobs.schedule import Tick
    from app.jobs.worker import Handler
    from app.metrics import Metrics
    from app.store.queries import Queries

STATEMENT_S = 10.0
"""Longest statement of the outbox, seconds: each concerns a few rows by their key."""


class Webhooks(Feature):
    """Gauges in a server; the deliverer, and its dead letters, in the worker."""

    _figures: Gauge

    def own_metrics(self, registry: CollectorRegistry) -> tuple[Gauge]:
        self._figures = Gauge(
            "mneme_webhooks",
            "Webhooks by target: delivered, failed tries and dead letters of all time, and what waits now.",
            ["target", "what"],
            registry=registry,
            multiprocess_mode="mostrecent",
        )
        return (self._figures,)

    def gauges(self, process: Process, metrics: Metrics) -> Sequence[Check]:
        from app.features.webhooks.delivery import WebhookFigures

        webhooks = WebhookFigures(process.pool, process.queries)

        async def gauges() -> None:
            now = process.clock.now()
            for told in await webhooks.figures():
                waited_s = (now - told.oldest).total_seconds() if told.oldest is not None else 0.0
                for what, value in (
                    ("delivered", told.delivered),
                    ("failed", told.failed),
                    ("dead", told.dead),
                    ("waiting", told.waiting),
                    ("oldest_seconds", waited_s),
                ):
                    self._figures.labels(told.name, what).set(value)

        return (gauges,)

    def jobs(self, process: Process) -> Mapping[str, Handler]:
        from app.features.webhooks.delivery import ENTRYPOINT, WebhookFigures, retrying

        return {ENTRYPOINT: retrying(WebhookFigures(process.pool, process.queries))}

    def ticks(self, queries: Queries) -> Sequence[Tick]:
        from app.features.webhooks.delivery import webhook_ticks

        return webhook_ticks(queries)

    async def work(self, process: Process, stop: asyncio.Event) -> None:
        from app.features.webhooks.delivery import Deliverer, Outbox, WebhookSender
        from app.jobs.worker import PROBE_S, QueueDriver

        driver = QueueDriver(process.owner("mneme webhooks"), process.queries, timeout_s=STATEMENT_S, probe_s=PROBE_S)
        post = WebhookSender()
        try:
            await Deliverer(
                Outbox(driver, process.queries),
                self.settings.webhooks if "webhooks" in self.settings.model_fields_set else None,
                post,
                process.clock,
            ).run(stop)
        finally:
            await post.close()
            await driver.close()

    async def findings(self, dsn: str | None) -> list[Finding]:
        from app.features.webhooks.delivery import findings

        return await findings(self.settings, dsn)


FEATURE = Webhooks
