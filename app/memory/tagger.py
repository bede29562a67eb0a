"""A small convolutional network that marks each word of a user's message: worth keeping, a statement's kind and subject, and
the frame that the word stands in.

The network is fitted offline on labelled conversations (`python -m loadtests.learning`); `tagger.npz` holds its weights, and
loadtests/results/learning.md its report. Here only numpy runs. Each word enters as the sum of a static vector of the package
wordllama, a hashed vector of its own, the mean of its hashed letter trigrams, and surface marks; residual convolutions of
growing dilation and the means of line and message give it context (Collobert et al., "Natural language processing (almost)
from scratch", 2011; Yu and Koltun, "Multi-scale context aggregation by dilated convolutions", 2016).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple, cast, get_args
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from app.providers.embeddings import WordVectors

FILE = Path(__file__).with_name("tagger.npz")

Frame = Literal["own", "task", "pasted", "code", "quote", "draft", "transcript", "role"]
"""Whose words a segment holds: the user's own; an order for this task; a pasted document; code; a quotation; a draft to be
worked on; a transcript of others; role play or fiction."""
StatementKind = Literal["fact", "preference", "wish", "project", "plan", "person"]
Subject = Literal["user", "group", "other"]

FRAMES: tuple[Frame, ...] = get_args(Frame)
KINDS: tuple[StatementKind, ...] = get_args(StatementKind)
SUBJECTS: tuple[Subject, ...] = get_args(Subject)

MAX_CHARS = 16_000
"""Characters of a message that are read from its beginning, and `MAX_TAIL_CHARS` from its end: in a longer one the middle is a
document, and a message of 200,000 characters costs no more than one of 20,000."""
MAX_TAIL_CHARS = 4_000
MAX_WORDS = 2_000
"""Words that are read: 1,500 from the beginning, the rest from the end."""
_TAIL_WORDS = 500
HEAD_WORDS = 24
"""Words at a message's beginning whose mean every word sees: they often say what the message is."""

WORD_BUCKETS, TRIGRAM_BUCKETS = 16_384, 8_192
"""Hashed vectors of words and of letter trigrams."""
_MAX_TRIGRAMS = 12
_WORDS_KEPT = 16_384
"""Words whose input is kept ready, .5 KB each."""

_UNSPACED = "\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"  # Thai, Lao, Khmer, kana, Han
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+(?:['’][^\W_{_UNSPACED}]+)?|[^\w\s]|_")
_BULLET = re.compile(r"(?:[-*•–]|\d{1,2}[.)])\s")
_KEY = re.compile(r"[^\s:：][^:：]{0,30}[:：](?!//)")
_DIGIT = re.compile(r"\d")
_QUOTES_OPEN, _QUOTES_CLOSE = "“„«「『", "”»」』"
_SENTENCE_ENDS = ".!?。！？;；"

MARKS = 20
"""Surface marks of a word, see `_mark_words`."""
_FULL_LINE = 60
"""Words of a line that counts as long."""
_LATE_LINE = 30
_MANY_MESSAGES = 8
_LOG_LENGTH = 8.0
"""Upper ends of the scales of marks 13, 16, 17 and 18."""

Floats = NDArray[np.float32]


class MessageWords(NamedTuple):
    """The words of a message with the places (start, end, in characters) and the lines where they stand."""

    words: Sequence[str]
    starts: Sequence[int]
    ends: Sequence[int]
    lines: NDArray[np.int64]
    marks: Floats


class TaggedMessage(NamedTuple):
    """The words of a message and for each its probabilities: `keep` and `begins` (n,), `kinds` (n, 6), `subjects` (n, 3),
    `frames` (n, 8)."""

    words: MessageWords
    keep: Floats
    begins: Floats
    kinds: Floats
    subjects: Floats
    frames: Floats


def split_words(text: str, *, number: int = 0, in_role_play: bool = False) -> MessageWords:
    """Cut a message into words. `number`: how many messages the user sent before it in the session. `in_role_play`: an earlier
    message began a role play that has not ended."""
    found: list[tuple[str, int, int, int]] = []
    marks: list[list[float]] = []
    position = 0
    in_fence = after_colon = False
    after_blank = True
    shift = len(text) - MAX_CHARS - MAX_TAIL_CHARS
    if shift > 0:
        text = text[:MAX_CHARS] + "\n" + text[-MAX_TAIL_CHARS + 1 :]
    for line_number, line in enumerate(text.split("\n")):
        stripped = line.strip()
        if stripped:
            in_fence ^= stripped.startswith(("```", "~~~"))
            of_line = _mark_words(line, stripped, line_number, in_fence, after_colon, after_blank)
            for match, mark in of_line:
                found.append((match[0], position + match.start(), position + match.end(), line_number))
                marks.append(mark)
            after_colon = stripped.endswith((":", "："))
        after_blank = not stripped
        position += len(line) + 1
    count = len(found)
    if count > MAX_WORDS:
        found = found[: MAX_WORDS - _TAIL_WORDS] + found[-_TAIL_WORDS:]
        marks = marks[: MAX_WORDS - _TAIL_WORDS] + marks[-_TAIL_WORDS:]
    table = np.zeros((len(found), MARKS), np.float32)
    if found:
        table[:, :17] = marks
        table[:, 17] = min(number, _MANY_MESSAGES) / _MANY_MESSAGES
        table[:, 18] = min(float(np.log1p(count)), _LOG_LENGTH) / _LOG_LENGTH
        table[:, 19] = in_role_play
    gap = max(0, shift)
    places = [(start + gap, end + gap) if gap and start > MAX_CHARS else (start, end) for _, start, end, _ in found]
    return MessageWords(
        [word for word, *_ in found],
        [start for start, _ in places],
        [end for _, end in places],
        np.array([line for *_, line in found], np.int64),
        table,
    )


def _mark_words(
    line: str, stripped: str, line_number: int, in_fence: bool, after_colon: bool, after_blank: bool
) -> list[tuple[re.Match[str], list[float]]]:
    matches = list(_WORD.finditer(line))
    whole_line = (
        _BULLET.match(stripped) is not None,
        _KEY.match(stripped) is not None,
        stripped.startswith(">"),
        line.startswith(("    ", "\t")),
        stripped.endswith((":", "：")),
        after_colon,
        min(len(matches), _FULL_LINE) / _FULL_LINE,
        after_blank,
    )
    place = min(line_number, _LATE_LINE) / _LATE_LINE
    marked: list[tuple[re.Match[str], list[float]]] = []
    in_quotes = False
    starts_sentence = True
    for index, match in enumerate(matches):
        word = match[0]
        first = word[0]
        if first == '"':
            in_quotes = not in_quotes
        elif first in _QUOTES_OPEN or first in _QUOTES_CLOSE:
            in_quotes = first in _QUOTES_OPEN
        mark = [
            index == 0,
            starts_sentence,
            first.isupper(),
            len(word) > 1 and word.isupper(),
            first.isdigit(),
            in_quotes,
            in_fence,
            *whole_line,
            not first.isalnum(),
            place,
        ]
        marked.append((match, mark))
        starts_sentence = word in _SENTENCE_ENDS
    return marked


def hash_word(word: str) -> tuple[str, int, list[int]]:
    """Return the word as the network spells it (lower case, digits as 0), its bucket, and those of its letter trigrams."""
    spelling = word.lower()
    if word[0].isdigit():
        spelling = _DIGIT.sub("0", spelling)
    padded = f"<{spelling}>"
    trigrams = [
        crc32(padded[place : place + 3].encode("utf-8", "replace")) % TRIGRAM_BUCKETS
        for place in range(max(1, len(padded) - 2))[:_MAX_TRIGRAMS]
    ]
    return spelling, crc32(spelling.encode("utf-8", "replace")) % WORD_BUCKETS, trigrams


class MessageTagger:
    """The fitted network. One thread tags at a time; others wait."""

    def __init__(self, file: Path = FILE) -> None:
        """Read the weights. Raises `OSError` where the file is not there."""
        with np.load(file) as arrays:
            weights = {name: arrays[name].astype(np.float32) for name in arrays.files}
        # Each has the shape (3, width, width): for the word before, the word itself and the word after.
        for name in ("near", "middle", "far", "wide", "last"):
            weights[name] = weights[name].reshape(-1, weights[name].shape[-1])
        self._weights = weights
        self._width = weights["input_bias"].shape[0]
        self._vectors = WordVectors()
        self._places: dict[str, int] = {}
        self._lock = threading.Lock()
        self._inputs = np.empty((_WORDS_KEPT, self._width), np.float32)

    def tag(self, message: MessageWords) -> TaggedMessage:
        """Return the probabilities for each word. Some 0.3 ms for 20 words, linear in their number."""
        weights = self._weights
        count = len(message.words)
        if not count:
            empty = np.zeros((0,), np.float32)
            kinds, subjects, frames = (np.zeros((0, len(names)), np.float32) for names in (KINDS, SUBJECTS, FRAMES))
            return TaggedMessage(message, empty, empty, kinds, subjects, frames)
        hidden = self._find_inputs(message.words)
        hidden += message.marks @ weights["input_marks"]
        np.maximum(hidden, 0.0, out=hidden)
        for name, dilation in (("near", 1), ("middle", 2), ("far", 4)):
            hidden = self._convolve(hidden, name, dilation)
        hidden += self._pool(hidden, message.lines)
        hidden = self._convolve(hidden, "wide", 8)
        hidden = self._convolve(hidden, "last", 1)
        heads = hidden @ weights["heads"] + weights["heads_bias"]
        kinds_end = 2 + len(KINDS)
        subjects_end = kinds_end + len(SUBJECTS)
        return TaggedMessage(
            message,
            _sigmoid(heads[:, 0]),
            _sigmoid(heads[:, 1]),
            _softmax(heads[:, 2:kinds_end]),
            _softmax(heads[:, kinds_end:subjects_end]),
            _softmax(heads[:, subjects_end:]),
        )

    def _find_inputs(self, words: Sequence[str]) -> Floats:
        with self._lock:
            if len(self._places) + len(words) > _WORDS_KEPT:
                self._places.clear()
            return cast(Floats, self._inputs[[self._find_place(word) for word in words]])

    def _find_place(self, word: str) -> int:
        place = self._places.get(word)
        if place is None:
            spelling, bucket, trigrams = hash_word(word)
            weights = self._weights
            vector = self._vectors.find(spelling)
            place = len(self._places)
            features = np.concatenate(
                (vector, weights["word"][bucket], weights["trigram"][trigrams].mean(axis=0)), dtype=np.float32
            )
            mixed = np.maximum(features @ weights["mix"] + weights["mix_bias"], 0.0)
            self._inputs[place] = features @ weights["input"] + mixed @ weights["mixed"] + weights["input_bias"]
            self._places[word] = place
        return place

    def _convolve(self, hidden: Floats, name: str, dilation: int) -> Floats:
        count, width = hidden.shape
        padded = np.zeros((count + 2 * dilation, width), np.float32)
        padded[dilation:-dilation] = hidden
        taps = np.concatenate((padded[:count], hidden, padded[2 * dilation :]), axis=1)
        out = taps @ self._weights[name]
        out += self._weights[f"{name}_bias"]
        np.maximum(out, 0.0, out=out)
        out += hidden
        return cast(Floats, out)

    def _pool(self, hidden: Floats, lines: NDArray[np.int64]) -> Floats:
        """Return what the mean of the word's line, of the message and of its first words add to each word, (words, width)."""
        weights = self._weights
        starts = [0, *(np.flatnonzero(lines[1:] != lines[:-1]) + 1).tolist()]
        counts = np.diff([*starts, len(lines)])
        sums = np.add.reduceat(hidden, starts, axis=0)
        line_means = sums / counts[:, None].astype(np.float32)
        message_mean = sums.sum(axis=0) / np.float32(len(lines))
        head_mean = hidden[:HEAD_WORDS].sum(axis=0) / np.float32(min(HEAD_WORDS, len(lines)))
        shared = np.concatenate((message_mean, head_mean)) @ weights["pool"][self._width :] + weights["pool_bias"]
        pooled = np.maximum(line_means @ weights["pool"][: self._width] + shared, 0.0)
        return cast(Floats, pooled if len(starts) == 1 else np.repeat(pooled, counts, axis=0))


def _sigmoid(values: Floats) -> Floats:
    return cast(Floats, 0.5 * (1.0 + np.tanh(0.5 * values)))  # as 1 / (1 + exp(-x)), which overflows


def _softmax(values: Floats) -> Floats:
    powers = np.exp(values - values.max(axis=1, keepdims=True))
    return cast(Floats, powers / powers.sum(axis=1, keepdims=True))


@cache
def load_shipped_tagger() -> MessageTagger:
    """Return the tagger with the weights that are part of the program, read once."""
    return MessageTagger()
