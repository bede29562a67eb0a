"""A Postgres of a test's own, which it may kill, freeze, fill up and make read-only."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from urllib.parse import parse_qs, quote, urlsplit

import asyncpg

from app.features.embedded import Account, EmbeddedPostgres, unpack
from tests.support.database import FAST, connected
from tests.support.ports import free_port
from tests.support.server import runs, wait_until
from tests.support.sockets import DEADLINE_S

SETTINGS = {
    **FAST,
    # Processes are killed here, the machine is not: what was written before a commit returned is then in the system's cache.
    "synchronous_commit": "on",
    "max_connections": "60",
    "shared_buffers": "16MB",
    "min_wal_size": "32MB",
    "max_wal_size": "32MB",
    # A backend that was killed takes all others with it; the server must come back by itself, as everywhere.
    "restart_after_crash": "on",
}

APPLICATION = "mneme"
WORKER = "mneme worker"
"""How the server's connections and the worker's own are called in pg_stat_activity."""


class OwnPostgres:
    """A server in `home`, reached by TCP. Use as a context manager."""

    def __init__(self, home: Path, settings: Mapping[str, str] = MappingProxyType({})) -> None:
        self.port = free_port()
        self._server = EmbeddedPostgres(home, self.port, settings={**SETTINGS, **settings})
        self._data = home / "postgres" / "data"
        self._frozen: set[int] = set()
        self._login = ""

    def __enter__(self) -> OwnPostgres:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.thaw()
        self._server.stop(force=True)

    @property
    def dsn(self) -> str:
        """As superuser."""
        return self.dsn_at(self.port)

    def dsn_at(self, port: int) -> str:
        """The same database behind another port: that of a proxy."""
        return f"postgresql://{self._login}@127.0.0.1:{port}/mneme"

    @property
    def pid(self) -> int:
        """The postmaster's."""
        return int((self._data / "postmaster.pid").read_text().splitlines()[0])

    # --- its life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start it, on the port that it had."""
        found = urlsplit(self._server.start())
        port = int(parse_qs(found.query)["port"][0]) if "port" in parse_qs(found.query) else found.port
        assert port is not None
        assert port == self.port, "the port was taken meanwhile"
        self._login = f"{found.username}:{quote(found.password or '', safe='')}"

    def stop(self) -> None:
        """Shut it down, as an operator does."""
        self.thaw()
        assert self._server.stop(force=True)

    def kill9(self) -> None:
        """End all its processes at once."""
        self.thaw()
        pids = [self.pid, *children_of(self.pid)]
        for pid in pids:
            _signal(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pids[0], 0)  # our own child would stay as a zombie
        wait_until(lambda: not any(runs(pid) for pid in pids), "Postgres to be dead")

    async def come_back(self) -> None:
        """Wait until it serves again, started if it has ended."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                with contextlib.suppress(OSError, asyncpg.PostgresError):
                    async with connected(self.dsn):
                        return
                if not self._server.status().running:
                    self.start()
                await asyncio.sleep(0.05)

    # --- hurting it ---------------------------------------------------------------------------------------------------

    async def backends(self, name: str = APPLICATION, *, query: str = "") -> list[int]:
        """The processes that serve connections of this application (`mneme`: `mneme write`, too), their last statement
        matching the regular expression `query`."""
        async with connected(self.dsn) as admin:
            found = await admin.fetch(
                "SELECT pid FROM pg_stat_activity WHERE (application_name = $1 OR application_name LIKE $1 || ' %')"
                " AND query ~* $2", name, query,
            )  # fmt: skip
        return [row["pid"] for row in found]

    async def terminate_backends(self, name: str = APPLICATION, *, query: str = "") -> int:
        """End these connections, as an administrator does. How many there were."""
        pids = await self.backends(name, query=query)
        async with connected(self.dsn) as admin:
            for pid in pids:
                await admin.execute("SELECT pg_terminate_backend($1)", pid)
        return len(pids)

    async def kill_a_backend(self) -> None:
        """SIGKILL to one of the server's backends: Postgres then ends all others and recovers."""
        pid = (await self.backends())[0]
        _signal(pid, signal.SIGKILL)

    async def freeze_backends(self, name: str = APPLICATION, *, query: str = "") -> int:
        """Stop these processes where they are; connections stay open and say nothing more. How many there are."""
        pids = await self.backends(name, query=query)
        self._stop(pids)
        return len(pids)

    def freeze(self) -> None:
        """Stop every process of the server: connections are taken by the kernel, and answered by nobody."""
        self._stop([self.pid, *children_of(self.pid)])

    def thaw(self) -> None:
        """Let everything go on that was stopped."""
        for pid in self._frozen:
            _signal(pid, signal.SIGCONT)
        self._frozen.clear()

    async def read_only(self, on: bool) -> None:
        """Refuse every write, on connections that are open already too, as the server that is no longer the primary."""
        async with connected(self.dsn) as admin:
            await admin.execute(f"ALTER SYSTEM SET default_transaction_read_only = {'on' if on else 'off'}")
            await admin.execute("SELECT pg_reload_conf()")
            while await admin.fetchval("SHOW default_transaction_read_only") != ("on" if on else "off"):
                continue  # the signal is on its way

    def _stop(self, pids: list[int]) -> None:
        for pid in pids:
            _signal(pid, signal.SIGSTOP)
            self._frozen.add(pid)

    # --- looking ------------------------------------------------------------------------------------------------------

    def dump(self) -> bytes:
        """All that pg_dump finds in the database."""
        return dump(self.dsn)


def dump(dsn: str) -> bytes:
    """All that pg_dump finds in a database: schema, rows of every table and partition, functions."""
    home = Path.cwd()
    binaries = unpack(Account.for_owner_of(home), home)
    done = subprocess.run(
        [binaries.program("pg_dump"), "--no-sync", f"--dbname={dsn}"],
        env=binaries.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def children_of(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                # "pid (name) state ppid …"; the name may hold anything.
                if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                    found.append(int(entry.name))
    return found


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
