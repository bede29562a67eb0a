"""The outbox of webhooks: what waits to be told to whom. Triggers fill it (sql/schema/014_webhooks.sql), the worker
empties it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit
from uuid import UUID

import orjson
from msgspec import Struct

from app.features import Finding
from app.settings import Settings
from app.store.pools import Pool, command_pool
from app.store.queries import Queries

if TYPE_CHECKING:
    from app.jobs.worker import QueueDriver


class WaitingMessage(Struct, frozen=True):
    """A message to one target. `attempts`: with the one that is about to be made; `text`: of the memory that it is about, where
    the target asks for it and it was not forgotten."""

    message_id: UUID
    tenant: str | None
    user_id: UUID
    """NIL: it is about no user."""
    user: str | None
    event: str
    subject: UUID | None
    data: dict[str, Any]
    created_at: datetime
    attempts: int
    text: str | None


class TargetFigures(NamedTuple):
    """Of one target. `failed`: tries; `waiting`: messages, the first of them told of at `oldest`."""

    name: str
    delivered: int
    failed: int
    dead: int
    waiting: int
    oldest: datetime | None


class Outbox:
    """The worker's side."""

    def __init__(self, statements: QueueDriver, sql: Queries) -> None:
        self._statements = statements
        self._sql = sql

    async def configure(self, targets: Sequence[tuple[str, Sequence[str], str | None]]) -> list[str]:
        """From now on these are told: (name, events, the one tenant or None). Returns who is told no more."""
        rows = [{"name": name, "events": list(events), "tenant": tenant} for name, events, tenant in targets]
        gone = await self._statements.fetch(self._sql["webhooks.targets"], orjson.dumps(rows).decode())
        return [row["name"] for row in gone]

    async def figures(self) -> list[TargetFigures]:
        """By target, those that are told no more and have something waiting among them."""
        return [TargetFigures(**row) for row in await self._statements.fetch(self._sql["webhooks.figures"])]

    async def claim(self, target: str, limit: int, lease: timedelta, *, text: bool) -> list[WaitingMessage]:
        """What is due, oldest first; nobody else gets it within `lease`."""
        rows = await self._statements.fetch(self._sql["webhooks.claim"], target, limit, lease, text)
        return [
            WaitingMessage(
                message_id=row["message_id"],
                tenant=row["tenant"],
                user_id=row["user_id"],
                user=row["user_name"],
                event=row["event"],
                subject=row["subject"],
                data=orjson.loads(row["data"]),
                created_at=row["created_at"],
                attempts=row["attempts"],
                text=row["text"],
            )
            for row in rows
        ]

    async def delivered(self, target: str, message: WaitingMessage) -> None:
        await self._note("delivered", target, message)

    async def later(self, target: str, message: WaitingMessage, wait: timedelta) -> None:
        """It failed, and is tried again after `wait`."""
        await self._note("later", target, message, wait)

    async def bury(self, target: str, message: WaitingMessage, error: str) -> None:
        """It failed for good: a dead letter of the queue."""
        await self._note("bury", target, message, error)

    async def _note(self, what: str, target: str, message: WaitingMessage, *more: object) -> None:
        statement = self._sql[f"webhooks.{what}"]
        await self._statements.execute(statement, target, message.user_id, message.message_id, *more)

    async def tell_degraded(self, before: datetime, examples: int) -> int:
        """Degradations as messages, for each tenant whose first is older than `before`; how many."""
        rows = await self._statements.fetch(self._sql["webhooks.tell_degraded"], before, examples)
        return int(rows[0]["tell_degraded"])


class WebhookFigures:
    """How the outbox stands."""

    def __init__(self, pool: Pool, sql: Queries) -> None:
        self._pool = pool
        self._sql = sql

    async def figures(self) -> list[TargetFigures]:
        """By target."""
        async with self._pool.acquire() as connection:
            return [TargetFigures(*row) for row in await connection.fetch(self._sql["webhooks.figures"])]

    async def retry(self, tenant: UUID, user: UUID, message: UUID, target: str) -> bool:
        """Give a dead message all its tries again; False: it is gone."""
        async with self._pool.acquire() as connection:
            return bool(await connection.fetchval(self._sql["webhooks.retry"], tenant, user, message, target))


# --- What `mneme doctor` says of webhooks: each target, as its outbox stands.

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
