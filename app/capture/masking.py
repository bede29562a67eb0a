"""Keys do not go into captures: what is taken out of headers and paths before they are stored."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

# A header or parameter whose name says that it carries a key, whoever's gateway, cloud or SDK it belongs to. Limits on tokens
# do not, nor does an Idempotency-Key.
_SECRET_NAME = re.compile(r"auth|secret|password|credential|cookie|(?<!idempotency-)key$|token$", re.IGNORECASE)
_CHALLENGES = frozenset({"www-authenticate", "proxy-authenticate"})
MASK = "***"
KNOWN_NAMES = 1024
"""Names of headers and parameters whose verdict is remembered: clients use some twenty."""


def masked(headers: Sequence[tuple[bytes, bytes]]) -> list[list[str]]:
    """Headers as [[name, value], …], with the values of secret ones taken out."""
    shown = []
    for name, value in headers:
        text = name.decode("latin-1")
        shown.append([text, MASK if _is_secret(text) else value.decode("latin-1").replace("\0", "\ufffd")])
    return shown


def masked_path(path: str) -> str:
    """A path whose query has the values of secret parameters taken out: some servers take their key there."""
    before, mark, query = path.partition("?")
    shown = []
    for part in query.split("&"):
        name, sign, _ = part.partition("=")
        shown.append(f"{name}={MASK}" if sign and _is_secret(name) else part)
    return before + mark + "&".join(shown)


@lru_cache(maxsize=KNOWN_NAMES)
def _is_secret(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None and name.lower() not in _CHALLENGES
