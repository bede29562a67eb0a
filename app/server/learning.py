"""What learns from turns, wired: for the worker, and for a server, with a turn in which the rules find something."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from app.jobs.learn import Comparing, Hearing, Learner, Notes, Noting, ValidationAnswers
from app.memory.candidate import MemoryCandidate, SourceExchange
from app.memory.compare import Pair, PairVerdict, judged
from app.memory.extract import extract
from app.memory.secrets import refuser
from app.optional import imported
from app.server.core import Core
from app.store.learning import LearningStore
from app.store.validation import Validation

if TYPE_CHECKING:
    from app.providers.helper import Helper


async def learner(core: Core, hearing: Hearing | None, helper: Helper | None, noting: Noting | None = None) -> Learner:
    """Learns by the rules; `helper` adds to them, in jobs of the worker. `hearing`, `noting`: see `Feature`."""

    reading = imported("helper.extract") if helper is not None else None

    async def by_rules(exchange: SourceExchange) -> Sequence[MemoryCandidate]:
        return extract(exchange)

    async def by_helper(exchange: SourceExchange) -> Sequence[MemoryCandidate]:
        assert reading is not None, "chosen only where there is a helper"
        found: Sequence[MemoryCandidate] = await reading.extract_with_helper(helper, exchange)
        return found

    async def by_judgement(pairs: Sequence[Pair]) -> Mapping[int, PairVerdict]:
        assert helper is not None, "chosen only where there is one"
        return await judged(helper, pairs)

    commands = imported("commands.withdrawal")
    space = await core.turns.space_of(core.embedder.space)
    refuses = refuser(core.settings.refuse_pii, core.settings.refuse_patterns)
    pool = core.pools.background
    store = LearningStore(pool, core.queries)
    comparing = None
    if helper is not None and space is not None:
        comparing = Comparing(store, by_judgement, core.clock, space=space)
    return Learner(
        store,
        embedder=core.embedder,
        space=space,
        extract=by_rules,
        helper=by_helper if reading is not None else None,
        comparing=comparing,
        count=core.counter.count,
        clock=core.clock,
        store_secrets=core.settings.store_secrets,
        refuses=refuses,
        note=Notes(core.queries, core.clock, noting),
        hearing=hearing,
        taking_back=partial(commands.withdraw, core.queries, core.clock) if commands is not None else None,
        answers=ValidationAnswers(
            Validation(pool, core.queries, core.clock, space=space, actor="user"),
            embedder=core.embedder,
            count=core.counter.count,
            store_secrets=core.settings.store_secrets,
            refuses=refuses,
        ),
    )
