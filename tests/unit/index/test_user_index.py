"""The index against the same in plain Python, whatever comes and goes in whatever order."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from app.context.rank import rank
from app.index import user_index
from app.index.analyse import VERSION, Term, asked, pack
from app.index.user_index import ENDED, LOCAL, NEVER, SUPERSEDED, WORDS, FurtherItems, ItemRow, UserIndex
from app.store.item_columns import PLACE, Scan
from tests.support.properties import examples

DIMENSIONS = 8
VOCABULARY = ["apple", "bridge", "cloud", "delta", "ember", "frost", "grape", "harbour"]


def vector_bytes(numbers: Sequence[float]) -> bytes:
    return struct.pack(f">HH{len(numbers)}e", len(numbers), 0, *numbers)


@dataclass(frozen=True)
class Item:
    number: int
    text: str = ""
    vector: tuple[float, ...] = ()
    session: int = 1
    turn: int = 1
    kind: int = 0
    tokens: int = 10
    role: int = 0
    hides: int = 0
    until: int = NEVER

    @property
    def id(self) -> UUID:
        return UUID(int=self.number << 64 | 7)

    def row(self) -> ItemRow:
        place = np.zeros(1, PLACE)
        place["id"] = np.frombuffer(self.id.bytes, ">u8")
        place["session"] = np.frombuffer(UUID(int=self.session).bytes, ">u8")
        place["turn"], place["tokens"], place["kind"] = self.turn, self.tokens, self.kind
        place["role"] = self.role
        return ItemRow(
            place.tobytes(), vector_bytes(self.vector) if self.vector else b"", pack(self.text), self.hides, self.until
        )

    def times(self, term: Term) -> int:
        """How often the word stands in it."""
        words = [hash_ for word in self.text.split() for each in asked(word) for hash_ in each.hashes[:1]]
        return min(255, sum(words.count(each) for each in term.hashes))

    def cosine(self, question: NDArray[np.float32]) -> float:
        own = np.array(self.vector)
        return float(own @ question / np.linalg.norm(own))


@dataclass
class Slow:
    """What an index does, item by item."""

    items: dict[UUID, Item] = field(default_factory=dict)

    def holding(self, term: Term) -> int:
        return sum(each.times(term) > 0 for each in self.documents())

    def documents(self) -> list[Item]:
        """All but summaries of sessions."""
        return [each for each in self.items.values() if (each.kind, each.role) != (1, 10)]

    def words(self, terms: Sequence[Term]) -> list[Term]:
        held = {each: self.holding(each) for each in terms}
        return sorted(terms, key=lambda each: (each.pair and not held[each], held[each], each.word))[:WORDS]


ITEMS = st.builds(
    Item,
    number=st.integers(1, 12),
    text=st.lists(st.sampled_from([*VOCABULARY, "the", "Katze", "猫狗鸟"]), max_size=6).map(" ".join),
    vector=st.just(())
    | st.tuples(*[st.floats(-1, 1, width=16)] * DIMENSIONS).filter(lambda v: sum(x * x for x in v) > 0.01),
    session=st.integers(1, 3),
    turn=st.integers(1, 5),
    kind=st.integers(0, 1),
    tokens=st.integers(0, 100),
    role=st.sampled_from((1, 10)),
)
STEPS = st.lists(
    st.lists(ITEMS, max_size=5) | st.frozensets(st.integers(1, 13).map(lambda n: Item(n).id), max_size=3), max_size=8
)
QUESTIONS = st.lists(st.sampled_from([*VOCABULARY, "zebra", "Katzen", "猫狗", "鸟猫"]), max_size=8).map(" ".join)
VECTORS = st.tuples(*[st.floats(-1, 1, width=16)] * DIMENSIONS).filter(lambda v: sum(x * x for x in v) > 0.01)


@pytest.fixture(autouse=True, scope="module")
def short_tails() -> Iterator[None]:
    """So that words are sorted anew every few steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(user_index, "TAIL_ROWS", 4)
        patch.setattr(user_index, "AT_ONCE", 3)
        yield


def built(steps: Sequence[list[Item] | frozenset[UUID]], begin: Sequence[Item] = ()) -> tuple[UserIndex, Slow]:
    index, slow = UserIndex.of([each.row() for each in begin], DIMENSIONS), Slow({each.id: each for each in begin})
    for step in steps:
        if isinstance(step, list):
            index = index.with_rows([each.row() for each in step])
            index = index.sorted() if index.unsorted else index
            slow.items |= {each.id: each for each in step}
        else:
            index = index.without(step)
            for each in step:
                slow.items.pop(each, None)
    return index, slow


def all_of(index: UserIndex, terms: Sequence[Term], vector: NDArray[np.float32] | None) -> Scan:
    return index.scan(terms, vector, vectors=1000, texts=1000)


def ids(scan: Scan, part: slice) -> list[UUID]:
    return [UUID(bytes=each.tobytes()) for each in scan.places[part]["id"]]


@given(st.lists(ITEMS, max_size=10), STEPS, QUESTIONS, VECTORS, st.none() | st.integers(1, 3), st.integers(1, 5))
@examples(300)
def test_what_comes_in_order_is_ranked_as_if_it_came_in_any(
    begin: list[Item], steps: list[list[Item] | frozenset[UUID]], question: str, numbers: tuple[float, ...],
    session: int | None, turn: int,
) -> None:  # fmt: skip
    index, _ = built(steps, begin)
    vector = np.array(numbers, np.float32)
    here = UUID(int=session) if session else None
    scan = index.scan(
        asked(question), vector / np.linalg.norm(vector), vectors=1000, texts=1000, session=here, visible_from=turn
    )
    one = rank(scan, question, session=here, visible_from=turn)
    other = rank(scan._replace(ordered=None), question, session=here, visible_from=turn)
    order = [np.lexsort(each.places()["id"].T) for each in (one, other)]
    assert one.places()[order[0]].tobytes() == other.places()[order[1]].tobytes()
    for name, column in one.signals().items():
        np.testing.assert_allclose(column[order[0]], other.signals()[name][order[1]], rtol=1e-5, err_msg=name)
    np.testing.assert_array_equal(one.counts[:, order[0]], other.counts[:, order[1]])
    np.testing.assert_array_equal(one.channels[order[0]], other.channels[order[1]])


@given(st.lists(ITEMS, max_size=10), STEPS, QUESTIONS, VECTORS)
@examples(300)
def test_a_scan_finds_what_is_there(
    begin: list[Item], steps: list[list[Item] | frozenset[UUID]], question: str, numbers: tuple[float, ...]
) -> None:
    index, slow = built(steps, begin)
    vector = np.array(numbers, np.float32)
    vector /= np.linalg.norm(vector)
    terms = asked(question, ["en", "de"])
    scan = all_of(index, terms, vector)
    n = len(scan.sims)
    near = dict(zip(ids(scan, slice(n)), scan.sims.tolist(), strict=True))
    assert near.keys() == {each.id for each in slow.items.values() if each.vector}
    for item, similarity in near.items():
        assert similarity == pytest.approx(slow.items[item].cosine(vector), abs=0.02)
    words = slow.words(terms)
    assert list(scan.words) == [each.word for each in words]
    assert list(scan.holding) == [slow.holding(each) for each in words]
    said = dict(zip(ids(scan, slice(n, None)), scan.counts[:, : len(words)].tolist(), strict=True))
    assert said == {
        each.id: counts for each in slow.items.values() if any(counts := [each.times(term) for term in words])
    }
    tokens = sum(each.tokens for each in slow.documents())
    assert len(index) == len(slow.items)
    assert scan.counted == len(slow.documents())
    assert scan.mean == pytest.approx(max(1.0, tokens / max(1, scan.counted)))
    for each in scan.places:
        assert each.tobytes() == slow.items[UUID(bytes=each["id"].tobytes())].row().place
    assert index.unreadable == 0


@given(st.lists(ITEMS, max_size=10), STEPS, QUESTIONS, VECTORS, st.data())
@examples(150)
def test_a_scan_of_less_finds_the_best_of_it(
    begin: list[Item],
    steps: list[list[Item] | frozenset[UUID]],
    question: str,
    numbers: tuple[float, ...],
    data: st.DataObject,
) -> None:
    index, slow = built(steps, begin)
    vector = np.array(numbers, np.float32)
    vector /= np.linalg.norm(vector)
    only = data.draw(st.none() | st.integers(0, 1))
    session, visible = UUID(int=data.draw(st.integers(1, 3))), data.draw(st.integers(1, 5))
    ancestors = [UUID(int=3)] if data.draw(st.booleans()) else []
    limit = data.draw(st.integers(1, 4))
    scan = index.scan(
        asked(question), vector, vectors=limit, texts=1, only=only, session=session,
        visible_from=visible, ancestors=ancestors,
    )  # fmt: skip
    wanted = [
        each for each in slow.items.values()
        if only in (None, each.kind)
        and (each.kind == 0 or ((UUID(int=each.session) != session or each.turn < visible)
             and UUID(int=each.session) not in ancestors))
    ]  # fmt: skip
    near = [each for each in wanted if each.vector]
    if len(near) > limit:
        near = [
            each for each in near
            if (UUID(int=each.session) != session or each.turn < visible) and UUID(int=each.session) not in ancestors
        ]  # fmt: skip
        near.sort(key=lambda each: -each.cosine(vector))
    n = len(scan.sims)
    assert n == min(limit, len(near))
    assert set(ids(scan, slice(n))) <= {each.id for each in near}
    if near:
        worst = min((slow.items[each].cosine(vector) for each in ids(scan, slice(n))), default=1.0)
        assert all(each.cosine(vector) <= worst + 0.03 for each in near if each.id not in ids(scan, slice(n)))
    terms = slow.words(asked(question))
    before = np.cumsum([0, *(slow.holding(each) for each in terms)])
    looked = [each for each, behind in zip(terms, before, strict=False) if behind < 4]
    assert set(ids(scan, slice(n, None))) <= {each.id for each in wanted if any(each.times(term) for term in looked)}


@given(st.lists(ITEMS, max_size=10), st.data(), st.booleans())
@examples(100)
def test_what_may_not_come_up_does_not(items: list[Item], data: st.DataObject, history: bool) -> None:
    hides, untils = st.sampled_from((0, 0, ENDED, LOCAL, SUPERSEDED, ENDED | LOCAL)), st.sampled_from((NEVER, 5, 15))
    items = list({each.number: each for each in items}.values())
    items = [replace(each, vector=(1.0,) * 8, hides=data.draw(hides), until=data.draw(untils)) for each in items]
    index = UserIndex.of([each.row() for each in items[::2]], DIMENSIONS).with_rows(
        [each.row() for each in items[1::2]]
    )
    session = data.draw(st.none() | st.integers(1, 3).map(lambda n: UUID(int=n)))
    question = np.full(8, 8**-0.5, np.float32)
    scan = index.scan(
        asked(" ".join(VOCABULARY)),
        question,
        vectors=99,
        texts=99,
        session=session,
        visible_from=9,
        history=history,
        now=10,
    )
    shown = {
        each.id
        for each in items
        if (history or (not each.hides & (ENDED | SUPERSEDED) and each.until > 10))
        and (session is None or not each.hides & LOCAL or UUID(int=each.session) == session)
    }
    assert set(ids(scan, slice(len(scan.sims)))) == shown
    assert set(ids(scan, slice(len(scan.sims), None))) <= shown
    assert scan.counted == len([each for each in items if (each.kind, each.role) != (1, 10)]), (
        "what is rare is not told by it"
    )


@given(st.lists(ITEMS, max_size=10), STEPS)
@examples(100)
def test_what_came_bit_by_bit_is_what_came_at_once(
    begin: list[Item], steps: list[list[Item] | frozenset[UUID]]
) -> None:
    index, slow = built(steps, begin)
    whole = UserIndex.of([each.row() for each in slow.items.values()], DIMENSIONS)
    assert index.languages == whole.languages
    question = asked(" ".join(VOCABULARY))
    one, other = all_of(index, question, None), all_of(whole, question, None)
    assert (one.words, one.holding, one.counted, one.mean) == (other.words, other.holding, other.counted, other.mean)
    assert sorted(ids(one, slice(None))) == sorted(ids(other, slice(None)))


@given(st.lists(st.builds(ItemRow, *[st.binary(max_size=70)] * 3) | ITEMS.map(Item.row), max_size=8))
@examples(100)
def test_what_cannot_be_read_is_left_out_and_counted(rows: list[ItemRow]) -> None:
    index = UserIndex.of([], DIMENSIONS).with_rows(rows)
    assert index.unreadable == UserIndex.of(rows, DIMENSIONS).unreadable
    scan = all_of(index, asked("apple"), np.ones(DIMENSIONS, np.float32))
    assert np.isfinite(scan.sims).all()
    rank(scan, "apple")


GOOD = Item(1, "apple", (1.0,) * DIMENSIONS).row()


@pytest.mark.parametrize(
    "bad",
    [
        GOOD._replace(place=GOOD.place[:-1]),
        GOOD._replace(place=b""),
        GOOD._replace(vector=vector_bytes((1.0,) * (DIMENSIONS - 1))),
        GOOD._replace(vector=vector_bytes((float("nan"), *(1.0,) * (DIMENSIONS - 1)))),
        GOOD._replace(vector=vector_bytes((float("-inf"), *(1.0,) * (DIMENSIONS - 1)))),
        GOOD._replace(vector=b"\0" * len(GOOD.vector)),
        GOOD._replace(terms=b""),
        GOOD._replace(terms=GOOD.terms[:-1]),
        GOOD._replace(terms=bytes((VERSION + 1,)) + GOOD.terms[1:]),
        GOOD._replace(terms=bytes((VERSION, 255)) + GOOD.terms[2:]),
    ],
)
def test_a_bad_row_among_good_ones(bad: ItemRow) -> None:
    others = [Item(n, "pear", (0.5,) * DIMENSIONS).row() for n in (2, 3)]
    index = UserIndex.of([others[0], bad, others[1]], DIMENSIONS)
    assert (len(index), index.unreadable) == (2, 1)
    scan = all_of(index, asked("pear apple"), np.full(DIMENSIONS, DIMENSIONS**-0.5, np.float32))
    assert dict(zip(scan.words, scan.holding, strict=True)) == {"appl": 0, "pear": 2}
    assert scan.sims.tolist() == pytest.approx([1.0, 1.0], abs=1e-3)


def test_half_precision_numbers_of_every_size() -> None:
    for scale in (6e4, 1.0, 1e-3, 6e-8):
        numbers = tuple(scale * each for each in (1.0, -1.0, 0.5, 0.0, 0.25, -0.75, 1.0, 0.125))
        stored = np.array(numbers, np.float16).astype(np.float64)
        index = UserIndex.of([Item(1, "", numbers).row()], DIMENSIONS)
        question = np.array(stored / np.linalg.norm(stored), np.float32)
        assert all_of(index, [], question).sims.tolist() == pytest.approx([1.0], abs=1e-3)
    assert not len(all_of(UserIndex.of([Item(1, "", (0.0,) * DIMENSIONS).row()], DIMENSIONS), [], question).sims)


def test_without_vectors_words_are_left() -> None:
    index = UserIndex.of([Item(1, "apple apples").row()._replace(vector=b"anything")], 0)
    scan = all_of(index, asked("apple"), None)
    assert (len(scan.sims), scan.counts[0, 0], list(scan.holding)) == (0, 2, [1])


def test_an_index_never_changes() -> None:
    first = UserIndex.of([Item(1, "apple").row()], DIMENSIONS)
    second = first.with_rows([Item(1, "pear").row(), Item(2, "pear").row(), Item(2, "plum").row()])
    third = second.without([Item(1).id])
    found = [
        [list(all_of(index, asked(word), None).holding) for word in ("apple", "pear", "plum")]
        for index in (first, second, third)
    ]
    assert found == [[[1], [0], [0]], [[0], [1], [1]], [[0], [0], [1]]]
    assert first.without([]) is first
    assert [len(each) for each in (first, second, third)] == [1, 2, 1]


def test_nothing_at_all() -> None:
    index = UserIndex.of([], DIMENSIONS)
    assert (len(index), index.languages, index.dimensions) == (0, [], DIMENSIONS)
    scan = all_of(index, asked("apple"), np.ones(DIMENSIONS, np.float32))
    assert (len(scan.places), list(scan.words), list(scan.holding), scan.mean) == (0, ["appl"], [0], 1.0)
    assert len(rank(scan, "apple")) == 0
    assert len(index.scan(asked("apple"), None, vectors=0, texts=0).words) == 0


def test_many_words_in_common_leave_those_that_have_the_most() -> None:
    items = [Item(n, "apple") for n in range(1, 30)] + [Item(n, "apple bridge") for n in range(30, 50)]
    scan = UserIndex.of([each.row() for each in items], DIMENSIONS).scan(
        asked("apple bridge"), None, vectors=0, texts=1
    )
    assert len(scan.counts) == 16
    assert (scan.counts[:, :2] == 1).all()


def test_what_stands_in_the_prompt_takes_no_places_from_the_rest() -> None:
    """Only where there are not places for all."""
    items = [Item(n, "apple", (1.0,) * DIMENSIONS, session=1 if n < 30 else 2, turn=n) for n in range(1, 40)]
    index = UserIndex.of([each.row() for each in items], DIMENSIONS)
    question = np.full(DIMENSIONS, DIMENSIONS**-0.5, np.float32)
    for limit, found in ((1, items[29:]), (5, items)):
        scan = index.scan(
            asked("apple"), question, vectors=10 * limit, texts=limit, session=UUID(int=1), ancestors=[UUID(int=9)]
        )
        assert ids(scan, slice(len(scan.sims), None)) == [each.id for each in found]
        assert set(ids(scan, slice(len(scan.sims)))) <= {each.id for each in found}


def test_an_item_takes_as_much_room_as_it_should() -> None:
    rng = np.random.default_rng(1)
    words = [f"w{n}" for n in range(3000)]
    rows = [Item(n, " ".join(rng.choice(words, 25)), tuple(rng.standard_normal(256))).row() for n in range(1, 1001)]
    assert UserIndex.of(rows, 256).nbytes < 460 * len(rows)


@given(st.lists(ITEMS, max_size=12), st.integers(0, 8))
@examples(100)
def test_of_too_many_the_latest_messages_stay(begin: list[Item], most: int) -> None:
    index, slow = built([], begin)
    kept, since = index.latest(most)
    memories = {each.id for each in slow.items.values() if each.kind == 1}
    there = {UUID(bytes=each.tobytes()) for each in all_of(kept, [], np.ones(DIMENSIONS, np.float32)).places["id"]}
    assert (since is None) == (len(slow.items) <= most)
    assert len(kept) >= len(memories)
    # (They were all said at one time: those of the same moment stay together.)
    assert len(kept) == (len(slow.items) if since in (None, 0) else len(memories))
    assert {each for each in there if slow.items[each].kind == 1} == {
        each for each in memories if slow.items[each].vector
    }


def test_what_is_wanted_besides_comes_however_far_it_is() -> None:
    far = tuple([-1.0] * DIMENSIONS)
    near = tuple([1.0] * DIMENSIONS)
    items = [Item(n, "apple", near, session=n) for n in range(1, 6)]
    items += [Item(7, "", far, kind=1, role=10), Item(8, "", (), kind=1), Item(9, "", far, kind=1)]
    index = UserIndex.of([each.row() for each in items], DIMENSIONS)
    vector = np.full(DIMENSIONS, DIMENSIONS**-0.5, np.float32)

    def found(vector: NDArray[np.float32] | None, also: FurtherItems) -> set[int]:
        scan = index.scan(asked("apple"), vector, vectors=3, texts=0, also=also)
        return {each.int >> 64 for each in ids(scan, slice(None))} - {1, 2, 3, 4, 5}

    assert found(vector, FurtherItems()) == set()
    assert found(vector, FurtherItems(summaries=True)) == {7}
    assert found(vector, FurtherItems([Item(8).id, Item(9).id])) == {8, 9}, "with and without a vector"
    assert found(vector, FurtherItems(span=(0, 1))) == {7, 9}
    assert found(None, FurtherItems(summaries=True)) == {7}
    assert found(None, FurtherItems(span=(1, 2))) == set()
