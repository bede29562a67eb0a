"""Learning with the turn: where the rules find something in what the user says, the turn's `learn` job is done before its end
is acknowledged, so that the next request knows it, on any server.

The job is queued with the turn all the same, and comes `later_s` after it: it finds itself done, or does what was not.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Literal

from app.clock import Clock
from app.errors import MnemeError
from app.memory.candidate import Exchange
from app.memory.extract import extract
from app.metrics import Metrics

log = logging.getLogger(__name__)

MAX_CHARS = 600
"""Characters of a message that the rules read with the turn: 0.1 ms for a question, some 1 ms for five sentences.
Longer ones are left to the job."""

WITHIN_S = 1.0
"""Seconds that an answer's end waits for it at most. A server's first, with connections to
open, takes some 200 ms."""

LATER_S = 3.0
"""Seconds after which the queued job comes: long enough that no worker does it at the same time."""


class Inline:
    """Does `learn` jobs with their turns."""

    later_s = LATER_S

    def __init__(self, learn: Callable[[bytes], Awaitable[None]], clock: Clock, metrics: Metrics) -> None:
        """`learn`: does a job, once; see `app/jobs/tasks.py`."""
        self._learn = learn
        self._clock = clock
        self._metrics = metrics

    def finds(self, text: str) -> bool:
        """Whether the rules find something in a message of the user's."""
        return len(text) <= MAX_CHARS and bool(extract(Exchange(text, self._clock.now())))

    async def learn(self, payload: bytes) -> None:
        """Do a job within `WITHIN_S`; what fails, or is late, is left to the queue."""
        began = time.perf_counter()
        outcome: Literal["done", "late", "failed"] = "done"
        try:
            async with asyncio.timeout(WITHIN_S):
                await self._learn(payload)
        except TimeoutError:
            outcome = "late"
        except MnemeError as error:
            outcome = "failed"
            log.info("a turn is learned from by the worker", extra={"reason": error.message})
        except Exception:  # boundary: the turn is stored; what is wrong with its learning is the job's to say
            outcome = "failed"
            log.exception("a turn is learned from by the worker")
        self._metrics.learned_inline(outcome, time.perf_counter() - began)
