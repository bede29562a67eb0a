"""What happens here, in a minute: traffic, latency, tokens, degradations, storage, the newest calls; and what work is left."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from starlette.responses import Response

from app.features.ui import charts
from app.features.ui.rendering import milliseconds, number, url
from app.features.ui.visit import Entry, Refused, Visit

WINDOWS = ((1, "1 hour"), (24, "24 hours"), (168, "7 days"))
USUAL_HOURS = 24
NEWEST = 8
"""Calls listed."""
REASONS = 4
"""Reasons of degraded memory that have a colour of their own; the others are one."""
STAGES = (("overhead_ms", "Our overhead"), ("first_byte_ms", "First byte"), ("whole_ms", "Whole answer"))
DEAD_JOBS = 50


class ChartView(Struct, frozen=True):
    """A chart of the page, as `charts.html` takes it."""

    id: str
    title: str
    chart: charts.Chart
    series: Sequence[tuple[str, str]]
    rows: Sequence[tuple[str, Sequence[str]]]
    unit: str
    summary: str


async def shown(visit: Visit) -> Response:
    """GET /ui: the page, or for htmx the part of it that changes. Where nothing adds up or lists calls, that is Sessions."""
    hours = next((each for each, _ in WINDOWS if str(each) == visit.query("hours")), USUAL_HOURS)
    user, live = visit.query("user"), visit.query("live") != "off"
    try:
        figures, queue, storage, calls = await asyncio.gather(
            visit.api.get("overview", hours=hours, user=user),
            visit.api.get("queue"),
            _if_allowed(visit, "storage"),
            visit.api.get("calls", limit=NEWEST, user=user),
        )
    except Refused as refused:
        if refused.status != 404 or user is not None:
            raise
        return visit.redirect(url("sessions"))
    return visit.render(
        "overview_live.html" if visit.partial else "overview.html",
        windows=WINDOWS,
        hours=hours,
        user=user,
        live=live,
        figures=figures,
        totals=figures["totals"],
        drawn=draw(figures),
        stages=STAGES,
        queue=queue,
        storage=_storage(storage),
        calls=calls["calls"],
        server=f"{visit.request.url.scheme}://{visit.request.url.netloc}",
    )


async def _if_allowed(visit: Visit, *path: str) -> Any:
    """None where the key may not see it."""
    try:
        return await visit.api.get(*path)
    except Refused as refused:
        if refused.status != 403:
            raise
        return None


def _storage(told: Mapping[str, Any] | None) -> list[tuple[str, int, float]] | None:
    """Groups of tables with their bytes and, for bars, their part of the largest; the largest first."""
    if told is None:
        return None
    groups = sorted(told["groups"].items(), key=lambda each: (-each[1], each[0]))
    parts = charts.share([many for _, many in groups])
    return [(name, many, part) for (name, many), part in zip(groups, parts, strict=True)]


def draw(figures: Mapping[str, Any]) -> list[ChartView]:
    """The charts of what /api/v1/overview told."""
    return [_traffic(figures), _tokens(figures), *(_latency(figures, *each) for each in STAGES), *_degraded(figures)]


def _traffic(figures: Mapping[str, Any]) -> ChartView:
    buckets, totals = figures["buckets"], figures["totals"]
    values = [[each["calls"] - each["errors"] for each in buckets], [each["errors"] for each in buckets]]
    summary = f"{number(totals['calls'])} calls, {number(totals['errors'])} of them failed"
    return _columns("traffic", "Calls", figures, [("answered", "s1"), ("failed", "s-bad")], values, summary)


def _tokens(figures: Mapping[str, Any]) -> ChartView:
    buckets, totals = figures["buckets"], figures["totals"]
    series = [("memory", "s1"), ("rest of the prompt", "s2"), ("answer", "s3")]
    values = [
        [each["memory_tokens"] for each in buckets],
        [max(each["prompt_tokens"] - each["memory_tokens"], 0) for each in buckets],
        [each["completion_tokens"] for each in buckets],
    ]
    summary = (
        f"{number(totals['prompt_tokens'])} of prompts, of which memory added {number(totals['memory_tokens'])}, and "
        f"{number(totals['completion_tokens'])} of answers"
    )
    return _columns("tokens", "Tokens", figures, series, values, summary)


def _degraded(figures: Mapping[str, Any]) -> list[ChartView]:
    """Nothing where nothing was degraded: the page says so."""
    told: dict[str, int] = figures["totals"]["degraded"]
    if not told:
        return []
    reasons = sorted(told, key=lambda each: (-told[each], each))
    own, rest = reasons[:REASONS], reasons[REASONS:]
    series = [(reason, f"s{n + 2}") for n, reason in enumerate(own)] + ([("others", "s6")] if rest else [])
    values = [[each["degraded"].get(reason, 0) for each in figures["buckets"]] for reason in own]
    if rest:
        values.append([sum(each["degraded"].get(reason, 0) for reason in rest) for each in figures["buckets"]])
    summary = ", ".join(f"{number(told[each])} for {each}" for each in reasons)
    return [_columns("degraded", "Degraded calls, by reason", figures, series, values, summary)]


def _columns(
    name: str,
    title: str,
    figures: Mapping[str, Any],
    series: Sequence[tuple[str, str]],
    values: Sequence[Sequence[int]],
    summary: str,
) -> ChartView:
    since, step, times = _axis(figures)
    told = [
        f"{when}: " + ", ".join(f"{number(each)} {label}" for (label, _), each in zip(series, at, strict=True))
        for when, at in zip(times, zip(*values, strict=True), strict=True)
    ]
    chart = charts.columns(values, since, step, told, charts.compact)
    rows = [(when, [number(each) for each in at]) for when, at in zip(times, zip(*values, strict=True), strict=True)]
    return ChartView(name, title, chart, series, rows, "", summary)


def _latency(figures: Mapping[str, Any], stage: str, title: str) -> ChartView:
    since, step, times = _axis(figures)
    found = [each["latency"][stage] for each in figures["buckets"]]
    values = [[each[name] for each in found] for name in ("p95", "p50")]
    told = [
        f"{when}: p95 {milliseconds(each['p95'])}, median {milliseconds(each['p50'])}"
        for when, each in zip(times, found, strict=True)
    ]
    chart = charts.lines(values, since, step, told, charts.duration)
    rows = [(when, [number(each["p95"], 1), number(each["p50"], 1)]) for when, each in zip(times, found, strict=True)]
    whole = figures["totals"]["latency"][stage]
    summary = f"95th percentile {milliseconds(whole['p95'])}, median {milliseconds(whole['p50'])}"
    return ChartView(stage.removesuffix("_ms"), title, chart, [("p95", "s3"), ("median", "s1")], rows, "ms", summary)


def _axis(figures: Mapping[str, Any]) -> tuple[datetime, int, list[str]]:
    """Where the axis begins, the width of a bucket in seconds, and how each bucket is called."""
    starts = [datetime.fromisoformat(each["since"]) for each in figures["buckets"]]
    form = "%H:%M" if figures["bucket_s"] * len(starts) < 86_400 else "%a %-d %b %H:%M"
    return starts[0], figures["bucket_s"], [each.strftime(form) for each in starts]


# --- the queue -----------------------------------------------------------------------------------------------------------


async def listed_jobs(visit: Visit) -> Response:
    """GET /ui/jobs. What is left may be known to a key of one user, what failed belongs to the whole tenant."""
    counts, dead = await asyncio.gather(visit.api.get("queue"), _dead(visit))
    return visit.render("jobs.html", counts=counts, dead=dead)


async def _dead(visit: Visit) -> object:
    try:
        return await visit.api.get("queue", "dead", limit=DEAD_JOBS, cursor=visit.query("cursor"))
    except Refused as refused:
        if refused.status != 403:
            raise
        return {"dead": [], "next": None, "refused": refused.message}


async def retried_job(visit: Visit) -> Response:
    """POST /ui/jobs/{job}/retry."""
    job = visit.segment("job")
    await visit.api.send("POST", "queue", "dead", job, "retry")
    return visit.redirect(url("jobs"), f"Job {job} is tried again.")


ROUTES = (Entry("", shown), Entry("/jobs", listed_jobs), Entry("/jobs/{job}/retry", retried_job, ("POST",)))
