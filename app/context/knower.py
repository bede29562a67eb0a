"""Who is asked what is known of the things that a request names: whatever knows of things has one (`Feature.knower`)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, Protocol
from uuid import UUID

from app.context.resolution import Inquiry

RECENT = 10
"""Messages before the question that tell what "they" means (seed 004, stage 4)."""


class Who(NamedTuple):
    """Whose names count. `user` None: nobody's (a confined session), only what the whole tenant knows."""

    tenant: UUID
    user: UUID | None


class EarlierMessage(NamedTuple):
    """A message before the one that is resolved."""

    role: str
    text: str


class Knows(Protocol):
    """Begins inquiries."""

    def idle(self, who: Who) -> bool:
        """Whether it is known that there is nothing to know: then nobody need be asked."""

    async def warm(self) -> None:
        """Ask what questions ask, of nobody, so that the first request need not wait for it. Raises StoreUnavailable."""

    def inquiring(
        self, who: Who, text: str, recent: Sequence[EarlierMessage], now: datetime, deadline_s: float | None = None
    ) -> asyncio.Task[Inquiry | None]:
        """`inquire` beside other work; whoever begins it waits for it, or cancels it."""

    async def inquire(
        self, who: Who, text: str, recent: Sequence[EarlierMessage], now: datetime, deadline_s: float | None = None
    ) -> Inquiry | None:
        """What the mentions of `text` mean, and on request more; None: nothing is known of anything. `deadline_s`: seconds for
        all of it. Raises nothing."""
