"""The pools, one for each kind of work (seed 000 §11.1), and reads of one user, which a standby may answer in place of the
primary (a feature, `replicas`).

Pools do not wait for each other's connections: slow searches and imports cannot keep a turn from being recorded, and recording
cannot keep a prompt from being compiled.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, Protocol
from uuid import UUID

from msgspec import Struct, field

from app.optional import needed
from app.store.pools import Pool, open_pool
from app.store.queries import Queries

Result = Literal["replica", "behind", "late", "failed", "suspended", "busy", "unmarked"]
"""What came of a read. `replica`: a standby answered; else the primary did. `behind`: the standby lacks a write of this user's,
or has one that came since; `late`: it took too long; `failed`: it gave no answer; `suspended`: none was asked, because of such
failures; `busy`: more marks than are compared; `unmarked`: nothing is marked, so nothing can be told."""
Meter = Callable[[str, str, Result], None]
"""Told of each read: the pool, the server, the result."""
POOL_NAMES = ("write", "history", "memory", "background")
STANDBYS = ("history", "memory")
"""Pools that may be read from standbys: no other only reads."""


class Reads(Protocol):
    """Reads of one user, by the name of their query, whose first arguments are tenant and user. They raise StoreUnavailable."""

    @property
    def direct(self) -> FromPool:
        """The same from the primary."""

    async def one(self, name: str, tenant: UUID, user: UUID, *rest: Any) -> dict[str, Any] | None:
        """The first row, by column."""

    async def many(self, name: str, tenant: UUID, user: UUID, *rest: Any) -> Sequence[Sequence[Any]]:
        """All rows, by position."""


class FromPool:
    """All of them from one server."""

    def __init__(self, pool: Pool, queries: Queries) -> None:
        self._pool = pool
        self._sql = queries

    @property
    def direct(self) -> FromPool:
        return self

    async def one(self, name: str, tenant: UUID, user: UUID, *rest: Any) -> dict[str, Any] | None:
        async with self._pool.acquire() as connection:
            row = await connection.fetchrow(self._sql[name], tenant, user, *rest)
        return dict(row) if row is not None else None

    async def many(self, name: str, tenant: UUID, user: UUID, *rest: Any) -> Sequence[Sequence[Any]]:
        async with self._pool.acquire() as connection:
            return await connection.fetch(self._sql[name], tenant, user, *rest)


class Replicated(Reads, Protocol):
    """Reads from standbys, where these have what is asked for."""

    meter: Meter
    wait_s: float
    """Longest that a standby is waited for."""

    @property
    def pools(self) -> Sequence[Pool]:
        """Connections to the standbys."""

    async def close(self) -> None:
        """Close them, and what nobody waits for any more."""


class PoolLimits(Struct, frozen=True):
    """`size`: most connections. `timeout_ms`: wait for one. `statement_timeout_ms`: longest statement."""

    size: int
    timeout_ms: int
    statement_timeout_ms: int


class Pools(Struct, frozen=True):
    """Connections by what they are for. `write`: recording; `history` and `memory`: what a request reads before it goes out
    (where it stands, and what is found for it); `background`: all that no request under /v1 waits for."""

    write: Pool
    history: Pool
    memory: Pool
    background: Pool
    replicas: Mapping[str, Replicated] = field(default_factory=dict)
    """Of `history` and `memory`, where standbys are read from."""

    @classmethod
    def of(cls, pool: Pool) -> Pools:
        """One pool for everything, as in a worker, which only does background work."""
        return cls(pool, pool, pool, pool)

    @property
    def by_name(self) -> dict[str, Pool]:
        """Each pool under what it is for; one that is for everything is `background`."""
        return {name: pool for pool, name in {getattr(self, name): name for name in POOL_NAMES}.items()}

    def reads(self, name: str) -> Reads:
        """How `history` or `memory` is read."""
        return self.replicas.get(name) or FromPool(getattr(self, name), Queries.load())

    @contextlib.contextmanager
    def warming(self) -> Iterator[None]:
        """`Pool.warming` of all of them."""
        with contextlib.ExitStack() as stack:
            for pool in [
                *self.by_name.values(),
                *(each for some in self.replicas.values() for each in some.pools),
            ]:
                stack.enter_context(pool.warming())
            yield

    async def expire(self) -> None:
        """After a failover: those that only read would not notice, and read what the old primary still has."""
        for pool in self.by_name.values():
            await pool.expire()

    async def connections_allowed(self) -> int:
        """How many connections the server gives to roles like ours. Raises StoreUnavailable."""
        async with self.background.acquire() as connection:
            return int(await connection.fetchval(Queries.load()["pool.connections_allowed"]))

    async def close(self) -> None:
        """Close all of them, at the same time."""
        await _close(self.by_name, self.replicas)


async def _close(pools: Mapping[str, Pool], replicas: Mapping[str, Replicated]) -> None:
    closing = [each.close() for each in pools.values()] + [each.close() for each in replicas.values()]
    await asyncio.gather(*closing)


class Elsewhere(Struct, frozen=True):
    """Servers beside the primary. `urls`: by pool; those of `history` and `memory` name standbys, that of `background` leads to
    the primary. `wait_s`: longest that a standby is waited for."""

    urls: Mapping[str, str] = field(default_factory=dict)
    wait_s: float = 0.0


async def open_pools(
    dsn: str,
    limits: Mapping[str, PoolLimits],
    *,
    statement_cache_size: int,
    role: str | None,
    elsewhere: Elsewhere | None = None,
    open_at_once: int = 1,
) -> Pools:
    """A pool for each of POOL_NAMES that has limits; the others' work is done by `background`. Raises as `open_pool`; a standby
    that is not there keeps nobody from starting. `open_at_once`: connections of each that are opened now."""
    opened: dict[str, Pool] = {}
    others = elsewhere or Elsewhere()

    async def one(dsn: str, name: str, limit: PoolLimits, open_at_once: int) -> Pool:
        return await open_pool(
            dsn,
            size=limit.size,
            open_at_once=open_at_once,
            timeout_ms=limit.timeout_ms,
            statement_timeout_ms=limit.statement_timeout_ms,
            statement_cache_size=statement_cache_size,
            role=role,
            application_name=f"mneme {name}",
        )

    replicas: dict[str, Replicated] = {}
    async with contextlib.AsyncExitStack() as undo:
        undo.push_async_callback(_close, opened, replicas)
        for name, limit in limits.items():
            own = dsn if name in STANDBYS else others.urls.get(name, dsn)
            opened[name] = await one(own, name, limit, open_at_once)
        for name in STANDBYS:
            if name in limits and name in others.urls:
                reading = needed("replicas.reads", f"MNEME_DATABASE_{name.upper()}_URL")
                opener = partial(one, name=name, limit=limits[name], open_at_once=0)
                replicas[name] = await reading.open_replicas(
                    name, opened[name], others.urls[name], opener, others.wait_s
                )
        undo.pop_all()
    by_name = {name: opened.get(name, opened["background"]) for name in POOL_NAMES}
    pools = Pools(**by_name, replicas=replicas)
    for pool in opened.values():
        pool.failed_over = pools.expire
    return pools
