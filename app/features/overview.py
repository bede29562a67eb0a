"""GET /api/v1/overview: what the calls of the last hours came to, bucket by bucket."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from msgspec import Struct, field
from msgspec.structs import asdict, replace
from pydantic import BaseModel, Field

from app.api.scope import Admitted, Gate
from app.clock import Clock
from app.features import Process
from app.settings import Settings
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
    `eta`: the mean η of their compiles (seed 000 §8.4); costs in micro-cents. `sampled`: not all calls were read, and
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


_SUMMED = (
    "calls", "errors", "streams", "prompt_tokens", "completion_tokens", "memory_tokens", "memory_prompts", "memory_none",
    "cost_microcents",
)  # fmt: skip


def together(single: Sequence[CallFigures], read: CallFigures) -> CallFigures:
    """The sums of all buckets, with the spreads of all that was read of them."""
    degraded = Counter[str]()
    for each in single:
        degraded.update(each.degraded)
    return replace(
        read,
        degraded=dict(degraded),
        sampled=any(each.sampled for each in single),
        **{name: sum(getattr(each, name) for each in single) for name in _SUMMED},
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


# --- the route -----------------------------------------------------------------------------------------------------------

MAX_HOURS = 31 * 24
"""Longest window."""


class SpreadOut(BaseModel):
    """Milliseconds; null: nothing was measured."""

    p50: float | None
    p95: float | None


class LatencyOut(BaseModel):
    """By stage."""

    overhead_ms: SpreadOut = Field(description="What Mneme took before it sent the request on.")
    first_byte_ms: SpreadOut = Field(description="From the request to the answer's first byte.")
    whole_ms: SpreadOut = Field(description="From the request to the answer's end.")


class FiguresOut(BaseModel):
    """What calls came to. Legs count with their call, imported calls not at all."""

    calls: int
    errors: int = Field(description="No answer, an error's status, an error in it, or broken off.")
    streams: int
    degraded: dict[str, int] = Field(description="Calls whose memory was degraded, by reason.")
    prompt_tokens: int
    completion_tokens: int
    memory_tokens: int = Field(description="Of the prompt's, those that Mneme added; from some calls of each bucket.")
    memory_prompts: int = Field(description="Calls whose prompt was compiled with memory.")
    memory_none: int = Field(description="Of those, to which memory had nothing to add.")
    memory_saved_tokens: int = Field(
        description="What filling MNEME_MEMORY_BUDGET_TOKENS in each of those would have added besides."
    )
    cost_microcents: int = Field(description="10⁻⁸ US dollars.")
    latency: LatencyOut
    eta: float | None = Field(
        description="Mean η (seed 000 §8.4) of the compiles that had candidates: worth of the chosen ÷ worth of all, times "
        "their tokens ÷ the memory budget."
    )
    sampled: bool = Field(description="Not all calls were read: what is counted is an estimate.")


class BucketOut(FiguresOut):
    """Calls that began from `since` on, and before `until`."""

    since: datetime
    until: datetime


class OverviewOut(BaseModel):
    """Buckets of one width, oldest first; the last one is not over yet."""

    since: datetime
    until: datetime
    bucket_s: int
    totals: FiguresOut
    buckets: list[BucketOut]


def overview_router(gate: Gate, overview: OverviewStore, clock: Clock, cap: int) -> APIRouter:
    """One route. `cap`: tokens that memories may take in a turn's block."""

    async def figures(
        scope: Admitted,
        hours: Annotated[int, Query(ge=1, le=MAX_HOURS, description="How far back, 31 days at most.")] = 24,
    ) -> OverviewOut:
        """Add up the calls of the last hours. A key made for one user, and X-Mneme-User, see that user's. Of a bucket with very
        many calls only the newest are read, and what is counted is an estimate (`sampled`)."""
        of = spans(hours, clock.now())
        user = scope.named()
        single, all_of_them = await overview.figures(scope.tenant, user.id if user is not None else None, of)
        return OverviewOut(
            since=of[0].since,
            until=of[-1].until,
            bucket_s=round((of[0].until - of[0].since).total_seconds()),
            totals=FiguresOut(**_told(all_of_them, cap)),
            buckets=[
                BucketOut(since=span.since, until=span.until, **_told(each, cap))
                for span, each in zip(of, single, strict=True)
            ],
        )

    router = gate.router("operations")
    router.add_api_route("/overview", figures, methods=["GET"], response_model=OverviewOut)
    return router


def _told(figures: CallFigures, cap: int) -> dict[str, Any]:
    return asdict(figures) | {
        "latency": {f"{name}_ms": asdict(getattr(figures, name)) for name in ("overhead", "first_byte", "whole")},
        "memory_saved_tokens": max(0, figures.memory_prompts * cap - figures.memory_tokens),
    }


def routes(process: Process, settings: Settings, gate: Gate) -> Sequence[APIRouter]:
    store = OverviewStore(process.pool, process.queries)
    return (overview_router(gate, store, process.clock, settings.memory_budget_tokens),)
