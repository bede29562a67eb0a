"""A pool for each kind of work (seed 000 §11.1), so that none waits for another's connections.

Slow searches and imports cannot keep a turn from being recorded, and recording cannot keep a prompt from being compiled.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping

from msgspec import Struct, field

from app.store.pools import Pool, open_pool
from app.store.queries import Queries
from app.store.replicas import FromPool, FromReplicas, Reads, Replica, hosts_of

POOL_NAMES = ("write", "history", "memory", "background")


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
    replicas: Mapping[str, FromReplicas] = field(default_factory=dict)
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
                *(each.pool for some in self.replicas.values() for each in some.replicas),
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


async def _close(pools: Mapping[str, Pool], replicas: Mapping[str, FromReplicas]) -> None:
    closing = [each.close() for each in pools.values()] + [each.close() for each in replicas.values()]
    await asyncio.gather(*closing)


class Elsewhere(Struct, frozen=True):
    """Servers beside the primary. `urls`: by pool; those of `history` and `memory` name standbys, that of `background` leads to
    the primary. `wait_s`: longest that a standby is waited for."""

    urls: Mapping[str, str] = field(default_factory=dict)
    wait_s: float = 0.0


STANDBYS = ("history", "memory")
"""Pools that may be read from standbys: no other only reads."""


async def open_pools(
    dsn: str,
    limits: Mapping[str, PoolLimits],
    *,
    statement_cache_size: int,
    role: str | None,
    elsewhere: Elsewhere | None = None,
) -> Pools:
    """A pool for each of POOL_NAMES that has limits; the others' work is done by `background`. Raises as `open_pool`; a standby
    that is not there keeps nobody from starting."""
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

    replicas: dict[str, FromReplicas] = {}
    try:
        for name, limit in limits.items():
            own = dsn if name in STANDBYS else others.urls.get(name, dsn)
            opened[name] = await one(own, name, limit, 1)
        for name in STANDBYS:
            if name in limits and name in others.urls:
                found = [
                    Replica(host, await one(each, name, limits[name], 0)) for host, each in hosts_of(others.urls[name])
                ]
                replicas[name] = FromReplicas(name, opened[name], found, Queries.load(), wait_s=others.wait_s)
    except BaseException:
        await _close(opened, replicas)
        raise
    by_name = {name: opened.get(name, opened["background"]) for name in POOL_NAMES}
    pools = Pools(**by_name, replicas=replicas)
    for pool in opened.values():
        pool.failed_over = pools.expire
    return pools
