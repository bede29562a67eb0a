"""The labels that the tagger of statements is fitted on, and the examples that are made of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.languages import LANGUAGES
from app.memory.tagger import FRAMES, KINDS, SUBJECTS
from loadtests.learning.conversations import (
    LABELS,
    READERS,
    Conversation,
    DevelopmentRow,
    FactLabel,
    FrameLabel,
    check_kept,
    read_labels,
    read_sentences,
    read_source,
    read_talks,
    read_unlabelled,
)
from loadtests.learning.examples import NO_LABEL, UNSURE, Vocabulary, choose_taught, make_examples
from loadtests.learning.measure import agree
from tests.support.languages import cases
from tests.support.tables import each_of
from tests.unit.memory.labelled import read
from tests.unit.memory.labelled_heldout import UTTERANCES as HELD_OUT


@pytest.mark.parametrize("source", READERS)
def test_each_label_of_a_source_is_a_place_with_names_of_the_tagger(source: str) -> None:
    labels = read_labels(LABELS / f"{source}.tsv")
    assert list(labels) == sorted(labels)
    for facts, frames in labels.values():
        assert all(0 <= fact.start < fact.end and fact.kind in KINDS and fact.subject in SUBJECTS for fact in facts)
        assert all(0 <= frame.start < frame.end and frame.frame in FRAMES for frame in frames)


def test_a_line_of_another_form_is_refused_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "labels.tsv"
    file.write_text("a_0\tnone\na_1\t0\tmy words\n")
    with pytest.raises(ValueError, match=r"labels\.tsv:2 must have"):
        read_labels(file)


@each_of(
    "kept_ids, refused",
    [
        (["abc_0"], True),
        (["abc_12"], True),
        (["XYZ_3", "xyz_3"], True),
        (["abd_0"], False),
        (["abc"], True),
        ([], False),
    ],
)
def test_what_is_kept_for_checking_is_never_labelled(kept_ids: list[str], refused: bool) -> None:
    if refused:
        with pytest.raises(ValueError, match="kept for checking"):
            check_kept(["abc_0", "xyz_3"], kept_ids)
    else:
        check_kept(["abc_0", "xyz_3"], kept_ids)


def test_a_source_with_a_kept_conversation_is_not_read() -> None:
    labelled = next(iter(read_labels(LABELS / "sharegpt.tsv")))
    with pytest.raises(ValueError, match=labelled):
        read_source("sharegpt", Path("is-never-opened.json"), [labelled])


def test_talks_are_fitted_on_or_held_out_and_their_quotations_are_found() -> None:
    fitted, held_out = read_talks("fit"), read_talks("held out")
    assert not {talk.id for talk in fitted} & {talk.id for talk in held_out}
    for language in {talk.language for talk in fitted}:
        for talks in (fitted, held_out):
            assert any(talk.facts for talk in talks if talk.language == language), language


def test_an_example_marks_the_words_of_its_labels() -> None:
    text = "I live in Leeds.\nI want you to write my letter"
    conversation = Conversation(
        "a_0",
        "sharegpt",
        "en",
        {0: text, 2: "Maybe my cat is old"},
        [FactLabel(0, 0, 15, "fact", "user", True), FactLabel(2, 6, 19, "person", "other", False)],
        [FrameLabel(0, 17, len(text), "task")],
    )
    first, second = make_examples(conversation, Vocabulary())
    assert first.keep.tolist() == [1] * 4 + [0] * 8
    assert np.flatnonzero(first.begins).tolist() == [0]
    assert [FRAMES[frame] for frame in first.frames] == ["own"] * 5 + ["task"] * 7
    assert second.keep.tolist() == [0] + [UNSURE] * 4
    assert second.kinds.tolist() == [NO_LABEL] + [KINDS.index("person")] * 4
    assert second.subjects.tolist() == [NO_LABEL] + [SUBJECTS.index("other")] * 4


def make_turns(*texts: str) -> list[dict[str, str]]:
    return [{"from": "human" if number % 2 == 0 else "gpt", "value": text} for number, text in enumerate(texts)]


def test_what_is_kept_or_labelled_is_not_read_as_unlabelled(tmp_path: Path) -> None:
    file = tmp_path / "sharegpt.json"
    turns = make_turns(*(f"turn {number}" for number in range(16)))
    ids = ["kept_0", "kept_7", "measured_0", "labelled_0", "labelled_1", "other_0"]
    file.write_text(json.dumps([{"id": key, "conversations": turns} for key in ids]))
    found = {
        conversation.id: list(conversation.messages)
        for conversation in read_unlabelled(file, ["labelled_0"], ["kept_0", "measured_0"])
    }
    whole = list(range(0, 16, 2))
    assert found == {"labelled_0": [12, 14], "labelled_1": whole, "other_0": whole}


def test_the_sentences_of_the_tests_have_their_labels_in_place_and_none_is_held_out() -> None:
    sentences = read_sentences()
    held_out = {case.text for case in read(HELD_OUT)} | {
        case.text for code in LANGUAGES for case in cases(code, "held")
    }
    assert len(sentences) > 1000
    for sentence in sentences:
        assert all(0 <= fact.start < fact.end <= len(sentence.messages[0]) for fact in sentence.facts)
    assert not held_out & {sentence.messages[0] for sentence in sentences}


def test_a_message_without_labels_is_fitted_on_by_what_the_teacher_says() -> None:
    conversation = Conversation("a_0", "sharegpt", "en", {0: "I live in Leeds"})
    (example,) = make_examples(conversation, Vocabulary(), labelled=False)
    assert not example.weights.any()
    assert set(example.frames.tolist()) == {NO_LABEL}
    quiet, telling = (replace(example, taught=np.zeros((4, 19), np.float32)) for _ in range(2))
    quiet.taught[:, -len(FRAMES)] = telling.taught[:, -len(FRAMES)] = 1
    telling.taught[:, 0] = 0.5
    chosen = choose_taught([], [], [], [quiet, telling] * 50)
    assert sum(example.taught[0, 0] > 0 for example in chosen) == 50
    assert 5 < sum(example.taught[0, 0] == 0 for example in chosen) < 35


@each_of(
    "statement, expected",
    [
        ("our net core backend", True),
        ("we deploy our net core backend to azure", True),
        ("the backend runs on .NET core", True),
        ("the backend", False),
        ("my brother lives in Leeds", False),
        ("I want it to be", False),
    ],
)
def test_a_statement_agrees_with_a_label_by_its_telling_words(statement: str, expected: bool) -> None:
    row = DevelopmentRow("The user's team has a backend in .NET Core", "our net core backend", True)
    assert agree(statement, row) is expected
