"""The choice where a token has a price: scores are likelihoods."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.context.pack import Packed, PlainMeter, pack
from app.context.score import Scored
from app.context.worth import Rate
from tests.support.context_samples import memory, message, scored, source

PRICE = 0.5e-3  # and an item costs 65 tokens at least
AMPLE = 10_000


def packed(*items: Scored, price: float = PRICE, share: float = 0.0, told: tuple[str, ...] = ()) -> Packed:
    return pack(items, AMPLE, PlainMeter(), order="score", price=Rate(price, share), told=told)


def chosen(found: Packed) -> list[int]:
    return [each.id.int for each in found.candidates]


def fate(found: Packed) -> dict[int, str]:
    return {each.item.candidate.id.int: each.reason.value for each in found.dropped}


def test_what_is_not_worth_its_tokens_is_left_out() -> None:
    found = packed(scored(message(1, "one", token_count=40), 0.05), scored(message(2, "two", token_count=40), 0.03))
    assert chosen(found) == [1]
    assert fate(found) == {2: "below_floor"}


def test_nothing_may_be_worth_it() -> None:
    assert chosen(packed(scored(message(1, token_count=40), 0.01))) == []


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(1, 200)), max_size=20), st.floats(1e-5, 1e-2), st.floats(1, 9))
def test_a_dearer_token_buys_no_more(pool: list[tuple[float, int]], price: float, times: float) -> None:
    items = [scored(message(n, f"item{n}", token_count=tokens), p) for n, (p, tokens) in enumerate(pool, 1)]
    cheap, dear = (packed(*items, price=each) for each in (price, price * times))
    assert set(chosen(dear)) <= set(chosen(cheap))
    assert dear.tokens <= cheap.tokens


def test_beside_a_sure_answer_what_only_might_be_one_is_left_out() -> None:
    sure, perhaps = scored(message(1, "one", token_count=9), 0.9), scored(message(2, "two", token_count=9), 0.05)
    assert chosen(packed(sure, perhaps, share=0.1)) == [1]
    assert chosen(packed(perhaps, share=0.1)) == [2]


def test_what_repeats_a_chosen_item_is_worth_what_it_adds() -> None:
    first = scored(message(1, "The key of the shed hangs behind the kitchen door", token_count=12), 0.5)
    again = scored(message(2, "The key hangs behind the kitchen door", token_count=9), 0.05)
    other = scored(message(3, "The ladder lies beside the old barn wall", token_count=9), 0.05)
    assert chosen(packed(first, again, other)) == [1, 3]
    assert chosen(packed(again, other)) == [2, 3]


def test_what_repeats_a_line_that_is_there_is_worth_what_it_adds() -> None:
    item = scored(message(1, "The key hangs behind the kitchen door", token_count=9), 0.05)
    assert chosen(packed(item, told=("- The key of the shed hangs behind the kitchen door (2026-11-20)",))) == []
    assert chosen(packed(item, told=("- The ladder lies beside the barn",))) == [1]
    assert chosen(pack([item], AMPLE, PlainMeter(), told=(item.candidate.text,))) == [1], (
        "without a price all is filled"
    )


def test_of_a_memory_and_its_message_the_shorter_stays() -> None:
    """Which one was likelier first decides; without a price the message takes the memory's place."""
    item = memory(2, "The key hangs behind the door", token_count=7, provenance=[source(1)])
    told = message(1, "I always hang the key of the shed behind the kitchen door, you know", token_count=15)
    assert chosen(packed(scored(item, 0.5), scored(told, 0.4))) == [2]
    assert fate(packed(scored(item, 0.5), scored(told, 0.4))) == {1: "duplicate"}
    assert fate(packed(scored(item, 0.4), scored(told, 0.5))) == {2: "duplicate"}
    assert chosen(pack([scored(item, 0.5), scored(told, 0.4)], AMPLE, PlainMeter(), order="score")) == [1]
