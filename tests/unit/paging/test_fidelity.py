"""The policy: what is degraded and restored, and when it is left alone."""

from __future__ import annotations

import random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.features.paging.fidelity import MIN_BATCH, TARGET, Decision, Moment, applied, decide, related, worth
from app.features.paging.values import Fidelity, Relationship, RelationType, SemanticObject, Trigger, Zone, shown_tokens
from tests.support.properties import examples
from tests.support.tables import each_of
from tests.unit.paging.made import sized

BUDGET = 100_000


def after(
    objects: list[SemanticObject], moment: Moment, relations: list[Relationship] | None = None
) -> dict[UUID, Fidelity]:
    decision = decide(objects, relations or [], moment)
    return {each.id: each.fidelity for each in applied(objects, decision, moment)}


def test_the_seeds_example() -> None:
    """Seed 002 §3.2: 78,000 of 100,000 tokens, WARNING: the oldest L0 objects that were not used in the last three
    turns go to L1, oldest first."""
    objects = [sized(i, 13_000, turn=i) for i in range(6)]
    moment = Moment(turn=6, budget=BUDGET, other_tokens=0)
    decision = decide(objects, [], moment)
    assert [(each.object_id, each.before, each.after) for each in decision.transitions] == [
        (objects[i].id, Fidelity.FULL, Fidelity.DETAILED) for i in range(4)
    ], "not those of the last turns"
    assert {each.trigger for each in decision.transitions} == {Trigger.PRESSURE}
    assert decision.transitions[0].token_count == 78_000
    assert decision.zone == Zone.NORMAL
    assert decision.tokens < 45_000


PRESSED: dict[str, tuple[int, Zone, Zone]] = {
    "warning, from normal": (78_000, Zone.NORMAL, Zone.WARNING),
    "warning, from caution": (75_000, Zone.CAUTION, Zone.WARNING),
    "warning, not left yet": (71_000, Zone.WARNING, Zone.WARNING),
    "critical, past caution": (88_000, Zone.NORMAL, Zone.CRITICAL),
    "critical, not left yet": (81_000, Zone.CRITICAL, Zone.CRITICAL),
    "emergency, past all": (97_000, Zone.NORMAL, Zone.EMERGENCY),
    "emergency, over the budget": (140_000, Zone.WARNING, Zone.EMERGENCY),
}


@each_of("name", PRESSED)
def test_a_transition_has_the_zone_and_the_tokens_that_caused_it(name: str) -> None:
    """Seed 002 §1.5: a transition has the zone and the total tokens from before it, not from after it."""
    tokens, before, caused_by = PRESSED[name]
    objects = [sized(i, tokens // 10) for i in range(10)]
    moment = Moment(turn=9, budget=BUDGET, other_tokens=tokens - sum(made.tokens_l0 for made in objects), zone=before)
    decision = decide(objects, [], moment)
    assert decision.transitions
    assert {(change.zone, change.token_count) for change in decision.transitions} == {(caused_by, tokens)}
    assert decision.zone in (Zone.NORMAL, Zone.CAUTION), "the next decision is told of the prompt as it goes out"


def test_what_comes_back_and_what_makes_room_for_it_have_their_own_causes() -> None:
    stub = sized(0, 30_000, fidelity=Fidelity.STUB)
    stub_tokens = shown_tokens(stub, Fidelity.STUB)
    objects = [stub, *(sized(i, 14_000) for i in range(1, 6))]
    moment = Moment(turn=30, budget=BUDGET, other_tokens=0, restored=frozenset([stub.id]))
    changes = decide(objects, [], moment).transitions
    causes = {change.trigger: (change.zone, change.token_count) for change in changes}
    assert causes == {
        Trigger.FAULT: (Zone.CAUTION, 70_000 + stub_tokens),
        Trigger.PRESSURE: (Zone.EMERGENCY, 100_000),
    }
    given_back = Moment(turn=1, budget=BUDGET, other_tokens=60_000, released=frozenset([objects[1].id]))
    (moved,) = decide(objects[1:2], [], given_back).transitions
    assert (moved.trigger, moved.zone, moved.token_count) == (Trigger.COOPERATIVE, Zone.CAUTION, 74_000)


@each_of("tokens", [86_000, 90_000, 94_000, 99_000, 130_000])
def test_a_prompt_that_is_not_critical_any_more_is_taken_no_further_down(tokens: int) -> None:
    """Seed 002 §3.2: L0 to L1; pressure is recalculated, and only where it is still so high the next step follows. Half of the
    budget cannot be shortened here, so that no batch reaches its target."""
    objects = [sized(i, (tokens - 50_000) // 10) for i in range(10)]
    decision = decide(objects, [], Moment(turn=9, budget=BUDGET, other_tokens=50_000))
    assert {change.after for change in decision.transitions} <= {Fidelity.DETAILED, Fidelity.COMPACT}
    assert decision.tokens < 80_000
    crowded = decide(objects, [], Moment(turn=9, budget=BUDGET, other_tokens=84_000))
    assert max(change.after for change in crowded.transitions) >= Fidelity.STUB, "still critical after both steps"


@each_of("tokens", [76_000, 88_000, 97_000])
def test_a_batch_says_which_levels_it_lacks_in_its_order(tokens: int) -> None:
    objects = [sized(i, (tokens - 10_000) // 8, turn=8 - i, levels=False) for i in range(8)]
    decision = decide(objects, [], Moment(turn=20, budget=BUDGET, other_tokens=10_000))
    assert decision.lacking[:8] == tuple(made.id for made in reversed(objects)), "the oldest first"
    tried = [replace(made, shrunk=True) for made in objects]
    assert decide(tried, [], Moment(turn=20, budget=BUDGET, other_tokens=10_000)).lacking == ()
    assert decide(objects, [], Moment(turn=20, budget=10 * BUDGET, other_tokens=10_000)).lacking == ()


def test_l1_is_not_enough() -> None:
    objects = [sized(i, 8_000, turn=0) for i in range(9)]
    decision = decide(objects, [], Moment(turn=9, budget=BUDGET, other_tokens=9_000))
    levels = [each.after for each in decision.transitions]
    assert Fidelity.DETAILED in levels
    tighter = decide(objects, [], Moment(turn=9, budget=BUDGET, other_tokens=12_000))
    assert decision.tokens <= TARGET * BUDGET >= tighter.tokens
    tight = decide([sized(i, 8_000) for i in range(5)], [], Moment(turn=9, budget=BUDGET, other_tokens=40_000))
    assert Fidelity.COMPACT in {each.after for each in tight.transitions}


def test_nothing_changes_below_the_warning() -> None:
    objects = [sized(i, 7_000, turn=0) for i in range(10)]
    assert decide(objects, [], Moment(turn=50, budget=BUDGET, other_tokens=4_000)).transitions == ()
    assert decide([], [], Moment(turn=0, budget=BUDGET, other_tokens=90_000)).transitions == ()


def test_a_batch_that_frees_little_is_not_worth_the_prefix() -> None:
    little = [sized(0, int(BUDGET * MIN_BATCH), turn=0), sized(1, 60_000, turn=9)]
    assert decide(little, [], Moment(turn=10, budget=BUDGET, other_tokens=2_000)).transitions == ()
    enough = [sized(0, int(BUDGET * MIN_BATCH * 1.5), turn=0), sized(1, 60_000, turn=9)]
    assert len(decide(enough, [], Moment(turn=10, budget=BUDGET, other_tokens=0)).transitions) == 1


def test_pinned_and_used_and_relevant_ones_stay() -> None:
    objects = [sized(0, 10_000, pinned=True), sized(1, 10_000), sized(2, 50_000), sized(3, 6_000, turn=19)]
    moment = Moment(turn=20, budget=BUDGET, other_tokens=0, relevance={objects[1].id: 0.9})
    levels = after(objects, moment)
    assert levels[objects[0].id] == Fidelity.FULL
    assert levels[objects[3].id] == Fidelity.FULL
    assert levels[objects[1].id] == Fidelity.FULL
    assert levels[objects[2].id] == Fidelity.DETAILED
    one = Moment(turn=20, budget=BUDGET, other_tokens=0, accessed=frozenset([objects[2].id]))
    assert after(objects, one)[objects[2].id] == Fidelity.FULL


def test_worth_by_hand() -> None:
    assert worth(sized(0, 1, turn=0), 10) == 0.5
    assert worth(sized(0, 1, turn=5), 5, 0.25) == 1.25


def test_levels_that_were_not_made_are_passed_over() -> None:
    bare = [sized(i, 16_000, turn=0, levels=False) for i in range(5)]
    assert decide(bare, [], Moment(turn=9, budget=BUDGET, other_tokens=0)).transitions == ()
    critical = decide(bare, [], Moment(turn=9, budget=BUDGET, other_tokens=9_000))
    assert {each.after for each in critical.transitions} == {Fidelity.STUB}


def test_a_fault_restores_pins_and_raises_what_belongs_to_it() -> None:
    objects = [sized(i, 2_000, fidelity=Fidelity.STUB) for i in range(5)]
    ids = [each.id for each in objects]
    chain = [
        Relationship(ids[0], ids[1], RelationType.DEPENDS_ON),
        Relationship(ids[1], ids[2], RelationType.CAUSED_BY),
        Relationship(ids[2], ids[3], RelationType.REFERENCES),
        Relationship(ids[0], ids[4], RelationType.PARENT_OF),
    ]
    moment = Moment(turn=30, budget=BUDGET, other_tokens=0, restored=frozenset([ids[0]]))
    decision = decide(objects, chain, moment)
    assert [(each.object_id, each.after, each.trigger) for each in decision.transitions] == [
        (ids[0], Fidelity.FULL, Trigger.FAULT),
        (ids[1], Fidelity.DETAILED, Trigger.ACCESS),
        (ids[2], Fidelity.DETAILED, Trigger.ACCESS),
    ], "two hops, and only along the seed's three relations"
    assert decision.pinned == {ids[0]}
    first = applied(objects, decision, moment)[0]
    assert (first.pinned, first.pin_reason, first.fault_count, first.last_accessed) == (True, "fault", 1, 30)


def test_related_is_the_seeds_recursive_query() -> None:
    a, b, c, d = (UUID(int=i) for i in range(4))
    ring = [Relationship(x, y, RelationType.REFERENCES) for x, y in ((a, b), (b, c), (c, a), (c, d))]
    assert related([a], ring) == [b, c]
    assert related([a], ring, hops=3) == [b, c, d]


def test_a_fault_makes_room_by_others() -> None:
    objects = [sized(0, 30_000, fidelity=Fidelity.STUB), *(sized(i, 14_000) for i in range(1, 6))]
    moment = Moment(turn=30, budget=BUDGET, other_tokens=0, restored=frozenset([objects[0].id]))
    decision = decide(objects, [], moment)
    assert after(objects, moment)[objects[0].id] == Fidelity.FULL
    assert decision.tokens <= BUDGET
    assert any(each.trigger == Trigger.PRESSURE for each in decision.transitions)


def test_what_is_named_comes_back_as_far_as_there_is_room() -> None:
    objects = [sized(0, 10_000, fidelity=Fidelity.STUB), sized(1, 1_000)]
    named = frozenset([objects[0].id])
    for other, level in (
        (0, Fidelity.FULL),
        (54_000, Fidelity.DETAILED),
        (58_000, Fidelity.COMPACT),
        (70_000, Fidelity.STUB),
    ):
        moment = Moment(turn=9, budget=BUDGET, other_tokens=other, accessed=named)
        assert after(objects, moment)[objects[0].id] == level


def test_a_new_goal_brings_back_what_is_relevant() -> None:
    objects = [sized(i, 1_000, fidelity=Fidelity.COMPACT) for i in range(5)]
    relevance = {each.id: score for each, score in zip(objects, (0.9, 0.1, 0.7, 0.65, 0.61), strict=True)}
    same = Moment(turn=9, budget=BUDGET, other_tokens=0, relevance=relevance)
    assert decide(objects, [], same).transitions == ()
    new = Moment(turn=9, budget=BUDGET, other_tokens=0, relevance=relevance, goal_changed=True)
    found = decide(objects, [], new).transitions
    assert [each.object_id for each in found] == [objects[0].id, objects[2].id, objects[3].id]
    assert {each.trigger for each in found} == {Trigger.GOAL_CHANGE}


def test_several_questions_raise_an_object_by_one_level() -> None:
    for level, levels, better in ((4, True, 3), (3, True, 2), (2, True, 1), (1, True, 0), (3, False, 0)):
        objects = [sized(0, 1_000, fidelity=Fidelity(level), levels=levels)]
        moment = Moment(turn=9, budget=BUDGET, other_tokens=0, raised=frozenset([objects[0].id]))
        found = decide(objects, [], moment).transitions
        assert [(each.after, each.trigger) for each in found] == [(Fidelity(better), Trigger.FAULT)]
    full = [sized(0, 1_000)]
    assert (
        decide(full, [], Moment(turn=9, budget=BUDGET, other_tokens=0, raised=frozenset([full[0].id]))).transitions
        == ()
    )


def test_the_model_gives_an_object_back() -> None:
    objects = [sized(0, 1_000)]
    found = decide(objects, [], Moment(turn=1, budget=BUDGET, other_tokens=0, released=frozenset([objects[0].id])))
    assert [(each.after, each.trigger) for each in found.transitions] == [(Fidelity.STUB, Trigger.COOPERATIVE)]


def test_what_was_read_again_goes_first_and_to_its_stub() -> None:
    """Seed 002 §3.1, step 5, with the next batch: at once only if it is worth one by itself."""
    objects = [sized(i, 20_000, turn=i) for i in range(4)]
    again = [Relationship(objects[3].id, objects[2].id, RelationType.SUPERSEDES)]
    calm = Moment(turn=4, budget=10 * BUDGET, other_tokens=0)
    assert decide(objects, again, calm).transitions == ()
    full = Moment(turn=4, budget=BUDGET, other_tokens=0)
    found = {each.object_id: each.after for each in decide(objects, again, full).transitions}
    assert found[objects[2].id] == Fidelity.STUB
    asked = Moment(turn=4, budget=BUDGET, other_tokens=0, restored=frozenset([objects[2].id]))
    assert after(objects, asked, again)[objects[2].id] == Fidelity.FULL, "the model wants just the old one"
    alone = Moment(turn=4, budget=120_000, other_tokens=-10_000)
    assert [each.object_id for each in decide(objects, again, alone).transitions] == [objects[2].id]


@pytest.mark.parametrize("kind", ["pinned", "recent", "one"])
def test_in_an_emergency_nobody_is_spared(kind: str) -> None:
    turn = 0 if kind == "pinned" else 9
    objects = [
        sized(i, 130_000 if kind == "one" else 30_000, turn=turn, pinned=kind == "pinned")
        for i in range(1 if kind == "one" else 4)
    ]
    decision = decide(objects, [], Moment(turn=9, budget=BUDGET, other_tokens=1_000))
    assert decision.transitions
    assert decision.tokens <= 0.85 * BUDGET


def session(budget: int, turns: int, mean: int, seed: int, batched: bool = True) -> tuple[int, list[Decision]]:
    """Turns with a transition, and all decisions, of a session that grows by one tool result a turn."""
    chance = random.Random(seed)
    objects: list[SemanticObject] = []
    zone = Zone.NORMAL
    found: list[Decision] = []
    for turn in range(turns):
        objects.append(sized(turn, 200 + int(mean * 0.73 * chance.lognormvariate(0, 0.8)), turn=turn))
        moment = Moment(turn=turn, budget=budget, other_tokens=2_500 + 40 * turn, zone=zone)
        found.append(decide(objects, [], moment))
        objects, zone = applied(objects, found[-1], moment), found[-1].zone
        shown = moment.other_tokens + sum(shown_tokens(each, each.fidelity) for each in objects)
        assert shown == found[-1].tokens <= budget
    return sum(bool(each.transitions) for each in found), found


@examples(12)
@given(st.integers(0, 10_000), st.sampled_from([64_000, 100_000, 128_000, 200_000]))
def test_over_100_turns_of_growth_the_prefix_seldom_breaks(seed: int, budget: int) -> None:
    changes, _ = session(budget, 100, 2_600, seed)
    assert changes <= (20 if budget < 100_000 else 12), "where a result is a 25th of the window, or less"


@examples(10)
@given(st.integers(0, 10_000))
def test_a_small_window_is_never_exceeded(seed: int) -> None:
    changes, _ = session(32_000, 150, 2_600, seed)
    assert changes <= 60, "two of five turns, where a result is a twelfth of the window"


@examples(60)
@given(
    st.lists(
        st.tuples(st.integers(100, 60_000), st.integers(0, 12), st.booleans(), st.booleans(), st.integers(0, 4)),
        max_size=25,
    ),
    st.integers(0, 20_000),
)
def test_any_objects_fit_and_decisions_repeat(rows: list[tuple[int, int, bool, bool, int]], other: int) -> None:
    objects = [
        sized(
            i, tokens, turn=turn, pinned=pinned, levels=levels, fidelity=Fidelity(level if levels or level > 2 else 0)
        )
        for i, (tokens, turn, pinned, levels, level) in enumerate(rows)
    ]
    moment = Moment(turn=12, budget=32_000, other_tokens=other)
    decision = decide(objects, [], moment)
    assert decision.tokens <= 32_000
    assert decide(objects, [], moment) == decision
    assert len({each.object_id for each in decision.transitions}) == len(decision.transitions)
    settled = applied(objects, decision, moment)
    assert sum(shown_tokens(each, each.fidelity) for each in settled) + other == decision.tokens
    assert all(each.has(each.fidelity) for each in settled)
