"""The encoder against a plain one, written as the formulas are; and what a folder must not be."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file

from app.errors import NotReady
from app.features.minilm import gelu, load_bert
from tests.support.bert import HEADS, LAYERS, LONGEST, WIDE, Tensors, config, make_model, tensors

TEXTS = [[2, 3], [2, 9, 11, 3], [2, *range(4, 30), 3], [2, 9, 3], [2] * LONGEST]


def plain(weights: Tensors, ids: Sequence[int]) -> NDArray[np.float64]:
    """The mean over the tokens in the last layer: one text, one head and one token at a time, in float64."""
    w = {name: value.astype(np.float64) for name, value in weights.items()}

    def norm(x: NDArray[np.float64], name: str) -> NDArray[np.float64]:
        normal = (x - x.mean()) / math.sqrt(x.var() + 1e-12)
        return np.asarray(normal * w[f"{name}.weight"] + w[f"{name}.bias"])

    def dense(x: NDArray[np.float64], name: str) -> NDArray[np.float64]:
        return np.asarray(w[f"{name}.weight"] @ x + w[f"{name}.bias"])

    segment = w["embeddings.token_type_embeddings.weight"][0]
    words, places = w["embeddings.word_embeddings.weight"], w["embeddings.position_embeddings.weight"]
    x = [norm(words[each] + places[n] + segment, "embeddings.LayerNorm") for n, each in enumerate(ids)]
    width = WIDE // HEADS
    for layer in (f"encoder.layer.{n}" for n in range(LAYERS)):
        query, key, value = (
            [dense(each, f"{layer}.attention.self.{k}") for each in x] for k in ("query", "key", "value")
        )
        after = []
        for n, each in enumerate(x):
            seen = []
            for head in (slice(h * width, (h + 1) * width) for h in range(HEADS)):
                scores = np.array([math.exp(query[n][head] @ other[head] / math.sqrt(width)) for other in key])
                seen.append(sum(s * v[head] for s, v in zip(scores / scores.sum(), value, strict=True)))
            attended = dense(np.concatenate(seen), f"{layer}.attention.output.dense")
            settled = norm(each + attended, f"{layer}.attention.output.LayerNorm")
            wide = dense(settled, f"{layer}.intermediate.dense")
            wide = np.array([0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in wide])
            after.append(norm(settled + dense(wide, f"{layer}.output.dense"), f"{layer}.output.LayerNorm"))
        x = after
    return np.asarray(np.mean(x, axis=0))


def test_it_computes_what_the_formulas_say(tmp_path: Path) -> None:
    bert = load_bert(make_model(tmp_path))
    assert (bert.dimensions, len(bert.layers), bert.heads) == (WIDE, LAYERS, HEADS)
    wanted = np.array([plain(tensors(), ids) for ids in TEXTS])
    assert np.abs(bert.pooled(TEXTS) - wanted).max() < 5e-6


def test_a_text_has_one_vector_alone_and_in_company(tmp_path: Path) -> None:
    bert = load_bert(make_model(tmp_path))
    alone = np.concatenate([bert.pooled([ids]) for ids in TEXTS])
    assert np.allclose(bert.pooled(TEXTS), alone, atol=1e-6)
    assert np.allclose(bert.pooled(TEXTS[::-1])[::-1], alone, atol=1e-6)


def test_gelu_is_the_exact_one() -> None:
    x = np.linspace(-12, 12, 100_001, dtype=np.float32)
    wanted = np.array([0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in x.astype(float)])
    gelu(x)
    assert np.abs(x - wanted).max() < 5e-7


@pytest.mark.parametrize(("kind", "error"), [(np.float16, 5e-3), (np.float64, 1e-6)])
def test_other_types_of_numbers(tmp_path: Path, kind: Any, error: float) -> None:
    narrow = {name: each.astype(kind) if each.dtype == np.float32 else each for name, each in tensors().items()}
    bert = load_bert(make_model(tmp_path, weights=narrow))
    assert np.abs(bert.pooled(TEXTS) - [plain(tensors(), ids) for ids in TEXTS]).max() < error


def test_bfloat16(tmp_path: Path) -> None:
    """numpy has no such type: the upper half of a float32's bits."""
    make_model(tmp_path)
    header, data, kept = {}, b"", {}
    for name, each in tensors().items():
        if each.dtype != np.float32:
            continue
        halves = (each.view(np.uint32) >> 16).astype(np.uint16)
        header[name] = {"dtype": "BF16", "shape": each.shape, "data_offsets": [len(data), len(data) + halves.nbytes]}
        data += halves.tobytes()
        kept[name] = (halves.astype(np.uint32) << 16).view(np.float32)
    told = json.dumps(header).encode()
    (tmp_path / "model.safetensors").write_bytes(len(told).to_bytes(8, "little") + told + data)
    bert = load_bert(tmp_path)
    assert np.abs(bert.pooled(TEXTS) - [plain(kept, ids) for ids in TEXTS]).max() < 5e-6


def test_names_with_the_prefix_of_a_larger_model(tmp_path: Path) -> None:
    prefixed = {f"bert.{name}": each for name, each in tensors().items()} | {"cls.bias": np.zeros(3, np.float32)}
    bert = load_bert(make_model(tmp_path, weights=prefixed))
    assert np.abs(bert.pooled(TEXTS[:2]) - [plain(tensors(), ids) for ids in TEXTS[:2]]).max() < 5e-6


def test_without_a_config_the_shapes_say_it(tmp_path: Path) -> None:
    """But for the heads, which no shape tells: of MiniLM's width, as many as it has."""
    assert load_bert(make_model(tmp_path / "a", told=config() | {"layer_norm_eps": 1e-5})).epsilon == 1e-5
    with pytest.raises(NotReady, match="16 dimensions for 0 heads"):
        load_bert(make_model(tmp_path / "b", told={}))


def without(name: str) -> Tensors:
    return {key: each for key, each in tensors().items() if key != name}


NAME = "encoder.layer.1.output.dense.weight"


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        (without(NAME), f"no {NAME}"),
        (without("embeddings.word_embeddings.weight"), "it is no BERT encoder"),
        (tensors() | {NAME: np.zeros((3, 4), np.float32)}, "is 3 × 4 where 16 × 32 belongs"),
        (tensors() | {NAME: np.zeros(4, np.float32)}, "is 4 where 16 × 32 belongs"),
        (tensors() | {NAME: np.zeros((WIDE, 32), np.int8)}, "is of type I8"),
        (tensors() | {NAME: np.full((WIDE, 32), np.nan, np.float32)}, "values that are no numbers"),
        (tensors() | {"embeddings.word_embeddings.weight": np.zeros((0, WIDE), np.float32)}, "is empty"),
    ],
)
def test_weights_of_something_else_are_named(tmp_path: Path, weights: Tensors, says: str) -> None:
    with pytest.raises(NotReady, match=says) as told:
        load_bert(make_model(tmp_path, weights=weights))
    assert "model.safetensors" in str(told.value)


def cut_short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-10])


def no_header(file: Path) -> None:
    file.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:53aa\nsize 90868376\n")


def no_tensors(file: Path) -> None:
    save_file({}, file)


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (cut_short, "no whole safetensors file"),
        (no_header, "no whole safetensors file"),
        (no_tensors, "no BERT encoder"),
        (Path.unlink, "cannot be read"),
        (lambda file: file.write_bytes(b""), "no whole safetensors file"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, harm: Callable[[Path], object], says: str) -> None:
    harm(make_model(tmp_path) / "model.safetensors")
    with pytest.raises(NotReady, match=says) as told:
        load_bert(tmp_path)
    assert str(tmp_path / "model.safetensors") in str(told.value)


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"model_type": "mpnet"}, "'mpnet'"),
        ({"hidden_act": "gelu_new"}, "'gelu_new'"),
        ({"position_embedding_type": "relative_key"}, "'relative_key'"),
        ({"hidden_size": 32}, "hidden_size is 32"),
        ({"num_hidden_layers": 3}, "num_hidden_layers is 3"),
        ({"num_attention_heads": "four"}, "'four'"),
        ({"num_attention_heads": 5}, "16 dimensions for 5 heads"),
        ({"layer_norm_eps": None}, "layer_norm_eps is None"),
    ],
)
def test_another_kind_of_model_is_refused(tmp_path: Path, told: dict[str, Any], says: str) -> None:
    make_model(tmp_path, told=config() | told)
    with pytest.raises(NotReady, match=says):
        load_bert(tmp_path)


def test_another_pooling_is_refused(tmp_path: Path) -> None:
    pooling = make_model(tmp_path) / "1_Pooling"
    pooling.mkdir()
    (pooling / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": False}))
    with pytest.raises(NotReady, match="another pooling"):
        load_bert(tmp_path)


@pytest.mark.parametrize("text", ["[]", "{", "\ud800".encode("utf-8", "surrogatepass")])
def test_a_config_that_is_none(tmp_path: Path, text: str | bytes) -> None:
    (make_model(tmp_path) / "config.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(NotReady, match=r"config\.json"):
        load_bert(tmp_path)
