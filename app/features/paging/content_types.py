"""Of which type a content is (seed 002 §1.2): results of tools, long pastes of the user, plans and decisions of the
assistant. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from app.features.paging.keys import Family, UnderstoodCall
from app.features.paging.outline import count_bounded
from app.features.paging.shrink import kind_of
from app.features.paging.values import ContentKind, Counter, ObjectType

PASTE_TOKENS = 500
"""Tokens from which a text of the user, or a fenced block in it, is a paste: people type less than that."""
QUESTION_CHARS = 400
"""Characters at each end of a long text that stay as they are: a question stands before or after what it is about."""
ENDS_CHARS = 4_000
"""Characters at each end of a result in which its exit is looked for."""
SEEN_CHARS = 200_000
"""Characters of a content that are looked at for tracebacks, plans and decisions."""
PLAN_STEPS = 4
"""Numbered or ticked lines that make a plan, beside a word for one."""
DECISION_WORDS = 2
"""Different turns of phrase that make a decision."""

PASTED = UnderstoodCall("Pasted", Family.OTHER, None)
SAID = UnderstoodCall("Said", Family.OTHER, None)

_TRACEBACK = re.compile(
    r"^[ \t]{0,16}(?:Traceback \(most recent call last\)|panic: |thread '.{0,80}' panicked"
    r"|Exception in thread |error\[E\d{4}\]|npm ERR!|fatal: |FAILED \(|Segmentation fault|\w[\w.]{0,80}(?:Error|Exception): )",
    re.MULTILINE,
)
_EXIT = re.compile(
    r"\b(?:exit(?:ed)?(?: with)?(?:[ _]?code| status)?|return ?code|status)[\"']?\s?[:=]?\s{0,2}(?:[1-9]\d{0,2})\b"
    r"|<error>|\"(?:is_error|isError)\":\s?true",
    re.IGNORECASE,
)
_FAILED = re.compile(
    r"\b[1-9]\d{0,5} (?:failed|failures?|errors?|failing)\b|^FAILED |^FAIL\b|\bBUILD FAILED\b", re.MULTILINE
)
_STEP = re.compile(r"^\s{0,6}(?:\d{1,2}[.)]|[-*] \[[ xX~]\]|☐|☑|✓|✔)\s", re.MULTILINE)
_PLAN = re.compile(r"\b(?:plan|steps?|to-?dos?|tasks?|milestones?|roadmap|next)\b", re.IGNORECASE)
_DECISION = re.compile(
    r"\b(?:decided|decision|we(?:'ll| will) go with|i(?:'ll| will) go with|chose|choosing"
    r"|trade-?offs?|instead of|rationale|alternatives?|rather than|approach|pros|cons|recommend)\b",
    re.IGNORECASE,
)
_FENCE = re.compile(r"`{3,16}|~{3,16}")


class Fragment(NamedTuple):
    """A part of a message, `text[start:stop]`, that may become an object."""

    start: int
    stop: int
    object_type: ObjectType
    call: UnderstoodCall


def of_result(text: str, call: UnderstoodCall) -> ObjectType:
    """The type of a tool's result."""
    if call.family == Family.PLAN:
        return ObjectType.PLAN
    if call.family == Family.READ:
        return ObjectType.FILE_CONTEXT
    if call.family == Family.FETCH:
        return ObjectType.EXTERNAL_REFERENCE
    if call.family in (Family.SHELL, Family.OTHER, Family.EDIT, Family.WRITE) and failed(text):
        return ObjectType.ERROR_CONTEXT
    return ObjectType.FILE_CONTEXT if call.family in (Family.EDIT, Family.WRITE) else ObjectType.TOOL_RESULT


def failed(text: str) -> bool:
    """Whether a result tells of a failure: a traceback, an exit that is not 0, failed tests."""
    ends = text if len(text) <= 2 * ENDS_CHARS else f"{text[:ENDS_CHARS]}\n{text[-ENDS_CHARS:]}"
    return any(each.search(ends) for each in (_EXIT, _FAILED)) or _TRACEBACK.search(text[:SEEN_CHARS]) is not None


def of_statement(text: str) -> ObjectType | None:
    """The type of what the assistant said, where it is a plan or a decision; None of anything else."""
    seen = text[:SEEN_CHARS]
    if len(_STEP.findall(seen)) >= PLAN_STEPS and _PLAN.search(seen):
        return ObjectType.PLAN
    if len({each.lower() for each in _DECISION.findall(seen)}) >= DECISION_WORDS:
        return ObjectType.DESIGN_DECISION
    return None


def pastes(text: str, count: Counter) -> list[Fragment]:
    """The parts of a user's message that are long pastes: fenced blocks, else all of a long text but its two ends."""
    if len(text) < PASTE_TOKENS:
        return []
    found = [each for each in _fences(text) if _long(text[slice(*each)], count)]
    if not found and _long(text, count):
        start, stop = _middle(text)
        found = [(start, stop)] if _long(text[start:stop], count) else []
    return [Fragment(start, stop, of_paste(text[start:stop]), PASTED) for start, stop in found]


def of_paste(text: str) -> ObjectType:
    """The type of what a user pasted."""
    if failed(text):
        return ObjectType.ERROR_CONTEXT
    if kind_of(text) in (ContentKind.CODE, ContentKind.DIFF):
        return ObjectType.FILE_CONTEXT
    return ObjectType.EXTERNAL_REFERENCE


def _fences(text: str) -> list[tuple[int, int]]:
    """What stands in fenced blocks; one that is not closed goes on to the end. In one pass."""
    spans: list[tuple[int, int]] = []
    fence, start, at = "", 0, 0
    for line in text.splitlines(keepends=True):
        mark = _FENCE.match(line)
        if mark and not fence:
            fence, start = mark[0], at + len(line)
        elif mark and line.strip() == fence:
            spans.append((start, at))
            fence = ""
        at += len(line)
    return [*spans, (start, at)] if fence else spans


def _long(text: str, count: Counter) -> bool:
    return len(text) >= PASTE_TOKENS and count_bounded(text, count) >= PASTE_TOKENS


def _middle(text: str) -> tuple[int, int]:
    """A long text without the paragraph at each end, or without the words at each end where the paragraphs are long."""
    start = text.find("\n\n", 0, QUESTION_CHARS)
    if start < 0:
        start = max(text.rfind("\n", 0, QUESTION_CHARS), text.rfind(" ", 0, QUESTION_CHARS), 0)
    stop = text.rfind("\n\n", len(text) - QUESTION_CHARS)
    if stop < 0:
        ends = [
            at
            for at in (text.find("\n", len(text) - QUESTION_CHARS), text.find(" ", len(text) - QUESTION_CHARS))
            if at >= 0
        ]
        stop = min(ends, default=len(text))
    while start < stop and text[start].isspace():
        start += 1
    return start, stop
