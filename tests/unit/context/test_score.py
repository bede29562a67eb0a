"""Scores by signals, and the profiles that weigh them."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.context.candidates import Candidate
from app.context.question import Asked, understand
from app.context.score import (
    AUTHORITY,
    AUTO,
    PREFILL,
    PROFILE_NAMES,
    PROFILES,
    SIGNALS,
    STRATEGY,
    STRATEGY_WEIGHTS,
    THING_WEIGHT,
    TRI_LAYER,
    Profile,
    QuerySignals,
    Scored,
    of_things,
    score,
    strategies,
)
from app.memory.candidate import Provenance
from app.store.queries import SQL_DIR
from tests.support.context_samples import NOW, memory, message
from tests.support.tables import each_of

NONE = QuerySignals()


def test_prefill_is_seed_000_section_6_2() -> None:
    assert dict(PREFILL.weights) == {"similarity": 0.45, "freshness": 0.20, "frequency": 0.15, "authority": 0.20}
    assert PREFILL.decay_per_hour == 0.005
    assert PREFILL.order == "efficiency"
    assert {Provenance(each).name.lower(): weight for each, weight in AUTHORITY.items()} == {
        "user_stated": 1.0,
        "correction": 0.95,
        "instruction": 0.90,
        "preference": 0.85,
        "fact": 0.80,
        "system_inferred": 0.60,
        "tool_output": 0.70,
    }


def test_prefill_worked_by_hand() -> None:
    """0.45·0.8 + 0.20·e^(−0.005·48) + 0.15·ln(4)/ln(16) + 0.20·0.9·0.85."""
    wanted = memory(
        1,
        similarity=0.8,
        created_at=NOW - timedelta(days=90),
        last_accessed_at=NOW - timedelta(hours=48),
        access_count=3,
        confidence=0.9,
        provenance_type=Provenance.PREFERENCE,
    )
    busiest = memory(2, access_count=15)
    found = {each.candidate.id: each for each in score([wanted, busiest], NONE, PREFILL, NOW)}[wanted.id]
    assert found.score == pytest.approx(0.36 + 0.2 * math.exp(-0.24) + 0.15 * 0.5 + 0.2 * 0.765)
    assert found.signals == pytest.approx(
        {"similarity": 0.8, "freshness": math.exp(-0.24), "frequency": 0.5, "authority": 0.765}
    )


def test_tri_layer_is_seed_001_section_3_2() -> None:
    assert dict(TRI_LAYER.weights) == {
        "similarity": 0.40,
        "recency": 0.25,
        "importance": 0.20,
        "access_frequency": 0.10,
        "entity_match": 0.05,
    }
    assert sum(TRI_LAYER.weights.values()) == pytest.approx(1)
    assert TRI_LAYER.order == "score"


def test_tri_layer_worked_by_hand() -> None:
    """0.40·0.7 + 0.25·(1 − 73/365) + 0.20·0.82 + 0.10·5/20 + 0.05."""
    wanted = memory(
        1,
        similarity=0.7,
        last_accessed_at=NOW - timedelta(days=73),
        importance=0.82,
        access_count=5,
        entity_ids=frozenset({"blog", "posts"}),
    )
    [found] = score([wanted], QuerySignals(entity_ids=frozenset({"blog", "traffic"})), TRI_LAYER, NOW)
    assert found.score == pytest.approx(0.28 + 0.25 * 0.8 + 0.164 + 0.025 + 0.05)


def value(
    name: str, candidate: Candidate, *others: Candidate, query: QuerySignals = NONE, decay: float = 0.005
) -> float:
    profile = Profile("one", {name: 1.0}, decay_per_hour=decay)
    scores = score([candidate, *others], query, profile, NOW)
    return next(each.signals[name] for each in scores if each.candidate is candidate)


def test_never_used_means_fresh_since_creation() -> None:
    assert value("freshness", memory(1, created_at=NOW - timedelta(hours=200))) == pytest.approx(math.exp(-1))
    assert value("freshness", memory(1, created_at=NOW + timedelta(hours=5))) == 1.0


def test_recency_stays_within_its_bounds() -> None:
    assert value("recency", memory(1, created_at=NOW - timedelta(days=800))) == 0.0
    assert value("recency", memory(1, created_at=NOW + timedelta(days=1))) == 1.0


def test_frequency_against_all_of_the_users_memories() -> None:
    once = memory(1, access_count=1)
    assert value("frequency", once) == 1.0
    assert value("frequency", once, query=QuerySignals(max_access=3)) == pytest.approx(0.5)
    assert value("frequency", memory(1, access_count=9), query=QuerySignals(max_access=3)) == 1.0
    assert value("frequency", memory(1)) == 0.0
    assert value("access_frequency", memory(1, access_count=50)) == 1.0


def test_what_a_leg_did_not_see_counts_nothing_there() -> None:
    seen = memory(2, similarity=0.4)
    for name in ("similarity", "text", "vector"):
        assert value(name, memory(1), seen) == 0.0
    assert value("authority", memory(1, confidence=1.0, provenance_type=99)) == 0.6


def test_what_the_ranking_says_is_taken_as_it_is() -> None:
    item = message(1, near_text=0.25, near_vector=-0.5, named=1.0, similarity=0.9)
    assert [value(name, item) for name in ("text", "vector", "speaker")] == [0.25, -0.5, 1.0]


def test_the_users_own_words_and_memories_are_told_apart() -> None:
    assert [value("own_words", each) for each in (message(1), message(1, role="assistant"), memory(1))] == [1, 0, 0]
    assert value("remembered", memory(1, confidence=0.5, provenance_type=Provenance.CORRECTION)) == pytest.approx(0.475)
    assert value("remembered", message(1)) == 0.0


def test_a_long_message_has_a_price_and_a_short_one_none() -> None:
    assert value("excess", message(1, token_count=60)) == 0.0
    assert value("excess", message(1, token_count=600)) == pytest.approx(math.log(10))
    assert value("excess", message(1, token_count=50, whole_tokens=600)) == pytest.approx(math.log(10)), "of the whole"


def test_a_summary_gives_way_unless_it_is_asked_what_a_conversation_was_about() -> None:
    session = memory(1, kind="summary", session_id=UUID(int=5))
    entity, fact = memory(2, kind="summary"), memory(3, session_id=UUID(int=5))
    recap = QuerySignals(recap=True)
    items = (session, entity, memory(4, kind="entity_profile"), fact, message(5))
    assert [value("digest", each) for each in items] == [1, 1, 1, 0, 0]
    assert [value("digest", each, query=recap) for each in items] == [0, 1, 1, 0, 0]
    assert [value("recap", each) for each in items] == [0] * 5
    assert [value("recap", each, query=recap) for each in items] == [1, 0, 0, 0, 0]


def test_auto_prefers_the_shorter_of_two_equals() -> None:
    short, long = (message(i, token_count=t, near_vector=0.5, near_text=0.5) for i, t in ((1, 30), (2, 600)))
    found = score([long, short], NONE, AUTO, NOW)
    assert [each.candidate for each in found] == [short, long]
    assert found[0].relevance == found[1].relevance > found[1].score
    assert AUTO.order == "score"


def test_every_weight_names_a_signal() -> None:
    for profile in PROFILES.values():
        assert set(profile.weights) <= set(SIGNALS)


def test_nothing_to_score() -> None:
    assert score([], NONE, AUTO, NOW) == []


unit = st.floats(0, 1)
candidates = st.builds(
    lambda number, similarity, access, confidence, importance, tokens, days, raw: (message if raw else memory)(
        number,
        similarity=similarity,
        access_count=access,
        confidence=confidence,
        importance=importance,
        token_count=tokens,
        created_at=NOW - timedelta(days=days),
    ),
    st.integers(1, 10**6),
    st.none() | st.floats(-1, 1),
    st.integers(0, 100),
    unit,
    unit,
    st.integers(0, 2000),
    st.integers(-5, 2000),
    st.booleans(),
)


@given(st.lists(candidates, max_size=12, unique_by=lambda each: each.id), st.sampled_from(list(PROFILES)), st.randoms())
def test_the_order_of_the_candidates_does_not_matter(items: list[Candidate], name: str, rng: random.Random) -> None:
    profile = PROFILES[name]
    one = score(items, NONE, profile, NOW)
    shuffled = list(items)
    rng.shuffle(shuffled)
    assert score(shuffled, NONE, profile, NOW) == one
    assert [each.score for each in one] == sorted((each.score for each in one), reverse=True)
    for each in one:
        assert math.isfinite(each.score)
        if not profile.standing:
            assert each.score == pytest.approx(sum(profile.weights[n] * v for n, v in each.signals.items()))
        assert all(-1 <= v <= 1 for n, v in each.signals.items() if n != "excess")


def test_ties_go_by_id() -> None:
    found = score([memory(3), memory(1), memory(2)], NONE, PREFILL, NOW)
    assert [each.candidate.id for each in found] == [UUID(int=1), UUID(int=2), UUID(int=3)]


# --- things ---------------------------------------------------------------------------------------------------------------

GAI = "customer:gai_123"
GAI_THINGS = {GAI: frozenset({"gai-media", "gai-media-entertainment"})}


@each_of(
    ("own", "overlap"),
    [
        ([GAI], 1.0),  # seed 004: "Overlap: 1 / 1 = 1.0"
        (["gai-media", GAI], 1.0),  # the slug and the id are one thing
        (["gai-folks", GAI], 1.0),  # by a name that the question does not use, too
        (["gai-media"], 1.0),  # tied to nothing yet
        (["gai-media-entertainment", "friday"], 1 / 2),
        ([GAI, "customer:gail_7"], 1 / 2),
        (["customer:gail_7"], 0.0),
        (["tea"], 0.0),
        ([], 0.0),
        ([GAI, "sales_order:SO-1045"], 1.0),  # what it leads to does not count against it
        (["sales_order:SO-1045"], 1 / 3),  # of the thing and both of its orders
    ],
)
def test_a_thing_and_its_names_overlap_once(own: list[str], overlap: float) -> None:
    related = frozenset({"sales_order:SO-1045", "sales_order:SO-1052"})
    query = QuerySignals(entity_ids=frozenset({GAI}), entities=frozenset({GAI}), things=GAI_THINGS, related=related)
    (found,) = score([memory(1, entity_ids=own)], query, PROFILES["factual_entity_focused"], NOW)
    assert found.signals["entity_overlap"] == pytest.approx(overlap)


def test_a_name_that_nobody_resolved_counts_beside_a_thing() -> None:
    wanted = frozenset({GAI, "priya"})
    query = QuerySignals(entity_ids=wanted, entities=wanted, things=GAI_THINGS)
    items = [
        memory(1, entity_ids=["gai-media", GAI, "priya"]),
        memory(2, entity_ids=[GAI]),
        memory(3, entity_ids=["priya"]),
    ]
    found = {each.candidate.id.int: each for each in score(items, query, PROFILES["factual_entity_focused"], NOW)}
    assert {n: each.signals["entity_overlap"] for n, each in found.items()} == {1: 1.0, 2: 0.5, 3: 0.5}


def test_of_a_message_any_name_of_the_thing_counts() -> None:
    query = QuerySignals(entity_ids=frozenset({GAI}), entities=frozenset({GAI}), things=GAI_THINGS)
    items = [message(1, "Gai Media called"), message(2, "gai media entertainment it was"), message(3, "Gail called")]
    found = {each.candidate.id.int: each for each in score(items, query, PROFILES["factual_entity_focused"], NOW)}
    assert {n: each.signals["entity_overlap"] for n, each in found.items()} == {1: 1.0, 2: 1.0, 3: 0.0}


# --- the strategies of seed 004 ---------------------------------------------------------------------------------------

THEN = datetime(2024, 10, 15, tzinfo=UTC)
ASKED = understand("What did Gai Media order last month?", THEN)
FACTUAL = PROFILES["factual_entity_focused"]


def scored(candidate: Candidate, profile: Profile = FACTUAL, asked: Asked = ASKED) -> Scored:
    (found,) = score([candidate], QuerySignals.of(asked), profile, THEN)
    return found


def delivery(**given: Any) -> Candidate:
    """The seed's candidate: "Gai Media: delivery_preference = Friday", 45 days old and never validated since."""
    return memory(
        1,
        "Gai Media: delivery_preference = Friday",
        **{
            "similarity": 0.72, "entity_ids": ["gai-media"], "importance": 0.7, "confidence": 0.85, "reinforcements": 3,
            "created_at": THEN - timedelta(days=45), "sure_since": THEN - timedelta(days=45), "timely": 1.0,
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


def test_the_rate_of_decay_is_the_profile_s() -> None:
    plain, slow = understand("What does Gai Media prefer?", THEN), replace(FACTUAL, decay_per_day=0.001)
    (found,) = score([delivery(timely=0.0)], QuerySignals.of(plain), slow, THEN)
    assert found.signals["temporal_relevance"] == pytest.approx(math.exp(-0.045), abs=0.001)
    assert found.score > scored(delivery(timely=0.0), asked=plain).score


def test_without_a_time_in_the_question_relevance_decays() -> None:
    plain = understand("What does Gai Media prefer?", THEN)
    assert scored(delivery(timely=0.0), asked=plain).signals["temporal_relevance"] == pytest.approx(0.637, abs=0.001)
    assert scored(delivery(timely=0.2)).signals["temporal_relevance"] == pytest.approx(0.637, abs=0.001), (
        "the decay is more"
    )


def test_what_was_just_validated_is_as_sure_as_it_was() -> None:
    found = scored(delivery(sure_since=THEN))
    assert found.score == pytest.approx(sum(FACTUAL.weights[n] * v for n, v in found.signals.items()) * 0.85)


@each_of("kind", ["event", "episode", "procedure", "pattern"])
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


@each_of(
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


@each_of("stored", [[], "half", 3, True])
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
