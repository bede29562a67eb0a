"""Lazy discovery in the business's own database (seed 004), remembered for a while: most words are no thing, every turn."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from app.clock import Clock
from app.knowledge.resolve_types import Finder, Found, Sought, Wanted

MAX_WANTED = 8
"""Mentions of a text, and of those before it, that are looked for."""
REMEMBERED_S = 30.0
"""Seconds for which what was found, or not, stands: a row that was just made is found so much later."""
REMEMBERED = 10_000
"""Mentions remembered, some 500 bytes each."""


class Discovery:
    """Asks a `Finder` for what it was not asked just now."""

    def __init__(self, finder: Finder | None, clock: Clock) -> None:
        self._finder = finder
        self._clock = clock
        self._known: OrderedDict[tuple[UUID, int, Wanted], tuple[tuple[Found, ...], datetime]] = OrderedDict()

    async def find(
        self, tenant: UUID, version: int, wanted: Sequence[Wanted], *, until: float | None = None
    ) -> tuple[Mapping[Wanted, tuple[Found, ...]], bool]:
        """What there is under each, of the first `MAX_WANTED`, and whether a database was away, or not done by `until`
        (monotonic seconds): what it has not said is not remembered. `version`: of the ontology, by which it is looked for."""
        asked = list(dict.fromkeys(wanted))[:MAX_WANTED]
        if self._finder is None or not asked:
            return {}, False
        now = self._clock.now()
        found: dict[Wanted, tuple[Found, ...]] = {}
        for each in asked:
            known = self._known.get((tenant, version, each))
            if known is not None and timedelta(0) <= now - known[1] < timedelta(seconds=REMEMBERED_S):
                found[each] = known[0]
        missing = [each for each in asked if each not in found]
        sought = await self._finder.find(tenant, missing, until=until) if missing else Sought()
        for each in missing:
            found[each] = tuple(row for row in sought.found if row.mention == each.mention)
            if not sought.away:
                self._known[tenant, version, each] = (found[each], now)
                self._known.move_to_end((tenant, version, each))
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return found, sought.away
