"""The real command as a subprocess: `python -m app.cli serve`, with settings by environment, in a folder of its own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import httpx
from click.testing import CliRunner

from app.cli.keys import keys
from app.features.embedded import EmbeddedPostgres
from tests.support.database import PARTITIONS
from tests.support.forking import PROGRAM, WORKER, Forked, run, start

START_S = 60.0
"""Seconds for a server to become ready; one takes about two, but on a busy machine several start at once."""
STOP_S = 30.0
"""Seconds for a server to end after SIGTERM; longer than any grace that a test sets."""
POLL_S = 0.01
REST = 2.0
"""How many times as long as it looked one rests who waits: what is waited for needs the cores more."""

OURS = (b"app.cli", b"multiprocessing", b"tests.support.forking")
"""One of these stands in the command line of each process that a server is or starts."""

_RUNNING = re.compile(r"running on http://127\.0\.0\.1:(\d+)")
_FOREIGN = ("MNEME_", "OPENAI_", "COVERAGE_", "PYTEST_", "PYTHONDONTWRITEBYTECODE")
"""What the machine's or the tests' own environment says is not what a test says. Containers often keep Python from writing
bytecode, and each of some two hundred processes would compile everything: half of their CPU."""


class MnemeServer:
    """One `mneme serve`. Use as a context manager: it starts on entry and is gone, with all it started, on exit.

    `database`: a DSN, or None for the embedded Postgres under `folder`. `upstream`: a base URL with `/v1`, or None for the
    simulated one. `settings` are environment variables, with or without `MNEME_`. `program`: the module that serves. It listens
    on a port of its own choice, another after each start.
    """

    def __init__(
        self,
        folder: Path,
        *,
        database: str | None,
        upstream: str | None,
        worker: bool = False,
        settings: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
        program: str = PROGRAM,
    ) -> None:
        self.folder = folder
        self.logs: list[dict[str, Any]] = []
        """Every line of the log so far, parsed; a line that is no JSON under `raw`."""
        self.port = 0
        self._database = database
        self._arguments = arguments
        self._program = program
        self._environment = _environment(database, upstream, worker, settings or {})
        self._process: Forked | None = None
        self._log: BinaryIO | None = None
        self._reader: threading.Thread | None = None
        self._client: httpx.Client | None = None
        self._started: set[int] = set()

    def __enter__(self) -> MnemeServer:
        try:
            self.start()
        except BaseException:
            self.drop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drop()

    # --- what a test asks ---------------------------------------------------------------------------------------------

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The base URL that an OpenAI client takes."""
        return f"{self.base_url}/v1"

    @property
    def http(self) -> httpx.Client:
        """A client of this server's, closed with it."""
        if self._client is None:
            self._client = httpx.Client(base_url=self.base_url, timeout=START_S, trust_env=False)
        return self._client

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server was not started"
        return self._process.pid

    @property
    def environment(self) -> dict[str, str]:
        """What another command needs to be of this server."""
        return dict(self._environment)

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def workers(self) -> set[int]:
        """The processes of the worker."""
        return {pid for pid in _descendants(self.pid) if _is_worker(pid)}

    def said(self, message: str) -> list[dict[str, Any]]:
        """The log lines with this message."""
        return [line for line in list(self.logs) if line.get("message") == message]

    def log_text(self) -> str:
        return "\n".join(json.dumps(line) for line in list(self.logs))

    def wait_for_log(self, message: str, where: Callable[[dict[str, Any]], bool] = lambda line: True) -> dict[str, Any]:
        """The first such line; waits for it."""
        found: list[dict[str, Any]] = []

        def there() -> bool:
            found[:] = [line for line in self.said(message) if where(line)]
            return bool(found)

        wait_until(there, f"log line {message!r} in\n{self.log_text()[-4000:]}")
        return found[0]

    def command(self, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        """Run another command of `mneme` with the server's settings, and others (environment variables)."""
        return run(arguments, environment=self._environment | settings, folder=self.folder, timeout_s=START_S)

    def create_key(self, name: str, *options: str) -> str:
        """A new API key, made by the command, which runs in this process: a process of its own takes a second."""
        arguments = ["create", name, "--json", *options]
        environment: dict[str, str | None] = {each: None for each in os.environ if each.startswith(_FOREIGN)}
        environment |= self._environment
        with ThreadPoolExecutor(1) as aside:  # here a loop may be running
            done = aside.submit(CliRunner().invoke, keys, arguments, env=environment).result(START_S)
        assert done.exit_code == 0, done.output
        key: str = json.loads(done.stdout)["key"]
        return key

    # --- its life -----------------------------------------------------------------------------------------------------

    def start(self, probe: str = "/readyz") -> None:
        """Start it and wait until it says that it is ready, or, with /healthz, alive."""
        seen = len(self.logs)
        self.launch()
        assert self._process is not None
        deadline = time.monotonic() + START_S
        while not self._ready(seen, probe):
            assert self.alive, f"the server ended with {self._process.returncode}:\n{self.log_text()}"
            assert time.monotonic() < deadline, f"the server is not ready:\n{self.log_text()}"
            time.sleep(POLL_S)
        self._started |= _descendants(self._process.pid)

    def launch(self) -> None:
        """Start it, and do not wait."""
        assert not self.alive, "the server runs already"
        self.folder.mkdir(parents=True, exist_ok=True)
        reading, writing = os.pipe()
        try:
            self._process = start(
                ["serve", "--port", "0", *self._arguments],
                environment=self._environment
                | {"TMPDIR": str(self.folder)},  # one that is killed leaves something there
                folder=self.folder,
                program=self._program,
                stderr=writing,
            )
        finally:
            os.close(writing)
        self._log = os.fdopen(reading, "rb")
        self._reader = threading.Thread(target=self._read_log, args=(self._log,), daemon=True)
        self._reader.start()

    def restart(self, probe: str = "/readyz") -> None:
        """Start again what was killed or terminated. `probe`: as of `start`."""
        self._forget_process()
        self.start(probe)

    def kill9(self) -> None:
        """SIGKILL to the server's process group, at once; returns when it is gone."""
        process = self._signal(signal.SIGKILL)
        process.wait(STOP_S)

    def terminate(self) -> None:
        """SIGTERM to the server's process group, as `make` and a terminal send it; does not wait."""
        self._signal(signal.SIGTERM)

    def wait(self) -> int:
        """Wait for the end; the exit code."""
        assert self._process is not None
        return self._process.wait(STOP_S)

    def stop(self) -> None:
        """End it and everything that it started."""
        try:
            if self.alive:
                self.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.wait()
            if self.alive:
                self.kill9()
        finally:
            self._forget_process()
            self._kill_started()
            if self._database is None:
                EmbeddedPostgres(self.folder / ".mneme").stop(force=True)

    def drop(self) -> None:
        """The same at once, when the test is over: an orderly end, which nobody looks at, takes half a second."""
        try:
            if self.alive:
                self.kill9()
            self._kill_started()
        finally:
            self.stop()

    def _signal(self, number: signal.Signals) -> Forked:
        assert self._process is not None, "the server was not started"
        self._started |= _descendants(self._process.pid)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
        return self._process

    def _kill_started(self) -> None:
        for pid in self._started:
            _kill(pid)
        self._started.clear()

    def _forget_process(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
        if self._process is None:
            return
        self._process.wait(STOP_S)
        assert self._reader is not None
        # A worker that outlives the server still holds the other end of the pipe.
        self._reader.join(1.0)
        if not self._reader.is_alive() and self._log is not None:
            self._log.close()

    def _read_log(self, log: BinaryIO) -> None:
        for line in log:
            try:
                parsed = json.loads(line)
            except ValueError:
                parsed = None
            self.logs.append(parsed if isinstance(parsed, dict) else {"raw": line.decode("utf-8", "replace").rstrip()})

    def _ready(self, seen: int, probe: str) -> bool:
        found = [_RUNNING.search(str(line.get("message"))) for line in self.logs[seen:]]
        ports = [int(each[1]) for each in found if each is not None]
        if not ports:
            return False
        if self.port != ports[-1]:
            self.port = ports[-1]
            if self._client is not None:
                self._client.close()
                self._client = None
        try:
            return self.http.get(probe).status_code == 200
        except httpx.TransportError:
            return False


def wait_until(condition: Callable[[], bool], what: str = "", seconds: float = 20.0) -> None:
    """For synchronous tests: fails when `condition` does not come true."""
    began = looked = time.monotonic()
    while not condition():
        now = time.monotonic()
        assert now - began < seconds, f"timed out waiting: {what}"
        time.sleep(max(POLL_S, REST * (now - looked)))
        looked = time.monotonic()


def _environment(
    database: str | None, upstream: str | None, worker: bool, settings: Mapping[str, str]
) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    defaults = {
        "MNEME_WORKER": "on" if worker else "off",
        "MNEME_HASH_PARTITIONS": str(PARTITIONS),
        "MNEME_HISTORY_PARTITIONS": str(PARTITIONS),
        # Tests wait for nothing, so a busy machine must not turn memory off.
        "MNEME_RETRIEVAL_DEADLINE_MS": "10000",
        "MNEME_POOL_SIZE": "4",
    }
    if database is not None:
        defaults["MNEME_DATABASE_URL"] = database
    if upstream is not None:
        defaults["MNEME_UPSTREAM_BASE_URL"] = upstream
    given = {
        name if name.startswith(("MNEME_", "OPENAI_")) else f"MNEME_{name.upper()}": value
        for name, value in settings.items()
    }
    return environment | defaults | given


def runs(pid: int) -> bool:
    """Whether this process is there, and more than a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _descendants(pid: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                # "pid (name) state ppid …"; the name may hold anything.
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found: set[int] = set()
    todo = [pid]
    while todo:
        for child in children.get(todo.pop(), []):
            if child not in found and not _is_postgres(child):
                found.add(child)
                todo.append(child)
    return found


def _is_postgres(pid: int) -> bool:
    """The embedded Postgres is stopped by its own means."""
    return b"postgres" in _command(pid).split(b"\0")[0]


def _is_worker(pid: int) -> bool:
    return b"\0worker" in _command(pid) or _read(pid, "comm").strip() == WORKER.encode()


def _command(pid: int) -> bytes:
    return _read(pid, "cmdline")


def _read(pid: int, file: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes()
    except OSError:
        return b""


def _kill(pid: int) -> None:
    """End a process that this server started, if it still is one of Mneme's."""
    command = _command(pid)
    if any(each in command for each in OURS):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
