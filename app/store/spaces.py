"""Shared spaces: who may read which, and who said what there. Their memory itself lies where every user's does, under an id of
the space's own (`ids.space_id`)."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple, get_args
from uuid import UUID

from asyncpg.pool import PoolConnectionProxy
from msgspec import Struct

from app.clock import Clock
from app.errors import Conflict, NotFound
from app.store import ids
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.tenancy import UserRef, ensure_user

SpaceKind = Literal["team", "project", "tenant"]
KINDS: tuple[SpaceKind, ...] = get_args(SpaceKind)
NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,62}$"
"""Of a space: it stands in prompts, headers and paths, and says there nothing but itself."""
_NAME = re.compile(NAME_PATTERN)
_SPACE = "space:"
"""Before its name, where a user's name stands."""
MOST_SPACES = 16
"""Spaces of one user: each is an index more that a prompt is ranked by (some 2 ms for 5,000 items)."""
MESSAGE, MEMORY = 0, 1
"""`item_kind` of `space_sayings`."""

Within = Callable[["PoolConnectionProxy[Any]"], Awaitable[None]]


class SharedSpace(Struct, frozen=True):
    """A space as stored. `by_word`: its members may say something to it in a conversation."""

    space_id: UUID
    name: str
    kind: SpaceKind
    title: str
    by_word: bool
    created_at: datetime
    members: int


class Shared(NamedTuple):
    """A space that a user may read."""

    space_id: UUID
    name: str


class SpaceItem(NamedTuple):
    """Something that is said or remembered in a space. `kind`: message, or that of a memory; `users`: who said it, as
    far as that is known still."""

    id: UUID
    kind: str
    text: str
    said_at: datetime
    users: Sequence[str]


class Membership(NamedTuple):
    """Who is a member of a space, since when."""

    user: str
    joined_at: datetime


def is_name(text: str) -> bool:
    """Whether a space may be called so."""
    return _NAME.fullmatch(text) is not None


def owner_of(tenant: UUID, name: str) -> UserRef:
    """As whom the memory of a space is kept."""
    return UserRef(ids.space_id(tenant, name), f"{_SPACE}{name}")


def space_of(tenant: UUID, owner: UUID, external: str | None) -> str | None:
    """Which space this owner of a memory is; None: a user."""
    name = (external or "").removeprefix(_SPACE)
    return name if name != external and owner == ids.space_id(tenant, name) else None


def no_such_space(name: str, param: str | None = None) -> NotFound:
    """The same for a space that is not there and for one that is somebody else's."""
    return NotFound(
        f"There is no space {name[:64]!r} that this user is a member of. An operator makes one with POST /api/v1/spaces, and"
        f" adds members with PUT /api/v1/spaces/{{space}}/members/{{user}}.",
        param=param,
        code="space_not_found",
    )


class SharedSpaces(Struct, frozen=True):
    """The spaces of tenants."""

    pool: Pool
    sql: Queries
    clock: Clock

    async def create(
        self, tenant: UUID, name: str, *, kind: SpaceKind, title: str = "", by_word: bool = False
    ) -> tuple[SharedSpace, bool]:
        """A space; False: there was one of this name, which stays as it is. A new one has no member."""
        now, owner = self.clock.now(), owner_of(tenant, name)
        async with self.pool.transaction(tenant) as connection:
            await ensure_user(connection, self.sql, tenant, owner, now)
            made = await connection.fetchval(self.sql["spaces.add"], tenant, owner.id, name, kind, title, by_word, now)
            if made is not None:
                # Who came to one of this name while it was being erased has come to that one.
                await connection.execute(self.sql["spaces.empty"], tenant, owner.id)
            found = await self._one(connection, tenant, None, owner.id)
        assert found is not None, "it was made or found in this transaction"
        return found, made is not None

    async def page(self, tenant: UUID, user: UUID | None, *, after: str, limit: int) -> list[SharedSpace]:
        """Spaces by name, after `after`; of a user those that they are a member of."""
        async with self.pool.transaction(tenant) as connection:
            rows = await connection.fetch(self.sql["spaces.page"], tenant, user, after, limit)
        return [SharedSpace(**dict(row)) for row in rows]

    async def one(self, tenant: UUID, user: UUID | None, name: str) -> SharedSpace | None:
        """A space, if this user is a member of it; None as `user`: whoever asks."""
        async with self.pool.transaction(tenant) as connection:
            return await self._one(connection, tenant, user, ids.space_id(tenant, name))

    async def _one(
        self, connection: PoolConnectionProxy[Any], tenant: UUID, user: UUID | None, space: UUID
    ) -> SharedSpace | None:
        row = await connection.fetchrow(self.sql["spaces.one"], tenant, user, space)
        return SharedSpace(**dict(row)) if row is not None else None

    async def of(self, tenant: UUID, user: UUID) -> list[Shared]:
        """The spaces that a user may read, by name."""
        async with self.pool.transaction(tenant) as connection:
            rows = await connection.fetch(self.sql["spaces.of"], tenant, user)
        return [Shared(*row) for row in rows]

    async def members(self, tenant: UUID, space: UUID, *, after: str, limit: int) -> list[Membership]:
        """Members by name, after `after`."""
        async with self.pool.transaction(tenant) as connection:
            rows = await connection.fetch(self.sql["spaces.members"], tenant, space, after, limit)
        return [Membership(*row) for row in rows]

    async def join(self, tenant: UUID, name: str, user: UserRef) -> bool:
        """Make a user a member; False: they were. Raises NotFound, Conflict for a user of too many spaces."""
        space, now = ids.space_id(tenant, name), self.clock.now()
        async with self.pool.transaction(tenant) as connection:
            if await connection.fetchval(self.sql["spaces.hold"], tenant, space) is None:
                raise no_such_space(name)
            await ensure_user(connection, self.sql, tenant, user, now)
            await connection.fetchval(self.sql["spaces.hold_user"], tenant, user.id)
            made = await connection.fetchval(self.sql["spaces.join"], tenant, user.id, space, now)
            if made is not None and await connection.fetchval(self.sql["spaces.joined"], tenant, user.id) > MOST_SPACES:
                raise Conflict(f"A user is a member of at most {MOST_SPACES} spaces.", code="too_many_spaces")
        return made is not None

    async def leave(self, tenant: UUID, space: UUID, user: UUID) -> bool:
        """End a membership: from the next read on the user sees nothing of the space, and the blocks of their prompts that
        quote it go. False: there was none."""
        async with self.pool.transaction(tenant) as connection:
            gone: bool = await connection.fetchval(self.sql["spaces.leave"], tenant, user, space)
        return gone

    async def empty(self, tenant: UUID, space: UUID) -> None:
        """End all membership: what is left of the space, nobody reads. (Then it is erased, as a user is.)"""
        async with self.pool.transaction(tenant) as connection:
            await connection.fetchval(self.sql["spaces.hold"], tenant, space)
            await connection.execute(self.sql["spaces.empty"], tenant, space)

    def saying(
        self,
        tenant: UUID,
        user: UUID,
        name: str,
        items: Sequence[UUID],
        kind: int,
        session: UUID | None = None,
        at: datetime | None = None,
    ) -> Within:
        """What notes, within the transaction that writes them, that a user said these items in a space. It raises NotFound
        where they are no member (any more)."""

        async def note(connection: PoolConnectionProxy[Any]) -> None:
            space = ids.space_id(tenant, name)
            if await connection.fetchval(self.sql["spaces.is_member"], tenant, user, space) is None:
                raise no_such_space(name)
            said_at = at or self.clock.now()
            await connection.execute(self.sql["spaces.say"], tenant, user, space, list(items), kind, session, said_at)

        return note

    async def items(
        self, tenant: UUID, space: UUID, user: UUID | None, *, after: tuple[datetime, UUID] | None, limit: int
    ) -> list[SpaceItem]:
        """What is said and remembered in a space, oldest first, after (said_at, id): for one of its members; None as `user`:
        for whoever asks."""
        async with self.pool.transaction(tenant) as connection:
            rows = await connection.fetch(
                self.sql["spaces.items"], tenant, space, user, *(after or (None, None)), limit
            )
        return [SpaceItem(*row) for row in rows]
