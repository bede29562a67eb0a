from __future__ import annotations

import asyncio

import pytest

from app.errors import StoreUnavailable
from app.patience import Patience, patience, patience_now, patiently, take_time
from app.tasks import Supervisor

SHORT_S, LONG_S = 0.01, 10.0


async def test_who_was_kept_waiting_once_waits_no_more() -> None:
    mine = Patience(SHORT_S)
    with pytest.raises(StoreUnavailable, match="in time"):
        async with mine.waiting():
            await asyncio.sleep(LONG_S)
    with pytest.raises(StoreUnavailable):
        async with mine.waiting():
            pytest.fail("it is not even asked")


async def test_each_question_has_its_own_time() -> None:
    mine = Patience(0.2)
    for _ in range(4):
        async with mine.waiting():
            await asyncio.sleep(0.06)


async def test_what_changes_something_may_take_its_time_once_it_is_heard() -> None:
    for reading in (True, False):
        mine = Patience(SHORT_S, reading=reading)
        try:
            async with mine.waiting():
                mine.answered()
                await asyncio.sleep(SHORT_S * 5)
        except StoreUnavailable:
            assert reading
        else:
            assert not reading


async def test_an_export_takes_its_time() -> None:
    with patience(SHORT_S):
        take_time()
        await patiently(asyncio.sleep(SHORT_S * 5))


async def test_others_that_work_for_a_request_are_waited_for_no_longer() -> None:
    going_on = asyncio.get_running_loop().create_future()
    with patience(SHORT_S), pytest.raises(StoreUnavailable):
        await patiently(asyncio.shield(going_on))
    assert not going_on.done(), "they go on"
    going_on.cancel()


async def test_within_another_that_one_holds_and_what_goes_on_by_itself_has_none() -> None:
    async def seen() -> Patience | None:
        return patience_now()

    assert patience_now() is None
    with patience():
        outer = patience_now()
        with patience():
            assert patience_now() is outer
        assert await Supervisor().spawn(seen(), "by itself") is None
    assert patience_now() is None
