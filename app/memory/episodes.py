"""Episodes: what happened in an exchange (seed 004, layer 3), and what a procedure that was drawn from many of them asks for.

An episode holds no words of the exchange beyond its topics and names: what was said stands in the history.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from app.memory.candidate import MemoryCandidate, SourceExchange
from app.memory.text import is_question, names, sentences, slug, strip_injected, terms
from app.store.consolidation import MAX_TOOLS, Episode

MAX_TOPICS = 12
_MAX_LABEL = 4

_MEASURE = re.compile(
    r"(?P<label>[^\d→]{3,80}?)\s*(?:→|->|=>|:|\b(?:got|had|has|reached|earned|made|took|brought)\b)\s*"
    r"(?P<value>\d[\d,]*(?:\.\d+)?)\s*(?P<unit>%|[^\W\d_]{2,20})"
)
_ASKS = re.compile(
    r"\s*(?:what|who|whom|whose|which|when|where|why|how|is|are|do|does|did|can|could|should|would)\b", re.I
)
_RIGHTED = re.compile(r"\s*(?:no|nope)[,.;:!–—]\s*(?!thank)\w[^?]{0,40}$", re.I)
"""No, and what is right instead, in a few words: "No, Thursday now"."""
_SHORT_ANSWER = re.compile(
    r"\s*(?:yes|yep|yeah|sure|ok|okay|no|nope|correct|exactly|right|go ahead)\b[^?]{0,20}$", re.I
)


# --- one exchange --------------------------------------------------------------------------------------------------------


def episode_of(
    exchange: SourceExchange, candidates: Sequence[MemoryCandidate], *, message_id: UUID, session_id: UUID
) -> Episode | None:
    """The episode of an exchange and of what was extracted from it; None for one without an answer."""
    if not exchange.assistant_text.strip() and not exchange.tool_calls:
        return None
    text = strip_injected(exchange.user_text)
    known = [entity for each in candidates for entity in each.entity_ids]
    known += [each.triple.subject for each in candidates if each.triple is not None and each.triple.subject != "user"]
    entities = dict.fromkeys([*known, *map(slug, names(text))])
    return Episode(
        message_id,
        session_id,
        exchange.now,
        event_type(text, candidates),
        tuple(each for each in entities if each)[:MAX_TOPICS],
        tuple(dict.fromkeys(terms(text)))[:MAX_TOPICS],
        tool_names(exchange.tool_calls),
        measure_of(text),
    )


def event_type(text: str, candidates: Sequence[MemoryCandidate]) -> str:
    """What the user did: correction, statement, question, confirmation or request (seed 004, event types)."""
    if any(each.kind == "correction" for each in candidates):
        return "correction"
    if any(each.kind != "tool_outcome" for each in candidates):
        return "statement"
    last = (sentences(text) or [text])[-1]
    if is_question(text) or is_question(last) or _ASKS.match(text):
        return "question"
    if _RIGHTED.match(text):
        return "correction"
    if _SHORT_ANSWER.match(text):
        return "confirmation"
    return "request"


def tool_names(calls: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The names of the tools called, in their order."""
    found = (str((each.get("function") or {}).get("name") or "") for each in calls)
    return tuple(name for name in found if name)[:MAX_TOOLS]


def measure_of(text: str) -> dict[str, Any] | None:
    """The first figure that is reported of something: "Suggested recipe post → 340 views"."""
    for sentence in sentences(text):
        match = _MEASURE.search(sentence)
        label = terms(match["label"])[-_MAX_LABEL:] if match is not None else []
        if match is not None and label:
            return {"label": label, "value": float(match["value"].replace(",", "")), "unit": match["unit"].lower()}
    return None


# --- what a procedure asks for -------------------------------------------------------------------------------------------


def types_of(things: Iterable[str]) -> set[str]:
    """The types of things, by their ids."""
    return {each.partition(":")[0] for each in things if ":" in each}


_MAX_SOUGHT = 8
"""Predicates, and types of rows, that one habit may name."""
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


class SoughtPredicate(NamedTuple):
    """Facts to look for: `like`: their predicate, as LIKE has it; `entity`: the thing that they are about, or its type in
    braces, None: anything; `boost`: what their importance gains."""

    like: str
    entity: str | None
    boost: float


class SoughtRows(NamedTuple):
    """Rows of the business's own database to look for: the word for their type, and what their columns say."""

    kind: str
    where: tuple[tuple[str, str], ...] = ()


class Augmentation(NamedTuple):
    """What a procedure has looked for besides (seed 004, `augment_retrieval`)."""

    words: list[str]
    predicates: list[SoughtPredicate]
    rows: list[SoughtRows]


def triggers(details: Mapping[str, Any], query: str, types: Collection[str] = ()) -> bool:
    """Whether a query has one of a procedure's topics, and all else that its trigger asks for: the intent (a request is a
    question), a word of the context, a thing of one of its types among those named (`types`)."""
    trigger = _object(details.get("trigger"))
    asked = set(terms(query))
    if not asked & set(_texts(trigger.get("topics"))):
        return False
    intent = "question" if (said := event_type(query, ())) == "request" else said
    if trigger.get("intent") not in (None, intent):
        return False
    keywords, wanted = _texts(trigger.get("context_keywords")), _texts(trigger.get("entity_types"))
    spoken = set(re.findall(r"\w+", query.casefold()))
    return (not keywords or bool(spoken & set(keywords))) and (not wanted or not set(wanted).isdisjoint(types))


def augmentation(details: Mapping[str, Any], query: str) -> Augmentation:
    """What a procedure adds to a query. A predicate's pattern has `.*` alone; a column that is to say a thing's own id is left
    out, for the relations lead to that thing's rows anyway."""
    asked, action = set(terms(query)), _object(details.get("action"))
    words = [word for word in dict.fromkeys(_texts(action.get("topics"))) if word not in asked]
    predicates: list[SoughtPredicate] = []
    rows: list[SoughtRows] = []
    parts = action.get("augment_retrieval")
    for part in map(_object, parts[:_MAX_SOUGHT] if isinstance(parts, list) else ()):
        pattern, kind, boost = part.get("memory_predicate"), part.get("domain_query"), part.get("importance_boost", 0.0)
        if isinstance(pattern, str) and pattern:
            whose = part.get("entity")
            gain = min(1.0, max(0.0, boost)) if isinstance(boost, int | float) else 0.0
            predicates.append(SoughtPredicate(_like(pattern), whose if isinstance(whose, str) else None, gain))
        if isinstance(kind, str) and kind:
            named = {"domain_query", "filter", "importance_boost"}
            said = {**{k: v for k, v in part.items() if k not in named}, **_object(part.get("filter"))}
            where = tuple((k, str(v)) for k, v in said.items() if not _PLACEHOLDER.fullmatch(str(v)))
            rows.append(SoughtRows(kind, where))
    return Augmentation(words, predicates, rows)


def placeholder(entity: str) -> str | None:
    """The type of things that "{customer}" stands for; None: it is no placeholder."""
    return found[1] if (found := _PLACEHOLDER.fullmatch(entity)) else None


def _like(pattern: str) -> str:
    return "%".join(re.sub(r"([\\%_])", r"\\\1", part) for part in pattern.split(".*"))


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _texts(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
