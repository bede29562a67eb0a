"""POST /api/v1/calls/{id}/replay: a captured request compiled again, compared item by item with what was compiled then, and, on
request, asked again, its answer compared with the captured one.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from difflib import unified_diff
from itertools import islice
from typing import Any, Literal, get_args
from uuid import UUID

import orjson
from fastapi import APIRouter, Request
from msgspec import Struct
from pydantic import BaseModel, Field

from app.api.common import Model
from app.api.scope import Admitted, CallerScope, Gate, find_call
from app.clock import Clock
from app.context.audit import DIGITS, expand
from app.errors import Forbidden, UpstreamError
from app.features.replay.recompile import Cost, Mode, Recompiled, Recompiler, ReplayStore
from app.gateway.dialects import answer_of
from app.gateway.dialects.splice import with_value
from app.gateway.dialects.sse import UpstreamAnswer
from app.gateway.encodings import decode_body, find_codings
from app.gateway.finalize import token_count
from app.gateway.forward import Outgoing, Sender
from app.gateway.headers import Headers, request_headers
from app.gateway.upstream import Target, UpstreamRequest
from app.json_text import read_json
from app.providers.models import ModelRegistry
from app.providers.tokens import Tokenizers
from app.store.captures import Captures, text_of_item
from app.store.ids import uuid7

# --- two compiles compared: explanations as they are stored (`audit.explain`) in, one comparison out. Pure ---------------
Change = Literal["kept", "moved", "rescored", "new", "gone"]

TOLERANCE = 1.5 * 10**-DIGITS
"""Scores are stored rounded: a difference below that is none."""
NOT_FOUND = "not_found"
"""The reason of an item that one of the two compiles did not look at."""


def compare(before: Mapping[str, Any], after: Mapping[str, Any], fates: Mapping[str, str]) -> dict[str, Any]:
    """The difference of two compiles. `fates`: why items of `before` cannot be what they were (forgotten, not_in_force).

    Items are those that either has in its prompt, in the order of `after`, what is gone last; each with its place among the
    chosen (`rank`, from 1), score, signals and reason in both. `moved`: its place among those that both have is another.
    """
    one, two = _items(before), _items(after)
    ranks = _ranks(one), _ranks(two)
    chosen = [*ranks[1], *(each for each in ranks[0] if each not in ranks[1])]
    both = [[each for each in rank if each in ranks[0] and each in ranks[1]] for rank in ranks]
    places = [{each: n for n, each in enumerate(order)} for order in both]
    items = []
    for identity in chosen:
        was, now = one.get(identity), two.get(identity)
        known = now or was
        assert known is not None, "it is chosen in one of them"
        change = _change(identity, ranks, places, was, now)
        items.append(
            {name: known[name] for name in ("id", "source", "kind", "provenance")}
            | {
                "change": change,
                "was": _side(was, ranks[0].get(identity), NOT_FOUND),
                "now": _side(now, ranks[1].get(identity), fates.get(identity, NOT_FOUND)),
            }
        )
    counts = Counter(each["change"] for each in items)
    figures = ("tokens", "task", "strategy", "placement", "rebased", "live_blocks", "sections")
    return {
        "items": items,
        "changes": {name: counts[name] for name in get_args(Change)},
        "considered": {"was": _considered(before), "now": _considered(after)},
        "eta": {"was": before["eta"]["eta"], "now": after["eta"]["eta"]},
        "budget": {"was": dict(before["budget"]), "now": dict(after["budget"])},
        "history": {"was": dict(before["history"]), "now": dict(after["history"])},
    } | {name: {"was": before[name], "now": after[name]} for name in figures}


def _change(
    identity: str,
    ranks: tuple[Mapping[str, int], Mapping[str, int]],
    places: list[dict[str, int]],
    was: Mapping[str, Any] | None,
    now: Mapping[str, Any] | None,
) -> Change:
    if identity not in ranks[0]:
        return "new"
    if identity not in ranks[1]:
        return "gone"
    assert was is not None, "both have it"
    assert now is not None, "both have it"
    if places[0][identity] != places[1][identity]:
        return "moved"
    return "rescored" if abs(was["score"] - now["score"]) > TOLERANCE else "kept"


def _side(item: Mapping[str, Any] | None, rank: int | None, otherwise: str) -> dict[str, Any]:
    if item is None:
        return {"rank": None, "score": None, "reason": otherwise, "signals": {}}
    return {"rank": rank, "score": item["score"], "reason": item["reason"], "signals": item["signals"]}


def _items(audit: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["id"]: each for each in expand(audit)["items"]}


def _ranks(items: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """The chosen, by id, with their places from 1: they stand first, in the order in which they were packed."""
    return {each: n for n, each in enumerate((key for key, item in items.items() if item["chosen"]), 1)}


def _considered(audit: Mapping[str, Any]) -> int:
    return len(audit["items"]["id"]) + int(audit["omitted"])


# --- asked again ---------------------------------------------------------------------------------------------------------
#
# What comes back is neither a turn nor a capture: nobody said it, nothing is learned from it. It was paid for, so its cost is
# counted like any other's.

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


class Replayer(Struct):
    """`max_bytes`: longest answer that is read."""

    sender: Sender
    captures: Captures
    replays: ReplayStore
    models: ModelRegistry
    tokenizers: Tokenizers
    clock: Clock
    max_bytes: int

    async def ask(self, tenant: UUID, again: Recompiled, headers: Headers, key: UUID | None) -> dict[str, Any]:
        """The captured answer and the one of now, compared. `headers`: of whoever asks for the replay: their Authorization goes
        upstream where Mneme has no key of its own for it, unless it is a Mneme key. An upstream that fails is a finding, no
        error. Raises StoreUnavailable."""
        call = again.call
        body = await self.captures.body(tenant, call.call_id, call.user_id)
        was = ReplayedAnswer(
            call.status,
            answer_of(body[0], again.chat.dialect) if body is not None else None,
            call.latency_ms,
            call.prompt_tokens,
            call.completion_tokens,
            call.cached_tokens,
            call.error,
        )
        replay, at = uuid7(self.clock.now()), self.clock.now()
        now, target = await self._heard(replay, again, headers)
        if now.status is not None and now.status < 300:
            cost = self._cost(again, now)
            await self.replays.note_spend(tenant, call.user_id, call.call_id, replay, key, at, cost)
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
        codings: tuple[str, ...] = ()
        try:
            target, response = await self.sender.send(outgoing)
            status, size, codings = response.status, 0, find_codings(response.headers)
            try:
                async for chunk in response.chunks:
                    parts.append(chunk)
                    size += len(chunk)
                    if size > self.max_bytes:
                        error = f"The answer is longer than {self.max_bytes} bytes; the rest was not read."
                        break
            finally:
                await response.aclose()
        except UpstreamError as failure:
            error = failure.message
        latency = (time.perf_counter_ns() - began) // 1_000_000
        body = decode_body(b"".join(parts), codings).body
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
            counter = self.tokenizers.for_model(answer.model or again.chat.model)
            prompt = again.compilation.audit["budget"]["client"] + again.compilation.tokens
            completion, cached = sum(counter.count(each.content or "") for each in answer.choices), None
        return ReplayedAnswer(heard.status, answer, heard.latency_ms, prompt, completion, cached, error)

    def _cost(self, again: Recompiled, heard: ReplayedAnswer) -> Cost:
        model = (heard.answer.model if heard.answer else None) or again.chat.model
        figures = (heard.prompt or 0, heard.completion or 0, heard.cached or 0)
        return Cost(
            again.chat.model.replace("\0", "\ufffd"),
            *figures,
            self.models.cost_microcents(model, *figures),
            self.models.price(model) is not None,
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


# --- the route -----------------------------------------------------------------------------------------------------------


class ReplayIn(Model):
    """How to replay. `as_of`: the present code with the inputs of then; `today`: with today's memory and settings, too."""

    mode: Mode = "today"
    send: bool = Field(False, description="Send it upstream, and compare the answers. It costs what a call costs.")
    messages: bool = Field(
        False, description="Show the messages that would go upstream, in the shape of chat completions."
    )


class Side(BaseModel):
    """One of the two compiles about an item. `rank`: its place among the chosen; null: it is not in the prompt."""

    rank: int | None
    score: float | None
    reason: str
    signals: dict[str, float]


class ReplayItem(BaseModel, extra="allow"):
    """An item that is, or was, in the prompt. `text` is null where it was forgotten or erased since."""

    id: UUID
    source: str
    kind: str
    text: str | None
    change: Change
    was: Side
    now: Side


class ReplayOut(BaseModel, extra="allow"):
    """A replay. `identical`: what would go upstream is to the byte what went then."""

    call_id: UUID
    mode: Mode
    identical: bool
    sha256: dict[str, str | None]
    changes: dict[str, int]
    items: list[ReplayItem]
    notes: list[str]


def replay_router(gate: Gate, captures: Captures, recompiler: Recompiler, caller: Replayer) -> APIRouter:

    async def replay(scope: Admitted, request: Request, call_id: str, body: ReplayIn | None = None) -> dict[str, Any]:
        """Compile a captured request again and compare it with what was compiled then, item by item; with `send`, ask the
        upstream again as well. Nothing of it is recorded as a turn, captured, learned from, or counted as a use of a memory."""
        wanted = body or ReplayIn()
        if wanted.send:
            _may_send(scope)
        named = scope.named()
        again = await recompiler.run(
            scope.tenant, find_call(call_id), named.id if named is not None else None, wanted.mode
        )
        # Ids as text, as what is stored has them.
        after = orjson.loads(orjson.dumps(again.compilation.audit, default=str))
        told = compare(again.before, after, again.fates)
        said, known = (
            [UUID(each["id"]) for each in told["items"] if each["source"] == source] for source in ("message", "memory")
        )
        shown = await captures.shown(scope.tenant, again.call.user_id, messages=said, memories=known)
        for each in told["items"]:
            each["text"] = text_of_item(each, shown.get(UUID(each["id"])))
        told |= {
            "call_id": again.call.call_id,
            "mode": again.mode,
            "created_at": again.call.created_at,
            "model": again.call.model,
            "identical": again.identical,
            "sha256": {"was": again.was, "now": again.now},
            "version": {"was": again.mneme, "now": again.compilation.inputs["mneme"]},
            "notes": list(again.notes),
        }
        if wanted.messages:
            told["messages"] = again.chat.dialect.messages(read_json(again.body)) or []
        if wanted.send:
            told["answer"] = await caller.ask(scope.tenant, again, list(request.headers.raw), scope.principal.key_id)
        return told

    router = gate.router("calls")
    router.add_api_route("/calls/{call_id}/replay", replay, methods=["POST"], response_model=ReplayOut)
    return router


def _may_send(scope: CallerScope) -> None:
    if not scope.principal.allows("proxy"):
        raise Forbidden("This key has no scope to call models.", code="missing_scope")
    if scope.principal.limits is not None and scope.principal.limits.limiting:
        raise Forbidden(
            "This key has limits, and a replay is admitted by none: send it with a key that has no limits.",
            code="limited_key",
        )
