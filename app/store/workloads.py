"""A pool for each kind of work (seed 000 §11.1), so that none waits for another's connections.

Slow searches and imports cannot keep a turn from being recorded, and recording cannot keep a prompt from being compiled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from app.store.pools import Pool, open_pool
from app.store.queries import Queries

POOL_NAMES = ("write", "history", "memory", "background")


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """`size`: most connections. `timeout_ms`: wait for one. `statement_timeout_ms`: longest statement. `open_at_once`: how
    many are opened at the start; the others when they are needed."""

    size: int
    timeout_ms: int
    statement_timeout_ms: int
    open_at_once: int


@dataclass(frozen=True, slots=True)
class Pools:
    """Connections by what they are for. `write`: recording; `history` and `memory`: what a request reads before it goes out
    (where it stands, and what is found for it); `background`: all that no request under /v1 waits for."""

    write: Pool
    history: Pool
    memory: Pool
    background: Pool

    @classmethod
    def of(cls, pool: Pool) -> Pools:
        """One pool for everything, as in a worker, which only does background work."""
        return cls(pool, pool, pool, pool)

    @property
    def by_name(self) -> dict[str, Pool]:
        """Each pool under what it is for; one that is for everything is `background`."""
        return {name: pool for pool, name in {getattr(self, name): name for name in POOL_NAMES}.items()}

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
        await asyncio.gather(*(pool.close() for pool in self.by_name.values()))


async def open_pools(
    dsn: str, limits: Mapping[str, PoolLimits], *, statement_cache_size: int, role: str | None
) -> Pools:
    """A pool for each of POOL_NAMES that has limits; the others' work is done by `background`. Raises as `open_pool`."""
    opened: dict[str, Pool] = {}
    try:
        for name, limit in limits.items():
            opened[name] = await open_pool(
                dsn,
                size=limit.size,
                open_at_once=limit.open_at_once,
                timeout_ms=limit.timeout_ms,
                statement_timeout_ms=limit.statement_timeout_ms,
                statement_cache_size=statement_cache_size,
                role=role,
                application_name=f"mneme {name}",
            )
    except BaseException:
        for pool in opened.values():
            await pool.close()
        raise
    pools = Pools(*(opened.get(name, opened["background"]) for name in POOL_NAMES))
    for pool in opened.values():
        pool.failed_over = pools.expire
    return pools
