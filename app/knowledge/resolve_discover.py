"""Lazy discovery in the business's own database (seed 004), remembered for a while: most words are no thing, every turn."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from app.clock import Clock
from app.knowledge.resolve_types import Finder, Found, Sought, Wanted
from app.tasks import Supervisor

MAX_WANTED = 8
"""Mentions of a text, and of those before it, that are looked for."""
REMEMBERED_S = 30.0
"""Seconds for which what was found, or not, stands: a row that was just made is found so much later."""
REMEMBERED = 10_000
"""Mentions remembered, some 500 bytes each."""


_Key = tuple[UUID, int, Wanted]


class Discovery:
    """Asks a `Finder` for what it was not asked just now. A search goes on when those who wait for it do not any more: names
    are slow to find in large tables, and what came of it is there for the next."""

    def __init__(self, finder: Finder | None, clock: Clock) -> None:
        self._finder = finder
        self._clock = clock
        self._known: OrderedDict[_Key, tuple[tuple[Found, ...], datetime]] = OrderedDict()
        self._tasks = Supervisor()
        self._searches: dict[_Key, asyncio.Task[Sought]] = {}

    async def find(
        self, tenant: UUID, version: int, wanted: Sequence[Wanted], *, until: float | None = None
    ) -> tuple[Mapping[Wanted, tuple[Found, ...]], bool]:
        """What there is under each, of the first `MAX_WANTED`, and whether a database was away, or not done by `until`
        (monotonic seconds). `version`: of the ontology, by which it is looked for."""
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
        new = [each for each in missing if (tenant, version, each) not in self._searches]
        if new:
            search = self._tasks.spawn(self._search(self._finder, tenant, version, new), "discover")
            self._searches |= dict.fromkeys([(tenant, version, each) for each in new], search)
        searches = {each: self._searches[tenant, version, each] for each in missing}
        if searches:
            left_s = max(0.0, until - time.monotonic()) if until is not None else None
            await asyncio.wait(set(searches.values()), timeout=left_s)
        away = False
        for each, search in searches.items():
            sought = search.result() if search.done() else Sought(away=True)
            found[each] = tuple(row for row in sought.found if row.mention == each.mention)
            away = away or sought.away
        return found, away

    async def _search(self, finder: Finder, tenant: UUID, version: int, wanted: Sequence[Wanted]) -> Sought:
        """What a database that was away did not say is not remembered."""
        try:
            sought = await finder.find(tenant, wanted)
        finally:
            for each in wanted:
                del self._searches[tenant, version, each]
        for each in wanted if not sought.away else ():
            key = tenant, version, each
            self._known[key] = (tuple(row for row in sought.found if row.mention == each.mention), self._clock.now())
            self._known.move_to_end(key)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return sought
