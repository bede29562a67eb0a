"""A question, understood as far as retrieval needs it: what it names, of which time it speaks, what kind of question it is.

Seed 004, stages 1 and 2 ("Query Understanding & Strategy Selection"), by rules: the words are English.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Literal, NamedTuple

from app.context.timing import COUNTS, WORDS, Span, asked_time
from app.memory.text import names, slug, terms

Strategy = Literal["factual_entity_focused", "procedural", "exploratory", "temporal_focused"]
"""The four of seed 004."""

Category = Literal["factual", "procedural", "exploratory", "temporal"]
"""What kind of question it is, in the words of seed 004."""
_CATEGORIES: dict[Strategy, Category] = {
    "factual_entity_focused": "factual",
    "procedural": "procedural",
    "exploratory": "exploratory",
    "temporal_focused": "temporal",
}

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
_MESSAGES = r"(?:questions?|messages?|turns?|prompts?|exchanges?|answers?|repl(?:y|ies))"
_TURNS = re.compile(
    rf"\b(?:(?P<count>\d{{1,2}}|a couple of|a few|an?|{'|'.join(WORDS)}) {_MESSAGES} (?:ago|back|before|earlier)"
    rf"|(?P<last>(?:my|your|the) (?:last|previous|prior|preceding) {_MESSAGES})(?! (?:of|from|in|on)\b)"
    r"|(?:earlier|before|already|previously|so far|above|(?:at|near) the (?:start|beginning|top)) (?:in|of|during)"
    r" (?:this|our|the) (?:\w+ )?(?:conversation|chat|discussion|session|thread)"
    r"|(?:earlier|so far|already) in here|(?:further|farther) up)\b",
    re.IGNORECASE,
)
EARLIER = 0
"""Of `Asked.turns`: somewhere before in this conversation."""


class Asked(NamedTuple):
    """`entities`: ids of what the question names, else (not `named`) of what it is about, as memories have them; `about`: of
    both together. `span`: the time that it speaks of. `recap`: it asks what a conversation was about, as a whole. `turns`: it
    speaks of this very conversation, of so many questions ago (`EARLIER`: it does not say how many). `things`: of the
    `entities` those that are known things ("customer:gai_123"), each with the slugs of its names."""

    text: str
    entities: frozenset[str] = frozenset()
    about: frozenset[str] = frozenset()
    named: bool = False
    span: Span | None = None
    recap: bool = False
    turns: int | None = None
    things: Mapping[str, frozenset[str]] = MappingProxyType({})

    @property
    def timed(self) -> bool:
        """Whether it speaks of a time, on the clock or in the conversation."""
        return self.span is not None or self.turns is not None

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
        return "temporal_focused" if self.timed else "exploratory"


class QueryType(NamedTuple):
    """Seed 004's classification of a question (stage 1, step 2). `requires_domain_db`: what it names may have changed, and the
    business's own database says how it is now."""

    category: Category
    entity_focused: bool
    time_focused: bool
    procedural: bool
    requires_domain_db: bool
    strategy: Strategy


def query_type(asked: Asked, *, resolved: bool = False, domain: bool = False) -> QueryType:
    """What kind of question it is. `resolved`: something that it names is a thing that is known, however it is spelled;
    `domain`: there is a database that knows such things. What was said of them, as a whole, is not asked there."""
    known = asked._replace(named=asked.named or resolved)
    strategy = known.strategy
    return QueryType(
        category=_CATEGORIES[strategy],
        entity_focused=known.named,
        time_focused=asked.timed,
        procedural=strategy == "procedural",
        requires_domain_db=domain and resolved and not asked.recap,
        strategy=strategy,
    )


def temporal_scope(span: Span | None) -> dict[str, str | None] | None:
    """The time that is asked for as seed 004 shows it: its first and its last day, both included, None where it is open."""
    if span is None:
        return None
    last = span.end - timedelta(days=1) if span.end is not None else None
    return {
        "start": span.begin.date().isoformat() if span.begin is not None else None,
        "end": last.date().isoformat() if last is not None else None,
    }


def turns_ago(query: str) -> int | None:
    """How many questions ago that was of which a question speaks: "three questions ago", "my last message", "earlier in this
    conversation" (`EARLIER`); None where it speaks of no such thing."""
    match = _TURNS.search(query)
    if match is None:
        return None
    if match["last"]:
        return 1
    if match["count"] is None:
        return EARLIER
    told = match["count"].lower().removeprefix("a ").removesuffix(" of")
    return int(told) if told.isdecimal() else COUNTS[told]


def understand(query: str, now: datetime) -> Asked:
    """What a question says of what it wants; `now` is when it is asked, on the clock of who asks."""
    head = query[:MAX_CHARS]
    named = frozenset(found for each in names(head) if each[:1].isupper() and (found := slug(each)))
    about = named.union(found for each in terms(head) if (found := slug(each)))
    return Asked(
        text=query,
        entities=named or about,
        about=about,
        named=bool(named),
        span=asked_time(query, now),
        recap=_RECAP.search(head) is not None,
        turns=turns_ago(head),
    )
