"""The job queue's tables: pgqueuer's, in Mneme's schema.

Apart from `queue.py` because pgqueuer takes 0.1 s and 20 MB to import: the worker needs it, a server only where it installs.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple

from pgqueuer.adapters.drivers.asyncpg import AsyncpgDriver
from pgqueuer.adapters.persistence import queries as pgqueuer_queries
from pgqueuer.adapters.persistence.qb import QueryBuilderEnvironment, QueryQueueBuilder, QuerySchedulerBuilder
from pgqueuer.domain.settings import DBSettings, Durability
from pgqueuer.domain.types import Channel
from pgqueuer.ports.driver import Driver

from app.store.queries import Queries

if TYPE_CHECKING:
    from asyncpg import Connection

CHANNEL = Channel("mneme_jobs")
"""What the queue's trigger notifies. Channels belong to one database, so two Mnemes in one server do not meet."""

SCHEMA = "agent_data"


def queue_settings() -> DBSettings:
    """pgqueuer's names. All of them are given: what is left out pgqueuer reads from the environment, where even a plain
    `CHANNEL` or `DURABILITY` counts. All tables are logged: an acknowledged turn's job survives a crash."""
    return DBSettings(
        prefix="",
        db_schema=SCHEMA,
        channel=CHANNEL,
        function="fn_pgqueuer_changed",
        statistics_table="pgqueuer_statistics",
        queue_status_type="pgqueuer_status",
        queue_table="pgqueuer",
        queue_table_log="pgqueuer_log",
        trigger="tg_pgqueuer_changed",
        schedules_table="pgqueuer_schedules",
        durability=Durability.durable,
        widen_id=True,
    )


class QueryBuilders(NamedTuple):
    """pgqueuer's three builders, bound to Mneme's names."""

    qbe: QueryBuilderEnvironment
    qbq: QueryQueueBuilder
    qbs: QuerySchedulerBuilder

    @classmethod
    def ours(cls) -> QueryBuilders:
        names = queue_settings()
        return cls(QueryBuilderEnvironment(names), QueryQueueBuilder(names), QuerySchedulerBuilder(names))


async def install_queue(connection: Connection[Any], sql: Queries | None = None) -> bool:
    """Install pgqueuer's tables, or bring them up to this pgqueuer's version; True when anything was changed.

    `connection`: as who owns the schema. Running it again changes nothing. Not inside a transaction that must not see
    `ALTER TYPE … ADD VALUE`: an upgrade runs statement by statement.
    """
    driver: Driver = AsyncpgDriver(connection)
    queries = pgqueuer_queries.Queries(driver, *QueryBuilders.ours())
    if await queries.schema_is_installed():
        changed = bool((await queries.apply_upgrade()).statements)
    else:
        await queries.install(create_schema=False)
        changed = True
    sql = sql or Queries.load()
    await connection.execute(sql["queue.adopt"])
    await connection.execute(sql["queue.mark"].replace("__version__", version("pgqueuer")))
    return changed
