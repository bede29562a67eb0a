"""PgBouncer with the very file of `deploy/`, from a program that is installed by hand: it is no Python package."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import Protocol

import pytest

from app.features.embedded import Account
from tests.support.deployed import DEPLOY
from tests.support.ports import free_port
from tests.support.server import STOP_S, wait_until

PROGRAM = os.environ.get("MNEME_TEST_PGBOUNCER") or shutil.which("pgbouncer")
"""Debian's package; MNEME_TEST_PGBOUNCER names another."""
STATS = "pgbouncer_stats"


def version() -> tuple[int, int]:
    """Of the program; (0, 0): there is none."""
    if PROGRAM is None:
        return 0, 0
    told = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"(\d+)\.(\d+)", told)
    assert found is not None, told
    return int(found[1]), int(found[2])


needed = pytest.mark.skipif(
    version() < (1, 21), reason="needs PgBouncer 1.21+: install it, or set MNEME_TEST_PGBOUNCER"
)


class Server(Protocol):
    """What it stands before."""

    @property
    def port(self) -> int: ...


class PgBouncer:
    """One in `folder`, before `postgres`. Use as a context manager."""

    def __init__(self, folder: Path, postgres: Server, **settings: str) -> None:
        self.port = free_port()
        self._folder = folder
        self._account = Account.for_owner_of(folder / "none")
        self._process: subprocess.Popen[bytes] | None = None
        text = (DEPLOY / "pgbouncer" / "pgbouncer.ini").read_text()
        changes = {
            "mneme": _place_of(postgres),
            "listen_addr": "127.0.0.1",
            "listen_port": str(self.port),
            "auth_file": "/proc/self/cwd/userlist",
        } | settings
        for name, value in changes.items():
            text, found = re.subn(rf"^{name} = .*$", f"{name} = {value}", text, flags=re.MULTILINE)
            assert found == 1, f"pgbouncer.ini says nothing of {name}"
        folder.mkdir(exist_ok=True)
        (folder / "pgbouncer.ini").write_text(text)
        (folder / "userlist").write_text(f'"mneme_pooled" "mneme_pooled-password"\n"{STATS}" "{STATS}-password"\n')
        for path in (folder, *folder.iterdir()):
            self._account.own(path)

    @property
    def dsn(self) -> str:
        return f"postgresql://mneme_pooled:mneme_pooled-password@127.0.0.1:{self.port}/mneme"

    def __enter__(self) -> PgBouncer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        assert PROGRAM is not None
        with open(self._folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                [PROGRAM, "/proc/self/cwd/pgbouncer.ini"],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._account.options(),
            )
        process = self._process

        def there() -> bool:
            assert process.poll() is None, (self._folder / "log").read_text()
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self.port)) == 0

        wait_until(there, "PgBouncer to take connections")

    def point(self, postgres: Server) -> None:
        """Have it lead to another server, as an operator does after a failover: what is under way there is dropped."""
        ini = self._folder / "pgbouncer.ini"
        ini.write_text(re.sub(r"^mneme = .*$", f"mneme = {_place_of(postgres)}", ini.read_text(), flags=re.MULTILINE))
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    def stop(self) -> None:
        """End it at once, connections and all."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(STOP_S)
            self._process = None


def _place_of(postgres: Server) -> str:
    return f"host=127.0.0.1 port={postgres.port} dbname=mneme"
