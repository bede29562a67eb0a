"""The network of app/memory/tagger.py in PyTorch, its loss and its fit. PyTorch is installed by hand (`pip install torch`)."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from app.memory.tagger import FRAMES, HEAD_WORDS, KINDS, MARKS, SUBJECTS, TRIGRAM_BUCKETS, WORD_BUCKETS
from loadtests.learning.examples import NO_LABEL, UNSURE, Example, Vocabulary

WIDTH = 128
VECTOR_WIDTH, VECTOR_INPUTS, HASHED_WIDTH = 256, 64, 32
"""Numbers of a word's static vector, of what the network makes of it, and of a hashed vector."""
CONVOLUTIONS = (("near", 1), ("middle", 2), ("far", 4), ("wide", 8))
"""Names of the weights, and dilations. The last one comes after the means of line and message."""
WORD_SPREAD, TRIGRAM_SPREAD = 0.05, 0.1
"""Standard deviations of the hashed vectors before the fit."""
DROPOUT, WORD_DROPOUT = 0.25, 0.04
"""Shares of numbers, and of whole words, that are left out at random while fitting."""
RATE, WEIGHT_DECAY, MAX_GRADIENT = 2e-3, 0.02, 1.0
"""AdamW's greatest learning rate (one cycle) and weight decay; the greatest norm of a gradient."""
BEGINS_WEIGHT, KINDS_WEIGHT, SUBJECTS_WEIGHT, FRAMES_WEIGHT = 0.5, 0.15, 0.1, 0.3
"""What the other outputs count in the loss, where `keep` counts 1."""
BATCH_WORDS, LENGTH_JITTER = 8_000, 20
"""Words of a batch with padding. Messages of nearly one length stand together, mixed within `LENGTH_JITTER` words."""
SEED = 0

_KINDS_END = 2 + len(KINDS)
_SUBJECTS_END = _KINDS_END + len(SUBJECTS)
_OUTPUTS = _SUBJECTS_END + len(FRAMES)

Tensors = dict[str, Any]
Weights = dict[str, NDArray[np.float16]]


class Network:
    """The network with its weights, and the table of words that it reads."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vectors = torch.tensor(np.stack(vocabulary.vectors))
        self._buckets = torch.tensor(vocabulary.buckets)
        self._trigrams = torch.tensor(vocabulary.trigrams)
        self.layers = nn.ModuleDict(
            {
                "word": nn.Embedding(WORD_BUCKETS, HASHED_WIDTH),
                "trigram": nn.Embedding(TRIGRAM_BUCKETS, HASHED_WIDTH),
                "vector": nn.Linear(VECTOR_WIDTH, VECTOR_INPUTS, bias=False),
                "input": nn.Linear(VECTOR_INPUTS + 2 * HASHED_WIDTH + MARKS, WIDTH),
                **{name: nn.Conv1d(WIDTH, WIDTH, 3, padding=step, dilation=step) for name, step in CONVOLUTIONS},
                "pool": nn.Linear(3 * WIDTH, WIDTH),
                "heads": nn.Linear(WIDTH, _OUTPUTS),
                "drop": nn.Dropout(DROPOUT),
            }
        )
        nn.init.normal_(self.layers["word"].weight, std=WORD_SPREAD)
        nn.init.normal_(self.layers["trigram"].weight, std=TRIGRAM_SPREAD)

    def compute(self, batch: Tensors) -> Any:
        """Return the outputs (messages, words, 19) before sigmoid and softmax, in the order of `MessageTagger.tag`."""
        layers, drop = self.layers, self.layers["drop"]
        by_word, by_place = batch["mask"][:, :, None], batch["mask"][:, None, :]
        inputs = self._embed(batch["words"])
        if layers.training:
            inputs = inputs * (torch.rand(inputs.shape[:2]) > WORD_DROPOUT).float()[..., None]
        hidden = functional.relu(layers["input"](torch.cat([inputs, batch["marks"]], -1)))
        hidden = drop(hidden).transpose(1, 2) * by_place
        for place, (name, _) in enumerate(CONVOLUTIONS[:-1]):
            hidden = hidden + functional.relu(layers[name](drop(hidden) if place else hidden)) * by_place
        hidden = hidden.transpose(1, 2)
        whole = (hidden * by_word).sum(1) / by_word.sum(1)
        head_mask = by_word.clone()
        head_mask[:, HEAD_WORDS:] = 0
        head = (hidden * head_mask).sum(1) / head_mask.sum(1)
        means = [_average_lines(hidden, batch["lines"], by_word), _repeat(whole, hidden), _repeat(head, hidden)]
        hidden = (hidden + functional.relu(layers["pool"](torch.cat(means, -1)))).transpose(1, 2) * by_place
        hidden = hidden + functional.relu(layers[CONVOLUTIONS[-1][0]](drop(hidden))) * by_place
        return layers["heads"](drop(hidden.transpose(1, 2)))

    def _embed(self, words: Any) -> Any:
        distinct, places = torch.unique(words, return_inverse=True)
        trigrams = self._trigrams[distinct]
        there = (trigrams >= 0).float()[..., None]
        spelling = (self.layers["trigram"](trigrams.clamp(min=0)) * there).sum(1) / there.sum(1)
        drop = self.layers["drop"]
        vectors = self.layers["vector"](drop(self._vectors[distinct].float()))
        return torch.cat([vectors, drop(self.layers["word"](self._buckets[distinct])), spelling], -1)[places]

    def export(self) -> Weights:
        """Return the weights in half precision, as `MessageTagger` reads them: the two layers below a vector are one."""
        state = {name: tensor.detach().numpy() for name, tensor in self.layers.state_dict().items()}
        joined = state["input.weight"]
        word, trigram, marks = (VECTOR_INPUTS + part * HASHED_WIDTH for part in range(3))
        weights = {
            "input_vector": (joined[:, :word] @ state["vector.weight"]).T,
            "input_word": joined[:, word:trigram].T,
            "input_trigram": joined[:, trigram:marks].T,
            "input_marks": joined[:, marks:].T,
            "input_bias": state["input.bias"],
            "word": state["word.weight"],
            "trigram": state["trigram.weight"],
        }
        for name, _ in CONVOLUTIONS:
            weights[name] = state[f"{name}.weight"].transpose(2, 1, 0)
            weights[f"{name}_bias"] = state[f"{name}.bias"]
        for name in ("pool", "heads"):
            weights[name] = state[f"{name}.weight"].T
            weights[f"{name}_bias"] = state[f"{name}.bias"]
        return {name: np.ascontiguousarray(array).astype(np.float16) for name, array in weights.items()}


def _average_lines(hidden: Any, lines: Any, mask: Any) -> Any:
    count, width = int(lines.max()) + 1, hidden.shape[2]
    places = lines[:, :, None].expand_as(hidden)
    sums = torch.zeros(hidden.shape[0], count, width).scatter_add(1, places, hidden * mask)
    counts = torch.zeros(hidden.shape[0], count, 1).scatter_add(1, lines[:, :, None], mask).clamp(min=1)
    return (sums / counts).gather(1, places)


def _repeat(mean: Any, hidden: Any) -> Any:
    return mean[:, None].expand_as(hidden)


def compute_loss(outputs: Any, batch: Tensors) -> Any:
    """Return the loss of a batch: cross entropy of all five outputs, each with its weight."""
    binary, classes = functional.binary_cross_entropy_with_logits, functional.cross_entropy
    weights, keep = batch["weights"], batch["keep"]
    total = weights.sum()
    sureness = torch.where(keep == UNSURE, UNSURE, 1.0)
    loss = (binary(outputs[..., 0], (keep > 0).float(), reduction="none") * weights * sureness).sum() / total
    loss = loss + BEGINS_WEIGHT * (binary(outputs[..., 1], batch["begins"], reduction="none") * weights).sum() / total
    for name, first, last, weight in (
        ("kinds", 2, _KINDS_END, KINDS_WEIGHT),
        ("subjects", _KINDS_END, _SUBJECTS_END, SUBJECTS_WEIGHT),
        ("frames", _SUBJECTS_END, _OUTPUTS, FRAMES_WEIGHT),
    ):
        labels = batch[name].reshape(-1)
        if (labels != NO_LABEL).any():
            guesses = outputs[..., first:last].reshape(-1, last - first)
            loss = loss + weight * classes(guesses, labels, ignore_index=NO_LABEL)
    return loss


def make_batches(examples: Sequence[Example], rng: random.Random) -> list[Tensors]:
    """Return the examples in batches of at most `BATCH_WORDS` words, messages of nearly one length together."""
    ordered = sorted(examples, key=lambda example: len(example.words) + rng.random() * LENGTH_JITTER)
    batches: list[Tensors] = []
    current: list[Example] = []
    for example in ordered:
        if current and len(example.words) * (len(current) + 1) > BATCH_WORDS:
            batches.append(_pad(current))
            current = []
        current.append(example)
    return [*batches, _pad(current)]


def _pad(examples: Sequence[Example]) -> Tensors:
    shape = len(examples), max(len(example.words) for example in examples)
    batch: Tensors = {"mask": torch.zeros(*shape), "marks": torch.zeros(*shape, MARKS)}
    batch |= {name: torch.zeros(*shape) for name in ("keep", "begins", "weights")}
    batch |= {name: torch.zeros(*shape, dtype=torch.long) for name in ("words", "lines")}
    batch |= {name: torch.full(shape, NO_LABEL) for name in ("kinds", "subjects", "frames")}
    for row, example in enumerate(examples):
        count = len(example.words)
        batch["mask"][row, :count] = 1
        for name in batch.keys() - {"mask"}:
            batch[name][row, :count] = torch.from_numpy(getattr(example, name))
    return batch


def fit_network(
    examples: Sequence[Example], vocabulary: Vocabulary, epochs: int, report: Callable[[str], None]
) -> Weights:
    """Fit the network and return its weights."""
    torch.manual_seed(SEED)
    rng = random.Random(SEED)
    network = Network(vocabulary)
    batches = make_batches(examples, rng)
    optimizer = torch.optim.AdamW(network.layers.parameters(), lr=RATE, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=epochs * len(batches))
    network.layers.train()
    for epoch in range(epochs):
        rng.shuffle(batches)
        losses = 0.0
        for batch in batches:
            optimizer.zero_grad()
            loss = compute_loss(network.compute(batch), batch)
            loss.backward()
            nn.utils.clip_grad_norm_(network.layers.parameters(), MAX_GRADIENT)
            optimizer.step()
            schedule.step()
            losses += float(loss.detach())
        report(f"epoch {epoch + 1} of {epochs}: loss {losses / len(batches):.4f}")
    return network.export()
