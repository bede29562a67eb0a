"""Which requests get memory, and how they speak."""

from __future__ import annotations

from app.dialects.base import Dialect
from app.dialects.chat import CHAT
from app.dialects.sse import UpstreamAnswer, payloads
from app.optional import imported


def dialect_of(method: str, path: str) -> Dialect | None:
    """The dialect of a request; None: it passes through without memory."""
    if method != "POST":
        return None
    return CHAT if path == "/v1/chat/completions" else _of_feature(path)


def api_of(path: str) -> Dialect:
    """The dialect of the API that a path belongs to, in whose way errors and keys are written there."""
    return (_of_feature("/v1/messages") if path.startswith("/v1/messages") else None) or CHAT


def _of_feature(path: str) -> Dialect | None:
    module = None
    if path == "/v1/responses":
        module = imported("responses.dialect")
    elif path == "/v1/messages":
        module = imported("messages.dialect")
    found: Dialect | None = module.DIALECT if module is not None else None
    return found


def answer_of(body: bytes, dialect: Dialect) -> UpstreamAnswer:
    """The answer that a body holds, whether it came in one piece or as events."""
    return dialect.whole(body) or dialect.fold(payloads(body))
