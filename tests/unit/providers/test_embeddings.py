"""The local vectors: shape, bounds, what they find, and how near is the same."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from app.errors import NotReady
from app.memory.text import same_claim
from app.providers.embeddings import NoEmbedder, OpenAIEmbedder, WordLlamaEmbedder, blank, build_embedder
from app.settings import Settings
from tests.support.properties import examples


@pytest.fixture(scope="module")
def embedder() -> WordLlamaEmbedder:
    return WordLlamaEmbedder()


def cosine(embedder: WordLlamaEmbedder, one: str, other: str) -> float:
    a, b = embedder.embed_now([one, other])
    return float(a @ b)


async def test_shape_type_and_length(embedder: WordLlamaEmbedder) -> None:
    vectors = await embedder.embed(["I live in Lisbon", "", "¿dónde vivo?", "  \n ", "👍 …"])
    assert vectors.shape == (5, embedder.dimensions)
    assert vectors.dtype == np.float32
    assert list(blank(vectors)) == [False, True, False, True, True]
    assert np.allclose(np.linalg.norm(vectors[[0, 2]], axis=1), 1, atol=1e-5)
    assert (await embedder.embed([])).shape == (0, embedder.dimensions)


def test_no_logging_is_configured_and_nothing_is_downloaded(embedder: WordLlamaEmbedder) -> None:
    import sys

    assert "wordllama" not in sys.modules


def test_forgotten_words_come_back_equal() -> None:
    class Small(WordLlamaEmbedder):
        WORDS_KEPT = 400  # the reference page fits, the words below do not

    small = Small()
    before = small.embed_now(["a walk along the river"])
    for i in range(50):
        small.embed_now([" ".join(f"word{i}x{j}" for j in range(20))])
    assert np.array_equal(small.embed_now(["a walk along the river"]), before)


def test_a_text_with_more_words_than_are_kept() -> None:
    class Small(WordLlamaEmbedder):
        WORDS_KEPT = 400
        MAX_WORDS = 400

    vectors = Small().embed_now([" ".join(f"w{i}" for i in range(5000))])
    assert np.isclose(np.linalg.norm(vectors), 1, atol=1e-5)


@pytest.mark.parametrize("text", ["a" * 10**6, "漢" * 10**6, "no end of words " * 10**5, " " * 10**6, "\ud800 odd"])
def test_long_and_odd_texts_are_bounded(embedder: WordLlamaEmbedder, text: str) -> None:
    vector = embedder.embed_now([text])[0]
    assert np.isfinite(vector).all()


def test_a_long_text_is_known_by_its_beginning(embedder: WordLlamaEmbedder) -> None:
    head = "rivers and mountains " * 2000
    assert np.array_equal(*embedder.embed_now([head + "one end", head + "another end entirely"]))


@given(st.text(max_size=200))
@examples(100)
def test_any_text_gives_a_unit_vector_or_none(embedder: WordLlamaEmbedder, text: str) -> None:
    vector = embedder.embed_now([text])
    length = float(np.linalg.norm(vector))
    assert blank(vector)[0] if length == 0 else abs(length - 1) < 1e-4


def test_threads_share_one_table(embedder: WordLlamaEmbedder) -> None:
    texts = [f"sentence number {i} about topic{i}" for i in range(200)]
    expected = WordLlamaEmbedder().embed_now(texts)
    results: list[bool] = []

    def run() -> None:
        results.append(np.array_equal(embedder.embed_now(texts), expected))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 4


def test_it_finds_what_a_question_is_about(embedder: WordLlamaEmbedder) -> None:
    memories = [
        "Lives in Lisbon",
        "Is allergic to peanuts",
        "Works as a nurse at a hospital",
        "Has a dog named Rex",
        "Prefers type hints in Python",
        "Drives an electric car",
        "Usually wakes up at six",
        "Likes hiking in the mountains",
    ]
    questions = {
        "what city do I live in?": 0,
        "I want to cook for a friend, what food should I avoid?": 1,
        "WHAT DO I DO FOR WORK?": 2,
        "what is my dog called": 3,
        "write a python function": 4,
        "which car should I buy": 5,
        "plan a morning routine": 6,
        "where could we go walking in the mountains": 7,
    }
    scores = embedder.embed_now(list(questions)) @ embedder.embed_now(memories).T
    right = sum(int(row.argmax()) == wanted for row, wanted in zip(scores, questions.values(), strict=True))
    assert right >= 7


# The calibration of `duplicate_threshold`. Each pair is one that ingest must decide on.
SAME = [
    ("Uses Vim for coding", "Uses vim for coding"),
    ("Is vegetarian", "Is a vegetarian"),
    ("Prefers tea over coffee", "Likes tea more than coffee"),
    ("Wakes up at six every morning", "Wakes up at six each morning"),
    ("Likes hiking in the mountains", "Loves hiking in the mountains"),
    ("Likes Italian food", "Loves Italian food"),
    ("Has a dog named Rex", "Has a dog called Rex"),
    ("Is learning to play the guitar", "Is learning guitar"),
    ("Favourite color is blue", "Favorite colour is blue"),
]
OTHER = [
    ("Lives in Lisbon", "Lives in Porto"),
    ("Is vegetarian", "Is vegan"),
    ("Is vegetarian", "Is not vegetarian"),
    ("Wife's name is Maria", "Sister's name is Maria"),
    ("Has a dog named Rex", "Has a dog named Max"),
    ("Birthday is 4 May", "Birthday is 5 May"),
    ("Prefers posts under 800 words", "Prefers posts under 500 words"),
    ("Prefers tea over coffee", "Prefers coffee over tea"),
    ("Has two children", "Has three children"),
    ("Is 34 years old", "Is 35 years old"),
    ("Likes hiking", "Dislikes hiking"),
    ("Wants answers in French", "Wants answers in German"),
    ("Has a dentist appointment on 2026-11-21", "Has a dentist appointment on 2026-11-28"),
    ("Works at Google", "Works at Amazon"),
    ("Is allergic to peanuts", "Is allergic to shellfish"),
    ("Flies to Tokyo in March", "Flies to Tokyo in May"),
    ("Does not eat pork", "Does eat pork"),
]


def test_unlike_claims_are_never_merged(embedder: WordLlamaEmbedder) -> None:
    for pair in OTHER:
        merged = cosine(embedder, *pair) > embedder.duplicate_threshold and same_claim(*pair)
        assert not merged, (pair, cosine(embedder, *pair))


def test_like_claims_are_often_merged(embedder: WordLlamaEmbedder) -> None:
    """The threshold is on the safe side: what it lets pass as two is one memory too many, the other error loses one."""
    merged = [pair for pair in SAME if cosine(embedder, *pair) > embedder.duplicate_threshold and same_claim(*pair)]
    assert len(merged) >= len(SAME) // 2, merged
    assert min(cosine(embedder, *pair) for pair in SAME) > 0.85


# --- the others ---------------------------------------------------------------------------------------------------------


async def test_no_embedder_has_no_dimensions() -> None:
    vectors = await NoEmbedder().embed(["a", "b"])
    assert vectors.shape == (2, 0)


def test_missing_weights_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NotReady, match="MNEME_EMBEDDER"):
        WordLlamaEmbedder(tmp_path)


def configured(**values: object) -> Settings:
    return Settings(_env_file=None, **values)  # type: ignore[arg-type]  # pydantic checks them


def test_the_settings_choose() -> None:
    assert isinstance(build_embedder(configured()), WordLlamaEmbedder)
    assert isinstance(build_embedder(configured(embedder="none")), NoEmbedder)
    remote = build_embedder(configured(embedder="openai", embedder_base_url="http://127.0.0.1:9/v1"))
    assert isinstance(remote, OpenAIEmbedder)
    assert remote.space == "text-embedding-3-small-256"


def test_the_openai_key_goes_to_openai_only() -> None:
    key = SecretStr("sk-canary")
    elsewhere = build_embedder(
        configured(embedder="openai", embedder_base_url="http://127.0.0.1:9/v1", openai_api_key=key)
    )
    assert isinstance(elsewhere, OpenAIEmbedder)
    assert elsewhere._headers == {}
    home = build_embedder(configured(embedder="openai", openai_api_key=key))
    assert isinstance(home, OpenAIEmbedder)
    assert home._headers == {"Authorization": "Bearer sk-canary"}


def test_openai_without_a_key_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(NotReady, match="MNEME_EMBEDDER_BASE_URL"):
        build_embedder(configured(embedder="openai"))
