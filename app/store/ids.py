"""Identifiers: which are random, which are derived, and from what.

What a client names in its own words becomes a uuid5, so that the same words always lead to the same row; what Mneme makes is
a uuid of version 7, which begins with its time (RFC 9562), so that a look-up by id opens one monthly partition.
"""

from __future__ import annotations

import os
from datetime import datetime
from hashlib import blake2b
from uuid import UUID, uuid5

from app.text_cache import of_texts

LOCAL_TENANT = UUID("00000000-0000-0000-0000-000000000001")
"""The tenant of `open` mode."""

NIL = UUID(int=0)

REMEMBERED = 4096
"""Derived ids kept at hand: a request asks for its user's several times, and each takes 8 µs to derive."""

_VERSION_7 = 0x7 << 76
_VARIANT = 0b10 << 62
_LOW_62 = (1 << 62) - 1


def uuid7_of(at: datetime, noise: int) -> UUID:
    """The id whose time is `at`, and whose other bits are 74 of `noise`."""
    milliseconds = max(0, int(at.timestamp() * 1000)) & ((1 << 48) - 1)
    high = noise >> 62 & 0xFFF
    return UUID(int=milliseconds << 80 | _VERSION_7 | high << 64 | _VARIANT | noise & _LOW_62)


def uuid7(at: datetime) -> UUID:
    """A new id whose time is `at` (millisecond precision, 74 random bits)."""
    return uuid7_of(at, int.from_bytes(os.urandom(10), "big"))


def uuid7_floor(at: datetime) -> UUID:
    """The smallest id of a moment: what was made before it has smaller ones (`agent_data.uuid7_floor`)."""
    return UUID(int=max(0, int(at.timestamp() * 1000)) << 80)


@of_texts(REMEMBERED)
def user_id(tenant: UUID, external: str) -> UUID:
    """The user whom this tenant calls `external`."""
    return uuid5(tenant, f"user\0{external}")


@of_texts(REMEMBERED)
def nobody(tenant: UUID) -> UUID:
    """Where sessions without a user are kept; their memory never leaves the session."""
    return uuid5(tenant, "nobody")


@of_texts(REMEMBERED)
def space_id(tenant: UUID, name: str) -> UUID:
    """Under which the memory of a shared space lies: no user's name leads there."""
    return uuid5(tenant, f"space\0{name}")


def session_id(tenant: UUID, user: UUID, external: str) -> UUID:
    """The session that the client calls `external`, of this user."""
    return uuid5(tenant, f"session\0{user}\0{external}")


def route_id(tenant: UUID, external: str) -> UUID:
    """Where `routes` finds the sessions that clients call `external`, whoever their users are."""
    return uuid5(tenant, f"session name\0{external}")


def message_id(session: UUID, ordinal: int, role: str, content: str, at: datetime) -> UUID:
    """The id of an imported message: the same line gives the same id, and its time is the message's own."""
    seed = f"{session}\0{ordinal}\0{role}\0{content}\0{at.timestamp()}".encode("utf-8", "surrogatepass")
    return uuid7_of(at, int.from_bytes(blake2b(seed, digest_size=10).digest(), "big"))


def issued(text: str) -> UUID | None:
    """`text` as an id, if it is written as one."""
    if len(text) not in (32, 36):
        return None
    try:
        return UUID(text)
    except ValueError:
        return None


def mark_of(hashed: bytes, times: int) -> bytes:
    """The mark of a message with this hash, before which so many had the same."""
    return hashed if not times else blake2b(hashed + times.to_bytes(4), digest_size=len(hashed)).digest()
