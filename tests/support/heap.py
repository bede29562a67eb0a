"""A dump of this process's heap, as far as anything can still be reached."""

from __future__ import annotations

import gc

import numpy as np


def holders(needle: bytes) -> list[str]:
    """The types of the objects that have an array or bytes with `needle` in them; but for itself."""
    gc.collect()
    found = []
    for each in gc.get_objects():
        for held in gc.get_referents(each):
            data = held.tobytes() if isinstance(held, np.ndarray) else held
            if held is not needle and isinstance(data, bytes | bytearray) and needle in data:
                found.append(type(each).__name__)
                break
    return found
