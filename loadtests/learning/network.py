"""The network of app/memory/tagger.py in PyTorch, and its fit to what the teacher says. PyTorch is installed by hand."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from app.memory.tagger import HEAD_WORDS, MARKS, TRIGRAM_BUCKETS, WORD_BUCKETS
from loadtests.learning.examples import Example, Vocabulary
from loadtests.learning.losses import OUTPUTS, Tensors, compute_taught_loss, make_targets

WIDTH = 128
VECTOR_WIDTH, HASHED_WIDTH, MIXED_WIDTH = 256, 48, 256
"""Numbers of a word's static vector, of a hashed vector, and of what is mixed of both."""
CONVOLUTIONS = (("near", 1), ("middle", 2), ("far", 4), ("wide", 8), ("last", 1))
"""Names of the weights, and dilations."""
BEFORE_MEANS = 3
"""Convolutions before the means of line and message."""
WORD_SPREAD, TRIGRAM_SPREAD = 0.05, 0.1
"""Standard deviations of the hashed vectors before the fit."""
DROPOUT, WORD_DROPOUT = 0.1, 0.03
"""Shares of numbers, and of whole words, that are left out at random while fitting."""
EPOCHS = 7
RATE, WEIGHT_DECAY, MAX_GRADIENT, WARM_UP = 2.5e-3, 0.01, 1.0, 0.15
"""AdamW's greatest learning rate (one cycle) and weight decay; the greatest norm of a gradient; the share of steps in which
the rate rises."""
BATCH_WORDS, LENGTH_JITTER = 8_000, 20
"""Words of a batch with padding. Messages of nearly one length stand together, mixed within `LENGTH_JITTER` words."""
SEED = 0

Weights = dict[str, NDArray[np.float16]]


class Network:
    """The network with its weights, and the table of words that it reads."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vectors = torch.tensor(np.stack(vocabulary.vectors))
        self._buckets = torch.tensor(vocabulary.buckets)
        self._trigrams = torch.tensor(vocabulary.trigrams)
        features = VECTOR_WIDTH + 2 * HASHED_WIDTH
        self.layers = nn.ModuleDict(
            {
                "word": nn.Embedding(WORD_BUCKETS, HASHED_WIDTH),
                "trigram": nn.Embedding(TRIGRAM_BUCKETS, HASHED_WIDTH),
                "input": nn.Linear(features, WIDTH),
                "mix": nn.Linear(features, MIXED_WIDTH),
                "mixed": nn.Linear(MIXED_WIDTH, WIDTH, bias=False),
                "input_marks": nn.Linear(MARKS, WIDTH, bias=False),
                **{name: nn.Conv1d(WIDTH, WIDTH, 3, padding=step, dilation=step) for name, step in CONVOLUTIONS},
                "pool": nn.Linear(3 * WIDTH, WIDTH),
                "heads": nn.Linear(WIDTH, OUTPUTS),
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
        hidden = drop(functional.relu(inputs + layers["input_marks"](batch["marks"]))).transpose(1, 2) * by_place
        for place, (name, _) in enumerate(CONVOLUTIONS[:BEFORE_MEANS]):
            hidden = hidden + functional.relu(layers[name](drop(hidden) if place else hidden)) * by_place
        hidden = hidden.transpose(1, 2)
        whole = (hidden * by_word).sum(1) / by_word.sum(1)
        head_mask = by_word.clone()
        head_mask[:, HEAD_WORDS:] = 0
        head = (hidden * head_mask).sum(1) / head_mask.sum(1)
        means = [_average_lines(hidden, batch["lines"], by_word), _repeat(whole, hidden), _repeat(head, hidden)]
        hidden = (hidden + functional.relu(layers["pool"](torch.cat(means, -1)))).transpose(1, 2) * by_place
        for name, _ in CONVOLUTIONS[BEFORE_MEANS:]:
            hidden = hidden + functional.relu(layers[name](drop(hidden))) * by_place
        return layers["heads"](drop(hidden.transpose(1, 2)))

    def _embed(self, words: Any) -> Any:
        layers, drop = self.layers, self.layers["drop"]
        distinct, places = torch.unique(words, return_inverse=True)
        trigrams = self._trigrams[distinct]
        there = (trigrams >= 0).float()[..., None]
        spelling = (layers["trigram"](trigrams.clamp(min=0)) * there).sum(1) / there.sum(1)
        hashed = drop(layers["word"](self._buckets[distinct]))
        features = torch.cat([self._vectors[distinct].float(), hashed, spelling], -1)
        return (layers["input"](features) + layers["mixed"](drop(functional.relu(layers["mix"](features)))))[places]

    def export(self) -> Weights:
        """Return the weights in half precision, as `MessageTagger` reads them."""
        weights: Weights = {}
        for name, tensor in self.layers.state_dict().items():
            layer, _, part = name.rpartition(".")
            array = tensor.detach().numpy()
            if part == "bias":
                layer = f"{layer}_bias"
            elif array.ndim == 3:  # a convolution: outputs, inputs, places
                array = array.transpose(2, 1, 0)
            elif layer not in ("word", "trigram"):
                array = array.T
            weights[layer] = np.ascontiguousarray(array).astype(np.float16)
        return weights


def _average_lines(hidden: Any, lines: Any, mask: Any) -> Any:
    count, width = int(lines.max()) + 1, hidden.shape[2]
    places = lines[:, :, None].expand_as(hidden)
    sums = torch.zeros(hidden.shape[0], count, width).scatter_add(1, places, hidden * mask)
    counts = torch.zeros(hidden.shape[0], count, 1).scatter_add(1, lines[:, :, None], mask).clamp(min=1)
    return (sums / counts).gather(1, places)


def _repeat(mean: Any, hidden: Any) -> Any:
    return mean[:, None].expand_as(hidden)


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
    batch = make_targets([(example, 0, len(example.words)) for example in examples])
    shape = batch["keep"].shape
    batch |= {name: torch.zeros(*shape, dtype=torch.long) for name in ("words", "lines")}
    batch |= {"mask": torch.zeros(*shape), "marks": torch.zeros(*shape, MARKS)}
    batch |= {"taught": torch.zeros(*shape, OUTPUTS), "taught_weights": torch.zeros(len(examples))}
    for row, example in enumerate(examples):
        count = len(example.words)
        batch["mask"][row, :count] = 1
        batch["taught_weights"][row] = example.taught_weight
        for name in ("words", "lines", "marks", "taught"):
            batch[name][row, :count] = torch.from_numpy(getattr(example, name))
    return batch


def fit_network(
    examples: Sequence[Example], vocabulary: Vocabulary, epochs: int, report: Callable[[str], None]
) -> Weights:
    """Fit the network to what the teacher and the labels say, and return its weights."""
    torch.manual_seed(SEED)
    rng = random.Random(SEED)
    network = Network(vocabulary)
    batches = make_batches(examples, rng)
    optimizer = torch.optim.AdamW(network.layers.parameters(), lr=RATE, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, RATE, total_steps=epochs * len(batches) + 1, pct_start=WARM_UP
    )
    network.layers.train()
    for epoch in range(epochs):
        rng.shuffle(batches)
        losses = 0.0
        for batch in batches:
            optimizer.zero_grad(set_to_none=True)
            loss = compute_taught_loss(network.compute(batch), batch)
            loss.backward()
            nn.utils.clip_grad_norm_(network.layers.parameters(), MAX_GRADIENT)
            optimizer.step()
            schedule.step()
            losses += float(loss.detach())
        report(f"network, epoch {epoch + 1} of {epochs}: loss {losses / len(batches):.4f}")
    return network.export()
