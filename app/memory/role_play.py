"""Tells where the user and the assistant begin to play roles, and where they stop; nothing said in between is of the user.

The words are data: `app/languages/role_play.txt`, of more languages than have rules.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from app.memory.extract_clauses import masked
from app.text_cache import of_texts

FILE = Path(__file__).parents[1] / "languages" / "role_play.txt"
MAX_CHARS = 600
"""Characters at the beginning of a message that are searched: who begins or ends a play says so first."""
_KEPT = 4
"""Messages of which it is kept whether they begin or end a play."""


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    lines = [line for line in FILE.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    named = [line.partition(": ") for line in lines]
    return {
        name: re.compile("|".join(pattern for sign, _, pattern in named if sign == name), re.IGNORECASE | re.MULTILINE)
        for name in ("begins", "ends")
    }


@of_texts(_KEPT)
def begins_play(message: str) -> bool:
    """Return whether the user's own words in a message begin a play in which the user, too, has a role."""
    pattern = _patterns()["begins"]
    if ends_play(message) or pattern.search(message[:MAX_CHARS].replace("’", "'")) is None:
        return False
    return pattern.search(masked(message)[:MAX_CHARS]) is not None  # a pasted text begins none


@of_texts(_KEPT)
def ends_play(message: str) -> bool:
    """Return whether a message ends a play."""
    return _patterns()["ends"].search(message[:MAX_CHARS].replace("’", "'")) is not None
