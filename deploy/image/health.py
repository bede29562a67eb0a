#!/opt/mneme/bin/python
"""Whether this container does its work: `mneme-health server` or `mneme-health worker`. Exits with 0 or 1.

server: /readyz answers 200. With `live`, /healthz: a server whose Postgres is away is alive, and does its work from the spool.
worker: it has no port. Its connections to the queue, named `mneme worker`, are looked for among those of this address.
"""

import asyncio
import os
import sys
import urllib.error
import urllib.request

TIMEOUT_S = 4.0
HELD = """
SELECT count(*) FROM pg_stat_activity
WHERE application_name = 'mneme worker' AND usename = session_user AND client_addr IS NOT DISTINCT FROM inet_client_addr()
"""


def server(path: str) -> None:
    port = os.environ.get("MNEME_PORT", "8080")
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=TIMEOUT_S).close()
    except (urllib.error.URLError, OSError) as error:
        sys.exit(f"{path}: {error}")


async def worker() -> None:
    import asyncpg

    from app.settings import Settings

    settings = Settings()
    if settings.database_url is None:
        sys.exit("no MNEME_DATABASE_URL: the worker of an embedded Postgres is its server's")
    dsn = settings.direct(settings.database_url.get_secret_value())
    try:
        async with asyncio.timeout(TIMEOUT_S):
            connection = await asyncpg.connect(dsn, server_settings={"application_name": "mneme health"})
            held = await connection.fetchval(HELD)
            await connection.close()
    except (OSError, asyncpg.PostgresError) as error:  # TimeoutError is an OSError
        sys.exit(f"{type(error).__name__}: the database cannot be asked")
    if not held:
        sys.exit("the worker holds no connection to the queue")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["server"]:
            server("/readyz")
        case ["server", "live"]:
            server("/healthz")
        case ["worker"]:
            asyncio.run(worker())
        case _:
            sys.exit("mneme-health server [live] | worker")
