"""Users at hand: bounded, loaded once, and never an old one after it was dropped."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.index.indexes import Cache
from app.tasks import Supervisor
from tests.support.properties import examples

Bytes = Cache[str, bytes]


@pytest.fixture
async def tasks() -> AsyncIterator[Supervisor]:
    supervisor = Supervisor()
    yield supervisor
    await supervisor.close(1)


class Loader:
    """A load that ends when it is told to."""

    def __init__(self) -> None:
        self.begun = 0
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def __call__(self) -> bytes:
        self.begun += 1
        return await self.answer


async def turned() -> None:
    """Until all that can go on has gone on: nothing here waits for more than some turns of the loop."""
    for _ in range(10):
        await asyncio.sleep(0)


async def of(value: bytes) -> bytes:
    return value


async def test_what_was_loaded_is_at_hand(tasks: Supervisor) -> None:
    cache = Bytes(10, len, tasks)
    assert cache.held("ada") is None
    assert await cache.get("ada", lambda: of(b"12345")) == b"12345"
    assert await cache.get("ada", lambda: of(b"never")) == b"12345"
    assert (cache.bytes, cache.known()) == (5, ["ada"])


async def test_the_least_recently_used_goes_first(tasks: Supervisor) -> None:
    cache = Bytes(10, len, tasks)
    for name in ("ada", "bob"):
        cache.keep(name, b"12345")
    assert cache.held("ada") == b"12345"
    cache.keep("cid", b"1")
    assert cache.held("bob") is None
    assert (cache.held("ada"), cache.held("cid")) == (b"12345", b"1")
    assert cache.bytes == 6


async def test_what_is_too_large_alone_is_not_kept_and_takes_nobodys_room(tasks: Supervisor) -> None:
    cache = Bytes(10, len, tasks)
    cache.keep("ada", b"12345")
    assert await cache.get("bob", lambda: of(b"x" * 11)) == b"x" * 11
    assert (cache.held("bob"), cache.held("ada")) == (None, b"12345")
    cache.keep("ada", b"x" * 11)
    assert (cache.held("ada"), cache.bytes) == (None, 0)


async def test_no_room_at_all(tasks: Supervisor) -> None:
    cache = Bytes(0, len, tasks)
    load = Loader()
    both = asyncio.gather(cache.get("ada", load), cache.get("ada", load))
    await turned()
    load.answer.set_result(b"1")
    assert list(await both) == [b"1", b"1"]
    assert load.begun == 1
    assert await cache.get("ada", lambda: of(b"2")) == b"2"
    assert (cache.bytes, cache.known()) == (0, [])


async def test_one_load_for_all_that_wait_and_other_users_wait_for_none(tasks: Supervisor) -> None:
    cache = Bytes(10, len, tasks)
    load = Loader()
    waiting = asyncio.gather(*(cache.get("ada", load) for _ in range(5)))
    await turned()
    assert await cache.get("bob", lambda: of(b"b")) == b"b"
    load.answer.set_result(b"a")
    assert list(await waiting) == [b"a"] * 5
    assert load.begun == 1


async def test_who_goes_away_takes_the_load_from_nobody(tasks: Supervisor) -> None:
    cache = Bytes(10, len, tasks)
    load = Loader()
    first, second = (asyncio.get_running_loop().create_task(cache.get("ada", load)) for _ in range(2))
    await turned()
    first.cancel()
    await turned()
    assert first.cancelled()
    load.answer.set_result(b"a")
    assert await second == b"a"


async def test_a_load_goes_on_when_nobody_waits(tasks: Supervisor) -> None:
    cache = Bytes(10, len, tasks)
    load = Loader()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await cache.get("ada", load)
    load.answer.set_result(b"a")
    await turned()
    assert cache.held("ada") == b"a"


async def test_a_failed_load_is_not_remembered(tasks: Supervisor) -> None:
    cache = Bytes(10, len, tasks)
    load = Loader()
    both = asyncio.gather(cache.get("ada", load), cache.get("ada", load), return_exceptions=True)
    await turned()
    load.answer.set_exception(OSError("gone"))
    assert [type(each) for each in await both] == [OSError, OSError]
    assert await cache.get("ada", lambda: of(b"a")) == b"a"
    assert load.begun == 1


async def test_a_load_that_fails_when_nobody_waits_harms_nobody(tasks: Supervisor) -> None:
    cache = Bytes(10, len, tasks)
    load = Loader()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await cache.get("ada", load)
    load.answer.set_exception(OSError("gone"))
    await turned()
    assert (cache.known(), len(tasks)) == ([], 0)


async def test_what_was_dropped_while_it_was_loaded_is_not_kept(tasks: Supervisor) -> None:
    cache = Bytes(10, len, tasks)
    old, new = Loader(), Loader()
    first = asyncio.gather(cache.get("ada", old))
    await turned()
    cache.drop("ada")
    second = asyncio.gather(cache.get("ada", new))
    await turned()
    new.answer.set_result(b"new")
    assert list(await second) == [b"new"]
    old.answer.set_result(b"old")
    assert list(await first) == [b"old"]
    assert cache.held("ada") == b"new"
    cache.drop("ada")
    cache.drop("ada")
    assert (cache.held("ada"), cache.bytes) == (None, 0)


async def test_what_was_kept_while_it_was_loaded_is_newer(tasks: Supervisor) -> None:
    cache = Bytes(10, len, tasks)
    load = Loader()
    waiting = asyncio.gather(cache.get("ada", load))
    await turned()
    cache.keep("ada", b"new")
    load.answer.set_result(b"old")
    assert list(await waiting) == [b"old"]
    assert cache.held("ada") == b"new"


async def test_a_server_that_ends_cancels_loads_and_those_who_wait() -> None:
    tasks = Supervisor()
    cache = Bytes(10, len, tasks)
    waiting = asyncio.gather(cache.get("ada", Loader()), return_exceptions=True)
    await turned()
    await tasks.close(0)
    assert [type(each) for each in await waiting] == [asyncio.CancelledError]


STEPS = st.lists(st.tuples(st.sampled_from("abcd"), st.just(None) | st.integers(-1, 12)), max_size=30)


@given(STEPS, st.integers(0, 20))
@examples(200)
def test_it_is_what_an_ordered_dict_would_be(steps: list[tuple[str, int | None]], limit: int) -> None:
    """None: asked for; −1: dropped; else kept with so many bytes."""
    cache, slow = Bytes(limit, len, Supervisor()), OrderedDict[str, bytes]()
    for key, size in steps:
        if size is None:
            assert cache.held(key) == slow.get(key)
            if key in slow:
                slow.move_to_end(key)
        elif size < 0:
            cache.drop(key)
            slow.pop(key, None)
        else:
            cache.keep(key, bytes(size))
            slow.pop(key, None)
            if size <= limit:
                slow[key] = bytes(size)
            while sum(map(len, slow.values())) > limit:
                slow.popitem(last=False)
        assert cache.bytes == sum(map(len, slow.values())) <= limit
        assert cache.known() == list(slow)
