"""POST /api/v1/context: what would be sent (seed 003)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from uuid import UUID

import orjson
from fastapi import APIRouter
from msgspec import Struct
from pydantic import Field

from app.api.common import Model, Name, StoredUserName, Text, Word
from app.api.scope import Admitted, Gate
from app.clock import Clock
from app.context.audit import expand, fill
from app.context.candidates import Candidate
from app.context.score import ProfileName
from app.errors import BadBody
from app.features import Process
from app.gateway.dialects.chat import CHAT
from app.gateway.dialects.splice import dump
from app.gateway.identify import Identity, Switches, priced
from app.gateway.prepare import Preparer
from app.gateway.upstream import Router
from app.json_text import read_json
from app.providers.tokens import STORED_COUNTS
from app.settings import Settings
from app.sources import Price
from app.store import ids
from app.store.pools import nested
from app.store.tenancy import UserRef

MAX_MESSAGES = 10_000


class ContextIn(Model):
    """A request as a client would send it to /v1/chat/completions, as far as the compile looks at it."""

    user: StoredUserName | None = None
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
    """Such a request, of one user."""

    tenant_id: UUID
    user: UserRef
    session: str | None
    model: str | None
    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None
    max_tokens: int | None
    profile: str = "auto"
    price: Price | None = None


class Previewer:
    """Compiles a request and shows what came of it; nothing is sent, stored or counted as used."""

    def __init__(self, preparer: Preparer, router: Router, clock: Clock, default_model: str) -> None:
        self._preparer = preparer
        self._router = router
        self._clock = clock
        self._default_model = default_model

    async def preview(self, request: PreviewRequest) -> dict[str, Any]:
        """{messages, session_id, tokens, …} and the explanation. Raises BadBody, NotFound, StoreUnavailable."""
        document: dict[str, Any] = {"model": request.model or self._default_model, "messages": list(request.messages)}
        if request.tools is not None:
            document["tools"] = list(request.tools)
        if request.max_tokens is not None:
            document["max_tokens"] = request.max_tokens
        body = dump(document)
        chat = CHAT.read(body, document)
        if chat is None:
            raise BadBody("`messages` must be a list of objects.", param="messages")
        session = request.session
        identity = Identity(
            tenant_id=request.tenant_id,
            user=request.user.external,
            user_id=request.user.id,
            confined=False,
            session=session,
            named=ids.session_id(request.tenant_id, request.user.id, session) if session is not None else None,
            issued=ids.issued(session) if session is not None else None,
            retry=0,
            idempotency_key=None,
        )
        now = self._clock.now()
        target = self._router.route(chat.model)
        place, inquiry = await self._preparer.find(identity, chat, Switches(), now)
        prepared = await self._preparer.compile(
            identity, chat, place, target, now, profile=request.profile, price=request.price, inquiry=inquiry
        )
        compiled = prepared.compilation
        assert compiled is not None, "a compile that did not raise has a result"
        stored = orjson.loads(orjson.dumps(compiled.audit, default=str))
        texts = {str(each.id): each.text for each in compiled.considered}
        explained = expand(stored, texts)
        fill(explained, compiled.claimed)
        _tell_whose(explained, compiled.considered)
        return {
            "messages": [_writable(message) for message in read_json(prepared.body)["messages"]],
            "session_id": str(place.session_id) if not place.new else None,
            "memories": compiled.memories,
            **explained,
        }


def _tell_whose(explained: Mapping[str, Any], considered: Sequence[Candidate]) -> None:
    """Add the messages' own metadata to the provenance, as a search has it."""
    said = {
        (str(each.id), str(source.message_id)): source.metadata for each in considered for source in each.provenance
    }
    for item in explained["items"]:
        for source in item["provenance"]:
            source["metadata"] = dict(said.get((item["id"], source["message_id"]), {}))


def context_router(gate: Gate, previewer: Previewer) -> APIRouter:

    async def preview(scope: Admitted, body: ContextIn) -> dict[str, Any]:
        """Compile only: the messages that would go upstream, the budget, and each item that was considered."""
        if not body.messages and body.query is None:
            raise BadBody("Send `messages`, or a `query`.", param="messages")
        messages = list(body.messages)
        if body.query is not None:
            messages.append({"role": "user", "content": body.query})
        return await previewer.preview(
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

    router = gate.router("context")
    router.add_api_route("/context", preview, methods=["POST"], response_model=dict[str, Any])
    return router


def _writable(message: dict[str, Any]) -> dict[str, Any]:
    """A message that is nested too deep is sent, but not shown."""
    return {"role": message.get("role"), "content": "(nested too deep to be shown)"} if nested(message) else message


def routes(process: Process, settings: Settings, gate: Gate) -> Sequence[APIRouter]:
    path = process.path
    assert path is not None, "a server with routes has one"
    preparer = Preparer(path.turns, path.compiler, path.knower, path.cards)
    default_model = settings.default_model or STORED_COUNTS
    return (context_router(gate, Previewer(preparer, path.router, process.clock, default_model)),)
