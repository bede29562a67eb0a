"""/api/v1/sessions: conversations, their history, messages added without a call, and its working memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, Self, TypeVar
from uuid import UUID

from fastapi import APIRouter, Query, Response
from msgspec import Struct
from msgspec.structs import asdict
from pydantic import BaseModel, Field, model_validator

from app.api.common import (
    DEFAULT_PAGE,
    MAX_PAGE,
    CardGiven,
    CardOut,
    Cursor,
    Given,
    KeepsCards,
    Limit,
    Model,
    Name,
    Segment,
    SessionName,
    StoredUserName,
    Text,
    UserName,
    Word,
    decode_cursor,
    paged,
)
from app.api.intake import IntakeMessage, IntakePreparer, MessageIn, check_time
from app.api.scope import Admitted, CallerScope, Gate, find_session, session_of
from app.errors import BadBody, BadRequest, Conflict, NotFound
from app.gateway.identify import OnOff
from app.jobs.learn import WorkingMemory
from app.settings import LEAST_PAGING_TOKENS
from app.store import ids
from app.store.erasure import Deleter
from app.store.history import History, HistoryMessage
from app.store.pools import content_of
from app.store.sessions import NewSession, Session, SessionRef, Sessions
from app.store.tenancy import MAX_COUNT, UserRef

MAX_MESSAGES = 1000
"""Most messages of one request; more come by POST /api/v1/import."""
_MAX_QUERY_CHARS = 2000
"""Longest question to sessions, characters: it stands in a URL."""
SessionStatus = Literal["active", "paused", "closed", "expired"]
Owner = Annotated[StoredUserName | None, Query(description="Whose, where several users have a session of this name.")]


# --- bodies --------------------------------------------------------------------------------------------------------------


class ConfigIn(Model):
    """What is chosen for a session; null takes a choice back."""

    paging: OnOff | None = Field(
        None, description="Whether its requests are paged, where they do not say; null: as key and server."
    )
    paging_budget_tokens: Annotated[int, Field(strict=True, ge=LEAST_PAGING_TOKENS, le=MAX_COUNT)] | None = Field(
        None, description="Most tokens of a paged prompt; null: as the server."
    )


class SessionIn(Model):
    """A session to make."""

    user: UserName | None = None
    id: SessionName | None = Field(None, description="Your own name for it, any text; one that exists is returned.")
    type: Word = "conversation"
    metadata: dict[str, Any] = Field({})
    config: ConfigIn = ConfigIn()


class SessionPatch(Model):
    """What to change of a session; what is left out stays."""

    config: ConfigIn | None = None
    status: Literal["active", "paused"] | None = Field(
        None,
        description="The schedule neither compacts nor closes a paused session; a paused session expires like any other.",
    )

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.config is None and self.status is None:
            raise ValueError("Say what to change: `config` or `status`.")
        return self


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
    config: dict[str, Any]


ShownSession = TypeVar("ShownSession", bound=SessionOut)


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
    parts as they were sent. `reasoning`: the model's reasoning before it, as the upstream sent it. `cards`: shown with this
    answer."""

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
    reasoning: dict[str, Any] | None
    cards: list[CardOut]


class HistoryPage(BaseModel):
    messages: list[MessageOut]
    next: str | None


class MessagesIn(Model):
    """Messages to add at the end of a session."""

    user: UserName | None = Field(None, description="Whose session; needed where the session is new.")
    messages: Annotated[list[MessageIn], Field(min_length=1, max_length=MAX_MESSAGES)]
    learn: bool = Field(
        True, description="Draw memories from them, as from any turn; else no search finds them, either."
    )


class TurnIn(Model):
    """A question and its answer, with the cards that were shown with it (seed 003, process_turn)."""

    user: UserName | None = Field(None, description="Whose session; needed where the session is new.")
    user_message: Text | list[dict[str, Any] | str]
    assistant_message: Text | list[dict[str, Any] | str] | None
    cards: Given = Field([], description="Shown with the answer.")
    learn: bool = Field(True, description="As for messages.")


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


class SessionDeleted(BaseModel):
    """A deleted session. `messages`: how many were deleted now; `forgotten`: memories that went with them; `kept`: those that
    other sessions say, too."""

    id: UUID
    deleted: bool
    messages: int
    forgotten: list[UUID]
    kept: list[UUID]


class MessagesAdded(BaseModel):
    """Where the messages came to stand. `created`: the session is new."""

    session_id: UUID
    created: bool
    messages: list[Placed]


class WorkingOut(BaseModel):
    """L0 of a session: the preferences in force, what the assistant asked leave for and nobody has answered, and the newest
    results of tools."""

    session_id: UUID
    active_preferences: list[dict[str, Any]]
    pending_confirmations: list[dict[str, Any]]
    tool_results_buffer: list[dict[str, Any]]
    updated_at: datetime


def _shown(kind: type[ShownSession], row: Session, **more: object) -> ShownSession:
    return kind.model_validate(
        asdict(row)
        | {
            "id": row.session_id,
            "user": row.user_external_id,
            "type": row.session_type,
            "model": row.model_id or None,
            "message_count": row.turn_count,
            "prompt_tokens": row.total_prompt_tokens,
            "completion_tokens": row.total_completion_tokens,
            "cost_microcents": row.total_cost_microcents,
            "summary": row.summary_text,
        }
        | more
    )


def _shown_message(row: HistoryMessage, cards: Sequence[CardOut]) -> MessageOut:
    return MessageOut.model_validate(
        asdict(row)
        | {
            "id": row.message_id,
            "parent_id": row.parent_message_id,
            "content": content_of(row.content, row.content_parts),
            "model": row.model_id,
            "cards": cards,
        }
    )


# --- sessions and their history ------------------------------------------------------------------------------------------


def sessions_router(gate: Gate, routes: SessionRoutes) -> APIRouter:
    """The routes of /api/v1/sessions."""
    router = gate.router("sessions")
    router.add_api_route("/sessions", routes.listing, methods=["GET"])
    router.add_api_route("/sessions", routes.create, methods=["POST"], status_code=201)
    router.add_api_route("/sessions/{session_id}", routes.get, methods=["GET"])
    router.add_api_route("/sessions/{session_id}", routes.change, methods=["PATCH"])
    router.add_api_route("/sessions/{session_id}/history", routes.history, methods=["GET"])
    router.add_api_route("/sessions/{session_id}/messages", routes.append, methods=["POST"], status_code=201)
    router.add_api_route("/sessions/{session_id}/turns", routes.turn, methods=["POST"], status_code=201)
    router.add_api_route("/sessions/{session_id}/messages/{message_id}", routes.delete, methods=["DELETE"])
    router.add_api_route("/sessions/{session_id}", routes.delete_session, methods=["DELETE"])
    router.add_api_route("/sessions/{session_id}/close", routes.close, methods=["POST"])
    return router


def history_router(gate: Gate, routes: SessionRoutes) -> APIRouter:
    """/api/history/{session_id}: seed 003's name for a session's history."""
    router = gate.router("sessions", prefix="/api")
    router.add_api_route("/history/{session_id}", routes.history, methods=["GET"])
    return router


class SessionRoutes(Struct, frozen=True):
    sessions: Sessions
    messages: History
    cards: KeepsCards | None
    preparer: IntakePreparer
    deleter: Deleter

    async def listing(
        self,
        scope: Admitted,
        user: Annotated[StoredUserName | None, Query(description="Of this user only.")] = None,
        status: SessionStatus | None = None,
        query: Annotated[
            Text | None,
            Query(
                max_length=_MAX_QUERY_CHARS,
                description="A question: the user's sessions whose summaries answer best, first.",
            ),
        ] = None,
        parent: Annotated[Name | None, Query(description="Branches of this session only; in no search.")] = None,
        limit: Limit = DEFAULT_PAGE,
        cursor: Cursor = None,
    ) -> SessionPage:
        """List sessions, newest first; or find those of one user by what they were about, in one page. A session has a summary
        once it has been idle for five minutes. One that was deleted is not listed, until something is said in it again."""
        if query is not None and query.strip():
            return await self._search(scope, user, query, status, limit, cursor)
        after = decode_cursor(cursor, (datetime, UUID))
        of = await find_session(self.sessions, scope, parent, user) if parent is not None else None
        rows = await self.sessions.page(
            scope.tenant,
            of.user_id if of else scope.owner(user),
            status=status,
            parent=of.session_id if of else None,
            after=after and (after[0], after[1]),
            limit=limit + 1,
        )
        page, following = paged(rows, limit, lambda row: (row.created_at, row.session_id))
        return SessionPage(sessions=[_shown(SessionFound, row) for row in page], next=following)

    async def _search(
        self, scope: CallerScope, user: str | None, query: str, status: str | None, limit: int, cursor: str | None
    ) -> SessionPage:
        if cursor is not None:
            raise BadBody("A search has one page: raise `limit`.", param="cursor")
        (vector,) = await self.preparer.vectors([query])
        found = await self.sessions.search(scope.tenant, scope.user(user).id, query, vector, status=status, limit=limit)
        shown = [_shown(SessionFound, row, score=round(score, 4)) for row, score in found]
        return SessionPage(sessions=shown, next=None)

    async def create(self, scope: Admitted, response: Response, body: SessionIn) -> SessionCreated:
        """Make a session (201); one of that name is returned as it is (200)."""
        user = scope.user(body.user)
        known = await session_of(self.sessions, scope.tenant, body.id, user.id) if body.id is not None else None
        if known is not None:
            ref, created = known, False
        else:
            chosen = body.config.model_dump(exclude_unset=True)
            new = NewSession(external=body.id, kind=body.type, metadata=body.metadata, config=chosen)
            ref, created = await self.sessions.create(scope.tenant, user, new)
        if not created:
            response.status_code = 200
        return _shown(SessionCreated, await self._one(scope, ref), created=created)

    async def get(self, scope: Admitted, session_id: Segment, user: Owner = None) -> SessionOut:
        """Read a session, by Mneme's id of it or by your own."""
        return _shown(SessionOut, await self._one(scope, await find_session(self.sessions, scope, session_id, user)))

    async def change(self, scope: Admitted, session_id: Segment, body: SessionPatch, user: Owner = None) -> SessionOut:
        """Pause a session or let it go on; choose whether its requests are paged, and within how many tokens, from its next
        request on. What is said in a paused one is kept as ever; one that was closed or has expired cannot be paused."""
        ref = await find_session(self.sessions, scope, session_id, user)
        config = body.config.model_dump(exclude_unset=True) if body.config is not None else {}
        if not await self.sessions.change(scope.tenant, ref, config, body.status):
            raise Conflict("This session is closed or expired.", param="status")
        return _shown(SessionOut, await self._one(scope, ref))

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
        ref = await find_session(self.sessions, scope, session_id, user)
        if last is not None:
            rows, limit = await self.messages.last(scope.tenant, ref, last, before=before), last
        else:
            place = after and (after[0], after[1], after[2])
            rows = await self.messages.read(scope.tenant, ref, after=place, limit=limit + 1)
        page, following = paged(rows, limit, lambda row: (row.turn_index, row.sibling, row.message_id))
        shown: Mapping[UUID, Sequence[CardOut]] = {}
        if self.cards is not None:
            shown = await self.cards.of_messages(scope.tenant, ref.user_id, [row.message_id for row in page])
        return HistoryPage(
            messages=[_shown_message(row, shown.get(row.message_id, ())) for row in page], next=following
        )

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
        self, scope: CallerScope, session_id: str, named: str | None, messages: Sequence[MessageIn], *, learn: bool
    ) -> MessagesAdded:
        wrong = next((n for n, each in enumerate(messages) if each.cards and each.role != "assistant"), None)
        if wrong is not None:
            raise BadBody(
                "Cards are shown with answers: with messages of the assistant.", param=f"messages.{wrong}.cards"
            )
        if self.cards is None and any(each.cards for each in messages):
            raise BadRequest("This installation has no app.features.cards to keep cards.", code="cards_not_kept")
        user, session = await self._target(scope, session_id, named)
        now = self.preparer.now()
        said: list[IntakeMessage] = []
        cards: dict[UUID, Sequence[CardGiven]] = {}
        for i, each in enumerate(messages):
            # Messages without a time keep their order by it, too.
            at = each.created_at or now + timedelta(microseconds=i)
            check_time(at, now)
            said.append(IntakeMessage(ids.uuid7(at), at, each))
            if each.cards:
                cards[said[-1].message_id] = each.cards
        prepared = await self.preparer.messages(said)
        attach = await self.cards.attaching(scope.tenant, cards) if self.cards is not None and cards else None
        added = await self.messages.append(scope.tenant, user, session, prepared, learn=learn, attach=attach)
        return MessagesAdded(
            session_id=added.session.session_id,
            created=added.created,
            messages=[Placed(id=message, turn_index=turn) for message, turn in added.placed],
        )

    async def delete(self, scope: Admitted, session_id: Segment, message_id: str, user: Owner = None) -> MessageDeleted:
        """Delete a message: its words leave the history, the indexes and later prompts for good, and the memories that were
        learned from it alone are forgotten. A transcript that holds it goes on where it was.

        Captured calls keep what they hold; erase the user to take those away. A question and its answer are two messages.
        """
        ref = await find_session(self.sessions, scope, session_id, user)
        message = ids.issued(message_id)
        gone = await self.deleter.delete(scope.tenant, ref, message) if message is not None else None
        if message is None or gone is None:
            raise NotFound("There is no such message.")
        return MessageDeleted(id=message, deleted=True, forgotten=list(gone.forgotten), kept=list(gone.kept))

    async def delete_session(self, scope: Admitted, session_id: Segment, user: Owner = None) -> SessionDeleted:
        """Delete a session: each of its messages as the route for one does, with what was learned from them alone, and its
        metadata and summary; a turn that is under way goes with it. It is closed; its id stays, so that its transcript, sent
        again, is recognised and brings nothing back. What is said in it afterwards, by a chat or by `messages`, is kept as
        ever, and opens it again. What it shares with the session that it is a branch of is that one's. Asked again after a
        failure it goes on. `message_count` goes on counting the places of what was deleted.
        """
        ref = await find_session(self.sessions, scope, session_id, user)
        gone = await self.deleter.delete_session(scope.tenant, ref)
        return SessionDeleted(
            id=ref.session_id,
            deleted=True,
            messages=gone.messages,
            forgotten=sorted(gone.forgotten),
            kept=sorted(gone.kept - gone.forgotten),
        )

    async def close(self, scope: Admitted, session_id: Segment, user: Owner = None) -> SessionOut:
        """End a session. What was said stays; closing one that is closed changes nothing."""
        ref = await find_session(self.sessions, scope, session_id, user)
        await self.sessions.close(scope.tenant, ref)
        return _shown(SessionOut, await self._one(scope, ref))

    async def _target(self, scope: CallerScope, text: str, user: str | None) -> tuple[UserRef, SessionRef | NewSession]:
        """Where messages go: into the session that `text` names, or into a new one of the user who is named."""
        if await self.sessions.resolve(scope.tenant, text, scope.owner(user)):
            ref = await find_session(self.sessions, scope, text, user)
            found = await self.sessions.one(scope.tenant, ref)
            return UserRef(ref.user_id, (found.user_external_id if found else None) or ""), ref
        owner = scope.user(user)
        await session_of(self.sessions, scope.tenant, text, owner.id)  # another's is none to begin
        return owner, NewSession(external=text)

    async def _one(self, scope: CallerScope, ref: SessionRef) -> Session:
        found = await self.sessions.one(scope.tenant, ref)
        if found is None:
            raise NotFound("There is no such session.", param="session")
        return found


# --- working memory ------------------------------------------------------------------------------------------------------


def working_router(gate: Gate, sessions: Sessions, memory: WorkingMemory) -> APIRouter:
    """The route of a session's working memory."""

    async def working(scope: Admitted, session_id: Segment, user: Owner = None) -> WorkingOut:
        """Read a session's working memory; it is made anew where it was lost."""
        ref = await find_session(sessions, scope, session_id, user)
        found, at = await memory.get(scope.tenant, ref.user_id, ref.session_id)
        return WorkingOut.model_validate(asdict(found) | {"session_id": ref.session_id, "updated_at": at})

    router = gate.router("sessions")
    router.add_api_route("/sessions/{session_id}/working", working, methods=["GET"])
    return router
