"""What an upstream refuses may be what Mneme has added to a request: then it is asked once more, without."""

from __future__ import annotations

import logging

from msgspec.structs import replace

from app.dialects.base import renamed
from app.dialects.splice import splice, with_value
from app.errors import Unavailable
from app.gateway.augment import Recaller
from app.gateway.call import Call
from app.gateway.finalize import Finalizer
from app.gateway.forward import ERROR_LIMIT, Forwarder
from app.gateway.prepare import unwoven
from app.gateway.relay import peek
from app.gateway.upstream import UpstreamResponse
from app.metrics import Metrics
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

    async def unless_refused(self, call: Call, response: UpstreamResponse) -> UpstreamResponse:
        """The answer; where it refuses what Mneme added, the answer to the request without it. Raises UpstreamError,
        ClientGone."""
        paging = call.paging
        if paging is not None and paging.names is not None and response.status in TOOL_STATUSES:
            response = await self._unless_no_tools(call, paging, paging.names, response)
        injected = call.prepared is not None and call.sent != plain(call)
        if injected and (response.status in LENGTH_STATUSES or response.status == 200):
            response = await self._unless_too_long(call, response)
        return response

    async def _unless_too_long(self, call: Call, response: UpstreamResponse) -> UpstreamResponse:
        """The answer; where it refuses the prompt for its length, the answer to the request as the client wrote it."""
        refused = response.status != 200
        async with self._forwarder.waiting(call, response):
            # Some servers answer an over-long prompt with an empty 200; of a real answer the first byte is enough to know.
            seen, response = await peek(response, ERROR_LIMIT if refused else 1)
        if is_about_length(seen) if refused else not seen:
            await response.aclose()
            self._forwarder.refused(call, response.status, "too_long")
            return await self._as_written(call)
        return response

    async def _as_written(self, call: Call) -> UpstreamResponse:
        """Once more, as the client wrote it: what was refused may be refused for what Mneme added."""
        self._recaller.degrade(
            call, "too-long", Unavailable("The upstream refused the compiled prompt for its length.")
        )
        call.sent = plain(call)
        call.prepared = None
        self._finalizer.begin(call)
        return await self._forwarder.send(call, call.sent)

    async def _unless_no_tools(
        self, call: Call, paging: Paging, names: Names, response: UpstreamResponse
    ) -> UpstreamResponse:
        """The answer; where the upstream takes no tools, the answer to the request without ours."""
        async with self._forwarder.waiting(call, response):
            seen, response = await peek(response, ERROR_LIMIT)
        if not is_about_tools(seen):
            return response
        await response.aclose()
        self._forwarder.refused(call, response.status, "no_tools")
        call.status, call.reason = "degraded", "no-tools"
        self._metrics.degraded("no-tools")
        log.warning("answering without look-ups", extra={"call_id": str(call.id), "reason": "no-tools"})
        made = offer(call.chat) if call.chat is not None else None
        ours = made.insertions if isinstance(made, Offer) else ()
        paging.insertions = [each for each in paging.insertions if each not in ours]
        paging.names, paging.declined = None, "refused"
        paging.explained = {**paging.explained, "tools": None, "declined": paging.declined}
        if call.prepared is not None:
            compiled = call.prepared.compilation
            told = replace(compiled, audit={**compiled.audit, "paging": paging.explained})
            call.prepared = replace(call.prepared, compilation=told)
        paging.record = replace(paging.record, offered=paging.state.offered)
        call.sent = without_tools(call.sent, names)
        self._finalizer.begin(call)
        return await self._forwarder.send(call, call.sent)


def aliased(call: Call) -> bytes:
    """The client's body; with the upstream's own name for the model, where the settings give it another."""
    assert call.body is not None
    if call.target.model_alias is None:
        return call.body
    if call.chat is None:
        return with_value(call.body, "model", call.target.model_alias)
    return splice(call.body, renamed(call.chat, call.target.model_alias))


def plain(call: Call) -> bytes:
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
