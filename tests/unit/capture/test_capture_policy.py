from datetime import UTC, datetime
from uuid import UUID

from app.capture.record import wanted
from app.settings import Settings
from app.store.ids import uuid7
from tests.support.tables import each_of

TENANT = UUID(int=0xA)
CALLS = [uuid7(datetime(2026, 11, 20, tzinfo=UTC)) for _ in range(4000)]


@each_of("share", [0.0, 0.1, 0.5, 1.0])
def test_the_sample_is_as_large_as_it_says_and_always_the_same(share: float) -> None:
    settings = Settings(capture_sample=share)
    drawn = [call for call in CALLS if wanted(settings, call, TENANT)]
    # Six standard deviations of 4,000 draws at one half.
    assert abs(len(drawn) - share * len(CALLS)) <= 190 * (0 < share < 1)
    assert drawn == [call for call in CALLS if wanted(settings, call, TENANT)]
    less = Settings(capture_sample=share / 2)
    assert {call for call in CALLS if wanted(less, call, TENANT)} <= set(drawn)


def test_a_tenant_can_be_left_out() -> None:
    settings = Settings(capture_off_tenants=[TENANT])
    assert not wanted(settings, CALLS[0], TENANT)
    assert wanted(settings, CALLS[0], UUID(int=0xB))
