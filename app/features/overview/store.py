"""What the calls of a window of time came to, bucket by bucket."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct, field

from app.store.pools import Pool
from app.store.queries import Queries

MAX_BUCKETS = 60
"""As many columns as a chart half a page wide can show."""

MAX_CALLS = 500
"""Calls read of one bucket: 30,000 of a window, some 0.3 s. From so many a 95th percentile can be told; how many there were is
worked out from the time that they took."""

MAX_COMPILED = 20
"""Of those, calls whose compile is looked into, for what memory added: each has some 10 KB of JSON."""

STEPS_S = (60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)
"""Widths of a bucket, seconds: such as clocks show, from an hour in `MAX_BUCKETS` to 31 days in them."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Spread(Struct, frozen=True):
    """Milliseconds; None: nothing was measured."""

    p50: float | None = None
    p95: float | None = None


class CallFigures(Struct, frozen=True, kw_only=True):
    """What calls came to. `degraded`: calls whose memory was, by reason; `memory_tokens`: what Mneme added to their prompts,
    `memory_prompts`: of how many, `memory_none`: to how many of those nothing;
    `eta`: the mean efficiency of their compiles (seed 000 §6.4); costs in micro-cents. `sampled`: not all calls were read, and
    what is counted is an estimate."""

    calls: int = 0
    errors: int = 0
    streams: int = 0
    degraded: dict[str, int] = field(default_factory=dict)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    memory_tokens: int = 0
    memory_prompts: int = 0
    memory_none: int = 0
    cost_microcents: int = 0
    overhead: Spread = Spread()
    first_byte: Spread = Spread()
    whole: Spread = Spread()
    eta: float | None = None
    sampled: bool = False


class Bucket(Struct, frozen=True):
    """A bucket: what began from `since` on, and before `until`."""

    since: datetime
    until: datetime


def spans(hours: int, now: datetime) -> list[Bucket]:
    """At most `MAX_BUCKETS` buckets of one width, oldest first, of the last `hours` (1 to 744) up to `now`; they begin when
    clocks strike, so the window may be up to one bucket longer, and the last is not over yet."""
    step = next(each for each in STEPS_S if hours * 3600 <= each * (MAX_BUCKETS - 1))
    width = timedelta(seconds=step)
    first = _EPOCH + (now - timedelta(hours=hours) - _EPOCH) // width * width
    starts = [first + n * width for n in range((now - first) // width + 1)]
    return [Bucket(each, min(each + width, now + timedelta(milliseconds=1))) for each in starts]


class OverviewStore:
    """Reads captured calls."""

    def __init__(self, pool: Pool, queries: Queries) -> None:
        self._pool = pool
        self._sql = queries

    async def figures(
        self, tenant: UUID, user: UUID | None, of: Sequence[Bucket]
    ) -> tuple[list[CallFigures], CallFigures]:
        """Of each span, and of all together; of one user, or of the whole tenant. Raises StoreUnavailable."""
        lows, highs = [each.since for each in of], [each.until for each in of]
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(
                self._sql["overview.figures"], tenant, user, lows, highs, MAX_CALLS, MAX_COMPILED
            )
        reasons: dict[int, dict[str, int]] = {}
        for row in rows:
            if row["by_reason"]:
                reasons.setdefault(row["span"], {})[row["why"] or "unknown"] = row["calls"]
        found = {row["span"]: row for row in rows if not row["by_reason"]}
        single = [
            _figures(found[n], reasons.get(n, {}), of[n - 1]) if n in found else CallFigures()
            for n in range(1, len(of) + 1)
        ]
        return single, together(single, _figures(found[None], {}, None) if None in found else CallFigures())


def together(single: Sequence[CallFigures], read: CallFigures) -> CallFigures:
    """The sums of all buckets, with the spreads of all that was read of them."""
    degraded: dict[str, int] = {}
    for each in single:
        for reason, many in each.degraded.items():
            degraded[reason] = degraded.get(reason, 0) + many
    return CallFigures(
        calls=sum(each.calls for each in single),
        errors=sum(each.errors for each in single),
        streams=sum(each.streams for each in single),
        degraded=degraded,
        prompt_tokens=sum(each.prompt_tokens for each in single),
        completion_tokens=sum(each.completion_tokens for each in single),
        memory_tokens=sum(each.memory_tokens for each in single),
        memory_prompts=sum(each.memory_prompts for each in single),
        memory_none=sum(each.memory_none for each in single),
        cost_microcents=sum(each.cost_microcents for each in single),
        overhead=read.overhead,
        first_byte=read.first_byte,
        whole=read.whole,
        eta=read.eta,
        sampled=any(each.sampled for each in single),
    )


def scale(read: int, oldest: datetime, span: Bucket) -> float:
    """How many calls of a span each one that was read stands for: the newest `read` of it go back to `oldest`, and it is taken
    that before then as many came in the same time. 1: all were read."""
    if read < MAX_CALLS:
        return 1.0
    covered = max((span.until - oldest) / timedelta(milliseconds=1), 1.0)
    return max((span.until - span.since) / timedelta(milliseconds=1) / covered, 1.0)


def _figures(row: Any, reasons: dict[str, int], span: Bucket | None) -> CallFigures:
    times = scale(row["read"], row["oldest"], span) if span is not None else 1.0

    def whole(value: float) -> int:
        return round(value * times)

    looked_into = row["looked_into"] or 1
    return CallFigures(
        calls=whole(row["calls"]),
        errors=whole(row["errors"]),
        streams=whole(row["streams"]),
        degraded={reason: whole(many) for reason, many in reasons.items() if many},
        prompt_tokens=whole(row["prompt_tokens"]),
        completion_tokens=whole(row["completion_tokens"]),
        memory_tokens=whole(row["memory_tokens"] / looked_into * row["calls"]),
        memory_prompts=whole(row["compiled"] / looked_into * row["calls"]),
        memory_none=whole(row["without"] / looked_into * row["calls"]),
        cost_microcents=whole(row["cost_microcents"]),
        overhead=Spread(*(row["overhead"] or ())),
        first_byte=Spread(*(row["first"] or ())),
        whole=Spread(*(row["whole"] or ())),
        eta=row["eta"],
        sampled=times > 1,
    )
