"""Losses that the teacher and the network are fitted with: against labels, and for the network also against the teacher."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

from app.memory.tagger import FRAMES, KINDS, SUBJECTS
from loadtests.learning.examples import NO_LABEL, UNSURE, Example

BEGINS_WEIGHT, KINDS_WEIGHT, SUBJECTS_WEIGHT, FRAMES_WEIGHT = 0.5, 0.15, 0.1, 0.3
"""What the other outputs count in the loss, where `keep` counts 1."""
LABELS_WEIGHT = 0.5
"""What the labels count beside the teacher, in the network's loss."""

_KINDS_END = 2 + len(KINDS)
_SUBJECTS_END = _KINDS_END + len(SUBJECTS)
OUTPUTS = _SUBJECTS_END + len(FRAMES)
CLASSES = (
    ("kinds", slice(2, _KINDS_END), KINDS_WEIGHT),
    ("subjects", slice(_KINDS_END, _SUBJECTS_END), SUBJECTS_WEIGHT),
    ("frames", slice(_SUBJECTS_END, OUTPUTS), FRAMES_WEIGHT),
)
"""The outputs that are classes: their name, their place, and what they count."""
_BINARY_WEIGHTS = (1.0, BEGINS_WEIGHT)

Tensors = dict[str, Any]


def compute_probabilities(outputs: Any) -> Any:
    """Return the probabilities of all outputs: two of their own, and three groups of classes."""
    groups = [torch.softmax(outputs[..., place], -1) for _, place, _ in CLASSES]
    return torch.cat([torch.sigmoid(outputs[..., :2]), *groups], -1)


def make_targets(parts: Sequence[tuple[Example, int, int]]) -> Tensors:
    """Return the labels of words `first` to `last` of examples, and their weights, as rows of one length."""
    shape = len(parts), max(last - first for _, first, last in parts)
    targets: Tensors = {name: torch.zeros(*shape) for name in ("keep", "begins", "weights")}
    targets |= {name: torch.full(shape, NO_LABEL) for name, _, _ in CLASSES}
    for row, (example, first, last) in enumerate(parts):
        for name, tensor in targets.items():
            tensor[row, : last - first] = torch.from_numpy(getattr(example, name)[first:last])
    return targets


def compute_label_loss(outputs: Any, targets: Tensors) -> Any:
    """Return the loss against the labels: cross entropy of all outputs, each with its weight."""
    binary, classes = functional.binary_cross_entropy_with_logits, functional.cross_entropy
    weights, keep = targets["weights"], targets["keep"]
    total = weights.sum().clamp(min=1)
    sureness = torch.where(keep == UNSURE, UNSURE, 1.0)
    loss = (binary(outputs[..., 0], (keep > 0).float(), reduction="none") * weights * sureness).sum() / total
    loss = loss + BEGINS_WEIGHT * (binary(outputs[..., 1], targets["begins"], reduction="none") * weights).sum() / total
    for name, place, weight in CLASSES:
        labels = targets[name].reshape(-1)
        if (labels != NO_LABEL).any():
            guesses = outputs[..., place].reshape(labels.shape[0], -1)
            loss = loss + weight * classes(guesses, labels, ignore_index=NO_LABEL)
    return loss


def compute_taught_loss(outputs: Any, batch: Tensors) -> Any:
    """Return the loss against the teacher's probabilities, plus that against the labels where there are some."""
    mask = (batch["mask"] * batch["taught_weights"][:, None])[..., None]
    total = mask.sum()
    binary = functional.binary_cross_entropy_with_logits(outputs[..., :2], batch["taught"][..., :2], reduction="none")
    loss = (binary * mask * torch.tensor(_BINARY_WEIGHTS)).sum() / total
    for _, place, weight in CLASSES:
        logarithms = functional.log_softmax(outputs[..., place], -1)
        loss = loss - weight * (logarithms * batch["taught"][..., place] * mask).sum() / total
    labelled = batch["weights"].sum()
    if labelled > 0:
        share = (labelled / batch["mask"].sum()).clamp(max=1.0)
        loss = loss + LABELS_WEIGHT * share * compute_label_loss(outputs, batch)
    return loss
