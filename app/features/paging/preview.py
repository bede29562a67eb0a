"""How an object is shown below full fidelity: delimited, with its handle, what was left out, and how to ask for it. Pure.

What is quoted was written by somebody, so it is defused as in a memory block (`assemble.neutralise`); only its lines
stay lines, for code and logs are nothing without them. The nonce of the session stands in the opening delimiter: what
else in the transcript looks like one does not have it.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from uuid import UUID

from app.context.assemble import neutralise
from app.features.paging.values import Counter, Fidelity, SemanticObject

TAG = "mneme-object"
HANDLE_DIGITS = 8
"""Hex digits of a handle: the beginning of the object's id. Two of 1,000 objects share one in 1 of 10,000 sessions; the caller
then takes the newer."""
INDENT = 32
"""Most blanks that a quoted line keeps before its first word."""
TOLD_CHARS = 400
"""Longest list of losses, or of what can be answered, characters."""

FRAME_TOKENS = 64
"""Upper bound of all that stands around a text at L1 or L2 but the losses and answers: delimiters, nonce, handle, how
to ask; o200k."""
STUB_FRAME_TOKENS = 44
"""The same around a stub."""
EVICTED_TOKENS = 28
"""Upper bound of what is shown of an evicted object: its handle."""
REST_TOKENS = 28
"""Upper bound of what stands in the place of each further part of an object."""
TOLD_CHARS_PER_TOKEN = 3
"""Characters of our own English that a token has at least: it has 4 to 5."""

_OPENER = re.compile(r"[<＜﹤](?=[\s/]*mneme[\W_]?object)", re.IGNORECASE)


class Preview(NamedTuple):
    """A text that stands for an object, and its tokens."""

    text: str
    tokens: int


def handle_of(object_id: UUID) -> str:
    """What the model calls an object by."""
    return object_id.hex[:HANDLE_DIGITS]


def defused(text: str) -> str:
    """Quoted lines that can be nothing but quoted text; the same when done twice."""
    lines: list[str] = []
    for line in text.splitlines():
        plain = neutralise(line)
        indent = min(INDENT, len(line) - len(line.lstrip(" \t"))) if line[:1] in (" ", "\t") else 0
        lines.append(" " * indent + plain if plain else "")
    return _OPENER.sub("(", "\n".join(lines)).strip("\n")


def render(
    made: SemanticObject,
    level: Fidelity,
    handle: str,
    nonce: str,
    count: Counter,
    tools: tuple[str, str] = ("memory_query", "memory_restore"),
) -> Preview:
    """An object at a level below full, in the place of its first part. Above that it is the client's own text, untouched.
    `tools`: what asks, and what restores, are called in this request."""
    query, restore = tools
    opening = f"<{TAG} {nonce} id={handle} L{int(level)}"
    if level == Fidelity.EVICTED:
        return _shown(f"{opening}/>", count)
    title = " ".join(defused(made.stub).split())
    if level == Fidelity.STUB:
        how = f"Left out: its content; ask {query}(question) or {restore}(id)."
        return _shown(f"{opening}>{title}. {how}</{TAG}>", count)
    losses, answers = _told(made, level)
    lines = [f"{opening}>", title, defused(made.text_at(level))]
    lines += [f"Left out: {losses}."] if losses else []
    lines += [f"It tells {answers}."] if answers else []
    lines += [f"Ask {query}(question) for details, or {restore}(id) to see all of it.", f"</{TAG}>"]
    return _shown("\n".join(lines), count)


def render_rest(handle: str, nonce: str, count: Counter) -> Preview:
    """What stands in the place of the further parts of an object that is shown at its first."""
    return _shown(f"<{TAG} {nonce} id={handle} see above/>", count)


def shown_tokens(made: SemanticObject, level: Fidelity) -> int:
    """Upper bound of the tokens (o200k) of an object at a level, with all that stands around it, without rendering it."""
    if level == Fidelity.FULL:
        return made.tokens_l0
    rest = REST_TOKENS * (len(made.parts) - 1)
    if level == Fidelity.EVICTED:
        return EVICTED_TOKENS + rest
    if level == Fidelity.STUB:
        return made.tokens_l3 + STUB_FRAME_TOKENS + rest
    told = sum(map(len, _told(made, level))) // TOLD_CHARS_PER_TOKEN
    return made.tokens_at(level) + made.tokens_l3 + told + FRAME_TOKENS + rest


def _told(made: SemanticObject, level: Fidelity) -> tuple[str, str]:
    """Losses and answers of a level. What L2 lost is told against L1: both lists together say what is missing of the whole."""
    detailed, compact = made.detailed, made.compact
    shrunk = detailed if level == Fidelity.DETAILED else compact
    if shrunk is None:
        return "", ""
    lost = shrunk.losses
    if level == Fidelity.COMPACT and detailed is not None:
        lost = tuple(dict.fromkeys((*shrunk.losses, *detailed.losses)))
    return _listed(lost), _listed(shrunk.can_answer)


def _listed(told: tuple[str, ...]) -> str:
    text = "; ".join(neutralise(each) for each in told)
    return _OPENER.sub("(", text if len(text) <= TOLD_CHARS else text[: TOLD_CHARS - 1] + "…")


def _shown(text: str, count: Counter) -> Preview:
    return Preview(text, count(text))
