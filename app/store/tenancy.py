"""Tenants, what they tell in their own words, their users, and their keys with what each may use."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from datetime import datetime
from decimal import Decimal, InvalidOperation
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Any, Literal, get_args
from uuid import UUID

from asyncpg.pool import PoolConnectionProxy
from msgspec import Struct
from msgspec.structs import asdict, replace

from app.clock import Clock
from app.errors import BadRequest, Conflict
from app.sources import PRICE_NAMES, Price
from app.store import ids
from app.store.pools import Pool
from app.store.queries import Queries

# --- what a key may use; what holds it to that is `features/limits` ------------------------------------------------------

Period = Literal["day", "month", "ever"]
"""Of a budget: a day or a month of the calendar in UTC, or for good."""
PERIODS: tuple[str, ...] = get_args(Period)
USUAL_PERIOD: Period = "month"
By = Literal["key", "user", "session", "model", "day"]
"""What is added up of what was spent."""
GROUPS: tuple[str, ...] = get_args(By)
MICROCENTS_PER_DOLLAR = 100_000_000
"""Seed 000 §2.1: cost is counted in 10⁻⁸ US dollars."""
MAX_COUNT = 10**15
"""Largest number of a limit: beyond what anybody uses, and a sum of thousands of them still fits into Postgres' bigint."""
_MAX_DOLLARS = 10_000_000
"""Largest budget: `MAX_COUNT` in US dollars."""
_MAX_MODELS = 100
MAX_PATTERN_CHARS = 200


class KeyLimits(Struct, frozen=True):
    """What a key may use; None: any amount. `money_budget` in micro-cents. `models`: names, or patterns with `*`; none: any.
    `capture`: whether its calls may be captured. `paging`: whether they are paged, where call and session do not say; `price`:
    what a token of memory costs, where the call does not say (`context/worth.py`); neither limits anything."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    token_budget: int | None = None
    token_period: Period = USUAL_PERIOD
    money_budget: int | None = None
    money_period: Period = USUAL_PERIOD
    models: tuple[str, ...] = ()
    capture: bool = True
    paging: bool | None = None
    price: Price | None = None

    def __post_init__(self) -> None:
        """Raises BadRequest for a number out of range, a period or a pattern that is none."""
        for name, least in (
            ("requests_per_minute", 1),
            ("tokens_per_minute", 1),
            ("token_budget", 0),
            ("money_budget", 0),
        ):
            value = getattr(self, name)
            if value is not None and not (type(value) is int and least <= value <= MAX_COUNT):
                raise BadRequest(f"{name} is a whole number from {least} to {MAX_COUNT}.", param=name)
        for name in ("token_period", "money_period"):
            if getattr(self, name) not in PERIODS:
                raise BadRequest(f"{name} is {', '.join(PERIODS[:-1])} or {PERIODS[-1]}.", param=name)
        if self.price not in (None, *PRICE_NAMES):
            raise BadRequest(f"price is {', '.join(PRICE_NAMES[:-1])} or {PRICE_NAMES[-1]}.", param="price")
        if len(self.models) > _MAX_MODELS or not all(
            isinstance(each, str) and 0 < len(each) <= MAX_PATTERN_CHARS and "\0" not in each for each in self.models
        ):
            raise BadRequest(
                f"models are at most {_MAX_MODELS} names or patterns of 1 to {MAX_PATTERN_CHARS} characters.",
                param="models",
            )

    @property
    def rated(self) -> bool:
        """Whether there is a rate."""
        return self.requests_per_minute is not None or self.tokens_per_minute is not None

    @property
    def budgeted(self) -> bool:
        """Whether there is a budget."""
        return self.token_budget is not None or self.money_budget is not None

    @property
    def held(self) -> bool:
        """Whether its calls have to be let in, each by itself (`features/limits`)."""
        return self.rated or self.budgeted or bool(self.models)

    @property
    def limiting(self) -> bool:
        """Whether anything is kept from the key: a choice of its owner's is no limit."""
        return replace(self, paging=None, price=None) != NO_LIMITS

    def allows(self, model: str | None) -> bool:
        """Whether this model may be called; None: nobody can tell which it is."""
        return not self.models or (model is not None and any(fnmatchcase(model, each) for each in self.models))

    def as_json(self) -> dict[str, Any]:
        """What is stored and shown: only what was set."""
        plain = asdict(NO_LIMITS)
        found = {name: value for name, value in asdict(self).items() if value != plain[name]}
        if "models" in found:
            found["models"] = list(self.models)
        return found

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> KeyLimits | None:
        """The limits as they were stored; None where there are none. What a later version added is not looked at."""
        known = {name: value for name, value in stored.items() if name in cls.__struct_fields__}
        if "models" in known:
            known["models"] = tuple(known["models"])
        found = cls(**known)
        return found if found != NO_LIMITS else None

    def changed(self, change: Mapping[str, Any]) -> KeyLimits:
        """With what `change` names. Raises BadRequest."""
        return replace(self, **change)


NO_LIMITS = KeyLimits()


def microcents(dollars: str | int | float | Decimal) -> int:
    """US dollars as micro-cents, rounded down. Raises BadRequest for what is no amount of money from 0 to `_MAX_DOLLARS`."""
    try:
        amount = Decimal(str(dollars))
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or not 0 <= amount <= _MAX_DOLLARS:
        raise BadRequest(f"A budget is an amount of US dollars from 0 to {_MAX_DOLLARS}.", param="money_budget")
    return int(amount * MICROCENTS_PER_DOLLAR)


# --- keys and users ------------------------------------------------------------------------------------------------------

KEY_PREFIX = "mneme_"
_KEY_BYTES = 32
"""Random bytes of a key: 256 bits cannot be guessed, so a plain SHA-256 of it needs no salt."""
_HINT_CHARS = len(KEY_PREFIX) + 4
"""Characters kept to tell keys apart: 24 of a key's 256 bits."""
SCOPES = frozenset({"proxy", "read", "write", "admin"})
"""What a key may do: call models (/v1), read under /api/v1, change things there, manage the tenant's keys. A key without
scopes may do all."""


class KeyRow(Struct, frozen=True):
    """A key as the authentication reads it."""

    key_hash: bytes
    key_id: UUID
    tenant_id: UUID
    user_external_id: str | None
    scopes: list[str]
    expires_at: datetime | None
    revoked_at: datetime | None
    limits: KeyLimits | None = None


class KeyInfo(Struct, frozen=True):
    """A key as it is listed: `hint` is its beginning; the key itself is not stored."""

    key_id: UUID
    tenant_id: UUID
    tenant: str
    name: str
    hint: str
    user_external_id: str | None
    scopes: list[str]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    limits: KeyLimits = NO_LIMITS


class UserRef(Struct, frozen=True):
    """A user: the id that rows carry, and the text that the client calls it by."""

    id: UUID
    external: str


class User(Struct, frozen=True):
    """A user as stored."""

    user_id: UUID
    external_id: str
    name: str | None
    email: str | None
    metadata: dict[str, Any]
    created_at: datetime
    last_active: datetime


class UserChange(Struct, frozen=True):
    """What to change; None leaves what is stored."""

    name: str | None = None
    email: str | None = None
    metadata: dict[str, Any] | None = None


class Tenancy(Struct, frozen=True):
    """Keys belong to tenants; users belong to one tenant each."""

    pool: Pool
    queries: Queries
    clock: Clock

    async def key(self, key_hash: bytes) -> KeyRow | None:
        """The key with this SHA-256. Raises StoreUnavailable."""
        async with self.pool.acquire() as connection:
            row = await connection.fetchrow(self.queries["tenancy.key"], key_hash)
        return KeyRow(**{**dict(row), "limits": KeyLimits.of(row["limits"])}) if row is not None else None

    async def create_key(
        self,
        tenant: UUID | str,
        name: str,
        *,
        user: str | None = None,
        expires_at: datetime | None = None,
        scopes: Collection[str] = (),
        limits: KeyLimits = NO_LIMITS,
    ) -> tuple[str, KeyInfo]:
        """A new key, shown this once, and its row. `tenant`: its id, or its name, by which it is made where it is missing.
        `user`: the one external user id that the key is confined to. Raises BadRequest for an unknown scope."""
        granted = _known_scopes(scopes)
        key = KEY_PREFIX + secrets.token_urlsafe(_KEY_BYTES)
        now, named = self.clock.now(), tenant if isinstance(tenant, str) else ""
        key_id, hint = ids.uuid7(now), key[:_HINT_CHARS]
        async with self.pool.acquire() as connection:
            if isinstance(tenant, str):
                tenant = await connection.fetchval(self.queries["tenancy.tenant_ensure"], ids.uuid7(now), tenant, now)
            await connection.execute(
                self.queries["tenancy.key_add"],
                sha256(key.encode("ascii")).digest(), key_id, tenant, name, hint, user, granted, now, expires_at,
                limits.as_json(),
            )  # fmt: skip
        assert isinstance(tenant, UUID), "it was found or made"
        return key, KeyInfo(key_id, tenant, named, name, hint, user, granted, now, expires_at, None, limits)

    async def list_keys(self, tenant: str | None = None) -> list[KeyInfo]:
        """The keys of a tenant, or all of them, newest first; ended ones too."""
        async with self.pool.acquire() as connection:
            rows = await connection.fetch(self.queries["tenancy.key_list"], tenant)
        return [_key_info(row) for row in rows]

    async def keys_of(self, tenant: UUID, *, before: UUID | None = None, limit: int) -> list[KeyInfo]:
        """The keys of a tenant, newest first, older than the key `before`; ended ones too."""
        async with self.pool.acquire() as connection:
            rows = await connection.fetch(self.queries["tenancy.key_page"], tenant, before, limit)
        return [_key_info(row) for row in rows]

    async def change_key(
        self,
        key_id: UUID,
        limits: Mapping[str, Any],
        *,
        tenant: UUID | None = None,
        expires_at: datetime | None = None,
    ) -> KeyInfo | None:
        """Set what `limits` names, by the fields of `KeyLimits`, and the expiry where it is given; servers notice within
        ten seconds. None: there is no such key (of `tenant`, if given). Raises BadRequest."""
        async with self.pool.transaction(None) as connection:
            row = await connection.fetchrow(self.queries["tenancy.key_lock"], key_id, tenant)
            if row is None:
                return None
            found = _key_info(row)
            changed = found.limits.changed(limits)
            ends = expires_at or found.expires_at
            await connection.execute(self.queries["tenancy.key_change"], key_id, changed.as_json(), ends)
            await connection.execute(self.pool.naming(found.tenant_id))
            await connection.execute(self.queries["tenancy.forget_periods"], key_id)
        return replace(found, limits=changed, expires_at=ends)

    async def tenant(self, name: str) -> UUID | None:
        """The tenant of this name."""
        async with self.pool.acquire() as connection:
            found: UUID | None = await connection.fetchval(self.queries["tenancy.tenant"], name)
        return found

    async def revoke_key(self, key_id: UUID, tenant: UUID | None = None) -> bool:
        """End a key (of `tenant`, if given); servers notice within ten seconds. False: there is none still good."""
        async with self.pool.acquire() as connection:
            now = self.clock.now()
            return await connection.fetchval(self.queries["tenancy.key_revoke"], key_id, now, tenant) is not None

    async def user(self, tenant: UUID, user: UUID) -> User | None:
        """A user."""
        async with self.pool.transaction(tenant) as connection:
            return await self._user(connection, tenant, user)

    async def users(self, tenant: UUID, *, after: str, limit: int) -> list[User]:
        """Users by external id, after `after`."""
        async with self.pool.transaction(tenant) as connection:
            rows = await connection.fetch(self.queries["tenancy.user_list"], tenant, after, limit, ids.nobody(tenant))
        return [User(**dict(row)) for row in rows]

    async def put_user(self, tenant: UUID, user: UserRef, change: UserChange) -> tuple[User, bool]:
        """Make the user where it is missing, then change it. True: it was new.

        Raises Conflict when the e-mail address belongs to another user of the tenant.
        """
        async with self.pool.transaction(tenant) as connection:
            created = await ensure_user(connection, self.queries, tenant, user, self.clock.now())
            found = await self._change(connection, tenant, user.id, change)
        assert found is not None, "it was made or found in this transaction"
        return found, created

    async def change_user(self, tenant: UUID, user: UUID, change: UserChange) -> User | None:
        """Change a user; None when there is none. Raises Conflict as `put_user`."""
        async with self.pool.transaction(tenant) as connection:
            return await self._change(connection, tenant, user, change)

    async def _change(
        self, connection: PoolConnectionProxy[Any], tenant: UUID, user: UUID, change: UserChange
    ) -> User | None:
        if await self._user(connection, tenant, user) is None:
            return None
        if change.email is not None:
            owner = await connection.fetchval(self.queries["tenancy.email_take"], tenant, user, change.email)
            if owner != user:
                raise Conflict("Another user of this tenant has this e-mail address.", param="email")
            await connection.execute(self.queries["tenancy.email_free"], tenant, user, change.email)
        await connection.execute(
            self.queries["tenancy.user_update"], tenant, user, change.name, change.email, change.metadata
        )
        return await self._user(connection, tenant, user)

    async def _user(self, connection: PoolConnectionProxy[Any], tenant: UUID, user: UUID) -> User | None:
        row = await connection.fetchrow(self.queries["tenancy.user_one"], tenant, user)
        return User(**dict(row)) if row is not None else None


async def ensure_user(
    connection: PoolConnectionProxy[Any], queries: Queries, tenant: UUID, user: UserRef, now: datetime
) -> bool:
    """Make a user on first sight, inside the caller's transaction. True: it was new."""
    made = await connection.fetchval(queries["tenancy.user_ensure"], tenant, user.id, user.external, now)
    return made is not None


def _known_scopes(scopes: Collection[str]) -> list[str]:
    """The scopes in order, each once. Raises BadRequest for one that is none."""
    if unknown := sorted(set(scopes) - SCOPES):
        raise BadRequest(f"There is no scope {unknown[0]!r}; there are {', '.join(sorted(SCOPES))}.", param="scopes")
    return sorted(set(scopes))


def _key_info(row: Any) -> KeyInfo:
    return KeyInfo(**{**dict(row), "limits": KeyLimits.of(row["limits"]) or NO_LIMITS})


# --- what a tenant tells in its own words: to extraction, and to every prompt --------------------------------------------


class Instructions(Struct, frozen=True):
    """The instructions and profiles of tenants."""

    pool: Pool
    sql: Queries
    clock: Clock

    async def read(self, tenant: UUID) -> tuple[str | None, datetime | None]:
        """The instructions (None: none) and when they were last changed (None: never)."""
        async with self.pool.transaction(tenant) as connection:
            row = await connection.fetchrow(self.sql["instructions.read"], tenant)
        return (row["instructions"], row["updated_at"]) if row is not None else (None, None)

    async def write(self, tenant: UUID, text: str | None) -> datetime:
        """Change them (None: there are none any more); when. Jobs that begin later read them."""
        now = self.clock.now()
        async with self.pool.transaction(tenant) as connection:
            await connection.execute(self.sql["instructions.write"], tenant, text or "", now)
        return now

    async def read_profile(self, tenant: UUID) -> tuple[str | None, datetime | None]:
        """The profile (None: none) and when either was last changed (None: never)."""
        async with self.pool.transaction(tenant) as connection:
            row = await connection.fetchrow(self.sql["instructions.read_profile"], tenant)
        return (row["profile"], row["updated_at"]) if row is not None else (None, None)

    async def write_profile(self, tenant: UUID, text: str | None) -> datetime:
        """Change it (None: there is none any more); when. Prompts that are compiled from now on have it."""
        now = self.clock.now()
        async with self.pool.transaction(tenant) as connection:
            await connection.execute(self.sql["instructions.write_profile"], tenant, text or "", now)
        return now
