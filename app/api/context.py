"""POST /api/v1/context: what would be sent upstream, with its explanation, without sending it (seed 003)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Protocol
from uuid import UUID

from fastapi import APIRouter
from msgspec import Struct
from pydantic import Field

from app.api.common import Model, Name, Text, Word
from app.api.scope import Admitted, Gate
from app.context.profiles import ProfileName
from app.errors import BadBody
from app.gateway.identify import priced
from app.sources import Price
from app.store.tenancy import UserRef

MAX_MESSAGES = 10_000


class ContextIn(Model):
    """A request as a client would send it to /v1/chat/completions, as far as the compile looks at it."""

    user: Name | None = None
    session: Name | None = Field(None, description="Your own name of a session, or Mneme's id of it.")
    model: Word | None = Field(None, description="Decides tokenizer and window; unset: MNEME_DEFAULT_MODEL.")
    messages: Annotated[list[dict[str, Any]], Field(max_length=MAX_MESSAGES)] = Field([])
    query: Text | None = Field(None, description="Short for one user message.")
    tools: list[dict[str, Any]] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = Field(None, description="Kept for the answer.")
    profile: ProfileName = Field(
        "auto", description="How what is found is scored; `strategy`: as the question asks for."
    )
    price: Price | None = Field(None, description="What a token of memory costs; unset: the key's, else MNEME_PRICE.")


class PreviewRequest(Struct, frozen=True):
    """Plain values."""

    tenant_id: UUID
    user: UserRef
    session: str | None
    model: str | None
    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None
    max_tokens: int | None
    profile: str = "auto"
    price: Price | None = None


class Previewer(Protocol):
    """Compiles without sending."""

    async def preview(self, request: PreviewRequest) -> dict[str, Any]:
        """{messages, budget, strategy, items: […], …}: what would be sent, and why."""
        ...


def context_router(gate: Gate, previewer: Previewer) -> APIRouter:
    """POST /api/v1/context."""
    doors = _Doors(previewer)
    router = gate.router("context")
    router.add_api_route("/context", doors.preview, methods=["POST"], response_model=dict[str, Any])
    return router


class _Doors:
    def __init__(self, previewer: Previewer) -> None:
        self._previewer = previewer

    async def preview(self, scope: Admitted, body: ContextIn) -> dict[str, Any]:
        """Compile only: the messages that would go upstream, the budget, and each item that was considered."""
        if not body.messages and body.query is None:
            raise BadBody("Send `messages`, or a `query`.", param="messages")
        messages = list(body.messages)
        if body.query is not None:
            messages.append({"role": "user", "content": body.query})
        return await self._previewer.preview(
            PreviewRequest(
                tenant_id=scope.tenant,
                user=scope.user(body.user),
                session=body.session,
                model=body.model,
                messages=messages,
                tools=body.tools,
                max_tokens=body.max_tokens,
                profile=body.profile,
                price=priced(body.price, scope.principal.limits),
            )
        )
