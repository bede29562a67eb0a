"""Labels of calls: names by which sets of them are found again, given by a header or afterwards. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from app.capture.masking import MASK

LABEL_HEADER = b"x-mneme-label"
"""The header by which an application labels a call as it makes it; commas stand between several."""
MAX_LABELS = 32
"""Labels of one call: each names a set of calls, and nobody looks through more."""
MAX_LABEL_CHARS = 256
"""As of any word that is looked for."""

_NOT_SHOWN = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def is_label(text: str) -> bool:
    """1 to 256 characters without control characters, with no white space around them."""
    return 0 < len(text) <= MAX_LABEL_CHARS and text == text.strip() and _NOT_SHOWN.search(text) is None


def labels_of(headers: Sequence[tuple[bytes, bytes]]) -> tuple[str, ...]:
    """The labels that a request's headers give it, sorted, each once.

    What is no label is left out, and so is what comes after the 32nd: no reason to refuse a call, whose captured headers still
    show it. So is a value that is not to be stored.
    """
    found: dict[str, None] = {}
    for name, value in headers:
        if len(name) == len(LABEL_HEADER) and name.lower() == LABEL_HEADER and value != MASK.encode():
            found |= dict.fromkeys(each for part in _text(value).split(",") if is_label(each := part.strip()))
    return settled(list(found)[:MAX_LABELS]) if found else ()


def settled(labels: Iterable[str]) -> tuple[str, ...]:
    """As they are kept: sorted, each once."""
    return tuple(sorted(set(labels)))


def _text(value: bytes) -> str:
    """Its bytes as UTF-8, or, where they are not, as ISO 8859-1, as of all headers of Mneme's own."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
