"""/api/v1/sessions: conversations, their history, and messages added without a call."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from app.api.appending import MessageIn, Said, Scribe, check_time
from app.api.common import (
    DEFAULT_PAGE,
    Cursor,
    Limit,
    Model,
    Name,
    Segment,
    Text,
    Word,
    decode_cursor,
    paged,
)
from app.api.finding import find_session, session_of
from app.api.scope import Admitted, Gate, Scope
from app.errors import BadBody, NotFound
from app.store import ids
from app.store.deleting import Deleter
from app.store.history import History, HistoryMessage
from app.store.sessions import NewSession, Session, SessionRef, Sessions
from app.store.tenancy import UserRef

MAX_MESSAGES = 1000
"""Most messages of one request; more come by POST /api/v1/import."""

MAX_QUERY_CHARS = 2000
"""Longest question to sessions, characters: it stands in a URL."""

SessionStatus = Literal["active", "paused", "closed", "expired"]


Owner = Annotated[Name | None, Query(description="Whose, where several users have a session of this name.")]


class SessionIn(Model):
    """A session to make."""

    user: Name | None = None
    id: Name | None = Field(None, description="Your own name for it, any text; one that exists is returned.")
    type: Word = "conversation"
    metadata: dict[str, Any] = Field({})


class SessionOut(BaseModel):
    """A session. `id` is Mneme's, `external_id` your own name for it. Costs are in micro-cents (10⁻⁸ US dollars).

    A branch shares the messages up to `branch_turn_index` with its parent."""

    id: UUID
    external_id: str | None
    user: str | None
    status: SessionStatus
    type: str
    model: str | None
    message_count: int
    prompt_tokens: int
    completion_tokens: int
    cost_microcents: int
    summary: str | None
    parent_session_id: UUID | None
    branch_turn_index: int | None
    created_at: datetime
    updated_at: datetime
    expires_at: datetime
    ended_at: datetime | None
    first_message_at: datetime | None
    last_message_at: datetime | None
    metadata: dict[str, Any]


class SessionCreated(SessionOut):
    created: bool


class SessionFound(SessionOut):
    """`score`: of a search, how well the session's summary answers; 1 and more is very well."""

    score: float | None = None


class SessionPage(BaseModel):
    sessions: list[SessionFound]
    next: str | None


class MessageOut(BaseModel):
    """A message. Messages with one `turn_index` are siblings: answers to the same question. `content` is a text, or content
    parts as they were sent."""

    id: UUID
    session_id: UUID
    turn_index: int
    sibling: int
    parent_id: UUID | None
    role: str
    content: str | list[Any] | None
    name: str | None
    tool_calls: list[Any] | None
    tool_call_id: str | None
    token_count: int
    model: str | None
    finish_reason: str | None
    call_id: UUID | None
    created_at: datetime
    metadata: dict[str, Any]


class HistoryPage(BaseModel):
    messages: list[MessageOut]
    next: str | None


class MessagesIn(Model):
    """Messages to add at the end of a session."""

    user: Name | None = Field(None, description="Whose session; needed where the session is new.")
    messages: Annotated[list[MessageIn], Field(min_length=1, max_length=MAX_MESSAGES)]
    learn: bool = Field(
        True, description="Draw memories from them, as from any turn; else no search finds them, either."
    )


class Placed(BaseModel):
    id: UUID
    turn_index: int


class MessageDeleted(BaseModel):
    """A message that is gone. `forgotten`: memories that were learned from it and from nothing else; `kept`: those that have
    other sources, and lost this one."""

    id: UUID
    deleted: bool
    forgotten: list[UUID]
    kept: list[UUID]


class MessagesAdded(BaseModel):
    """Where the messages came to stand. `created`: the session is new."""

    session_id: UUID
    created: bool
    messages: list[Placed]


def sessions_router(gate: Gate, sessions: Sessions, history: History, scribe: Scribe, deleter: Deleter) -> APIRouter:
    """The routes of /api/v1/sessions."""
    doors = _Doors(sessions, history, scribe, deleter)
    router = gate.router("sessions")
    router.add_api_route("/sessions", doors.listing, methods=["GET"], response_model=SessionPage)
    router.add_api_route("/sessions", doors.create, methods=["POST"], response_model=SessionCreated, status_code=201)
    router.add_api_route("/sessions/{session_id}", doors.get, methods=["GET"], response_model=SessionOut)
    router.add_api_route("/sessions/{session_id}/history", doors.history, methods=["GET"], response_model=HistoryPage)
    router.add_api_route(
        "/sessions/{session_id}/messages",
        doors.append,
        methods=["POST"],
        response_model=MessagesAdded,
        status_code=201,
    )
    router.add_api_route(
        "/sessions/{session_id}/messages/{message_id}",
        doors.delete,
        methods=["DELETE"],
        response_model=MessageDeleted,
    )
    router.add_api_route("/sessions/{session_id}/close", doors.close, methods=["POST"], response_model=SessionOut)
    return router


def history_router(gate: Gate, sessions: Sessions, history: History, scribe: Scribe, deleter: Deleter) -> APIRouter:
    """/api/history/{session_id}: seed 003's name for a session's history."""
    router = gate.router("sessions", prefix="/api")
    doors = _Doors(sessions, history, scribe, deleter)
    router.add_api_route("/history/{session_id}", doors.history, methods=["GET"], response_model=HistoryPage)
    return router


class _Doors:
    def __init__(self, sessions: Sessions, history: History, scribe: Scribe, deleter: Deleter) -> None:
        self._sessions = sessions
        self._history = history
        self._scribe = scribe
        self._deleter = deleter

    async def listing(
        self,
        scope: Admitted,
        user: Annotated[Name | None, Query(description="Of this user only.")] = None,
        status: SessionStatus | None = None,
        query: Annotated[
            Text | None,
            Query(
                max_length=MAX_QUERY_CHARS,
                description="A question: the user's sessions whose summaries answer best, first.",
            ),
        ] = None,
        limit: Limit = DEFAULT_PAGE,
        cursor: Cursor = None,
    ) -> SessionPage:
        """List sessions, newest first; or find those of one user by what they were about, in one page. A session has a summary
        once it has been idle for five minutes."""
        if query is not None and query.strip():
            return await self._search(scope, user, query, status, limit, cursor)
        after = decode_cursor(cursor, (datetime, UUID))
        named = scope.named(user)
        rows = await self._sessions.page(
            scope.tenant,
            named.id if named else None,
            status=status,
            after=after and (after[0], after[1]),
            limit=limit + 1,
        )
        page, following = paged(rows, limit, lambda row: (row.created_at, row.session_id))
        return SessionPage(sessions=[SessionFound(**_out(row).model_dump()) for row in page], next=following)

    async def _search(
        self, scope: Scope, user: str | None, query: str, status: str | None, limit: int, cursor: str | None
    ) -> SessionPage:
        if cursor is not None:
            raise BadBody("A search has one page: raise `limit`.", param="cursor")
        (vector,) = await self._scribe.vectors([query])
        found = await self._sessions.search(
            scope.tenant, scope.user(user).id, query, vector, status=status, limit=limit
        )
        shown = [SessionFound(**_out(row).model_dump(), score=round(score, 4)) for row, score in found]
        return SessionPage(sessions=shown, next=None)

    async def create(self, scope: Admitted, response: Response, body: SessionIn) -> SessionCreated:
        """Make a session (201); one of that name is returned as it is (200)."""
        user = scope.user(body.user)
        known = await session_of(self._sessions, scope.tenant, body.id, user.id) if body.id is not None else None
        if known is not None:
            ref, created = known, False
        else:
            new = NewSession(external=body.id, kind=body.type, metadata=body.metadata)
            ref, created = await self._sessions.create(scope.tenant, user, new)
        if not created:
            response.status_code = 200
        return SessionCreated(**(await self._one(scope, ref)).model_dump(), created=created)

    async def get(
        self,
        scope: Admitted,
        session_id: Segment,
        user: Owner = None,
    ) -> SessionOut:
        """Read a session, by Mneme's id of it or by your own."""
        return await self._one(scope, await find_session(self._sessions, scope, session_id, user))

    async def history(
        self,
        scope: Admitted,
        session_id: Segment,
        user: Owner = None,
        limit: Limit = DEFAULT_PAGE,
        cursor: Cursor = None,
    ) -> HistoryPage:
        """Read what was said, oldest first. A branch begins with what it shares with its parent."""
        after = decode_cursor(cursor, (int, int, UUID))
        ref = await find_session(self._sessions, scope, session_id, user)
        rows = await self._history.read(
            scope.tenant, ref, after=after and (after[0], after[1], after[2]), limit=limit + 1
        )
        page, following = paged(rows, limit, lambda row: (row.turn_index, row.sibling, row.message_id))
        return HistoryPage(messages=[_message(row) for row in page], next=following)

    async def append(self, scope: Admitted, session_id: Segment, body: MessagesIn) -> MessagesAdded:
        """Add messages without calling a model. A session that does not exist yet is made."""
        user, session = await self._target(scope, session_id, body.user)
        now = self._scribe.now()
        said = []
        for i, each in enumerate(body.messages):
            # Messages without a time keep their order by it, too.
            at = each.created_at or now + timedelta(microseconds=i)
            check_time(at, now)
            said.append(Said(ids.uuid7(at), at, each))
        messages = await self._scribe.messages(said)
        added = await self._history.append(scope.tenant, user, session, messages, learn=body.learn)
        return MessagesAdded(
            session_id=added.session.session_id,
            created=added.created,
            messages=[Placed(id=message, turn_index=turn) for message, turn in added.placed],
        )

    async def delete(
        self,
        scope: Admitted,
        session_id: Segment,
        message_id: str,
        user: Owner = None,
    ) -> MessageDeleted:
        """Delete a message: its words leave the history, the indexes and later prompts for good, and the memories that were
        learned from it alone are forgotten. A transcript that holds it goes on where it was.

        Captured calls keep what they hold; erase the user to take those away. A question and its answer are two messages.
        """
        ref = await find_session(self._sessions, scope, session_id, user)
        message = ids.issued(message_id)
        gone = await self._deleter.delete(scope.tenant, ref, message) if message is not None else None
        if message is None or gone is None:
            raise NotFound("There is no such message.")
        return MessageDeleted(id=message, deleted=True, forgotten=list(gone.forgotten), kept=list(gone.kept))

    async def close(
        self,
        scope: Admitted,
        session_id: Segment,
        user: Owner = None,
    ) -> SessionOut:
        """End a session. What was said stays; closing one that is closed changes nothing."""
        ref = await find_session(self._sessions, scope, session_id, user)
        await self._sessions.close(scope.tenant, ref)
        return await self._one(scope, ref)

    async def _target(self, scope: Scope, text: str, user: str | None) -> tuple[UserRef, SessionRef | NewSession]:
        """Where messages go: into the session that `text` names, or into a new one of the user who is named."""
        named = scope.named(user)
        known = await self._sessions.resolve(scope.tenant, text, named.id if named is not None else None)
        if known:
            ref = await find_session(self._sessions, scope, text, user)
            found = await self._sessions.one(scope.tenant, ref)
            return UserRef(ref.user_id, (found.user_external_id if found else None) or ""), ref
        owner = scope.user(user)
        await session_of(self._sessions, scope.tenant, text, owner.id)  # another's is none to begin
        return owner, NewSession(external=text)

    async def _one(self, scope: Scope, ref: SessionRef) -> SessionOut:
        found = await self._sessions.one(scope.tenant, ref)
        if found is None:
            raise NotFound("There is no such session.", param="session")
        return _out(found)


def _out(row: Session) -> SessionOut:
    return SessionOut.model_validate(
        {
            "id": row.session_id,
            "external_id": row.external_id,
            "user": row.user_external_id,
            "status": row.status,
            "type": row.session_type,
            "model": row.model_id or None,
            "message_count": row.turn_count,
            "prompt_tokens": row.total_prompt_tokens,
            "completion_tokens": row.total_completion_tokens,
            "cost_microcents": row.total_cost_microcents,
            "summary": row.summary_text,
            "parent_session_id": row.parent_session_id,
            "branch_turn_index": row.branch_turn_index,
            "created_at": row.created_at,
            "updated_at": row.updated_at,
            "expires_at": row.expires_at,
            "ended_at": row.ended_at,
            "first_message_at": row.first_message_at,
            "last_message_at": row.last_message_at,
            "metadata": row.metadata,
        }
    )


def _message(row: HistoryMessage) -> MessageOut:
    return MessageOut(
        id=row.message_id,
        session_id=row.session_id,
        turn_index=row.turn_index,
        sibling=row.sibling,
        parent_id=row.parent_message_id,
        role=row.role,
        content=row.content_parts if isinstance(row.content_parts, list) else row.content,
        name=row.name,
        tool_calls=row.tool_calls,
        tool_call_id=row.tool_call_id,
        token_count=row.token_count,
        model=row.model_id,
        finish_reason=row.finish_reason,
        call_id=row.call_id,
        created_at=row.created_at,
        metadata=row.metadata,
    )
