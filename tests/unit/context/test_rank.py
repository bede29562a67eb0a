"""How everything is ranked: against the same sums, done one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.context.question import TimeSpan
from app.context.rank import (
    AHEAD_DAYS,
    ENTITY_CHANNEL,
    KERNEL,
    NEAR,
    OF_SESSION,
    REACH,
    RECENT,
    RECENT_CHANNEL,
    SUMMARY_CHANNEL,
    TIME_CHANNEL,
    TOLD_DAYS,
    Ranking,
    rank,
)
from app.index.indexes import IndexScope
from app.store.item_columns import MEMORY_KIND, PLACE, US_PER_DAY, Scan, speaker_mark

K1, B, MEAN = 1.2, 0.75, 20.0
S1, S2 = UUID(int=1 << 70 | 1), UUID(int=1 << 70 | 2)


def place(number: int, session: UUID = S1, turn: int | None = None, **given: Any) -> np.void:
    made: np.void = np.zeros(1, PLACE)[0]
    made["id"] = np.frombuffer(UUID(int=number).bytes, ">u8")
    made["session"] = np.frombuffer(session.bytes, ">u8")
    made["turn"] = number if turn is None else turn
    made["tokens"], made["role"] = 20, 1
    for name, value in given.items():
        made[name] = value
    return made


def scan(
    seen: Sequence[tuple[np.void, float]] = (),
    said: Sequence[tuple[np.void, Sequence[int]]] = (),
    words: Sequence[str] = (),
    holding: Sequence[int] = (),
) -> Scan:
    counts = np.zeros((len(said), 16), np.uint8)
    for row, (_, times) in zip(counts, said, strict=True):
        row[: len(times)] = times
    places = np.array([*(each for each, _ in seen), *(each for each, _ in said)], PLACE)
    sims = np.array([sim for _, sim in seen], np.float32)
    return Scan(places, sims, counts, words, holding, 100, MEAN, K1, B)


def by_number(ranking: Ranking, column: np.ndarray[Any, Any]) -> dict[int, Any]:
    numbers = ranking.places()["id"][:, 1].tolist()
    assert len(set(numbers)) == len(numbers), "each item once"
    return dict(zip(numbers, column.tolist(), strict=True))


def share(away: int, between: float) -> float:
    """What a neighbour adds, with so many tokens between the middles."""
    return KERNEL[away - 1] * math.exp(-max(between - NEAR, 0) / REACH)


def test_nothing_found() -> None:
    ranking = rank(scan(), "what?")
    assert len(ranking) == 0
    assert all(len(each) == 0 for each in ranking.signals().values())


def test_a_cosine_is_smoothed_over_three_neighbours() -> None:
    ranking = rank(scan([(place(n), 1.0 if n == 5 else 0.0) for n in range(1, 10)]), "")
    found = by_number(ranking, ranking.vector)
    gaps = [20.0 * away for away in (1, 2, 3)]
    for away, gap in enumerate(gaps, 1):
        assert found[5 + away] == found[5 - away] == pytest.approx(share(away, gap), rel=1e-5)
    assert found[9] == found[1] == 0.0
    assert by_number(ranking, ranking.similarity)[5] == 1.0


def test_a_page_of_text_parts_neighbours() -> None:
    answer = place(2, tokens=600)
    ranking = rank(scan([(place(1), 1.0), (answer, 0.0), (place(3), 0.0)]), "")
    found = by_number(ranking, ranking.vector)
    assert found[2] == pytest.approx(share(1, 310), rel=1e-5)
    assert found[3] == pytest.approx(share(2, 620), rel=1e-4)
    assert found[3] < 0.01


def test_sessions_and_memories_have_no_neighbours_elsewhere() -> None:
    others = [place(2, S2, 2), place(3, S1, 2, kind=MEMORY_KIND), place(4, UUID(int=0), 2, kind=MEMORY_KIND)]
    ranking = rank(scan([(place(1, S1, 1), 1.0), *((each, 0.0) for each in others)]), "")
    assert by_number(ranking, ranking.vector) == {1: 1.0, 2: 0.0, 3: 0.0, 4: 0.0}


def test_words_are_smoothed_before_they_saturate() -> None:
    """The second word's neighbour makes up for what the turn itself does not say."""
    words, holding = ["cat", "moon"], [10, 5]
    said = [(place(1), [1, 0]), (place(2), [0, 2])]
    ranking = rank(scan(said=said, words=words, holding=holding), "cat moon")
    gains = [(K1 + 1) * math.log(1 + (100 - n + 0.5) / (n + 0.5)) for n in holding]
    near = share(1, 20)
    sums = [(1.0, 2 * near), (near, 2.0)]
    scores = [sum(g * n / (n + K1) for g, n in zip(gains, each, strict=True)) for each in sums]
    found = by_number(ranking, ranking.text)
    assert [found[1], found[2]] == pytest.approx([score / max(scores) for score in scores], rel=1e-5)
    plain = [gains[0] / (1 + K1), gains[1] * 2 / (2 + K1)]
    assert by_number(ranking, ranking.bm25(np.arange(2))) == pytest.approx({1: plain[0], 2: plain[1]}, rel=1e-5)
    assert not ranking.vector.any(), "no vector channel, no vector"


def test_an_item_of_several_channels_comes_once_and_an_unseen_one_is_far() -> None:
    both, words_only, used = place(1), place(9), place(30, kind=MEMORY_KIND)
    ranking = rank(scan([(both, 0.8), (used, 0.2)], [(both, [3]), (words_only, [1])], ["cat"], [2]), "cat")
    assert by_number(ranking, ranking.channels) == {1: 3 + 16, 9: 2 + 16, 30: 1 + 16}, (
        "all of three are among the latest"
    )
    similarity = by_number(ranking, ranking.similarity)
    assert similarity[1] == pytest.approx(0.8)
    assert math.isnan(similarity[9])
    assert by_number(ranking, ranking.vector)[9] == pytest.approx(0.25), "as the farthest that was seen"


def on(day: int) -> int:
    """Noon of that day of January 2025, as places have it."""
    return round(
        ((datetime(2025, 1, day, 12, tzinfo=UTC) - datetime(2000, 1, 1, tzinfo=UTC)) / timedelta(days=1)) * US_PER_DAY
    )


def test_what_is_of_the_time_that_is_asked_for() -> None:
    seen = [(place(n, at=on(n)), 0.5) for n in (1, 9, 10, 11, 12, 20)]
    span = TimeSpan(datetime(2025, 1, 10, tzinfo=UTC), datetime(2025, 1, 12, tzinfo=UTC))
    timely = by_number((found := rank(scan(seen), "", span=span)), found.timely)
    assert timely == pytest.approx(
        {
            1: math.exp(-8.5 / AHEAD_DAYS), 9: math.exp(-0.5 / AHEAD_DAYS), 10: 1.0, 11: 1.0,
            12: math.exp(-0.5 / TOLD_DAYS), 20: math.exp(-8.5 / TOLD_DAYS),
        }, rel=1e-4,
    )  # fmt: skip
    assert {n for n, channels in by_number(found, found.channels).items() if channels & TIME_CHANNEL} == {10, 11}
    since = rank(scan(seen), "", span=TimeSpan(datetime(2025, 1, 11, tzinfo=UTC), None))
    assert [n for n, share in by_number(since, since.timely).items() if share == 1.0] == [11, 12, 20]
    assert not rank(scan(seen), "").timely.any(), "no time, no signal"


def test_the_vectors_place_says_from_when_a_memory_holds() -> None:
    seen, said = (place(1, kind=MEMORY_KIND, at=on(day)) for day in (3, 25))
    span = TimeSpan(datetime(2025, 1, 3, tzinfo=UTC), datetime(2025, 1, 4, tzinfo=UTC))
    assert rank(scan([(seen, 0.5)], [(said, [1])], words=["x"], holding=[1]), "x", span=span).timely.tolist() == [1.0]


def test_the_latest_are_told() -> None:
    seen = [(place(n, at=n), 0.5) for n in range(1, 50)]
    ranking = rank(scan(seen), "")
    assert {n for n, channels in by_number(ranking, ranking.channels).items() if channels & RECENT_CHANNEL} == set(
        range(50 - RECENT, 50)
    )


def test_what_stands_in_the_prompt_is_context_and_no_candidate() -> None:
    seen = [(place(n), 1.0 if n == 4 else 0.0) for n in range(1, 6)] + [(place(9, S2), 0.1)]
    ranking = rank(scan(seen), "", IndexScope(S1, 4))
    found = by_number(ranking, ranking.vector)
    assert set(found) == {1, 2, 3, 9}
    assert found[3] == 1.0, "it stands beside the answer"
    for confined in (rank(scan(seen), "", IndexScope(ancestors=[S1])), rank(scan(seen), "", IndexScope(confine=S2))):
        assert set(by_number(confined, confined.text)) == {9}


def test_memories_are_judged_when_they_are_fetched() -> None:
    memory = place(7, S1, 9, kind=MEMORY_KIND)
    assert len(rank(scan([(memory, 0.5)]), "", IndexScope(S1, 1, [S1]))) == 1


def test_a_name_in_the_question_is_who_spoke_and_not_of_what() -> None:
    ana, bo = {"speaker": speaker_mark("Ana")}, {"speaker": speaker_mark("Bo Diaz")}
    said = [(place(1, S1, **ana), [0, 1]), (place(2, S2, **bo), [3, 0])]
    ranking = rank(scan(said=said, words=["ana", "move"], holding=[1, 1]), "When did Ana's family move?")
    assert by_number(ranking, ranking.speaker) == {1: 1.0, 2: 0.0}
    assert by_number(ranking, ranking.text) == {1: 1.0, 2: 0.0}
    # Unless there is nothing else to look for.
    ranking = rank(scan(said=[said[1]], words=["bo"], holding=[1]), "bo?")
    assert (ranking.text.tolist(), ranking.speaker.tolist()) == ([1.0], [1.0])


def test_the_name_of_a_role_names_nobody() -> None:
    user = {"speaker": speaker_mark("User")}
    ranking = rank(scan(said=[(place(1, S1, **user), [1])], words=["user"], holding=[1]), "What does the user want?")
    assert (ranking.speaker.tolist(), ranking.text.tolist()) == ([0.0], [1.0])


def test_what_a_profile_may_weigh() -> None:
    items = [place(1), place(2, role=2, tokens=600), place(3, kind=MEMORY_KIND, role=9)]
    ranking = rank(scan([(each, 0.5) for each in items]), "")
    columns = {name: by_number(ranking, column) for name, column in ranking.signals().items()}
    assert columns["own_words"] == {1: 1.0, 2: 0.0, 3: 0.0}
    assert columns["remembered"] == {1: 0.0, 2: 0.0, 3: 1.0}
    assert columns["excess"] == pytest.approx({1: 0.0, 2: math.log(10), 3: 0.0})


def test_a_summary_is_told_from_what_it_sums_up() -> None:
    """Their places say which memories are summaries."""
    fact, session, entity, role_of_a_message = (
        place(1, kind=MEMORY_KIND, role=9), place(2, kind=MEMORY_KIND, role=OF_SESSION),
        place(3, kind=MEMORY_KIND, role=OF_SESSION + 1), place(4, role=OF_SESSION),
    )  # fmt: skip
    found = scan([(each, 0.5) for each in (fact, session, entity, role_of_a_message)])
    plain = rank(found, "")
    assert by_number(plain, plain.digest) == {1: 0.0, 2: 1.0, 3: 1.0, 4: 0.0}
    assert {n for n, channels in by_number(plain, plain.channels).items() if channels & SUMMARY_CHANNEL} == {2, 3}
    assert not plain.recap.any()
    asked = rank(found, "", recap=True)
    assert by_number(asked, asked.digest) == {1: 0.0, 2: 0.0, 3: 1.0, 4: 0.0}
    assert by_number(asked, asked.recap) == {1: 0.0, 2: 1.0, 3: 0.0, 4: 0.0}


def test_what_is_tied_to_a_thing_is_told() -> None:
    seen = [place(n, kind=MEMORY_KIND) for n in (1, 2)]
    ranking = rank(scan([(each, 0.5) for each in seen]), "", tied=[UUID(int=2), UUID(int=9)])
    assert {n for n, channels in by_number(ranking, ranking.channels).items() if channels & ENTITY_CHANNEL} == {2}


numbers = st.integers(1, 40)


@given(
    st.lists(st.tuples(numbers, st.sampled_from([S1, S2]), st.integers(1, 400), st.floats(-1, 1)), max_size=20,
             unique_by=lambda each: each[0]),
    st.randoms(),
)  # fmt: skip
def test_the_order_of_what_was_found_does_not_matter(found: list[tuple[int, UUID, int, float]], rng: Any) -> None:
    seen = [(place(n, session, tokens=tokens), sim) for n, session, tokens, sim in found]
    one = rank(scan(seen), "")
    shuffled = list(seen)
    rng.shuffle(shuffled)
    other = rank(scan(shuffled), "")
    assert by_number(one, one.vector) == pytest.approx(by_number(other, other.vector), rel=1e-4, abs=1e-5)
    # And it is what one sum for each gives.
    line = {session: sorted(each for each in found if each[1] == session) for session in (S1, S2)}
    sums = {}
    for n, session, _, sim in found:
        own = line[session]
        at = [each[0] for each in own].index(n)
        middles = [sum(e[2] for e in own[:i]) + own[i][2] / 2 for i in range(len(own))]
        sums[n] = sim + sum(
            share(abs(i - at), abs(middles[i] - middles[at])) * own[i][3]
            for i in range(len(own))
            if 0 < abs(i - at) <= len(KERNEL) and abs(own[i][0] - n) <= len(KERNEL)
        )
    top = max(sums.values(), default=0)
    expected = {n: value / top if top > 1e-6 else 0.0 for n, value in sums.items()}
    if top > 1e-3 or top <= 0:
        assert by_number(one, one.vector) == pytest.approx(expected, rel=1e-3, abs=1e-3)


def test_what_was_said_here_is_of_the_time_that_is_asked_for() -> None:
    said = [(place(1, S1), [1]), (place(2, S2), [1]), (place(3, S1), [1])]
    found = scan(said=said, words=["w"], holding=[3])
    assert not rank(found, "", IndexScope(S1, 3)).timely.any()
    asked = rank(found, "", IndexScope(S1, 3), here=True)
    assert by_number(asked, asked.timely) == {1: 1.0, 2: 0.0}, "3 stands in the prompt"
    assert not rank(found, "", here=True).timely.any(), "there is no session to speak of"
