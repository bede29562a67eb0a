"""The confidences of seed 004's stages, and what is ambiguous."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.context.resolution import Entity
from app.features.knowledge import resolution as rank
from app.features.knowledge.entities import SHIPPED, Match
from app.features.knowledge.resolution import (
    FoundRow,
    alias_rank,
    coreference_confidence,
    discovered,
    faded,
    fuzzy_confidence,
    known,
    near,
)
from tests.support.tables import each_of

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def match(stage: Any, entity: str, name: str, *, own: bool = False, **fields: Any) -> Match:
    return Match(stage, "gai", entity, entity.partition(":")[0], name, own, **fields)


def alias(
    entity: str, confidence: float, uses: int = 1, *, days: float = 0, own: bool = False, source: Any = "learned"
) -> Match:
    return match(
        "alias", entity, entity, own=own, source=source, confidence=confidence, use_count=uses,
        last_used_at=NOW - timedelta(days=days),
    )  # fmt: skip


def found(entity: str, name: str, *, exact: bool) -> FoundRow:
    kind, _, key = entity.partition(":")
    return FoundRow("gai", Entity(entity, kind, name), kind, "id", key, "erp", {}, exact)


@each_of(("similarity", "confidence"), [(0.7, 0.70), (0.82, 0.76), (0.72, 0.71), (0.85, 0.775), (1.0, 0.85)])
def test_fuzzy_confidence_spans_the_seeds_range(similarity: float, confidence: float) -> None:
    """Seed 004: "0.70-0.85". Its formula, 0.7 · similarity, would give 0.574 for its own example of 0.82."""
    assert fuzzy_confidence(similarity) == pytest.approx(confidence)


@each_of(("distance", "confidence"), [(1, 0.60), (2, 0.3639), (3, 0.2207), (10, 0.00667)])
def test_coreference_decays_with_the_distance(distance: int, confidence: float) -> None:
    """Seed 004: 0.60, "score = exp(-0.5 * message_distance)"; the message before has all of the 0.60."""
    assert coreference_confidence(distance) == pytest.approx(confidence, rel=1e-3)


def test_an_alias_is_ranked_by_confidence_and_uses() -> None:
    """Seed 004: confidence * (1 + log(1 + use_count) * 0.1)."""
    assert alias_rank(alias("a:1", 0.95, 1), NOW) == pytest.approx(0.95 * (1 + 0.1 * math.log(2)))
    assert alias_rank(alias("a:1", 0.8, 20), NOW) == pytest.approx(0.8 * 1.30445, rel=1e-4)
    assert alias_rank(alias("a:1", 0.8, 20), NOW) > alias_rank(alias("b:1", 0.95, 1), NOW), "often used beats sure"


def test_an_alias_fades_unless_the_domain_calls_a_thing_so() -> None:
    assert faded(0.85, NOW - timedelta(days=30), NOW) == pytest.approx(0.63, abs=0.005)
    assert faded(0.85, NOW + timedelta(days=1), NOW) == 0.85
    assert faded(0.85, None, NOW) == 0.85
    old = alias("a:1", 0.8, days=365)
    assert alias_rank(old, NOW) < 0.03
    assert alias_rank(old._replace(source="domain_db"), NOW) == pytest.approx(0.8 * (1 + 0.1 * math.log(2)))


def test_a_name_is_exact_and_comes_before_an_alias() -> None:
    outcome = known([alias("b:1", 0.98, own=True), match("name", "a:1", "Gai")], NOW)
    assert outcome is not None
    assert (outcome.method, outcome.clear, outcome.best.entity.id, outcome.best.confidence) == (
        "exact",
        True,
        "a:1",
        1.0,
    )


def test_two_of_one_name_are_ambiguous_until_the_user_says_which() -> None:
    two = [match("name", "a:2", "Gai"), match("name", "a:1", "Gai")]
    outcome = known(two, NOW)
    assert outcome is not None
    assert not outcome.clear
    assert [each.entity.id for each in outcome.options] == ["a:1", "a:2"], "in an order that stays"
    said = known([*two, alias("a:2", 0.85, own=True, source="user_stated")], NOW)
    assert said is not None
    assert (said.method, said.clear, said.best.entity.id) == ("known_alias", True, "a:2")
    other = known([*two, alias("a:2", 0.85, own=False, source="user_stated")], NOW)
    assert other is not None
    assert not other.clear, "somebody else said so"


def test_the_users_own_thing_hides_the_tenants_of_the_same_id() -> None:
    outcome = known([match("name", "a:1", "Gai"), match("name", "a:1", "Gai!", own=True)], NOW)
    assert outcome is not None
    assert outcome.clear
    assert outcome.best.entity.name == "Gai!"


def test_a_users_alias_comes_before_the_tenants_and_what_was_stated_before_what_was_learned() -> None:
    tenants, own = alias("a:1", 0.98, 100), alias("b:1", 0.7, own=True)
    stated = alias("c:1", 0.5, own=True, source="user_stated")
    outcome = known([tenants, own], NOW)
    assert outcome is not None
    assert (outcome.best.entity.id, outcome.clear, outcome.alias) == ("b:1", True, (own,))
    last = known([tenants, own, stated], NOW)
    assert last is not None
    assert last.best.entity.id == "c:1"


def test_aliases_that_rank_close_are_ambiguous() -> None:
    close = known([alias("a:1", 0.95), alias("b:1", 0.90)], NOW)
    assert close is not None
    assert (close.clear, len(close.options), close.alias) == (False, 2, ())
    apart = known([alias("a:1", 0.95), alias("b:1", 0.80)], NOW)
    assert apart is not None
    assert apart.clear


def test_an_alias_is_never_surer_than_the_seed_says() -> None:
    outcome = known([alias("a:1", 0.98, 10_000)], NOW)
    assert outcome is not None
    assert outcome.best.confidence == SHIPPED.alias == 0.95
    seldom = known([alias("a:1", 0.7)], NOW)
    assert seldom is not None
    assert seldom.best.confidence == pytest.approx(0.7 * (1 + 0.1 * math.log(2)))


def test_nothing_known() -> None:
    assert known([], NOW) is None
    assert near("gai", []) is None
    assert discovered("gai", []) is None


def test_the_seeds_two_candidates_are_put_to_the_user() -> None:
    """Seed 004, stage 3: "Gai Media" (0.82) and "Gail Industries" (0.72), which goes to stage 5."""
    outcome = near(
        "gai",
        [match("near", "c:2", "Gail Industries", similarity=0.72), match("near", "c:1", "Gai Media", similarity=0.82)],
    )
    assert outcome is not None
    assert not outcome.clear
    assert [each.entity.name for each in outcome.options] == ["Gai Media", "Gail Industries"]
    assert [each.confidence for each in outcome.options] == pytest.approx([0.76, 0.71])


def test_one_that_is_much_nearer_is_meant() -> None:
    outcome = near("gai", [match("near", "c:1", "Gai", similarity=0.95), match("near", "c:2", "Gail", similarity=0.72)])
    assert outcome is not None
    assert outcome.clear


def test_similarity_must_be_above_the_bar() -> None:
    assert near("gai", [match("near", "c:1", "Gai Media", similarity=0.7)]) is None


def test_a_number_is_never_nearly_another_number() -> None:
    rows = [match("near", "s:1", "INV-2024-00123", similarity=0.8)]
    assert near("inv-2024-00124", rows) is None
    assert near("inv-2024-00123", rows) is not None
    assert near("acme store", [match("near", "s:1", "Acme Store 12", similarity=0.8)]) is not None


def test_first_words_are_the_least_of_similarities() -> None:
    outcome = near("gai", [match("part", "c:1", "Gai Media"), match("near", "c:2", "Gail", similarity=0.95)])
    assert outcome is not None
    assert (outcome.clear, outcome.best.entity.id) == (True, "c:2")
    alone = near("gai", [match("part", "c:1", "Gai Media"), match("part", "c:2", "Gai Logistics")])
    assert alone is not None
    assert (alone.clear, alone.best.confidence) == (False, 0.70)


def test_what_the_domain_has_by_key_comes_before_what_it_has_by_name() -> None:
    outcome = discovered("gai", [found("c:1", "Gai Media", exact=False), found("o:gai", "Order gai", exact=True)])
    assert outcome is not None
    assert (outcome.clear, outcome.best.entity.id, outcome.best.confidence) == (True, "o:gai", 0.95)


def test_of_several_names_the_whole_one_is_meant() -> None:
    outcome = discovered("gai", [found("c:1", "Gai Media", exact=False), found("c:2", "GAI", exact=False)])
    assert outcome is not None
    assert (outcome.clear, outcome.best.entity.id, outcome.best.confidence) == (True, "c:2", 0.8)
    several = discovered("gai", [found("c:2", "Gai Two", exact=False), found("c:1", "Gai One", exact=False)])
    assert several is not None
    assert not several.clear
    assert [each.entity.name for each in several.options] == ["Gai One", "Gai Two"]


def test_alternatives_are_few() -> None:
    outcome = discovered("gai", [found(f"c:{n}", f"Gai {n}", exact=False) for n in range(50)])
    assert outcome is not None
    assert len(outcome.options) == len(outcome.found) == rank.MAX_ALTERNATIVES == 5
