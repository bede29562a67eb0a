"""The forms in which clients speak to models, and which requests get memory."""

from __future__ import annotations

from app.gateway.dialects.base import Dialect
from app.gateway.dialects.chat import CHAT
from app.gateway.dialects.sse import UpstreamAnswer, payloads
from app.optional import imported

_FEATURES = {"/v1/responses": "responses", "/v1/messages": "messages"}
"""Path → the feature that has its `DIALECT`."""
_OWN_APIS = ("/v1/messages",)
"""Paths of dialects whose API writes errors, or keys, in its own way; all paths of that API begin so."""


def dialect_of(method: str, path: str) -> Dialect | None:
    """The dialect of a request; None: it passes through without memory."""
    if method != "POST":
        return None
    return CHAT if path == "/v1/chat/completions" else _of_feature(path)


def api_of(path: str) -> Dialect:
    """The dialect of the API that a path belongs to, in whose way errors and keys are written there."""
    own = next((each for each in _OWN_APIS if path.startswith(each)), None)
    return (_of_feature(own) if own is not None else None) or CHAT


def _of_feature(path: str) -> Dialect | None:
    name = _FEATURES.get(path)
    module = imported(name) if name is not None else None
    found: Dialect | None = module.DIALECT if module is not None else None
    return found


def answer_of(body: bytes, dialect: Dialect) -> UpstreamAnswer:
    """The answer that a body holds, whether it came in one piece or as events."""
    return dialect.whole(body) or dialect.fold(payloads(body))
