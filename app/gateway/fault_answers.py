"""What a question about left-out parts is answered with, and what follows of it: for a model's calls and for people's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from msgspec.structs import replace

from app.errors import MnemeError
from app.paging.answer_llm import answer_with_helper
from app.paging.answering import Answer, Source, answer
from app.paging.entropy import Verdict, judge
from app.providers.helper import Helper
from app.store.paging_values import Asked, Counter, Fault, FaultType

log = logging.getLogger("mneme.paging")


class Limits(NamedTuple):
    """Seconds that the steps of a leg's faults may take, all its calls together. `vector`: the question's vector, without
    which words are enough; `find`: with it, what the store knows, and then what is likeliest of it; `write`: the helper LLM,
    without which quotations are enough; `quote`: these. So questions wait for 2 · `find` + `write` + `quote` at most, and
    what is wanted in full for one `find` more."""

    vector: float = 0.5
    find: float = 2.0
    write: float = 10.0
    quote: float = 3.0


LIMITS = Limits()

Result = Literal["answered", "restored", "nothing"]


class Meter(Protocol):
    """Where faults are counted (`metrics.py`)."""

    def fault(self, kind: str, result: Result, seconds: float) -> None: ...


class Writer:
    """Answers a question from sources: by the helper LLM where there is one, else, and where it fails, in quotations."""

    def __init__(self, count: Counter, helper: Helper | None = None, limits: Limits = LIMITS) -> None:
        self.count = count
        self._helper = helper
        self._limits = limits

    async def write(self, question: str, sources: Sequence[Source], budget: int) -> Answer:
        """Within `budget` tokens; empty where nothing answers. Raises TimeoutError."""
        if self._helper is not None and sources:
            try:
                async with asyncio.timeout(self._limits.write):
                    return await answer_with_helper(self._helper, question, sources, self.count, budget)
            except (MnemeError, TimeoutError) as error:
                log.info("a micro-fault was not answered by the helper LLM", extra={"reason": str(error)})
        async with asyncio.timeout(self._limits.quote):
            return await asyncio.to_thread(answer, question, sources, self.count, budget)


def result_of(fault: Fault) -> Result:
    """What came of a fault."""
    if fault.object_id is None:
        return "nothing"
    return "restored" if fault.fault_type == FaultType.FULL_RESTORE else "answered"


def judged(fault: Fault, before: Sequence[Asked], shown_less: bool) -> Fault:
    """A micro-fault with what follows of it, after those before it about the same object (`entropy.py`). `shown_less`: the
    object is shown below full."""
    verdict = judge([*before, Asked(fault.turn, fault.question or "")], fault.turn)
    if verdict == Verdict.RAISE and shown_less:
        return replace(fault, fault_type=FaultType.ENTROPY_TRIGGERED, raises=True)
    return replace(fault, pin=verdict == Verdict.PIN)
