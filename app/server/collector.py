"""How often Python looks for garbage in cycles, and when free memory goes back to the system.

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
TRIM_BYTES, MAP_BYTES = 16 << 20, 4 << 20
"""Free bytes at the end of the heap from which they go back to the system; and bytes of a block that is mapped by itself, and
goes back at once. Left alone, glibc gives back what a ranking of ten thousand items has just freed, and fetches it again, page
by page, for the next: with these it takes a third of the time."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""As malloc.h of glibc numbers them."""


def hold() -> None:
    """Before a process starts: next to nothing of what it loads is garbage, and looking for it takes a sixth of the time. All
    threads have one heap: with one each, what a thread frees no other can take, some 4 MB after a start."""
    gc.set_threshold(YOUNG, MIDDLE, OLD)
    _tell_malloc(_M_ARENA_MAX, 1)


def settle() -> None:
    """When a server has started: what is there now stays, and is never looked through, for next to nothing of it is garbage;
    what the start alone took goes back; and memory that is free from now on is kept for the next request."""
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
    give_back()
    _tell_malloc(_M_TRIM_THRESHOLD, TRIM_BYTES)
    _tell_malloc(_M_MMAP_THRESHOLD, MAP_BYTES)


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


def _tell_malloc(option: int, value: int) -> None:
    """Of another C library than glibc nothing is asked."""
    if (tell := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        tell(option, value)
