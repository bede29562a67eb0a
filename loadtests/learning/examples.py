"""Examples for the fit: the words of a message as the tagger cuts them, with what it should say of each."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from app.memory.statements import OWN_FRAMES
from app.memory.tagger import FRAMES, KINDS, SUBJECTS, hash_word, split_words
from app.providers.embeddings import WordVectors
from loadtests.learning.conversations import Conversation

MAX_WORDS, TAIL_WORDS = 320, 60
"""Words of a message that the fit reads, `TAIL_WORDS` of them from its end: of a source those that were shown for labelling."""
SEEN_CHARS, SEEN_HEAD, SEEN_TAIL = 1_300, 850, 350
"""A message of up to `SEEN_CHARS` characters was shown whole for labelling, of a longer one its beginning and its end: what
stands between has no label, and counts nothing."""
UNSURE = 0.5
"""The weight of a word in a statement whose label is not sure."""
KEPT_OF_EMPTY = 0.5
"""The share of messages with no label that the teacher is fitted on, with the weight of all: most messages are such."""
TALK_COPIES = 2
"""How often the teacher reads a talk of ours in an epoch; they are few, and in many languages."""
MAX_UNLABELLED_WORDS, UNLABELLED_TAIL_WORDS = 220, 40
QUIET, OWN = 0.1, 0.9
"""A message is quiet if the teacher gives no word `QUIET` to be kept, and each word `OWN` to be the user's own or a task's."""
KEPT_OF_QUIET = 0.4
QUIET_WEIGHT = 2.0
"""The share of quiet messages that the network is fitted on, and their weight."""
OWN_TALKS_WEIGHT, SENTENCE_COPIES = 2.0, 3
"""What the labels of our talks and sentences count, and how often the network reads a sentence in an epoch."""
MAX_TRIGRAMS = 12
NO_LABEL = -1

Integers = NDArray[np.int64]
Floats = NDArray[np.float32]


class Vocabulary:
    """The distinct words of the examples with what the network reads of them."""

    def __init__(self) -> None:
        self._source = WordVectors()
        self._places: dict[str, int] = {}
        self.vectors: list[NDArray[np.float16]] = []
        self.buckets: list[int] = []
        self.trigrams: list[list[int]] = []
        """`MAX_TRIGRAMS` buckets a word, `NO_LABEL` after the last."""

    def find(self, word: str) -> int:
        """Return the word's number, a new one if it was not there."""
        place = self._places.get(word)
        if place is None:
            place = self._places[word] = len(self.buckets)
            spelling, bucket, trigrams = hash_word(word)
            self.vectors.append(self._source.find(spelling).astype(np.float16))
            self.buckets.append(bucket)
            self.trigrams.append((trigrams + [NO_LABEL] * MAX_TRIGRAMS)[:MAX_TRIGRAMS])
        return place


@dataclass(slots=True)
class Example:
    """The n words of a message. Arrays have a row for each word.

    Attributes:
        words: numbers in the vocabulary.
        spellings: the words as they stand in the message.
        lines: numbers of the lines that are there, from 0.
        marks: surface marks of the tagger, (n, 20).
        keep: 1 in a statement that was surely labelled, `UNSURE` in another, else 0.
        begins: 1 at the first word of a statement.
        kinds, subjects: places in `KINDS` and `SUBJECTS`, `NO_LABEL` outside statements.
        frames: places in `FRAMES`.
        weights: 0 where nothing was shown for labelling.
        taught: the teacher's probabilities (n, 19), once it has read the message.
        taught_weight: what the teacher counts.
    """

    words: Integers
    spellings: list[str]
    lines: Integers
    marks: Floats
    keep: Floats
    begins: Floats
    kinds: Integers
    subjects: Integers
    frames: Integers
    weights: Floats
    taught: Floats = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    taught_weight: float = 1.0

    @property
    def is_empty(self) -> bool:
        """Return whether the message has neither a statement nor a frame."""
        return not self.begins.any() and not (self.frames > 0).any()


def make_examples(
    conversation: Conversation,
    vocabulary: Vocabulary,
    *,
    max_words: int = MAX_WORDS,
    tail_words: int = TAIL_WORDS,
    labelled: bool = True,
) -> list[Example]:
    """Return an example for each message of a conversation that has words.

    Args:
        conversation: messages, with or without labels.
        vocabulary: takes in their words.
        max_words: words of a message that are read.
        tail_words: words that are read from the end of a longer message.
        labelled: whether a word without a label is known to say nothing, and to be the user's own.
    """
    examples: list[Example] = []
    in_role_play = False
    for number, text in sorted(conversation.messages.items()):
        message = split_words(text, number=len(examples), in_role_play=in_role_play)
        count = len(message.words)
        if not count:
            continue
        chosen = np.arange(count)
        if count > max_words:
            chosen = np.r_[0 : max_words - tail_words, count - tail_words : count]
        starts, ends = np.array(message.starts)[chosen], np.array(message.ends)[chosen]
        frames = [frame for frame in conversation.frames if frame.number == number]
        example = Example(
            words=np.array([vocabulary.find(message.words[place]) for place in chosen.tolist()]),
            spellings=[message.words[place] for place in chosen.tolist()],
            lines=np.unique(message.lines[chosen], return_inverse=True)[1].astype(np.int64),
            marks=message.marks[chosen],
            keep=np.zeros(len(chosen), np.float32),
            begins=np.zeros(len(chosen), np.float32),
            kinds=np.full(len(chosen), NO_LABEL),
            subjects=np.full(len(chosen), NO_LABEL),
            frames=np.full(len(chosen), 0 if labelled else NO_LABEL),
            weights=np.full(len(chosen), float(labelled), np.float32),
        )
        for frame in frames:
            example.frames[(starts >= frame.start) & (ends <= frame.end)] = FRAMES.index(frame.frame)
        for fact in conversation.facts:
            if fact.number != number:
                continue
            places = np.flatnonzero((starts < fact.end) & (ends > fact.start))
            if not len(places):
                continue
            example.begins[places[0]] = 1
            if not fact.sure:
                places = places[example.keep[places] == 0]
            example.keep[places] = 1 if fact.sure else UNSURE
            example.kinds[places] = KINDS.index(fact.kind)
            example.subjects[places] = SUBJECTS.index(fact.subject)
        if len(text) > SEEN_CHARS:
            example.weights[(starts > SEEN_HEAD) & (ends < len(text) - SEEN_TAIL) & (example.keep == 0)] = 0
        examples.append(example)
        in_role_play = in_role_play or any(frame.frame == "role" for frame in frames)
    return examples


def choose_examples(sources: Iterable[Example], talks: Sequence[Example]) -> list[Example]:
    """Return what the teacher is fitted on: the sources with half of their empty messages, and our talks twice."""
    rng = random.Random(1)
    chosen: list[Example] = []
    for example in sources:
        if example.is_empty:
            if rng.random() >= KEPT_OF_EMPTY:
                continue
            example = replace(example, weights=example.weights / KEPT_OF_EMPTY)
        chosen.append(example)
    return chosen + TALK_COPIES * list(talks)


def choose_taught(
    sources: Sequence[Example], talks: Sequence[Example], sentences: Sequence[Example], unlabelled: Sequence[Example]
) -> list[Example]:
    """Return what the network is fitted on, after the teacher has read it: fewer of the messages that say nothing, more of our
    own talks and sentences."""
    rng = random.Random(0)
    chosen = [replace(talk, weights=talk.weights * OWN_TALKS_WEIGHT) for talk in talks]
    for sentence in sentences:
        taught = sentence.taught.copy()
        taught[:, 0], taught[:, 1] = sentence.keep > 0, sentence.begins
        labelled = replace(sentence, taught=taught, weights=sentence.weights * OWN_TALKS_WEIGHT)
        chosen += SENTENCE_COPIES * [labelled]
    for example in (*sources, *unlabelled):
        if not example.begins.any() and _is_quiet(example):
            if rng.random() >= KEPT_OF_QUIET:
                continue
            example = replace(example, weights=example.weights * QUIET_WEIGHT, taught_weight=QUIET_WEIGHT)
        chosen.append(example)
    return chosen


def _is_quiet(example: Example) -> bool:
    own_probabilities = example.taught[:, -len(FRAMES) :][:, : len(OWN_FRAMES)].sum(axis=1)
    return bool(example.taught[:, 0].max() < QUIET and own_probabilities.min() > OWN)
