"""What `mneme doctor` says of webhooks: each target, as its outbox stands."""

from __future__ import annotations

from collections.abc import Iterator, Set
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

from app.features import Finding
from app.features.webhooks.outbox import TargetFigures, WebhookFigures
from app.settings import Settings
from app.store.pools import command_pool
from app.store.queries import Queries

LONG_WAIT = timedelta(hours=1)
"""A message that waits for so long has failed several times."""


async def findings(settings: Settings, dsn: str | None) -> list[Finding]:
    """See `Feature.findings`."""
    found = list(_sent_in_the_clear(settings))
    if dsn is not None:
        named = {each.name for each in settings.webhooks}
        async with command_pool(settings, dsn) as pool:
            found += [_webhook(told, named) for told in await WebhookFigures(pool, Queries.load()).figures()]
    return found


def _sent_in_the_clear(settings: Settings) -> Iterator[Finding]:
    for target in settings.webhooks:
        parts = urlsplit(target.url.get_secret_value())
        if parts.scheme == "http" and parts.hostname not in {"127.0.0.1", "::1", "localhost"}:
            yield Finding("warning", f"The webhook {target.name} is sent in the clear.", "Give it an https:// URL.")


def _webhook(told: TargetFigures, named: Set[str]) -> Finding:
    """A target of webhooks, as its outbox stands. `named`: by the settings."""
    done = f"The webhook {told.name}: {told.delivered} delivered, {told.waiting} waiting, {told.dead} given up"
    if told.name not in named:
        mend = (
            "Give every worker the MNEME_WEBHOOKS that names it; one whose list does not, or is [], takes it away: what "
            "waits goes after 30 days."
        )
        return Finding("warning", f"{done}; these settings do not name it: a worker with them sends it nothing.", mend)
    if told.dead or (told.oldest is not None and datetime.now(UTC) - told.oldest > LONG_WAIT):
        mend = "See the log of the worker, mend the receiver; GET /api/v1/queue/dead shows what was given up, and retries it."
        return Finding("warning", f"{done}.", mend)
    return Finding("ok", f"{done}.")
