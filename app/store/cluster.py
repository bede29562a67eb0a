"""The data directory of the embedded Postgres: how it is made, and the settings its server runs with."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from app.errors import NotReady
from app.store.binaries import Account, Binaries, telling
from app.store.queries import Queries

logger = logging.getLogger(__name__)

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
    logger.info("making the embedded PostgreSQL in %s", home)
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
    _sync_directory(home)
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
        logger.warning("giving %s to the account of PostgreSQL, which refuses to run as root", home)
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


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
