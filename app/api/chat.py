"""POST /api/v1/chat: one turn, answered by a model, with all that memory had to do with it (seed 004)."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from datetime import timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

import orjson
from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import Field

from app.api.answered import (
    ChatOut,
    domain_queries,
    entities_resolved,
    first_choice,
    memories_created,
    retrieved,
)
from app.api.common import ErrorBody, Model, Name, Text, Word
from app.api.inside import Answered, Caller, Headers
from app.api.scope import Admitted, Gate
from app.clock import Clock
from app.context.asked import query_type, understand
from app.context.audit import expand
from app.context.explaining import fill
from app.context.zones import at_home
from app.errors import BadBody, StoreUnavailable, UpstreamError
from app.gateway.call import Call
from app.gateway.inbound import ClientGone
from app.gateway.turn import Application
from app.store.learned import Learned, Made, Said

log = logging.getLogger("mneme.chat")

MODEL_LIFE_S = 300.0
"""Seconds for which the upstream's first model is remembered: it may be restarted with another."""
MODELS_KEPT = 1000
"""Callers for whom it is."""
MAX_TOLD = 1000
"""Bytes of an error that is no JSON which are told again."""
LOOK_S, MOST_LOOK_S = 0.02, 0.25
"""Seconds between two looks whether a turn was learned from: at first as long as the rules take, then twice as long again."""
CLOCKS_APART = timedelta(minutes=1)
"""How far the database's messages may lie behind this server's clock."""

_SHOWN = (b"x-mneme-", b"x-ratelimit-", b"retry-after")
"""Headers of the call's answer that go with this one."""
_NAMED = (b"x-mneme-user", b"x-mneme-session")

Learning = Literal["done", "pending", "off"]


class ChatIn(Model):
    """One message of a user's. The conversation is Mneme's to keep: the session supplies what was said before."""

    message: Annotated[Text, Field(min_length=1)]
    user_id: Name | None = Field(None, description="Your own name of the user; also `user`, or X-Mneme-User.")
    user: Name | None = None
    session_id: Name | None = Field(
        None, description="Your own name of a session, or Mneme's id of it; unset: a new one."
    )
    model: Word | None = Field(None, description="Unset: MNEME_DEFAULT_MODEL, else the upstream's first.")
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    stream: bool = Field(False, description="Not here: the explanation comes with the whole answer.")
    metadata: dict[str, Any] | None = Field(None, description="Goes with the request, as on /v1/chat/completions.")
    wait: bool = Field(True, description="For what is learned from this turn, at most MNEME_CHAT_LEARN_WAIT_MS.")


def chat_router(
    gate: Gate, gateway: Application, learned: Learned, clock: Clock, *, default_model: str | None, learn_wait_ms: int
) -> APIRouter:
    """POST /api/v1/chat."""
    doors = _Doors(gateway, learned, clock, default_model, learn_wait_ms / 1000)
    router = gate.router("chat")
    router.add_api_route(
        "/chat",
        doors.chat,
        methods=["POST"],
        response_model=ChatOut,
        response_model_exclude_unset=True,
        responses={"5XX": {"model": ErrorBody, "description": "As the upstream, or Mneme, refused the call."}},
    )
    return router


class _Doors:
    def __init__(
        self, gateway: Application, learned: Learned, clock: Clock, default_model: str | None, wait_s: float
    ) -> None:
        self._gateway = gateway
        self._learned = learned
        self._clock = clock
        self._default_model = default_model
        self._wait_s = wait_s
        self._models: dict[tuple[UUID, bytes], tuple[str, float]] = {}

    async def chat(self, scope: Admitted, request: Request, response: Response, body: ChatIn, wait: bool = True) -> Any:
        """Answer a message, and say how: what of memory and of the business's own database was in the prompt, and what was
        learned. It is the call that /v1/chat/completions makes, under the same key, limits and switches."""
        began = time.perf_counter()
        if body.stream:
            raise BadBody(
                "This route answers in one piece; /v1/chat/completions streams, and /api/v1/calls/{id}/context explains it.",
                param="stream",
            )
        if body.user_id is not None and body.user is not None and body.user_id != body.user:
            raise BadBody("user_id and user name two users.", param="user_id")
        user = scope.user(*(each for each in (body.user_id, body.user) if each is not None))
        caller = Caller(request)
        headers = caller.headers(_NAMED if body.session_id is not None else _NAMED[:1])
        headers.append((b"x-mneme-user", _header(user.external, "user_id")))
        if body.session_id is not None:
            headers.append((b"x-mneme-session", _header(body.session_id, "session_id")))
        asked = await self._request(caller, headers, scope.tenant, body)
        answered = await caller.ask(self._gateway, "POST", "/v1/chat/completions", headers, orjson.dumps(asked))
        if not 200 <= answered.status < 300:
            return _refused(answered)
        took_ms = int((time.perf_counter() - began) * 1000)
        choice = first_choice(_json(answered.body)) if answered.whole else None
        if choice is None or answered.call is None:
            raise UpstreamError("The upstream's answer broke off, or is no chat completion.", code="upstream_answer")
        said, made, learning = await self._learned_from(caller, answered.call, waits=body.wait)
        for name, value in _shown(answered.headers):
            response.headers[name] = value
        created = memories_created(body.message, said, made)
        explained = _explained(answered.call, choice, created)
        return explained | {
            "metadata": {"retrieval_count": len(explained["augmentation"]["retrieved_memories"])}
            | _metadata(answered.call, body.message, choice[1] or asked["model"])
            | {"processing_time_ms": took_ms, "learning": learning, "extraction_count": len(created)}
        }

    async def _request(self, caller: Caller, headers: Headers, tenant: UUID, body: ChatIn) -> dict[str, Any]:
        """The chat request that this is."""
        model = body.model or self._default_model or await self._first_model(caller, headers, tenant)
        given = body.model_dump(include={"temperature", "max_tokens", "metadata"}, exclude_none=True)
        return {"model": model, "messages": [{"role": "user", "content": body.message}], **given}

    async def _first_model(self, caller: Caller, headers: Headers, tenant: UUID) -> str:
        """The upstream's first, as this caller may see it. Raises BadBody where it names none."""
        key = (tenant, dict(headers).get(b"authorization", b""))
        found, until = self._models.get(key, ("", 0.0))
        if time.monotonic() < until:
            return found
        unseen = [*headers, (b"x-mneme-capture", b"off")] if b"x-mneme-capture" not in dict(headers) else headers
        answered = await caller.ask(self._gateway, "GET", "/v1/models", unseen)
        listed = _json(answered.body) if answered.status == 200 else None
        entries = listed.get("data") if isinstance(listed, dict) else None
        first = entries[0] if isinstance(entries, list) and entries else None
        model = first.get("id") if isinstance(first, dict) else None
        if not isinstance(model, str) or not model:
            raise BadBody(
                "Say which model: MNEME_DEFAULT_MODEL is not set, and the upstream names none.", param="model"
            )
        if len(self._models) >= MODELS_KEPT:
            self._models.clear()
        self._models[key] = (model, time.monotonic() + MODEL_LIFE_S)
        return model

    async def _learned_from(
        self, caller: Caller, call: Call, *, waits: bool
    ) -> tuple[Said | None, Made | None, Learning]:
        """What the worker made of the turn, if it does so in time."""
        session, owner = call.session_id, call.identity
        if call.switches.memory != "on" or session is None or call.answered_before:
            return None, None, "off"
        until = time.monotonic() + (self._wait_s if waits else 0.0)
        pause = LOOK_S
        try:
            latest = self._clock.now() + CLOCKS_APART
            said = await self._learned.said(owner.tenant_id, owner.user_id, session, call.id, call.at, latest)
            while said is not None:
                if await self._learned.done(owner.tenant_id, owner.user_id, said):
                    return said, await self._learned.made(owner.tenant_id, owner.user_id, said, call.at), "done"
                if time.monotonic() + pause > until or caller.gone.is_set():
                    break
                with suppress(TimeoutError):
                    await asyncio.wait_for(caller.gone.wait(), pause)
                pause = min(2 * pause, MOST_LOOK_S)
        except StoreUnavailable:
            log.info("nobody can say what was learned", extra={"call_id": str(call.id)})
        return None, None, "pending"


def _explained(call: Call, choice: tuple[dict[str, Any], str], created: list[dict[str, Any]]) -> dict[str, Any]:
    """All but the metadata."""
    compiled = call.prepared.compilation if call.prepared is not None else None
    explained: dict[str, Any] = {}
    if compiled is not None:
        explained = expand(orjson.loads(orjson.dumps(compiled.audit, default=str)))
        fill(explained, compiled.claimed)
    return {
        "response": choice[0],
        "augmentation": {
            "retrieved_memories": retrieved(explained, compiled.considered if compiled is not None else ()),
            "domain_queries": domain_queries(explained),
        },
        "memories_created": created,
        "entities_resolved": entities_resolved(explained),
        "conflicts": explained.get("conflicts") or None,
    }


def _metadata(call: Call, message: str, model: str) -> dict[str, Any]:
    """What there is to say of the call itself."""
    compiled = call.prepared.compilation if call.prepared is not None else None
    told = compiled.audit.get("query") if compiled is not None else None
    if told is None:
        now = at_home(call.at, call.place.standing) if call.place is not None else call.at
        told = query_type(understand(message, now))._asdict()
    return {
        "llm_model": model,
        "query_type": told["strategy"],
        "call_id": call.id,
        "session_id": call.session_id,
        "status": call.status,
        "reason": call.reason,
    }


def _refused(answered: Answered) -> Response:
    """The error of the upstream or of the gateway, as it is; one that is none of OpenAI's in their shape. Raises ClientGone."""
    if not answered.status:
        raise ClientGone
    document = _json(answered.body)
    body = answered.body
    if not isinstance(document, dict) or not isinstance(document.get("error"), dict):
        told = body[:MAX_TOLD].decode(errors="replace") or f"The upstream answered {answered.status}."
        body = orjson.dumps(
            {"error": {"message": told, "type": UpstreamError.type, "param": None, "code": "upstream_answer"}}
        )
    status = answered.status if answered.status >= 400 else UpstreamError.status  # a redirect is no answer
    return Response(body, status, dict(_shown(answered.headers)), "application/json")


def _shown(headers: Headers) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers if name.startswith(_SHOWN)]


def _json(body: bytes) -> object:
    try:
        return orjson.loads(body)
    except ValueError:
        return None


def _header(name: str, param: str) -> bytes:
    """A name as a header has it. Raises BadBody where a header would make another of it."""
    if name != name.strip():
        raise BadBody("A name must not begin or end with white space.", param=param)
    return name.encode()
