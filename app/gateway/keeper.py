"""What keeps calls until Postgres has them: a feature, where there is one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from uuid import UUID

from app.capture.facts import CallFacts
from app.errors import SpoolUnavailable, StoreUnavailable
from app.gateway.addon import Addon
from app.gateway.call import Forwarded, Remembered
from app.gateway.redact import Redactor
from app.gateway.relay import Ending, Tape

Settle = Callable[[Forwarded, Ending, Tape, datetime, UUID | None], Awaitable[CallFacts]]
"""Stores a call that has ended, wherever it comes from (`Finalizer.settle`)."""


class Keeper:
    """Keeps calls while they run, and, while Postgres is away, those that have ended. This one keeps none."""

    def __init__(self, redactor: Redactor | None = None) -> None:
        """`redactor`: takes out what is not to be stored."""
        self.redactor = redactor or Redactor()

    def begin(self, call: Remembered) -> None:
        """The call goes upstream, for the first time or once more. Of a call that is not to be kept, nothing is."""

    def answered(self, call: Forwarded) -> None:
        """The head of its answer is here."""

    def copy(self, call_id: UUID) -> Callable[[int, bytes], None] | None:
        """Where pieces of its answer go as they come; None: nowhere."""
        return None

    def release(self, call_id: UUID) -> None:
        """It needs nothing more."""

    def goes_behind(self, call: Forwarded) -> bool:
        """Whether a call that has ended has to wait without Postgres being asked."""
        return False

    def behind(self, user: UUID) -> bool:
        """Whether calls of this user wait."""
        return False

    def lost(self, error: StoreUnavailable) -> None:
        """Postgres did not take a call. Raises `error` where nothing else takes it."""
        raise error

    async def keep(
        self, call: Forwarded, ending: Ending, tape: Tape, ended_at: datetime, hashes: Sequence[bytes] = ()
    ) -> None:
        """Keep a call that has ended; returns when it is durable. `hashes`: of its answer's messages, where something is
        redacted. Raises SpoolUnavailable."""
        raise SpoolUnavailable

    async def caught_up(self, user: UUID) -> None:
        """Wait until none of a user's calls waits any more. Raises StoreUnavailable when Postgres is away still."""

    async def tidy(self) -> None:
        """Take over what dead processes left: before the first request, for its user's earlier calls may be among it."""

    def unreachable(self) -> None:
        """Postgres has not been there since the process began: nobody drains yet."""

    def drain(
        self, settle: Settle, writable: Callable[[], Awaitable[bool]], capture_max_bytes: int, addon: Addon | None
    ) -> Callable[[], None]:
        """Begin to store what waits, by `settle`; what ends that. `writable`: whether Postgres answers and takes writes."""
        return self.close

    def close(self) -> None:
        """At the end of the process."""
