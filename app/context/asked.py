"""A question, understood as far as retrieval needs it: what it names, of which time it speaks, what kind of question it is.

Seed 004, stages 1 and 2 ("Query Understanding & Strategy Selection"), by rules: the words are English.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Literal, NamedTuple

from app.context.timing import Span, asked_time
from app.memory.consolidate_text import names, slug, terms

Strategy = Literal["factual_entity_focused", "procedural", "exploratory", "temporal_focused"]
"""The four of seed 004."""

MAX_CHARS = 2000
"""Of a longer question the beginning is looked at."""

_PROCEDURAL = re.compile(
    r"\bhow (?:do|does|can|could|should|would|did|to)\b(?! (?:you|i|we) (?:feel|like|think))"
    r"|\b(?:steps? (?:to|for)|way to|procedure|workflow|instructions? for|usual(?:ly)? (?:do|handle|go about))\b",
    re.IGNORECASE,
)
_EXPLORATORY = re.compile(
    r"\b(?:tell me (?:more )?about|what (?:do|did) (?:you|we|i) know|overview|summari[sz]e|summary|describe|walk me through"
    r"|everything (?:about|on)|catch me up|what(?:'s| is| are| has been) (?:new|going on))\b",
    re.IGNORECASE,
)
_TALK = r"(?:conversation|chat|discussion|session|talk|call|exchange)s?"
_RECAP = re.compile(
    r"\bwhat (?:all |else |things |topics |subjects )?(?:did|have|had|were|was) (?:we|you and i|i and you)"
    r"(?: \w+)?? (?:talk|discuss|chat|speak|spoke|cover|go over|gone over|been over|work(?:ed|ing)? (?:on|through))"
    rf"|\b(?:recap|summari[sz]e|sum up|summary of|overview of|gist of|catch me up on|remind me of|minutes of)"
    rf" (?:\w+ ){{0,4}}{_TALK}\b"
    rf"|\bwhat (?:was|were) (?:\w+ ){{0,3}}{_TALK} (?:\w+ ){{0,3}}about\b"
    r"|\b(?:recap|summari[sz]e|sum up) (?:what|everything|all) (?:that )?(?:we|you and i)\b"
    r"|\bwhere (?:did we (?:leave|stop)|were we)\b",
    re.IGNORECASE,
)
_HAPPENED = re.compile(
    r"\b(?:what (?:has |had )?happened|what (?:was|were) .{1,40}\bdoing|when (?:did|was|were|is|will|do|does|has|had)|timeline"
    r"|how long ago|in (?:which|what) (?:order|year|month)|what order|chronological)\b",
    re.IGNORECASE,
)


class Asked(NamedTuple):
    """`entities`: ids of what the question names, else (not `named`) of what it is about, as memories have them; `about`: of
    both together. `span`: the time that it speaks of. `recap`: it asks what a conversation was about, as a whole. `things`: of
    the `entities` those that are known things ("customer:gai_123"), each with the slugs of its names."""

    text: str
    entities: frozenset[str] = frozenset()
    about: frozenset[str] = frozenset()
    named: bool = False
    span: Span | None = None
    recap: bool = False
    things: Mapping[str, frozenset[str]] = MappingProxyType({})

    @property
    def strategy(self) -> Strategy:
        """Which strategy of seed 004 the question calls for; the first rule that holds.

        1. It asks how something is done → procedural. 2. It asks what happened, or when → temporal. 3. It asks for whatever
        there is → exploratory. 4. It names something → factual, of an entity. 5. It speaks of a time → temporal. Else
        exploratory, which looks the widest.
        """
        if _PROCEDURAL.search(self.text):
            return "procedural"
        if _HAPPENED.search(self.text):
            return "temporal_focused"
        if _EXPLORATORY.search(self.text):
            return "exploratory"
        if self.named:
            return "factual_entity_focused"
        return "temporal_focused" if self.span is not None else "exploratory"


def understand(query: str, now: datetime) -> Asked:
    """What a question says of what it wants; `now` is when it is asked."""
    head = query[:MAX_CHARS]
    named = frozenset(found for each in names(head) if each[:1].isupper() and (found := slug(each)))
    about = named.union(found for each in terms(head) if (found := slug(each)))
    return Asked(query, named or about, about, bool(named), asked_time(query, now), _RECAP.search(head) is not None)
