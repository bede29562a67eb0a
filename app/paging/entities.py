"""The key entities of a content (seed 002 §1.2): file paths, URLs, names of functions and classes, errors. Pure, linear."""

from __future__ import annotations

import re

from app.paging import keys

LOOKED_AT_CHARS = 65_536
"""Characters of a content that are looked at (some 16,000 tokens)."""
MOST = 24
"""Entities kept of one content."""
MIN_NAME = 5
"""Letters of a name that tells one thing from another (`run`, `data` do not)."""
NAME_CHARS = 120
"""Longest entity, characters."""

DEFINED = re.compile(
    r"^[ \t]{0,32}(?:\d{1,6}[→\t|:][ \t]{0,32})?"
    r"(?:export |default |public |private |protected |static |async |pub |final |abstract |override ){0,5}"
    r"(?:def|class|func|fn|function|interface|struct|enum|trait|impl|type|module|object)\*? {1,4}(?:\([^)\n]{0,80}\) ?)?"
    r"([A-Za-z_$][\w$]{1,80})",
    re.MULTILINE,
)
"""Where common languages give a name to a function or a class; the name is the first group."""
_ERROR = re.compile(
    r"\b(?:[A-Z][A-Za-z]{2,60}(?:Error|Exception|Warning|Failure)|[A-Z][A-Z0-9]{1,20}(?:_[A-Z0-9]{1,20}){1,5}|E\d{3,5})\b"
)
_NAME = re.compile(
    r"\b(?:[a-z]{2,30}(?:[A-Z][a-z0-9]{1,30}){1,4}|[A-Z][a-z]{1,30}(?:[A-Z][a-z0-9]{1,30}){1,4}|[a-z]{2,30}(?:_[a-z0-9]{1,30}){1,5})\b"
)


def entities(text: str, key: str | None = None) -> tuple[str, ...]:
    """At most `MOST` of them, each once: the key, what is defined, errors, files and URLs, other names; as they are written."""
    seen = text[:LOOKED_AT_CHARS]
    found: dict[str, None] = {}
    if key:
        found[keys.base_key(key)] = None
    for name in defined(seen):
        found.setdefault(name)
    for name in _ERROR.findall(seen)[:MOST]:
        found.setdefault(name)
    for name in (keys.urls(seen) + keys.paths(seen))[: MOST * 4]:
        found.setdefault(name)
    if len(found) < MOST:
        for name in _NAME.findall(seen)[: MOST * 4]:
            if len(name) >= MIN_NAME:
                found.setdefault(name)
    return tuple(each for each in found if MIN_NAME <= len(each) <= NAME_CHARS)[:MOST]


def defined(text: str) -> list[str]:
    """Names that a content gives to functions and classes, in order, each once."""
    return list(dict.fromkeys(each for each in DEFINED.findall(text[:LOOKED_AT_CHARS]) if len(each) > 1))
