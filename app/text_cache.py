"""Results kept ready of users' texts, the least recently used goes first: each text is read once, not for each look."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, ParamSpec, TypeVar, cast
from weakref import WeakSet

P = ParamSpec("P")
R = TypeVar("R")

_KEPT: WeakSet[Any] = WeakSet()


def of_texts(most: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """`lru_cache` for a function of what users say; `most`: results."""

    def keeping(function: Callable[P, R]) -> Callable[P, R]:
        kept = lru_cache(most)(function)
        _KEPT.add(kept)
        return cast("Callable[P, R]", kept)

    return keeping


def forget() -> None:
    """Keep nothing: some of it may be of a user who is being erased. (Some patterns are made of what was asked.)"""
    re.purge()
    for each in list(_KEPT):
        each.cache_clear()
