"""What the page of a call makes of routes that say no."""

from __future__ import annotations

import pytest

from app.features.ui.visit import Refused, or_none
from tests.support.tables import each_of


async def says(status: int) -> str:
    raise Refused(status, "no")


@each_of("status", [404, 409, 422])
async def test_what_a_call_does_not_have_is_left_out(status: int) -> None:
    assert await or_none(says(status)) is None


async def test_a_database_that_is_away_is_no_call_without_memory() -> None:
    with pytest.raises(Refused):
        await or_none(says(503))
