"""Episodes: what happened in an exchange (seed 004, layer 3), and the patterns and procedures that many of them show.

An episode holds no words of the exchange beyond its topics and names: what was said stands in the history.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple
from uuid import UUID

from msgspec import Struct, field

from app.memory.candidate import MemoryCandidate, SourceExchange
from app.memory.text import is_question, names, pairs, sentences, slug, strip_injected, terms
from app.store.consolidation import MAX_TOOLS, Episode

THEME_EPISODES = 5
"""Episodes with one theme that make a pattern (seed 001 §4.4), and repetitions that make a procedure (seed 004)."""
THEME_SESSIONS = 2
"""Sessions that a habit must show in: five questions in one conversation are that conversation."""
COMMON_SHARE = 0.25
"""Share of a user's episodes above which a word is no theme but the user's way of talking; asked from `FEW` episodes on."""
FEW = 20
FOLLOWS = 0.5
"""Share of the times in which A is followed by B, from which that is a procedure and no chance."""
CONTRAST = 1.2
"""Ratio of two means from which they count as different."""
MAX_PATTERNS = 12
MAX_PROCEDURES = 12
"""Kept of one user: each takes a line where it is shown."""
MAX_TOPICS = 12
MAX_LABEL = 4

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


class DrawnPattern(Struct, frozen=True):
    """A pattern or procedure: one for each `key`. `sources`: its episodes, newest last. `count`: how often it was seen."""

    key: str
    text: str
    sources: tuple[UUID, ...]
    count: int
    confidence: float
    importance: float
    entities: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)


# --- one exchange -----------------------------------------------------------------------------------------------------


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
        label = terms(match["label"])[-MAX_LABEL:] if match is not None else []
        if match is not None and label:
            return {"label": label, "value": float(match["value"].replace(",", "")), "unit": match["unit"].lower()}
    return None


# --- patterns ---------------------------------------------------------------------------------------------------------


def patterns(episodes: Sequence[Episode]) -> list[DrawnPattern]:
    """What five or more episodes have in common (seed 001 §4.4), the most frequent first."""
    found = numeric_patterns(episodes) + habits(episodes)
    return sorted(found, key=lambda each: (-each.importance, -each.count, each.key))[:MAX_PATTERNS]


def numeric_patterns(episodes: Sequence[Episode]) -> list[DrawnPattern]:
    """Figures of one kind in five or more episodes: their mean, or how two sorts of them differ (seed 001 §4.4's recipe posts
    against news posts)."""
    themes: dict[tuple[str, str], list[Episode]] = defaultdict(list)
    for each in episodes:
        if each.measure is not None:
            unit = str(each.measure["unit"])
            themes[(each.measure["label"][-1], (terms(unit) or [unit])[0])].append(each)
    found: list[DrawnPattern] = []
    for (head, unit), own in themes.items():
        if len(own) < THEME_EPISODES:
            continue
        shown = Counter(str(each.measure["unit"]) for each in own if each.measure is not None).most_common(1)[0][0]
        text, ratio = _compare(head, shown, own)
        found.append(
            DrawnPattern(
                f"measure:{head}:{unit}",
                text,
                tuple(each.message_id for each in own),
                len(own),
                pattern_confidence(len(own)),
                PATTERN_IMPORTANCE,
                details={"theme": head, "unit": unit, "ratio": ratio, "event_type": "measure"},
            )
        )
    return found


PATTERN_IMPORTANCE = 0.85
"""Seed 001 §4.4's example."""
HABIT_IMPORTANCE = 0.5
"""That somebody often asks about something says less than a figure does."""


def _compare(head: str, unit: str, own: Sequence[Episode]) -> tuple[str, float | None]:
    values = {each.message_id: float(each.measure["value"]) for each in own if each.measure is not None}
    sorts: dict[str, list[float]] = defaultdict(list)
    for each in own:
        for word in dict.fromkeys(each.measure["label"][:-1] if each.measure is not None else ()):
            sorts[word].append(values[each.message_id])
    several = {word: of for word, of in sorts.items() if 2 <= len(of) < len(own)}
    if len(several) >= 2:
        high = max(several, key=lambda word: (_mean(several[word]), word))
        low = min(several, key=lambda word: (_mean(several[word]), word))
        ratio = mean_ratio(several[high], several[low])
        if ratio >= CONTRAST:
            told = (
                f"{high.capitalize()} {head} has {ratio:.2f} times the {unit} of {low} {head}: "
                f"{_mean(several[high]):.0f} on average of {len(several[high])}, against "
                f"{_mean(several[low]):.0f} of {len(several[low])}"
            )
            return told, ratio
    low_value, high_value = min(values.values()), max(values.values())
    mean = _mean(list(values.values()))
    return f"{head.capitalize()}: {mean:.0f} {unit} on average of {len(own)} ({low_value:g} to {high_value:g})", None


def mean_ratio(high: Sequence[float], low: Sequence[float]) -> float:
    """How many times larger the mean of one series is than that of another (seed 001 §4.4, whose 2.8 is 2.96)."""
    return _mean(high) / max(_mean(low), 1e-9)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def habits(episodes: Sequence[Episode]) -> list[DrawnPattern]:
    """What a user asks about again and again."""
    asked = [each for each in episodes if each.event_type in ("question", "request")]
    by_theme: dict[str, list[Episode]] = defaultdict(list)
    for each in asked:
        for theme in themes_of(each):
            by_theme[theme].append(each)
    common = len(asked) * COMMON_SHARE if len(asked) > FEW else len(asked)
    called = {str(thing["canonical_id"]): str(thing["canonical_name"]) for each in asked for thing in each.things}
    found: list[DrawnPattern] = []
    seen: list[frozenset[UUID]] = []
    for theme, own in sorted(by_theme.items(), key=lambda item: (-len(item[1]), -len(item[0]), item[0])):
        sessions = {each.session_id for each in own}
        if any(len(by_theme.get(word, ())) > common for word in theme.split()):
            continue
        if not THEME_EPISODES <= len(own) <= common or len(sessions) < THEME_SESSIONS:
            continue
        members = frozenset(each.message_id for each in own)
        if any(len(members & other) * 2 > len(members) for other in seen):
            continue  # "recipe" and "post" and "recipe post": one of them says it
        seen.append(members)
        found.append(
            DrawnPattern(
                f"asks:{theme}",
                f"Often asks about {called.get(theme, theme.replace('-', ' '))} ({len(own)} times in {len(sessions)} sessions)",
                tuple(each.message_id for each in own),
                len(own),
                pattern_confidence(len(own)),
                HABIT_IMPORTANCE,
                details={"theme": theme, "event_type": "question", "session_count": len(sessions)},
            )
        )
    return found


def themes_of(episode: Episode) -> list[str]:
    """Names, neighbouring words and single words that an episode is about."""
    return list(dict.fromkeys([*episode.entities, *pairs(episode.topics), *episode.topics]))


def pattern_confidence(count: int) -> float:
    """0.7 after five observations (seed 004, transformation 4), 0.05 for each further one, at most 0.95."""
    return round(min(0.95, 0.7 + 0.05 * (count - THEME_EPISODES)), 2)


# --- procedures -------------------------------------------------------------------------------------------------------


def procedures(episodes: Sequence[Episode]) -> list[DrawnPattern]:
    """What follows what, five times or more (seed 004, transformation 4): questions within three messages, and tools."""
    found = _asked_after(episodes) + _called_after(episodes)
    return sorted(found, key=lambda each: (-each.count, each.key))[:MAX_PROCEDURES]


def _asked_after(episodes: Sequence[Episode]) -> list[DrawnPattern]:
    by_session: dict[UUID, list[Episode]] = defaultdict(list)
    for each in episodes:
        by_session[each.session_id].append(each)
    times: Counter[str] = Counter()
    followed: dict[tuple[str, str], list[UUID]] = defaultdict(list)
    where: dict[tuple[str, str], set[UUID]] = defaultdict(set)
    for session, own in by_session.items():
        times.update(topic for each in own for topic in set(each.topics))
        # The next question stands two messages further on: seed 004's "within 3 messages".
        for one, other in pairwise(own):
            for a in set(one.topics) - set(other.topics):
                for b in set(other.topics) - set(one.topics):
                    followed[a, b] += [one.message_id, other.message_id]
                    where[a, b].add(session)
    common = len(episodes) * COMMON_SHARE if len(episodes) > FEW else len(episodes)
    named = {each.message_id: types_of(str(thing["canonical_id"]) for thing in each.things) for each in episodes}
    found: list[DrawnPattern] = []
    seen: list[frozenset[UUID]] = []
    # Of words that come together ("open invoices") the longer one says more.
    for (a, b), sources in sorted(followed.items(), key=lambda item: (-len(item[1]), -len("".join(item[0])), item[0])):
        count = len(sources) // 2
        if count < THEME_EPISODES or count < FOLLOWS * times[a] or len(where[a, b]) < THEME_SESSIONS:
            continue
        members = frozenset(sources)
        if times[a] > common or times[b] > common or any(len(members & each) * 2 > len(members) for each in seen):
            continue
        seen.append(members)
        details = {
            "trigger": {"pattern": f"When the user asks about {a}", "intent": "question", "topics": [a]},
            "action": {
                "action_type": "augment_retrieval",
                "topics": [b],
                "augment_retrieval": [{"query": b}, *_facts_about(b, [named[each] for each in sources])],
            },
        }
        found.append(_procedure(f"asks:{a}>{b}", f"After {a}, the user then asks about {b}", sources, count, details))
    return found


def types_of(things: Iterable[str]) -> set[str]:
    """The types of things, by their ids."""
    return {each.partition(":")[0] for each in things if ":" in each}


def _facts_about(topic: str, named: Sequence[set[str]]) -> list[dict[str, Any]]:
    """Facts of that topic are looked for, of the type of thing that most of these exchanges name, if there is one."""
    spoken = Counter(kind for kinds in named for kind in kinds)
    return [
        {"memory_predicate": f"{topic}_.*", "entity": f"{{{kind}}}", "importance_boost": AUGMENT_BOOST}
        for kind, times in sorted(spoken.items())
        if times > len(named) / 2
    ]


def _called_after(episodes: Sequence[Episode]) -> list[DrawnPattern]:
    times: Counter[str] = Counter()
    followed: dict[tuple[str, str], list[UUID]] = defaultdict(list)
    for each in episodes:
        times.update(set(each.tools[:-1]))
        for a, b in dict.fromkeys(pairwise(each.tools)):
            if a != b:
                followed[a, b].append(each.message_id)
    found = []
    for (a, b), sources in followed.items():
        if len(sources) < THEME_EPISODES or len(sources) < FOLLOWS * times[a]:
            continue
        details = {
            "trigger": {"pattern": f"After calling {a}", "tool": a, "topics": terms(a.replace("_", " "))},
            "action": {"action_type": "call_tool", "tool": b, "topics": terms(b.replace("_", " "))},
        }
        found.append(_procedure(f"tools:{a}>{b}", f"After calling {a}, {b} is called", sources, len(sources), details))
    return found


def _procedure(key: str, text: str, sources: Sequence[UUID], count: int, details: Mapping[str, Any]) -> DrawnPattern:
    confidence = pattern_confidence(count)
    return DrawnPattern(
        key,
        text,
        tuple(dict.fromkeys(sources)),
        count,
        confidence,
        PROCEDURE_IMPORTANCE,
        details={**details, "observed_count": count},
    )


PROCEDURE_IMPORTANCE = 0.8
"""Seed 004's retrieval query: "procedural defaults high"."""


AUGMENT_BOOST = 0.2
"""Seed 004's `importance_boost` of what a habit looks for."""
MAX_SOUGHT = 8
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
    for part in map(_object, parts[:MAX_SOUGHT] if isinstance(parts, list) else ()):
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
