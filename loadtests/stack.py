"""What the benchmark runs against, as processes of its own: mock upstream, floor, Mneme and its Postgres.

Everything listens on free loopback ports, lives in a temporary folder, and is gone with it: also after Ctrl-C.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import httpx

from app.features.embedded import EmbeddedPostgres
from loadtests import fill
from loadtests.peers import Peer, PeerFailed

ROOT = Path(__file__).parents[1]
START_S = 120.0
"""Seconds for a process to become ready on a busy machine; a Mneme on a new database takes some three."""
STOP_S = 30.0
"""Seconds for a process to end after SIGTERM; then it is killed."""
POLL_S = 0.02
SAMPLES = "stacks.folded"
RECEIVED = "received.jsonl"

UNHURRIED_MS = "60000"
"""Deadline of retrieval and of the pool while measuring. With the usual ones an overloaded Mneme answers without memory: well
for its clients, but then its cheapest answers would be measured as its work."""


class StackFailed(Exception):
    """Something of the benchmark's did not start; the message has the end of its log."""


class Service:
    """One process, in a session of its own, so that Ctrl-C reaches only the benchmark, which ends it in order."""

    def __init__(self, name: str, arguments: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        """`arguments`: of this Python. `environment`: beside the machine's own, without what is set there for Mneme."""
        own = {k: v for k, v in os.environ.items() if not k.startswith(("MNEME_", "OPENAI_"))}
        self.name = name
        self._log = folder / f"{name}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, *arguments],
                # Not the checkout, where a .env or a mneme.toml may lie.
                cwd=folder,
                env={**own, "PYTHONPATH": str(ROOT), **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def port(self, pattern: str) -> int:
        """The port that it says in its log it listens on. Raises StackFailed."""
        found: list[int] = []

        def told() -> bool:
            match = re.search(pattern, self._log.read_text(encoding="utf-8", errors="replace"))
            found[:] = [int(match[1])] if match else []
            return bool(found)

        self.wait(told)
        return found[0]

    def wait(self, until: Callable[[], bool]) -> None:
        """Wait for something that this process is to do. Raises StackFailed."""
        deadline = time.monotonic() + START_S
        while not until():
            ended = self._process.poll()
            if ended is not None or time.monotonic() > deadline:
                how = f"ended with {ended}" if ended is not None else f"is not ready after {START_S:g} s"
                raise StackFailed(f"{self.name} {how}:\n{self._log.read_text(errors='replace')[-2000:]}")
            time.sleep(POLL_S)

    def finish(self, seconds: float) -> None:
        """Wait for its end, which must be a good one. Raises StackFailed."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.stop()
            raise StackFailed(f"{self.name} has not ended after {seconds:g} s.") from None
        if code:
            raise StackFailed(f"{self.name} ended with {code}:\n{self._log.read_text(errors='replace')[-2000:]}")

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()


@dataclass(frozen=True, slots=True)
class Stack:
    """What runs. Ports, and the processes whose CPU counts."""

    folder: Path
    mock_port: int
    floor_port: int
    floor_pid: int
    mneme_port: int
    mneme: Service
    postgres_pid: int
    dsn: str
    environment: Mapping[str, str]
    peers: Mapping[str, tuple[int, int]]
    """Port and process of each."""

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.mneme_port}"

    @property
    def samples(self) -> Path:
        return self.folder / SAMPLES

    def received(self) -> list[bytes]:
        """The bodies that the mock upstream was asked with so far, where they named a model that ends in `;keep=1`."""
        file = self.folder / RECEIVED
        return file.read_bytes().splitlines() if file.exists() else []

    @contextmanager
    def worker(self) -> Iterator[Service]:
        """A `mneme worker` beside the server, for as long as the block runs."""
        # Of the server's own database, which it has started.
        environment = {**self.environment, "MNEME_DATABASE_URL": self.dsn}
        service = Service("worker", ["-m", "app.cli", "worker"], self.folder, environment)
        try:
            yield service
        finally:
            service.stop()


def _started(peer: Peer, upstream: str, folder: Path, stack: ExitStack) -> tuple[int, int]:
    """Port and process of a peer. Raises StackFailed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    try:
        process = peer.start(port, upstream, folder / f"{peer.name}.log")
    except PeerFailed as error:
        raise StackFailed(str(error)) from error

    def end() -> None:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    stack.callback(end)
    return port, process.pid


@contextmanager
def running(
    *,
    sampler: bool = False,
    peers: Sequence[Peer] = (),
    settings: Mapping[str, str] | None = None,
    postgres_settings: Mapping[str, str] | None = None,
) -> Iterator[Stack]:
    """Start everything. `sampler`: Mneme with the sampler in it, which writes to `Stack.samples`; `settings`: environment
    variables of Mneme's beside the usual ones; `postgres_settings`: what differs from the embedded Postgres' own. Raises
    StackFailed."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mneme-bench-")))

        def start(name: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> Service:
            service = Service(name, arguments, folder, environment or {})
            stack.callback(service.stop)
            return service

        postgres = EmbeddedPostgres(folder / "data", settings=postgres_settings or {})
        stack.callback(postgres.stop, force=True)
        dsn = postgres.start()
        postgres_pid = postgres.status().pid
        assert postgres_pid is not None, "it has just started"
        mock = start("mock", ["-m", "loadtests.mock_upstream", str(folder / RECEIVED)])
        upstream = f"http://127.0.0.1:{mock.port('port ([0-9]+)')}"
        floor = start("floor", ["-m", "loadtests.floor", upstream])
        environment = {
            "MNEME_DATA_DIR": str(folder / "data"),
            "MNEME_UPSTREAM_BASE_URL": f"{upstream}/v1",
            "MNEME_WORKER": "off",
            "MNEME_RETRIEVAL_DEADLINE_MS": UNHURRIED_MS,
            **(settings or {}),
        }
        program = ["loadtests.sampler", str(folder / SAMPLES)] if sampler else ["app.cli"]
        mneme = start("mneme", ["-m", *program, "serve", "--port", "0"], environment)
        found = Stack(
            folder=folder,
            mock_port=int(upstream.rpartition(":")[2]),
            floor_port=floor.port("port ([0-9]+)"),
            floor_pid=floor.pid,
            mneme_port=mneme.port(r"running on http://127\.0\.0\.1:([0-9]+)"),
            mneme=mneme,
            postgres_pid=postgres_pid,
            dsn=dsn,
            environment=environment,
            peers={each.name: _started(each, f"{upstream}/v1", folder, stack) for each in peers},
        )
        mneme.wait(lambda: _ready(found.base_url))
        yield found


def _ready(base_url: str) -> bool:
    with suppress(httpx.TransportError):
        return httpx.get(f"{base_url}/readyz", trust_env=False).status_code == 200
    return False


def prepare(stack: Stack, users: int, messages: int, say: Callable[[str], None]) -> None:
    """Fill the memory, learn from it, and leave the tables as autovacuum would have, had it had the time."""
    if not messages:
        return
    fill.fill(stack.base_url, users, messages, say)
    with stack.worker():
        fill.wait_until_learned(stack.base_url, say)
    say("vacuuming")
    asyncio.run(run_sql(stack.dsn, "VACUUM (ANALYZE)"))


async def run_sql(dsn: str, *statements: str) -> list[asyncpg.Record]:
    """As the owner of the embedded Postgres. The rows of the last statement."""
    connection = await asyncpg.connect(dsn)
    try:
        rows: list[asyncpg.Record] = []
        for statement in statements:
            rows = await connection.fetch(statement)
        return rows
    finally:
        await connection.close()


def version_of(stack: Stack) -> str:
    """The version of its Postgres, as people write it."""
    (found,) = asyncio.run(run_sql(stack.dsn, "SHOW server_version"))
    return str(found[0]).split()[0]
