"""Set how often Python looks for garbage in cycles, and give free memory back to the system.

A request makes thousands of small objects and next to no cycles. With Python's own thresholds the collector runs several
times a request, and now and then over everything that was loaded at the start: a sixth of the CPU of a request with
memory (measured).
"""

from __future__ import annotations

import asyncio
import ctypes
import gc

YOUNG = 50_000
"""Objects made and not yet dropped, until the young ones are looked through: those of some ten requests at once. Python's
own 700 is less than one request has in use."""
MIDDLE = 20
"""Looks at the young until those that survived one are looked through as well."""
OLD = 20
"""Looks at those until everything is; Python also waits until a quarter of it is new."""


def hold() -> None:
    """Set the collector's thresholds before a process starts: next to nothing of what it loads is garbage, and looking for it
    takes a sixth of the time."""
    gc.set_threshold(YOUNG, MIDDLE, OLD)


def settle() -> None:
    """Exclude what a start has made from the collector, for next to nothing of it is garbage, and give back what the start
    alone took."""
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
    give_back()


TIDY_S = 60.0
"""Seconds between two times that a worker tidies up: some 20 ms each."""


async def keep_tidy(stop: asyncio.Event) -> None:
    """Tidy up again and again until `stop` is set: for a process that nobody waits for.

    Jobs are unlike each other and run in several threads: they leave holes in the heap, and cycles that the collector would
    look for after hours. In half an hour a worker grew by a sixth, though it held nothing that it had not held before.
    """
    while not stop.is_set():
        try:
            async with asyncio.timeout(TIDY_S):
                await stop.wait()
        except TimeoutError:
            gc.collect()
            await asyncio.to_thread(give_back)


def give_back() -> bool:
    """Give free memory back to the system; False where the C library knows no such thing (it is glibc's) or had none."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim is not None and bool(trim(0))
