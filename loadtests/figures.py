"""From measurements to figures: medians over the rounds, of ratios between what was measured next to each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from loadtests.load import Summary
from loadtests.work import Kind

DASH = "–"


@dataclass(frozen=True, slots=True)
class Measure:
    """One contender under one load in one round. CPU in milliseconds per request, Postgres apart; 0 for `direct`."""

    contender: str
    kind: Kind
    clients: int
    round: int
    answers: Summary
    server_ms: float
    postgres_ms: float

    @property
    def cpu_ms(self) -> float:
        return self.server_ms + self.postgres_ms


@dataclass(frozen=True, slots=True)
class Cell:
    """A contender under one load, over all rounds. NaN where there is nothing to compare with.

    Plain figures are medians; `…_floor` and `…_direct` medians of the ratio to that contender in the same round; `added_…`
    medians of the difference to `direct`, milliseconds.
    """

    contender: str
    kind: Kind
    clients: int
    rounds: int
    requests: int
    errors: int
    degraded: int
    rps: float
    p50_ms: float
    p99_ms: float
    first_p50_ms: float
    reads: float
    server_ms: float
    postgres_ms: float
    cpu_floor: float
    rps_direct: float
    rps_floor: float
    added_p50_ms: float
    added_p99_ms: float
    added_first_ms: float

    @property
    def cpu_ms(self) -> float:
        return self.server_ms + self.postgres_ms


def summarise(measures: Sequence[Measure]) -> list[Cell]:
    """The cells, in the order of first appearance."""
    found = {(each.kind, each.clients, each.round, each.contender): each for each in measures}
    cells = dict.fromkeys((each.kind, each.clients, each.contender) for each in measures)
    return [
        _cell([each for each in measures if (each.kind, each.clients, each.contender) == key], found) for key in cells
    ]


def _cell(rounds: Sequence[Measure], found: dict[tuple[Kind, int, int, str], Measure]) -> Cell:
    def against(other: str, figure: Callable[[Measure, Measure], float]) -> float:
        pairs = [(each, found.get((each.kind, each.clients, each.round, other))) for each in rounds]
        return middle(figure(each, base) for each, base in pairs if base is not None)

    def plain(figure: Callable[[Measure], float]) -> float:
        return middle(map(figure, rounds))

    first = rounds[0]
    return Cell(
        contender=first.contender,
        kind=first.kind,
        clients=first.clients,
        rounds=len(rounds),
        requests=sum(each.answers.requests for each in rounds),
        errors=sum(each.answers.errors for each in rounds),
        degraded=sum(each.answers.degraded for each in rounds),
        rps=plain(lambda m: m.answers.rps),
        p50_ms=plain(lambda m: m.answers.p50_ms),
        p99_ms=plain(lambda m: m.answers.p99_ms),
        first_p50_ms=plain(lambda m: m.answers.first_p50_ms),
        reads=plain(lambda m: m.answers.reads),
        server_ms=plain(lambda m: m.server_ms),
        postgres_ms=plain(lambda m: m.postgres_ms),
        cpu_floor=against("floor", lambda m, base: ratio(m.cpu_ms, base.cpu_ms)),
        rps_direct=against("direct", lambda m, base: ratio(m.answers.rps, base.answers.rps)),
        rps_floor=against("floor", lambda m, base: ratio(m.answers.rps, base.answers.rps)),
        added_p50_ms=against("direct", lambda m, base: m.answers.p50_ms - base.answers.p50_ms),
        added_p99_ms=against("direct", lambda m, base: m.answers.p99_ms - base.answers.p99_ms),
        added_first_ms=against("direct", lambda m, base: m.answers.first_p50_ms - base.answers.first_p50_ms),
    )


def middle(values: Iterable[float]) -> float:
    """The median, without what could not be measured; NaN where nothing could."""
    known = [each for each in values if not math.isnan(each)]
    return median(known) if known else math.nan


def ratio(one: float, other: float) -> float:
    return one / other if other else math.nan


def growth(cells: Sequence[Cell], contender: str, kind: Kind) -> float:
    """CPU per request with the most clients ÷ that with the fewest: 1 where it does not grow with concurrency."""
    line = sorted(
        (each for each in cells if each.contender == contender and each.kind == kind), key=lambda c: c.clients
    )
    return ratio(line[-1].cpu_ms, line[0].cpu_ms) if len(line) > 1 else math.nan


COLUMNS = (
    "",
    "clients",
    "req/s",
    "÷ direct",
    "p50 ms",
    "p99 ms",
    "added p50 / p99",
    "added first byte",
    "CPU ms + Postgres",
    "CPU ÷ floor",
    "errors",
)
"""Times in milliseconds; `added` to what `direct` takes."""


def row(cell: Cell) -> list[str]:
    """A cell as text, in the order of `COLUMNS`."""
    direct = cell.contender == "direct"
    wrong = f"{cell.errors}" + (f", {cell.degraded} degraded" if cell.degraded else "")
    return [
        cell.contender,
        str(cell.clients),
        number(cell.rps),
        DASH if direct else number(cell.rps_direct),
        number(cell.p50_ms),
        number(cell.p99_ms),
        DASH if direct else f"{number(cell.added_p50_ms)} / {number(cell.added_p99_ms)}",
        DASH if direct else number(cell.added_first_ms),
        DASH if direct else f"{number(cell.server_ms)} + {number(cell.postgres_ms)}",
        DASH if direct or cell.contender == "floor" else number(cell.cpu_floor),
        wrong,
    ]


def number(value: float) -> str:
    """Three significant digits, as people write them."""
    if math.isnan(value):
        return DASH
    if abs(value) >= 100:
        return f"{value:.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}"
