"""What two periods' figures come to, in words: total, change against the period before, shares, the largest. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import NamedTuple

from msgspec import Struct

TREND = 0.10
"""Change against the period before from which it is a trend, and what is told of it a pattern: below a tenth, weeks of a small
business differ by chance (a choice, not measured)."""
TOP = 3
"""Largest rows that are named: those of seed 001 §6.4, the top post among them."""


class Measured(NamedTuple):
    """A row: `label` None where the query has none."""

    label: str | None
    value: float


class Figures(NamedTuple):
    """What a query said of two periods, each largest first."""

    now: tuple[Measured, ...]
    before: tuple[Measured, ...]


class Bounds(NamedTuple):
    """A period, from `begin` until before `end`; the one before it begins at `before`."""

    before: datetime
    begin: datetime
    end: datetime


class Insight(Struct, frozen=True):
    """What is asked again and again. `period_days`: whole days before today, UTC; `every_hours`: how often."""

    name: str
    domain: str
    title: str
    source: str
    unit: str = ""
    period_days: int = 7
    every_hours: int = 6


class InsightText(Struct, frozen=True):
    """What it says. `change`: against the period before, as a share of that; None where there was nothing."""

    text: str
    total: float
    change: float | None

    @property
    def kind(self) -> str:
        """Of the memory (seed 001 §4.1: fact, pattern)."""
        return "pattern" if self.change is not None and abs(self.change) >= TREND else "fact"


def bounds_of(days: int, now: datetime) -> Bounds:
    """The last whole days before today, UTC."""
    end = datetime.combine(now.astimezone(UTC).date(), time(), UTC)
    length = timedelta(days=days)
    return Bounds(end - 2 * length, end - length, end)


def said(insight: Insight, figures: Figures, bounds: Bounds) -> InsightText | None:
    """None: there is nothing to say of this period, nor of the one before."""
    if not figures.now and not figures.before:
        return None
    total = sum(each.value for each in figures.now)
    former = sum(each.value for each in figures.before)
    change = (total - former) / abs(former) if former else None
    unit = f" {insight.unit}" if insight.unit else ""
    text = (
        f"{insight.title}, {bounds.begin:%Y-%m-%d} to {bounds.end - timedelta(days=1):%Y-%m-%d}: {_number(total)}{unit}"
    )
    text += f", {_compared(change, former, insight.period_days)}"
    labelled = [each for each in figures.now if each.label]
    if len(labelled) > 1 and total > 0 and labelled[-1].value >= 0:  # of what is less than nothing there is no share
        named = (f"{each.label} {_number(each.value)} ({each.value / total:.0%})" for each in labelled[:TOP])
        text += f"; most: {', '.join(named)}"
    elif labelled:
        text += "; " + ", ".join(f"{each.label} {_number(each.value)}" for each in labelled[:TOP])
    return InsightText(text, total, change)


def _compared(change: float | None, former: float, days: int) -> str:
    before = "the day before" if days == 1 else f"the {days} days before"
    if change is None:
        return f"none in {before}" if not former else ""
    if round(change, 2) == 0:
        return f"as in {before} ({_number(former)})"
    return f"{'up' if change > 0 else 'down'} {abs(change):.0%} from {_number(former)} in {before}"


def _number(value: float) -> str:
    """Whole, or to two places."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"
