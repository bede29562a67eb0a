"""Sessions: found by the id that Mneme issued or by the client's own name, made, listed, closed; what they branched off."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from asyncpg import Connection
from asyncpg.pool import PoolConnectionProxy
from msgspec import Struct

from app.clock import Clock
from app.store import ids
from app.store.pools import Pool, halfvec
from app.store.queries import Queries
from app.store.records import Vector
from app.store.tenancy import UserRef, ensure_user

STATUSES = {"active": 1, "paused": 2, "closed": 3, "expired": 4}
"""`session_status` of `enumerations`."""
_STATUS_NAMES = {number: name for name, number in STATUSES.items()}

SESSION_TTL = timedelta(days=90)
"""A session untouched for this long is expired (as L2 memories: seed 000 §5.1)."""


class SessionRef(Struct, frozen=True):
    """Where a session is."""

    user_id: UUID
    session_id: UUID


class Session(Struct, frozen=True):
    """A session as stored. `turn_count` counts messages; `parent_session_id` and `branch_turn_index` say what a branch
    shares with its parent; `config`: what its owner chose for it."""

    session_id: UUID
    user_id: UUID
    user_external_id: str | None
    external_id: str | None
    created_at: datetime
    updated_at: datetime
    expires_at: datetime
    ended_at: datetime | None
    status: str
    session_type: str
    model_id: str
    turn_count: int
    total_prompt_tokens: int
    total_completion_tokens: int
    total_cost_microcents: int
    summary_text: str | None
    parent_session_id: UUID | None
    branch_turn_index: int | None
    first_message_at: datetime | None
    last_message_at: datetime | None
    metadata: dict[str, Any]
    config: dict[str, Any]

    @property
    def ref(self) -> SessionRef:
        return SessionRef(self.user_id, self.session_id)


class NewSession(Struct, frozen=True):
    """A session to make. `external`: the client's own name of it, if it has one. `began_at`: None is now. `config`: what its
    owner chooses for it."""

    external: str | None = None
    kind: str = "conversation"
    metadata: dict[str, Any] | None = None
    began_at: datetime | None = None
    config: Mapping[str, Any] | None = None


class Sessions(Struct, frozen=True):
    """The sessions of a tenant's users. `ttl`: life of a session that is not touched again (`SESSION_TTL`). `space`:
    of the vectors that it is searched with."""

    pool: Pool
    queries: Queries
    clock: Clock
    ttl: timedelta
    space: int | None = None

    async def resolve(self, tenant: UUID, text: str, user: UUID | None) -> list[SessionRef]:
        """The sessions that `text` may mean, of `user` if one is named: none, one, or one for each user who has a session
        of that name. An id that Mneme issued means just that one."""
        wanted = [ids.route_id(tenant, text)]
        if (issued := ids.issued(text)) is not None:
            wanted.append(issued)
        async with self.pool.transaction(tenant) as connection:
            rows = await connection.fetch(self.queries["sessions.resolve"], tenant, wanted, user)
        if rows and rows[0]["issued"]:
            rows = rows[:1]
        return [SessionRef(row["user_id"], row["session_id"]) for row in rows]

    async def one(self, tenant: UUID, ref: SessionRef) -> Session | None:
        """A session."""
        async with self.pool.transaction(tenant) as connection:
            row = await connection.fetchrow(self.queries["sessions.one"], tenant, ref.user_id, ref.session_id)
        return _session(tenant, row) if row is not None else None

    async def page(
        self,
        tenant: UUID,
        user: UUID | None,
        *,
        status: str | None,
        after: tuple[datetime, UUID] | None,
        limit: int,
        parent: UUID | None = None,
    ) -> list[Session]:
        """Sessions of a user, or of all, newest first, after (created_at, session_id). `parent`: of a user, branches of this
        one."""
        number = STATUSES[status] if status is not None else None
        at, last = after if after is not None else (None, None)
        async with self.pool.transaction(tenant) as connection:
            if user is None:
                rows = await connection.fetch(self.queries["sessions.list_of_tenant"], tenant, number, at, last, limit)
            else:
                asked = (tenant, user, number, at, last, limit, parent)
                rows = await connection.fetch(self.queries["sessions.list_of_user"], *asked)
        return [_session(tenant, row) for row in rows]

    async def search(
        self, tenant: UUID, user: UUID, query: str, vector: Vector | None, *, status: str | None, limit: int
    ) -> list[tuple[Session, float]]:
        """Sessions of a user whose summaries answer best, with a score above 0. `vector`: None, by words alone."""
        number = STATUSES[status] if status is not None else None
        packed = halfvec(vector) if vector is not None else None
        async with self.pool.transaction(tenant) as connection:
            rows = await connection.fetch(
                self.queries["sessions.search_of_user"],
                tenant, user, number, query, packed, self.space if vector is not None else None, limit,
            )  # fmt: skip
        found = []
        for row in rows:
            fields = dict(row)
            score = float(fields.pop("score"))
            found.append((_session(tenant, fields), score))
        return found

    async def create(self, tenant: UUID, user: UserRef, new: NewSession) -> tuple[SessionRef, bool]:
        """Make a session; with a name that the user has used before, find that one. True: it is new."""
        async with self.pool.transaction(tenant) as connection:
            return await self.ensure(connection, tenant, user, new)

    async def ensure(
        self, connection: PoolConnectionProxy[Any], tenant: UUID, user: UserRef, new: NewSession
    ) -> tuple[SessionRef, bool]:
        """`create` inside the caller's transaction."""
        now = self.clock.now()
        await ensure_user(connection, self.queries, tenant, user, now)
        if new.external is None:
            session, names = ids.uuid7(now), []
        else:
            session = ids.session_id(tenant, user.id, new.external)
            names = [ids.route_id(tenant, new.external)]
        made = await connection.fetchval(
            self.queries["sessions.make"],
            tenant, user.id, session, new.external, new.began_at or now, now, now + self.ttl, new.kind,
            new.metadata or {}, dict(new.config or {}),
        )  # fmt: skip
        if made is not None:
            await connection.execute(self.queries["sessions.route"], tenant, user.id, session, [session, *names])
        return SessionRef(user.id, session), made is not None

    async def close(self, tenant: UUID, ref: SessionRef) -> None:
        """End a session; one that is ended stays as it is."""
        async with self.pool.transaction(tenant) as connection:
            await connection.execute(
                self.queries["sessions.close"], tenant, ref.user_id, ref.session_id, self.clock.now()
            )

    async def change(self, tenant: UUID, ref: SessionRef, config: Mapping[str, Any], status: str | None) -> bool:
        """Choose for a session, where None takes a choice back; pause it (`paused`) or let it go on (`active`). False: it is
        over, and has no such status; nothing is changed then."""
        number = STATUSES[status] if status is not None else None
        async with self.pool.transaction(tenant) as connection:
            arguments = (tenant, ref.user_id, ref.session_id, dict(config), number, self.clock.now())
            return bool(await connection.fetchval(self.queries["sessions.change"], *arguments))


def _session(tenant: UUID, row: Any) -> Session:
    fields = dict(row)
    fields["status"] = _STATUS_NAMES.get(fields["status"], "active")
    if fields["user_id"] == ids.nobody(tenant):
        fields["user_external_id"] = None
    return Session(**fields)


# --- a session with those that it branched off: the stretches of turns that one conversation is made of ------------------

_MAX_LINEAGE = 100
"""Branches of branches followed; a conversation edited more often than this shows its newest hundred stretches."""


class Ancestry(NamedTuple):
    """Sessions, nearest first, each with the turns that it gives, above `lows` up to `highs` (None: open); and the time of the
    first and the last message of all."""

    sessions: list[UUID]
    lows: list[int]
    highs: list[int | None]
    first: datetime
    last: datetime

    def upto(self, turn: int | None) -> Ancestry:
        """Of it what was there when this turn was the last one; None: all."""
        if turn is None:
            return self
        return self._replace(highs=[turn if high is None else min(high, turn) for high in self.highs])


async def line_of(
    connection: PoolConnectionProxy[Any] | Connection[Any], sql: Queries, tenant: UUID, ref: SessionRef
) -> Ancestry | None:
    """The line of a session; None where nothing was said."""
    rows = await connection.fetch(sql["history.lineage"], tenant, ref.user_id, ref.session_id, _MAX_LINEAGE)
    times = [row["first_message_at"] for row in rows] + [row["last_message_at"] for row in rows]
    known = [each for each in times if each is not None]
    if not known:
        return None
    lows, highs = [row["low"] for row in rows], [row["high"] for row in rows]
    return Ancestry([row["session_id"] for row in rows], lows, highs, min(known), max(known))
