"""A primary with streaming standbys, from the embedded Postgres' own programs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from urllib.parse import quote

import asyncpg

from app.features.embedded import Account, Binaries, unpack
from tests.support.database import connected
from tests.support.own_postgres import children_of
from tests.support.ports import free_port
from tests.support.server import runs, wait_until
from tests.support.sockets import DEADLINE_S

DATABASE = "mneme"
USER = "mneme"
PASSWORD = "cluster-password"
START_S = 60.0

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "100",
    "max_wal_senders": "10",
    "max_replication_slots": "10",
    "wal_level": "replica",
    "hot_standby": "on",
    "hot_standby_feedback": "on",
    "shared_buffers": "32MB",
    "min_wal_size": "32MB",
    "max_wal_size": "128MB",
    "wal_keep_size": "64MB",
    "fsync": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "jit": "off",
    "timezone": "GMT",
    # A standby looks for its primary again within this.
    "wal_retrieve_retry_interval": "100ms",
    "wal_receiver_timeout": "5s",
    "max_locks_per_transaction": "256",
    # Goes with the folder, however a server ends.
    "dynamic_shared_memory_type": "mmap",
}


def login(dsn_ports: Sequence[int], **query: str) -> str:
    """A DSN of these servers, as superuser."""
    hosts = ",".join(f"127.0.0.1:{port}" for port in dsn_ports)
    end = "&".join(f"{name}={quote(value)}" for name, value in query.items())
    return f"postgresql://{USER}:{PASSWORD}@{hosts}/{DATABASE}" + (f"?{end}" if end else "")


class Node:
    """One server of a cluster."""

    def __init__(self, name: str, home: Path, binaries: Binaries, settings: Mapping[str, str]) -> None:
        self.name = name
        self.port = free_port()
        self.data = home / "data"
        self.log = home / "log"
        self._binaries = binaries
        self._settings = dict(settings)
        self._process: subprocess.Popen[bytes] | None = None
        self._frozen: list[int] = []
        home.mkdir(parents=True)
        binaries.account.own(home)

    @property
    def dsn(self) -> str:
        return login([self.port])

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, **more: str) -> None:
        """Start it, and wait until it takes connections."""
        self._settings |= more
        options = {**self._settings, "port": str(self.port), "cluster_name": self.name}
        arguments = [each for name, value in options.items() for each in ("-c", f"{name}={value}")]
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                [self._binaries.program("postgres"), "-D", self._binaries.address(self.data), *arguments],
                cwd=self.data,
                env=self._binaries.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._binaries.account.options(),
            )
        wait_until(self._answers, f"{self.name} to start", START_S)

    def _answers(self) -> bool:
        assert self.alive, self.log.read_text()[-3000:]
        done = self._binaries.run("pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port), cwd=Path("/"))
        return done.returncode == 0

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """Shut it down, as an operator does; SIGQUIT: without its last checkpoint."""
        self.thaw()
        if self._process is not None:
            self._process.send_signal(number)
            try:
                self._process.wait(START_S / 2)
            except subprocess.TimeoutExpired:
                self.kill9()
            self._process = None

    def kill9(self) -> None:
        """End all its processes."""
        self.thaw()
        pids = [self.pid, *children_of(self.pid)]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert self._process is not None
        self._process.wait(START_S)
        wait_until(lambda: not any(runs(pid) for pid in pids), f"{self.name} to be dead")
        self._process = None

    def freeze(self) -> None:
        """Stop every process of it: connections are taken by the kernel, and answered by nobody."""
        self._frozen = [self.pid, *children_of(self.pid)]
        for pid in self._frozen:
            os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        for pid in self._frozen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self._frozen = []

    def promote(self) -> None:
        """Make a primary of a standby; returns when it is one."""
        done = self._binaries.run("pg_ctl", "promote", "-D", self._binaries.address(self.data), "--wait", cwd=self.data)
        assert done.returncode == 0, done.stdout

    async def execute(self, statement: str) -> None:
        async with connected(self.dsn) as admin:
            await admin.execute(statement)

    async def value(self, statement: str) -> object:
        async with connected(self.dsn) as admin:
            return await admin.fetchval(statement)


class Cluster:
    """A primary and `standbys` that stream from whichever node is the primary. Use as a context manager.

    `settings`: of all of them. `synchronous`: commits wait for one standby.
    """

    def __init__(
        self,
        home: Path,
        standbys: int = 2,
        *,
        settings: Mapping[str, str] = MappingProxyType({}),
        synchronous: bool = False,
    ) -> None:
        self._home = home
        self._account = Account.for_owner_of(home / "none")
        self._binaries = unpack(self._account, home)
        self._settings = {**SETTINGS, **settings}
        self._synchronous = synchronous
        names = ["primary", *(f"standby_{n + 1}" for n in range(standbys))]
        self.nodes = [Node(name, home / name, self._binaries, self._settings) for name in names]

    @property
    def primary(self) -> Node:
        return self.nodes[0]

    @property
    def standbys(self) -> list[Node]:
        return self.nodes[1:]

    @property
    def standbys_dsn(self) -> str:
        """Of all standbys, as MNEME_DATABASE_MEMORY_URL takes it."""
        return login([each.port for each in self.standbys])

    @property
    def any_primary_dsn(self) -> str:
        """Of whichever node takes writes."""
        return login([each.port for each in self.nodes], target_session_attrs="read-write")

    def __enter__(self) -> Cluster:
        try:
            self._make()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self.nodes:
            node.stop(signal.SIGQUIT)
        for node in self.nodes:
            shutil.rmtree(node.data, ignore_errors=True)

    def _run(self, program: str, *arguments: str, cwd: Path, text: str = "", **variables: str) -> None:
        done = self._binaries.run(program, *arguments, cwd=cwd, text=text, variables=variables)
        assert done.returncode == 0, done.stdout

    def _make(self) -> None:
        primary = self.primary
        primary.data.mkdir()
        self._account.own(primary.data)
        primary.data.chmod(0o700)
        secret = primary.data.parent / "secret"
        secret.write_text(PASSWORD)
        self._account.own(secret)
        self._run(
            "initdb", "-D", self._binaries.address(primary.data), "-U", USER, "--pwfile=../secret",
            "--auth=scram-sha-256", "--encoding=UTF8", "--locale-provider=builtin", "--builtin-locale=C.UTF-8",
            "--locale=C", "--no-sync", cwd=primary.data,
        )  # fmt: skip
        with open(primary.data / "pg_hba.conf", "a") as rules:
            rules.write("host replication all 127.0.0.1/32 scram-sha-256\n")
        primary.start()
        self._run(
            "psql", "-X", "-q", "-h", "127.0.0.1", "-p", str(primary.port), "-U", USER, "-d", "postgres", "-c",
            f"CREATE DATABASE {DATABASE}", cwd=Path("/"), PGPASSWORD=PASSWORD,
        )  # fmt: skip
        for node in self.standbys:
            self.copy(node)
        if self._synchronous:
            names = ", ".join(each.name for each in self.nodes)
            setting = f"ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 ({names})'"
            for statement in (setting, "SELECT pg_reload_conf()"):
                self._run(
                    "psql", "-X", "-q", "-h", "127.0.0.1", "-p", str(primary.port), "-U", USER, "-d", DATABASE, "-c",
                    statement, cwd=Path("/"), PGPASSWORD=PASSWORD,
                )  # fmt: skip
            for node in self.standbys:
                # What a standby holds to, once it is the primary.
                with open(node.data / "postgresql.auto.conf", "a") as own:
                    own.write(f"synchronous_standby_names = 'ANY 1 ({names})'\n")

    def copy(self, node: Node, source: Node | None = None) -> None:
        """Make `node` a standby, anew, and start it."""
        source = source or self.primary
        shutil.rmtree(node.data, ignore_errors=True)
        node.data.mkdir()
        self._account.own(node.data)
        node.data.chmod(0o700)
        self._run(
            "pg_basebackup", "-D", self._binaries.address(node.data), "-h", "127.0.0.1", "-p", str(source.port),
            "-U", USER, "-X", "stream", "-c", "fast", "--no-sync", cwd=node.data, PGPASSWORD=PASSWORD,
        )  # fmt: skip
        (node.data / "standby.signal").touch()
        self._account.own(node.data / "standby.signal")
        others = [each for each in self.nodes if each is not node]
        hosts, ports = ",".join("127.0.0.1" for _ in others), ",".join(str(each.port) for each in others)
        # Whoever is the primary is followed.
        node.start(
            primary_conninfo=f"host={hosts} port={ports} user={USER} password={PASSWORD} application_name={node.name}"
            " target_session_attrs=read-write connect_timeout=2"
        )

    async def fail_over(self) -> Node:
        """Promote the standby that has most of the log, which becomes `nodes[0]`; the primary is dead."""
        received = {node.name: await _received(node) for node in self.standbys}
        best = max(self.standbys, key=lambda node: received[node.name])
        await asyncio.to_thread(best.promote)
        self.nodes.remove(best)
        self.nodes.insert(0, best)
        return best

    async def caught_up(self) -> None:
        """Wait until every standby has replayed what the primary has written by now."""
        position = await self.primary.value("SELECT pg_current_wal_lsn()::text")
        for node in self.standbys:
            if node.alive:
                async with asyncio.timeout(DEADLINE_S), connected(node.dsn) as admin:
                    there = f"SELECT pg_last_wal_replay_lsn() >= '{position}'"
                    while not await admin.fetchval(there):  # noqa: ASYNC110 - another process' state
                        await asyncio.sleep(0.01)

    @contextlib.asynccontextmanager
    async def paused(self, *nodes: Node) -> AsyncIterator[None]:
        """These standbys (all, where none is named) replay nothing for the block; what they get, they keep."""
        chosen = nodes or tuple(self.standbys)
        for node in chosen:
            await node.execute("SELECT pg_wal_replay_pause()")
            async with connected(node.dsn) as admin:
                while await admin.fetchval("SELECT pg_get_wal_replay_pause_state()") != "paused":  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        try:
            yield
        finally:
            for node in chosen:
                with contextlib.suppress(OSError, asyncpg.PostgresError):
                    await node.execute("SELECT pg_wal_replay_resume()")


async def _received(node: Node) -> int:
    async with connected(node.dsn) as admin:
        position = await admin.fetchval(
            "SELECT (greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) - '0/0'::pg_lsn)::bigint"
        )
    return int(position)
