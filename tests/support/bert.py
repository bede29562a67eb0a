"""A tiny BERT encoder as a folder of files, with weights by lot: what it says means little, but texts with words in common
are near each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import BertProcessing

WIDE, INNER, LAYERS, HEADS, LONGEST = 16, 32, 2, 4, 64
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
WORDS = """
i a the my is in on of and what where who live lives boat dog called named have has estrela bolt lisbon porto tea coffee
prefers likes works as nurse wife maria turn number . , ? ! '
""".split()  # noqa: SIM905
LETTERS = [f"{join}{chr(97 + n)}" for n in range(26) for join in ("", "##")]
DIGITS = [f"{join}{n}" for n in range(10) for join in ("", "##")]

Tensors = dict[str, NDArray[Any]]


def tensors(seed: int = 7) -> Tensors:
    """The weights, by the names that `transformers` gives them."""
    lot = np.random.default_rng(seed)

    def some(*shape: int, size: float = 0.1) -> NDArray[np.float32]:
        return (lot.standard_normal(shape) * size).astype(np.float32)

    made: Tensors = {
        "embeddings.word_embeddings.weight": some(len(vocabulary()), WIDE, size=1.0),
        "embeddings.position_embeddings.weight": some(LONGEST, WIDE),
        "embeddings.token_type_embeddings.weight": some(2, WIDE),
        "embeddings.position_ids": np.arange(LONGEST, dtype=np.int64)[None],
        "pooler.dense.weight": some(WIDE, WIDE),
    }

    def dense(name: str, out: int, into: int) -> None:
        made[f"{name}.weight"], made[f"{name}.bias"] = some(out, into, size=0.3), some(out)

    def norm(name: str) -> None:
        made[f"{name}.weight"], made[f"{name}.bias"] = 1 + some(WIDE), some(WIDE)

    norm("embeddings.LayerNorm")
    for n in range(LAYERS):
        layer = f"encoder.layer.{n}"
        for each in ("query", "key", "value"):
            dense(f"{layer}.attention.self.{each}", WIDE, WIDE)
        dense(f"{layer}.attention.output.dense", WIDE, WIDE)
        norm(f"{layer}.attention.output.LayerNorm")
        dense(f"{layer}.intermediate.dense", INNER, WIDE)
        dense(f"{layer}.output.dense", WIDE, INNER)
        norm(f"{layer}.output.LayerNorm")
    return made


def vocabulary() -> dict[str, int]:
    return {token: n for n, token in enumerate(dict.fromkeys([*SPECIAL, *WORDS, *LETTERS, *DIGITS]))}


def config() -> dict[str, Any]:
    return {
        "model_type": "bert",
        "hidden_act": "gelu",
        "hidden_size": WIDE,
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "layer_norm_eps": 1e-12,
    }


def tokenizer() -> Tokenizer:
    """With a padding and a truncation of its own, as published ones have."""
    words = vocabulary()
    made = Tokenizer(WordPiece(words, unk_token="[UNK]"))
    made.normalizer = BertNormalizer()
    made.pre_tokenizer = BertPreTokenizer()
    made.post_processor = BertProcessing(("[SEP]", words["[SEP]"]), ("[CLS]", words["[CLS]"]))
    made.enable_padding(length=12)
    made.enable_truncation(12)
    return made


def make_model(folder: Path, *, weights: Tensors | None = None, told: dict[str, Any] | None = None) -> Path:
    """A folder that MNEME_EMBEDDER_FOLDER may name. `told`: its config.json; an empty one is left out."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights if weights is not None else tensors(), folder / "model.safetensors")
    tokenizer().save(str(folder / "tokenizer.json"))
    told = config() if told is None else told
    if told:
        (folder / "config.json").write_text(json.dumps(told))
    return folder
