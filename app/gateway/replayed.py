"""A request whose Idempotency-Key came before: what went upstream then goes again, byte for byte.

An upstream that knows the key refuses it with another body, and a compile of now would give another one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable
from dataclasses import dataclass
from hashlib import sha256
from uuid import UUID
from weakref import WeakValueDictionary

from app.capture.recipe import rebuild
from app.gateway.identify import Identity
from app.store.turns import EarlierCall, TurnStore

log = logging.getLogger("mneme.replayed")


@dataclass(frozen=True, slots=True)
class Replay:
    """What came of the key before. `body`: as it went upstream then; None where that was not captured, or lacks what is not to
    be stored, and has to be compiled anew. `answered`: its answer is stored to its end, so that another one adds nothing to
    the conversation."""

    body: bytes | None
    session_id: UUID | None
    answered: bool


class Passage:
    """A call's way through the turnstile: alone from its beginning until it leaves, or ends."""

    __slots__ = ("_held", "_lock")

    def __init__(self, lock: asyncio.Lock) -> None:
        self._lock = lock
        self._held = False

    async def enter(self) -> None:
        """Wait for whoever is on the way."""
        await self._lock.acquire()
        self._held = True

    def leave(self) -> None:
        """Let the next one in."""
        if self._held:
            self._held = False
            self._lock.release()


class Turnstile:
    """Repeats that come while the first call is still on its way wait for its end: only then can be known whether they add a
    turn. The first that was answered opens the way, and the others go on side by side.

    It sees the calls of its own process; of the rest, `record_turn` keeps the first one's turn.
    """

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()

    def passage(self, identity: Identity, body: bytes) -> Passage:
        """Of one call, named by its user, key and body; without a key it has the way to itself."""
        if identity.idempotency_key is None:
            return Passage(asyncio.Lock())
        name = (identity.tenant_id, identity.user_id, identity.idempotency_key, sha256(body).digest())
        return Passage(self._locks.setdefault(name, asyncio.Lock()))


async def look_up(store: TurnStore, identity: Identity, body: bytes) -> Replay | None:
    """The earlier call of a request, whose `body` is as it would be stored; None where its key is new, or came with another
    body: that is for the upstream to judge. None, too, where the request names another session: what went upstream then may
    hold that session's history. Raises StoreUnavailable."""
    if identity.idempotency_key is None:
        return None
    earlier = await store.idempotent(identity.tenant_id, identity.user_id, identity.idempotency_key)
    if earlier is None or earlier.request_sha256 not in (None, sha256(body).digest()):
        return None
    if identity.session is not None and earlier.session_id not in (None, identity.named, identity.issued):
        return None
    return Replay(_body(earlier), earlier.session_id, earlier.answered)


def _body(earlier: EarlierCall) -> bytes | None:
    if earlier.body_parts is None or earlier.sha256 is None:
        return None
    try:
        return rebuild(*earlier.body_parts, earlier.sha256)
    except ValueError as error:
        log.error("a captured request cannot be replayed", extra={"call_id": str(earlier.call_id)}, exc_info=error)
        return None
