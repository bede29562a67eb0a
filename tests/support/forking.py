"""Processes of the commands that begin with the modules loaded, which else are most of what a start costs.

For each pytest process, one process (`python -m tests.support.forking`) loads the modules once, and forks when it is asked. The
fork is a process like that of `python -m app.cli …`: it has its own session, environment, folder, pipes and exit code, and the
same signals end it. The worker that a server starts first is forked as well; further ones, processes beside the first, and what
documents show are started as anywhere.

    pytest ── one message and its descriptors ──> the forking process ── fork ──> a minder ── fork ──> the command
       <──────────────── the pid, then the exit status, on a socket of their own ───────┘
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, NoReturn

from app.features import FEATURES, ROUTES

ROOT = Path(__file__).parents[2]
PROGRAM = "app.cli"
WORKER = "mneme worker"
"""The name of the process (/proc/PID/comm) that was forked to be a worker; its command line is the forking process's."""
COMMANDS = (
    *(f"app.cli.{name}" for name in ("doctor", "evaluate", "keys", "serve", "upkeep")),
    *(f"app.server.{name}" for name in ("http", "main", "routes", "supervise", "worker")),
    *(f"app.features.{name}" for name in (*FEATURES, *ROUTES) if name not in ("mcp", "tracing")),
    *("app.features.embedded", "httptools", "uvloop", "uvicorn.lifespan.on", "uvicorn.loops.uvloop"),
)
"""What a server, a worker and most commands import, at once or when a route is first asked for; of features all modules. Those
of MCP and tracing need libraries that take seconds."""
MOST_BYTES = 200_000
"""The largest request: arguments and an environment; a socket's buffer takes some 212,000."""
DESCRIPTORS = 4
"""Those that come with a request: stdin, stdout, stderr, and where to tell the pid and the status."""
ENVIRONMENT = ("COVERAGE_", "PYTEST_", "MNEME_", "OPENAI_", "PYTHONDONTWRITEBYTECODE")
"""What the forking process itself does not see; a command gets the environment that its test gives."""


class Forked:
    """A process of the command; as much of `subprocess.Popen` as tests use."""

    def __init__(self, told: socket.socket) -> None:
        self._told = told
        self.pid = int(told.recv(MOST_BYTES))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code; subprocess.TimeoutExpired after `timeout` seconds."""
        if self.returncode is None:
            self._told.settimeout(timeout)
            try:
                status = self._told.recv(MOST_BYTES)
            except (BlockingIOError, TimeoutError):
                raise subprocess.TimeoutExpired("mneme", timeout or 0.0) from None
            assert status, "the forking process is gone"
            self.returncode = os.waitstatus_to_exitcode(int(status))
            self._told.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str],
    folder: Path,
    program: str = PROGRAM,
    loaded: tuple[str, ...] = COMMANDS,
    stdout: int | None = None,
    stderr: int | None = None,
) -> Forked:
    """Start `python -m program *arguments` in `folder`, in a session of its own, with the modules `loaded`. `stdout`, `stderr`:
    descriptors; None: nowhere."""
    asked = {"program": program, "arguments": list(arguments), "environment": dict(environment), "folder": str(folder)}
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, open(os.devnull, "r+b") as nothing:
        streams = [nothing.fileno(), *(nothing.fileno() if each is None else each for each in (stdout, stderr))]
        socket.send_fds(_forking(loaded), [json.dumps(asked).encode()], [*streams, theirs.fileno()])
    return Forked(ours)


def run(
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str],
    folder: Path,
    program: str = PROGRAM,
    loaded: tuple[str, ...] = COMMANDS,
    timeout_s: float = 60.0,
) -> subprocess.CompletedProcess[str]:
    """Start it, and wait for its end; subprocess.TimeoutExpired when it takes longer."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = start(
            arguments,
            environment=environment,
            folder=folder,
            program=program,
            loaded=loaded,
            stdout=out.fileno(),
            stderr=err.fileno(),
        )
        try:
            code = process.wait(timeout_s)
        except BaseException:
            process.kill()
            process.wait()
            raise
        told = []
        for file in (out, err):
            file.seek(0)
            told.append(file.read().decode())
    return subprocess.CompletedProcess(list(arguments), code, *told)


@functools.cache
def _forking(loaded: tuple[str, ...]) -> socket.socket:
    """The way to this process's forking process with these modules, which ends with it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT)}
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno()), *loaded],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # Ctrl-C is the tests' to handle
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


# --- in the forking process ---------------------------------------------------------------------------------------------------


def _serve(asking: socket.socket) -> bytes:
    """Returns in each process that is to be a command, with what was asked; ends when nobody can ask any more."""
    while True:
        asked, passed, _, _ = socket.recv_fds(asking, MOST_BYTES, DESCRIPTORS)
        with contextlib.suppress(ChildProcessError):  # minders that are through; their time counts as the run's
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not asked:
            sys.exit()
        if os.fork() == 0:
            asking.close()
            _become_the_command(passed)
            return asked
        for each in passed:
            os.close(each)


def _become_the_command(passed: Sequence[int]) -> None:
    """Returns in the command's process. The minder stays here until that has ended."""
    *streams, told = passed
    if pid := os.fork():
        _mind(pid, streams, told)
    os.setsid()
    for number, each in enumerate(streams):
        os.dup2(each, number)
    for each in passed:
        os.close(each)


def _mind(pid: int, streams: Sequence[int], told: int) -> NoReturn:
    for each in (*streams, 0, 1, 2):  # a pipe ends when the command does
        os.close(each)
    with contextlib.suppress(OSError), socket.socket(fileno=told) as telling:  # who asked may be gone
        telling.send(str(pid).encode())
        telling.send(str(os.waitpid(pid, 0)[1]).encode())
    os._exit(0)


def _become(asked: bytes) -> None:
    given = json.loads(asked)
    os.environ.clear()
    os.environ.update(given["environment"])
    os.chdir(given["folder"])
    tempfile.tempdir = None  # it is found anew, in this environment
    path = given["environment"].get("PYTHONPATH", "")
    sys.path[:1] = [given["folder"], *filter(None, path.split(os.pathsep))]
    arguments = given["arguments"]
    if given["program"] == PROGRAM and arguments[:1] == ["serve"] and os.environ.get("MNEME_WORKER") == "on":
        arguments = _fork_a_worker() or arguments
    sys.argv[1:] = arguments
    sys.modules.pop(given["program"], None)  # it runs as the main module
    _end(_code_of(given["program"]))


def _code_of(program: str) -> int:
    """Run it. The exit code, as Python itself makes it."""
    try:
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        print(ended.code, file=sys.stderr)
        return 1
    except BaseException:  # noqa: BLE001 - told as Python tells it
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def _end(code: int) -> NoReturn:
    """What is done at a process's end, but for taking apart all that was loaded: half of what a command costs."""
    threading._shutdown()  # type: ignore[attr-defined]  # private, so typeshed has none
    atexit._run_exitfuncs()
    for each in (sys.stdout, sys.stderr):
        each.flush()
    os._exit(code)


class _Worker(subprocess.Popen[bytes]):
    """As `mneme serve` starts its worker: the process that waits to be one, afterwards new ones."""

    waiting: ClassVar[list[tuple[int, int]]] = []
    """Its pid, and where it reads its environment."""

    def _execute_child(self, *given: Any) -> None:
        if not self.waiting:
            super()._execute_child(*given)  # type: ignore[misc]  # private, so typeshed has none
            return
        self.pid, writing = self.waiting.pop()
        self._child_created = True
        environment = given[6]
        with open(writing, "w") as told:
            json.dump(environment, told)


def _fork_a_worker() -> list[str]:
    """Fork while there is but one thread. Returns no arguments in the server's process; in the other, when that starts its
    worker, those of a worker."""
    import app.server.supervise

    reading, writing = os.pipe()
    if pid := os.fork():
        os.close(reading)
        _Worker.waiting.append((pid, writing))
        vars(app.server.supervise)["subprocess"] = SimpleNamespace(**vars(subprocess) | {"Popen": _Worker})
        return []
    os.setsid()
    os.close(writing)
    with open(reading) as telling:
        environment = telling.read()
    if not environment:  # the server ended before
        os._exit(0)
    os.environ.clear()
    os.environ.update(json.loads(environment))
    Path("/proc/self/comm").write_text(WORKER)
    return ["worker"]


def _make_what_is_made_once() -> None:
    """As each server does when it starts."""
    from app.context import bearing
    from app.memory.candidate import SourceExchange
    from app.memory.commands import commands
    from app.memory.extract import extract
    from app.providers import encodings
    from app.providers.embeddings import WordLlamaEmbedder
    from app.server.proxy import REHEARSED
    from app.settings import Settings
    from app.store.queries import Queries

    encodings.load("o200k_base")
    WordLlamaEmbedder().embed_now(["warm"])
    Settings()
    Queries.load()
    bearing.languages()
    extract(SourceExchange(REHEARSED, datetime.now(UTC)))
    commands(REHEARSED)


def _main() -> None:
    asking = socket.socket(fileno=int(sys.argv[1]))
    for name in sys.argv[2:]:
        module = importlib.import_module(name)
        if name.startswith("app.features."):
            for each in pkgutil.walk_packages(getattr(module, "__path__", ()), f"{name}."):
                importlib.import_module(each.name)
    if "app.server.main" in sys.argv[2:]:
        _make_what_is_made_once()
    gc.collect()
    gc.freeze()
    _become(_serve(asking))


if __name__ == "__main__":
    _main()
