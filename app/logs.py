"""Structured logs: one JSON object a line, with the fields that the caller gave; never a body, never a header, no secret."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Literal

import orjson

from app.gateway.relay import QuietBreaks

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON: time, level, logger, message, then what was given as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {key: value for key, value in vars(record).items() if key not in _STANDARD and value is not None}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


class TextFormatter(logging.Formatter):
    """The same for people: the fields behind the message."""

    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(
            f"{key}={value}" for key, value in vars(record).items() if key not in _STANDARD and value is not None
        )
        at = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S")
        text = f"{at} {record.levelname.lower():7} {record.getMessage()}"
        text = f"{text}  {fields}" if fields else text
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def set_up(level: str, shape: Literal["json", "text"]) -> None:
    """Send all logs to standard error. Called once by a command, never on import."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if shape == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # Libraries that say at INFO what Mneme says itself, or say it with URLs.
    for name in ("httpx", "httpcore", "aiohttp.access", "uvicorn.access", "pgqueuer", "asyncio"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("uvicorn.error").addFilter(QuietBreaks())
