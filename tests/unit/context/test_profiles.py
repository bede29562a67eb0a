"""The strategies of seed 004: their weights, and its worked example."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from app.context.candidates import Candidate
from app.context.question import Asked, understand
from app.context.score import (
    AUTO,
    PROFILE_NAMES,
    PROFILES,
    SIGNALS,
    STRATEGY,
    STRATEGY_WEIGHTS,
    THING_WEIGHT,
    Profile,
    QuerySignals,
    Scored,
    of_things,
    score,
    strategies,
)
from app.store.queries import SQL_DIR
from tests.support.context_samples import memory, message

NOW = datetime(2024, 10, 15, tzinfo=UTC)
ASKED = understand("What did Gai Media order last month?", NOW)
FACTUAL = PROFILES["factual_entity_focused"]


def scored(candidate: Candidate, profile: Profile = FACTUAL, asked: Asked = ASKED) -> Scored:
    (found,) = score([candidate], QuerySignals.of(asked), profile, NOW)
    return found


def delivery(**given: Any) -> Candidate:
    """The seed's candidate: "Gai Media: delivery_preference = Friday", 45 days old and never validated since."""
    return memory(
        1,
        "Gai Media: delivery_preference = Friday",
        **{
            "similarity": 0.72, "entity_ids": ["gai-media"], "importance": 0.7, "confidence": 0.85, "reinforcements": 3,
            "created_at": NOW - timedelta(days=45), "sure_since": NOW - timedelta(days=45), "timely": 1.0,
        } | given,
    )  # fmt: skip


def test_the_weights_of_seed_004_stage_1() -> None:
    given = {
        "factual_entity_focused": {
            "semantic_similarity": 0.25, "entity_overlap": 0.40, "temporal_relevance": 0.20, "importance": 0.10,
            "reinforcement": 0.05,
        },
        "procedural": {
            "semantic_similarity": 0.45, "entity_overlap": 0.05, "temporal_relevance": 0.05, "reinforcement": 0.30,
        },
        "exploratory": {
            "semantic_similarity": 0.35, "entity_overlap": 0.25, "temporal_relevance": 0.15, "importance": 0.20,
        },
        "temporal_focused": {"semantic_similarity": 0.30, "entity_overlap": 0.15, "temporal_relevance": 0.40},
    }  # fmt: skip
    for name, weights in given.items():
        whole = PROFILES[name].weights
        assert {signal: whole[signal] for signal in weights} == weights
        assert sum(whole.values()) == pytest.approx(1), "what the seed leaves open is shared out"
        assert whole.keys() <= SIGNALS.keys()
    temporal = PROFILES["temporal_focused"].weights
    assert temporal["importance"] == 2 * temporal["reinforcement"], "as the one strategy that has both"


def test_the_worked_example_of_seed_004_stage_3() -> None:
    found = scored(delivery())
    assert found.signals["semantic_similarity"] == 0.72
    assert found.signals["entity_overlap"] == 1.0
    assert (
        found.signals["temporal_relevance"] == 0.85
    )  # of September, which is asked for: boosted from e^(−0.45) = 0.637
    assert found.signals["importance"] == 0.7
    # The seed has min(1, log(1 + 3) / 5) = 0.6, which is neither ln (0.277) nor log2 (0.4): 3 ÷ 5.
    assert found.signals["reinforcement"] == pytest.approx(math.log(4) / 5) == pytest.approx(0.277, abs=0.001)
    seed = {**found.signals, "reinforcement": 0.6}
    relevance = sum(FACTUAL.weights[name] * value for name, value in seed.items())
    assert relevance == pytest.approx(0.85, abs=0.001)
    effective = 0.85 * math.exp(-45 * 0.01)
    assert effective == pytest.approx(0.54, abs=0.005)
    assert relevance * effective == pytest.approx(0.46, abs=0.005)
    # With what ln gives: less by 0.05 · (0.6 − 0.277), before the penalty.
    assert found.score == pytest.approx((relevance - 0.05 * (0.6 - math.log(4) / 5)) * effective)
    assert found.relevance == found.score


def test_without_a_time_in_the_question_relevance_decays() -> None:
    plain = understand("What does Gai Media prefer?", NOW)
    assert scored(delivery(timely=0.0), asked=plain).signals["temporal_relevance"] == pytest.approx(0.637, abs=0.001)
    assert scored(delivery(timely=0.2)).signals["temporal_relevance"] == pytest.approx(0.637, abs=0.001), (
        "the decay is more"
    )


def test_what_was_just_validated_is_as_sure_as_it_was() -> None:
    found = scored(delivery(sure_since=NOW))
    assert found.score == pytest.approx(sum(FACTUAL.weights[n] * v for n, v in found.signals.items()) * 0.85)


@pytest.mark.parametrize("kind", ["event", "episode", "procedure", "pattern"])
def test_what_happened_has_happened(kind: str) -> None:
    """Only semantic memories are doubted."""
    found = scored(delivery(kind=kind))
    assert found.score == pytest.approx(sum(FACTUAL.weights[n] * v for n, v in found.signals.items()))


def test_summaries_are_boosted() -> None:
    plain, summary = scored(delivery(kind="event")), scored(delivery(kind="summary"))
    assert summary.score == pytest.approx(1.15 * plain.score)
    assert scored(delivery(kind="procedure")).score == pytest.approx(plain.score), "by its strategy already"


def test_overlap_is_jaccards() -> None:
    two = Asked("q", entities=frozenset({"ana", "lisbon"}))
    assert scored(delivery(entity_ids=["ana", "porto"]), asked=two).signals["entity_overlap"] == pytest.approx(1 / 3)
    assert scored(delivery(entity_ids=[]), asked=two).signals["entity_overlap"] == 0.0
    assert scored(delivery(), asked=Asked("q")).signals["entity_overlap"] == 0.0
    said = message(2, "Ana's flat, said Gai Media.", similarity=0.5)
    assert scored(said, asked=two).signals["entity_overlap"] == 0.5, (
        "a message has no entities: its words stand for them"
    )
    assert scored(said).signals["entity_overlap"] == 1.0


def test_how_much_reinforcement_is_all() -> None:
    assert scored(delivery(reinforcements=0)).signals["reinforcement"] == 0.0
    assert scored(delivery(reinforcements=1000)).signals["reinforcement"] == 1.0


def test_every_name_that_may_be_asked_for_is_a_profile() -> None:
    assert set(PROFILE_NAMES) == {*PROFILES, STRATEGY}
    assert all(PROFILES[name].name == name for name in PROFILES)


def test_the_database_has_the_same_weights() -> None:
    text = (SQL_DIR / "schema" / "001_base.sql").read_text(encoding="utf-8")
    begin = text.index("'{", text.index("'retrieval_strategy_weights'")) + 1
    assert orjson.loads(text[begin : text.index("}'", begin) + 1]) == {
        name: dict(weights) for name, weights in STRATEGY_WEIGHTS.items()
    }


def test_other_weights() -> None:
    mine = {name: dict(weights) for name, weights in STRATEGY_WEIGHTS.items()}
    mine["procedural"] = {**mine["procedural"], "semantic_similarity": 0.25, "importance": 0.35}
    assert strategies(mine)["procedural"].weights["importance"] == 0.35


@pytest.mark.parametrize(
    "change",
    [
        {"procedural": None}, {"procedural": {}}, {"procedural": 3}, {"exploratory": {"semantic_similarity": 1.0}},
        {"temporal_focused": dict.fromkeys(STRATEGY_WEIGHTS["procedural"], 0.3)},
        {"temporal_focused": dict.fromkeys(STRATEGY_WEIGHTS["procedural"], "x")},
    ],
)  # fmt: skip
def test_weights_that_are_none_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        strategies({**STRATEGY_WEIGHTS, **change})


@pytest.mark.parametrize("stored", [[], "half", 3, True])
def test_what_is_no_object_has_no_weights(stored: object) -> None:
    with pytest.raises(ValueError, match="an object"):
        strategies(stored)


def test_a_thing_weighs_only_where_all_is_ranked() -> None:
    told = of_things(AUTO)
    assert (told.name, told.weights["entity_overlap"]) == ("auto", THING_WEIGHT)
    assert {**told.weights} == {**AUTO.weights, "entity_overlap": THING_WEIGHT}
    assert of_things(told).weights == told.weights
    for name in ("prefill", "factual_entity_focused"):
        assert of_things(PROFILES[name]) is PROFILES[name]
