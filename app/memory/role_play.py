"""Finds the messages with which the user begins and ends a role play; nothing is learned from the messages in between.

The words are data: `app/languages/role_play.txt` has more languages than have rules.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Literal

from app.memory.extract_clauses import masked
from app.text_cache import of_texts

FILE = Path(__file__).parents[1] / "languages" / "role_play.txt"
MAX_CHARS = 600
"""Characters at the beginning of a message that are searched: who begins or ends a play says so first."""
_MESSAGES_CACHED = 4
"""Messages whose answers are cached."""


@cache
def _read_patterns() -> dict[str, re.Pattern[str]]:
    lines = [line for line in FILE.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    named = [line.partition(": ") for line in lines]
    return {
        name: re.compile("|".join(pattern for sign, _, pattern in named if sign == name), re.IGNORECASE | re.MULTILINE)
        for name in ("begins", "ends")
    }


@of_texts(_MESSAGES_CACHED)
def is_play_start(message: str) -> bool:
    """Return whether the user's own words in a message begin a play in which the user, too, has a role."""
    if is_play_end(message) or not _has_sign(message, "begins"):
        return False
    return (
        _read_patterns()["begins"].search(masked(message)[:MAX_CHARS].replace("’", "'")) is not None
    )  # a pasted text begins none


@of_texts(_MESSAGES_CACHED)
def is_play_end(message: str) -> bool:
    """Return whether a message ends a play."""
    return _has_sign(message, "ends")


def _has_sign(message: str, name: Literal["begins", "ends"]) -> bool:
    return _read_patterns()[name].search(message[:MAX_CHARS].replace("’", "'")) is not None
