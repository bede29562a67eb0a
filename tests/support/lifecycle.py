"""The life of a memory as plain functions, against which the sweeps of `sql/schema/004_lifecycle.sql` are tried.

Both decide by the same formulas over the same numbers: `POLICY` here, the rows of `system_config` there.
docs/explanation/memory.md has the states and their transitions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType

from msgspec import Struct, field

from app.context.score import effective_confidence
from app.store.kinds import DOUBTABLE

SESSION, EPISODIC, SEMANTIC, PROCEDURAL = 1, 2, 3, 4
"""`memory_tier` of seed 000 §5.1; L0 is not a row."""
EXPIRED = 0
"""What `demotes` says of a memory for which there is no lower tier."""

SLACK = 1e-6
"""Importance is stored in 4 bytes: a step is one in spite of its rounding (2⁻²⁴ near 1)."""

IN_FORCE = frozenset({"active", "aging"})
GROUNDED = frozenset({"user", "domain_row"})
"""`validated_by` of what stands on more than its use: somebody said so, or a row of the domain database does."""
BEHAVIOURAL_KINDS = frozenset({"preference", "instruction", "pattern", "procedure"})
BEHAVIOURAL_PROVENANCE = frozenset({3, 5})
"""preference and instruction, of `provenance_type`."""
USER_STATED = 0
"""`provenance_type` of what the user asked to be remembered."""


class Step(Struct, frozen=True):
    """A promotion's λ (per hour), θ, and least number of uses (seed 000 §5.2)."""

    discount: float
    threshold: float
    min_access: int


class Floor(Struct, frozen=True):
    """An activity floor φ (seed 000 §5.3, which gives no numbers), as so many uses for so many idle days."""

    uses: int
    days: float

    @property
    def per_hour(self) -> float:
        """φ, in uses per hour."""
        return self.uses / (self.days * 24)


class Policy(Struct, frozen=True):
    """Every number of the life cycle, each with its source."""

    promotions: Mapping[tuple[int, int], Step] = field(
        default_factory=lambda: MappingProxyType(
            {
                (SESSION, EPISODIC): Step(0.01, 0.3, 3),
                (EPISODIC, SEMANTIC): Step(0.001, 0.5, 10),
                (EPISODIC, PROCEDURAL): Step(0.001, 0.5, 10),
            }
        )
    )
    """Seed 000 §5.2."""
    promotion_sources: int = 2
    """Messages that must say so before use alone makes a memory L3 or L4 (3-data-model: validation)."""
    l2_ttl: timedelta = timedelta(days=90)
    """Seed 000 §5.1."""
    floors: Mapping[int, Floor] = field(
        default_factory=lambda: MappingProxyType(
            {EPISODIC: Floor(3, 45), SEMANTIC: Floor(10, 90), PROCEDURAL: Floor(10, 90)}
        )
    )
    """φ: a memory that has just the uses of its promotion may lie idle for half an L2 life in L2, for a whole one above."""
    demotion_grace: timedelta = timedelta(days=7)
    """Nothing falls for want of use before that (the 7 days of seed 001 §4.4)."""
    confidence_decay: float = 0.01
    """Per day (seed 004, decay_parameters)."""
    validation_after: timedelta = timedelta(days=90)
    """Seed 004, decay_parameters."""
    aging_below: float = 0.5
    """Effective confidence (seed 004, state transition criteria)."""
    aging_statements: int = 2
    """Times said, the first one included, that keep a memory from aging (seed 004: reinforcement_count < 2, from 1)."""
    confirmed_gain: float = 0.05
    """Seed 004, active validation flow."""
    confidence_cap: float = 0.95
    """Seed 004: never certain."""
    correction_confidence: float = 0.85
    """Seed 004, active validation flow."""
    importance_decay: float = 0.001
    """Each period. Seed 001 §4.4 names a decay_rate and gives none: so much lets what is middling (0.5) and never used go
    after 107 days, what matters most (0.9) after 207."""
    decay_period: timedelta = timedelta(hours=6)
    decay_after: timedelta = timedelta(days=7)
    prune_below: float = 0.1
    prune_idle: timedelta = timedelta(days=30)
    """Seed 001 §4.4."""
    remove_after: timedelta = timedelta(days=90)
    """How long what has expired can be restored: as long as an L2 memory lives. Then it is "truly forgotten" (001 §4.4)."""
    importance_step: float = 0.05
    """Least change of importance that is written: a row and an event every 12 days instead of four a day."""
    ask_again: timedelta = timedelta(days=7)
    """A question that got no answer is put again after a week, then after two, four, …"""


POLICY = Policy()


class Life(Struct, frozen=True):
    """What the life cycle looks at in a memory. `sources`: distinct messages that say so. `by_hand`: added without a
    message, over the API. `of_session`: it is the summary of a session. `made_at`: when Mneme learned it, of an import long
    after it was said (`created_at`)."""

    tier: int
    kind: str
    status: str
    provenance_type: int
    created_at: datetime
    confidence: float = 0.5
    importance: float = 0.5
    relevance: float = 0.0
    access_count: int = 0
    reinforcement_count: int = 0
    sources: int = 1
    by_hand: bool = False
    of_session: bool = False
    validated_by: str | None = None
    last_accessed_at: datetime | None = None
    last_validated_at: datetime | None = None
    importance_at: datetime | None = None
    expires_at: datetime | None = None
    made_at: datetime | None = None

    @property
    def used_at(self) -> datetime:
        """When it last was of use, or was said, or learned: what idleness is counted from."""
        known = (self.last_accessed_at, self.last_validated_at, self.created_at, self.made_at)
        return max(each for each in known if each is not None)

    @property
    def grounded(self) -> bool:
        """Whether somebody vouches for it."""
        return self.validated_by in GROUNDED

    @property
    def asked_for(self) -> bool:
        """Whether the user asked that it be kept: it "never" expires by itself (seed 000 §5.1)."""
        return (
            self.validated_by == "user"
            and self.tier >= SEMANTIC
            and (self.by_hand or self.provenance_type == USER_STATED)
        )

    @property
    def shielded(self) -> bool:
        """Whether disuse alone cannot take it away: it was asked for, or somebody's word for it still holds, or it is the
        summary of a session, which says what was said and not what is so."""
        return self.asked_for or (self.grounded and self.status == "active") or self.of_session

    def in_force(self, now: datetime) -> bool:
        """Whether it counts now, swept or not."""
        return self.status in IN_FORCE and (self.expires_at is None or self.expires_at > now)


# --- the formulas -----------------------------------------------------------------------------------------------------


def hours(since: datetime, now: datetime) -> float:
    """Hours from one moment to another, at least 0."""
    return max(0.0, (now - since).total_seconds() / 3600)


def utility(relevance: float, access_count: int, age_hours: float, discount: float) -> float:
    """U(m) = r̄ · log₂(1 + a) / (1 + λ·Δt), with r̄ = relevance accumulated ÷ a; Δt in hours since creation (seed 000 §5.2).
    0 for what was never used."""
    if access_count <= 0:
        return 0.0
    return relevance / access_count * math.log2(1 + access_count) / (1 + discount * age_hours)


def activity(access_count: int, idle_hours: float) -> float:
    """D(m) = a / Δt, uses per hour since the last one (seed 000 §5.3); infinite at the moment of a use."""
    if access_count <= 0:
        return 0.0
    return access_count / idle_hours if idle_hours > 0 else math.inf


def decayed_importance(life: Life, now: datetime, policy: Policy = POLICY) -> float:
    """Importance less `importance_decay` for each whole period beyond the first 7 idle days (seed 001 §4.4, task 1).

    The seed decays what is above 0.1 and prunes what is below, so that a memory of exactly 0.1 would do neither for ever;
    here it comes to rest one step below.
    """
    since = life.used_at + policy.decay_after
    if life.importance_at is not None:
        since = max(since, life.importance_at)
    periods = max(0, (now - since) // policy.decay_period)
    floor = policy.prune_below - policy.importance_decay
    if periods == 0 or life.importance <= floor:
        return life.importance
    return max(life.importance - policy.importance_decay * periods, floor)


def decay_due(life: Life, now: datetime, policy: Policy = POLICY) -> bool:
    """Whether the decay since it was last written is worth writing: a whole step, or the way below what is pruned."""
    left = decayed_importance(life, now, policy)
    return life.in_force(now) and (
        life.importance - left > policy.importance_step - SLACK or left < policy.prune_below <= life.importance
    )


def behavioural(kind: str, provenance_type: int) -> bool:
    """Whether it tells how the user wants or does things: what goes to L4 (seed 000 §5.1, §5.2)."""
    return kind in BEHAVIOURAL_KINDS or provenance_type in BEHAVIOURAL_PROVENANCE


# --- the decisions ----------------------------------------------------------------------------------------------------


def promotes(life: Life, now: datetime, policy: Policy = POLICY) -> int | None:
    """The tier that a memory rises to now, if any (seed 000 §5.2, §9.1).

    Beside utility it must be active enough not to fall again at once. Into L3 and L4 use alone does not carry what one
    message said in passing: it takes two, or somebody's word (3-data-model: validation).
    """
    if not life.in_force(now) or life.kind == "episode" or life.tier not in (SESSION, EPISODIC):
        return None
    target = (
        EPISODIC if life.tier == SESSION else PROCEDURAL if behavioural(life.kind, life.provenance_type) else SEMANTIC
    )
    step = policy.promotions[life.tier, target]
    useful = utility(life.relevance, life.access_count, hours(life.created_at, now), step.discount) > step.threshold
    active = activity(life.access_count, hours(life.used_at, now)) >= policy.floors[target].per_hour
    founded = target == EPISODIC or life.grounded or life.sources >= policy.promotion_sources
    return target if life.access_count >= step.min_access and useful and active and founded else None


def demotes(life: Life, now: datetime, policy: Policy = POLICY) -> int | None:
    """The tier that a memory falls to for want of use, EXPIRED where there is none below, None where it stays
    (seed 000 §5.3). What somebody vouches for falls only once that is in doubt, and then has a whole L2 life left."""
    idle = now - life.used_at
    if not life.in_force(now) or life.tier not in policy.floors or life.shielded or idle < policy.demotion_grace:
        return None
    if activity(life.access_count, hours(life.used_at, now)) >= policy.floors[life.tier].per_hour:
        return None
    if life.tier > EPISODIC:
        return EPISODIC
    return None if life.grounded else EXPIRED


def ages(life: Life, now: datetime, policy: Policy = POLICY) -> bool:
    """ACTIVE → AGING: validated more than 90 days ago, never said again, and effective confidence below 0.5 (seed 004,
    state transition criteria)."""
    validated = life.last_validated_at or life.created_at
    return (
        life.status == "active"
        and life.in_force(now)
        and life.tier >= SEMANTIC
        and life.kind in DOUBTABLE
        and now - validated > policy.validation_after
        and 1 + life.reinforcement_count < policy.aging_statements
        and effective_confidence(life.confidence, validated, now, policy.confidence_decay) < policy.aging_below
    )


def settles(life: Life, now: datetime, policy: Policy = POLICY) -> bool:
    """AGING → ACTIVE: it was said again since (seed 004: a confirmation resets the timer). (The sweep leaves alone what a row
    contradicts while the user is asked: `details.in_conflict`.)"""
    validated = life.last_validated_at or life.created_at
    return life.status == "aging" and life.in_force(now) and now - validated <= policy.validation_after


def prunes(life: Life, now: datetime, policy: Policy = POLICY) -> bool:
    """Importance below 0.1 and unused for 30 days (seed 001 §4.4, task 3)."""
    return (
        life.in_force(now)
        and not life.shielded
        and now - life.used_at > policy.prune_idle
        and decayed_importance(life, now, policy) < policy.prune_below
    )


def confirmed_confidence(confidence: float, policy: Policy = POLICY) -> float:
    """What a "yes" leaves: 0.05 more, up to 0.95 (seed 004, active validation flow)."""
    return max(confidence, min(policy.confidence_cap, confidence + policy.confirmed_gain))


def confirmed_tier(life: Life) -> int:
    """Where a "yes" puts it: what the user states belongs to L3 or L4 (seed 000 §5.1); what happened stays where it is."""
    if life.kind not in DOUBTABLE:
        return life.tier
    return max(life.tier, PROCEDURAL if behavioural(life.kind, life.provenance_type) else SEMANTIC)
