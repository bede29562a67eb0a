"""A database that goes away and comes back."""

from __future__ import annotations

from tests.support.database import connected


async def take_away(database: str) -> None:
    """Nobody can connect to the database any more, and whoever was connected is not."""
    admin, name = _admin(database)
    async with connected(admin) as connection:
        await connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        await connection.fetch("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)


async def give_back(database: str) -> None:
    admin, name = _admin(database)
    async with connected(admin) as connection:
        await connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")


async def make_read_only(database: str, *, yes: bool) -> None:
    """As after a failover: new connections read, and do not write; those that are open are cut."""
    admin, name = _admin(database)
    async with connected(admin) as connection:
        await connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = {'on' if yes else 'off'}")
        await connection.fetch("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)


def _admin(database: str) -> tuple[str, str]:
    before, _, name = database.partition("?")[0].rpartition("/")
    query = "?" + database.partition("?")[2] if "?" in database else ""
    return f"{before}/postgres{query}", name
