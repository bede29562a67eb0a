"""What many messages and episodes show (seed 004): which of a long session's oldest messages a summary stands for; patterns,
procedures, and what rated answers have in common. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any
from uuid import UUID

from msgspec import Struct, field

from app.features.consolidation.store import SessionMessage
from app.memory.episodes import types_of
from app.memory.text import pairs, terms
from app.store.consolidation import Episode

# --- compaction (seed 000 §7.3) ------------------------------------------------------------------------------------------


KEEP_TURNS = 4
"""Newest turns that stay verbatim (seed 001 §6, final check: "summarize older turns, keep last 4 verbatim")."""
THRESHOLD_WINDOWS = 2
"""Context windows that a session's active messages may fill before it is compacted (seed 000 §9.3)."""
TARGET_RATIO = 5.0
"""ρ that a compaction must reach (seed 000 §7.3, §11.3)."""
SUMMARY_TOKENS = 500
"""Most tokens of a session's summary: a third of a memory block (seed 001 §6: 1,500), of which it must leave the rest."""
ROOM_RATIO = 6
"""A summary is given a sixth of what it stands for, so that ρ stays above its bar whatever a tokenizer makes of it."""
MIN_REMOVED = 300
"""Tokens below which a compaction is not worth a summary: some four exchanges."""


class CompactionWindow(Struct, frozen=True):
    """What a compaction takes out: `messages`, oldest first, of `tokens` in all, and all turns up to `last_turn` that were
    taken out before. `left`: tokens of what stays."""

    messages: tuple[UUID, ...]
    first_turn: int
    last_turn: int
    tokens: int
    left: int


def needs_compaction(active_tokens: int, context_window: int) -> bool:
    """Seed 000 §9.3: more than twice the context window. A window of 0 is unknown."""
    return context_window > 0 and active_tokens > THRESHOLD_WINDOWS * context_window


def choose(entries: Sequence[SessionMessage], target: int, shared_turn: int = 0) -> CompactionWindow | None:
    """The messages to compact so that at most `target` tokens stay, or as near as the rules allow (seed 000 §7.3, step 2).

    `entries`: of one session, by turn. Oldest first, whole turns only (a tool's result never loses its call); never the first
    turn (seed 001 §5.2) nor the last `KEEP_TURNS`, nor what a branch shares (up to `shared_turn`): its own summary does not
    tell of it. None: nothing to do, or too little.
    """
    active = [each for each in entries if not each.compressed]
    total = sum(each.token_count for each in active)
    starts = _turns(entries)
    if total <= target or len(starts) <= KEEP_TURNS + 1:
        return None
    second, last = starts[1], starts[-KEEP_TURNS]
    taken: list[SessionMessage] = []
    removed = 0
    for begin, end in pairwise(starts[1 : 1 - KEEP_TURNS]):
        if total - removed <= target:
            break
        if begin <= shared_turn:
            continue
        turn = [each for each in active if begin <= each.turn_index < end and second <= each.turn_index < last]
        taken += turn
        removed += sum(each.token_count for each in turn)
    if removed < MIN_REMOVED:
        return None
    return CompactionWindow(
        tuple(each.message_id for each in taken), taken[0].turn_index, taken[-1].turn_index, removed, total - removed
    )


def summary_budget(removed: int) -> int:
    """Tokens for the summary of `removed` tokens."""
    return min(SUMMARY_TOKENS, removed // ROOM_RATIO)


def ratio(removed: int, summary: int) -> float:
    """ρ = removed tokens ÷ summary tokens (seed 000 §7.3, step 6)."""
    return removed / max(1, summary)


def _turns(entries: Sequence[SessionMessage]) -> list[int]:
    """The turn index at which each turn begins: a message of the user after one that is not."""
    starts: list[int] = []
    before = None
    for each in entries:
        if each.role == "user" and before != "user":
            starts.append(each.turn_index)
        before = each.role
    return starts


# --- patterns ------------------------------------------------------------------------------------------------------------

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
PATTERN_IMPORTANCE = 0.85
"""Seed 001 §4.4's example."""
HABIT_IMPORTANCE = 0.5
"""That somebody often asks about something says less than a figure does."""
PROCEDURE_IMPORTANCE = 0.8
"""Seed 004's retrieval query: "procedural defaults high"."""
AUGMENT_BOOST = 0.2
"""Seed 004's `importance_boost` of what a habit looks for."""


class Pattern(Struct, frozen=True):
    """A pattern or procedure: one for each `key`. `sources`: its episodes, newest last. `count`: how often it was seen."""

    key: str
    text: str
    sources: tuple[UUID, ...]
    count: int
    confidence: float
    importance: float
    entities: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)


def patterns(episodes: Sequence[Episode]) -> list[Pattern]:
    """What five or more episodes have in common (seed 001 §4.4), the most frequent first."""
    found = numeric_patterns(episodes) + habits(episodes)
    return sorted(found, key=lambda each: (-each.importance, -each.count, each.key))[:MAX_PATTERNS]


def numeric_patterns(episodes: Sequence[Episode]) -> list[Pattern]:
    """Figures of one kind in five or more episodes: their mean, or how two sorts of them differ (seed 001 §4.4's recipe posts
    against news posts)."""
    themes: dict[tuple[str, str], list[Episode]] = defaultdict(list)
    for each in episodes:
        if each.measure is not None:
            unit = str(each.measure["unit"])
            themes[(each.measure["label"][-1], (terms(unit) or [unit])[0])].append(each)
    found: list[Pattern] = []
    for (head, unit), own in themes.items():
        if len(own) < THEME_EPISODES:
            continue
        shown = Counter(str(each.measure["unit"]) for each in own if each.measure is not None).most_common(1)[0][0]
        text, ratio = _compare(head, shown, own)
        found.append(
            Pattern(
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


def habits(episodes: Sequence[Episode]) -> list[Pattern]:
    """What a user asks about again and again."""
    asked = [each for each in episodes if each.event_type in ("question", "request")]
    called = {str(thing["canonical_id"]): str(thing["canonical_name"]) for each in asked for thing in each.things}
    found: list[Pattern] = []
    for theme, own in themes(asked):
        sessions = {each.session_id for each in own}
        found.append(
            Pattern(
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


def themes(episodes: Sequence[Episode]) -> Iterator[tuple[str, list[Episode]]]:
    """What five or more of these episodes in two or more sessions are about, the most frequent first, each with its episodes:
    names, neighbouring words and single words. Not what the user always speaks of, and of themes of the same episodes one."""
    by_theme: dict[str, list[Episode]] = defaultdict(list)
    for each in episodes:
        for theme in dict.fromkeys([*each.entities, *pairs(each.topics), *each.topics]):
            by_theme[theme].append(each)
    common = len(episodes) * COMMON_SHARE if len(episodes) > FEW else len(episodes)
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
        yield theme, own


def pattern_confidence(count: int) -> float:
    """0.7 after five observations (seed 004, transformation 4), 0.05 for each further one, at most 0.95."""
    return round(min(0.95, 0.7 + 0.05 * (count - THEME_EPISODES)), 2)


# --- procedures ----------------------------------------------------------------------------------------------------------


def procedures(episodes: Sequence[Episode]) -> list[Pattern]:
    """What follows what, five times or more (seed 004, transformation 4): questions within three messages, and tools."""
    found = _asked_after(episodes) + _called_after(episodes)
    return sorted(found, key=lambda each: (-each.count, each.key))[:MAX_PROCEDURES]


def _asked_after(episodes: Sequence[Episode]) -> list[Pattern]:
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
    found: list[Pattern] = []
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


def _facts_about(topic: str, named: Sequence[set[str]]) -> list[dict[str, Any]]:
    """Facts of that topic are looked for, of the type of thing that most of these exchanges name, if there is one."""
    spoken = Counter(kind for kinds in named for kind in kinds)
    return [
        {"memory_predicate": f"{topic}_.*", "entity": f"{{{kind}}}", "importance_boost": AUGMENT_BOOST}
        for kind, times in sorted(spoken.items())
        if times > len(named) / 2
    ]


def _called_after(episodes: Sequence[Episode]) -> list[Pattern]:
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


def _procedure(key: str, text: str, sources: Sequence[UUID], count: int, details: Mapping[str, Any]) -> Pattern:
    confidence = pattern_confidence(count)
    return Pattern(
        key,
        text,
        tuple(dict.fromkeys(sources)),
        count,
        confidence,
        PROCEDURE_IMPORTANCE,
        details={**details, "observed_count": count},
    )


# --- rated answers -------------------------------------------------------------------------------------------------------

REPEATED = 3
"""Rated answers with one theme that make a pattern: a rating is a word of its own, so fewer do than of episodes that only look
alike (five); two may be chance."""
AGREEING = 0.75
"""Share of them that must have been good, or bad: three of four."""
MAX_OUTCOME_PATTERNS = 6
"""Kept of one user: half of the other patterns."""
MAX_WORDS = 3
"""Words that name a theme."""


def outcome_patterns(episodes: Sequence[Episode], worth: Mapping[UUID, float]) -> list[Pattern]:
    """Themes and tools whose answers were rated good, or bad, three times or more; the most often rated first. `worth`: of
    episodes, by their message, from −1 to 1; neutral ones say nothing."""
    rated = [each for each in episodes if worth.get(each.message_id)]
    themes: dict[tuple[str, str], list[Episode]] = defaultdict(list)
    for each in rated:
        for kind, words in (("topic", each.topics), ("tool", each.tools)):
            for word in dict.fromkeys(words):
                themes[kind, word].append(each)
    # Words that came in the very same answers are one theme.
    together: dict[tuple[str, tuple[UUID, ...]], list[str]] = defaultdict(list)
    for (kind, word), own in themes.items():
        usual = kind == "topic" and len(episodes) >= FEW and _said_by(episodes, word) > COMMON_SHARE * len(episodes)
        if len(own) >= REPEATED and not usual:
            together[kind, tuple(each.message_id for each in own)].append(word)
    drawn = (_drawn(kind, words, own, worth) for (kind, own), words in together.items())
    found = [pattern for pattern in drawn if pattern is not None]
    return sorted(found, key=lambda each: (-each.count, each.key))[:MAX_OUTCOME_PATTERNS]


def _said_by(episodes: Sequence[Episode], word: str) -> int:
    return sum(word in each.topics for each in episodes)


def _drawn(kind: str, words: Sequence[str], own: tuple[UUID, ...], worth: Mapping[UUID, float]) -> Pattern | None:
    good = sum(worth[each] > 0 for each in own)
    share = good / len(own)
    if max(share, 1 - share) < AGREEING:
        return None
    told, times = ("good", good) if share >= AGREEING else ("bad", len(own) - good)
    named = " ".join(words[:MAX_WORDS])
    subject = f"Answers about {named}" if kind == "topic" else f"Answers that used {named}"
    return Pattern(
        f"outcome:{kind}:{words[0]}",
        f"{subject} were rated {told} {times} of {len(own)} times",
        own,
        len(own),
        pattern_confidence(len(own)),
        PATTERN_IMPORTANCE,
        details={"theme": named, "event_type": "outcome", "worth": told},
    )
