"""A Postgres of Mneme's own (`server`), for whoever has configured none: as long as a command takes, and in `mneme serve`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from app.errors import NotReady
from app.settings import Settings

if TYPE_CHECKING:
    from app.features.embedded.server import EmbeddedPostgres

log = logging.getLogger(__name__)

DATABASE_LOOK_S = 1.0
"""Seconds between two looks at the embedded Postgres; each reads a lock, some 0.1 ms."""


@contextmanager
def running(settings: Settings, say: Callable[[str], None]) -> Iterator[str]:
    """Its DSN; at the end it is stopped. Raises NotReady."""
    from app.features.embedded.server import EmbeddedPostgres

    server = EmbeddedPostgres(settings.data_dir, settings.embedded_port, settings.embedded_settings)
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
