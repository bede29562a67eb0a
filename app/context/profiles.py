"""How what was found is weighed: a profile is a vector of weights over the signals of `score` (seed 000 §6.2, seed 001 §3.2,
the strategies of seed 004, and our own `auto`)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, get_args

from msgspec import Struct, field
from msgspec.structs import replace


class Profile(Struct, frozen=True):
    """A named weighting. `decay_per_hour` is λ of `freshness`; `order` is how the packer goes through the candidates:
    by score per token (seed 000 §6.3), or by score where the profile has the length's price in it."""

    name: str
    weights: Mapping[str, float]
    decay_per_hour: float = 0.005
    order: Literal["efficiency", "score"] = "efficiency"
    ranked: bool = False
    """Candidates are the best of all by these weights; else so many of each leg as `legs` says."""
    legs: Mapping[str, int] = field(default_factory=dict)
    boosts: Mapping[str, float] = field(default_factory=dict)
    """What the score of a kind of item is multiplied by, where it is not 1."""
    priced: bool = False
    """Its items have a likelihood (`worth`), so that a prompt takes what is worth its tokens, not what fills the budget."""
    standing: bool = False
    """The score of what is only believed is multiplied by how sure it still is (seed 004, confidence penalty)."""


PREFILL = Profile(
    "prefill",
    MappingProxyType({"similarity": 0.45, "freshness": 0.20, "frequency": 0.15, "authority": 0.20}),
    decay_per_hour=0.005,
    legs=MappingProxyType({"vector": 50, "text": 30}),
)
"""Seed 000 §6.2; of the legs its §6.4 names 50 and 20; the third, of what is used most, is left out: it is weighed
(`frequency`), and what is near neither by vector nor by words answers no question."""

TRI_LAYER = Profile(
    "tri_layer",
    MappingProxyType(
        {"similarity": 0.40, "recency": 0.25, "importance": 0.20, "access_frequency": 0.10, "entity_match": 0.05}
    ),
    order="score",
    legs=PREFILL.legs,
)
"""Seed 001 §3.2, in the order of the score itself (its step 4 ranks by score, not by score per token)."""

AUTO = Profile(
    "auto",
    MappingProxyType(
        {
            "text": 1.0,
            "vector": 0.8,
            "own_words": 0.15,
            "remembered": 0.2,
            "speaker": 0.6,
            "timely": 0.6,
            "excess": -0.4,
            "digest": -0.8,
            "recap": 2.0,
            "freshness": 0.05,
            "entity_match": 0.05,
        }
    ),
    decay_per_hour=0.001,
    order="score",
    ranked=True,
    priced=True,
)
"""The default. Measured on two unlike kinds of conversation (short turns over months; work with long answers): recall is flat
around these weights (text 1, vector 0.6–1, own words 0.05–0.2, speaker 0.4–0.8, timely 0.3–1, excess −0.3 to −0.5), which is
why they are round; docs/explanation/recall.md has the figures, and those of weights fitted on one kind and measured on the
other. Freshness (half-life 29 days) and entities only part what is otherwise alike.
"""

THING_WEIGHT = 1.0
"""What `entity_overlap` weighs in a ranked profile where the question names a known thing: as much as all its words. A block of
1,500 tokens then holds the answers to 80 of 100 questions about a customer whose memories have other words, without it to 33
(docs/explanation/recall.md); the more it weighs, the less chance has what was said of the thing and is tied to nothing yet."""

STRATEGY = "strategy"
"""Not a profile, but the one of seed 004's four that the question calls for (`Asked.strategy`)."""
STRATEGY_SIGNALS = ("semantic_similarity", "entity_overlap", "temporal_relevance", "importance", "reinforcement")
STRATEGY_WEIGHTS: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        name: MappingProxyType(dict(zip(STRATEGY_SIGNALS, weights, strict=True)))
        for name, weights in {
            "factual_entity_focused": (0.25, 0.40, 0.20, 0.10, 0.05),
            "procedural": (0.45, 0.05, 0.05, 0.15, 0.30),
            "exploratory": (0.35, 0.25, 0.15, 0.20, 0.05),
            "temporal_focused": (0.30, 0.15, 0.40, 0.10, 0.05),
        }.items()
    }
)
"""Seed 004, stage 1, as `system_config` has them. It gives all five weights of the first strategy only; what it leaves open of
the others is shared out to a sum of 1: `importance` of the second (0.15) and `reinforcement` of the third (0.05) alone, both
of the fourth as 2 to 1, which is how the first has them."""
STRATEGY_LEGS: Mapping[str, int] = MappingProxyType(
    {"vector": 50, "entity": 30, "time": 30, "recent": 10, "summary": 5}
)
"""Seed 004, stage 2: 50, 30, 30, and 5 summaries; the latest beside them."""
STRATEGY_BOOSTS: Mapping[str, float] = MappingProxyType({"summary": 1.15, "entity_profile": 1.15, "procedure": 1.0})
"""Memory type boosts of seed 004, stage 3."""
WEIGHTS_SUM = 0.001
"""How far the weights of a strategy may be from a sum of 1."""


def of_things(profile: Profile) -> Profile:
    """The profile for a question that names a known thing."""
    if not profile.ranked:
        return profile
    return replace(profile, weights=MappingProxyType({**profile.weights, "entity_overlap": THING_WEIGHT}))


def strategies(weights: Any = STRATEGY_WEIGHTS) -> dict[str, Profile]:
    """The four profiles of seed 004 by these weights: {strategy: {signal: weight}}. Raises ValueError for weights that are
    none."""
    if not isinstance(weights, Mapping):
        raise ValueError(f"they are an object that has {', '.join(STRATEGY_WEIGHTS)}")
    found = {}
    for name in STRATEGY_WEIGHTS:
        given = weights.get(name)
        if not isinstance(given, Mapping) or set(given) != set(STRATEGY_SIGNALS):
            raise ValueError(f"{name} needs a weight for each of {', '.join(STRATEGY_SIGNALS)}")
        values = [given[signal] for signal in STRATEGY_SIGNALS]
        if (
            not all(isinstance(each, int | float) and each >= 0 for each in values)
            or abs(sum(values) - 1) > WEIGHTS_SUM
        ):
            raise ValueError(f"the weights of {name} are not numbers whose sum is 1")
        found[name] = Profile(
            name,
            MappingProxyType({signal: float(given[signal]) for signal in STRATEGY_SIGNALS}),
            order="score",
            legs=STRATEGY_LEGS,
            boosts=STRATEGY_BOOSTS,
            standing=True,
        )
    return found


PROFILES: Mapping[str, Profile] = MappingProxyType(
    {each.name: each for each in (AUTO, PREFILL, TRI_LAYER)} | strategies()
)
ProfileName = Literal[
    "auto",
    "prefill",
    "tri_layer",
    "factual_entity_focused",
    "procedural",
    "exploratory",
    "temporal_focused",
    "strategy",
]
"""What may be asked for: a profile, or `STRATEGY`."""
PROFILE_NAMES: tuple[ProfileName, ...] = get_args(ProfileName)
