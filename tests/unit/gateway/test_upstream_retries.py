from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from app.gateway.forward import RetryPolicy, retry_after
from tests.support.tables import each_of

NOW = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC)
POLICY = RetryPolicy(attempts=4, statuses=frozenset({429}), first_wait_s=0.5, longest_wait_s=1.5)


@each_of(("done", "expected"), [(1, 0.5), (2, 1.0), (3, 1.5), (4, None), (9, None)])
def test_waits_double_up_to_a_bound(done: int, expected: float | None) -> None:
    assert POLICY.wait_s(done, None, 0.0) == expected


def test_by_default_there_is_no_second_attempt() -> None:
    assert RetryPolicy(1, frozenset(), 0.5, 8.0).wait_s(1, 0.0, 0.0) is None


@each_of(("asked", "expected"), [(0.0, 0.0), (0.1, 0.1), (1.5, 1.5), (1.6, None), (3600.0, None)])
def test_what_the_upstream_asks_for_is_kept_to_or_not_waited_for(asked: float, expected: float | None) -> None:
    assert POLICY.wait_s(1, asked, 0.99) == expected


@given(st.integers(1, 3), st.floats(0, 1, exclude_max=True))
def test_chance_takes_off_half_at_most(done: int, chance: float) -> None:
    longest = POLICY.wait_s(done, None, 0.0)
    wait = POLICY.wait_s(done, None, chance)
    assert longest is not None
    assert wait is not None
    assert longest / 2 <= wait <= longest


@each_of(
    ("headers", "seconds"),
    [
        ([], None),
        ([(b"Retry-After", b" 7 ")], 7.0),
        ([(b"retry-after", b"0.5")], 0.5),
        ([(b"retry-after", b"Fri, 20 Nov 2026 12:00:30 GMT")], 30.0),
        ([(b"retry-after", b"Fri, 20 Nov 2026 11:00:00 GMT")], 0.0),
        ([(b"retry-after", b"20 Nov 2026 12:00:30")], 30.0),
        ([(b"retry-after", b"7"), (b"retry-after-ms", b"250")], 0.25),
        ([(b"retry-after", b"7"), (b"retry-after-ms", b"soon")], 7.0),
        ([(b"retry-after", b"soon")], None),
        ([(b"retry-after", b"-3")], None),
        ([(b"retry-after", b"inf")], None),
        ([(b"retry-after", b"nan")], None),
        ([(b"retry-after", b"1e999")], None),
        ([(b"retry-after", b"")], None),
        ([(b"retry-after", b"\xff")], None),
    ],
)
def test_retry_after_is_read_where_it_can_be(headers: list[tuple[bytes, bytes]], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == seconds


@given(st.binary(max_size=40))
def test_whatever_it_says(value: bytes) -> None:
    seconds = retry_after([(b"retry-after", value)], NOW)
    assert seconds is None or 0 <= seconds < float("inf")
