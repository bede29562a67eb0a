"""Things that are spoken of, and what they are called (seed 004, tables 2 and 3): looked up, taught, kept by hand.

The nil user stands for the whole tenant. A user sees the tenant's things and their own; where both have one id, their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple
from uuid import UUID

from asyncpg.pool import PoolConnectionProxy
from msgspec import Struct
from msgspec.json import decode

from app.clock import Clock
from app.errors import Conflict
from app.store.ids import NIL
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.records import ROLE_NAMES
from app.store.tenancy import UserRef, ensure_user

NEAR = 6
"""Rows of each way for each mention that is searched for by trigrams: one more than seed 004's `LIMIT 5`."""
REFERRED_EVERY = timedelta(minutes=1)
"""How often it is noted at most that a thing was spoken of."""
RECENT_CHARS = 1200
"""Of each earlier message: half of what is looked at of a new one."""

Stage = Literal["name", "alias", "near", "near_alias", "part"]
_STAGES: Mapping[int, Stage] = {1: "name", 2: "alias", 3: "near", 4: "near_alias", 5: "part"}
Source = Literal["exact", "fuzzy", "learned", "user_stated", "domain_db"]


class Confidences(Struct, frozen=True, forbid_unknown_fields=True):
    """How sure each stage of resolution is: `system_config.resolution`, and what is shipped there (seed 004, subsystem 1).

    `exact`: a canonical name; `alias`: a known alias, at most; `fuzzy`: the least similar of the names that are nearly the
    same, and `fuzzy_span`: what whole likeness adds; `coreference`: what the message before named; `choice`: what the user
    chose; `domain_key`, `domain_name`: a row whose key the mention is, and one whose name it is. Each use makes an alias surer
    by the factor `alias_gain`, up to `alias_most`.
    """

    exact: float = 1.0
    alias: float = 0.95
    fuzzy: float = 0.7
    fuzzy_span: float = 0.15
    coreference: float = 0.6
    choice: float = 0.85
    domain_key: float = 0.95
    domain_name: float = 0.8
    alias_gain: float = 1.02
    alias_most: float = 0.98


SHIPPED = Confidences()


class Match(NamedTuple):
    """A thing that a mention (`norm`) may mean. `own`: by a row of the user's. Of an alias: `source` to `last_used_at`; of what
    is nearly so: `similarity` (0..1)."""

    stage: Stage
    norm: str
    entity_id: str
    entity_type: str
    name: str
    own: bool
    source: Source | None = None
    confidence: float = 0.0
    use_count: int = 0
    last_used_at: datetime | None = None
    similarity: float = 0.0


class Thing(NamedTuple):
    """A row of the business's own database. `is_own`: whether the user named the row, rather than giving its identifier.
    `ref`: {"domain", "table", "column", "key"}."""

    is_own: bool
    entity_id: str
    entity_type: str
    name: str
    norm: str
    ref: Mapping[str, Any]
    properties: Mapping[str, Any]


class UsedAlias(NamedTuple):
    """An alias that was used. `own`: the user's, else the whole tenant's."""

    own: bool
    norm: str
    text: str
    entity_id: str
    source: Source
    confidence: float
    metadata: Mapping[str, Any]


class LearnedNames(NamedTuple):
    """What a text teaches; written once, by whoever owns the transaction. `spoken`: ids of all things that it is about."""

    things: tuple[Thing, ...] = ()
    aliases: tuple[UsedAlias, ...] = ()
    spoken: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.things or self.aliases or self.spoken)

    def learned_from(self, session: UUID) -> LearnedNames:
        """The same with the session on what are the user's own aliases; what everybody has names nobody's session."""
        said = {"learned_from": f"session:{session}"}
        marked = (each._replace(metadata={**each.metadata, **said}) if each.own else each for each in self.aliases)
        return self._replace(aliases=tuple(marked))


class StoredEntity(Struct, frozen=True):
    """A thing. `user_id` nil: the whole tenant's."""

    entity_id: str
    user_id: UUID
    entity_type: str
    canonical_name: str
    external_ref: dict[str, Any]
    properties: dict[str, Any]
    last_referenced: datetime | None
    created_at: datetime
    updated_at: datetime


class StoredAlias(Struct, frozen=True):
    """What a thing is called. `user_id` nil: by the whole tenant."""

    alias_id: UUID
    user_id: UUID
    entity_id: str
    alias_norm: str
    alias_text: str
    alias_source: Source
    confidence: float
    use_count: int
    metadata: dict[str, Any]
    created_at: datetime
    last_used_at: datetime


class EntityStore:
    def __init__(self, pool: Pool, sql: Queries, clock: Clock) -> None:
        self._pool = pool
        self._sql = sql
        self._clock = clock
        self._confidences: Confidences | None = None

    async def confidences(self, connection: PoolConnectionProxy[Any] | None = None) -> Confidences:
        """How sure each stage is, as `system_config` says; read once, when something is first resolved. `connection`: one that
        the caller has."""
        if self._confidences is None:
            if connection is None:
                async with self._pool.acquire() as own:
                    return await self.confidences(own)
            (row,) = await connection.fetch(self._sql["tuning.parameters"], ["resolution"])
            self._confidences = decode(row["value"], type=Confidences)
        return self._confidences

    # --- the way of a request ----------------------------------------------------------------------------------------

    async def look_up(self, tenant: UUID, user: UUID | None, grams: Sequence[str], spans: Sequence[str]) -> list[Match]:
        """What these may mean, in one round trip: `grams` exactly, by name and alias; `spans` also nearly. All as
        `resolution.normalise` writes them. `user` None: only what the whole tenant knows."""
        if not grams and not spans:
            return []
        async with self._pool.acquire() as connection:
            rows = await connection.fetch(
                self._sql["entities.look_up"], tenant, user, list(grams), list(dict.fromkeys(spans)), NEAR
            )
        return [
            Match(
                _STAGES[row["stage"]], row["mention"], row["entity_id"], row["entity_type"], row["canonical_name"],
                row["own"], row["alias_source"], row["confidence"] or 0.0, row["use_count"] or 0, row["last_used_at"],
                row["similarity"] or 0.0,
            )
            for row in rows
        ]  # fmt: skip

    async def recent(self, tenant: UUID, user: UUID, session: UUID, count: int) -> list[tuple[str, str]]:
        """The last messages of user and assistant in a session, (role, text), oldest first."""
        rows = await self._fetch("consolidation.recent", tenant, user, session, 2 * count, RECENT_CHARS)
        said = [(ROLE_NAMES.get(row["role"], "other"), row["content"]) for row in reversed(rows)]
        return [each for each in said if each[0] in ("user", "assistant")][-count:]

    # --- learning ----------------------------------------------------------------------------------------------------

    async def teach(self, tenant: UUID, user: UUID | None, lessons: LearnedNames, now: datetime) -> None:
        """Write what a text teaches, in a transaction of its own."""
        if lessons:
            async with self._pool.transaction(tenant) as connection:
                await self.teach_in(connection, tenant, user, lessons, now)

    async def teach_in(
        self,
        connection: PoolConnectionProxy[Any],
        tenant: UUID,
        user: UUID | None,
        lessons: LearnedNames,
        now: datetime,
    ) -> None:
        """The same within the caller's transaction, which is the tenant's. Of two who teach what a user calls things, one
        waits; rows of everybody are taken in one order, so that none gives way."""
        if user is not None and any(each.own for each in lessons.aliases):
            await connection.execute(self._sql["learning.lock"], user)
        if lessons.things:
            # A thing that is named in one place, and identified in another, counts as named.
            things = list(
                {thing.entity_id: thing for thing in sorted(lessons.things, key=lambda thing: thing.is_own)}.values()
            )
            await connection.execute(
                self._sql["entities.put"], tenant, user, now, *map(list, zip(*things, strict=True))
            )
        stated = [(each.norm, each.entity_id) for each in lessons.aliases if each.own and each.source == "user_stated"]
        if stated and user is not None:
            await connection.execute(self._sql["entities.unstate"], tenant, user, *map(list, zip(*stated, strict=True)))
        own = [each for each in lessons.aliases if user is not None or not each.own]
        # Each once: a text that says a name twice has used it once.
        rows = {
            (owner, each.norm, each.entity_id): (
                owner, each.norm, each.entity_id, each.text, each.source, each.confidence, each.metadata
            )
            for each in own
            for owner in [user if each.own else NIL]
        }  # fmt: skip
        if rows:
            sure = await self.confidences(connection)
            await connection.execute(
                self._sql["entities.learn"],
                tenant,
                now,
                *map(list, zip(*rows.values(), strict=True)),
                sure.alias_most,
                sure.alias_gain,
            )
        if lessons.spoken:
            await connection.execute(
                self._sql["entities.refer"], tenant, user or NIL, now, list(lessons.spoken), REFERRED_EVERY
            )

    # --- by hand -----------------------------------------------------------------------------------------------------

    async def page(
        self, tenant: UUID, user: UUID | None, *, kind: str | None, words: str | None, after: str | None, limit: int
    ) -> list[StoredEntity]:
        """What a user sees, by id; None: what is the tenant's."""
        rows = await self._fetch("entities.page", tenant, user or NIL, kind, words, after, limit)
        return [_entity(row) for row in rows]

    async def one(self, tenant: UUID, user: UUID | None, entity: str) -> StoredEntity | None:
        rows = await self._fetch("entities.one", tenant, user or NIL, entity)
        return _entity(rows[0]) if rows else None

    async def create(
        self,
        tenant: UUID,
        user: UserRef | None,
        entity: str,
        kind: str,
        name: str,
        norm: str,
        properties: Mapping[str, Any],
    ) -> StoredEntity:
        """Make a thing by hand: the user's own, or (None) the whole tenant's. Raises Conflict where there is one."""
        now = self._clock.now()
        async with self._pool.transaction(tenant) as connection:
            if user is not None:
                await ensure_user(connection, self._sql, tenant, user, now)
            owner = user.id if user is not None else NIL
            made = await connection.fetchval(
                self._sql["entities.create"], tenant, owner, entity, kind, name, norm, dict(properties), now
            )
        if made is None:
            raise Conflict(f"There is a thing {entity!r} already.", param="id")
        return StoredEntity(entity, owner, kind, name, {}, dict(properties), None, now, now)

    async def change(
        self,
        tenant: UUID,
        owner: UUID,
        entity: str,
        name: str | None,
        norm: str | None,
        properties: Mapping[str, Any] | None,
    ) -> bool:
        """Give a thing of `owner` (nil: the tenant's) another name, other properties. False: there is none."""
        given = dict(properties) if properties is not None else None
        now = self._clock.now()
        return bool(await self._fetch("entities.change", tenant, owner, entity, name, norm, given, now))

    async def delete(self, tenant: UUID, owner: UUID, entity: str) -> bool:
        """Take a thing and what it was called away. False: there is none."""
        async with self._pool.transaction(tenant) as connection:
            if await connection.fetchval(self._sql["entities.delete"], tenant, owner, entity) is None:
                return False
            await connection.execute(self._sql["entities.delete_aliases_of"], tenant, owner, entity)
        return True

    async def aliases(
        self, tenant: UUID, user: UUID | None, entity: str, *, after: tuple[Any, ...] | None = None, limit: int
    ) -> list[StoredAlias]:
        """What a thing is called: by the tenant, and by a user."""
        rows = await self._fetch("entities.aliases", tenant, user or NIL, entity, *(after or (None, None)), limit)
        return [StoredAlias(**dict(row)) for row in rows]

    async def state(self, tenant: UUID, user: UserRef | None, alias: UsedAlias) -> StoredAlias | None:
        """Write an alias that was stated outright: of a user, or (None) of the whole tenant. None: they see no such thing."""
        now = self._clock.now()
        owner = user.id if user is not None else NIL
        async with self._pool.transaction(tenant) as connection:
            if await connection.fetchrow(self._sql["entities.one"], tenant, owner, alias.entity_id) is None:
                return None
            if user is not None:
                await ensure_user(connection, self._sql, tenant, user, now)
            await self.teach_in(connection, tenant, user.id if user else None, LearnedNames(aliases=(alias,)), now)
            row = await connection.fetchrow(self._sql["entities.alias_of"], tenant, owner, alias.entity_id, alias.norm)
        return StoredAlias(**dict(row)) if row is not None else None

    async def owner_of_alias(self, tenant: UUID, user: UUID | None, entity: str, alias: UUID | None) -> UUID | None:
        """Whose an alias is that a user sees (nil: the tenant's). None: there is none."""
        rows = await self._fetch("entities.owner_of_alias", tenant, user or NIL, entity, alias)
        return rows[0][0] if rows else None

    async def delete_alias(self, tenant: UUID, owner: UUID, entity: str, alias: UUID) -> bool:
        """Take an alias of `owner` (nil: the tenant's) away. False: there is none."""
        return bool(await self._fetch("entities.delete_alias", tenant, owner, entity, alias))

    async def _fetch(self, name: str, tenant: UUID, *bound: object) -> Sequence[Any]:
        async with self._pool.transaction(tenant) as connection:
            rows: Sequence[Any] = await connection.fetch(self._sql[name], tenant, *bound)
        return rows


def _entity(row: Any) -> StoredEntity:
    fields = dict(row)
    fields.pop("name_norm", None)
    return StoredEntity(**fields)
