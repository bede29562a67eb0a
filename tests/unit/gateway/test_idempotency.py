"""A repeated Idempotency-Key: what went upstream then, and who waits for whom."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from app.capture.facts import blob_hash
from app.gateway.identify import CoalescedCall, Identity, RequestCoalescer, repeat_key
from app.gateway.prepare import Preparer
from app.store.turns import EarlierCall

TENANT, USER, SESSION = UUID(int=1), UUID(int=2), UUID(int=3)
IDENTITY = Identity(TENANT, "ana", USER, False, None, None, None, 0, None)
KEYED = replace(IDENTITY, idempotency_key="k")
BODY = b'{"messages": [1, 2]}'
SENT = b'{"messages": [0, 1, 2]}'
PARTS = (b'{"messages": [', [b"0", b", 1", b", 2"], b"]}")
LONG_S = 60.0


class Ledger:
    """A store that knows one earlier call."""

    def __init__(self, earlier: EarlierCall | None) -> None:
        self.earlier = earlier
        self.asked: list[tuple[UUID, UUID, bytes]] = []

    async def idempotent(self, tenant: UUID, user: UUID, key: bytes) -> EarlierCall | None:
        self.asked.append((tenant, user, key))
        return self.earlier


def earlier(**given: Any) -> EarlierCall:
    plain: dict[str, Any] = {
        "call_id": UUID(int=1),
        "session_id": SESSION,
        "answered": True,
        "body_parts": PARTS,
        "sha256": sha256(SENT).digest(),
    }
    return EarlierCall(**plain | given)


async def looked_up(found: EarlierCall | None, who: Identity = KEYED) -> Any:
    preparer = Preparer(Ledger(found), object())  # type: ignore[arg-type]  # neither is more than what is asked of it
    return await preparer.replay(who, SimpleNamespace(body=BODY))  # type: ignore[arg-type]  # all it needs of a request


def test_a_repetition_has_the_same_key_session_and_body() -> None:
    assert repeat_key(IDENTITY, BODY) is None
    assert repeat_key(KEYED, BODY) == repeat_key(replace(KEYED, session=""), BODY)
    others = [
        (KEYED, BODY),
        (KEYED, BODY + b" "),
        (replace(KEYED, session="x"), BODY),
        (replace(KEYED, idempotency_key="kx"), BODY),
        (replace(KEYED, idempotency_key="\udcff"), BODY),
    ]
    assert len({repeat_key(who, body) for who, body in others}) == len(others)


async def test_what_was_not_captured_is_a_repetition_without_a_body() -> None:
    replay = await looked_up(earlier(body_parts=None, sha256=None))
    assert (replay.body, replay.answered) == (None, True)


async def test_a_body_that_does_not_add_up_is_not_sent() -> None:
    replay = await looked_up(earlier(sha256=blob_hash(SENT)))
    assert replay.body is None


# --- the coalescer ------------------------------------------------------------------------------------------------------


async def enters(passage: CoalescedCall) -> bool:
    """Whether the way is free: an entry that has to wait is not done after its first steps."""
    entry = asyncio.ensure_future(passage.enter(LONG_S))  # noqa: TID251  # what is tested is whether it ends
    for _ in range(5):
        await asyncio.sleep(0)
    if entry.done():
        return True
    entry.cancel()
    return False


async def test_a_repeat_waits_until_the_first_leaves() -> None:
    coalescer = RequestCoalescer()
    first, second = coalescer.passage(KEYED, BODY), coalescer.passage(KEYED, BODY)
    await first.enter(LONG_S)
    waiting = asyncio.ensure_future(second.enter(LONG_S))  # noqa: TID251  # as above
    await asyncio.sleep(0)
    assert not waiting.done()
    first.leave()
    await waiting
    first.leave()  # once more changes nothing
    assert not await enters(coalescer.passage(KEYED, BODY))
    second.leave()
    assert await enters(coalescer.passage(KEYED, BODY))


async def test_others_do_not_wait() -> None:
    coalescer = RequestCoalescer()
    first = coalescer.passage(KEYED, BODY)
    await first.enter(LONG_S)
    for who, body in (
        (IDENTITY, BODY),
        (replace(KEYED, idempotency_key="other"), BODY),
        (replace(KEYED, user_id=UUID(int=9)), BODY),
        (replace(KEYED, tenant_id=UUID(int=9)), BODY),
        (KEYED, b"another body"),
    ):
        assert await enters(coalescer.passage(who, body))


async def test_whoever_gives_up_waiting_holds_nobody_up() -> None:
    coalescer = RequestCoalescer()
    first, second, third = (coalescer.passage(KEYED, BODY) for _ in range(3))
    await first.enter(LONG_S)
    assert not await enters(second)
    second.leave()
    assert not await enters(third)
    first.leave()
    assert await enters(coalescer.passage(KEYED, BODY))


async def test_nothing_is_kept_of_a_key_that_nobody_holds() -> None:
    coalescer = RequestCoalescer()
    passage = coalescer.passage(KEYED, BODY)
    assert len(coalescer._locks) == 1
    del passage
    assert len(coalescer._locks) == 0


async def test_nobody_waits_longer_than_the_limit() -> None:
    coalescer = RequestCoalescer()
    first, second = coalescer.passage(KEYED, BODY), coalescer.passage(KEYED, BODY)
    await first.enter(LONG_S)
    await second.enter(0.001)
    second.leave()
    assert not await enters(coalescer.passage(KEYED, BODY)), "the first is still on its way"
