from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from app.patience import Breaker

OPEN_S = 5.0
ROUNDING_S = 1e-9
"""What a sum and a difference of floats may be off by: `(now + 5.0) - now` may be 5.000000000000001."""


def opened(now: float = 0.0) -> Breaker:
    breaker = Breaker(3, OPEN_S)
    for _ in range(3):
        assert breaker.admit(now) == 0.0
        breaker.failed(now)
    assert breaker.state == "open"
    return breaker


def test_only_failures_in_a_row_open_it() -> None:
    breaker = Breaker(3, OPEN_S)
    for _ in range(5):
        breaker.failed(0.0)
        breaker.failed(0.0)
        breaker.succeeded()
    assert (breaker.state, breaker.admit(0.0)) == ("closed", 0.0)


def test_an_open_one_says_how_long() -> None:
    breaker = opened(now=100.0)
    assert breaker.admit(101.0) == 4.0
    assert breaker.admit(104.5) == 0.5
    assert breaker.state == "open"


def test_one_is_let_through_and_its_answer_closes_it() -> None:
    breaker = opened()
    assert breaker.admit(OPEN_S) == 0.0
    assert breaker.state == "half_open"
    assert breaker.admit(OPEN_S + 1) == OPEN_S - 1
    breaker.succeeded()
    assert (breaker.state, breaker.admit(OPEN_S + 1)) == ("closed", 0.0)


def test_its_failure_opens_it_again_from_then_on() -> None:
    breaker = opened()
    assert breaker.admit(7.0) == 0.0
    breaker.failed(9.0)
    assert breaker.state == "open"
    assert breaker.admit(13.0) == 1.0
    assert breaker.admit(14.0) == 0.0


def test_one_that_says_nothing_is_followed_by_another() -> None:
    breaker = opened()
    assert breaker.admit(5.0) == 0.0
    assert breaker.admit(10.0) == 0.0
    assert breaker.state == "half_open"


def test_what_failed_late_does_not_hold_it_open() -> None:
    breaker = opened()
    breaker.failed(4.9)
    assert breaker.admit(5.0) == 0.0


def test_an_answer_to_what_went_before_it_opened_closes_it() -> None:
    breaker = opened()
    breaker.succeeded()
    assert (breaker.state, breaker.admit(0.1)) == ("closed", 0.0)


EVENTS = st.lists(st.tuples(st.sampled_from(["ask", "fail", "succeed"]), st.floats(0, 3, allow_nan=False)), max_size=60)


@given(EVENTS, st.integers(0, 4))
@example([("ask", 2.5), ("fail", 1.3), ("ask", 0.0)], 1)  # (3.8 + 5.0) - 3.8 > 5.0
def test_whatever_happens(events: list[tuple[str, float]], failures: int) -> None:
    breaker, now, in_a_row = Breaker(failures, OPEN_S), 0.0, 0
    admitted_at: float | None = None
    opened_at: float | None = None
    for event, later in events:
        now += later
        before = breaker.state
        if event == "ask":
            wait = breaker.admit(now)
            assert 0.0 <= wait <= OPEN_S + ROUNDING_S
            if before == "closed":
                assert wait == 0.0
            elif wait == 0.0:
                assert breaker.state == "half_open"
                assert opened_at is not None
                assert now - opened_at >= OPEN_S - ROUNDING_S, "left alone for as long as it says"
                assert admitted_at is None or now - admitted_at >= OPEN_S - ROUNDING_S, "one at a time"
                admitted_at = opened_at = now
        elif event == "fail":
            in_a_row += 1
            breaker.failed(now)
            assert breaker.state != "half_open"
            if breaker.state == "open" and before != "open":
                assert in_a_row >= failures
                opened_at, admitted_at = now, None
            if before == "closed":
                assert (breaker.state == "open") == (0 < failures <= in_a_row)
        else:
            in_a_row = 0
            breaker.succeeded()
            assert (breaker.state, breaker.admit(now)) == ("closed", 0.0)
            opened_at = admitted_at = None
        if failures == 0:
            assert breaker.state == "closed"
