"""The arithmetic of limits, and how they are told."""

from __future__ import annotations

from typing import Any

import pytest

from app.features.limits.limiter import (
    MAX_ANSWER,
    MAX_RETRY_S,
    AdmitAnswer,
    Estimate,
    RateWindow,
    dollars,
    duration,
    estimate,
    rate_headers,
    refusal,
)
from app.store.tenancy import KeyLimits

BOTH = KeyLimits(requests_per_minute=30, tokens_per_minute=1000)


def standing(refused: str | None = None, wait_s: float | None = 0.0, **more: Any) -> AdmitAnswer:
    plain: dict[str, Any] = {
        "slot": 1, "requests_left": 4, "requests_reset_s": 7.5, "tokens_left": 90, "tokens_reset_s": 61.0
    }  # fmt: skip
    return AdmitAnswer(refused, wait_s, **(plain | more))


def told(headers: Any) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in headers}


# --- what a call may come to --------------------------------------------------------------------------------------------


def guess(document: dict[str, Any] | None, size: int = 400) -> Estimate:
    return estimate(document, size, reserve=lambda model: 1000, cost=lambda model, prompt, answer: prompt + 10 * answer)


def test_the_answer_counts_as_it_was_limited_else_as_it_may_be() -> None:
    assert guess({"model": "m"}) == Estimate(100, 1100, 10_100)
    assert guess({"model": "m", "max_tokens": 50}) == Estimate(150, 150, 600)
    assert guess({"model": "m", "max_completion_tokens": 50, "max_tokens": 9}) == Estimate(150, 150, 600)
    assert guess({"model": "m", "max_output_tokens": 50, "n": 3}) == Estimate(250, 250, 1600)
    assert guess(None) == Estimate(0, 0, 0)


@pytest.mark.parametrize("value", [-1, 0, 1.5, "9", True, None, [], {}, float("nan")])
def test_a_limit_that_is_none_is_left_to_the_upstream(value: object) -> None:
    assert guess({"model": "m", "max_tokens": value, "n": value}) == guess({"model": "m"})


def test_a_huge_limit_is_believed_so_far() -> None:
    found = guess({"model": 5, "max_tokens": 10**40, "n": 10**40})
    assert found.tokens == 100 + MAX_ANSWER * 128
    assert found.microcents < 2**62


# --- what is told -------------------------------------------------------------------------------------------------------


def test_what_is_left_is_told_of_the_rates_there_are() -> None:
    assert told(rate_headers(BOTH, standing())) == {
        "x-ratelimit-limit-requests": "30",
        "x-ratelimit-remaining-requests": "4",
        "x-ratelimit-reset-requests": "7.5s",
        "x-ratelimit-limit-tokens": "1000",
        "x-ratelimit-remaining-tokens": "90",
        "x-ratelimit-reset-tokens": "1m1s",
    }
    assert set(told(rate_headers(KeyLimits(tokens_per_minute=5), standing()))) == {
        f"x-ratelimit-{each}-tokens" for each in ("limit", "remaining", "reset")
    }
    assert rate_headers(KeyLimits(money_budget=5), standing()) == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0ms"), (0.012, "12ms"), (0.9991, "1s"), (8.64, "8.64s"), (60, "1m0s"), (361, "6m1s"), (3605, "1h0m5s")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_money_is_told_with_the_places_that_it_has() -> None:
    assert [dollars(each) for each in (0, 1, 150_000_000, 5_000_000)] == ["0.00", "0.00000001", "1.50", "0.05"]


def test_a_rate_refuses_as_openai_does() -> None:
    error = refusal(BOTH, standing("requests", 12.3), Estimate())
    assert error.status == 429
    body = error.body()["error"]
    assert (body["type"], body["param"], body["code"]) == ("requests", None, "rate_limit_exceeded")
    assert "Limit 30" in body["message"]
    assert "try again in 12.3s" in body["message"]
    headers = told(error.headers)
    assert (headers["retry-after"], headers["retry-after-ms"]) == ("13", "12300")
    assert headers["x-ratelimit-limit-requests"] == "30"
    error = refusal(BOTH, standing("tokens", 3), Estimate(700))
    assert error.body()["error"]["type"] == "tokens"
    assert "Requested 700" in error.body()["error"]["message"]


@pytest.mark.parametrize("wait", [0.0, 0.0001, 60.9, None])
def test_a_wait_is_always_one_that_clients_keep(wait: float | None) -> None:
    headers = told(refusal(BOTH, standing("requests", wait), Estimate()).headers)
    assert 1 <= int(headers["retry-after"]) <= MAX_RETRY_S
    assert 1 <= int(headers["retry-after-ms"]) <= MAX_RETRY_S * 1000


@pytest.mark.parametrize(("refused", "named"), [("token_budget", "500 tokens per day"), ("money_budget", "$2.50")])
def test_a_budget_that_is_used_up_is_not_to_be_tried_again(refused: str, named: str) -> None:
    limits = KeyLimits(token_budget=500, token_period="day", money_budget=250_000_000, money_period="ever")
    error = refusal(limits, standing(refused, 7200.5), Estimate())
    body = error.body()["error"]
    assert (body["type"], body["code"]) == ("insufficient_quota", "insufficient_quota")
    assert named in body["message"]
    headers = told(error.headers)
    assert (headers["x-should-retry"], headers["retry-after"]) == ("false", "7201")
    assert "retry-after" not in told(refusal(limits, standing(refused, None), Estimate()).headers)


# --- a process by itself ------------------------------------------------------------------------------------------------


def test_a_window_holds_no_more_than_the_rates() -> None:
    window, limits = RateWindow(), KeyLimits(requests_per_minute=3, tokens_per_minute=100)
    found = [window.admit(limits, 30, 1000.5) for _ in range(4)]
    assert [each.refused for each in found] == [None, None, None, "requests"]
    assert (found[-1].wait_s, found[0].requests_left, found[0].tokens_left) == (60.5, 2, 70)
    assert window.admit(limits, 30, 1060.9).refused == "requests"
    assert window.admit(limits, 90, 1061.0).refused is None
    assert window.admit(limits, 20, 1062.0).refused == "tokens"
    assert window.admit(limits, 10_000, 2000.0).refused is None, "larger than the rate: alone"


def test_a_window_of_budgets_alone_refuses_nothing() -> None:
    window = RateWindow()
    assert [window.admit(KeyLimits(token_budget=1), 50, 1.0).refused for _ in range(9)] == [None] * 9
