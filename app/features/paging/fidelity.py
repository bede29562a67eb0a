"""At which fidelity each object is shown: seed 002 §2.6, §3.2, as a policy that leaves the prompt's beginning alone. Pure.

Every change of an object changes the prompt from there on, and the upstream's cache of all that follows is lost. So objects are
degraded in batches: when a zone is entered, as many as bring the prompt down to `TARGET`, and no more until it has grown again;
and only if the batch is worth it. Above the emergency's border this does not count: then the budget does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from app.features.paging.values import (
    Fidelity,
    Relationship,
    RelationType,
    SemanticObject,
    Transition,
    Trigger,
    Zone,
    shown_tokens,
)

# --- how full the prompt is ----------------------------------------------------------------------------------------------

BORDERS: Mapping[Zone, float] = MappingProxyType(
    {Zone.NORMAL: 0.0, Zone.CAUTION: 0.60, Zone.WARNING: 0.75, Zone.CRITICAL: 0.85, Zone.EMERGENCY: 0.95}
)
"""Where each zone begins, tokens ÷ budget. The seed has one point of them: 78 % is WARNING."""
ZONES = tuple(BORDERS)
HYSTERESIS = 0.05
"""How far below its border a zone is left again: one answer more or less must not be another zone."""


def zone(tokens: int, budget: int, before: Zone = Zone.NORMAL) -> Zone:
    """The zone of a prompt of so many tokens, where it was `before`: up at a border, down only 0.05 below it.

    A budget of 0 or less is an emergency: nothing fits.
    """
    if budget <= 0:
        return Zone.EMERGENCY
    share = tokens / budget
    up = max(each for each in range(len(ZONES)) if share >= BORDERS[ZONES[each]])
    last = ZONES.index(before)
    while last > up and share < BORDERS[ZONES[last]] - HYSTERESIS:
        last -= 1
    return ZONES[max(up, last)]


def at_least(one: Zone, other: Zone) -> bool:
    """Whether a zone is as full as the other, or fuller."""
    return ZONES.index(one) >= ZONES.index(other)


# --- which objects change ------------------------------------------------------------------------------------------------

TARGET = 0.45
"""Where a batch stops, tokens ÷ budget. Deeper means fewer batches, and more that is shown in part
(docs/explanation/paging.md has figures)."""
MIN_BATCH = 0.15
"""What a batch must free, as a part of the budget: less is not worth the prefix."""
RECENT_TURNS = 3
"""Turns that an object is let alone after it was last used (seed 002 §3.2)."""
RESTORE_BORDER = 0.60
"""How full the prompt may be after a restoration that nobody asked for (related objects, a new goal): the normal zone."""
RELEVANT = 0.6
"""Relevance (0 to 1) from which an object comes back when the goal changes."""
MOST_RELEVANT = 3
"""Objects that come back with a new goal: as many as answer a question (seed 002 §3.3)."""
HOPS = 2
"""How far related objects are upgraded together (seed 002 §2.6)."""
RELATED = frozenset([RelationType.DEPENDS_ON, RelationType.REFERENCES, RelationType.CAUSED_BY])
"""Relations along which they are (seed 002 §2.6)."""
AGE_HALF_TURNS = 10
"""Turns after which the recency in an object's worth is one half."""
USE_WEIGHT = 0.25
"""What ln(1 + uses) adds to an object's worth; its recency and its relevance add up to 1 each."""
EVICT_TARGET = 0.60
"""Where a batch in CRITICAL or above, whose stubs did not reach `TARGET`, stops to evict them, tokens ÷ budget: 150 stubs are a
third of a window of 32,000 tokens."""
Size = Callable[[SemanticObject, Fidelity], int]


class Moment(Struct, frozen=True):
    """What a decision is made on. `other_tokens`: of all in the prompt that is no object; `zone`: of the last turn;
    `relevance`: to the last message, 0 to 1 (absent: 0); `accessed`: objects that the last messages name; `restored`:
    that the model asked back (full faults); `raised`: that several micro-faults asked about (`Fault.raises`);
    `released`: that it said it needs no more; `goal_changed`: the user speaks of something else."""

    turn: int
    budget: int
    other_tokens: int
    zone: Zone = Zone.NORMAL
    relevance: Mapping[UUID, float] = {}
    accessed: frozenset[UUID] = frozenset()
    restored: frozenset[UUID] = frozenset()
    raised: frozenset[UUID] = frozenset()
    released: frozenset[UUID] = frozenset()
    goal_changed: bool = False


class Decision(Struct, frozen=True):
    """`transitions`: at most one for each object; `pinned`: objects that a fault pins from now on; `tokens`: of the prompt with
    them; `zone`: to be given to the next decision; `lacking`: objects whose L1 and L2 a batch wanted
    and that have none yet, in the order of the batch."""

    transitions: tuple[Transition, ...]
    pinned: frozenset[UUID]
    tokens: int
    zone: Zone
    lacking: tuple[UUID, ...] = ()


class _Cause(NamedTuple):
    """The reason of a change, and how full the prompt is when that is decided (seed 002 §1.5)."""

    trigger: Trigger
    zone: Zone
    tokens: int


def decide(
    objects: Sequence[SemanticObject],
    relationships: Sequence[Relationship],
    moment: Moment,
    size: Size = shown_tokens,
) -> Decision:
    """What changes before this turn's prompt is sent. The same input gives the same decision, in the same order."""
    work = _Work({each.id: each for each in objects}, relationships, moment, size)
    work.restore()
    work.release()
    work.relieve()
    return work.decision()


def applied(objects: Sequence[SemanticObject], decision: Decision, moment: Moment) -> list[SemanticObject]:
    """The objects after a decision: their levels, pins and uses."""
    levels = {each.object_id: each.after for each in decision.transitions}
    touched = levels.keys() | decision.pinned | moment.accessed | moment.restored
    made = []
    for each in objects:
        if not touched or each.id not in touched:
            made.append(each)
            continue
        used = each.id in moment.accessed or each.id in moment.restored
        made.append(
            replace(
                each,
                fidelity=levels.get(each.id, each.fidelity),
                pinned=each.pinned or each.id in decision.pinned,
                pin_reason=each.pin_reason or ("fault" if each.id in decision.pinned else None),
                last_accessed=moment.turn if used else each.last_accessed,
                access_count=each.access_count + (each.id in moment.accessed),
                fault_count=each.fault_count + (each.id in moment.restored),
            )
        )
    return made


def related(start: Iterable[UUID], relationships: Iterable[Relationship], hops: int = HOPS) -> list[UUID]:
    """Objects within so many hops of the first ones, from source to target, nearest first (seed 002 §2.6); not these
    themselves."""
    targets: dict[UUID, list[UUID]] = {}
    for each in relationships:
        if each.relation in RELATED:
            targets.setdefault(each.source, []).append(each.target)
    reached: dict[UUID, None] = dict.fromkeys(start)
    first = len(reached)
    edge = list(reached)
    for _ in range(hops):
        edge = [target for each in edge for target in targets.get(each, ()) if target not in reached]
        reached |= dict.fromkeys(edge)
    return list(reached)[first:]


def worth(made: SemanticObject, turn: int, relevance: float = 0.0) -> float:
    """What an object is worth in the prompt: 2^(−age / 10) + 0.25 · ln(1 + accesses + 2 micro-faults + 3 faults) +
    relevance."""
    age = max(0, turn - made.last_accessed)
    uses = made.access_count + 2 * made.micro_fault_count + 3 * made.fault_count
    return float(2.0 ** (-age / AGE_HALF_TURNS)) + USE_WEIGHT * math.log1p(uses) + relevance


class _Work:
    """One decision under way: the levels as they would be."""

    def __init__(
        self, objects: Mapping[UUID, SemanticObject], relationships: Sequence[Relationship], moment: Moment, size: Size
    ) -> None:
        self.objects = objects
        self.relationships = relationships
        self.moment = moment
        self.size = size
        self.levels = {key: each.fidelity for key, each in objects.items()}
        self.causes: dict[UUID, _Cause] = {}
        self.lacking: dict[UUID, None] = {}
        self.tokens = moment.other_tokens + sum(size(item, item.fidelity) for item in objects.values())
        self.zone, self.pressure = moment.zone, (moment.zone, self.tokens)
        self._read_pressure()
        self.superseded = {each.target for each in relationships if each.relation == RelationType.SUPERSEDES}

    def restore(self) -> None:
        """Upgrades: what the model asked back, whatever it costs; what is named, or belongs to either, while there is room."""
        moment = self.moment
        wanted = self._among(moment.restored)
        for key in wanted:
            self._move(key, Fidelity.FULL, Trigger.FAULT)
        for key in self._among(moment.raised):
            if self.levels[key] > Fidelity.FULL:
                made = self.objects[key]
                better = next(each for each in reversed(Fidelity) if each < self.levels[key] and made.has(each))
                self._raise(key, better, Trigger.FAULT)
        named = [each for each in self._among(moment.accessed) if each not in moment.restored]
        for key in named:
            self._raise(key, Fidelity.FULL, Trigger.ACCESS)
        for key in related([*wanted, *named], self.relationships):
            if key in self.objects and self.levels[key] > Fidelity.DETAILED:
                self._raise(key, Fidelity.DETAILED, Trigger.ACCESS)
        if moment.goal_changed:
            scores = sorted((-score, key.int, key) for key, score in moment.relevance.items() if score >= RELEVANT)
            for *_, key in scores[:MOST_RELEVANT]:
                if key in self.objects:
                    self._raise(key, Fidelity.FULL, Trigger.GOAL_CHANGE)

    def release(self) -> None:
        """Downgrades that the model itself asked for."""
        self._read_pressure()
        for key in self._among(self.moment.released):
            if self.levels[key] < Fidelity.STUB:
                self._move(key, Fidelity.STUB, Trigger.COOPERATIVE)

    def relieve(self) -> None:
        """A batch, where the zone asks for one and it is worth it."""
        budget = self.moment.budget
        self._read_pressure()
        emergency = self.zone == Zone.EMERGENCY
        started = self.tokens
        before = (dict(self.levels), dict(self.causes), self.tokens)
        for key in self._order(self.superseded):
            if not self._asked_back(key):
                self._lower(key, Fidelity.STUB)
        # A step is taken only if the pressure that the step before leaves still asks for it (seed 002 §3.2).
        if at_least(self.zone, Zone.WARNING):
            self._degrade(self._candidates(), Fidelity.COMPACT, TARGET * budget)
        if self._is_still_critical():
            self._degrade(self._candidates(), Fidelity.STUB, TARGET * budget)
        if self._is_still_critical():
            self._degrade(self._candidates(), Fidelity.EVICTED, EVICT_TARGET * budget)
        if emergency:
            self._last_resort()
        if started - self.tokens < MIN_BATCH * budget and not emergency:
            self.levels, self.causes, self.tokens = before
        self.zone = zone(self.tokens, budget, self.zone)

    def decision(self) -> Decision:
        moment = self.moment
        transitions = []
        for key, item in self.objects.items():
            if self.levels[key] != item.fidelity:
                cause = self.causes[key]
                transitions.append(
                    Transition(
                        key, item.fidelity, self.levels[key], cause.trigger, moment.turn, cause.zone, cause.tokens
                    )
                )
        pinned = frozenset(each for each in self._among(moment.restored) if not self.objects[each].pinned)
        return Decision(tuple(transitions), pinned, self.tokens, self.zone, tuple(self.lacking))

    def _read_pressure(self) -> None:
        """Record the current zone and tokens as the cause of the changes that follow."""
        self.zone = zone(self.tokens, self.moment.budget, self.moment.zone)
        self.pressure = (self.zone, self.tokens)

    def _is_still_critical(self) -> bool:
        """Return whether the prompt is still critically full after the changes made so far."""
        return at_least(zone(self.tokens, self.moment.budget, self.zone), Zone.CRITICAL)

    def _among(self, keys: frozenset[UUID]) -> list[UUID]:
        """Those of the keys that are objects of this prompt, in their order; mostly there are no keys at all."""
        return [each for each in self.objects if each in keys] if keys else []

    def _degrade(self, keys: Sequence[UUID], lowest: Fidelity, target: float) -> None:
        """One level at a time, the least worth first (seed 002 §3.2: L0 to L1; if that is not enough, L1 to L2)."""
        for level in range(Fidelity.DETAILED, lowest + 1):
            for key in keys:
                if self.tokens <= target:
                    return
                self._lower(key, Fidelity(level))

    def _last_resort(self) -> None:
        """In an emergency nobody is spared, in turn the recent ones, the pinned ones, and the newest, until the border
        is left."""
        border = BORDERS[Zone.CRITICAL] * self.moment.budget
        newest = max((each.last_accessed for each in self.objects.values()), default=0)
        free = set(self._candidates())
        groups: list[list[UUID]] = [[], [], []]
        for key in self._order(self.objects):
            if key in free:
                continue
            made = self.objects[key]
            pinned = made.pinned or key in self.moment.restored
            last = made.last_accessed == newest or key in self.moment.restored
            groups[2 if last else 1 if pinned else 0].append(key)
        for group in groups:
            self._degrade(group, Fidelity.EVICTED, border)

    def _candidates(self) -> list[UUID]:
        """What may be degraded: not pinned, not used in the last turns, not asked for just now; the least worth first."""
        moment = self.moment
        free = (
            key
            for key, each in self.objects.items()
            if not each.pinned
            and moment.turn - each.last_accessed >= RECENT_TURNS
            and key not in moment.restored
            and key not in moment.accessed
        )
        return self._order(free)

    def _asked_back(self, key: UUID) -> bool:
        """Whether the model wanted just this one lately, though there is a newer reading of it."""
        made = self.objects[key]
        recent = made.pinned and self.moment.turn - made.last_accessed < RECENT_TURNS
        return recent or key in self.moment.restored

    def _order(self, keys: Iterable[UUID]) -> list[UUID]:
        relevance = self.moment.relevance
        found = [key for key in keys if key in self.objects]
        return sorted(
            found,
            key=lambda key: (
                worth(self.objects[key], self.moment.turn, relevance.get(key, 0.0)),
                self.objects[key].source_turn_start,
                key.int,
            ),
        )

    def _lower(self, key: UUID, level: Fidelity) -> None:
        """To this level, if it is lower, was made, and costs less."""
        made = self.objects[key]
        now = self.levels[key]
        if level > now and not made.has(level) and not made.shrunk and made.detailed is None:
            self.lacking[key] = None
        if level > now and made.has(level) and self.size(made, level) < self.size(made, now):
            self._move(key, level, Trigger.PRESSURE)

    def _raise(self, key: UUID, level: Fidelity, trigger: Trigger) -> None:
        """To this level, or to the best below it that there is room for."""
        made = self.objects[key]
        room = RESTORE_BORDER * self.moment.budget
        for better in range(level, self.levels[key]):
            each = Fidelity(better)
            if made.has(each) and self.tokens + self.size(made, each) - self.size(made, self.levels[key]) <= room:
                self._move(key, each, trigger)
                return

    def _move(self, key: UUID, level: Fidelity, trigger: Trigger) -> None:
        made = self.objects[key]
        if level != self.levels[key]:
            self.tokens += self.size(made, level) - self.size(made, self.levels[key])
            self.levels[key] = level
            self.causes[key] = _Cause(trigger, *self.pressure)
