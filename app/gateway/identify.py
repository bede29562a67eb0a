"""Find out who is asking, in which session, what they ask Mneme to do, and whether they repeat an earlier request."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
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
from app.gateway.naming import InvalidName, NameFault, decode_header, parse_name
from app.sources import PRICE_NAMES, Price
from app.store import ids
from app.store.spaces import is_name
from app.store.tenancy import KeyLimits
from app.store.turns import EarlierCall

log = logging.getLogger("mneme.identify")

Mode = Literal["open", "keys"]
OnOff = Literal["on", "off"]
Choice = TypeVar("Choice", bound=str)

_TRUTH_VALUES = {"true": "on", "1": "on", "false": "off", "0": "off"}
"""Other words for on and off."""

PRINCIPAL = "mneme.principal"
"""Of an ASGI scope: who asks, where that is known already. Requests from within carry it (the page's); nothing that comes over
a socket can."""

_WITH_SESSION = re.compile(r"(.+)_session_[0-9a-f]{8}-[0-9a-f-]{27}")
"""How Claude Code named its user in `metadata.user_id` once: with the session behind. That is no name of a conversation: other
requests of the session have it, too."""
_OF_ACCOUNT = ("account_uuid", "device_id")
"""How it does since: as JSON, with these members and the session's; the account is empty where one comes with a key."""

LOCAL_USER = "local"
"""The user of `open` mode if a request has no field that names one: the person at this machine."""


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


class RejectedName(Struct, frozen=True):
    """A field for the name of the user, and why its value names nobody."""

    field: str
    fault: NameFault


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
    """Read Mneme's own headers; an empty one is an absent one.

    Args:
        headers: By lower-case name.
        captured: Whether the call is captured unless the headers say no.

    Raises:
        BadHeader: A header has an unknown value.
    """
    return Switches(
        memory=_choose(headers, "x-mneme-memory", ("on", "off", "read-only")) or "on",
        capture=_choose(headers, "x-mneme-capture", ("on", "off")) != "off" and captured,
        history=_choose(headers, "x-mneme-history", ("client", "server")),
        paging=_choose(headers, "x-mneme-paging", ("on", "off")),
        profile=_choose(headers, "x-mneme-profile", PROFILE_NAMES) or "auto",
        price=_choose(headers, "x-mneme-price", PRICE_NAMES),
    )


def priced(asked: Price | None, limits: KeyLimits | None) -> Price | None:
    """What a token of memory costs, by its header, else by its key; None: as the server has it."""
    return asked or (limits.price if limits is not None else None)


def check_agreement(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Refuse a request that has one of Mneme's own headers twice with different values, which could name two users.

    Label headers may differ, and empty headers are ignored.

    Raises:
        BadHeader: Two values of one header differ.
    """
    seen: dict[bytes, bytes] = {}
    for name, value in headers:
        low = name.lower()
        if not low.startswith(OWN_PREFIX) or low == LABEL_HEADER or not value.strip():
            continue
        if seen.setdefault(low, value) != value:
            shown = low.decode("latin-1")
            raise BadHeader(f"{shown} comes twice, with different values: send it once.", param=shown)


def index_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers by lower-case name. The last value of a name counts, but an empty `X-Mneme-…` header replaces none."""
    indexed: dict[str, str] = {}
    for name, value in headers:
        low = name.decode("latin-1").lower()
        if low in indexed and not value.strip() and low.startswith("x-mneme-"):
            continue
        indexed[low] = value.decode("latin-1")
    return indexed


def identify(
    headers: Mapping[str, str], body: Mapping[str, Any] | None, principal: Principal, conversation: str | None = None
) -> Identity:
    """Return the user and the session that a request names.

    The user is the key's own; else the first valid name of `X-Mneme-User`, `user`, `safety_identifier` and `metadata.user_id`;
    else, in `open` mode without a key and where none of these four is present, the local user; else nobody. A JSON null is
    absent. The session is the first valid name of `X-Mneme-Session`, `metadata.session_id` and `conversation`.

    Args:
        headers: By lower-case name.
        body: The parsed JSON; None where it is not understood.
        conversation: The session's name in the words of the body's dialect.

    Raises:
        Forbidden: The header names another user than the key's.
        BadHeader: `X-Mneme-Space` is no name of a space, or no field is there to name who says something to it.
    """
    user, rejected = _find_user(headers, body, principal)
    session = _find_session(headers, body, conversation)
    # A client whose user's name is rejected is served without memory, and so without the space.
    space = _space(headers, named=user is not None or bool(rejected))
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
        space=space if user is not None else None,
    )


def find_rejected_names(
    headers: Mapping[str, str], body: Mapping[str, Any] | None, principal: Principal
) -> Sequence[RejectedName]:
    """Return the fields of a request whose values were rejected as names of its user; empty if it has a user."""
    user, rejected = _find_user(headers, body, principal)
    return rejected if user is None else ()


def _find_user(
    headers: Mapping[str, str], body: Mapping[str, Any] | None, principal: Principal
) -> tuple[str | None, Sequence[RejectedName]]:
    """Return the user or None, and the fields before it whose values were rejected as names."""
    body, metadata = body or {}, _read_metadata(body)
    key_user, header = principal.user_external_id, headers.get("x-mneme-user")
    sources = {
        "X-Mneme-User": decode_header(header) if header is not None else None,
        "user": body.get("user"),
        "safety_identifier": body.get("safety_identifier"),
        "metadata.user_id": _extract_account(metadata.get("user_id")),
    }
    rejected: list[RejectedName] = []
    for source, value in sources.items():
        if value is None:
            continue
        try:
            name = parse_name(value)
        except InvalidName as error:
            rejected.append(RejectedName(source, error.fault))
            continue
        if key_user is not None and source == "X-Mneme-User" and name != key_user:
            raise Forbidden("This key was made for one user, and X-Mneme-User names another.", param="X-Mneme-User")
        return key_user if key_user is not None else name, rejected
    if key_user is not None:
        return key_user, rejected
    is_local = principal.mode == "open" and principal.key_id is None and not rejected
    return LOCAL_USER if is_local else None, rejected


def _read_metadata(body: Mapping[str, Any] | None) -> Mapping[str, Any]:
    metadata = body.get("metadata") if body is not None else None
    return metadata if isinstance(metadata, Mapping) else {}


def _find_session(headers: Mapping[str, str], body: Mapping[str, Any] | None, conversation: str | None) -> str | None:
    header, metadata = headers.get("x-mneme-session"), _read_metadata(body)
    for value in (
        decode_header(header) if header is not None else None,
        metadata.get("session_id"),
        conversation,
    ):
        with contextlib.suppress(InvalidName):
            return parse_name(value)
    return None


def _extract_account(value: object) -> object:
    """Return the part of Claude Code's `metadata.user_id` that names the user and not the conversation; other values as they
    are. If Claude Code names neither account nor device, the result is empty."""
    if not isinstance(value, str):
        return value
    if (parts := _WITH_SESSION.fullmatch(value)) is not None:
        return parts[1]
    document = parse_object(value.encode("utf-8", "replace")) if value.startswith("{") else None
    if document is None or document.keys().isdisjoint(_OF_ACCOUNT):
        return value
    return next((document[name] for name in _OF_ACCOUNT if document.get(name)), "")


def _space(headers: Mapping[str, str], *, named: bool) -> str | None:
    """The shared space that the header names. Whether the user is a member of it, the store tells."""
    name = headers.get("x-mneme-space", "").strip()
    if not name:
        return None
    if not is_name(name):
        raise BadHeader(
            "X-Mneme-Space is a space's name: 1 to 63 lower-case letters, digits, and . _ -, the first no sign.",
            param="X-Mneme-Space",
        )
    if not named:
        raise BadHeader(
            "X-Mneme-Space says something to a shared space: say whose it is, with X-Mneme-User.", param="X-Mneme-User"
        )
    return name


def _choose(headers: Mapping[str, str], name: str, choices: tuple[Choice, ...]) -> Choice | None:
    """Return which of the choices a header names; None where it is absent or empty."""
    value = headers.get(name, "").strip()
    if not value:
        return None
    lowered = value.lower()
    wanted = _TRUTH_VALUES.get(lowered, lowered) if "on" in choices else lowered
    for choice in choices:
        if choice == wanted:
            return choice
    raise BadHeader(f"{name} is {' or '.join(choices)}, not {value[:40]!r}.", param=name)


class NamelessUserLog:
    """Logs requests whose names of the user are rejected: once for each tenant, field and fault, because such a client makes
    the same mistake in every request."""

    def __init__(self) -> None:
        self._logged: set[tuple[UUID, RejectedName]] = set()

    def report(self, names: Sequence[RejectedName], tenant_id: UUID, call_id: UUID) -> None:
        """Log those names that were not logged before."""
        for name in names:
            if (tenant_id, name) in self._logged:
                continue
            self._logged.add((tenant_id, name))
            log.warning(
                "no-user: a request names its user by a value that names nobody; its memory stays within the session",
                extra={
                    "field": name.field,
                    "fault": name.fault,
                    "call_id": str(call_id),
                    "tenant_id": str(tenant_id),
                },
            )


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
