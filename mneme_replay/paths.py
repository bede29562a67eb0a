"""JSON paths that name values by where they stand, and what is left of a value when those are taken out. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

MASK = "***"
"""What stands where something was taken out."""

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

    Raises ValueError for anything else.
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
        raise ValueError(f"{text!r} is no JSON path like $.metadata.ssn or $.messages[*].content[*].image_url.url.")
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
