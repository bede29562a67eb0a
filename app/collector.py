"""How often Python looks for garbage in cycles.

A request makes thousands of small objects and next to no cycles. With Python's own thresholds the collector runs several
times a request, and now and then over everything that was loaded at the start: a sixth of the CPU of a request with
memory (measured).
"""

from __future__ import annotations

import gc

YOUNG = 50_000
"""Objects made and not yet dropped, until the young ones are looked through: those of some ten requests at once. Python's
own 700 is less than one request has in use."""
MIDDLE = 20
"""Looks at the young until those that survived one are looked through as well."""
OLD = 20
"""Looks at those until everything is; Python also waits until a quarter of it is new."""


def settle() -> None:
    """When a server has started: what is there now stays, and need not be looked through again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
