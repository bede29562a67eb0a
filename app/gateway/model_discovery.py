"""Learns how large the context windows of an upstream's models are: vLLM says it in `/v1/models` (`max_model_len`)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from app.errors import MnemeError
from app.gateway.dialects.splice import parse_object
from app.gateway.encodings import decode_body, find_codings
from app.gateway.headers import Headers
from app.gateway.relay import collect
from app.gateway.upstream import Target, Transport, UpstreamRequest
from app.providers.models import ModelRegistry
from app.tasks import Supervisor

log = logging.getLogger("mneme.discovery")

AGAIN_S = 300.0
"""Seconds until an upstream is asked again: it may have been restarted with another model or window."""
LIST_LIMIT = 1024 * 1024
"""Bytes of a model list that are read; some hundred models are 100 kB."""
_SENT = frozenset({b"authorization", b"openai-organization", b"openai-project", b"accept-encoding"})


class ModelDiscovery:
    """Asks each upstream for its models when it is first used, beside the request, and then from time to time."""

    def __init__(self, transports: Mapping[bool, Transport], models: ModelRegistry, tasks: Supervisor) -> None:
        self._transports = transports
        self._models = models
        self._tasks = tasks
        self._asked: dict[str, float] = {}

    def notice(self, target: Target, headers: Callable[[], Headers]) -> None:
        """A request is going to `target`; `headers` tells those that it goes with, of which the credentials are used."""
        now = time.monotonic()
        if now < self._asked.get(target.name, 0.0):
            return
        self._asked[target.name] = now + AGAIN_S
        wanted = [(name, value) for name, value in headers() if name.lower() in _SENT]
        self._tasks.spawn(self.ask(target, wanted), f"models of {target.name}")

    async def ask(self, target: Target, headers: Headers) -> None:
        """Ask now. A failure is no harm: the table and the settings know windows too."""
        request = UpstreamRequest("GET", f"{target.base_url}/models", headers)
        try:
            response = await self._transports[target.simulated].send(request)
            body = await collect(response, LIST_LIMIT)
            listed = parse_object(decode_body(body, find_codings(response.headers)).body) or {}
        except MnemeError as error:
            log.info("model list not available", extra={"upstream": target.name, "error": error.message})
            return
        entries = listed.get("data")
        for entry in entries if isinstance(entries, list) else []:
            name, window = (entry.get("id"), entry.get("max_model_len")) if isinstance(entry, dict) else (None, None)
            if isinstance(name, str) and isinstance(window, int):
                self._models.learn(name, window)
