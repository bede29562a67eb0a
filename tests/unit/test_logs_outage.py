"""What the log holds while Postgres is away: once what is so, not ten times a second."""

import logging
import sys

from app.errors import StoreUnavailable
from app.logs import QuietRetries


def _record(error: Exception | None) -> logging.LogRecord:
    info = None
    if error is not None:
        try:
            raise error
        except type(error):
            info = sys.exc_info()
    return logging.LogRecord("pgqueuer", logging.ERROR, __file__, 1, "Flush failed, requeuing %d items", (1,), info)


def test_a_write_that_waits_for_postgres_is_not_told() -> None:
    assert not QuietRetries().filter(_record(StoreUnavailable()))


def test_what_else_fails_is() -> None:
    assert QuietRetries().filter(_record(ValueError()))
    assert QuietRetries().filter(_record(None))
