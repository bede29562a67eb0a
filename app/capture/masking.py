"""What does not go into captures: keys in headers and paths, and whatever the settings name, in headers and in JSON."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

from app.errors import BadRequest

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
        shown.append([text, MASK if is_secret(text) else value.decode("latin-1").replace("\0", "\ufffd")])
    return shown


def masked_path(path: str) -> str:
    """A path whose query has the values of secret parameters taken out: some servers take their key there."""
    before, mark, query = path.partition("?")
    shown = []
    for part in query.split("&"):
        name, sign, _ = part.partition("=")
        shown.append(f"{name}={MASK}" if sign and is_secret(name) else part)
    return before + mark + "&".join(shown)


def keyless(query: bytes) -> bytes:
    """A query without its secret parameters."""
    parts = query.split(b"&")
    return b"&".join(part for part in parts if not is_secret(part.partition(b"=")[0].decode("latin-1")))


@lru_cache(maxsize=KNOWN_NAMES)
def is_secret(name: str) -> bool:
    """Whether a header or parameter of that name carries a key."""
    return _SECRET_NAME.search(name) is not None and name.lower() not in _CHALLENGES


def without(headers: Sequence[tuple[bytes, bytes]], names: Collection[bytes]) -> Sequence[tuple[bytes, bytes]]:
    """Headers with the values of those called `names` (lower case) taken out."""
    if not names:
        return headers
    return [(name, MASK.encode() if name.lower() in names else value) for name, value in headers]


# --- JSON paths -------------------------------------------------------------------------------------------------------

Step = str | int | None
"""One step of a path: a member's name, an element's place, or None for all of them."""
Path = tuple[Step, ...]

_STEP = re.compile(
    r"""\.(?P<name>[^.\[\]*'"\s]+) | \.(?P<any>\*) | \[(?P<all>\*)\] | \[(?P<place>[0-9]{1,9})\]
    | \[(?P<quote>['"])(?P<quoted>[^'"]+)(?P=quote)\]""",
    re.VERBOSE,
)


def parse_path(text: str) -> Path:
    """A JSON path of RFC 9535, as far as it names values by where they stand: `$.a.b`, `$['a b']`, `$.a[0]`, `$.a[*].b`, `$.*`.

    Raises BadRequest for anything else.
    """
    steps: list[Step] = []
    at = 1
    while text[:1] == "$" and at < len(text):
        found = _STEP.match(text, at)
        if found is None:
            break
        name, place = found["name"] or found["quoted"], found["place"]
        steps.append(name if name is not None else int(place) if place is not None else None)
        at = found.end()
    if not steps or at != len(text):
        raise BadRequest(f"{text!r} is no JSON path like $.metadata.ssn or $.messages[*].content[*].image_url.url.")
    return tuple(steps)


def further(paths: Sequence[Path], key: str | int) -> list[Path]:
    """What is left of the paths behind a member or an element; an empty one: this value itself."""
    return [path[1:] for path in paths if path and (path[0] is None or (type(path[0]) is type(key) and path[0] == key))]


def redacted(value: Any, paths: Sequence[Path]) -> Any:
    """A JSON value without what the paths name; the same object, where they name nothing in it."""
    if () in paths:
        return MASK
    if not paths or not isinstance(value, Mapping | list):
        return value
    entries = value.items() if isinstance(value, Mapping) else enumerate(value)
    changed = {}
    for key, child in entries:
        if left := further(paths, key):
            masked_child = redacted(child, left)
            if masked_child is not child:
                changed[key] = masked_child
    if not changed:
        return value
    if isinstance(value, Mapping):
        return {**value, **changed}
    return [changed.get(n, child) for n, child in enumerate(value)]
