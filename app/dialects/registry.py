"""Which requests get memory, and how they speak."""

from __future__ import annotations

from functools import cache

from app.dialects.base import Dialect
from app.dialects.chat import CHAT
from app.dialects.messages import MESSAGES
from app.dialects.sse import UpstreamAnswer, payloads
from app.optional import imported

_DIALECTS: dict[tuple[str, str], Dialect] = {
    ("POST", "/v1/chat/completions"): CHAT,
    ("POST", "/v1/messages"): MESSAGES,
}


def dialect_of(method: str, path: str) -> Dialect | None:
    """The dialect of a request; None: it passes through without memory."""
    return _of_feature() if (method, path) == ("POST", "/v1/responses") else _DIALECTS.get((method, path))


@cache
def _of_feature() -> Dialect | None:
    """The dialect of /v1/responses; None: it is not there."""
    module = imported("responses.dialect")
    found: Dialect | None = module.RESPONSES if module is not None else None
    return found


def answer_of(body: bytes, dialect: Dialect) -> UpstreamAnswer:
    """The answer that a body holds, whether it came in one piece or as events."""
    return dialect.whole(body) or dialect.fold(payloads(body))
