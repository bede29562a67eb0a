"""How what was found is weighed: one scorer over named signals, and the profiles, each a vector of weights over them (seed 000
§6.2, seed 001 §3.2, the strategies of seed 004, and our own `auto`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

from msgspec import Struct, field
from msgspec.structs import replace

from app.context.candidates import LONG, Candidate
from app.context.question import Asked
from app.context.rank import words_in
from app.context.worth import TIED, prior, sigmoid, states
from app.memory.candidate import Provenance
from app.store.kinds import DOUBTABLE, SUMMARIES


class Profile(Struct, frozen=True):
    """A named weighting. `decay_per_hour` is λ of `freshness`; `order` is how the packer goes through the candidates:
    by score per token (seed 000 §6.3), or by score where the profile has the length's price in it."""

    name: str
    weights: Mapping[str, float]
    decay_per_hour: float = 0.005
    order: Literal["efficiency", "score"] = "efficiency"
    ranked: bool = False
    """Candidates are the best of all by these weights; else so many of each channel as `channels` says."""
    channels: Mapping[str, int] = field(default_factory=dict)
    boosts: Mapping[str, float] = field(default_factory=dict)
    """What the score of a kind of item is multiplied by, where it is not 1."""
    priced: bool = False
    """Its items have a likelihood (`worth`), so that a prompt takes what is worth its tokens, not what fills the budget."""
    decay_per_day: float = 0.01
    """A day's share of what time takes (seed 004: temporal relevance, and confidence); the database's `decay_parameters`."""
    least_importance: float = 0.0
    """Memories of less importance are no candidates."""
    standing: bool = False
    """The score of what is only believed is multiplied by how sure it still is (seed 004, confidence penalty)."""


PREFILL = Profile(
    "prefill",
    MappingProxyType({"similarity": 0.45, "freshness": 0.20, "frequency": 0.15, "authority": 0.20}),
    decay_per_hour=0.005,
    channels=MappingProxyType({"vector": 50, "text": 30}),
)
"""Seed 000 §6.2; of the channels its §6.4 names 50 and 20; the third, of what is used most, is left out: it is weighed
(`frequency`), and what is near neither by vector nor by words answers no question."""

TRI_LAYER = Profile(
    "tri_layer",
    MappingProxyType(
        {"similarity": 0.40, "recency": 0.25, "importance": 0.20, "access_frequency": 0.10, "entity_match": 0.05}
    ),
    order="score",
    channels=PREFILL.channels,
    least_importance=0.1,
)
"""Seed 001 §3.2, in the order of the score itself (its step 4 ranks by score, not by score per token), of
candidates of importance 0.1 and more (its §3.3)."""

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
STRATEGY_CHANNELS: Mapping[str, int] = MappingProxyType(
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


def strategies(weights: Any = STRATEGY_WEIGHTS, channels: Mapping[str, int] = STRATEGY_CHANNELS) -> dict[str, Profile]:
    """The four profiles of seed 004 by these weights: {strategy: {signal: weight}}; `channels`: most items of each way of
    finding. Raises ValueError for weights that are none."""
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
            channels=channels,
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


# --- signals -------------------------------------------------------------------------------------------------------------
#
# A signal is a function from all candidates to one number each, so that each is a plain column and a profile only adds
# columns up. Columns of a few hundred candidates are faster in plain Python than in numpy, whose arrays would have to
# be filled from attributes first.

AUTHORITY: Mapping[int, float] = MappingProxyType(
    {
        Provenance.USER_STATED: 1.0,
        Provenance.CORRECTION: 0.95,
        Provenance.INSTRUCTION: 0.90,
        Provenance.PREFERENCE: 0.85,
        Provenance.FACT: 0.80,
        Provenance.TOOL_OUTPUT: 0.70,
        Provenance.SYSTEM_INFERRED: 0.60,
    }
)
"""π, the provenance authority of seed 000 §6.2. An unknown provenance counts as the lowest."""

SECONDS_PER_HOUR = 3600.0
RECENCY_DAYS = 365.0
"""Days after which `recency` is 0 (seed 001 §3.2)."""
SECONDS_PER_DAY = 24 * SECONDS_PER_HOUR
TIME_BOOST = 0.85
"""Least temporal relevance of what is of the time that is asked for (seed 004, its worked example)."""
FULL_REINFORCEMENT = 5.0
"""ln(1 + times) at which `reinforcement` is 1 (seed 004)."""
FULL_ACCESS = 20
"""Uses at which `access_frequency` is 1 (seed 001 §3.2)."""


class QuerySignals(Struct, frozen=True):
    """What the request brings to the scores.

    `entity_ids`: all that the question is about; `entities`: what it names, if it names something. `timed`: it speaks of a
    time. `recap`: it asks what a conversation was about. `things`: as `Asked` has them; `related`: ids of what the ontology
    leads to from there. `max_access` is a_max of seed 000 §6.2 over all of the user's
    memories; None: the highest among the candidates.
    """

    text: str = ""
    entity_ids: frozenset[str] = frozenset()
    max_access: int | None = None
    entities: frozenset[str] = frozenset()
    timed: bool = False
    recap: bool = False
    things: Mapping[str, frozenset[str]] = field(default_factory=dict)
    related: frozenset[str] = frozenset()

    @classmethod
    def of(cls, asked: Asked, related: frozenset[str] = frozenset()) -> QuerySignals:
        return cls(asked.text, asked.about, None, asked.entities, asked.timed, asked.recap, asked.things, related)


class Scored(NamedTuple):
    """A candidate with its score and the parts of it: the signals' `names`, and the value of each, before its weight.

    `relevance` (≥ 0) is the score without the weights below 0: what an item is worth whatever it costs.
    """

    candidate: Candidate
    score: float
    relevance: float
    names: tuple[str, ...]
    values: tuple[float, ...]

    @property
    def signals(self) -> dict[str, float]:
        """Each signal's value by its name."""
        return dict(zip(self.names, self.values, strict=True))


class _Context(NamedTuple):
    query: QuerySignals
    now: datetime
    decay_per_hour: float
    decay_per_day: float


Column = list[float]
Signal = Callable[[Sequence[Candidate], _Context], Column]


def _of_item(name: str) -> Signal:
    """A field of the candidates, as it is; 0 for None."""
    read = attrgetter(name)
    return lambda candidates, _: [value or 0.0 for value in map(read, candidates)]


def _freshness(candidates: Sequence[Candidate], context: _Context) -> Column:
    """e^(−λ·Δt), Δt in hours since the last use, or since creation where there was none (seed 000 §6.2 w2)."""
    now, decay = context.now.timestamp(), -context.decay_per_hour / SECONDS_PER_HOUR
    exp = math.exp
    ages = [now - (each.last_accessed_at or each.created_at).timestamp() for each in candidates]
    return [exp(decay * age) if age > 0.0 else 1.0 for age in ages]


def _frequency(candidates: Sequence[Candidate], context: _Context) -> Column:
    """log(1 + a) / log(1 + a_max) (seed 000 §6.2 w3); 0 while nothing was ever used."""
    top = context.query.max_access
    if top is None:
        top = max(each.access_count for each in candidates)
    if top <= 0:
        return [0.0] * len(candidates)
    scale = 1.0 / math.log1p(top)
    return [min(1.0, math.log1p(each.access_count) * scale) if each.access_count else 0.0 for each in candidates]


def _authority(candidates: Sequence[Candidate], context: _Context) -> Column:
    """c·π(p): confidence times the authority of its provenance (seed 000 §6.2 w4)."""
    lowest = AUTHORITY[Provenance.SYSTEM_INFERRED]
    return [each.confidence * AUTHORITY.get(each.provenance_type, lowest) for each in candidates]


def _recency(candidates: Sequence[Candidate], context: _Context) -> Column:
    """1 − days since access / 365, within 0..1 (seed 001 §3.2)."""
    now, year = context.now, RECENCY_DAYS * 24 * SECONDS_PER_HOUR
    return [
        min(1.0, max(0.0, 1.0 - (now - (each.last_accessed_at or each.created_at)).total_seconds() / year))
        for each in candidates
    ]


def _access_frequency(candidates: Sequence[Candidate], context: _Context) -> Column:
    """min(access count / 20, 1) (seed 001 §3.2)."""
    return [min(each.access_count / FULL_ACCESS, 1.0) for each in candidates]


def _entity_match(candidates: Sequence[Candidate], context: _Context) -> Column:
    """1 where the item's entities and the query's overlap, else 0 (seed 001 §3.2)."""
    wanted = context.query.entity_ids
    return [0.0 if wanted.isdisjoint(each.entity_ids) else 1.0 for each in candidates]


def _own_words(candidates: Sequence[Candidate], context: _Context) -> Column:
    """1 for the user's own messages: what a user said about themselves outweighs what a model answered."""
    return [1.0 if each.role == "user" and each.source == "message" else 0.0 for each in candidates]


def _remembered(candidates: Sequence[Candidate], context: _Context) -> Column:
    """c·π for a memory, 0 for a raw message: what was distilled and kept has been judged once already."""
    sure = _authority(candidates, context)
    return [value if each.source == "memory" else 0.0 for value, each in zip(sure, candidates, strict=True)]


def _excess(candidates: Sequence[Candidate], context: _Context) -> Column:
    """ln(tokens ÷ 60) of a message of more than 60 tokens, else 0: shown is a passage, and the longer the message the less
    likely is it the right one. Its weight is negative."""
    log = math.log
    return [
        log(tokens / LONG) if (tokens := each.whole_tokens or each.token_count) > LONG else 0.0 for each in candidates
    ]


def _digest(candidates: Sequence[Candidate], context: _Context) -> Column:
    """1 for what sums up much, where the question asks for one thing: the turns themselves say it better. Its weight is
    negative."""
    recap = context.query.recap
    return [
        1.0 if each.kind in SUMMARIES and each.digest and not (recap and each.of_session) else 0.0
        for each in candidates
    ]


def _recap(candidates: Sequence[Candidate], context: _Context) -> Column:
    """1 for the summary of a session, where the question asks what a conversation was about."""
    recap = context.query.recap
    return [1.0 if recap and each.of_session else 0.0 for each in candidates]


def _entity_overlap(candidates: Sequence[Candidate], context: _Context) -> Column:
    """|query ∩ item| ÷ |query ∪ item| of their entities (seed 004, Jaccard). A raw message has no entities of its own: of it
    the share of the query's whose words stand in it."""
    wanted, things = context.query.entities, context.query.things
    if not wanted:
        return [0.0] * len(candidates)
    related = context.query.related - wanted
    spelled = [[f"-{name}" for name in things.get(entity, (entity,))] for entity in wanted]
    found = []
    for each in candidates:
        if each.source != "memory":
            words = f"-{'-'.join(words_in(each.text))}-"
            said = 0
            for names in spelled:
                for name in names:
                    if name in words:
                        said += 1
                        break
            found.append(said / len(wanted))
            continue
        own = canonical(each.entity_ids, wanted, things) if things else frozenset(each.entity_ids)
        # What a thing leads to does not count against it; of that alone a memory is as near as it is a part of all.
        near = _jaccard(wanted, own - related)
        found.append(max(near, _jaccard(wanted | related, own)) if related else near)
    return found


def _jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one | other)


def canonical(own: Sequence[str], wanted: frozenset[str], things: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """A memory's entities, each thing once. It has the slugs of names beside the ids of things, and nothing says which belong
    together: of one that has ids these count, and of its slugs those that the question names; of another a slug that is a name
    of a thing is that thing."""
    ids = {each for each in own if ":" in each}
    if ids:
        return frozenset(ids | wanted.intersection(own))
    names = {name: thing for thing, slugs in things.items() for name in slugs}
    return frozenset(names.get(each, each) for each in own)


def _temporal_relevance(candidates: Sequence[Candidate], context: _Context) -> Column:
    """e^(−rate · days since it was made); what is of the time that the question speaks of has at least 0.85 (seed 004, signal
    3: its example is boosted so; the seed does not say how)."""
    now = context.now
    return [
        max(
            math.exp(-context.decay_per_day * max(0.0, (now - each.created_at).total_seconds() / SECONDS_PER_DAY)),
            TIME_BOOST * each.timely if context.query.timed else 0.0,
        )
        for each in candidates
    ]


def _reinforcement(candidates: Sequence[Candidate], context: _Context) -> Column:
    """min(1, ln(1 + times said again) ÷ 5) (seed 004, signal 5)."""
    return [min(1.0, math.log1p(each.reinforcements) / FULL_REINFORCEMENT) for each in candidates]


SIGNALS: Mapping[str, Signal] = MappingProxyType(
    {
        "semantic_similarity": _of_item("similarity"),
        "entity_overlap": _entity_overlap,
        "temporal_relevance": _temporal_relevance,
        "reinforcement": _reinforcement,
        # cos(e_q, e_m), −1..1 (seed 000 §6.2 w1, seed 001 §3.2); 0 where the vector channel did not see the item.
        "similarity": _of_item("similarity"),
        "freshness": _freshness,
        "frequency": _frequency,
        "authority": _authority,
        "recency": _recency,
        "importance": _of_item("importance"),  # a memory's present one, 0..1 (seed 001 §3.2)
        "access_frequency": _access_frequency,
        "entity_match": _entity_match,
        # BM25, and the cosine, smoothed over the neighbouring turns, ÷ the best of all the user's items, up to 1 (`rank`).
        "text": _of_item("near_text"),
        "vector": _of_item("near_vector"),
        "own_words": _own_words,
        "remembered": _remembered,
        "speaker": _of_item("named"),  # 1 where the query names the one who said it
        # 1 for what is of the time that the question speaks of, less for what came soon before or after (`rank`).
        "timely": _of_item("timely"),
        "excess": _excess,
        "digest": _digest,
        "recap": _recap,
    }
)
"""Every signal by its name; a profile's weights name these."""


def score(
    candidates: Sequence[Candidate], query: QuerySignals, profile: Profile, now: datetime, *, likely: bool = False
) -> list[Scored]:
    """All candidates with their scores by `profile`, best first; equal scores by id, so that the order never depends on
    the order in which the candidates came. `likely`: scores are likelihoods, and the profile's signals are only told."""
    if not candidates:
        return []
    context = _Context(query, now, profile.decay_per_hour, profile.decay_per_day)
    names = tuple(profile.weights)
    columns = [SIGNALS[name](candidates, context) for name in names]
    if likely:
        totals = worths = _likelihoods(candidates, context)
    else:
        totals, worths = _weighed(candidates, columns, profile, now)
    rows = zip(candidates, totals, worths, zip(*columns, strict=True), strict=True)
    return best_first(
        [Scored(each, total, worth if worth > 0.0 else 0.0, names, values) for each, total, worth, values in rows]
    )


def _weighed(
    candidates: Sequence[Candidate], columns: Sequence[Column], profile: Profile, now: datetime
) -> tuple[Column, Column]:
    """The score and the relevance of each."""
    totals = worths = [0.0] * len(candidates)
    for weight, column in zip(profile.weights.values(), columns, strict=True):
        totals = [total + weight * value for total, value in zip(totals, column, strict=True)]
        if weight > 0:
            worths = [worth + weight * value for worth, value in zip(worths, column, strict=True)]
    if profile.boosts or profile.standing:
        factors = [_factor(each, profile, now) for each in candidates]
        totals = [total * factor for total, factor in zip(totals, factors, strict=True)]
        worths = [worth * factor for worth, factor in zip(worths, factors, strict=True)]
    return totals, worths


def _likelihoods(candidates: Sequence[Candidate], context: _Context) -> Column:
    """What the ranking says of each item, and what a memory's history adds (`worth`). An item that was not judged is as
    unlikely as can be."""
    query = context.query
    again, used = _reinforcement(candidates, context), _access_frequency(candidates, context)
    ties = _entity_overlap(candidates, context) if query.things else [0.0] * len(candidates)
    talk = query.timed or query.recap  # then what was asked may be what is asked for
    found = []
    for item, reinforcement, frequency, tied in zip(candidates, again, used, ties, strict=True):
        if item.odds is None:
            found.append(0.0)
        elif item.source == "message":
            says = talk or states(item.text, item.whole_tokens or item.token_count)
            found.append(sigmoid(item.odds + TIED * tied) if says else 0.0)
        else:
            left = item.confidence
            if item.kind in DOUBTABLE:
                sure_since = item.sure_since or item.created_at
                left = effective_confidence(left, sure_since, context.now, context.decay_per_day)
            history = prior(importance=item.importance, confidence=left, reinforcement=reinforcement,
                            frequency=frequency, tied=tied)  # fmt: skip
            found.append(sigmoid(item.odds + history))
    return found


def _factor(candidate: Candidate, profile: Profile, now: datetime) -> float:
    """What a score is multiplied by: the boost of its kind, and of what is only believed the confidence that is left."""
    boost = profile.boosts.get(candidate.kind, 1.0)
    if not profile.standing or candidate.source != "memory" or candidate.kind not in DOUBTABLE:
        return boost
    sure_since = candidate.sure_since or candidate.created_at
    return boost * effective_confidence(candidate.confidence, sure_since, now, profile.decay_per_day)


def best_first(scored: Sequence[Scored]) -> list[Scored]:
    """In the order of scores, best first; ids part those that are alike."""
    keys = [(-each.score, each.candidate.id) for each in scored]
    return [scored[n] for n in sorted(range(len(keys)), key=keys.__getitem__)]


def effective_confidence(confidence: float, validated_at: datetime, now: datetime, rate: float = 0.01) -> float:
    """stored · e^(−rate · days), whole days since the last validation (seed 004, passive computation)."""
    days = max(0, (now - validated_at).days)
    return confidence * math.exp(-rate * days)
