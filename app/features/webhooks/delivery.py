"""Webhooks: what waits in the outbox is sent to whoever the settings name, at least once, signed by Standard Webhooks. Triggers
fill it (sql/schema/014_webhooks.sql), the worker empties it.

Each target has a loop of its own, and only so many requests at once: one that is slow holds back nobody else, and no job. A
message is leased while it is sent; a worker that dies leaves it to another. What fails waits longer each time, and in the end
is held as a dead letter of the queue. Targets come from the settings alone, and no redirect is followed
(docs/explanation/security.md).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import logging
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence, Set
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit
from uuid import UUID

import aiohttp
import orjson
from msgspec import Struct

from app.clock import Clock
from app.errors import BadBody, NotFound, StoreUnavailable
from app.features import Finding
from app.jobs.schedule import Connection, Tick
from app.patience import Breaker
from app.settings import Settings
from app.sources import WebhookTarget
from app.store.ids import NIL
from app.store.pools import Pool, command_pool
from app.store.queries import Queries
from app.tasks import FailOpen

if TYPE_CHECKING:
    from app.jobs.worker import QueueDriver

log = logging.getLogger(__name__)

# --- the outbox ----------------------------------------------------------------------------------------------------------


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


_COLUMNS = [name for name in WaitingMessage.__struct_fields__ if name not in ("user", "data")]


class TargetFigures(NamedTuple):
    """Of one target. `failed`: tries; `waiting`: messages, the first of them told of at `oldest`."""

    name: str
    delivered: int
    failed: int
    dead: int
    waiting: int
    oldest: datetime | None


class Outbox:
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
                **{name: row[name] for name in _COLUMNS}, user=row["user_name"], data=orjson.loads(row["data"])
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
    def __init__(self, pool: Pool, sql: Queries) -> None:
        self._pool = pool
        self._sql = sql

    async def figures(self) -> list[TargetFigures]:
        async with self._pool.acquire() as connection:
            return [TargetFigures(*row) for row in await connection.fetch(self._sql["webhooks.figures"])]

    async def retry(self, tenant: UUID, user: UUID, message: UUID, target: str) -> bool:
        """Give a dead message all its tries again; False: it is gone."""
        async with self._pool.acquire() as connection:
            return bool(await connection.fetchval(self._sql["webhooks.retry"], tenant, user, message, target))


# --- `mneme doctor` ------------------------------------------------------------------------------------------------------

LONG_WAIT = timedelta(hours=1)
"""A message that waits for so long has failed several times."""


async def findings(settings: Settings, dsn: str | None) -> list[Finding]:
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


# --- sending -------------------------------------------------------------------------------------------------------------

ENTRYPOINT = "webhook"
"""Of dead letters in the queue; a job of it gives its message all tries again."""

RETRIES_S = (5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 50_400.0, 72_000.0, 86_400.0)
"""Seconds before the 2nd, 3rd … try, as the Standard Webhooks specification proposes: three days with ten tries."""

ATTEMPTS = len(RETRIES_S) + 1
"""Tries before a webhook is kept as a dead letter: one after each wait, and the first."""

SUMMARY_S = 60.0
"""Seconds of degraded requests that one webhook tells of, for each tenant: an outage is news once a minute."""

JITTER = 0.1
"""Share by which a wait is longer or shorter, so that what failed together does not come again together."""

TIMEOUT_S = 15.0
"""Longest delivery, seconds: the specification proposes 15 to 30."""

LEASE = timedelta(seconds=4 * TIMEOUT_S)
"""Until another worker may send a message that was taken: longer than sending takes."""

CONCURRENCY = 4
"""Requests at once to one target."""

FAILURES = 5
"""Failures in a row after which a target is left alone: more than a restart of it makes of one batch."""

OPEN_S = 30.0
"""Seconds that it is left alone, before one message tries it: a receiver that is away, with thousands waiting for it, costs one
request then, and no message its tries."""

POLL_S = 1.0
"""Seconds between two looks for what is due: one look into an index for each target."""

EXAMPLES = 10
"""Calls that a summary of degradations names."""

KEEP = timedelta(days=30)
"""Dead letters and what waits for a target that is no more."""

PRUNE_EVERY = timedelta(days=1)

USER_AGENT = f"mneme/{version('mneme-proxy')}"


def signature(secrets: Sequence[bytes], message_id: str, timestamp: int, body: bytes) -> str:
    """The value of `webhook-signature` (Standard Webhooks 1.0.0): for each secret HMAC-SHA256 over id, time and body."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    return " ".join("v1," + base64.b64encode(hmac.digest(each, signed, sha256)).decode() for each in secrets)


def body_of(message: WaitingMessage, *, text: bool) -> bytes:
    """What is sent: `type`, `timestamp` and `data`. `text`: the target asks for texts."""
    data: dict[str, Any] = {"tenant": message.tenant, **message.data}
    if message.user_id != NIL:
        data |= {"user": message.user, "user_id": str(message.user_id)}
    kind = message.event.partition(".")[0]
    if message.subject is not None and kind in ("memory", "conflict"):
        data[f"{kind}_id"] = str(message.subject)
    if text and kind == "memory":
        data["text"] = message.text
    return orjson.dumps({"type": message.event, "timestamp": message.created_at.astimezone(UTC), "data": data})


class Failed(Struct, frozen=True):
    """Why a delivery failed. `final`: no further try is wanted; `wait_s`: the least that was asked for."""

    reason: str
    final: bool = False
    wait_s: float = 0.0


Post = Callable[[WebhookTarget, Mapping[str, str], bytes], Awaitable[Failed | None]]
"""Delivers; None: it was taken. Raises nothing but cancellation."""


class WebhookSender:
    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=timeout_s),
            cookie_jar=aiohttp.DummyCookieJar(),
            connector=aiohttp.TCPConnector(limit=0),  # each target has a limit of its own
            trust_env=False,
        )

    async def __call__(self, target: WebhookTarget, headers: Mapping[str, str], body: bytes) -> Failed | None:
        try:
            async with self._session.post(
                target.url.get_secret_value(), data=body, headers=headers, allow_redirects=False
            ) as answer:
                if 200 <= answer.status < 300:
                    return None
                asked = answer.headers.get("retry-after", "")
                wait_s = min(float(asked), RETRIES_S[-1]) if asked.isdecimal() else 0.0
                # 410: the receiver wants nothing more of it.
                return Failed(f"answered {answer.status}", final=answer.status == 410, wait_s=wait_s)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            return Failed(type(error).__name__)

    async def close(self) -> None:
        await self._session.close()


class Deliverer:
    def __init__(
        self,
        outbox: Outbox,
        targets: Sequence[WebhookTarget] | None,
        post: Post,
        clock: Clock,
        *,
        attempts: int = ATTEMPTS,
        summary_s: float = SUMMARY_S,
        poll_s: float = POLL_S,
        open_s: float = OPEN_S,
    ) -> None:
        """`targets`: None leaves them to other workers. `attempts`: tries before a message is a dead letter. `summary_s`:
        degradations are told once in so many seconds."""
        self._outbox = outbox
        self._targets = targets or ()
        self._others = targets is None
        self._breakers = {each.name: Breaker(FAILURES, open_s) for each in self._targets}
        self._post = post
        self._clock = clock
        self._attempts = attempts
        self._summary = timedelta(seconds=summary_s)
        self._poll_s = poll_s

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set. With an empty list of targets nobody is to be told any more."""
        while not stop.is_set():
            try:
                await self._configure()
                break
            except StoreUnavailable:
                await self._pause(stop)
        if not self._targets:
            return
        async with asyncio.TaskGroup() as group:
            for target in self._targets:
                group.create_task(self._again(stop, partial(self._deliver, target)))
            group.create_task(self._again(stop, self._summarise))

    async def _configure(self) -> None:
        if not self._others:
            gone = await self._outbox.configure([(each.name, each.events, each.tenant) for each in self._targets])
            if gone:
                log.warning(
                    "MNEME_WEBHOOKS names these targets no more: nobody tells them anything", extra={"targets": gone}
                )
        elif told := [each.name for each in await self._outbox.figures()]:
            log.warning(
                "MNEME_WEBHOOKS is not set: this worker sends no webhooks, and what others may send is kept for these "
                "targets ([] is: tell nobody any more)",
                extra={"targets": told},
            )

    async def _again(self, stop: asyncio.Event, work: Callable[[], Awaitable[bool]]) -> None:
        """`work` until `stop`, at once where it says that there may be more."""
        while not stop.is_set():
            more = False
            with FailOpen(log.error, "webhooks failed"), contextlib.suppress(StoreUnavailable):
                more = await work()
            if not more:
                await self._pause(stop)

    async def _pause(self, stop: asyncio.Event) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._poll_s):
                await stop.wait()

    async def _summarise(self) -> bool:
        await self._outbox.tell_degraded(self._clock.now() - self._summary, EXAMPLES)
        return False

    async def _deliver(self, target: WebhookTarget) -> bool:
        """What is due for a target; True: there may be more."""
        breaker = self._breakers[target.name]
        if breaker.admit(asyncio.get_running_loop().time()) > 0:
            return False
        limit = CONCURRENCY if breaker.state == "closed" else 1
        found = await self._outbox.claim(target.name, limit, LEASE, text=target.text)
        async with asyncio.TaskGroup() as group:
            for each in found:
                group.create_task(self._send(target, each))
        return len(found) == limit

    async def _send(self, target: WebhookTarget, message: WaitingMessage) -> None:
        body = body_of(message, text=target.text)
        now, message_id = int(self._clock.now().timestamp()), f"msg_{message.message_id.hex}"
        headers = {
            "content-type": "application/json",
            "user-agent": USER_AGENT,
            "webhook-id": message_id,
            "webhook-timestamp": str(now),
            "webhook-signature": signature(target.keys, message_id, now, body),
        }
        failed = await self._post(target, headers, body)
        breaker = self._breakers[target.name]
        if failed is None or failed.final:
            breaker.succeeded()
        else:
            breaker.failed(asyncio.get_running_loop().time())
        try:
            await self._note(target, message, failed)
        except StoreUnavailable:
            log.info(
                "what became of a webhook could not be noted: it is sent once more", extra={"webhook_id": message_id}
            )

    async def _note(self, target: WebhookTarget, message: WaitingMessage, failed: Failed | None) -> None:
        message_id = f"msg_{message.message_id.hex}"
        told = {"target": target.name, "event": message.event, "webhook_id": message_id, "attempt": message.attempts}
        if failed is None:
            await self._outbox.delivered(target.name, message)
            log.debug("a webhook was delivered", extra=told)
        elif failed.final or message.attempts >= self._attempts:
            await self._outbox.bury(target.name, message, f"The receiver {failed.reason}.")
            log.error("a webhook failed for good and is held as a dead letter", extra=told | {"error": failed.reason})
        else:
            wait_s = max(self._wait_s(message.attempts), failed.wait_s)
            await self._outbox.later(target.name, message, timedelta(seconds=wait_s))
            log.warning(
                "a webhook failed and will be tried again",
                extra=told | {"error": failed.reason, "in_s": round(wait_s, 1)},
            )

    def _wait_s(self, attempts: int) -> float:
        wait_s = RETRIES_S[min(attempts, len(RETRIES_S)) - 1]
        return wait_s * random.uniform(1 - JITTER, 1 + JITTER)


def retrying(figures: WebhookFigures) -> Callable[[bytes], Awaitable[None]]:
    """Does the jobs of dead letters that are tried again: their messages are due."""

    async def retry(payload: bytes) -> None:
        try:
            fields = orjson.loads(payload)
            tenant, user, message = (UUID(fields[name]) for name in ("tenant", "user", "message"))
            target = str(fields["target"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadBody("This job's payload cannot be read.") from error
        if not await figures.retry(tenant, user, message, target):
            raise NotFound("This message is gone.")

    return retry


def webhook_ticks(sql: Queries) -> Sequence[Tick]:

    async def prune(connection: Connection, now: datetime) -> int:
        pruned: int = await connection.fetchval(sql["webhooks.prune"], now - KEEP)
        return pruned

    return (Tick("webhooks", PRUNE_EVERY, prune),)
