"""Structured logs: one JSON object a line, with the fields that the caller gave; never a body, never a header, no secret."""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Literal

import orjson

from app.errors import StoreUnavailable

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}

# Keys, wherever an error's text may quote them: Mneme's, OpenAI's, and whatever a bearer brings.
# Keys are written in lower case, and settings, which begin alike, are not.
_SECRET = re.compile(r"\b(?:mneme_|sk-)[\w-]{8,}|\b[Bb][Ee][Aa][Rr][Ee][Rr]\s+[^\s\"',]{8,}")


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def redacted(text: str) -> str:
    """`text` without what looks like a key."""
    return _SECRET.sub("***", text)


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON: time, level, logger, message, then what was given as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        given = {key: value for key, value in vars(record).items() if key not in _STANDARD and value is not None}
        line |= {key: value for key, value in given.items() if key not in line}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        try:
            text = orjson.dumps(line, default=str).decode()
        except TypeError:  # a lone surrogate, or a number that orjson has not: a log line must not be lost for it
            text = json.dumps(line, default=str)
        return redacted(text)


class TextFormatter(logging.Formatter):
    """The same for people: the fields behind the message."""

    def format(self, record: logging.LogRecord) -> str:
        given = ((key, value) for key, value in vars(record).items() if key not in _STANDARD and value is not None)
        # A client chooses the names of models and paths: none may look like a line of its own, or colour the terminal.
        fields = " ".join(f"{key}={_CONTROL.sub(_escaped, str(value))}" for key, value in given)
        at = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S")
        text = f"{at} {record.levelname.lower():7} {record.getMessage()}"
        text = f"{text}  {fields}" if fields else text
        return redacted(f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text)


class QuietBreaks(logging.Filter):
    """For the logger `uvicorn.error`: a break that Mneme made on purpose is no error of the server's."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.msg != "ASGI callable returned without completing response."


class QuietRetries(logging.Filter):
    """For the logger `pgqueuer`: while Postgres is away it tries ten times a second to write what became of a job, with a
    traceback each time; the worker itself says that Postgres is away, and when it is back."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.exc_info is None or not isinstance(record.exc_info[1], StoreUnavailable)


def set_up(level: str, shape: Literal["json", "text"]) -> None:
    """Send all logs to standard error. Called once by a command, never on import."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if shape == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # Libraries that say at INFO what Mneme says itself, or say it with URLs.
    for name in ("httpx", "httpcore", "aiohttp.access", "uvicorn.access", "pgqueuer", "asyncio", "mcp"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("uvicorn.error").addFilter(QuietBreaks())
    logging.getLogger("pgqueuer").addFilter(QuietRetries())
