"""Whether memory is asked, and what an item is worth: the models as they are shipped."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from app.context.question import understand
from app.context.rank import Ranking, rank
from app.context.retrieve import ranked_by
from app.context.score import AUTO
from app.context.worth import (
    ASKED_FEATURES,
    FEW,
    LARGE,
    LEAST_SURE,
    LINE,
    MOST_PRIOR,
    NEVER,
    PRICES,
    SHORT,
    SHOWN,
    SURE,
    Rate,
    asked_features,
    item_features,
    judge,
    least_asked,
    models,
    prior,
    sigmoid,
    sigmoids,
    states,
)
from app.store.item_columns import PLACE, Scan
from tests.support.tables import each_of

NOW = datetime(2026, 11, 20, tzinfo=UTC)
MANY = 300


def ranking(
    text: str,
    words: dict[str, tuple[int, ...]],
    many: int = MANY,
    cosines: np.ndarray[Any, Any] | None = None,
    role: int = 1,
) -> Ranking:
    """Of a user with so many messages of 20 tokens; `words`: of the question, with the messages that have each."""
    places = np.zeros(many, PLACE)
    places["id"] = np.array([[0, n + 1] for n in range(many)]).reshape(-1, 2)
    places["session"] = np.array([[1, n // 20] for n in range(many)]).reshape(-1, 2)
    places["turn"], places["tokens"], places["role"] = range(many), 20, role
    said = sorted({n for holding in words.values() for n in holding})
    counts = np.zeros((len(said), 16), np.uint8)
    for column, holding in enumerate(words.values()):
        counts[[said.index(n) for n in holding], column] = 1
    sims = np.linspace(0.1, 0.2, many).astype(np.float32) if cosines is None else cosines
    scan = Scan(
        np.concatenate([places, places[said]]).astype(PLACE), sims, counts, list(words), [len(each) for each in words.values()],
        many, 20.0, 1.2, 0.75,
    )  # fmt: skip
    return rank(scan, text)


def sure(text: str, words: dict[str, tuple[int, ...]], many: int = MANY) -> tuple[float, bool]:
    """The probability that memory is asked, and whether it is looked at."""
    found = ranking(text, words, many)
    judged = judge(found, understand(text, NOW), ranked_by(found, AUTO))
    return judged.asked, judged.passes


COMMON = tuple(range(0, MANY, 10))
IDLE: list[tuple[str, dict[str, tuple[int, ...]]]] = [
    ("Say hi", {"say": COMMON, "hi": (1, 2)}),
    ("What is 17 times 23?", {"17": (), "time": COMMON, "23": ()}),
    ("Write a haiku", {"write": COMMON, "haiku": ()}),
    ("Continue", {"continu": (3, 50)}),
    ("Thanks!", {"thank": COMMON}),
    ("Explain quicksort in two sentences.", {"explain": (9,), "quicksort": (), "two": COMMON, "sentenc": ()}),
]


@each_of(("text", "words"), IDLE)
def test_what_asks_nothing_of_memory(text: str, words: dict[str, tuple[int, ...]]) -> None:
    assert not sure(text, words)[1]
    few = {word: tuple(n for n in holding if n < 2) for word, holding in words.items()}
    assert not sure(text, few, 2)[1], "nor of one with two messages"


@each_of(
    ("text", "words"),
    [
        ("What is my sister called?", {"sister": (7, 80), "call": COMMON}),
        ("Where did Tom put the key of the shed?", {"tom": (40, 41), "key": (41,), "shed": (41, 90), "put": COMMON}),
        ("Which allergies do I have to tell the caterer of?", {"allergi": (12,), "tell": COMMON, "cater": ()}),
    ],
)
def test_what_asks_memory(text: str, words: dict[str, tuple[int, ...]]) -> None:
    assert sure(text, words)[1]


@each_of(
    ("text", "words", "passes"),
    [
        ("Why does the build fail?", {"build": (7, 90), "fail": (7, 30)}, True),
        ("And libssl?", {"libssl": (7,)}, True),
        ("And weather?", {"weather": tuple(range(0, MANY, 60))}, False),  # a word of several says little by itself
        ("Why does the build fail?", {"build": (90,), "fail": (30,)}, False),
        ("Go on", {"go": (7,)}, False),
        ("Translate build failure", {"build": (7,), "failur": (7,)}, False),
    ],
)
def test_an_item_with_all_that_is_asked_comes_alone(text: str, words: dict[str, tuple[int, ...]], passes: bool) -> None:
    found = ranking(text, words)
    judged = judge(found, understand(text, NOW), ranked_by(found, AUTO))
    assert judged.asked < SURE
    assert judged.passes is passes
    whole = (found.counts[: len(words)] > 0).all(axis=0)
    assert not passes or np.array_equal(judged.odds > NEVER, whole)


def test_what_does_not_stand_out_is_not_shown_for_being_all_there_is() -> None:
    text, many = "What is my sister called?", 30
    found = ranking(text, {"sister": (7, 20)}, many)
    judged = judge(found, understand(text, NOW), ranked_by(found, AUTO))
    assert judged.passes
    shown = judged.odds > NEVER
    assert shown[(found.counts > 0).any(axis=0)].all()
    assert shown.sum() < many / 3
    several = ranking(text, {"sister": tuple(range(0, many, 2))}, many)
    judged = judge(several, understand(text, NOW), ranked_by(several, AUTO))
    assert (judged.odds > NEVER)[(several.counts > 0).any(axis=0)].all(), "where half of it is about that"
    few = ranking(text, {"sister": (2,)}, FEW - 1)
    assert (judge(few, understand(text, NOW), ranked_by(few, AUTO)).odds > NEVER).all(), "too few to tell"


def test_what_it_says_of_itself_is_enough() -> None:
    assert sure("What did we talk about last week?", {}) == (1.0, True)
    assert sure("What was my last question?", {}) == (1.0, True)
    assert judge(ranking("my key", {}, 0), understand("my key", NOW), np.zeros(0, np.float32)).passes is False


def test_where_a_fact_bears_on_it_a_small_memory_is_looked_at() -> None:
    text = "Suggest a nice restaurant."
    for many, passes in ((4, True), (MANY, False)):
        found = ranking(text, {"suggest": (), "nice": (), "restaur": ()}, many)
        scores = ranked_by(found, AUTO)
        assert not judge(found, understand(text, NOW), scores).passes
        assert judge(found, understand(text, NOW), scores, bears=True).passes is passes


def test_no_embedder_changes_whether_memory_is_asked() -> None:
    text, words = "Where is the key of the shed?", {"key": (41,), "shed": (41, 90)}
    asked, chance = understand(text, NOW), np.random.default_rng(1)
    kinds = (np.zeros(0, np.float32), chance.normal(0.9, 0.01, MANY), chance.normal(0, 0.4, MANY))
    found = [asked_features(ranking(text, words, cosines=each.astype(np.float32)), asked) for each in kinds[1:]]
    assert len(found[0]) == len(ASKED_FEATURES)
    assert np.array_equal(found[0], found[1])


def test_a_small_memory_is_answered_generously() -> None:
    lengths = np.full(MANY, 20.0, np.float32)
    assert least_asked(lengths[:1]) == least_asked(lengths[:4]) == LEAST_SURE
    assert least_asked(lengths[:1]) < least_asked(lengths[:10]) < least_asked(lengths) == SURE
    assert least_asked(np.full(10, 5000.0, np.float32)) == pytest.approx(SURE * 650 / LARGE), "a passage of each"


def test_what_stands_out_is_worth_more() -> None:
    _, item = models()
    alone = np.array([2.0, *[0.1] * 50], np.float32)
    crowd = np.array([2.0, *[1.9] * 50], np.float32)
    best = [float(item.odds(item_features(scores))[0]) for scores in (alone, crowd)]
    assert best[0] > best[1]
    likely = sigmoids(item.odds(item_features(alone)))
    assert likely[0] == likely.max() > PRICES["frugal"].least_of_one(60, 0.0)


@each_of(("role", "folded"), [(2, True), (1, False)])
def test_copies_of_an_answer_do_not_stand_before_what_was_said_once(role: int, folded: bool) -> None:
    """What the user says again is news."""
    cosines = np.linspace(0.1, 0.2, MANY).astype(np.float32)
    copies = [7, *range(27, MANY, 27)]
    cosines[150], cosines[7] = 0.55, 0.6
    often = cosines.copy()
    often[copies] = cosines[7]
    asked, odds = understand("Where is Ana?", NOW), []
    for near in (cosines, often):
        found = ranking("Where is Ana?", {"ana": (7,)}, cosines=near, role=role)
        judged = judge(found, asked, ranked_by(found, AUTO))
        odds.append(float(judged.odds[found.similarity == np.float32(0.55)][0]))
    assert (odds[1] > odds[0] - 0.5) == folded


def test_history_moves_what_a_memory_is_worth() -> None:
    plain = prior(importance=0.5, confidence=0.8)
    assert plain == 0.0
    assert prior(importance=0.6, confidence=0.8) > plain > prior(importance=0.4, confidence=0.8)
    assert prior(importance=0.5, confidence=0.4) < plain
    assert prior(importance=0.5, confidence=0.8, reinforcement=1.0) > prior(
        importance=0.5, confidence=0.8, frequency=0.5
    )
    most = prior(importance=1.0, confidence=1.0, reinforcement=1.0, frequency=1.0, tied=1.0)
    assert most == pytest.approx(MOST_PRIOR)


def test_numbers_without_bounds() -> None:
    assert (sigmoid(-1e9), sigmoid(1e9)) == pytest.approx((0.0, 1.0), abs=1e-12)


def test_a_price_asks_more_of_what_is_long_and_of_what_stands_beside_a_sure_answer() -> None:
    for cheaper, dearer in pairwise((Rate(0.0, 0.0), PRICES["thorough"], PRICES["balanced"], PRICES["frugal"])):
        assert dearer.token > cheaper.token
        assert dearer.share > cheaper.share
    rate = Rate(1e-3, 0.1)
    assert (
        rate.least_of_one(10, 0.0)
        == rate.least_of_one(int(SHOWN + LINE), 0.0)
        < rate.least_of_one(200, 0.0)
        == pytest.approx(0.2)
    )
    assert rate.least_of_one(10, 0.9) == pytest.approx(0.09)


@each_of(
    ("does", "texts"),
    [
        (
            False,
            "Where do I live? | Say hi | Noted, thanks. | 你好吗？ | Noted, thanks for telling me! | I see. | Congratulations!"
            " | I'm sorry to hear that. | Glad to hear it! | Got it. What else? | Suggest a dish | Please recommend me a book."
            " | No more bullet points. | Forget that I work at Acme. | What do you know about me?"
            " | Anotado, gracias por contármelo. | ¡Felicidades! | Sugiere un plato | Olvida que trabajo en Acme."
            " | Verstanden, danke! | Herzlichen Glückwunsch! | Schlag mir ein Gericht vor | Keine Emojis mehr."
            " | Entendu, merci ! | Félicitations ! | Propose un plat"
            " | Anotado, obrigado! | Parabéns! | Sugere um prato | Chega de emojis."
            " | 好的，记住了。 | 恭喜你！ | 推荐一道菜 | 给我推荐一本书",
        ),
        (
            True,
            "I moved to Ghent. Do you know it? | My sister is a vet."
            " | Rex is afraid of thunder | Noted: the key is under the mat."
            " | Congratulations on the marathon! | Suggest a dish for my vegan sister | Remember that I'm allergic to nuts."
            " | That's wrong, I live in Porto. | Forget Acme. I work at Groenwerk. | Recomienda algo para mi hija"
            " | Gracias, vivo en Vigo. | Ich wohne in Gent | Merci, j'habite à Lyon | Parabéns à Inês | 恭喜安娜毕业了！"
            " | 好的，我住在上海。",
        ),
    ],
)
def test_a_short_message_may_state_nothing(does: bool, texts: str) -> None:
    assert [text for text in texts.split(" | ") if states(text, 6) != does] == []
    assert all(states(text, SHORT + 1) for text in texts.split(" | "))
