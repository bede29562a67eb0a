"""How full the prompt is: the zones of seed 002 (§1.5, §3.2), and the sums of its pressure query (§2.4). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from msgspec import Struct

from app.store.paging_values import SemanticObject, Zone

ZONES = (Zone.NORMAL, Zone.CAUTION, Zone.WARNING, Zone.CRITICAL, Zone.EMERGENCY)
BORDERS: Mapping[Zone, float] = MappingProxyType(
    {Zone.NORMAL: 0.0, Zone.CAUTION: 0.60, Zone.WARNING: 0.75, Zone.CRITICAL: 0.85, Zone.EMERGENCY: 0.95}
)
"""Where each zone begins, tokens ÷ budget. The seed has one point of them: 78 % is WARNING."""
HYSTERESIS = 0.05
"""How far below its border a zone is left again: one answer more or less must not be another zone."""


class Pressure(Struct, frozen=True):
    """What the seed's query tells of a session's objects (§2.4). `at`: objects at L0 to L4."""

    tokens: int
    at: tuple[int, int, int, int, int]
    pinned: int


def pressure(objects: Iterable[SemanticObject]) -> Pressure:
    """Seed 002 §2.4: tokens of all objects at the level they are shown at, and how many there are of each."""
    tokens = pinned = 0
    at = [0, 0, 0, 0, 0]
    for each in objects:
        tokens += each.tokens_at(each.fidelity)
        at[each.fidelity] += 1
        pinned += each.pinned
    return Pressure(tokens, (at[0], at[1], at[2], at[3], at[4]), pinned)


def zone(tokens: int, budget: int, before: Zone = Zone.NORMAL, borders: Mapping[Zone, float] = BORDERS) -> Zone:
    """The zone of a prompt of so many tokens, where it was `before`: up at a border, down only 0.05 below it.

    A budget of 0 or less is an emergency: nothing fits.
    """
    if budget <= 0:
        return Zone.EMERGENCY
    share = tokens / budget
    up = max(each for each in range(len(ZONES)) if share >= borders[ZONES[each]])
    last = ZONES.index(before)
    while last > up and share < borders[ZONES[last]] - HYSTERESIS:
        last -= 1
    return ZONES[max(up, last)]


def at_least(one: Zone, other: Zone) -> bool:
    """Whether a zone is as full as the other, or fuller."""
    return ZONES.index(one) >= ZONES.index(other)
