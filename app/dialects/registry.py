"""Which requests get memory, and how they speak."""

from __future__ import annotations

from app.dialects.base import Dialect
from app.dialects.chat import CHAT
from app.dialects.messages import MESSAGES
from app.dialects.responses import RESPONSES

_DIALECTS: dict[tuple[str, str], Dialect] = {
    ("POST", "/v1/chat/completions"): CHAT,
    ("POST", "/v1/responses"): RESPONSES,
    ("POST", "/v1/messages"): MESSAGES,
}


def dialect_of(method: str, path: str) -> Dialect | None:
    """The dialect of a request; None: it passes through without memory."""
    return _DIALECTS.get((method, path))
