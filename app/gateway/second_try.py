"""What an upstream refuses may be what Mneme has added to a request: then it is asked once more, without."""

from __future__ import annotations

import logging

from msgspec.structs import replace

from app.gateway.augment import Recaller
from app.gateway.call import Forwarded, Remembered, aliased, grown
from app.gateway.finalize import Finalizer
from app.gateway.forward import ERROR_LIMIT, Forwarder
from app.gateway.prepare import unwoven
from app.gateway.relay import peek
from app.metrics import AttemptResult, Metrics
from app.paging.body import without_tools
from app.paging.state import Paging
from app.paging.tools import Names, Offer, offer

log = logging.getLogger("mneme.turn")

LENGTH_STATUSES = frozenset({400, 413, 422})
"""With these an upstream refuses a prompt that is too long."""
LENGTH_WORDS = (
    b"context_length",
    b"context length",
    b"maximum context",
    b"max_model_len",
    b"too long",
    b"too many tokens",
)
TOOL_STATUSES = frozenset({400, 404, 422, 500, 501})
"""With these upstreams say that they, or the model, take no tools: vLLM and Ollama with 400, OpenRouter 404, llama.cpp 500."""
TOOL_WORDS = (b"tool", b"function call")


class SecondTry:
    """Asks once more."""

    def __init__(self, forwarder: Forwarder, finalizer: Finalizer, recaller: Recaller, metrics: Metrics) -> None:
        self._forwarder = forwarder
        self._finalizer = finalizer
        self._recaller = recaller
        self._metrics = metrics

    async def unless_refused(self, call: Forwarded) -> Forwarded:
        """The answer; where it refuses what Mneme added, the answer to the request without it. Raises UpstreamError,
        ClientGone."""
        paging = call.paging
        if paging is not None and paging.names is not None and _status(call) in TOOL_STATUSES:
            call = await self._unless_no_tools(call, paging, paging.names)
        injected = call.prepared is not None and call.sent != plain(call)
        if injected and (_status(call) in LENGTH_STATUSES or _status(call) == 200):
            call = await self._unless_too_long(call)
        return call

    async def _unless_too_long(self, call: Forwarded) -> Forwarded:
        """The answer; where it refuses the prompt for its length, the answer to the request as the client wrote it."""
        refused = _status(call) != 200
        # Some servers answer an over-long prompt with an empty 200; of a real answer the first byte is enough to know.
        seen, call = await self._peek(call, ERROR_LIMIT if refused else 1)
        if not (is_about_length(seen) if refused else not seen):
            return call
        await self._dismiss(call, "too_long")
        return await self._again(self._recaller.forgone(replace(call, sent=plain(call), prepared=None)))

    async def _unless_no_tools(self, call: Forwarded, paging: Paging, names: Names) -> Forwarded:
        """The answer; where the upstream takes no tools, the answer to the request without ours."""
        seen, call = await self._peek(call, ERROR_LIMIT)
        if not is_about_tools(seen):
            return call
        await self._dismiss(call, "no_tools")
        self._metrics.degraded("no-tools")
        log.warning("answering without look-ups", extra={"call_id": str(call.id), "reason": "no-tools"})
        made = offer(call.chat) if call.chat is not None else None
        ours = made.insertions if isinstance(made, Offer) else ()
        paging.insertions = [each for each in paging.insertions if each not in ours]
        paging.names, paging.declined = None, "refused"
        paging.explained = {**paging.explained, "tools": None, "declined": paging.declined}
        prepared = call.prepared
        if prepared is not None:
            compiled = prepared.compilation
            told = replace(compiled, audit={**compiled.audit, "paging": paging.explained})
            prepared = replace(prepared, compilation=told)
        paging.record = replace(paging.record, offered=paging.state.offered)
        sent = without_tools(call.sent, names)
        return await self._again(replace(call, status="degraded", reason="no-tools", prepared=prepared, sent=sent))

    async def _peek(self, call: Forwarded, limit: int) -> tuple[bytes, Forwarded]:
        """The beginning of the answer, and the call with all of it."""
        response = call.response
        assert response is not None, "it was answered"
        async with self._forwarder.waiting(call, response):
            seen, response = await peek(response, limit)
        return seen, replace(call, response=response)

    async def _dismiss(self, call: Forwarded, why: AttemptResult) -> None:
        assert call.response is not None, "it was answered"
        await call.response.aclose()
        self._forwarder.refused(call, call.response.status, why)

    async def _again(self, call: Remembered) -> Forwarded:
        self._finalizer.begin(call)
        return await self._forwarder.send(grown(Remembered, call), call.sent)


def _status(call: Forwarded) -> int | None:
    return call.response.status if call.response is not None else None


def plain(call: Remembered) -> bytes:
    """What goes out without memory. Where something of it is shown shorter that stays: whole it would be longer still."""
    if call.paging is None or call.chat is None:
        return aliased(call)
    return unwoven(call.chat, call.target.model_alias, call.paging.insertions)


def is_about_length(refusal: bytes) -> bool:
    """Whether the beginning of an upstream's error says that the prompt is too long."""
    words = refusal.lower()
    return any(each in words for each in LENGTH_WORDS)


def is_about_tools(refusal: bytes) -> bool:
    """Whether the beginning of an upstream's error speaks of tools."""
    words = refusal.lower()
    return any(each in words for each in TOOL_WORDS) and not is_about_length(refusal)
