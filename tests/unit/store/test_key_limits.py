"""Limits as values: what is taken, what is refused, what is stored."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from app.errors import BadRequest
from app.providers import models
from app.store.tenancy import MAX_COUNT, MICROCENTS_PER_DOLLAR, NO_LIMITS, KeyLimits, microcents


@pytest.mark.parametrize("value", [-1, MAX_COUNT + 1, 10**40, 1.5, float("nan"), float("inf"), True, "5"])
@pytest.mark.parametrize("name", ["requests_per_minute", "tokens_per_minute", "token_budget", "money_budget"])
def test_a_limit_is_a_whole_number_in_its_range(name: str, value: Any) -> None:
    with pytest.raises(BadRequest) as refused:
        NO_LIMITS.changed({name: value})
    assert refused.value.param == name


def test_a_rate_is_at_least_one_and_a_budget_may_be_nothing() -> None:
    for name in ("requests_per_minute", "tokens_per_minute"):
        with pytest.raises(BadRequest):
            NO_LIMITS.changed({name: 0})
    assert KeyLimits(token_budget=0, money_budget=0).budgeted


@pytest.mark.parametrize(
    "change",
    [{"token_period": "week"}, {"money_period": ""}, {"models": ("",)}, {"models": ("x" * 201,)}, {"models": ("a\0",)},
     {"models": ("m",) * 101}],
)  # fmt: skip
def test_periods_and_patterns_are_checked(change: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        NO_LIMITS.changed(change)


def test_limits_are_stored_as_they_were_set_and_no_more() -> None:
    limits = KeyLimits(requests_per_minute=3, money_budget=5, money_period="day", models=("gpt-*", "o3"), capture=False)
    assert KeyLimits.of(limits.as_json()) == limits
    assert KeyLimits.of({}) is None
    assert KeyLimits.of({"of_a_later_version": 1, "token_budget": 4}) == KeyLimits(token_budget=4)


@pytest.mark.parametrize("paging", [True, False])
def test_that_calls_are_paged_is_a_choice_and_no_limit(paging: bool) -> None:
    chosen = KeyLimits(paging=paging)
    assert KeyLimits.of(chosen.as_json()) == chosen
    assert not chosen.limiting
    assert KeyLimits(paging=paging, capture=False).limiting
    assert chosen.changed({"paging": None}) == NO_LIMITS


@pytest.mark.parametrize(
    ("models", "model", "allowed"),
    [
        ((), "any", True), ((), None, True), (("gpt-4o",), "gpt-4o", True), (("gpt-4o",), "gpt-4o-mini", False),
        (("gpt-*",), "gpt-4o-mini", True), (("gpt-*", "o3"), "o3", True), (("gpt-*",), None, False), (("*",), "", True),
        (("gpt-*",), "GPT-4o", False),
    ],
)  # fmt: skip
def test_models(models: tuple[str, ...], model: str | None, allowed: bool) -> None:
    assert KeyLimits(models=models).allows(model) is allowed


@pytest.mark.parametrize(
    ("dollars", "amount"),
    [("1", 100_000_000), ("0.00000001", 1), ("0.000000009", 0), (2.5, 250_000_000), (0, 0), (Decimal("1e7"), 10**15)],
)
def test_dollars(dollars: Any, amount: int) -> None:
    assert microcents(dollars) == amount


@pytest.mark.parametrize(
    "dollars", ["-1", "nan", "inf", "-inf", "1e400", "10000000.01", "", "one", float("nan"), "sNaN"]
)
def test_what_is_no_money(dollars: Any) -> None:
    with pytest.raises(BadRequest):
        microcents(dollars)


def test_micro_cents_are_those_of_the_price_table() -> None:
    assert MICROCENTS_PER_DOLLAR == models.MICROCENTS_PER_DOLLAR
