"""The kinds of memory, and what each is: the one place in Python. `sql/schema/003_memory.sql` has the same words in its CHECK
and in the functions beneath it. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args

StatedKind = Literal["fact", "preference", "instruction", "correction", "event"]
"""What a user can say in a sentence."""
LearnedKind = Literal[StatedKind, "tool_outcome"]
"""What a single exchange can give."""
ToolKind = Literal[LearnedKind, "episode", "pattern", "procedure"]
"""What a model may write by MCP; the API takes each kind."""
Kind = Literal[ToolKind, "summary", "entity_profile"]

LearnedWay = Literal["rule", "judge", "llm"]
"""Who found a statement in a message: the rules, the fitted tagger, or the helper LLM."""
MemoryOrigin = Literal[LearnedWay, "stated", "derived"]
"""Where a memory comes from: a message, a person or a program that stated it outright, or consolidation."""

MemoryType = Literal["semantic", "episodic", "procedural", "summary"]
"""The four of seed 004."""


class KindTraits(NamedTuple):
    """`doubtable`: it may cease to be so, while what has happened stays true. `stated`: a prompt says it as a sentence of the
    user's; else it is quoted, or is a wish. `drawn`: consolidation makes it from many messages, and makes it anew. `behaviour`:
    it is how to deal with the user, and enters procedural (L4)."""

    type: MemoryType
    doubtable: bool = False
    stated: bool = False
    drawn: bool = False
    behaviour: bool = False


KINDS: Mapping[Kind, KindTraits] = {
    "fact": KindTraits("semantic", doubtable=True, stated=True),
    "preference": KindTraits("semantic", doubtable=True, stated=True, behaviour=True),
    "instruction": KindTraits("semantic", doubtable=True, behaviour=True),
    "correction": KindTraits("semantic", doubtable=True, stated=True),
    "event": KindTraits("episodic", stated=True),
    "tool_outcome": KindTraits("episodic"),
    "episode": KindTraits("episodic"),
    "pattern": KindTraits("semantic", drawn=True, behaviour=True),
    "procedure": KindTraits("procedural", drawn=True, behaviour=True),
    "summary": KindTraits("summary", drawn=True),
    "entity_profile": KindTraits("summary"),
}
assert set(KINDS) == set(get_args(Kind))

DOUBTABLE = frozenset[str](kind for kind, each in KINDS.items() if each.doubtable)
STATED = frozenset[str](kind for kind, each in KINDS.items() if each.stated)
LEARNED = frozenset[str](get_args(LearnedKind))
GUESSED = STATED - {"correction"}
"""Of which there are guesses ("I might move to Berlin"): an order is one, or is none."""
CORRECTED = DOUBTABLE & GUESSED
"""Which a later statement makes a correction."""
BEHAVIOUR = frozenset[str](kind for kind, each in KINDS.items() if each.behaviour)
DERIVED = frozenset[str](("episode", "entity_profile", *(kind for kind, traits in KINDS.items() if traits.drawn)))
"""What is made from what was learned, and from many messages."""
SUMMARIES = frozenset[str](kind for kind, each in KINDS.items() if each.type == "summary")
