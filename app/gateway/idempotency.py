"""A request whose Idempotency-Key came before: what went upstream then goes again, byte for byte.

An upstream that knows the key refuses it with another body, and a compile of now would give another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from hashlib import sha256
from uuid import UUID
from weakref import WeakValueDictionary

from msgspec import Struct

from app.capture.recipe import rebuild
from app.gateway.identify import Identity
from app.store.turns import EarlierCall, TurnStore

log = logging.getLogger("mneme.replayed")


class EarlierAnswer(Struct, frozen=True):
    """What came of the key before. `body`: as it went upstream then; None where that was not captured, or lacks what is not to
    be stored, and has to be compiled anew. `answered`: its answer is stored to its end, so that another one adds nothing to
    the conversation."""

    body: bytes | None
    session_id: UUID | None
    answered: bool


class CoalescedCall:
    """A call's way through the coalescer: alone from its beginning until it leaves, or ends."""

    __slots__ = ("_held", "_lock")

    def __init__(self, lock: asyncio.Lock) -> None:
        self._lock = lock
        self._held = False

    async def enter(self, limit_s: float) -> None:
        """Wait for whoever is on the way, but not for longer than this: an answer that nobody reads any more, or an upstream
        that stalls, must not hold up those who try again. Side by side, `record_turns` sees to it that there is one turn."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._lock.acquire()
                self._held = True

    def leave(self) -> None:
        """Let the next one in."""
        if self._held:
            self._held = False
            self._lock.release()


class RequestCoalescer:
    """Repeats that come while the first call is still on its way wait for its end: only then can be known whether they add a
    turn. The first that was answered opens the way, and the others go on side by side.

    It sees the calls of its own process; of the rest, `record_turns` keeps the first one's turn.
    """

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[tuple[UUID, UUID, bytes], asyncio.Lock] = WeakValueDictionary()

    def passage(self, identity: Identity, body: bytes) -> CoalescedCall:
        """Of one call; without an Idempotency-Key it has the way to itself."""
        key = repeat_key(identity, body)
        if key is None:
            return CoalescedCall(asyncio.Lock())
        return CoalescedCall(self._locks.setdefault((identity.tenant_id, identity.user_id, key), asyncio.Lock()))


def repeat_key(identity: Identity, body: bytes) -> bytes | None:
    """What two requests of a user share where one repeats the other (32 bytes); None without an Idempotency-Key.

    The key alone is not enough: with another body it is for the upstream to judge, and what went upstream for another session
    may hold that session's history.
    """
    if identity.idempotency_key is None:
        return None
    named = f"{identity.idempotency_key}\0{identity.session or ''}".encode("utf-8", "surrogatepass")
    return sha256(named + b"\0" + sha256(body).digest()).digest()


async def look_up(store: TurnStore, identity: Identity, body: bytes) -> EarlierAnswer | None:
    """The earlier call that a request repeats, if any. Raises StoreUnavailable."""
    key = repeat_key(identity, body)
    earlier = await store.idempotent(identity.tenant_id, identity.user_id, key) if key is not None else None
    return EarlierAnswer(_body(earlier), earlier.session_id, earlier.answered) if earlier is not None else None


def _body(earlier: EarlierCall) -> bytes | None:
    if earlier.body_parts is None or earlier.sha256 is None:
        return None
    try:
        return rebuild(*earlier.body_parts, earlier.sha256)
    except ValueError as error:
        log.error("a captured request cannot be replayed", extra={"call_id": str(earlier.call_id)}, exc_info=error)
        return None
