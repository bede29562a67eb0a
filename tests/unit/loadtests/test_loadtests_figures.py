"""Medians, ratios and how they are written."""

from __future__ import annotations

import math

import pytest

from loadtests.figures import COLUMNS, Measure, growth, middle, number, row, summarise
from loadtests.load import Outcome, Summary, quantile


def answers(rps: float, p50: float = 1.0, *, errors: int = 0, degraded: int = 0) -> Summary:
    return Summary(10, errors, degraded, rps, p50, 2 * p50, p50, p50, 3.0)


def measure(contender: str, n: int, rps: float, server: float, postgres: float = 0.0, clients: int = 16) -> Measure:
    return Measure(contender, "reply", clients, n, answers(rps, p50=1000 / rps), server, postgres)


def test_ratios_are_within_a_round_and_then_the_median() -> None:
    measures = [
        *(measure("direct", n, 1000.0, 0.0) for n in range(3)),
        # A machine that slows down: each round is compared with itself.
        *(measure("floor", n, 500.0, floor) for n, floor in enumerate((0.1, 0.2, 0.4))),
        *(measure("memory", n, 100.0, cpu, cpu) for n, cpu in enumerate((0.5, 1.0, 2.2))),
    ]
    memory = summarise(measures)[2]
    assert (memory.contender, memory.rounds, memory.requests) == ("memory", 3, 30)
    assert memory.cpu_floor == pytest.approx(10.0)
    assert (memory.server_ms, memory.postgres_ms, memory.cpu_ms) == (1.0, 1.0, 2.0)
    assert memory.rps_direct == pytest.approx(0.1)
    assert memory.rps_floor == pytest.approx(0.2)
    assert memory.added_p50_ms == pytest.approx(9.0)


def test_what_was_not_measured_is_not_compared() -> None:
    (alone,) = summarise([measure("memory", 0, 100.0, 1.0)])
    assert math.isnan(alone.cpu_floor)
    assert math.isnan(alone.rps_direct)
    assert row(alone)[COLUMNS.index("CPU ÷ floor")] == "–"


def test_growth_is_between_the_fewest_and_the_most_clients() -> None:
    measures = [measure("off", 0, 1.0, cpu, clients=clients) for clients, cpu in ((16, 9.0), (64, 3.0), (1, 2.0))]
    assert growth(summarise(measures), "off", "reply") == pytest.approx(1.5)
    assert math.isnan(growth(summarise(measures[:1]), "off", "reply"))


def test_errors_and_degraded_answers_are_told() -> None:
    measures = [Measure("memory", "reply", 1, n, answers(1.0, errors=1, degraded=2), 1.0, 0.0) for n in range(2)]
    (cell,) = summarise(measures)
    assert row(cell)[-1] == "2, 4 degraded"
    assert len(row(cell)) == len(COLUMNS)


@pytest.mark.parametrize(
    ("value", "text"), [(1234.5, "1234"), (99.94, "99.9"), (0.123, "0.12"), (-0.5, "-0.50"), (math.nan, "–")]
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_the_median_leaves_out_what_is_unknown() -> None:
    assert middle([1.0, math.nan, 3.0]) == 2.0
    assert math.isnan(middle([math.nan]))


def test_quantiles_are_values_that_were_seen() -> None:
    ordered = [float(n) for n in range(1, 101)]
    assert [quantile(ordered, q) for q in (0.0, 0.5, 0.99, 1.0)] == [1.0, 50.0, 99.0, 100.0]
    assert quantile([7.0], 0.99) == 7.0
    assert math.isnan(quantile([], 0.5))


def test_a_summary_counts_what_was_whole() -> None:
    summary = Summary.of(Outcome(took=[0.002, 0.001], first=[0.001, 0.001], errors=3, reads=8, elapsed_s=0.5))
    assert (summary.requests, summary.errors, summary.rps, summary.reads) == (2, 3, 4.0, 4.0)
    assert (summary.p50_ms, summary.p99_ms) == (1.0, 2.0)
    assert Summary.of(Outcome()).rps == 0.0
