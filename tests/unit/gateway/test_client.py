from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from app.errors import TooLarge
from app.gateway.relay import ClientGone, DisconnectEvent, Inbound

DISCONNECT = {"type": "http.disconnect"}


class Client:
    """A `receive` that gives messages one by one, then waits until it is told that the client has gone."""

    def __init__(self, messages: Sequence[dict[str, Any]]) -> None:
        self._messages = list(messages)
        self.leaves = asyncio.Event()
        self.asked = asyncio.Event()

    async def __call__(self) -> dict[str, Any]:
        if self._messages:
            return self._messages.pop(0)
        self.asked.set()
        await self.leaves.wait()
        return DISCONNECT


def part(body: bytes, more: bool = True) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


async def test_a_body_in_parts() -> None:
    inbound = Inbound(Client([part(b"ab"), part(b""), part(b"c", more=False)]))
    assert await inbound.read(3) == b"abc"
    assert await Inbound(Client([part(b"", more=False)])).read(0) == b""
    assert await Inbound(Client([{"type": "http.request"}])).read(0) == b""


async def test_a_body_that_is_too_large() -> None:
    with pytest.raises(TooLarge, match="2 bytes"):
        await Inbound(Client([part(b"ab"), part(b"c", more=False)])).read(2)


async def test_a_client_that_goes_inside_its_body() -> None:
    client = Client([part(b"ab")])
    client.leaves.set()
    inbound = Inbound(client)
    with pytest.raises(ClientGone):
        await inbound.read(10)
    assert inbound.gone.is_set
    await inbound.watch()


async def test_the_watch_sees_the_client_go() -> None:
    client = Client([part(b"a", more=False)])
    inbound = Inbound(client)
    async with asyncio.TaskGroup() as group:
        group.create_task(inbound.watch())
        await asyncio.sleep(0)
        assert not client.asked.is_set()  # the body is not its to read
        assert await inbound.read(10) == b"a"
        await client.asked.wait()
        assert not inbound.gone.is_set
        client.leaves.set()
    assert inbound.gone.is_set


async def test_the_watch_ends_when_the_answer_came_before_the_body_was_read() -> None:
    inbound = Inbound(Client([part(b"a")]))
    async with asyncio.TaskGroup() as group:
        group.create_task(inbound.watch())
        await asyncio.sleep(0)
        inbound.gone.set()


async def test_gone_interrupts_what_waits() -> None:
    gone = DisconnectEvent()

    async def wait() -> str:
        with pytest.raises(ClientGone), gone.interrupts():
            await asyncio.Event().wait()
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]  # this is a task
        await asyncio.sleep(0)  # and what comes after is not disturbed
        return "went on"

    async with asyncio.TaskGroup() as group:
        first, second = group.create_task(wait()), group.create_task(wait())
        await asyncio.sleep(0)
        gone.set()
    assert (first.result(), second.result()) == ("went on", "went on")


async def test_gone_before_it_waits() -> None:
    gone = DisconnectEvent()
    gone.set()
    with pytest.raises(ClientGone), gone.interrupts():
        pytest.fail("the block must not begin")


async def test_gone_leaves_alone_what_no_longer_waits() -> None:
    gone = DisconnectEvent()
    with gone.interrupts():
        await asyncio.sleep(0)
    gone.set()
    await asyncio.sleep(0)


async def test_gone_set_by_the_waiting_task_itself() -> None:
    gone = DisconnectEvent()
    with gone.interrupts():
        gone.set()
        await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_another_cancellation_is_not_mistaken_for_it() -> None:
    gone = DisconnectEvent()

    async def wait() -> None:
        with gone.interrupts():
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(wait())
        both = group.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        both.cancel()
        await asyncio.sleep(0)
        gone.set()
    assert task.cancelled()
    assert both.cancelled()


async def test_cancelled_and_gone_at_once_is_cancelled() -> None:
    gone = DisconnectEvent()

    async def wait() -> None:
        with gone.interrupts():
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(wait())
        await asyncio.sleep(0)
        gone.set()
        task.cancel()
    assert task.cancelled()


async def test_an_error_in_the_block_goes_through() -> None:
    gone = DisconnectEvent()
    with pytest.raises(ZeroDivisionError), gone.interrupts():
        raise ZeroDivisionError
    gone.set()
    await asyncio.sleep(0)


async def test_an_interruption_that_became_another_error() -> None:
    gone = DisconnectEvent()

    async def fail() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ZeroDivisionError from None

    async def wait() -> None:
        with pytest.raises(ZeroDivisionError), gone.interrupts():
            await fail()
        await asyncio.sleep(0)
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]  # this is a task

    async with asyncio.TaskGroup() as group:
        group.create_task(wait())
        await asyncio.sleep(0)
        gone.set()
