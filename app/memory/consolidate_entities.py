"""Which entities a user has said enough about for a summary of its own (seed 004, transformation 3). Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from msgspec import Struct, field

from app.memory.text import names, slug
from app.store.derived import Episode, KnownFact

ENTITY_SESSIONS = 3
ENTITY_EPISODES = 20
"""Sessions, or episodes, about an entity from which it gets a summary (seed 004, transformation 3)."""
NEW_FACTS = 3
"""Facts that a summary does not know yet, from which it is made anew: each new one would cost a call of the helper LLM."""
MIN_LINES = 2
"""Facts and messages about an entity below which there is nothing to draw together."""
ENTITY_TOKENS = 160
"""Most tokens of an entity's summary; seed 004's example has some 90."""
EACH_RUN = 5
"""Entities summarised by one job; the others wait for the next."""
QUOTED_MESSAGES = 40
"""Newest messages about an entity that its summary may quote."""
CONFIRMS = 0.05
CONFIRMS_UP_TO = 0.95
"""Seed 004, transformation 3: LEAST(0.95, confidence + 0.05)."""
SUMMARY_CONFIDENCE = 0.8
SUMMARY_IMPORTANCE = 0.9
"""Seed 004, layer 6."""

_ITSELF = frozenset({"user", "i", "me", ""})


class KnownSummary(Struct, frozen=True):
    """The summary of an entity that is in force."""

    memory_id: UUID
    facts: frozenset[UUID]
    sessions: int
    episodes: int


class DueEntity(Struct, frozen=True):
    """An entity to summarise, from its facts and from the messages of its newest episodes. Of a thing that was resolved,
    `entity` is its id, `name` how it is called, `slugs` the names that it was called by."""

    entity: str
    facts: tuple[KnownFact, ...]
    episodes: tuple[Episode, ...]
    sessions: int
    episode_count: int
    previous: KnownSummary | None
    asked_for: bool = field(default=False)
    name: str | None = None
    slugs: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return f"entity:{self.entity}"

    @property
    def keys(self) -> list[str]:
        """Its own, and those that it had while it was known by its names alone."""
        return [self.key, *(f"entity:{each}" for each in self.slugs)]


class Things(Struct, frozen=True):
    """Things that were resolved: by the slug of each name that they were called by, and how they are called as a whole."""

    ids: Mapping[str, str]
    names: Mapping[str, str]

    def slugs(self, thing: str) -> tuple[str, ...]:
        return tuple(sorted(each for each, of in self.ids.items() if of == thing))


def things_of(episodes: Sequence[Episode]) -> Things:
    """What the things of these episodes were called; the latest word counts. `episodes`: oldest first."""
    by_slug: dict[str, str] = {}
    named: dict[str, str] = {}
    for thing in (each for episode in episodes for each in episode.things):
        own, name = str(thing["canonical_id"]), str(thing["canonical_name"])
        named[own] = name
        called = [str(each["text"]) for each in thing["mentions"] if not each.get("is_coreference")]
        by_slug.update(dict.fromkeys((slug(each) for each in (name, *called)), own))
    return Things(by_slug, named)


def due_entities(
    episodes: Sequence[Episode],
    facts: Sequence[KnownFact],
    known: Mapping[str, KnownSummary],
    wanted: Collection[str] = (),
) -> list[DueEntity]:
    """Entities with three sessions or twenty episodes, or asked for (`wanted`), of which there is something new; those asked
    for first, then by episodes. `episodes`: oldest first."""
    things = things_of(episodes)
    relatives = aliases(facts)

    def entity_of(said: str) -> str:
        own = relatives.get(said, said)
        return own if ":" in own else things.ids.get(slug(own), own)

    told: dict[str, list[Episode]] = defaultdict(list)
    for episode in episodes:
        for entity in {entity_of(each) for each in episode.entities}:
            told[entity].append(episode)
    stated: dict[str, list[KnownFact]] = defaultdict(list)
    for fact in facts:
        for entity in {entity_of(each) for each in fact.about} - _ITSELF:
            stated[entity].append(fact)
    asked = {entity_of(each if ":" in each else slug(each)) for each in wanted}
    found: list[DueEntity] = []
    for entity in {*told, *stated, *asked} - _ITSELF:
        own, said = told.get(entity, []), stated.get(entity, [])
        sessions = {each.session_id for each in own}.union(*(fact.sessions for fact in said))
        enough = len(sessions) >= ENTITY_SESSIONS or len(own) >= ENTITY_EPISODES or entity in asked
        if not enough or len(own) + len(said) < MIN_LINES:
            continue
        slugs = things.slugs(entity)
        previous = next((known[each] for each in (entity, *slugs) if each in known), None)
        if previous is not None and not _news(previous, said, sessions, own, asked=entity in asked):
            continue
        due = DueEntity(
            entity, tuple(said), tuple(own[-QUOTED_MESSAGES:]), len(sessions), len(own), previous, entity in asked,
            things.names.get(entity), slugs,
        )  # fmt: skip
        found.append(due)
    return sorted(found, key=lambda each: (not each.asked_for, -each.episode_count, each.entity))


def aliases(facts: Sequence[KnownFact]) -> dict[str, str]:
    """Relatives whose names are known: "sister" is "clara"."""
    return {
        fact.subject: slug(fact.value)
        for fact in facts
        if fact.predicate == "name" and fact.value and fact.subject and fact.subject not in _ITSELF
    }


def _news(
    previous: KnownSummary,
    said: Sequence[KnownFact],
    sessions: Collection[UUID],
    own: Sequence[Episode],
    *,
    asked: bool,
) -> bool:
    new = sum(fact.memory_id not in previous.facts for fact in said)
    return (
        new >= NEW_FACTS
        or len(sessions) >= previous.sessions + ENTITY_SESSIONS
        or len(own) >= previous.episodes + ENTITY_EPISODES
        or (asked and new > 0)
    )


def key_facts(facts: Sequence[KnownFact]) -> dict[str, Any]:
    """The triples among facts: {predicate: {value, confidence}} (seed 004, layer 6)."""
    return {
        fact.predicate: {"value": fact.value, "confidence": round(fact.confidence, 3)}
        for fact in facts
        if fact.predicate is not None and fact.value is not None
    }


def display_name(entity: str, texts: Sequence[str]) -> str:
    """How an entity is written where it is spoken of: "gai-media" → "Gai Media"."""
    written = Counter(name for text in texts for name in names("X. " + text) if slug(name) == entity)
    return written.most_common(1)[0][0] if written else entity.replace("-", " ").capitalize()
