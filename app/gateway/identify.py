"""Who is asking, in which session, what they asked Mneme to do or to leave, and whether they repeat an earlier request."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, Literal, TypeVar
from uuid import UUID
from weakref import WeakValueDictionary

from msgspec import Struct

from app.capture.facts import LABEL_HEADER, rebuild
from app.context.score import PROFILE_NAMES
from app.errors import BadHeader, Forbidden
from app.gateway.dialects.splice import parse_object
from app.gateway.headers import OWN_PREFIX
from app.sources import PRICE_NAMES, Price
from app.store import ids
from app.store.spaces import is_name
from app.store.tenancy import KeyLimits
from app.store.turns import EarlierCall

log = logging.getLogger("mneme.replayed")

Mode = Literal["open", "keys"]
OnOff = Literal["on", "off"]
Known = TypeVar("Known", bound=str)

PRINCIPAL = "mneme.principal"
"""Of an ASGI scope: who asks, where that is known already. Requests from within carry it (the page's); nothing that comes over
a socket can."""

MAX_NAME = 512
"""Longest user or session name, characters: it is an identifier, not a text."""

_WITH_SESSION = re.compile(r"(.+)_session_[0-9a-f]{8}-[0-9a-f-]{27}")
"""How Claude Code named its user in `metadata.user_id` once: with the session behind. That is no name of a conversation: other
requests of the session have it, too."""
_OF_ACCOUNT = ("account_uuid", "device_id")
"""How it does since: as JSON, with these members and the session's; the account is empty where one comes with a key."""

LOCAL_USER = "local"
"""Whose memory it is in `open` mode when nobody is named: the one person at this machine."""


class Principal(Struct, frozen=True):
    """Who calls. `key_id`: None where no key was shown; `user_external_id`: the one user that the key was made for. `scopes`:
    what the key may do; none: all. `limits`: None where the key has none."""

    tenant_id: UUID
    key_id: UUID | None
    user_external_id: str | None
    scopes: frozenset[str]
    mode: Mode
    limits: KeyLimits | None = None

    def allows(self, scope: str) -> bool:
        """Whether the key may do `scope`: one of `tenancy.SCOPES`."""
        return not self.scopes or scope in self.scopes


class Switches(Struct, frozen=True):
    """What the `X-Mneme-*` headers ask for. `paging`, `price`: None where they leave it to the session, the key and the
    server."""

    memory: Literal["on", "off", "read-only"] = "on"
    capture: bool = True
    history: Literal["client", "server"] | None = None
    paging: OnOff | None = None
    profile: str = "auto"
    price: Price | None = None


class Identity(Struct, frozen=True):
    """The user and the session that a request names; ids are Mneme's own.

    `confined`: there is no user, so memory stays within the session. `named` is the session's id derived from the client's
    name for it; `issued` that name read as an id, in case Mneme issued it. `repeats`: its Idempotency-Key came before.
    """

    tenant_id: UUID
    user: str
    user_id: UUID
    confined: bool
    session: str | None
    named: UUID | None
    issued: UUID | None
    retry: int
    idempotency_key: str | None
    repeats: bool = False
    space: str | None = None
    """The shared space that it says something to; None: to the user's own memory."""

    @property
    def retried(self) -> bool:
        """Whether the client says that it sends this again."""
        return self.retry > 0 or self.repeats


def switches(headers: Mapping[str, str], *, captured: bool = True) -> Switches:
    """Mneme's own headers. `headers` has lower-case names. `captured`: whether the call is to be, unless they say no. Raises
    BadHeader for a value that it does not know."""
    return Switches(
        memory=_choice(headers, "x-mneme-memory", ("on", "off", "read-only")) or "on",
        capture=_choice(headers, "x-mneme-capture", ("on", "off")) != "off" and captured,
        history=_choice(headers, "x-mneme-history", ("client", "server")),
        paging=_choice(headers, "x-mneme-paging", ("on", "off")),
        profile=_choice(headers, "x-mneme-profile", PROFILE_NAMES) or "auto",
        price=_choice(headers, "x-mneme-price", PRICE_NAMES),
    )


def priced(asked: Price | None, limits: KeyLimits | None) -> Price | None:
    """What a token of memory costs, by its header, else by its key; None: as the server has it."""
    return asked or (limits.price if limits is not None else None)


def check_agreement(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Raises BadHeader where a header of Mneme's own comes more than once and says different things: whoever reads the
    first and whoever reads the last would serve two users. Labels are many."""
    seen: dict[bytes, bytes] = {}
    for name, value in headers:
        low = name.lower()
        if low.startswith(OWN_PREFIX) and seen.setdefault(low, value) != value and low != LABEL_HEADER:
            shown = low.decode("latin-1")
            raise BadHeader(f"{shown} comes twice, with different values.", param=shown)


def identify(
    headers: Mapping[str, str], body: Mapping[str, Any] | None, principal: Principal, conversation: str | None = None
) -> Identity:
    """The user and session of a request. `body` is the parsed JSON, None where it is not understood; `conversation`: what it
    names as such in its dialect's own words, which stands for the session where nothing else does.

    The user: `X-Mneme-User`, else the body's `user` or `safety_identifier`, else `metadata.user_id`, else (in `open` mode,
    without a key) the local one, else nobody; a key made for one user is that user's whatever the body says. Raises
    BadHeader for a name that is empty or too long, Forbidden for the header naming another user than the key's.
    """
    body = body or {}
    metadata = body.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    told = _without_session(_text(metadata.get("user_id")))
    own = principal.user_external_id
    named = _header(headers, "x-mneme-user")
    if own is not None and named is not None and named != own:
        raise Forbidden("This key was made for one user, and X-Mneme-User names another.", param="X-Mneme-User")
    user = own or (
        named
        or _text(body.get("user"))
        or _text(body.get("safety_identifier"))
        or told
        or (LOCAL_USER if principal.mode == "open" and principal.key_id is None else None)
    )
    session = _header(headers, "x-mneme-session") or _text(metadata.get("session_id")) or _text(conversation)
    tenant = principal.tenant_id
    user_id = ids.user_id(tenant, user) if user is not None else ids.nobody(tenant)
    retries = headers.get("x-stainless-retry-count", "")
    return Identity(
        tenant_id=tenant,
        user=user or "",
        user_id=user_id,
        confined=user is None,
        session=session,
        named=ids.session_id(tenant, user_id, session) if session is not None else None,
        issued=ids.issued(session) if session is not None else None,
        retry=min(int(retries), 32767) if retries.isascii() and retries.isdigit() else 0,
        idempotency_key=headers.get("idempotency-key") or None,
        space=_space(headers, named=user is not None),
    )


def _without_session(told: str | None) -> str | None:
    """The user of `metadata.user_id`, whatever conversation it is in."""
    if told is None:
        return None
    if (parts := _WITH_SESSION.fullmatch(told)) is not None:
        return parts[1]
    if told.startswith("{") and (document := parse_object(told.encode())) is not None:
        return next((user for name in _OF_ACCOUNT if (user := _text(document.get(name)))), told)
    return told


def _space(headers: Mapping[str, str], *, named: bool) -> str | None:
    """The shared space that the header names. Whether the user is a member of it, the store tells."""
    name = headers.get("x-mneme-space")
    if name is None:
        return None
    if not is_name(name := name.strip()):
        raise BadHeader(
            "X-Mneme-Space is a space's name: 1 to 63 lower-case letters, digits, and . _ -, the first no sign.",
            param="X-Mneme-Space",
        )
    if not named:
        raise BadHeader(
            "X-Mneme-Space says something to a shared space: say whose it is, with X-Mneme-User.", param="X-Mneme-User"
        )
    return name


def _choice(headers: Mapping[str, str], name: str, known: tuple[Known, ...]) -> Known | None:
    value = headers.get(name)
    if value is None:
        return None
    lowered = value.strip().lower()
    for each in known:
        if each == lowered:
            return each
    raise BadHeader(f"{name} is {' or '.join(known)}, not {value[:40]!r}.", param=name)


def _header(headers: Mapping[str, str], name: str) -> str | None:
    """A name from a header: its bytes as UTF-8, or, where they are not, as the ISO 8859-1 that the server took them for."""
    value = headers.get(name)
    if value is None:
        return None
    with contextlib.suppress(UnicodeError):
        value = value.encode("latin-1").decode()
    text = value.strip()
    if not text or len(text) > MAX_NAME:
        raise BadHeader(f"{name} must have 1 to {MAX_NAME} characters.", param=name)
    return _clean(text)


def _text(value: object) -> str | None:
    """A name from the body; what is no usable name there is the upstream's to judge, not ours."""
    usable = isinstance(value, str) and value.strip() and len(value) <= MAX_NAME
    return _clean(str(value)) if usable else None


def _clean(text: str) -> str:
    """As Postgres can keep it."""
    return text.replace("\0", "\ufffd")


# --- an Idempotency-Key that came before ---------------------------------------------------------------------------------
#
# What went upstream then goes again, byte for byte: an upstream that knows the key refuses it with another body, and a new
# compile would give another one.


class EarlierAnswer(Struct, frozen=True):
    """What came of the key before. `body`: as it went upstream then; None where that was not captured, or lacks what is not to
    be stored, and has to be compiled anew. `answered`: its answer is stored to its end, so that another one adds nothing to
    the conversation."""

    body: bytes | None
    session_id: UUID | None
    answered: bool


class CoalescedCall(Struct):
    """A call's way through the coalescer: alone from its beginning until it leaves, or ends."""

    _lock: asyncio.Lock
    _held: bool = False

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
        lock = asyncio.Lock()
        if (key := repeat_key(identity, body)) is not None:
            lock = self._locks.setdefault((identity.tenant_id, identity.user_id, key), lock)
        return CoalescedCall(lock)


def repeat_key(identity: Identity, body: bytes) -> bytes | None:
    """What two requests of a user share where one repeats the other (32 bytes); None without an Idempotency-Key.

    The key alone is not enough: with another body it is for the upstream to judge, and what went upstream for another session
    may hold that session's history.
    """
    if identity.idempotency_key is None:
        return None
    named = f"{identity.idempotency_key}\0{identity.session or ''}".encode("utf-8", "surrogatepass")
    return sha256(named + b"\0" + sha256(body).digest()).digest()


def body_of(earlier: EarlierCall) -> bytes | None:
    """What went upstream; None where that cannot be put together again."""
    if earlier.body_parts is None or earlier.sha256 is None:
        return None
    try:
        return rebuild(*earlier.body_parts, earlier.sha256)
    except ValueError as error:
        log.error("a captured request cannot be replayed", extra={"call_id": str(earlier.call_id)}, exc_info=error)
        return None
