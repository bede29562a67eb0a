"""Topics that a user comes back to, each with what is known of it (seed 004, table 7: scope topic). Pure.

A topic is a theme of many episodes, as a habit has one, and of several facts. What has a summary as an entity is none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from app.features.consolidation.patterns import themes
from app.features.consolidation.store import SHIPPED_TRIGGERS, KnownFact, Triggers
from app.features.consolidation.summaries import (
    MIN_LINES,
    QUOTED_MESSAGES,
    DueSummary,
    KnownSummary,
    has_news,
)
from app.memory.text import terms
from app.store.consolidation import Episode

MAX_TOPICS = 6
"""Of one user, those with the most episodes: as many as of other patterns of words."""


def due_topics(
    episodes: Sequence[Episode],
    facts: Sequence[KnownFact],
    known: Mapping[str, KnownSummary],
    entities: Collection[str] = (),
    triggers: Triggers = SHIPPED_TRIGGERS,
) -> list[DueSummary]:
    """Topics of five episodes, in as many sessions as an entity's, and of two facts, of which there is something new; by
    episodes. `episodes`: oldest first; `entities`: slugs of those that have a summary."""
    named = set(entities)
    found: list[DueSummary] = []
    topics = 0
    for theme, own in themes(episodes):
        sessions = {each.session_id for each in own}
        said = [fact for fact in facts if names_topic(theme, fact.text)]
        if (
            not named.isdisjoint([*theme.split(), "-".join(_words(theme))])
            or len(sessions) < triggers.sessions
            or len(said) < MIN_LINES
        ):
            continue
        topics += 1
        if topics > MAX_TOPICS:
            break
        previous = known.get(theme)
        if previous is None or has_news(previous, said, sessions, own, triggers):
            found.append(
                DueSummary(
                    theme, tuple(said), tuple(own[-QUOTED_MESSAGES:]), len(sessions), len(own), previous,
                    name=" ".join(_words(theme)).capitalize(), scope="topic",
                )
            )  # fmt: skip
    return found


def names_topic(topic: str, text: str) -> bool:
    """Whether a text has all words of a topic, which may be a name, as an entity's slug has it."""
    words = set(terms(text))
    return set(topic.split()) <= words or set(_words(topic)) <= {part for each in words for part in _words(each)}


def _words(topic: str) -> list[str]:
    return topic.replace("-", " ").split()
