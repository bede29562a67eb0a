"""The embedded Postgres: started, found again and stopped by plain function calls.

    <data_dir>/postgres/
        data/         the data directory (see cluster.py)
        run/          the Unix socket
        log/          start.log, and one file for each day of the week
        password      of the superuser `mneme`, mode 0600
        server.json   {"pid", "port"} of the last start
        lock          held while somebody starts or stops the server
        users         held (shared) by everyone who uses it: the last one out stops it
        server.lock   held by the server's own processes

Whether a server runs is told by `server.lock`: it is locked before the server is started and inherited by each of its
processes, so it becomes free when the last of them is gone, however that happened. A process id in a file proves
nothing: it may be dead, or belong to something else by now.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from urllib.parse import quote

from msgspec import Struct

from app.errors import NotReady
from app.store import cluster
from app.store.binaries import Account, Binaries, telling, unpack

logger = logging.getLogger(__name__)

START_TIMEOUT_S = 300.0
"""Seconds until a start is given up; only the recovery after a crash takes longer than a moment."""
STOP_TIMEOUT_S = 60.0
"""Seconds for a fast shutdown, whose checkpoint writes out all of shared_buffers; then it is cut short."""
LOGIN_TIMEOUT_S = 10
"""Seconds within which a server that calls itself ready must let us in."""
POLL_S = 0.01
"""Seconds between two looks at a server that starts or stops."""
PORT_ATTEMPTS = 5
"""Ports tried when others keep taking them between our look and the server's start."""
SOCKET_PATH_LIMIT = 103
"""Bytes of a Unix socket's path: 103 on macOS and the BSDs, 107 on Linux."""


class ServerStatus(Struct, frozen=True):
    """What is known of the server of a data directory, without touching it."""

    running: bool
    pid: int | None
    port: int | None
    directory: Path


class _PidFile(Struct, frozen=True):
    """What we need of `postmaster.pid`; `state` is `ready`, `starting` or `stopping`."""

    pid: int
    port: int
    state: str


class EmbeddedPostgres:
    """One server for one data directory, shared by every process that starts it here.

    `port` 0 takes any free one and keeps it; a port that is taken is replaced, with a warning. `settings` are server
    settings that override those of cluster.py. Everything raises NotReady, with a message that says how to mend it.
    """

    def __init__(self, data_dir: Path, port: int = 0, settings: Mapping[str, str] = MappingProxyType({})) -> None:
        self._home = data_dir.absolute() / "postgres"
        self._data = self._home / "data"
        self._port = port
        self._settings = dict(settings)
        self._use: int | None = None
        self.reused = False
        """Whether the last start found a server that was running already."""

    # --- public -------------------------------------------------------------------------------------------------

    def start(self) -> str:
        """The DSN of a running server, of superuser and database `mneme`: one that runs already, or a new one."""
        with self._explained("started"):
            self._make_home()
            with self._exclusive():
                binaries = unpack(self._account(), self._home)
                if not self._data.exists():
                    cluster.make_cluster(binaries, self._home)
                cluster.check_version(binaries, self._data)
                found = self._find_running(binaries)
                self.reused = found is not None
                port = found.port if found is not None else self._launch(binaries)
                if self._use is None:
                    self._use = self._open("users")
                    fcntl.flock(self._use, fcntl.LOCK_SH)
        logger.info("the embedded PostgreSQL %s on port %d", "runs already" if self.reused else "started", port)
        return self._dsn(port)

    def stop(self, *, force: bool = False) -> bool:
        """Shut the server down and wait, if this object started or found it and nobody else still uses it.

        `force` stops it whoever uses it. True when it no longer runs.
        """
        if (self._use is None and not force) or not self._home.exists():
            return not self.status().running
        with self._explained("stopped"), self._exclusive():
            if self._use is not None:
                os.close(self._use)
                self._use = None
            if not force and not self._is_free("users"):
                logger.info("the embedded PostgreSQL is left to the others who use it")
                return False
            return self._shut_down()

    def status(self) -> ServerStatus:
        """Whether a server runs for the data directory."""
        with self._explained("examined"):
            self._account()
            file = self._pid_file()
            if file is None or not (self._server_alive() or self._is_foreign(file)):
                return ServerStatus(False, None, None, self._data)
            return ServerStatus(True, file.pid, file.port, self._data)

    # --- folders and locks --------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except (OSError, subprocess.SubprocessError) as error:
            raise NotReady(
                f"The embedded PostgreSQL in {self._home} cannot be {what}: {error}. Set MNEME_DATA_DIR to a place "
                "that can be written, or MNEME_DATABASE_URL to a PostgreSQL."
            ) from error

    def _account(self) -> Account:
        return Account.for_owner_of(self._home, self._data)

    def _make_home(self) -> None:
        account = self._account()
        self._home.parent.mkdir(parents=True, exist_ok=True)
        for folder in (self._home, self._home / "run", self._home / "log"):
            folder.mkdir(mode=0o700, exist_ok=True)
            account.own(folder)

    def _open(self, name: str) -> int:
        """A descriptor of a lock file, not inherited by other programs."""
        descriptor = os.open(self._home / name, os.O_RDWR | os.O_CREAT, 0o600)
        self._account().own(descriptor)
        return descriptor

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Only one process at a time starts or stops the server."""
        descriptor = self._open("lock")
        try:
            _wait(lambda: _try_lock(descriptor), f"another process is still starting or stopping {self._home}")
            yield
        finally:
            os.close(descriptor)

    def _server_alive(self) -> bool:
        return not self._is_free("server.lock")

    def _is_free(self, name: str) -> bool:
        try:
            descriptor = os.open(self._home / name, os.O_RDWR)
        except FileNotFoundError:
            return True
        try:
            return _try_lock(descriptor)
        finally:
            os.close(descriptor)

    # --- starting -----------------------------------------------------------------------------------------------

    def _find_running(self, binaries: Binaries) -> _PidFile | None:
        """The server that runs for this data directory; waits for one that is starting or going away."""
        deadline = time.monotonic() + START_TIMEOUT_S
        refused_since: float | None = None
        while time.monotonic() < deadline:
            file = self._pid_file()
            if not self._server_alive() and (file is None or not self._is_foreign(file)):
                return None
            if file is not None and file.state == "ready":
                problem = self._log_in(binaries, file.port)
                if problem is None:
                    return file
                # It may have died this moment; only one that keeps refusing is in the way.
                refused_since = refused_since or time.monotonic()
                if time.monotonic() - refused_since > LOGIN_TIMEOUT_S:
                    raise NotReady(
                        f"Process {file.pid} seems to be the PostgreSQL of {self._data}, but it does not let us in "
                        f"({problem}). If it hangs, end it with `kill -9 {file.pid}`; if it is something else, delete "
                        f"{self._data / 'postmaster.pid'}."
                    )
            time.sleep(POLL_S)
        raise NotReady(f"A PostgreSQL holds {self._data} and does not become ready; see {self._home / 'log'}.")

    def _is_foreign(self, file: _PidFile) -> bool:
        """Whether somebody started a server by hand in our data directory. Our own last one is known to be gone."""
        return file.pid != self._record().get("pid") and _is_postgres(file.pid)

    def _log_in(self, binaries: Binaries, port: int) -> str | None:
        """None when the server at `port` takes our password, which only ours does; else what went wrong."""
        login = {
            "PGHOST": cluster.HOST,
            "PGPORT": str(port),
            "PGUSER": cluster.SUPERUSER,
            "PGDATABASE": cluster.DATABASE,
        }
        login |= {"PGPASSWORD": self._password(), "PGCONNECT_TIMEOUT": str(LOGIN_TIMEOUT_S)}
        try:
            done = binaries.run("psql", "--no-psqlrc", "--no-password", "--command=\\q", cwd=Path("/"), variables=login)
        except subprocess.TimeoutExpired:
            return "it does not answer"
        return None if done.returncode == 0 else telling(done.stdout)

    def _launch(self, binaries: Binaries) -> int:
        """Start a server and wait until it is ready. The port that it got."""
        cluster.take_over(self._home, binaries.account)
        # No server lives, so this file can only mislead PostgreSQL, when its process id is in use again.
        (self._data / "postmaster.pid").unlink(missing_ok=True)
        for stale in (self._home / "run").iterdir():
            stale.unlink()
        settings = {**cluster.server_settings(binaries, self._home / "run"), **self._settings}
        for attempt in range(PORT_ATTEMPTS):
            port = self._choose_port(first=attempt == 0)
            process = self._spawn(binaries, {**settings, "port": str(port)})
            if self._becomes_ready(process):
                cluster.write_private(
                    self._home / "server.json", json.dumps({"pid": process.pid, "port": port}), binaries.account
                )
                return port
            if _port_is_free(port):
                break
        raise NotReady(f"The embedded PostgreSQL in {self._home} does not start: {self._last_words()}")

    def _spawn(self, binaries: Binaries, settings: Mapping[str, str]) -> subprocess.Popen[bytes]:
        command = [binaries.program("postgres"), "-D", binaries.address(self._data)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        lock = self._open("server.lock")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with open(self._home / "log" / "start.log", "wb") as log:
                return subprocess.Popen(  # noqa: S603 - our own program, no shell
                    command,
                    cwd=self._data,
                    env=binaries.environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C in the terminal is for us, not for the server
                    pass_fds=(lock,),
                    **binaries.account.options(),
                )
        finally:
            os.close(lock)

    def _becomes_ready(self, process: subprocess.Popen[bytes]) -> bool:
        def ready() -> bool:
            file = self._pid_file()
            return file is not None and file.pid == process.pid and file.state == "ready"

        _wait(lambda: ready() or process.poll() is not None, f"PostgreSQL is not ready yet; see {self._home / 'log'}")
        if process.returncode is not None:
            return False
        # It is to outlive us: nobody waits for it, and its end is told by its lock.
        process.returncode = 0
        return True

    def _choose_port(self, *, first: bool) -> int:
        wanted = self._port or self._record().get("port", 0)
        if first and wanted:
            if _port_is_free(wanted):
                return wanted
            logger.warning("port %d is taken; the embedded PostgreSQL takes another", wanted)
        with socket.socket() as any_port:
            any_port.bind((cluster.HOST, 0))
            port: int = any_port.getsockname()[1]
            return port

    # --- stopping -----------------------------------------------------------------------------------------------

    def _shut_down(self) -> bool:
        file = self._pid_file()
        foreign = file is not None and self._is_foreign(file)
        for how in (signal.SIGINT, signal.SIGQUIT):  # fast: open transactions are rolled back; then: at once
            deadline = time.monotonic() + STOP_TIMEOUT_S
            if file is not None and (foreign or self._server_alive()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(file.pid, how)
            while time.monotonic() < deadline:
                if file is not None:
                    with contextlib.suppress(ChildProcessError):
                        os.waitpid(file.pid, os.WNOHANG)  # our own child would stay as a zombie
                if not self._server_alive() and not (file is not None and foreign and _is_postgres(file.pid)):
                    return True
                time.sleep(POLL_S)
            logger.warning("the embedded PostgreSQL did not stop within %.0f s of %s", STOP_TIMEOUT_S, how.name)
        return False

    # --- reading ------------------------------------------------------------------------------------------------

    def _pid_file(self) -> _PidFile | None:
        try:
            lines = (self._data / "postmaster.pid").read_text(encoding="utf-8", errors="replace").splitlines()
            # Lines: pid, directory, start time, port, socket folder, address, shared memory, state.
            return _PidFile(int(lines[0]), int(lines[3]), lines[7].strip())
        except (FileNotFoundError, IndexError, ValueError):
            return None

    def _record(self) -> dict[str, int]:
        try:
            record: dict[str, int] = json.loads((self._home / "server.json").read_bytes())
        except (FileNotFoundError, ValueError):
            return {}
        return record

    def _password(self) -> str:
        try:
            return (self._home / "password").read_text(encoding="utf-8")
        except FileNotFoundError:
            raise NotReady(
                f"{self._home / 'password'} is missing: restore it, or, if the data may go, delete {self._home}."
            ) from None

    def _dsn(self, port: int) -> str:
        """By the Unix socket where there is one that clients can name (a third less CPU per query), else by TCP."""
        run = self._home / "run"
        file = run / f".s.PGSQL.{port}"
        login = f"postgresql://{cluster.SUPERUSER}:{self._password()}@"
        # Clients take a comma in a host for a list of hosts.
        if file.exists() and len(os.fsencode(file)) <= SOCKET_PATH_LIMIT and "," not in str(run):
            return f"{login}/{cluster.DATABASE}?host={quote(str(run), safe='')}&port={port}"
        return f"{login}{cluster.HOST}:{port}/{cluster.DATABASE}"

    def _last_words(self) -> str:
        """The errors of the last start, from its own file and from the newest of the server's log."""
        files = sorted((self._home / "log").glob("*.log"), key=lambda path: path.stat().st_mtime)[-2:]
        return telling("\n".join(path.read_text(encoding="utf-8", errors="replace") for path in files))


def _wait(until: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not until():
        if time.monotonic() > deadline:
            raise NotReady(f"{otherwise} (waited {START_TIMEOUT_S:.0f} s).")
        time.sleep(POLL_S)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_postgres(pid: int) -> bool:
    """Whether that process exists and may be a PostgreSQL; where this cannot be seen, it may."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    try:
        return b"postgres" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
    except OSError:
        return not Path("/proc/self").exists()


def _port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As PostgreSQL does: connections of the last server that are not quite gone do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((cluster.HOST, port))
        except OSError:
            return False
    return True
