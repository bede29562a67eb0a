"""A captured request asked again, and its answer compared with the captured one.

What comes back is neither a turn nor a capture: nobody said it, nothing is learned from it. It was paid for, so its cost is
counted like any other's.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from difflib import unified_diff
from itertools import islice
from typing import Any
from uuid import UUID

from msgspec import Struct

from app.clock import Clock
from app.dialects.registry import answer_of
from app.dialects.splice import with_value
from app.dialects.sse import UpstreamAnswer
from app.errors import UpstreamError
from app.features.replay.recompile import Recompiled
from app.features.replay.store import Cost, ReplayStore
from app.gateway.finalize import token_count
from app.gateway.forward import Outgoing, Sender
from app.gateway.headers import Headers, request_headers
from app.gateway.upstream import Target, UpstreamRequest
from app.providers.models import ModelRegistry
from app.providers.tokens import Tokenizers
from app.store.captures import Captures
from app.store.ids import uuid7

MOST_LINES = 400
"""Lines of a difference that are told."""
ERROR_CHARS = 1000
"""Of an upstream's error that are told."""


class ReplayedAnswer(Struct, frozen=True):
    """An answer and how it came. `status`: None where there was none; `error`: why it is not whole."""

    status: int | None
    answer: UpstreamAnswer | None
    latency_ms: int | None
    prompt: int | None = None
    completion: int | None = None
    cached: int | None = None
    error: str | None = None


class Replayer:
    """Sends what was compiled again upstream."""

    def __init__(
        self,
        sender: Sender,
        captures: Captures,
        replays: ReplayStore,
        models: ModelRegistry,
        tokenizers: Tokenizers,
        clock: Clock,
        *,
        max_bytes: int,
    ) -> None:
        """`max_bytes`: longest answer that is read."""
        self._sender = sender
        self._captures = captures
        self._replays = replays
        self._models = models
        self._tokenizers = tokenizers
        self._clock = clock
        self._max_bytes = max_bytes

    async def ask(self, tenant: UUID, again: Recompiled, headers: Headers, key: UUID | None) -> dict[str, Any]:
        """The captured answer and the one of now, compared. `headers`: of whoever asks for the replay: their Authorization goes
        upstream where Mneme has no key of its own for it, unless it is a Mneme key. An upstream that fails is a finding, no
        error. Raises StoreUnavailable."""
        call = again.call
        body = await self._captures.body(tenant, call.call_id, call.user_id)
        was = ReplayedAnswer(
            call.status,
            answer_of(body[0], again.chat.dialect) if body is not None else None,
            call.latency_ms,
            call.prompt_tokens,
            call.completion_tokens,
            call.cached_tokens,
            call.error,
        )
        replay, at = uuid7(self._clock.now()), self._clock.now()
        now, target = await self._heard(replay, again, headers)
        if now.status is not None and now.status < 300:
            cost = self._cost(again, now)
            await self._replays.note_spend(tenant, call.user_id, call.call_id, replay, key, at, cost)
        return {"upstream": target.name} | difference(was, now)

    async def _heard(self, replay: UUID, again: Recompiled, headers: Headers) -> tuple[ReplayedAnswer, Target]:
        given = [(b"content-type", b"application/json"), (b"accept", b"*/*")]
        given += [each for each in headers if each[0].lower() == b"authorization"]

        path = again.call.path.partition("?")[0].encode()

        def request(target: Target) -> UpstreamRequest:
            own = given if not target.stands_in else given[:2]
            body = again.body
            if target.model_alias != again.target.model_alias:
                body = with_value(body, "model", target.model_alias or again.chat.model)
            return UpstreamRequest("POST", target.url(path, b""), request_headers(own, api_key=target.api_key), body)

        outgoing = Outgoing(replay, again.target, again.chat.model or None, request, True)
        began = time.perf_counter_ns()
        parts: list[bytes] = []
        status, target, error = None, again.target, None
        try:
            target, response = await self._sender.send(outgoing)
            status, size = response.status, 0
            try:
                async for chunk in response.chunks:
                    parts.append(chunk)
                    size += len(chunk)
                    if size > self._max_bytes:
                        error = f"The answer is longer than {self._max_bytes} bytes; the rest was not read."
                        break
            finally:
                await response.aclose()
        except UpstreamError as failure:
            error = failure.message
        latency = (time.perf_counter_ns() - began) // 1_000_000
        body = b"".join(parts)
        if status is not None and status >= 300:
            return ReplayedAnswer(status, None, latency, error=body[:ERROR_CHARS].decode("utf-8", "replace")), target
        return self._counted(
            again, ReplayedAnswer(status, answer_of(body, again.chat.dialect) if body else None, latency, error=error)
        ), target

    def _counted(self, again: Recompiled, heard: ReplayedAnswer) -> ReplayedAnswer:
        """With its tokens: the upstream's own figures, else counted here."""
        answer = heard.answer
        if answer is None:
            return heard
        error = heard.error or (str(answer.error)[:ERROR_CHARS] if answer.error is not None else None)
        usage = answer.usage
        if usage is not None:
            details = usage.get("prompt_tokens_details")
            prompt, completion = token_count(usage.get("prompt_tokens")), token_count(usage.get("completion_tokens"))
            cached = token_count(details.get("cached_tokens")) if isinstance(details, Mapping) else None
        else:
            counter = self._tokenizers.for_model(answer.model or again.chat.model)
            prompt = again.compilation.audit["budget"]["client"] + again.compilation.tokens
            completion, cached = sum(counter.count(each.content or "") for each in answer.choices), None
        return ReplayedAnswer(heard.status, answer, heard.latency_ms, prompt, completion, cached, error)

    def _cost(self, again: Recompiled, heard: ReplayedAnswer) -> Cost:
        model = (heard.answer.model if heard.answer else None) or again.chat.model
        figures = (heard.prompt or 0, heard.completion or 0, heard.cached or 0)
        return Cost(
            again.chat.model.replace("\0", "\ufffd"),
            *figures,
            self._models.cost_microcents(model, *figures),
            self._models.price(model) is not None,
        )


def difference(was: ReplayedAnswer, now: ReplayedAnswer) -> dict[str, Any]:
    """Two answers compared: text (as a unified difference), tool calls, finish reasons, tokens, latency, status."""
    texts = _text(was.answer), _text(now.answer)
    calls = _calls(was.answer), _calls(now.answer)
    finishes = _finish(was.answer), _finish(now.answer)
    lines = unified_diff(texts[0].splitlines(), texts[1].splitlines(), "was", "now", lineterm="")
    same = was.status == now.status and texts[0] == texts[1] and calls[0] == calls[1] and finishes[0] == finishes[1]
    return {
        "identical": same and now.error is None,
        "text": {"was": texts[0], "now": texts[1], "difference": list(islice(lines, MOST_LINES))},
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
