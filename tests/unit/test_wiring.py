"""What the composition root makes of the settings."""

from __future__ import annotations

from app.server.core import pool_limits
from app.settings import Settings
from app.store.pools import POOL_NAMES, PoolLimits

POSTGRES_CONNECTIONS = 100 - 3
"""Postgres' own default of `max_connections`, less those kept for superusers."""


def test_a_worker_has_one_pool_and_a_server_four() -> None:
    settings = Settings(_env_file=None)
    assert set(pool_limits(settings, serving=True)) == set(POOL_NAMES)
    assert set(pool_limits(settings, serving=False)) == {"background"}


def test_sizes_follow_the_settings() -> None:
    settings = Settings(_env_file=None, pool_size=3, pool_background_size=5)
    limits = pool_limits(settings, serving=True)
    assert {name: limit.size for name, limit in limits.items()} == {
        "write": 3,
        "history": 3,
        "memory": 3,
        "background": 5,
    }
    assert limits["memory"] == PoolLimits(3, 1000, 5000)
    assert limits["background"] == PoolLimits(5, 5000, 30_000)


def test_by_default_several_servers_fit_into_postgres() -> None:
    settings = Settings(_env_file=None)
    server, worker = (
        sum(limit.size for limit in pool_limits(settings, serving=serving).values()) for serving in (True, False)
    )
    assert 4 * server + worker <= POSTGRES_CONNECTIONS
