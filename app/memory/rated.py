"""What rated answers have in common (seed 001 §4.1: a tracked outcome, if repeated, becomes a pattern). Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from uuid import UUID

from app.memory.episodes import COMMON_SHARE, FEW, PATTERN_IMPORTANCE, DrawnPattern, pattern_confidence
from app.store.consolidation import Episode

REPEATED = 3
"""Rated answers with one theme that make a pattern: a rating is a word of its own, so fewer do than of episodes that only look
alike (five); two may be chance."""
AGREEING = 0.75
"""Share of them that must have been good, or bad: three of four."""
MAX_OUTCOME_PATTERNS = 6
"""Kept of one user: half of the other patterns."""
MAX_WORDS = 3
"""Words that name a theme."""


def outcome_patterns(episodes: Sequence[Episode], worth: Mapping[UUID, float]) -> list[DrawnPattern]:
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


def _drawn(kind: str, words: Sequence[str], own: tuple[UUID, ...], worth: Mapping[UUID, float]) -> DrawnPattern | None:
    good = sum(worth[each] > 0 for each in own)
    share = good / len(own)
    if max(share, 1 - share) < AGREEING:
        return None
    told, times = ("good", good) if share >= AGREEING else ("bad", len(own) - good)
    named = " ".join(words[:MAX_WORDS])
    subject = f"Answers about {named}" if kind == "topic" else f"Answers that used {named}"
    return DrawnPattern(
        f"outcome:{kind}:{words[0]}",
        f"{subject} were rated {told} {times} of {len(own)} times",
        own,
        len(own),
        pattern_confidence(len(own)),
        PATTERN_IMPORTANCE,
        details={"theme": named, "event_type": "outcome", "worth": told},
    )
