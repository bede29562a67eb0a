"""POST /api/v1/calls/{id}/replay: send a captured request upstream again, byte for byte, and compare the two answers.

A replay is neither a turn nor a capture: nothing is learned from it. Its cost is counted in the tenant's spend.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from difflib import unified_diff
from itertools import islice
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request
from msgspec import Struct
from pydantic import BaseModel, model_validator

from app.api.common import Model
from app.api.scope import Admitted, CallerScope, Gate, find_call
from app.capture.facts import rebuild
from app.clock import Clock
from app.errors import BadRequest, Conflict, Forbidden, MnemeError, NotFound, UpstreamError
from app.features.replay.store import ReplayCost, ReplayStore
from app.gateway.dialects import answer_of, dialect_of
from app.gateway.dialects.base import Dialect
from app.gateway.dialects.splice import with_value
from app.gateway.dialects.sse import UpstreamAnswer
from app.gateway.encodings import decode_body, find_codings
from app.gateway.finalize import token_count
from app.gateway.forward import Outgoing, Sender
from app.gateway.headers import Headers, request_headers
from app.gateway.upstream import Router, Target, UpstreamRequest
from app.providers.models import ModelRegistry
from app.providers.tokens import Tokenizers
from app.store.captures import CallDetail, Captures
from app.store.ids import uuid7

MAX_DIFFERENCE_LINES = 400
"""Lines of the texts' difference that an answer has: some 20 pages, more than anybody reads."""
MAX_ERROR_CHARS = 1000
"""Characters of an upstream's error that an answer has: its message, and not a page of HTML."""


class ReplayedAnswer(Struct, frozen=True):
    """An answer and how it came. `status`: None where there was none; `error`: why it is not whole."""

    status: int | None
    answer: UpstreamAnswer | None
    latency_ms: int | None
    prompt: int | None = None
    completion: int | None = None
    cached: int | None = None
    error: str | None = None


class StoredRequest(Struct, frozen=True):
    """A captured call with the body that went upstream (or came in, where nothing was sent)."""

    call: CallDetail
    dialect: Dialect
    body: bytes


class Replayer(Struct):
    """Sends stored requests again. `max_bytes`: longest answer that is read."""

    sender: Sender
    router: Router
    captures: Captures
    store: ReplayStore
    models: ModelRegistry
    tokenizers: Tokenizers
    clock: Clock
    max_bytes: int

    async def replay(
        self, tenant: UUID, call: UUID, user: UUID | None, headers: Headers, key: UUID | None
    ) -> dict[str, Any]:
        """Send a captured request again and return both answers, compared. A failing upstream is part of the result.

        Args:
            tenant: Whose call it is.
            call: The captured call.
            user: The only user whose calls may be replayed; None: any.
            headers: The caller's. Their Authorization goes upstream where Mneme has no key of its own for it, unless it is a
                Mneme key.
            key: The caller's key, to which the cost is counted.

        Raises:
            NotFound: There is no such call, or no upstream for its model.
            Conflict: The request cannot be sent again; `code` says why.
            StoreUnavailable: The database is away.
        """
        stored = await self._read_request(tenant, call, user)
        found = stored.call
        body = await self.captures.body(tenant, call, found.user_id)
        was = ReplayedAnswer(
            found.status,
            answer_of(body[0], stored.dialect) if body is not None else None,
            found.latency_ms,
            found.prompt_tokens,
            found.completion_tokens,
            found.cached_tokens,
            found.error,
        )
        replay, at = uuid7(self.clock.now()), self.clock.now()
        now, target = await self._send(replay, stored, headers)
        if now.status is not None and now.status < 300:
            cost = self._price(found, now)
            await self.store.record_spend(tenant, found.user_id, call, replay, key, at, cost)
        return {
            "call_id": call,
            "created_at": found.created_at,
            "model": found.model,
            "answer": {"upstream": target.name} | difference(was, now),
        }

    async def _read_request(self, tenant: UUID, call: UUID, user: UUID | None) -> StoredRequest:
        found = await self.captures.one(tenant, call, user)
        if found is None or found.leg_of is not None:
            raise NotFound("There is no such call, or the time of its capture is over (MNEME_CAPTURE_DAYS).")
        if found.metadata.get("captured") is False:
            raise Conflict("This call was not captured, so it cannot be sent again.", code="not_captured")
        if {"request", "sent"} & set(found.metadata.get("redacted", ())):
            raise Conflict(
                "Values of this request were not stored (MNEME_REDACT_PATHS), so it cannot be sent again.",
                code="capture_redacted",
            )
        dialect = dialect_of(found.method, found.path.partition("?")[0])
        if dialect is None:
            raise Conflict(
                f"Only chats can be sent again, and {found.method} {found.path.partition('?')[0]} is none.",
                code="not_a_chat",
            )
        parts = await self.captures.request(tenant, call, found.user_id, sent=True)
        if parts is None or parts.truncated or parts.sha256 is None:
            raise Conflict(
                "This request was longer than what is captured of one, so it cannot be sent again.",
                code="capture_truncated",
            )
        try:
            body = rebuild(parts.prefix, parts.elements, parts.suffix, parts.sha256)
        except ValueError as error:
            raise MnemeError(f"{error}.", code="capture_mismatch") from error
        return StoredRequest(found, dialect, body)

    async def _send(self, replay: UUID, stored: StoredRequest, headers: Headers) -> tuple[ReplayedAnswer, Target]:
        own_headers = [(b"content-type", b"application/json"), (b"accept", b"*/*")]
        caller_headers = [header for header in headers if header[0].lower() == b"authorization"]
        call, path = stored.call, stored.call.path.partition("?")[0].encode()
        model = call.model or None

        def build(target: Target) -> UpstreamRequest:
            client_headers = own_headers if target.stands_in else [*own_headers, *caller_headers]
            body = stored.body
            if target.name != call.upstream and model is not None:  # the body names the model as its own upstream does
                body = with_value(body, "model", target.model_alias or model)
            return UpstreamRequest(
                "POST", target.url(path, b""), request_headers(client_headers, api_key=target.api_key), body
            )

        target, codings = self.router.route(model), tuple[str, ...]()
        outgoing = Outgoing(replay, target, model, build, True)
        began = time.perf_counter_ns()
        pieces: list[bytes] = []
        status, error = None, None
        try:
            target, response = await self.sender.send(outgoing)
            status, size, codings = response.status, 0, find_codings(response.headers)
            try:
                async for chunk in response.chunks:
                    pieces.append(chunk)
                    size += len(chunk)
                    if size > self.max_bytes:
                        error = f"The answer is longer than {self.max_bytes} bytes; the rest was not read."
                        break
            finally:
                await response.aclose()
        except UpstreamError as failure:
            error = failure.message
        latency_ms = (time.perf_counter_ns() - began) // 1_000_000
        body = decode_body(b"".join(pieces), codings).body
        if status is not None and status >= 300:
            text = body[:MAX_ERROR_CHARS].decode("utf-8", "replace")
            return ReplayedAnswer(status, None, latency_ms, error=text), target
        answer = answer_of(body, stored.dialect) if body else None
        return self._count(call, ReplayedAnswer(status, answer, latency_ms, error=error)), target

    def _count(self, call: CallDetail, replayed: ReplayedAnswer) -> ReplayedAnswer:
        """Return the answer with its tokens: the upstream's own figures, else the call's prompt and counted texts."""
        answer = replayed.answer
        if answer is None:
            return replayed
        error = replayed.error or (str(answer.error)[:MAX_ERROR_CHARS] if answer.error is not None else None)
        usage = answer.usage
        if usage is not None:
            details = usage.get("prompt_tokens_details")
            prompt, completion = token_count(usage.get("prompt_tokens")), token_count(usage.get("completion_tokens"))
            cached = token_count(details.get("cached_tokens")) if isinstance(details, Mapping) else None
        else:
            counter = self.tokenizers.for_model(answer.model or call.model)
            prompt, cached = call.prompt_tokens, None
            completion = sum(counter.count(choice.content or "") for choice in answer.choices)
        return ReplayedAnswer(replayed.status, answer, replayed.latency_ms, prompt, completion, cached, error)

    def _price(self, call: CallDetail, replayed: ReplayedAnswer) -> ReplayCost:
        model = (replayed.answer.model if replayed.answer else None) or call.model
        tokens = (replayed.prompt or 0, replayed.completion or 0, replayed.cached or 0)
        microcents, priced = self.models.cost_microcents(model, *tokens), self.models.price(model) is not None
        return ReplayCost(call.model, *tokens, microcents, priced)


def difference(was: ReplayedAnswer, now: ReplayedAnswer) -> dict[str, Any]:
    """Two answers compared: text (as a unified difference), tool calls, finish reasons, tokens, latency, status."""
    texts = _text(was.answer), _text(now.answer)
    calls = _calls(was.answer), _calls(now.answer)
    finishes = _finish(was.answer), _finish(now.answer)
    lines = unified_diff(texts[0].splitlines(), texts[1].splitlines(), "was", "now", lineterm="")
    same = was.status == now.status and texts[0] == texts[1] and calls[0] == calls[1] and finishes[0] == finishes[1]
    return {
        "identical": same and now.error is None,
        "text": {"was": texts[0], "now": texts[1], "difference": list(islice(lines, MAX_DIFFERENCE_LINES))},
        "tool_calls": _both(*calls),
        "finish_reason": _both(*finishes),
        "prompt_tokens": _both(was.prompt, now.prompt),
        "completion_tokens": _both(was.completion, now.completion),
        "latency_ms": _both(was.latency_ms, now.latency_ms),
        "status": _both(was.status, now.status),
        "error": _both(was.error, now.error),
    }


def _both(was: object, now: object) -> dict[str, Any]:
    return {"was": was, "now": now}


def _text(answer: UpstreamAnswer | None) -> str:
    """What was said, of several choices one after the other."""
    if answer is None:
        return ""
    return "\n\n".join(each.content or each.refusal or "" for each in answer.choices)


def _calls(answer: UpstreamAnswer | None) -> list[dict[str, Any]]:
    """The tools that were called: names and arguments. Their ids are new each time."""
    found = []
    for choice in answer.choices if answer is not None else ():
        functions = [each.get("function") or each.get("custom") or {} for each in choice.tool_calls]
        functions += [choice.function_call] if choice.function_call else []
        found += [{"name": e.get("name"), "arguments": e.get("arguments", e.get("input"))} for e in functions]
    return found


def _finish(answer: UpstreamAnswer | None) -> list[str | None]:
    return [each.finish_reason for each in answer.choices] if answer is not None else []


# --- the route -----------------------------------------------------------------------------------------------------------


REMOVED_FIELDS = {
    "mode": "a replay sends the stored request as it is; leave `mode` out.",
    "send": "a replay always sends the request; leave `send` out.",
    "messages": "leave `messages` out, and read what is sent by GET /api/v1/calls/{id}/request?sent=true.",
}
"""Fields that a replay had when it compiled a call again, and what to do instead."""


class ReplayIn(Model):
    """The body of a replay, which has no fields."""

    @model_validator(mode="before")
    @classmethod
    def refuse_removed_fields(cls, body: object) -> object:
        """Raise BadRequest for a field that replays once had."""
        name = next((name for name in REMOVED_FIELDS if isinstance(body, Mapping) and name in body), None)
        if name is not None:
            raise BadRequest(f"`{name}` is no longer a field: {REMOVED_FIELDS[name]}", param=name, code="removed_field")
        return body


class ComparedAnswers(BaseModel, extra="allow"):
    """The captured answer (`was`) and the one of now, side by side. `upstream`: who answered now."""

    upstream: str
    identical: bool


class ReplayOut(BaseModel):
    """A replay. `answer.identical`: status, text, tool calls and finish reasons are the same."""

    call_id: UUID
    created_at: datetime
    model: str
    answer: ComparedAnswers


def replay_router(gate: Gate, replayer: Replayer) -> APIRouter:

    async def replay(scope: Admitted, request: Request, call_id: str, body: ReplayIn | None = None) -> dict[str, Any]:
        """Send a captured request upstream again, as it was, and compare the answers. It costs what the call cost. Nothing is
        captured or learned, and no memory counts as used."""
        check_may_send(scope)
        return await replayer.replay(
            scope.tenant, find_call(call_id), scope.owner(), list(request.headers.raw), scope.principal.key_id
        )

    router = gate.router("calls")
    router.add_api_route("/calls/{call_id}/replay", replay, methods=["POST"], response_model=ReplayOut)
    return router


def check_may_send(scope: CallerScope) -> None:
    """Raise Forbidden unless the caller's key may call models, without limits."""
    if not scope.principal.allows("proxy"):
        raise Forbidden("This key has no scope to call models.", code="missing_scope")
    if scope.principal.limits is not None and scope.principal.limits.limiting:
        raise Forbidden(
            "This key has limits, and a replay is admitted by none: send it with a key that has no limits.",
            code="limited_key",
        )
