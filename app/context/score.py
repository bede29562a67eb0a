"""One scorer over named signals: a profile is a vector of weights (seed 000 §6.2, seed 001 §3.2, and our own `auto`).

A signal is a function from all candidates to one number each, so that each is a plain column and a profile only adds
columns up. Columns of a few hundred candidates are faster in plain Python than in numpy, whose arrays would have to
be filled from attributes first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Literal, NamedTuple
from uuid import UUID

from app.context.candidates import LONG, Candidate, Provenance

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
FULL_ACCESS = 20
"""Uses at which `access_frequency` is 1 (seed 001 §3.2)."""


@dataclass(frozen=True, slots=True)
class QuerySignals:
    """What the request brings to the scores.

    `max_access` is a_max of seed 000 §6.2 over all of the user's memories; None: the highest among the candidates.
    """

    text: str = ""
    entity_ids: frozenset[str] = frozenset()
    max_access: int | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """A named weighting. `decay_per_hour` is λ of `freshness`; `order` is how the packer goes through the candidates:
    by score per token (seed 000 §6.3), or by score where the profile has the length's price in it."""

    name: str
    weights: Mapping[str, float]
    decay_per_hour: float = 0.005
    order: Literal["efficiency", "score"] = "efficiency"
    ranked: bool = False
    """Candidates are the best of all by these weights; else the nearest of each leg."""


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


Column = list[float]
Signal = Callable[[Sequence[Candidate], _Context], Column]


def _similarity(candidates: Sequence[Candidate], context: _Context) -> Column:
    """cos(e_q, e_m), −1..1 (seed 000 §6.2 w1, seed 001 §3.2); 0 where the vector leg did not see the item."""
    return [each.similarity or 0.0 for each in candidates]


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


def _importance(candidates: Sequence[Candidate], context: _Context) -> Column:
    """The memory's present importance, 0..1 (seed 001 §3.2)."""
    return [each.importance for each in candidates]


def _access_frequency(candidates: Sequence[Candidate], context: _Context) -> Column:
    """min(access count / 20, 1) (seed 001 §3.2)."""
    return [min(each.access_count / FULL_ACCESS, 1.0) for each in candidates]


def _entity_match(candidates: Sequence[Candidate], context: _Context) -> Column:
    """1 where the item's entities and the query's overlap, else 0 (seed 001 §3.2)."""
    wanted = context.query.entity_ids
    if not wanted:
        return [0.0] * len(candidates)
    return [0.0 if wanted.isdisjoint(each.entity_ids) else 1.0 for each in candidates]


def _text(candidates: Sequence[Candidate], context: _Context) -> Column:
    """BM25, smoothed over the neighbouring turns, ÷ the best of all the user's items, 0..1 (`rank`)."""
    return [each.near_text for each in candidates]


def _vector(candidates: Sequence[Candidate], context: _Context) -> Column:
    """The cosine, smoothed over the neighbouring turns, ÷ the best of all the user's items, up to 1 (`rank`)."""
    return [each.near_vector for each in candidates]


def _own_words(candidates: Sequence[Candidate], context: _Context) -> Column:
    """1 for the user's own messages: what a user said about themselves outweighs what a model answered."""
    return [1.0 if each.role == "user" and each.source == "message" else 0.0 for each in candidates]


def _remembered(candidates: Sequence[Candidate], context: _Context) -> Column:
    """c·π for a memory, 0 for a raw message: what was distilled and kept has been judged once already."""
    lowest = AUTHORITY[Provenance.SYSTEM_INFERRED]
    return [
        each.confidence * AUTHORITY.get(each.provenance_type, lowest) if each.source == "memory" else 0.0
        for each in candidates
    ]


def _speaker(candidates: Sequence[Candidate], context: _Context) -> Column:
    """1 where the query names the one who said it."""
    return [each.named for each in candidates]


def _timely(candidates: Sequence[Candidate], context: _Context) -> Column:
    """1 for what is of the time that the question speaks of, less for what came soon before or after, 0..1 (`rank`)."""
    return [each.timely for each in candidates]


def _excess(candidates: Sequence[Candidate], context: _Context) -> Column:
    """ln(tokens ÷ 60) of a message of more than 60 tokens, else 0: shown is a passage, and the longer the message the less
    likely is it the right one. Its weight is negative."""
    log = math.log
    return [
        log(tokens / LONG) if (tokens := each.whole_tokens or each.token_count) > LONG else 0.0 for each in candidates
    ]


SIGNALS: Mapping[str, Signal] = MappingProxyType(
    {
        "similarity": _similarity,
        "freshness": _freshness,
        "frequency": _frequency,
        "authority": _authority,
        "recency": _recency,
        "importance": _importance,
        "access_frequency": _access_frequency,
        "entity_match": _entity_match,
        "text": _text,
        "vector": _vector,
        "own_words": _own_words,
        "remembered": _remembered,
        "speaker": _speaker,
        "timely": _timely,
        "excess": _excess,
    }
)
"""Every signal by its name; a profile's weights name these."""

PREFILL = Profile(
    "prefill",
    MappingProxyType({"similarity": 0.45, "freshness": 0.20, "frequency": 0.15, "authority": 0.20}),
    decay_per_hour=0.005,
)
"""Seed 000 §6.2."""

TRI_LAYER = Profile(
    "tri_layer",
    MappingProxyType(
        {"similarity": 0.40, "recency": 0.25, "importance": 0.20, "access_frequency": 0.10, "entity_match": 0.05}
    ),
    order="score",
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
            "freshness": 0.05,
            "entity_match": 0.05,
        }
    ),
    decay_per_hour=0.001,
    order="score",
    ranked=True,
)
"""The default. Measured on two unlike kinds of conversation (short turns over months; work with long answers): recall is flat
around these weights (text 1, vector 0.6–1, own words 0.05–0.2, speaker 0.4–0.8, excess −0.3 to −0.5), which is why they are
round; docs/recall.md has the figures, and those of weights fitted on one kind and measured on the other. Freshness (half-life
29 days) and entities only part what is otherwise alike.
"""

PROFILES: Mapping[str, Profile] = MappingProxyType({each.name: each for each in (AUTO, PREFILL, TRI_LAYER)})


def score(candidates: Sequence[Candidate], query: QuerySignals, profile: Profile, now: datetime) -> list[Scored]:
    """All candidates with their scores by `profile`, best first; equal scores by id, so that the order never depends on
    the order in which the candidates came."""
    if not candidates:
        return []
    context = _Context(query, now, profile.decay_per_hour)
    names = tuple(profile.weights)
    columns = [SIGNALS[name](candidates, context) for name in names]
    totals = worths = [0.0] * len(candidates)
    for weight, column in zip(profile.weights.values(), columns, strict=True):
        totals = [total + weight * value for total, value in zip(totals, column, strict=True)]
        if weight > 0:
            worths = [worth + weight * value for worth, value in zip(worths, column, strict=True)]
    scored = [
        Scored(candidate, total, worth if worth > 0.0 else 0.0, names, values)
        for candidate, total, worth, values in zip(candidates, totals, worths, zip(*columns, strict=True), strict=True)
    ]
    scored.sort(key=by_score)
    return scored


def by_score(item: Scored) -> tuple[float, UUID]:
    """The order of scores, best first; ids part those that are alike."""
    return (-item.score, item.candidate.id)
