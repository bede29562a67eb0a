"""A request whose Idempotency-Key came before: what went upstream then goes again, byte for byte.

An upstream that knows the key refuses it with another body, and a compile of now would give another one.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from hashlib import sha256
from uuid import UUID

from app.capture.recipe import rebuild
from app.gateway.identify import Identity
from app.store.turns import EarlierCall, TurnStore

log = logging.getLogger("mneme.replayed")


@dataclass(frozen=True, slots=True)
class Replay:
    """What came of the key before. `body`: as it went upstream then; None where that was not captured, and has to be
    compiled anew. `answered`: its answer is stored to its end, so that another one adds nothing to the conversation."""

    body: bytes | None
    session_id: UUID | None
    answered: bool


async def look_up(store: TurnStore, identity: Identity, body: bytes) -> Replay | None:
    """The earlier call of a request; None where its key is new, or came with another body: that is for the upstream to
    judge. None, too, where the request names another session: what went upstream then may hold that session's history.
    Raises StoreUnavailable."""
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
