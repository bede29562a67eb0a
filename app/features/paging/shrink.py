"""The levels of a content without a language model (seed 002 §1.2): L1, L2 and the stub, by what it is made of. Pure,
deterministic."""

from __future__ import annotations

import re
from typing import NamedTuple

from app.features.paging import shrink_code, shrink_json, shrink_logs, shrink_prose, shrink_tables
from app.features.paging.keys import Family, base_key, defined, family_of
from app.features.paging.outline import Outline, clip, count_bounded, fitting, shorten, source_lines
from app.features.paging.values import ContentKind, Counter, Shrunk

L1_RATIO = 0.30
"""Tokens of L1, as a part of L0's (seed 002 §1.2: "~30% of original")."""
L2_RATIO = 0.05
"""The same of L2 ("~5% of original")."""
L1_FLOOR = 120
"""Tokens that L1 may have however short L0 is: below this there is nothing but a heading."""
L2_FLOOR = 64
"""The same of L2: a stub and its declared losses cost nearly as much."""
L1_CEILING = 6_000
"""Most tokens of L1: 30 % of a huge result would fill the window by themselves."""
L2_CEILING = 600
"""Most tokens of L2."""
STUB_TOKENS = 48
"""Most tokens of a stub."""
STUB_NAMES = 6
"""Names in a stub."""

LOOKED_AT_CHARS = 65_536
"""Characters by which a kind is told."""

_TEXTS = frozenset(["md", "txt", "rst", "adoc", "markdown", "org"])
_TABLES = frozenset(["csv", "tsv"])
_LOGS = frozenset(["log", "out", "err"])
_DIFFS = frozenset(["diff", "patch"])
_DIFF = re.compile(r"^(?:diff --git |@@ -\d|\*\*\* (?:Begin Patch|Update File))", re.MULTILINE)
_LOGGED = re.compile(
    r"\s*[\[(]?(?:\d{4}-\d\d-\d\d[T ]|\d\d:\d\d:\d\d|[A-Z][a-z]{2} [ \d]\d \d\d:|\d{1,3}(?:\.\d{1,3}){3} "
    r"|(?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL)\b|\d{10,13}\b)"
)
_CODED = re.compile(
    r"[;{}]\s*(?://.*)?$"
    r"|^\s*(?:@\w|import |from \S+ import|#include|return\b|if .*:$|for .*:$|const |let |var |fn |func |pub |SELECT |CREATE "
    r"|def \w|class \w|while .*:$|[\w.]+(?:: \w+)? [-+*/]?= )"
)
_PLACED = re.compile(r"\s*(?:[d-][rwx-]{9}\S*\s.*|[├└│─\s|`+-]*(?:[\w.@ -]*/)*[\w.@-]+(?:/|\.\w{1,8})?)\s*\Z")


class Shrunken(NamedTuple):
    """What `shrink` makes of a content. `fault_when`: of L2, whose reader lacks the most; L1's reasons are among them
    or fewer."""

    detailed: Shrunk
    compact: Shrunk
    fault_when: tuple[str, ...]


def kind_of(text: str, tool: str | None = None, key: str | None = None) -> ContentKind:
    """What a content is made of: by its file's ending where it is a file's, else by its lines, else by the tool."""
    family = family_of(tool) if tool else Family.OTHER
    ending = (
        _ending(key)
        if family in (Family.READ, Family.OTHER, Family.SHELL, Family.EDIT, Family.WRITE, Family.FETCH)
        else ""
    )
    seen = text[:LOOKED_AT_CHARS]
    if shrink_json.parse(text) is not None:
        return ContentKind.JSON
    if ending in _DIFFS or _DIFF.search(seen):
        return ContentKind.DIFF
    if ending in _TEXTS:
        return ContentKind.PROSE
    lines = [each for each in source_lines(seen)[0] if each.strip()][:400]
    if ending in _TABLES and shrink_tables.separator(lines):
        return ContentKind.TABLE
    if ending in _LOGS:
        return ContentKind.LOG
    if ending in shrink_code.LANGUAGES or ending in shrink_code.CONFIGS:
        return ContentKind.CODE
    return _by_lines(lines, family)


def _by_lines(lines: list[str], family: Family) -> ContentKind:
    if not lines:
        return ContentKind.PROSE

    def share(pattern: re.Pattern[str]) -> float:
        return sum(1 for each in lines if pattern.match(each[:400]) or pattern.search(each[:400])) / len(lines)

    if sum(1 for each in lines if _LOGGED.match(each)) / len(lines) >= 0.3:
        return ContentKind.LOG
    if family in (Family.LIST, Family.SEARCH) or _matching(lines) >= 0.6:
        return ContentKind.LISTING
    if len(lines) >= 3 and shrink_tables.separator(lines) and share(_CODED) < 0.3:
        return ContentKind.TABLE
    if share(_CODED) >= 0.25:
        return ContentKind.CODE
    if len(lines) >= 5 and sum(1 for each in lines if _PLACED.match(each[:200])) / len(lines) >= 0.7:
        return ContentKind.LISTING
    return ContentKind.LOG if family == Family.SHELL else ContentKind.PROSE


def _matching(lines: list[str]) -> float:
    return sum(1 for each in lines if shrink_tables.MATCH.match(each[:400])) / len(lines)


def language_of(key: str | None) -> str | None:
    """The language of a file, by its ending."""
    ending = _ending(key)
    return shrink_code.LANGUAGES.get(ending) or shrink_code.CONFIGS.get(ending)


def outline_of(text: str, kind: ContentKind, key: str | None = None) -> Outline:
    """The lines of a content by worth; what proves to be something else than it seemed is taken for prose."""
    made: Outline | None = None
    if kind == ContentKind.CODE:
        config = _ending(key) in shrink_code.CONFIGS
        made = shrink_code.config(text) if config else shrink_code.outline(text, language_of(key))
    elif kind == ContentKind.LOG:
        made = shrink_logs.outline(text)
    elif kind == ContentKind.JSON:
        made = shrink_json.outline(text)
    elif kind == ContentKind.TABLE:
        made = shrink_tables.table(text)
    elif kind == ContentKind.DIFF:
        made = shrink_tables.diff(text)
    elif kind == ContentKind.LISTING:
        made = shrink_tables.listing(text)
    return made if made is not None and made.lines else shrink_prose.outline(text)


def room_detailed(tokens: int) -> int:
    """Most tokens of L1 of a content of so many."""
    return min(tokens, max(L1_FLOOR, min(L1_CEILING, int(tokens * L1_RATIO))))


def room_compact(tokens: int) -> int:
    """Most tokens of L2 of a content of so many."""
    return min(tokens, max(L2_FLOOR, min(L2_CEILING, int(tokens * L2_RATIO))))


def shrink(text: str, kind: ContentKind, count: Counter, key: str | None = None, tokens: int | None = None) -> Shrunken:
    """L1 and L2 of a content of `tokens` tokens (counted when not given), each never larger than the level above.

    For jobs: some 10 ms per 10,000 tokens, most of it counting.
    """
    total = count_bounded(text, count) if tokens is None else tokens
    made = outline_of(text, kind, key)
    detailed, kept, _ = shorten(made, room_detailed(total), count)
    compact, _, ask = shorten(made, min(detailed.tokens, room_compact(total)), count, above=kept)
    return Shrunken(detailed, compact, ask)


def stub(text: str, kind: ContentKind, count: Counter, tool: str | None = None, key: str | None = None) -> str:
    """L3, one line: tool, key, size, and what it is. "Read src/auth.ts (200 lines, TypeScript: authMiddleware,
    verifyToken)"."""
    lines = text.count("\n") + (not text.endswith("\n")) if text else 0
    size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
    about = _about(text, kind, key)
    name = " ".join((tool or "Text").split())[:40]
    what = f"{name} {clip(key, 100)}" if key else name
    return fitting(" ".join(f"{what} ({size}, {about})".split()), STUB_TOKENS, count)


def _about(whole: str, kind: ContentKind, key: str | None) -> str:
    text = whole[:LOOKED_AT_CHARS]
    if kind == ContentKind.CODE:
        names = defined(text)[:STUB_NAMES]
        named = language_of(key) or "code"
        return f"{named}: {', '.join(names)}" if names else named
    if kind == ContentKind.PROSE:
        first = next((each.strip("# ").strip() for each in text.splitlines() if each.strip("# -=").strip()), "")
        return f"text: “{clip(first, 80)}”"
    if kind == ContentKind.LOG:
        # An output says at its end what came of it.
        lines, _ = source_lines(text if text == whole else f"{text}\n{whole[-LOOKED_AT_CHARS:]}")
        worst = next((each.strip() for each in lines if shrink_logs.bad(each)), None)
        last = next((each.strip() for each in reversed(lines) if each.strip()), "")
        return f"output, with errors: {clip(worst, 80)}" if worst else f"output, ends: {clip(last, 60)}"
    if kind == ContentKind.JSON:
        value = shrink_json.parse(text)
        if isinstance(value, list):
            return f"JSON, {len(value)} elements"
        fields = [str(each) for each in list(value)[:STUB_NAMES]] if isinstance(value, dict) else []
        return f"JSON: {clip(', '.join(fields), 80)}" if fields else "JSON"
    made = outline_of(text, kind)
    return clip(made.head[0], 100) if made.head else kind.value


def _ending(key: str | None) -> str:
    if not key:
        return ""
    name = base_key(key.partition("?")[0].partition("#")[0]).rpartition("/")[2]
    return name.rpartition(".")[2].lower() if "." in name and " " not in name else ""
