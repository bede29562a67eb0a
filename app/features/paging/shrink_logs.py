"""Logs and command output: errors and warnings, the first and the last lines, one of each kind of line, and counts. Pure."""

from __future__ import annotations

import re
from collections import Counter

from app.features.paging.outline import Group, Outline, OutlineLine, beyond, source_lines

GROUPS = (
    Group("how it ended", "{n} of the last lines", ""),
    Group(
        "which errors there are, one of each kind", "{n} of {of} kinds of errors", "you need an error that is not shown"
    ),
    Group(
        "what stands around each error",
        "{n} of {of} lines around errors",
        "you need the lines around an error, or a whole traceback",
    ),
    Group(
        "which warnings there are, one of each kind",
        "{n} of {of} kinds of warnings",
        "you need a warning that is not shown",
    ),
    Group("how it began", "{n} of the first lines", ""),
    Group("one line of each kind", "{n} of {of} kinds of lines", "you need a line of a kind that is not shown"),
    Group("", "{n} of {of} lines that repeat a kind", "you need every line, their times or their exact values"),
)
LAST, ERROR, AROUND, WARNING, FIRST, KIND, REST = range(len(GROUPS))

ENDS = 3
"""Lines that are the beginning and the end of a log."""
CONTEXT = 2
"""Lines on each side of an error that belong to it."""

ERRORS = re.compile(
    r"(?<![A-Za-z0-9=/-])(?:error|err|fatal|critical|panic|exception|failed|failure|fail"
    r"|traceback|segfault|denied|refused|timed? ?out|abort(?:ed)?|killed|oom)(?![A-Za-z-])"
    r"|\b[A-Z]\w{2,60}(?:Error|Exception)\b|npm ERR!|\bE\d{4}\b|[✗✘×]",
    re.IGNORECASE,
)
"""A line that tells of an error."""
WARNINGS = re.compile(r"\bwarn(?:ing)?s?\b|\bdeprecat", re.IGNORECASE)
_NONE = re.compile(r"\b(?:0|no) (?:errors?|failures?|failed|warnings?)\b", re.IGNORECASE)
_LEVEL = re.compile(r"\b(TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|FATAL|CRITICAL)\b", re.IGNORECASE)
_VARIABLE = re.compile(r"0x[0-9a-f]+|[0-9a-f]{8,}|\d+(?:[.:,T/-]\d+)*|\"[^\"]{0,200}\"|'[^']{0,200}'", re.IGNORECASE)
_TEMPLATE_CHARS = 200
"""Characters of a line by which its kind is known."""


def outline(text: str) -> Outline:
    lines, first = source_lines(text)
    kinds = [template(each) for each in lines]
    often = Counter(kinds)
    groups = [REST] * len(lines)
    errors = [bad(each) for each in lines]
    seen: set[str] = set()
    for i, line in enumerate(lines):
        if kinds[i] not in seen:
            seen.add(kinds[i])
            groups[i] = ERROR if errors[i] else WARNING if WARNINGS.search(line[:400]) else KIND
    for i in [i for i, group in enumerate(groups) if group == ERROR]:
        for near in range(max(0, i - CONTEXT), min(len(lines), i + CONTEXT + 1)):
            if groups[near] > AROUND:
                groups[near] = AROUND
    real = [i for i, line in enumerate(lines) if line.strip()]
    for i in real[:ENDS]:
        groups[i] = min(groups[i], FIRST)
    for i in real[-ENDS:]:
        groups[i] = LAST
    # Of an error or a kind the rarest come first: what happened once is news.
    made = [OutlineLine(lines[i].rstrip(), groups[i], first + i, -float(often[kinds[i]])) for i in real]
    return Outline((_counts(lines, errors, often, len(real)),), GROUPS, made, beyond(text))


def template(line: str) -> str:
    """A line without what varies from one to the next of its kind: numbers, times, ids, quoted words."""
    return _VARIABLE.sub("#", line[:_TEMPLATE_CHARS]).strip()


def bad(line: str) -> bool:
    """Whether a line tells of an error ("0 errors" does not)."""
    seen = line[:400]
    return ERRORS.search(seen) is not None and (
        _NONE.search(seen) is None or ERRORS.search(_NONE.sub("", seen)) is not None
    )


def _counts(lines: list[str], errors: list[bool], often: Counter[str], total: int) -> str:
    levels = Counter(
        match[1].upper().replace("WARNING", "WARN")
        for each in lines
        if (match := _LEVEL.search(each[:_TEMPLATE_CHARS]))
    )
    told = [f"{total} lines of {len(often)} kinds"]
    told += [f"{level} {number}" for level, number in levels.most_common()]
    if "ERROR" not in levels and any(errors):
        told.append(f"errors {sum(errors)}")
    most, times = max(often.items(), key=lambda each: each[1], default=("", 0))
    if times > 3:
        told.append(f"most often ({times}): {most[:80]}")
    return "; ".join(told)
