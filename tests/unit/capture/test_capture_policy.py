from datetime import UTC, datetime

from app.capture.record import is_sampled
from app.store.ids import uuid7
from tests.support.tables import each_of

CALLS = [uuid7(datetime(2026, 11, 20, tzinfo=UTC)) for _ in range(4000)]


@each_of("share", [0.0, 0.1, 0.5, 1.0])
def test_the_sample_is_as_large_as_it_says_and_always_the_same(share: float) -> None:
    drawn = [call for call in CALLS if is_sampled(call, share)]
    # Six standard deviations of 4,000 draws at one half.
    assert abs(len(drawn) - share * len(CALLS)) <= 190 * (0 < share < 1)
    assert drawn == [call for call in CALLS if is_sampled(call, share)]
    assert {call for call in CALLS if is_sampled(call, share / 2)} <= set(drawn)
