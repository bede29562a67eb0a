"""GET /api/v1/overview: what the calls of the last hours came to."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from app.api.scope import Admitted, Gate
from app.clock import Clock
from app.features.overview.store import Bucket, CallFigures, OverviewStore, Spread, spans

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
        description="Mean η of the compiles: of the best that all candidates could fill the same tokens with (seed 000 §8.4)."
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
            buckets=[_bucket(span, each, cap) for span, each in zip(of, single, strict=True)],
        )

    router = gate.router("operations")
    router.add_api_route("/overview", figures, methods=["GET"], response_model=OverviewOut)
    return router


def _bucket(span: Bucket, figures: CallFigures, cap: int) -> BucketOut:
    return BucketOut(since=span.since, until=span.until, **_told(figures, cap))


def _told(figures: CallFigures, cap: int) -> dict[str, object]:
    return {
        "calls": figures.calls,
        "errors": figures.errors,
        "streams": figures.streams,
        "degraded": figures.degraded,
        "prompt_tokens": figures.prompt_tokens,
        "completion_tokens": figures.completion_tokens,
        "memory_tokens": figures.memory_tokens,
        "memory_prompts": figures.memory_prompts,
        "memory_none": figures.memory_none,
        "memory_saved_tokens": max(0, figures.memory_prompts * cap - figures.memory_tokens),
        "cost_microcents": figures.cost_microcents,
        "latency": LatencyOut(
            overhead_ms=_spread(figures.overhead),
            first_byte_ms=_spread(figures.first_byte),
            whole_ms=_spread(figures.whole),
        ),
        "eta": figures.eta,
        "sampled": figures.sampled,
    }


def _spread(spread: Spread) -> SpreadOut:
    return SpreadOut(p50=spread.p50, p95=spread.p95)
