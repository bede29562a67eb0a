"""Who calls, and from where: Mneme keys and what each may do, and the names and pages by which this server may be asked."""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import re
import secrets
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

import msgspec
from msgspec import Struct

from app.clock import Clock
from app.errors import Forbidden, MnemeError, StoreUnavailable, Unauthenticated
from app.gateway.identify import Mode
from app.gateway.identify import Principal as Principal
from app.patience import patience
from app.settings import LOOPBACK, Settings
from app.store import ids
from app.store.ids import LOCAL_TENANT
from app.store.tenancy import KEY_PREFIX, KeyRow, Tenancy

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

log = logging.getLogger(__name__)

# --- keys ----------------------------------------------------------------------------------------------------------------
# A key is random, and only its SHA-256 is stored. A key that was found is remembered for a short while. One that cannot be
# looked up, because the database is away, is refused with 503: never let in, never called wrong. Where the operator has set
# MNEME_KEYS_AWAY_SECRET, keys that were seen before are good meanwhile (`SealedKeys`).

CACHE_KEYS = 10_000
"""Keys remembered, some 500 bytes each."""

KEY_CACHE_S = 10.0
"""Seconds that a checked key stays valid without a look-up, and so the longest until all servers refuse a revoked one: long
enough that a busy key costs a look-up in hundreds of requests."""
KEYS_AWAY = timedelta(days=1)
"""How long a sealed key is good after the database was last asked for it, and so how late a revocation is heard of while the
database is away: longer than most outages."""
NEGATIVE_CACHE_S = 2.0
"""Seconds that an unknown key is remembered: long enough to spare the database a client's retries, short enough that a
key works soon after it was made. Never longer than a known key is remembered."""

V = TypeVar("V")

# What `Tenancy.create_key` makes; anything else is refused without a look-up.
_KEY = re.compile(re.escape(KEY_PREFIX) + r"[A-Za-z0-9_-]{43}")
_BEARER = re.compile(r"bearer[ \t]+(\S+)[ \t]*", re.IGNORECASE)


class Authenticator:
    """Turns a request's headers into a `Principal`."""

    def __init__(
        self,
        tenancy: Tenancy,
        settings: Settings,
        clock: Clock,
        sealed: SealedKeys | None = None,
        *,
        key_cache_s: float = KEY_CACHE_S,
    ) -> None:
        """`sealed`: None where no key is good while the database is away. `key_cache_s`: see `KEY_CACHE_S`."""
        self._tenancy = tenancy
        self._sealed = sealed
        self._mode: Mode = settings.auth_mode
        self._clock = clock
        self._life = timedelta(seconds=key_cache_s)
        self._negative_life = min(self._life, timedelta(seconds=NEGATIVE_CACHE_S))
        # Apart, so that guesses do not push real keys out.
        self._known: OrderedDict[bytes, tuple[KeyRow, datetime]] = OrderedDict()
        self._unknown: OrderedDict[bytes, datetime] = OrderedDict()
        self._anybody = Principal(LOCAL_TENANT, None, None, frozenset(), "open")

    async def check(self, headers: Mapping[str, str]) -> Principal:
        """The caller, by headers with lower-case names. Raises Unauthenticated, and StoreUnavailable where a key cannot be
        looked up."""
        key = presented_key(headers)
        if key is None:
            if self._mode == "open":
                return self._anybody
            raise Unauthenticated(code="missing_api_key")
        if not _KEY.fullmatch(key):
            raise Unauthenticated("This is no Mneme key.", code="invalid_api_key")
        return await self.check_digest(sha256(key.encode("ascii")).digest())

    async def check_digest(self, digest: bytes) -> Principal:
        """As `check`, by a key's SHA-256: for whoever has shown the key before (`ui.cookie`)."""
        row = await self._look_up(digest)
        now = self._clock.now()
        if row is None:
            raise Unauthenticated("This Mneme key is unknown.", code="invalid_api_key")
        if row.revoked_at is not None and row.revoked_at <= now:
            raise Unauthenticated("This Mneme key was revoked.", code="invalid_api_key")
        if row.expires_at is not None and row.expires_at <= now:
            raise Unauthenticated("This Mneme key has expired.", code="invalid_api_key")
        scopes = frozenset(row.scopes)
        return Principal(row.tenant_id, row.key_id, row.user_external_id, scopes, self._mode, row.limits)

    def forget(self) -> None:
        """Look every key up again."""
        self._known.clear()
        self._unknown.clear()

    async def _look_up(self, digest: bytes) -> KeyRow | None:
        now = self._clock.now()
        if (found := self._known.get(digest)) and timedelta(0) <= now - found[1] < self._life:
            return found[0]
        if (since := self._unknown.get(digest)) and timedelta(0) <= now - since < self._negative_life:
            return None
        try:
            with patience():
                row = await self._tenancy.key(digest)
        except StoreUnavailable:
            row = await asyncio.to_thread(self._sealed.find, digest, now) if self._sealed is not None else None
            if row is None:
                raise
            log.warning("a key is let in that was seen before", extra={"key_id": str(row.key_id)})
            _keep(self._known, digest, (row, now))
            return row
        # The database has compared already; this costs nothing and does not trust an index to do it in constant time.
        if row is None or not hmac.compare_digest(row.key_hash, digest):
            self._known.pop(digest, None)
            _keep(self._unknown, digest, now)
            await self._seal(digest, None, now)
            return None
        self._unknown.pop(digest, None)
        _keep(self._known, digest, (row, now))
        await self._seal(digest, row if row.revoked_at is None else None, now)
        return row

    async def _seal(self, digest: bytes, row: KeyRow | None, now: datetime) -> None:
        if self._sealed is None:
            return
        if row is None:
            await asyncio.to_thread(self._sealed.drop, digest)
        else:
            await asyncio.to_thread(self._sealed.keep, row, now)


def _keep(cache: OrderedDict[bytes, V], key: bytes, value: V) -> None:
    cache[key] = value
    cache.move_to_end(key)
    if len(cache) > CACHE_KEYS:
        cache.popitem(last=False)


def presented_key(headers: Mapping[str, str]) -> str | None:
    """Return the Mneme key of a request, or None if it has none; an empty header counts as absent.

    The key is `X-Mneme-Key`, else a bearer token or an `X-Api-Key` (which clients of `/v1/messages` send) that begins with
    `mneme_`.
    """
    key = headers.get("x-mneme-key", "").strip()
    if key:
        return key
    bearer = _BEARER.fullmatch(headers.get("authorization") or "")
    if bearer and bearer[1].startswith(KEY_PREFIX):
        return bearer[1]
    other = (headers.get("x-api-key") or "").strip()
    return other if other.startswith(KEY_PREFIX) else None


# --- keys seen before, on disk -------------------------------------------------------------------------------------------
# A file for each, which opens only with the operator's secret and the key itself:
#
#     KEY.USER     KEY: of the key's SHA-256; USER: of the one user that it was made for, to be found when that user is erased
#     a file       NONCE (16 bytes) · the row, enciphered · MAC (32 bytes)
#
# Names, pads and MACs are HMAC-SHA256 under the secret: whoever reads the folder learns no key, no tenant and no user, and what
# others write into it is nothing. A revocation is not heard of while the database is away, so a file is good for a while only.

_MOST_FILES = 10_000
"""Keys that are kept, some 4 KB of disk each; of more, those seen longest ago go."""
_AGAIN_SHARE = 20
"""A key that is in use is written again after so small a part of its time."""
_FOLDER = "keys"
_NONCE_BYTES, MAC_BYTES = 16, 32
_NAME_CHARS = 32
"""Hexadecimal, of a MAC: 128 bits."""


class _SeenKey(Struct, frozen=True):
    seen_at: datetime
    row: KeyRow


class SealedKeys:
    """Their folder. No method raises for what the disk does: then there is nothing kept."""

    def __init__(self, folder: Path, secret: str, life: timedelta, *, most: int = _MOST_FILES) -> None:
        """`life`: how long a key is good after the database was last asked for it."""
        self._folder = folder
        self._secret = secret.encode()
        self._life = life
        self._most = most
        self._kept: dict[bytes, _SeenKey] = {}

    def keep(self, row: KeyRow, now: datetime) -> None:
        """The database has just said that there is this key."""
        before = self._kept.get(row.key_hash)
        if before is not None and before.row == row and now - before.seen_at < self._life / _AGAIN_SHARE:
            return
        kept, path = _SeenKey(now, row), self._path(row)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for other in self._files(row.key_hash):
                if other != path:
                    other.unlink(missing_ok=True)
            fresh = path.with_suffix(f".{secrets.token_hex(8)}~")
            with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(self._sealed(row.key_hash, msgspec.json.encode(kept)))
            fresh.replace(path)
            if before is None:
                self._bound()
        except OSError as error:
            log.warning("a key is not kept for while the database is away", extra={"error": str(error)})
            return
        if len(self._kept) >= self._most:
            self._kept.clear()
        self._kept[row.key_hash] = kept

    def find(self, digest: bytes, now: datetime) -> KeyRow | None:
        """The key with this SHA-256, as it was when the database last said so; None: unknown, or too long ago."""
        for path in self._files(digest):
            try:
                opened = self._opened(digest, path.read_bytes())
            except OSError:
                continue
            if opened is None:
                continue
            kept = msgspec.json.decode(opened, type=_SeenKey)
            if timedelta(0) <= now - kept.seen_at < self._life and kept.row.key_hash == digest:
                return kept.row
        return None

    def drop(self, digest: bytes) -> None:
        """The database has just said that there is no such key any more."""
        self._kept.pop(digest, None)
        self._unlink(self._files(digest))

    def erase(self, user: UUID) -> None:
        """Keys that were made for this user."""
        self._kept.clear()
        self._unlink(self._folder.glob(f"*.{self._name(b'user', user.bytes)}"))

    def _path(self, row: KeyRow) -> Path:
        confined = row.user_external_id
        user = ids.user_id(row.tenant_id, confined).bytes if confined is not None else b""
        return self._folder / f"{self._name(b'key', row.key_hash)}.{self._name(b'user', user)}"

    def _files(self, digest: bytes) -> Iterator[Path]:
        return self._folder.glob(f"{self._name(b'key', digest)}.*[!~]")

    def _unlink(self, paths: Iterator[Path]) -> None:
        try:
            for path in paths:
                path.unlink(missing_ok=True)
        except OSError as error:
            log.error("a key cannot be taken away", extra={"error": str(error)})

    def _bound(self) -> None:
        paths = list(self._folder.iterdir())
        if len(paths) > self._most:
            for path in sorted(paths, key=lambda each: each.stat().st_mtime)[: len(paths) - self._most]:
                path.unlink(missing_ok=True)

    def _mac(self, purpose: bytes, *parts: bytes) -> bytes:
        return hmac.digest(self._secret, b"\0".join((b"mneme.keys", purpose, *parts)), "sha256")

    def _name(self, purpose: bytes, subject: bytes) -> str:
        return self._mac(purpose, subject).hex()[:_NAME_CHARS]

    def _pad(self, digest: bytes, nonce: bytes, size: int) -> bytes:
        blocks = range(size // MAC_BYTES + 1)
        return b"".join(self._mac(b"pad", digest, nonce, block.to_bytes(4)) for block in blocks)[:size]

    def _sealed(self, digest: bytes, plain: bytes) -> bytes:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        hidden = _xor(plain, self._pad(digest, nonce, len(plain)))
        return nonce + hidden + self._mac(b"mac", digest, nonce, hidden)

    def _opened(self, digest: bytes, data: bytes) -> bytes | None:
        """None: not sealed by us for this key."""
        nonce, hidden, mac = data[:_NONCE_BYTES], data[_NONCE_BYTES:-MAC_BYTES], data[-MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(b"mac", digest, nonce, hidden)):
            return None
        return _xor(hidden, self._pad(digest, nonce, len(hidden)))


def _xor(text: bytes, pad: bytes) -> bytes:
    return (int.from_bytes(text) ^ int.from_bytes(pad)).to_bytes(len(text))


def sealed_keys(settings: Settings) -> SealedKeys | None:
    """None where the operator has not said so."""
    secret = settings.keys_away_secret
    if secret is None:
        return None
    return SealedKeys(settings.data_dir / _FOLDER, secret.get_secret_value(), KEYS_AWAY)


# --- hosts and origins ---------------------------------------------------------------------------------------------------
# A page of any site can send requests to a server on the reader's own machine, and by DNS rebinding read the answers. In `open`
# mode no key keeps it out.

_NOBODYS = (".localhost", ".internal")
"""Endings of names that nobody can have in public (RFC 6761; ICANN's resolution 2024.07.29.06), so that no page elsewhere has
one. Containers ask their host as `host.docker.internal`."""
_CHECKED_KEPT = 1024
"""Pairs of Host and Origin whose check is kept: clients have few, and a check costs 10 µs."""


def known_hosts(hosts: Iterable[str]) -> frozenset[str]:
    """Those that the settings name, and loopback."""
    return LOOPBACK | {each.lower() for each in hosts}


def check_origin(
    host: str | None, origin: str | None, allowed: frozenset[str], origins: frozenset[str] = frozenset()
) -> None:
    """Raises Forbidden for a Host, or an Origin, that is none of `allowed`. `origins`: further ones, as they
    send themselves."""
    _check_host(_name(f"//{host or ''}"), allowed)
    if origin is not None and origin not in origins and _name(origin) not in allowed:
        raise _not_from_here()


def check_page(host: str | None, origin: str | None, allowed: frozenset[str], origins: frozenset[str]) -> None:
    """As `check_origin`, but lets in what no page elsewhere can have: as Host an address, a name without a dot, which means
    something within a network only, and a name that is nobody's; as Origin what is no page on the web (an editor's or a
    browser's extension), and a page of this very host. `origins`: further ones, as they send themselves."""
    name = _name(f"//{host or ''}")
    if not _unowned(name or ""):
        _check_host(name, allowed)
    if origin is None or origin in origins:
        return
    if (origin == "null" or origin.startswith(("http:", "https:"))) and _name(origin) not in allowed | {name}:
        raise _not_from_here()


class OriginMiddleware:
    """Plain ASGI: `check_page` before everything else."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str], origins: Iterable[str]) -> None:
        """`hosts`: names beside loopback; `origins`: of pages that may ask."""
        self._app = app
        allowed, further = known_hosts(hosts), frozenset(origins)

        @lru_cache(_CHECKED_KEPT)
        def refusal(host: str | None, origin: str | None) -> MnemeError | None:
            try:
                check_page(host, origin, allowed, further)
            except MnemeError as error:
                return error
            return None

        self._refusal = refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app, host, origin = self._app, None, None
        if scope["type"] == "http":
            for name, value in scope["headers"]:
                if name == b"host":
                    host = value.decode("latin-1")
                elif name == b"origin":
                    origin = value.decode("latin-1")
            if (refused := self._refusal(host, origin)) is not None:
                from starlette.responses import JSONResponse

                app = JSONResponse(refused.body(), status_code=refused.status)
        await app(scope, receive, send)


def _check_host(name: str | None, allowed: frozenset[str]) -> None:
    if name not in allowed:
        raise Forbidden("This server is not known by this name: add it to MNEME_HOSTS.", param="Host")


def _not_from_here() -> Forbidden:
    return Forbidden("Pages of this origin may not ask here: add its host to MNEME_HOSTS.", param="Origin")


def _unowned(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return name.endswith(_NOBODYS) or (bool(name) and "." not in name)
    return True


def _name(url: str) -> str | None:
    """The host's, without its port; None: it has none."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
