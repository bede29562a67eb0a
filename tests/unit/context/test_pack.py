from __future__ import annotations

import random
from collections import Counter
from typing import Literal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.context.assemble import BlockMeter
from app.context.candidates import Candidate
from app.context.pack import UNDEFINED, Packed, PlainMeter, Reason, Suffix, efficiency, history_suffix, pack
from app.context.score import Scored
from tests.support.context_samples import memory, message, scored, source
from tests.support.tables import each_of


def ids(packed: Packed) -> list[int]:
    return [each.id.int for each in packed.candidates]


def fate(packed: Packed) -> dict[int, str]:
    return {each.item.candidate.id.int: each.reason.value for each in packed.dropped}


def test_efficiency_order_of_seed_000_section_6_3() -> None:
    """η = s/w is 0.015, 0.09 and 0.02: the dear one comes last, though its score is as high as any."""
    items = [
        scored(memory(1, token_count=60), 0.9),
        scored(memory(2, token_count=10), 0.9),
        scored(memory(3, token_count=40), 0.8),
    ]
    assert ids(pack(items, 60, PlainMeter())) == [2, 3]
    assert ids(pack(items, 60, PlainMeter(), order="score")) == [1]
    assert ids(pack(items, 70, PlainMeter(), order="score")) == [1, 2]


def test_what_does_not_fit_is_skipped_and_packing_goes_on() -> None:
    items = [scored(memory(i, token_count=t), s) for i, t, s in ((1, 50, 0.9), (2, 60, 0.8), (3, 45, 0.7), (4, 5, 0.1))]
    packed = pack(items, 100, PlainMeter(), order="score")
    assert ids(packed) == [1, 3, 4]
    assert packed.tokens == 100
    assert fate(packed) == {2: "over_budget"}


def test_the_same_words_go_in_once() -> None:
    packed = pack([scored(memory(1, "Likes tea."), 0.9), scored(message(2, "Likes tea."), 0.8)], 100, PlainMeter())
    assert ids(packed) == [1]
    [verdict] = packed.dropped
    assert (verdict.reason, verdict.because_of) == (Reason.DUPLICATE, UUID(int=1))


def test_items_without_a_hash_are_no_twins() -> None:
    items = [scored(memory(1, content_hash=b""), 0.9), scored(memory(2, content_hash=b""), 0.8)]
    assert ids(pack(items, 100, PlainMeter())) == [1, 2]


DERIVED = memory(1, "Likes tea.", token_count=5, provenance=(source(7),))
RAW = message(7, "By the way, I like tea, but not in the morning.", token_count=15)


def test_a_memory_after_its_only_source_is_a_duplicate() -> None:
    packed = pack([scored(RAW, 0.9), scored(DERIVED, 0.8)], 100, PlainMeter(), order="score")
    assert ids(packed) == [7]
    assert packed.dropped[0].because_of == RAW.id


def test_a_source_takes_the_place_of_its_memory() -> None:
    packed = pack([scored(RAW, 0.8), scored(DERIVED, 0.9)], 15, PlainMeter(), order="score")
    assert ids(packed) == [7]
    assert packed.tokens == 15
    assert fate(packed) == {1: "duplicate"}


def test_a_source_that_does_not_fit_leaves_its_memory_in_place() -> None:
    packed = pack([scored(RAW, 0.8), scored(DERIVED, 0.9)], 14, PlainMeter(), order="score")
    assert ids(packed) == [1]
    assert packed.tokens == 5
    assert fate(packed) == {7: "over_budget"}


def test_a_source_word_for_word_takes_the_place_of_its_memory() -> None:
    raw = message(7, DERIVED.text)
    assert ids(pack([scored(raw, 0.8), scored(DERIVED, 0.9)], 100, PlainMeter(), order="score")) == [7]


def test_a_memory_with_two_sources_stays_beside_one_of_them() -> None:
    both = memory(1, provenance=(source(7), source(8)))
    assert sorted(ids(pack([scored(RAW, 0.8), scored(both, 0.9)], 100, PlainMeter()))) == [1, 7]


def test_what_must_not_or_need_not_go_in() -> None:
    items = [
        scored(memory(1), 0.9),
        scored(memory(2, provenance=(source(20),)), 0.9),
        scored(memory(3), 0.9),
        scored(memory(4, provenance=(source(40),)), 0.9),
        scored(memory(5, "said already"), 0.9),
        scored(memory(7), 0.2),
    ]
    packed = pack(
        items,
        1000,
        PlainMeter(),
        suppressed={UUID(int=1), UUID(int=20)},
        visible={UUID(int=3), UUID(int=40)},
        visible_hashes={items[4].candidate.content_hash},
    )
    assert ids(packed) == [7]
    assert fate(packed) == {
        1: "suppressed",
        2: "suppressed",
        3: "visible",
        4: "visible",
        5: "visible",
    }
    assert [each.candidate.id.int for each in packed.eligible] == [7]


def test_limit() -> None:
    packed = pack([scored(memory(i), 1 / i) for i in range(1, 6)], 1000, PlainMeter(), limit=2)
    assert ids(packed) == [1, 2]
    assert set(fate(packed).values()) == {"over_budget"}


def test_summaries_have_a_part_of_the_budget() -> None:
    digests = [memory(n, kind="summary", token_count=40) for n in (1, 2, 3)]
    plain = memory(4, token_count=40)
    packed = pack(
        [scored(each, 1.0 / n) for n, each in enumerate((*digests, plain), 1)],
        200,
        PlainMeter(),
        order="score",
        digests=90,
    )
    assert ids(packed) == [1, 2, 4]
    assert fate(packed) == {3: "over_budget"}
    # One that makes room for its only source gives its part back.
    alone = memory(5, kind="summary", token_count=60, provenance=(source(6),))
    other = memory(7, kind="summary", token_count=60)
    packed = pack(
        [scored(alone, 3.0), scored(message(6), 2.0), scored(other, 1.0)], 200, PlainMeter(), order="score", digests=70
    )
    assert ids(packed) == [6, 7]


@st.composite
def pools(draw: st.DrawFn) -> list[Scored]:
    pool = []
    for number in range(1, draw(st.integers(0, 14)) + 1):
        tokens, text = draw(st.integers(0, 80)), draw(st.sampled_from(["", "", "", "a", "b"]))
        origin = tuple(source(each) for each in draw(st.lists(st.integers(1, 14), max_size=2)))
        item = (
            message(number, text, token_count=tokens, session_id=UUID(int=number % 3))
            if draw(st.booleans())
            else memory(100 + number, text, token_count=tokens, provenance=origin)
        )
        pool.append(scored(item, draw(st.sampled_from([0.1, 0.5, 0.5, 0.9, -0.2]))))
    return pool


@given(pools(), st.integers(0, 300), st.sampled_from(["efficiency", "score"]), st.booleans(), st.randoms())
def test_never_over_budget_and_the_same_whatever_the_order(
    pool: list[Scored],
    budget: int,
    order: Literal["efficiency", "score"],
    block: bool,
    rng: random.Random,
) -> None:
    def meter() -> BlockMeter | PlainMeter:
        return BlockMeter() if block else PlainMeter()

    packed = pack(pool, budget, meter(), order=order)
    assert packed.tokens <= budget
    fresh = meter()
    for each in packed.candidates:
        fresh.add(each)
    assert fresh.used == packed.tokens
    assert sum(each.token_count for each in packed.candidates) <= packed.tokens

    shuffled = list(pool)
    rng.shuffle(shuffled)
    assert pack(shuffled, budget, meter(), order=order) == packed

    everything = [each.candidate.id for each in packed.chosen] + [each.item.candidate.id for each in packed.dropped]
    assert Counter(everything) == Counter(each.candidate.id for each in pool)
    hashes = [each.content_hash for each in packed.candidates]
    assert len(hashes) == len(set(hashes))
    chosen = {each.id for each in packed.candidates}
    assert all(each.origin not in chosen for each in packed.candidates)


@given(pools(), st.integers(0, 300))
def test_what_was_left_out_for_room_would_not_fit(pool: list[Scored], budget: int) -> None:
    """Skipping and going on: but for memories that gave their room back, nothing that still fits is left."""
    packed = pack(pool, budget, PlainMeter())
    if any(each.because_of and each.reason is Reason.DUPLICATE for each in packed.dropped):
        return
    for each in packed.dropped:
        if each.reason is Reason.OVER_BUDGET:
            assert packed.tokens + each.item.candidate.token_count > budget


# --- history ---------------------------------------------------------------------------------------------------------


@each_of(
    ("counts", "budget", "start"),
    [
        ([10, 20, 30, 40], 100, 0),
        ([10, 20, 30, 40], 99, 1),
        ([10, 20, 30, 40], 70, 2),
        ([10, 20, 30, 40], 69, 3),
        ([10, 20, 30, 40], 39, 4),
        ([], 100, 0),
        ([10, 0, 0], 0, 1),
    ],
)
def test_the_largest_k_of_seed_000_section_6_3(counts: list[int], budget: int, start: int) -> None:
    assert history_suffix(counts, budget, False) == Suffix(start, 0, sum(counts[start:]))


TURNS = ["user", "assistant"] * 3


@each_of(
    ("counts", "budget", "expected"),
    [
        ([10] * 6, 60, Suffix(0, 0, 60)),
        ([10] * 6, 59, Suffix(4, 2, 40)),  # the first turn and the last
        ([10] * 6, 40, Suffix(4, 2, 40)),
        ([10] * 6, 39, Suffix(4, 0, 20)),  # the first does not fit beside the last
        ([90] + [10] * 5, 100, Suffix(2, 0, 40)),
        ([10] * 5 + [90], 50, Suffix(6, 0, 0)),
    ],
)
def test_the_first_turn_is_kept_if_it_fits(counts: list[int], budget: int, expected: Suffix) -> None:
    assert history_suffix(counts, budget, True, roles=TURNS) == expected


def test_a_tool_loop_is_not_cut() -> None:
    roles = ["user", "assistant", "user", "assistant", "tool", "tool", "assistant", "user"]
    counts = [10] * 8
    assert history_suffix(counts, 45, False, roles=roles).start == 7
    assert history_suffix(counts, 60, False, roles=roles).start == 2


def test_a_suffix_without_a_user_message_begins_at_a_call() -> None:
    roles = ["user", "assistant", "tool", "assistant", "tool", "assistant", "tool"]
    assert history_suffix([10] * 7, 55, False, roles=roles) == Suffix(3, 0, 40)
    assert history_suffix([10] * 7, 10, False, roles=roles) == Suffix(7, 0, 0)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.sampled_from(["user", "assistant", "tool"])), max_size=12),
    st.integers(0, 300),
    st.booleans(),
    st.booleans(),
)
def test_history_is_never_over_budget(
    messages: list[tuple[int, str]], budget: int, keep_first: bool, with_roles: bool
) -> None:
    counts, roles = [each[0] for each in messages], [each[1] for each in messages]
    start, first, tokens = history_suffix(counts, budget, keep_first, roles=roles if with_roles else None)
    assert 0 <= first <= start <= len(counts)
    assert tokens == sum(counts[:first]) + sum(counts[start:]) <= budget
    if with_roles and 0 < start < len(counts):
        assert roles[start] != "tool"


# --- η ---------------------------------------------------------------------------------------------------------------


@each_of(
    "budget, chosen, quality, fill",
    [
        (100, [1, 2], 69 / 77, 0.9),
        (1_500, [1, 2], 69 / 77, 0.06),
        (130, [1, 2, 3], 1.0, 1.0),
        (100_000, [1, 2, 3], 1.0, 0.0013),
        (60, [1], 54 / 77, 1.0),
        (100, [3], 8 / 77, 0.4),
        (100, [], 0.0, 0.0),
    ],
)
def test_efficiency_of_seed_000_section_8_4(budget: int, chosen: list[int], quality: float, fill: float) -> None:
    """η = Σ_selected s·w ÷ Σ_all s·w · Σ_selected w ÷ B, with nothing taken off B."""
    items = {
        1: scored(memory(1, token_count=60), 0.9),
        2: scored(memory(2, token_count=30), 0.5),
        3: scored(memory(3, token_count=40), 0.2),
    }
    for worthy in (None, [items[number] for number in chosen]):
        for spent in (None, 9_999):
            found = efficiency([items[number] for number in chosen], items.values(), budget, spent, worthy)
            assert found.quality == pytest.approx(quality)
            assert found.fill == pytest.approx(fill)
            assert found.eta == pytest.approx(quality * fill)


def test_candidates_that_were_not_fetched_count_in_the_denominator() -> None:
    item = scored(memory(1, token_count=60), 0.9)
    found = efficiency([item], [item], 120, beyond=[(0.1, 60)])
    assert found.quality == pytest.approx(54 / 60)
    assert found.fill == pytest.approx(0.5)
    assert efficiency([], [], 120, beyond=[(0.1, 60)]).eta == 0


def test_without_candidates_or_budget_there_is_no_efficiency() -> None:
    items = [scored(memory(1, token_count=10), 0.5)]
    assert efficiency([], [], 100) == UNDEFINED
    assert efficiency([], items, 0) == UNDEFINED


def test_what_is_worth_its_tokens_bounds_what_can_be_attained() -> None:
    items = [
        scored(memory(1, token_count=60), 0.9),
        scored(memory(2, token_count=30), 0.5),
        scored(memory(3, token_count=40), 0.95),
    ]
    found = efficiency(items[:2], items, 1500, worthy=items[:2])
    assert found.eta_of_worthy == pytest.approx((54 + 15) / (54 + 15 + 38)), "what was worth showing is shown"
    assert found.attainable == pytest.approx((54 + 15) / (38 + 0.9 * 50)), "a better one was left out"
    nothing_worthy = efficiency([], items, 1500, worthy=[])
    assert (nothing_worthy.eta, nothing_worthy.eta_of_worthy, nothing_worthy.attainable) == (0, 1, 1)


def test_a_budget_that_holds_everything_is_used_as_well_as_it_can_be() -> None:
    items = [scored(memory(i, token_count=10), 0.5) for i in range(1, 4)]
    for spent in (None, 90):
        found = efficiency(items, items, 100_000, spent)
        assert found.eta == pytest.approx(0.0003)
        assert (found.eta_of_worthy, found.attainable) == (1, 1)
    assert efficiency(items[:1], items, 25, spent=20).attainable == pytest.approx(10 / 25 * 0.8)


@given(pools(), st.integers(0, 300))
def test_efficiency_is_a_share(pool: list[Scored], budget: int) -> None:
    packed = pack(pool, budget, PlainMeter())
    found = efficiency(packed.chosen, packed.eligible, budget)
    if found == UNDEFINED:
        assert budget == 0 or not packed.eligible
        return
    assert all(figure is not None and 0 <= figure <= 1 + 1e-9 for figure in found)
    eta, *_, of_worthy, attainable = (figure or 0.0 for figure in found)
    assert eta <= of_worthy + 1e-9 <= attainable + 2e-9


def test_meters_agree_with_the_stored_counts() -> None:
    meter = PlainMeter()
    items: list[Candidate] = [memory(1, token_count=7), memory(2, token_count=5)]
    for each in items:
        assert meter.cost(each) == each.token_count
        meter.add(each)
    meter.remove(items[0])
    assert meter.used == 5


def test_what_is_outranked_is_dropped_and_the_message_that_says_it_is_not() -> None:
    said = message(1, "Gai Media pays NET30")
    noted = memory(2, "Gai Media pays NET30 since June", provenance=[source(1)])
    packed = pack([scored(noted, 0.9), scored(said, 0.5)], 1000, PlainMeter(), outranked={noted.id})
    assert [each.candidate.id for each in packed.chosen] == [said.id]
    assert [(each.item.candidate.id, each.reason) for each in packed.dropped] == [(noted.id, "outranked")]
    assert noted.id not in {each.candidate.id for each in packed.eligible}
