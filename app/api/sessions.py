"""/api/v1/sessions: conversations, their history, and messages added without a call."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Response

from app.api.appending import MessageIn, Said, Scribe, check_time
from app.api.common import DEFAULT_PAGE, MAX_PAGE, Cursor, Limit, Name, Segment, Text, decode_cursor, paged
from app.api.finding import find_session, session_of
from app.api.scope import Admitted, Gate, Scope
from app.api.session_models import (
    HistoryPage,
    MessageDeleted,
    MessagesAdded,
    MessagesIn,
    Owner,
    Placed,
    SessionCreated,
    SessionFound,
    SessionIn,
    SessionOut,
    SessionPage,
    SessionPatch,
    SessionStatus,
    TurnIn,
    shown_message,
    shown_session,
)
from app.errors import BadBody, BadRequest, NotFound
from app.store import ids
from app.store.cards import Cards
from app.store.erasure import Deleter
from app.store.history import History
from app.store.sessions import NewSession, SessionRef, Sessions
from app.store.tenancy import UserRef

MAX_QUERY_CHARS = 2000
"""Longest question to sessions, characters: it stands in a URL."""


def sessions_router(
    gate: Gate, sessions: Sessions, history: History, cards: Cards, scribe: Scribe, deleter: Deleter
) -> APIRouter:
    """The routes of /api/v1/sessions."""
    routes = _Routes(sessions, history, cards, scribe, deleter)
    router = gate.router("sessions")
    router.add_api_route("/sessions", routes.listing, methods=["GET"], response_model=SessionPage)
    router.add_api_route("/sessions", routes.create, methods=["POST"], response_model=SessionCreated, status_code=201)
    router.add_api_route("/sessions/{session_id}", routes.get, methods=["GET"], response_model=SessionOut)
    router.add_api_route("/sessions/{session_id}", routes.change, methods=["PATCH"], response_model=SessionOut)
    router.add_api_route("/sessions/{session_id}/history", routes.history, methods=["GET"], response_model=HistoryPage)
    router.add_api_route(
        "/sessions/{session_id}/messages",
        routes.append,
        methods=["POST"],
        response_model=MessagesAdded,
        status_code=201,
    )
    router.add_api_route(
        "/sessions/{session_id}/turns", routes.turn, methods=["POST"], response_model=MessagesAdded, status_code=201
    )
    router.add_api_route(
        "/sessions/{session_id}/messages/{message_id}",
        routes.delete,
        methods=["DELETE"],
        response_model=MessageDeleted,
    )
    router.add_api_route("/sessions/{session_id}/close", routes.close, methods=["POST"], response_model=SessionOut)
    return router


def history_router(
    gate: Gate, sessions: Sessions, history: History, cards: Cards, scribe: Scribe, deleter: Deleter
) -> APIRouter:
    """/api/history/{session_id}: seed 003's name for a session's history."""
    router = gate.router("sessions", prefix="/api")
    routes = _Routes(sessions, history, cards, scribe, deleter)
    router.add_api_route("/history/{session_id}", routes.history, methods=["GET"], response_model=HistoryPage)
    return router


class _Routes:
    def __init__(self, sessions: Sessions, history: History, cards: Cards, scribe: Scribe, deleter: Deleter) -> None:
        self._sessions = sessions
        self._history = history
        self._cards = cards
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
        parent: Annotated[Name | None, Query(description="Branches of this session only; in no search.")] = None,
        limit: Limit = DEFAULT_PAGE,
        cursor: Cursor = None,
    ) -> SessionPage:
        """List sessions, newest first; or find those of one user by what they were about, in one page. A session has a summary
        once it has been idle for five minutes."""
        if query is not None and query.strip():
            return await self._search(scope, user, query, status, limit, cursor)
        after = decode_cursor(cursor, (datetime, UUID))
        named = scope.named(user)
        of = await find_session(self._sessions, scope, parent, user) if parent is not None else None
        rows = await self._sessions.page(
            scope.tenant,
            of.user_id if of else named.id if named else None,
            status=status,
            parent=of.session_id if of else None,
            after=after and (after[0], after[1]),
            limit=limit + 1,
        )
        page, following = paged(rows, limit, lambda row: (row.created_at, row.session_id))
        return SessionPage(sessions=[SessionFound(**shown_session(row).model_dump()) for row in page], next=following)

    async def _search(
        self, scope: Scope, user: str | None, query: str, status: str | None, limit: int, cursor: str | None
    ) -> SessionPage:
        if cursor is not None:
            raise BadBody("A search has one page: raise `limit`.", param="cursor")
        (vector,) = await self._scribe.vectors([query])
        found = await self._sessions.search(
            scope.tenant, scope.user(user).id, query, vector, status=status, limit=limit
        )
        shown = [SessionFound(**shown_session(row).model_dump(), score=round(score, 4)) for row, score in found]
        return SessionPage(sessions=shown, next=None)

    async def create(self, scope: Admitted, response: Response, body: SessionIn) -> SessionCreated:
        """Make a session (201); one of that name is returned as it is (200)."""
        user = scope.user(body.user)
        known = await session_of(self._sessions, scope.tenant, body.id, user.id) if body.id is not None else None
        if known is not None:
            ref, created = known, False
        else:
            chosen = body.config.model_dump(exclude_unset=True)
            new = NewSession(external=body.id, kind=body.type, metadata=body.metadata, config=chosen)
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

    async def change(self, scope: Admitted, session_id: Segment, body: SessionPatch, user: Owner = None) -> SessionOut:
        """Choose for a session whether its requests are paged, and within how many tokens; from its next request on."""
        ref = await find_session(self._sessions, scope, session_id, user)
        await self._sessions.configure(scope.tenant, ref, body.config.model_dump(exclude_unset=True))
        return await self._one(scope, ref)

    async def history(
        self,
        scope: Admitted,
        session_id: Segment,
        user: Owner = None,
        limit: Limit = DEFAULT_PAGE,
        cursor: Cursor = None,
        last: Annotated[int | None, Query(ge=1, le=MAX_PAGE, description="Only the last so many, in one page.")] = None,
        before: Annotated[
            int | None, Query(ge=1, le=2**30, description="With `last`: the last ones before this `turn_index`.")
        ] = None,
    ) -> HistoryPage:
        """Read what was said, oldest first, with the cards that were shown. A branch begins with what it shares with its
        parent."""
        after = decode_cursor(cursor, (int, int, UUID))
        if last is not None and after is not None:
            raise BadRequest("The last messages have one page: leave out `cursor` or `last`.", param="last")
        if before is not None and last is None:
            raise BadRequest("Say with `last` how many before it.", param="before")
        ref = await find_session(self._sessions, scope, session_id, user)
        if last is not None:
            rows, limit = await self._history.last(scope.tenant, ref, last, before=before), last
        else:
            place = after and (after[0], after[1], after[2])
            rows = await self._history.read(scope.tenant, ref, after=place, limit=limit + 1)
        page, following = paged(rows, limit, lambda row: (row.turn_index, row.sibling, row.message_id))
        cards = await self._cards.of_messages(scope.tenant, ref.user_id, [row.message_id for row in page])
        return HistoryPage(messages=[shown_message(row, cards.get(row.message_id, ())) for row in page], next=following)

    async def append(self, scope: Admitted, session_id: Segment, body: MessagesIn) -> MessagesAdded:
        """Add messages without calling a model, with the cards that were shown with their answers. A session that does not
        exist yet is made."""
        return await self._append(scope, session_id, body.user, body.messages, learn=body.learn)

    async def turn(self, scope: Admitted, session_id: Segment, body: TurnIn) -> MessagesAdded:
        """Add a question with its answer and the cards that were shown with it, without calling a model."""
        asked = MessageIn(role="user", content=body.user_message)
        answer = MessageIn(role="assistant", content=body.assistant_message, cards=body.cards)
        return await self._append(scope, session_id, body.user, [asked, answer], learn=body.learn)

    async def _append(
        self, scope: Scope, session_id: str, named: str | None, messages: Sequence[MessageIn], *, learn: bool
    ) -> MessagesAdded:
        wrong = next((n for n, each in enumerate(messages) if each.cards and each.role != "assistant"), None)
        if wrong is not None:
            raise BadBody(
                "Cards are shown with answers: with messages of the assistant.", param=f"messages.{wrong}.cards"
            )
        user, session = await self._target(scope, session_id, named)
        now = self._scribe.now()
        said, cards = [], {}
        for i, each in enumerate(messages):
            # Messages without a time keep their order by it, too.
            at = each.created_at or now + timedelta(microseconds=i)
            check_time(at, now)
            said.append(Said(ids.uuid7(at), at, each))
            if each.cards:
                cards[said[-1].message_id] = await self._scribe.cards(each.cards)
        prepared = await self._scribe.messages(said)
        added = await self._history.append(scope.tenant, user, session, prepared, learn=learn, cards=cards)
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
        return shown_session(found)
