"""What happens here, in a minute: traffic, latency, tokens, degradations, storage, the newest calls, drawn as small charts; and
what work is left."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct
from starlette.responses import Response

from app.features.ui.rendering import milliseconds, number, url
from app.features.ui.visit import Entry, Refused, Visit, or_none

# --- charts: columns that stand on one another, and lines, as figures for SVG attributes. Pure ---------------------------

WIDTH, HEIGHT = 480, 170
"""Of a whole chart, in units of its view box: about as many pixels where two charts stand side by side, so that its letters are
as large as they say."""
LEFT, RIGHT, TOP, BOTTOM = 46, 6, 10, 22
"""Margins, for the labels of the axes."""
TICKS = 3
"""Spaces between marks on the upright axis, about."""
GAP = 0.18
"""Of a column's place, that is left empty."""
MOMENTS_S = (300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 2 * 86_400, 7 * 86_400)
"""Distances of marks on the axis of time, seconds."""
MOMENTS = 9
"""Most of them."""

DAY_S = 86_400


class AxisTick(Struct, frozen=True):
    """A mark on an axis: where, and what it says."""

    at: float
    label: str


class Rect(Struct, frozen=True):
    x: float
    y: float
    width: float
    height: float


class Column(Struct, frozen=True):
    """What stands on one place of the axis; `parts`: a rectangle of each series, from below; `hover`: the whole place."""

    parts: tuple[Rect, ...]
    hover: Rect
    title: str


class Chart(Struct, frozen=True):
    """`lines`: of each series the points of each stretch without a gap, as SVG has them; `dots`: points that stand alone."""

    xs: tuple[AxisTick, ...]
    ys: tuple[AxisTick, ...]
    columns: tuple[Column, ...] = ()
    lines: tuple[tuple[str, ...], ...] = ()
    dots: tuple[tuple[tuple[float, float], ...], ...] = ()
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    bottom: int = HEIGHT - BOTTOM


def columns(
    series: Sequence[Sequence[float]],
    since: datetime,
    step_s: int,
    titles: Sequence[str],
    label: Callable[[float], str],
) -> Chart:
    """Series of counts of equal length, one upon the other; `titles`: what each column is about."""
    totals = [sum(values) for values in zip(*series, strict=True)]
    ticks, highest = scale(max(totals, default=0), label, least=1.0)
    place = _place(len(titles))
    drawn = []
    for n, title in enumerate(titles):
        below, parts = 0.0, []
        for values in series:
            low, high = _up(below, highest), _up(below + values[n], highest)
            below += values[n]
            parts.append(
                Rect(_round(_x(n, len(titles)) + place * GAP / 2), high, _round(place * (1 - GAP)), _round(low - high))
            )
        hover = Rect(_round(_x(n, len(titles))), TOP, _round(place), HEIGHT - TOP - BOTTOM)
        drawn.append(Column(tuple(parts), hover, title))
    return Chart(moments(since, step_s, len(titles)), ticks, tuple(drawn))


def lines(
    series: Sequence[Sequence[float | None]],
    since: datetime,
    step_s: int,
    titles: Sequence[str],
    label: Callable[[float], str],
) -> Chart:
    """Series of equal length, each value ≥ 0, or None where there is none: the line has a gap there."""
    ticks, highest = scale(max((each for values in series for each in values if each is not None), default=0), label)
    place = _place(len(titles))
    stretches, dots = [], []
    for values in series:
        points = [
            None if each is None else (_round(_x(n, len(titles)) + place / 2), _up(each, highest))
            for n, each in enumerate(values)
        ]
        runs = _runs(points)
        stretches.append(tuple(" ".join(f"{x},{y}" for x, y in run) for run in runs if len(run) > 1))
        dots.append(tuple(run[0] for run in runs if len(run) == 1))
    hovers = tuple(
        Column((), Rect(_round(_x(n, len(titles))), TOP, _round(place), HEIGHT - TOP - BOTTOM), title)
        for n, title in enumerate(titles)
    )
    return Chart(moments(since, step_s, len(titles)), ticks, hovers, tuple(stretches), tuple(dots))


def scale(highest: float, label: Callable[[float], str], least: float = 0.0) -> tuple[tuple[AxisTick, ...], float]:
    """Marks from 0 up to at least `highest`, at steps of 1, 2 or 5 times a power of ten, of at least `least`; and the value at
    the top."""
    if not highest > 0:
        return (AxisTick(_up(0, 1), label(0)),), 1.0
    raw = max(highest / TICKS, least)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(each * power for each in (1, 2, 5, 10) if each * power >= raw * (1 - 1e-9))
    many = max(math.ceil(highest / step - 1e-9), 1)
    top = step * many
    return tuple(AxisTick(_up(step * n, top), label(step * n)) for n in range(many + 1)), top


def moments(since: datetime, step_s: int, many: int) -> tuple[AxisTick, ...]:
    """Marks on the axis of time, where clocks strike: hours of a day, or days."""
    apart = next((each for each in MOMENTS_S if step_s * many / each <= MOMENTS), MOMENTS_S[-1])
    form, began = "%H:%M" if apart < DAY_S else "%-d %b", since.timestamp()
    first = math.ceil(began / apart) * apart
    return tuple(
        AxisTick(_round(_x((at - began) / step_s, many)), datetime.fromtimestamp(at, UTC).strftime(form))
        for at in range(first, math.ceil(began + step_s * many), apart)
    )


def compact(value: float) -> str:
    """1,250,000 → “1.25M”: for axes."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def duration(ms: float) -> str:
    """2,500 → “2.5 s”; 0.5 → “0.5 ms”: for axes."""
    return f"{ms / 1000:.3g} s" if ms >= 1000 else f"{ms:.3g} ms"


def share(values: Sequence[float]) -> list[float]:
    """Each as a part of the largest, 0..1: for bars that are compared."""
    most = max(values, default=0)
    return [each / most if most > 0 else 0.0 for each in values]


def _place(many: int) -> float:
    return (WIDTH - LEFT - RIGHT) / max(many, 1)


def _x(n: float, many: int) -> float:
    return LEFT + n * _place(many)


def _up(value: float, highest: float) -> float:
    return _round(HEIGHT - BOTTOM - value / highest * (HEIGHT - TOP - BOTTOM))


def _round(value: float) -> float:
    return round(value, 2)


def _runs(points: Sequence[tuple[float, float] | None]) -> list[list[tuple[float, float]]]:
    runs: list[list[tuple[float, float]]] = [[]]
    for point in points:
        if point is None:
            runs.append([])
        else:
            runs[-1].append(point)
    return [each for each in runs if each]


# --- the page ------------------------------------------------------------------------------------------------------------

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
    chart: Chart
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
            or_none(visit.api.get("storage"), 403),  # the key may not see it
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


def _storage(told: Mapping[str, Any] | None) -> list[tuple[str, int, float]] | None:
    """Groups of tables with their bytes and, for bars, their part of the largest; the largest first."""
    if told is None:
        return None
    groups = sorted(told["groups"].items(), key=lambda each: (-each[1], each[0]))
    parts = share([many for _, many in groups])
    return [(name, many, part) for (name, many), part in zip(groups, parts, strict=True)]


def draw(figures: Mapping[str, Any]) -> list[ChartView]:
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
    chart = columns(values, since, step, told, compact)
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
    chart = lines(values, since, step, told, duration)
    rows = [(when, [number(each["p95"], 1), number(each["p50"], 1)]) for when, each in zip(times, found, strict=True)]
    whole = figures["totals"]["latency"][stage]
    summary = f"95th percentile {milliseconds(whole['p95'])}, median {milliseconds(whole['p50'])}"
    return ChartView(stage.removesuffix("_ms"), title, chart, [("p95", "s3"), ("median", "s1")], rows, "ms", summary)


def _axis(figures: Mapping[str, Any]) -> tuple[datetime, int, list[str]]:
    """Where the axis begins, the width of a bucket in seconds, and how each bucket is called."""
    starts = [datetime.fromisoformat(each["since"]) for each in figures["buckets"]]
    form = "%H:%M" if figures["bucket_s"] * len(starts) < DAY_S else "%a %-d %b %H:%M"
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
    job = visit.segment("job")
    await visit.api.send("POST", "queue", "dead", job, "retry")
    return visit.redirect(url("jobs"), f"Job {job} is tried again.")


ROUTES = (Entry("", shown), Entry("/jobs", listed_jobs), Entry("/jobs/{job}/retry", retried_job, ("POST",)))
