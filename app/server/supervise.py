"""`mneme serve`: one process that starts what is needed, watches it, and stops it in the right order.

    the embedded Postgres (in a session of its own, so that Ctrl-C does not reach it)
    the migrations
    the worker process (restarted when it ends)
    the server: uvicorn in this very process, or its own processes when there are several

Stopping goes the other way round: the server drains, the worker finishes its jobs, Postgres goes last.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

import uvicorn

from app.errors import MnemeError, NotReady
from app.gateway.upstream import Router
from app.settings import LOOPBACK, SUPERVISOR, Settings
from app.store.pools import AGAIN_S

log = logging.getLogger("mneme.supervise")

RESTART_S = (0.5, 1.0, 2.0, 5.0, 10.0)
"""Seconds before a worker that ended by itself is started again; the last figure stays. A worker that cannot start must
not spin, and one that was killed should be back before anyone misses it."""
_WORKER_GRACE_S = 10.0
"""Seconds for the worker to finish its jobs after the server has drained; unfinished ones run again later."""
POLL_S = 0.2
"""Seconds between two looks at the worker process."""

_ANY_ADDRESS = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared, not listened on
_DEFAULT_PORTS = {"http": 80, "https": 443}


class WorkerProcess:
    """Keeps one `mneme worker` running."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._watch, name="worker supervisor", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _watch(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            # A session of its own: a signal to our group must not end it before the server has drained.
            # It is told who we are, and ends by itself when we are gone.
            began = time.monotonic()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "app.cli", "worker"],
                env=self._environment,
                start_new_session=True,
            )
            while self._process.poll() is None:
                if self._stopping.wait(POLL_S):
                    return
            log.warning("the worker ended", extra={"code": self._process.returncode})
            failures = 0 if time.monotonic() - began > RESTART_S[-1] else failures
            self._stopping.wait(RESTART_S[min(failures, len(RESTART_S) - 1)])
            failures += 1

    def stop(self) -> None:
        """Ask it to end, then make it."""
        self._stopping.set()
        self._thread.join()
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(_WORKER_GRACE_S)
        except subprocess.TimeoutExpired:
            log.warning("the worker did not stop in time")
            process.kill()
            process.wait()


class Preparing:
    """Brings a database up to date that was away at the start, when it comes: tries until it is done, or until `stop`."""

    def __init__(self, prepare: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """`prepare`: tries once. Raises MnemeError."""
        self._prepare = prepare
        self._stopping = threading.Event()
        # A daemon: a try that hangs in a connection keeps nobody from ending.
        self._thread = threading.Thread(target=self._run, name="database preparation", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def _run(self) -> None:
        told: set[str] = set()
        while not self._stopping.is_set():
            try:
                asyncio.run(self._prepare())
            except Exception as error:  # boundary: who mends the database need not start the server anew
                reason = str(error) or type(error).__name__
                if reason not in told:
                    known = isinstance(error, MnemeError | OSError)
                    log.warning("the database is not prepared", extra={"error": reason}, exc_info=not known)
                told.add(reason)
                self._stopping.wait(AGAIN_S)
            else:
                log.info("the database is prepared")
                return


ITSELF = "Each request would be forwarded to itself, until no file can be opened any more. Set another MNEME_PORT or upstream."


def asked_of_itself(settings: Settings) -> list[str]:
    """The base URLs of upstreams that lead to where this server listens, as far as their text tells."""
    given = [settings.upstream_base_url, *(each.base_url for each in settings.upstreams)]
    here = {settings.host}
    if settings.host in LOOPBACK | _ANY_ADDRESS:
        here |= LOOPBACK | _ANY_ADDRESS
    found = []
    for url in filter(None, given):
        parts = urlsplit(url)
        if (parts.port or _DEFAULT_PORTS[parts.scheme]) == settings.port and parts.hostname in here:
            found.append(url)
    return found


def check_upstreams(settings: Settings) -> None:
    """Raises NotReady where there is no upstream, or one is this server itself."""
    Router.from_settings(settings)
    if itself := asked_of_itself(settings):
        raise NotReady(f"The upstream {itself[0]} is this server itself. {ITSELF}")


@contextmanager
def _signals_noted() -> Iterator[None]:
    """uvicorn raises the signal that stopped it once more when it has ended: by then it must not end us too."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def note(number: int, _frame: FrameType | None) -> None:
        log.info("stopping", extra={"signal": signal.Signals(number).name})

    for number in before:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run(settings: Settings, dsn: str, prepare: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
    """Run the worker and the server until a signal comes. `prepare`: brings the database up to date, which was away until now.
    Raises NotReady when the server cannot start."""
    os.environ["MNEME_DATABASE_URL"] = dsn
    os.environ[SUPERVISOR] = str(os.getpid())
    os.environ["MNEME_HOST"], os.environ["MNEME_PORT"] = settings.host, str(settings.port)
    with _signals_noted(), tempfile.TemporaryDirectory(prefix="mneme-metrics-") as folder:
        if settings.workers > 1:
            # Read by prometheus_client when it is first imported, in the server processes.
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        worker = WorkerProcess(os.environ) if settings.worker == "on" else None
        preparing = Preparing(prepare) if prepare is not None else None
        for each in (worker, preparing):
            if each is not None:
                each.start()
        try:
            uvicorn.run(
                "app.server.main:create_app",
                factory=True,
                host=settings.host,
                port=settings.port,
                workers=settings.workers,
                loop="uvloop",
                http="app.server.http:Protocol",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                timeout_graceful_shutdown=max(1, round(settings.shutdown_grace_s)),
            )
        except SystemExit as ended:  # with a code of uvicorn's own
            raise NotReady("The server cannot start; the log says why.") from ended
        finally:
            for each in (preparing, worker):
                if each is not None:
                    each.stop()
