"""What keeps calls until Postgres has them: a feature, in whose place there may be none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from app.capture.facts import CallFacts
from app.gateway.addon import Addon
from app.gateway.call import Forwarded, Remembered
from app.gateway.redact import Redactor
from app.gateway.relay import Ending, Tape


class Settle(Protocol):
    """Stores a call that has ended, wherever it comes from (`Finalizer.settle`)."""

    async def __call__(
        self,
        call: Forwarded,
        ending: Ending,
        tape: Tape,
        ended_at: datetime,
        promised: UUID | None = None,
    ) -> CallFacts: ...


class Keeps(Protocol):
    """Keeps calls while they run, and, while Postgres is away, those that have ended."""

    redactor: Redactor
    """Takes out what is not to be stored."""

    def begin(self, call: Remembered) -> None:
        """The call goes upstream, for the first time or once more. Of a call that is not to be kept, nothing is."""

    def answered(self, call: Forwarded) -> None:
        """The head of its answer is here."""

    def copy(self, call_id: UUID) -> Callable[[int, bytes], None] | None:
        """Where pieces of its answer go as they come; None: nowhere."""

    def release(self, call_id: UUID) -> None:
        """It needs nothing more."""

    def goes_behind(self, call: Forwarded) -> bool:
        """Whether a call that has ended has to wait without Postgres being asked."""

    def behind(self, user: UUID) -> bool:
        """Whether calls of this user wait."""

    def lost(self) -> None:
        """Postgres did not take a call."""

    async def keep(
        self, call: Forwarded, ending: Ending, tape: Tape, ended_at: datetime, hashes: Sequence[bytes] = ()
    ) -> None:
        """Keep a call that has ended; returns when it is durable. `hashes`: of its answer's messages, where something is
        redacted. Raises SpoolUnavailable."""

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

    def close(self) -> None:
        """At the end of the process."""
