"""What /api/v1/sessions takes and gives."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Query
from pydantic import BaseModel, Field

from app.api.appending import MessageIn
from app.api.card_models import CardOut, Given, shown_card
from app.api.common import Model, Name, Text, Word
from app.gateway.identify import OnOff
from app.settings import LEAST_PAGING_TOKENS
from app.store.cards import Card
from app.store.history import HistoryMessage
from app.store.limits import MAX_COUNT
from app.store.sessions import Session
from app.store.texts import content_of

MAX_MESSAGES = 1000
"""Most messages of one request; more come by POST /api/v1/import."""

SessionStatus = Literal["active", "paused", "closed", "expired"]


Owner = Annotated[Name | None, Query(description="Whose, where several users have a session of this name.")]


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

    user: Name | None = None
    id: Name | None = Field(None, description="Your own name for it, any text; one that exists is returned.")
    type: Word = "conversation"
    metadata: dict[str, Any] = Field({})
    config: ConfigIn = ConfigIn()


class SessionPatch(Model):
    """What to change of a session; what is left out stays."""

    config: ConfigIn


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
    parts as they were sent. `cards`: shown with this answer, in their order."""

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
    cards: list[CardOut]


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


class TurnIn(Model):
    """A question and its answer, with the cards that were shown with it (seed 003, process_turn)."""

    user: Name | None = Field(None, description="Whose session; needed where the session is new.")
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


class MessagesAdded(BaseModel):
    """Where the messages came to stand. `created`: the session is new."""

    session_id: UUID
    created: bool
    messages: list[Placed]


def shown_session(row: Session) -> SessionOut:
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
            "config": row.config,
        }
    )


def shown_message(row: HistoryMessage, cards: Sequence[Card] = ()) -> MessageOut:
    return MessageOut(
        id=row.message_id,
        session_id=row.session_id,
        turn_index=row.turn_index,
        sibling=row.sibling,
        parent_id=row.parent_message_id,
        role=row.role,
        content=content_of(row.content, row.content_parts),
        name=row.name,
        tool_calls=row.tool_calls,
        tool_call_id=row.tool_call_id,
        token_count=row.token_count,
        model=row.model_id,
        finish_reason=row.finish_reason,
        call_id=row.call_id,
        created_at=row.created_at,
        metadata=row.metadata,
        cards=[shown_card(each) for each in cards],
    )
