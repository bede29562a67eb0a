"""What figures of two periods come to in words (seed 001 §4.1, §6.4)."""

from __future__ import annotations

from datetime import UTC, datetime

from app.features.insights.engine import Figures, Insight, Measured, bounds_of, said
from tests.support.tables import each_of

NOW = datetime(2026, 11, 26, 9, 30, tzinfo=UTC)
VIEWS = Insight("views", "erp", "Views by post", "SELECT 1", "views", period_days=7)
BOUNDS = bounds_of(7, NOW)
SPAN = "Views by post, 2026-11-19 to 2026-11-25: "


def figures(now: dict[str, float], before: dict[str, float]) -> Figures:
    return Figures(*(tuple(Measured(*each) for each in period.items()) for period in (now, before)))


def test_whole_days_before_today() -> None:
    assert [each.isoformat()[:10] for each in BOUNDS] == ["2026-11-12", "2026-11-19", "2026-11-26"]
    assert {each.hour for each in BOUNDS} == {0}


def test_the_change_the_shares_and_the_largest() -> None:
    found = said(VIEWS, figures({"Recipes": 340, "Sweets": 100, "Tea": 40, "Old": 20}, {"Recipes": 400}), BOUNDS)
    assert found is not None
    assert found.text == (
        SPAN + "500 views, up 25% from 400 in the 7 days before; most: Recipes 340 (68%), Sweets 100 (20%), Tea 40 (8%)"
    )
    assert (found.kind, found.total, found.change) == ("pattern", 500, 0.25)


@each_of(
    ("now", "before", "text", "kind"),
    [
        (105.0, 100.0, "105 views, up 5% from 100 in the 7 days before", "fact"),
        (90.0, 100.0, "90 views, down 10% from 100 in the 7 days before", "pattern"),
        (12.5, 12.5, "12.50 views, as in the 7 days before (12.50)", "fact"),
        (7.0, 0.0, "7 views, none in the 7 days before", "fact"),
        (-80.0, -100.0, "-80 views, up 20% from -100 in the 7 days before", "pattern"),
    ],
)
def test_a_single_figure(now: float, before: float, text: str, kind: str) -> None:
    found = said(VIEWS, Figures((Measured(None, now),), (Measured(None, before),)), BOUNDS)
    assert found is not None
    assert (found.text, found.kind) == (SPAN + text, kind)


def test_of_what_is_less_than_nothing_there_is_no_share() -> None:
    found = said(VIEWS, figures({"a": 30, "b": -10}, {}), BOUNDS)
    assert found is not None
    assert found.text.endswith("; a 30, b -10")


def test_nothing_is_said_of_nothing() -> None:
    assert said(VIEWS, Figures((), ()), BOUNDS) is None
