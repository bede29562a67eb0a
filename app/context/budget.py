"""How many tokens there are, and who gets them: seed 000 §6.1 says how much of the window memory and history get, seed 001 §6
how that is spent within. All figures are tokens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct

from app.context.assemble import LEAST
from app.context.transcript import RESULT_ROLES

# --- what kind of request this is ----------------------------------------------------------------------------------------
#
# It decides how the budget is shared. A few rules without a model: the same request is always classed alike, in microseconds.
# The words are English; in another language the question mark, the tools and the newness of the session count, and the rest is
# `continuation`, the seed's default.


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
    if has_tools and (last_role in RESULT_ROLES or tool_results >= TOOL_HEAVY_RESULTS):
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
    if (marked or (asks and _WH.search(text))) and any(word.lower() not in _EMPTY for word in _WORD.findall(text)):
        return TaskType.KNOWLEDGE_INTENSIVE
    return TaskType.CONTINUATION


# --- who gets how much of the window -------------------------------------------------------------------------------------


class Split(NamedTuple):
    """The parts of an available budget; they add up to it, unless history has a bound of its own."""

    memory: int
    history: int
    tools: int


SHARES: Mapping[TaskType, tuple[int, int, int]] = MappingProxyType(
    {
        TaskType.CONTINUATION: (15, 85, 0),
        TaskType.KNOWLEDGE_INTENSIVE: (40, 60, 0),
        TaskType.NEW_SESSION: (50, 50, 0),
        TaskType.TOOL_HEAVY: (10, 70, 20),
    }
)
"""Per cent of the budget for memory, history and the working memory's tool results: the table of seed 000 §6.1."""
EPOCH_BLOCKS = 8
"""Full memory blocks that one epoch of a session may hold in all. A block stays in the prompt for the rest of its
epoch, so this bounds what memory adds to every later request: eight of 1,500 tokens are a tenth of a 128,000-token
window."""


def available(window: int, system: int, reserve: int, tools: int) -> int:
    """B = C − S − R − T, never below 0 (seed 000 §6.1).

    `window`: the model's context; `system`: the system messages; `reserve`: kept for the answer; `tools`: the tool
    definitions.
    """
    return max(0, window - system - reserve - tools)


def allocate(budget: int, task: TaskType, history: int | None = None) -> Split:
    """`budget` (B) shared out by task; what rounding leaves over goes to history, which has `history` at most."""
    memory, _, tools = SHARES[task]
    for_memory, for_tools = budget * memory // 100, budget * tools // 100
    for_history = budget - for_memory - for_tools
    return Split(for_memory, for_history if history is None else min(for_history, history), for_tools)


def memory_budget(share: int, budget: int, client: int, cap: int, live: int = 0, *, epoch: int | None = None) -> int:
    """What this turn's memory block may cost: min(B_mem, B − client − live, cap), never below 0.

    `share`: B_mem; `budget`: B; `client`: the messages that go out anyway (the client's own and the history chosen,
    system messages apart: B is already without them), which are never dropped to make room; `cap`: the setting;
    `live`: the blocks of earlier turns that are emitted again. With an `epoch` budget (placement `tail`) a block
    takes at most half of what is left of it, so that later turns find room as well, and an epoch lasts for several
    turns even in a small window.
    """
    limit = min(share, budget - client - live, cap)
    if epoch is not None:
        limit = min(limit, (epoch - live) // 2)
    return max(0, limit)


def epoch_budget(budget: int, client: int, cap: int) -> int:
    """What all memory blocks of an epoch may cost together (placement `tail`), never below 0.

    The largest share that seed 000 §6.1 gives to memory, but no more than the client leaves, and no more than
    `EPOCH_BLOCKS` full blocks. It does not move with the task type: a block that is in the prompt stays there.
    """
    largest = max(memory for memory, _, _ in SHARES.values())
    return max(0, min(budget * largest // 100, budget - client, EPOCH_BLOCKS * cap))


# --- the sections of a prompt, each with a budget of its own (seed 001 §6), and who gives way ----------------------------


class Budgets(Struct, frozen=True):
    """What each section may take at most, beside the memories themselves (`MNEME_MEMORY_BUDGET_TOKENS`: 1,500)."""

    profile: int = 200
    """Seed 001 §6, step 2."""
    facts: int = 200
    """No seed has a number: as much as the profile."""
    wishes: int = 200
    """No seed has a number: as much as the facts, which is a dozen orders of some 15 tokens."""
    question: int = 80
    """One question to the user: a memory of up to 50 tokens, and the words around it."""
    domain: int = 2000
    """What the business's own database says: seed 001 §6, step 4 (service data)."""
    conflicts: int = 200
    """No seed has a number: as much as the facts that it is about."""
    unclear: int = 80
    """Which of several things is meant: a line, as a question is."""
    cards: int = 800
    """Cards that the user's message asks for: one of seed 003's 2 KB has some 600; no seed has a number."""
    history: int | None = None
    """Seed 001 §6, step 5, has 2,000 of 8,000. None: the share of seed 000 §6.1 alone."""
    working: int = 400
    """What tools gave in turns that the history leaves out; tool-heavy requests have a fifth of all (seed 000 §6.1). No seed
    has a number for the others: as much as profile and facts."""


FIRST = 4
"""Of a room that is too small, wishes and facts may take a quarter each: half of it is left to what is looked for."""
KNOWN_SECTIONS = ("domain", "conflicts", "unclear")
"""Those that only requests have that name things which are known."""


class SectionNeeds(NamedTuple):
    """What the sections of a block would take, could they take all that they have to say."""

    profile: int = 0
    facts: int = 0
    question: int = 0
    domain: int = 0
    conflicts: int = 0
    unclear: int = 0
    cards: int = 0
    wishes: int = 0
    working: int = 0


NOTHING = SectionNeeds()
_limits = attrgetter(*SectionNeeds._fields)
"""Of `Budgets`, what each section may take."""


class Shares(NamedTuple):
    """What they may take. `memories`: with the frame of the block and the session's summary."""

    profile: int
    facts: int
    question: int
    memories: int
    domain: int = 0
    conflicts: int = 0
    unclear: int = 0
    cards: int = 0
    wishes: int = 0
    working: int = 0


def wanted(wants: SectionNeeds, budgets: Budgets) -> SectionNeeds:
    """What each wants, no more than its budget."""
    return SectionNeeds(*map(min, wants, _limits(budgets)))


def share_out(room: int, wants: SectionNeeds, budgets: Budgets, memories: int) -> Shares:
    """`room` of a block shared out among its sections; `memories`: what these may take at most.

    With room for all, each has what it wants. With less, wishes and facts come first, each with a quarter of the room
    (`FIRST`) at most: a line of theirs says what takes a passage to find out. Of what is left each other section has the part
    that its budget is of all of theirs, or what it wants, if that is less; memories have the rest. Where hardly more than the
    frame would be left to them, they have all of it.
    """
    own = wanted(wants, budgets)
    if sum(own) + memories > room:
        facts, wishes = min(own.facts, room // FIRST), min(own.wishes, room // FIRST)
        left = room - facts - wishes
        limits = SectionNeeds(*(limit if want else 0 for want, limit in zip(own, _limits(budgets), strict=True)))
        whole = sum(limits._replace(facts=0, wishes=0)) + memories
        own = SectionNeeds(*(min(want, left * limit // max(1, whole)) for want, limit in zip(own, limits, strict=True)))
        own = own._replace(facts=facts, wishes=wishes)
        if room - sum(own) < LEAST:
            own = NOTHING
    left = max(0, min(memories, room - sum(own)))
    return Shares(*own[:3], left, *own[3:])
