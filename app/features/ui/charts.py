"""Small charts over time, as figures for SVG attributes: columns that stand on one another, and lines. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from msgspec import Struct

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
