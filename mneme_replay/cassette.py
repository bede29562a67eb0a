"""A cassette: one call, as the client made it, as it went upstream, and as it was answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, get_args

VERSION = 1
"""Of the format. A reader takes this one and those before it."""

Outcome = Literal["complete", "broken", "gone", "cancelled", "failed"]
"""How a call ended: to its last byte; the upstream broke off; the client went away; Mneme stopped; there was no answer."""
OUTCOMES: tuple[str, ...] = get_args(Outcome)

Headers = Sequence[tuple[str, str]]
"""As they came, in their order; each byte of a value is one character (ISO 8859-1)."""


class CassetteError(ValueError):
    """A cassette cannot be read, or must not be written."""


class Chunk(NamedTuple):
    """One piece of an answer as it arrived: microseconds since the request came in, and how many bytes."""

    at_us: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request as the client sent it. `path` with its query. `truncated`: the capture stopped before the body did."""

    method: str
    path: str
    headers: Headers = ()
    body: bytes = b""
    truncated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """An answer as the upstream sent it: `chunks` cover the body. `truncated`: the capture stopped before the body did."""

    status: int
    headers: Headers = ()
    body: bytes = b""
    chunks: Sequence[Chunk] = ()
    truncated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cassette:
    """`sent`: the body that went upstream, where that was another. `response` is None where there was none; `error` says why,
    or why it broke. `labels`: None where those of the request's X-Mneme-Label stand. `redacted`: JSON paths that were taken
    out of the bodies. `call`: what else was known of it (user, session, model, usage, …), of which a replay looks at
    `latency_ms` only."""

    id: str
    recorded_at: str
    request: Request
    outcome: Outcome
    sent: bytes | None = None
    response: Response | None = None
    error: str | None = None
    labels: Sequence[str] | None = None
    redacted: Sequence[str] = ()
    call: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    """The file that it was read from."""

    @property
    def whole(self) -> bool:
        """Whether a client that reads the answer to its end sees an end."""
        return self.outcome == "complete" and self.response is not None and not self.response.truncated

    @property
    def at(self) -> datetime:
        """`recorded_at`, in UTC. Raises ValueError and OverflowError."""
        return moment(self.recorded_at)


def moment(text: str) -> datetime:
    """A time in ISO 8601; without a zone it is in UTC. Raises ValueError and OverflowError."""
    found = datetime.fromisoformat(text)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
