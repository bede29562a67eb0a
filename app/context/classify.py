"""What kind of request this is: decides how the budget is shared (seed 000 §6.1).

A few rules without a model, so that a compile costs microseconds and the same request is always classed alike. The
words are English; in another language only the question mark, the tools and the newness of the session count, and the
rest falls back on `continuation`, the seed's default.
"""

from __future__ import annotations

import re
from enum import StrEnum


class TaskType(StrEnum):
    """The task types of seed 000 §6.1."""

    CONTINUATION = "continuation"
    KNOWLEDGE_INTENSIVE = "knowledge_intensive"
    NEW_SESSION = "new_session"
    TOOL_HEAVY = "tool_heavy"


TOOL_HEAVY_RESULTS = 2
"""This many tool results since the last user message make a request tool-heavy: one is a look-up, two are a loop."""

HEAD_CHARS = 500
"""Characters looked at on either end of a long query: what is asked stands there, what is pasted lies between."""

# Asks for something said before, or leans on it.
_PAST = re.compile(
    r"\b(?:remember|recall|remind|forgot|forget|last (?:time|week|month|year|session|conversation|chat)|previous(?:ly)?"
    r"|earlier|yesterday|ago|back (?:when|then)|used to|so far|the other (?:day|week)"
    r"|(?:we|i|you) (?:talked|discussed|decided|agreed|said|told|mentioned|spoke|planned|chose|picked)"
    r"|(?:did|have|had|has|were|was) (?:i|we|you))\b",
    re.IGNORECASE,
)
# Asks about the user.
_SELF = re.compile(r"\b(?:my|mine|our|ours|about me|know me|who am i|am i|do i|should i|for me)\b", re.IGNORECASE)
_QUESTION = re.compile(
    r"(?:^|[.!?,;:\n]\s{0,3})(?:and |so |but |then )?"
    r"(?:what|who|whom|whose|when|where|which|why|how|is|are|was|were|do|does|did|can|could|should|would|has|have)\b",
    re.IGNORECASE,
)
_WH = re.compile(r"\b(?:what|who|whom|whose|when|where|which|why|how)(?:'s)?\b", re.IGNORECASE)
_MARKS = ("?", "？", "؟")  # of other scripts too
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
# Words that carry no subject of their own: a question made of nothing else points at the text just before it.
_EMPTY = frozenset(
    _WORD.findall(
        """
    a about again all also am an and any are as at be because but by can could did do does else exactly for from
    get give had has have he her here him his how i if in is it its just like make me mean means more much no
    not now of ok okay on one or other out please really right say she should so some sure tell thanks that the
    their them then there these they this those to too up us was we well were what what's when where which who
    why will with work works would yes you your
"""
    )
)


def classify(
    query: str,
    *,
    new_session: bool,
    has_tools: bool,
    last_role: str | None = "user",
    tool_results: int = 0,
) -> TaskType:
    """The task type of a request; the first rule that holds.

    1. Tools are offered, and the request ends in a tool's result or `tool_results` (those since the last user
       message) has reached `TOOL_HEAVY_RESULTS` → tool-heavy.
    2. The session has no answered turn yet → new session.
    3. The query speaks of the past; or is a question about the user; or is a wh-question, or ends in a question mark,
       and has a subject of its own ("why is that?" has none, it points at the text before) → knowledge-intensive.
    4. Else → continuation.
    """
    if has_tools and (last_role in {"tool", "function"} or tool_results >= TOOL_HEAVY_RESULTS):
        return TaskType.TOOL_HEAVY
    if new_session:
        return TaskType.NEW_SESSION
    text = query if len(query) <= 2 * HEAD_CHARS else f"{query[:HEAD_CHARS]}\n{query[-HEAD_CHARS:]}"
    if _PAST.search(text):
        return TaskType.KNOWLEDGE_INTENSIVE
    marked = text.rstrip().endswith(_MARKS)
    asks = marked or _QUESTION.search(text) is not None
    if asks and _SELF.search(text):
        return TaskType.KNOWLEDGE_INTENSIVE
    if (marked or (asks and _WH.search(text))) and _has_subject(text):
        return TaskType.KNOWLEDGE_INTENSIVE
    return TaskType.CONTINUATION


def _has_subject(text: str) -> bool:
    return any(word.lower() not in _EMPTY for word in _WORD.findall(text))
