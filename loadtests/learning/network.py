"""The tagger's network in PyTorch, for fitting. Its layers are those of app/memory/tagger.py, which runs it in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from app.memory.tagger import FRAMES, HEAD_WORDS, KINDS, MARKS, SUBJECTS, TRIGRAM_BUCKETS, WORD_BUCKETS

WIDTH, VECTOR_WIDTH, HASH_WIDTH = 128, 64, 32
DROPOUT, WORD_DROPOUT = 0.25, 0.04
"""Shares of hidden values, and of whole words, that are set to zero in fitting."""
DILATIONS = (1, 2, 4, 8)
LAYERS = ("near", "middle", "far", "wide")
KIND_PART = slice(2, 2 + len(KINDS))
SUBJECT_PART = slice(KIND_PART.stop, KIND_PART.stop + len(SUBJECTS))
FRAME_PART = slice(SUBJECT_PART.stop, SUBJECT_PART.stop + len(FRAMES))
"""Columns of the output; the first two are `keep` and `begins`."""
UNSURE_WEIGHT = 0.5
"""What a word of a fact that is not sure counts."""
LOSS_WEIGHTS = {"begins": 0.5, "kind": 0.15, "subject": 0.1, "frame": 0.3}

Batch = dict[str, torch.Tensor]


class Vocabulary:
    """The words of the fitted messages: static vectors (n, 256), buckets (n,) and trigram buckets (n, 12), -1 for none."""

    def __init__(self, vectors: Sequence[Any], buckets: Sequence[int], trigrams: Sequence[Sequence[int]]) -> None:
        self.vectors = torch.tensor(np.stack(vectors))
        self.buckets = torch.tensor(buckets)
        self.trigrams = torch.tensor([[*places, *[-1] * 12][:12] for places in trigrams])


class TaggerNetwork(nn.Module):  # type: ignore[misc]  # PyTorch is not installed where this is checked
    """Returns (messages, words, 19) logits."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.word = nn.Embedding(WORD_BUCKETS, HASH_WIDTH)
        self.trigram = nn.Embedding(TRIGRAM_BUCKETS, HASH_WIDTH)
        nn.init.normal_(self.word.weight, std=0.05)
        nn.init.normal_(self.trigram.weight, std=0.1)
        self.vector = nn.Linear(256, VECTOR_WIDTH, bias=False)
        self.input = nn.Linear(VECTOR_WIDTH + 2 * HASH_WIDTH + MARKS, WIDTH)
        self.layers = nn.ModuleList(nn.Conv1d(WIDTH, WIDTH, 3, padding=step, dilation=step) for step in DILATIONS)
        self.pool = nn.Linear(3 * WIDTH, WIDTH)
        self.heads = nn.Linear(WIDTH, FRAME_PART.stop)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, batch: Batch) -> torch.Tensor:
        unique, places = torch.unique(batch["words"], return_inverse=True)
        trigrams = self.vocabulary.trigrams[unique]
        present = (trigrams >= 0).float()[..., None]
        spelling = (self.trigram(trigrams.clamp(min=0)) * present).sum(1) / present.sum(1)
        vectors = self.vector(self.dropout(self.vocabulary.vectors[unique].float()))
        hashed = self.dropout(self.word(self.vocabulary.buckets[unique]))
        words = torch.cat([vectors, hashed, spelling], -1)[places]
        if self.training:
            words = words * (torch.rand(words.shape[:2]) > WORD_DROPOUT).float()[..., None]
        mask = batch["mask"][:, :, None]
        hidden = functional.relu(self.input(torch.cat([words, batch["marks"]], -1)))
        hidden = self.dropout(hidden) * mask
        for layer in list(self.layers)[:3]:
            hidden = hidden + self._convolve(layer, hidden, mask)
        hidden = hidden + functional.relu(self.pool(self._pool(hidden, batch["lines"], mask)))
        hidden = hidden * mask
        hidden = hidden + self._convolve(self.layers[3], hidden, mask)
        logits: torch.Tensor = self.heads(self.dropout(hidden))
        return logits

    def _convolve(self, layer: nn.Module, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return functional.relu(layer(self.dropout(hidden).transpose(1, 2))).transpose(1, 2) * mask

    def _pool(self, hidden: torch.Tensor, lines: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the means of each word's line, of its message, and of the message's head."""
        messages, _, width = hidden.shape
        count = int(lines.max()) + 1
        index = lines[:, :, None].expand_as(hidden)
        sums = torch.zeros(messages, count, width).scatter_add(1, index, hidden * mask)
        sizes = torch.zeros(messages, count, 1).scatter_add(1, lines[:, :, None], mask).clamp(min=1)
        of_lines = (sums / sizes).gather(1, index)
        of_message = (hidden * mask).sum(1) / mask.sum(1)
        head = mask.clone()
        head[:, HEAD_WORDS:] = 0
        of_head = (hidden * head).sum(1) / head.sum(1)
        parts = (of_lines, of_message[:, None].expand_as(hidden), of_head[:, None].expand_as(hidden))
        return torch.cat(parts, -1)


def compute_loss(logits: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Return the loss of a batch: cross-entropy of `keep` and `begins` for each word that was read, and of kind, subject and
    frame where they are labelled (-1: not)."""
    weights, keep = batch["weights"], batch["keep"]
    size = weights.sum()
    sure = torch.where(keep == UNSURE_WEIGHT, UNSURE_WEIGHT, 1.0)
    binary = functional.binary_cross_entropy_with_logits
    loss = (binary(logits[..., 0], (keep > 0).float(), reduction="none") * weights * sure).sum() / size
    begins = (binary(logits[..., 1], batch["begins"], reduction="none") * weights).sum() / size
    loss = loss + LOSS_WEIGHTS["begins"] * begins
    for name, part in (("kind", KIND_PART), ("subject", SUBJECT_PART), ("frame", FRAME_PART)):
        labels = batch[name].reshape(-1)
        if (labels >= 0).any():
            columns = logits[..., part].reshape(len(labels), -1)
            loss = loss + LOSS_WEIGHTS[name] * functional.cross_entropy(columns, labels, ignore_index=-1)
    return loss


def write_weights(network: TaggerNetwork, file: Path) -> None:
    """Write the weights in the form that app/memory/tagger.py reads, in half precision."""
    state = {name: values.detach().numpy() for name, values in network.state_dict().items()}
    into, hashes_end = state["input.weight"], VECTOR_WIDTH + 2 * HASH_WIDTH
    arrays = {
        "input_vector": (into[:, :VECTOR_WIDTH] @ state["vector.weight"]).T,
        "input_word": into[:, VECTOR_WIDTH : VECTOR_WIDTH + HASH_WIDTH].T,
        "input_trigram": into[:, VECTOR_WIDTH + HASH_WIDTH : hashes_end].T,
        "input_marks": into[:, hashes_end:].T,
        "input_bias": state["input.bias"],
        "word": state["word.weight"],
        "trigram": state["trigram.weight"],
        "pool": state["pool.weight"].T,
        "pool_bias": state["pool.bias"],
        "heads": state["heads.weight"].T,
        "heads_bias": state["heads.bias"],
    }
    for number, name in enumerate(LAYERS):
        arrays[name] = state[f"layers.{number}.weight"].transpose(2, 1, 0)
        arrays[f"{name}_bias"] = state[f"layers.{number}.bias"]
    halves = {name: np.ascontiguousarray(values).astype(np.float16) for name, values in arrays.items()}
    np.savez_compressed(file, **halves)  # type: ignore[arg-type]  # its stub takes no mapping of arrays
