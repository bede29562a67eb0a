"""The capacity page is what its script says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from loadtests.capacity import USERS, Inputs, changed, listing, main, needed, shown, table
from tests.support.tables import each_of

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "capacity.md").read_text()
PLAIN = Inputs(
    server_ms=6, postgres_ms=12, worker_ms=3, wal_turn_kb=40, wal_learned_kb=10, turn_kb=10, capture_kb=20,
    memories_per_turn=0.5, scan_bytes=600, graph_bytes=1000, active_share=0.5, turns_per_day=8.64, turns_per_session=4,
    peak_factor=2, kept_turns=1000, capture_days=10, hot_minutes=20, graph_share=0.01, busy=0.5, primary_cores=10,
    primary_tb=10, primary_wal_mb=100,
)  # fmt: skip


def test_the_page_has_the_table_and_the_inputs_of_the_script() -> None:
    assert table(USERS, Inputs()) in PAGE
    assert listing(Inputs()) in PAGE


def test_the_arithmetic_by_hand() -> None:
    """1,000,000 users, half of them with 8.64 turns on a day: 50 a second, 100 in the busiest hour."""
    found = needed(1_000_000, PLAIN)
    assert found.turns_s == pytest.approx(100)
    assert (found.server_cores, found.postgres_cores, found.worker_cores) == pytest.approx((1.2, 2.4, 0.6))
    assert found.wal_mb_s == pytest.approx(5)  # 100 × 50 KB
    assert found.memory_tb == pytest.approx(10)  # 1,000 turns of 10 KB each
    assert found.capture_tb == pytest.approx(0.864)  # 4,320,000 turns a day, ten days, 20 KB
    assert found.graph_tb == pytest.approx(0.5)  # 10,000 users with 50,000 vectors of 1,000 bytes
    assert found.hot_gb == pytest.approx(30_000 * 2500 * 600 / 1e9)  # 120,000 turns in twenty minutes, four a sitting
    assert (found.primaries, found.binding) == (2, "disk")


def test_what_binds_is_the_dearest() -> None:
    assert needed(1_000_000, replace(PLAIN, postgres_ms=600)).binding == "cores"
    assert needed(1_000_000, replace(PLAIN, primary_wal_mb=1)).binding == "log"
    assert needed(10, PLAIN).primaries == 1


def test_nobody_is_hot_who_is_not_there() -> None:
    found = needed(10, replace(PLAIN, turns_per_day=1e6))
    assert found.hot_gb == pytest.approx(10 * 0.5 * 2500 * 600 / 1e9)


@each_of(
    ("value", "text"),
    [(0, "0"), (0.001, "<0.01"), (0.123, "0.12"), (7.25, "7.2"), (1234.0, "1,200"), (98765.0, "99,000")],
)
def test_figures_have_two_digits(value: float, text: str) -> None:
    assert shown(value) == text


def test_inputs_can_be_changed_and_mistakes_are_told() -> None:
    assert changed(Inputs(), ["busy=0.5", "copies=2"]) == replace(Inputs(), busy=0.5, copies=2)
    for wrong in ("nothing=1", "busy=much", "busy"):
        with pytest.raises(click.BadParameter):
            changed(Inputs(), [wrong])
    ran = CliRunner().invoke(main, ["--users", "5", "--set", "busy=1"])
    assert ran.exit_code == 0
    assert ran.output.startswith("| users | 5 |")
    assert "`busy`" in CliRunner().invoke(main, ["--list"]).output
