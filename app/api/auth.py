"""Who calls: a Mneme key, or, in `open` mode, anybody.

A key is random and only its SHA-256 is stored. A key that was found is remembered for a short while; one that cannot be
looked up, because the database is away, is refused with 503: never let in, never called wrong. Unless the operator says that
keys seen before are good meanwhile (`sealed_keys`).
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
from collections import OrderedDict
from collections.abc import Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from typing import TypeVar

from app.api.sealed_keys import SealedKeys
from app.clock import Clock
from app.errors import StoreUnavailable, Unauthenticated
from app.gateway.identify import Mode
from app.gateway.identify import Principal as Principal
from app.patience import patience
from app.settings import Settings
from app.store.ids import LOCAL_TENANT
from app.store.tenancy import KEY_PREFIX, KeyRow, Tenancy

log = logging.getLogger(__name__)

CACHE_KEYS = 10_000
"""Keys remembered, some 500 bytes each."""

NEGATIVE_CACHE_S = 2.0
"""Seconds that an unknown key is remembered: long enough to spare the database a client's retries, short enough that a
key works soon after it was made. Never longer than a known key is remembered."""

V = TypeVar("V")

# What `Tenancy.create_key` makes; anything else is refused without a look-up.
_KEY = re.compile(re.escape(KEY_PREFIX) + r"[A-Za-z0-9_-]{43}")
_BEARER = re.compile(r"bearer[ \t]+(\S+)[ \t]*", re.IGNORECASE)


class Authenticator:
    """Turns a request's headers into a `Principal`."""

    def __init__(self, tenancy: Tenancy, settings: Settings, clock: Clock, sealed: SealedKeys | None = None) -> None:
        """`sealed`: None where no key is good while the database is away."""
        self._tenancy = tenancy
        self._sealed = sealed
        self._mode: Mode = settings.auth_mode
        self._clock = clock
        self._life = timedelta(seconds=settings.key_cache_s)
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
    """The Mneme key of a request: `X-Mneme-Key`, else a bearer or an `X-Api-Key` (as clients of `/v1/messages` send) that
    begins with `mneme_`; None: it brings none."""
    own = headers.get("x-mneme-key")
    if own is not None:
        return own.strip()
    bearer = _BEARER.fullmatch(headers.get("authorization") or "")
    if bearer and bearer[1].startswith(KEY_PREFIX):
        return bearer[1]
    other = (headers.get("x-api-key") or "").strip()
    return other if other.startswith(KEY_PREFIX) else None
