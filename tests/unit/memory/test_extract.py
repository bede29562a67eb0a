"""Extraction by rules: the labelled set, and what each part of a candidate must be."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.memory.candidate import MemoryCandidate, Provenance, SourceExchange, Triple
from app.memory.extract import MAX_CANDIDATES, extract
from app.memory.extract_clauses import clauses
from app.memory.text import names, slug
from tests.support.properties import examples
from tests.support.tables import each_of
from tests.unit.memory.labelled import Expected, Labelled, labelled, read
from tests.unit.memory.labelled_heldout import UTTERANCES as HELD_OUT
from tests.unit.memory.labelled_tuning import UTTERANCES as TUNING

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def found(text: str) -> list[MemoryCandidate]:
    return extract(SourceExchange(text, NOW))


def fits(candidate: MemoryCandidate, expected: Expected, candidates: list[MemoryCandidate]) -> bool:
    """A clause may be told in several memories ("a nurse", "at St Mary's"): together they say what is expected."""
    told = [c.content.casefold() for c in candidates if c.span == candidate.span]
    said = all(any(word in content for content in told) for word in expected.words)
    return candidate.kind in expected.kinds and said


def measure(cases: list[Labelled]) -> tuple[float, float, list[str]]:
    """Precision, recall, and what was wrong or missed of what is stated. What is not labelled counts as wrong."""
    right = wrong = missed = 0
    report: list[str] = []
    for text, expected in cases:
        candidates = [each for each in found(text) if each.provenance_type is not Provenance.SYSTEM_INFERRED]
        good = [c for c in candidates if any(fits(c, e, candidates) for e in expected)]
        lost = [e for e in expected if not any(fits(c, e, candidates) for c in candidates)]
        right, wrong, missed = right + len(good), wrong + len(candidates) - len(good), missed + len(lost)
        report += [f"  wrong  {text!r} → {c.kind}: {c.content}" for c in candidates if c not in good]
        report += [f"  missed {text!r} → {'/'.join(sorted(e.kinds))}: {' '.join(e.words)}" for e in lost]
    return right / (right + wrong), right / (right + missed), report


def test_precision_and_recall_on_the_set_that_the_rules_were_written_with(capsys: pytest.CaptureFixture[str]) -> None:
    precision, recall, report = measure(labelled())
    with capsys.disabled():
        print(f"\nextraction: {len(labelled())} utterances, precision {precision:.3f}, recall {recall:.3f}")
    assert len(labelled()) >= 200
    assert precision >= 0.98, "\n".join(report)
    assert recall >= 0.95, "\n".join(report)


def test_precision_and_recall_on_what_they_were_mended_by() -> None:
    precision, recall, report = measure(read(TUNING))
    assert precision >= 0.975, "\n".join(report)
    assert recall >= 0.9, "\n".join(report)


def test_precision_and_recall_on_what_they_never_saw(capsys: pytest.CaptureFixture[str]) -> None:
    """No report: nobody is to look up, utterance by utterance, what fails here, and mend the rules by it."""
    precision, recall, _ = measure(read(HELD_OUT))
    with capsys.disabled():
        print(f"\nextraction: {len(read(HELD_OUT))} held out, precision {precision:.3f}, recall {recall:.3f}")
    assert len(read(HELD_OUT)) >= 150
    assert precision >= 0.9
    assert recall >= 0.7


def test_few_utterances_are_guesses() -> None:
    """Guesses are measured apart: nobody vouches for them, and they begin for a day in their session."""
    texts = [text for text, _ in [*labelled(), *read(TUNING), *read(HELD_OUT)]]
    guesses = [
        text for text in texts if any(each.provenance_type is Provenance.SYSTEM_INFERRED for each in found(text))
    ]
    assert "I might move to Berlin" in guesses
    assert len(guesses) <= 0.01 * len(texts), guesses


def test_the_example_gives_three() -> None:
    text = "I'm vegetarian, I live in Lisbon, please call me Ana"
    candidates = found(text)
    assert [(c.content, c.kind) for c in candidates] == [
        ("Is vegetarian", "fact"),
        ("Lives in Lisbon", "fact"),
        ("Wants to be called Ana", "instruction"),
    ]
    assert [c.quote for c in candidates] == ["I'm vegetarian", "I live in Lisbon", "please call me Ana"]
    assert [c.provenance_type for c in candidates] == [Provenance.FACT, Provenance.FACT, Provenance.INSTRUCTION]
    assert candidates[1].triple == Triple("user", "lives_in", "Lisbon")
    assert candidates[1].entity_ids == ("lisbon",)
    assert not any(c.explicit or c.secret for c in candidates)


def test_the_seeds_example() -> None:
    """Seed 001 §4.2."""
    candidate = found("I don't want posts longer than 800 words")[0]
    assert (candidate.kind, candidate.importance) == ("preference", 0.8)
    assert "posts" in candidate.entity_ids
    assert "800 words" in candidate.content


def test_what_is_to_be_remembered_is_the_users_word() -> None:
    plain, asked = found("I'm vegan")[0], found("Please remember that I'm vegan")[0]
    assert not plain.explicit
    assert asked.explicit
    assert asked.provenance_type is Provenance.USER_STATED
    assert asked.confidence > plain.confidence
    assert asked.quote == "I'm vegan"
    both = found("Remember that my wife is called Maria and my son is called Leo. I like tea.")
    assert [c.explicit for c in both] == [True, True, False]


def test_a_correction_takes_the_place_of_one_value_only() -> None:
    moved = found("No, actually I live in Porto now")[0]
    assert (moved.kind, moved.provenance_type) == ("correction", Provenance.CORRECTION)
    assert moved.triple == Triple("user", "lives_in", "Porto")
    allergic = found("Actually, I'm allergic to soy")[0]
    assert allergic.kind == "fact", "one more allergy does not replace the others"
    stopped = found("I stopped eating meat")[0]
    assert (stopped.kind, stopped.triple) == ("correction", None)


def test_negatives_have_their_own_predicate() -> None:
    assert found("I'm not vegetarian")[0].triple == Triple("user", "not_diet", "vegetarian")
    gone = found("I don't live in Lisbon anymore")[0]
    assert gone.kind == "correction"
    assert gone.triple is None or gone.triple.predicate == "not_lives_in"


def test_relatives_are_their_own_subject() -> None:
    assert found("My wife's name is Maria")[0].triple == Triple("wife", "name", "Maria")
    assert found("my daughter is allergic to nuts")[0].triple == Triple("daughter", "allergic_to", "nuts")


def test_secrets_are_marked() -> None:
    assert all(c.secret for c in found("Remember that my password is hunter2"))
    assert found("Remember that my card is 4111 1111 1111 1111")[0].secret
    assert not found("Remember that I park on level 3")[0].secret


def test_events_have_their_day() -> None:
    event = found("I have a dentist appointment tomorrow")[0]
    assert (event.kind, event.when, event.content) == ("event", "2026-11-21", "Has a dentist appointment on 2026-11-21")


def test_line_ends_and_spaces_do_not_matter() -> None:
    text = "I\u00a0live  in\tLisbon\r\nI'm vegan\r\n"
    candidates = found(text)
    assert [c.content for c in candidates] == ["Lives in Lisbon", "Is vegan"]
    assert candidates[0].quote == "I\u00a0live  in\tLisbon"


def test_what_mneme_injected_is_not_learned() -> None:
    text = "<mneme-memory 3f>\n- user: I live in Berlin\n</mneme-memory 3f>\n\nI live in Lisbon"
    candidates = found(text)
    assert [c.content for c in candidates] == ["Lives in Lisbon"]
    assert text[slice(*candidates[0].span)] == "I live in Lisbon"


def test_the_same_statement_counts_once() -> None:
    assert len(found("I live in Lisbon. I live in Lisbon! i live in lisbon")) == 1


def test_no_more_than_a_handful_from_one_message() -> None:
    text = ". ".join(f"I like topic{i} music" for i in range(100))
    assert len(found(text)) == MAX_CANDIDATES


def test_tool_calls_are_noted() -> None:
    calls: list[dict[str, Any]] = [
        {
            "type": "function",
            "function": {"name": "get_weather", "arguments": '{"city": "Lisbon", "days": 3, "x": {}}'},
        },
        {"type": "function", "function": {"name": "login", "arguments": '{"password": "hunter2", "user": "ana"}'}},
        {"type": "function", "function": {"name": "broken", "arguments": "{"}},
        {"type": "function", "function": {"name": "", "arguments": "{}"}},
        {"type": "function"},
        {"function": {"name": "fifth", "arguments": {"a": 1}}},
    ]
    candidates = extract(SourceExchange("what's the weather?", NOW, tool_calls=calls))
    assert [c.content for c in candidates] == [
        "Used the tool get_weather with city Lisbon, days 3",
        "Used the tool login with password hunter2, user ana",
        "Used the tool broken",
    ]
    assert {(c.kind, c.provenance_type, c.quote) for c in candidates} == {("tool_outcome", Provenance.TOOL_OUTPUT, "")}
    assert [c.secret for c in candidates] == [False, True, False]


@given(st.lists(st.sampled_from([case.text for case in labelled()]) | st.text(max_size=40), max_size=4))
@examples(300)
def test_every_candidate_quotes_the_message(parts: list[str]) -> None:
    text = " ".join(parts)
    for candidate in found(text):
        start, end = candidate.span
        assert 0 <= start < end <= len(text)
        assert text[start:end] == candidate.quote
        assert candidate.content == candidate.content.strip()
        assert 0 < candidate.confidence <= 1
        assert 0 < candidate.importance <= 1
        assert candidate.content[:1] == candidate.content[:1].upper()


REPEATED = (
    "I like |I'm |a |\"I |'m |<a>|```|I live in |my name is, |no, |actually |remember |I prefer a b c d, and I |\n|> I am\n|"
    "Name: x\n|if I |I have a meeting on Monday |(|- I|“I|my wife |always use x |I was born in |, and my |… "
)


@each_of("unit", REPEATED.split("|"))
def test_a_hundred_thousand_tokens_are_no_burden(unit: str) -> None:
    text = unit * (400_000 // len(unit))
    assert len(found(text)) <= MAX_CANDIDATES


def test_in_a_long_message_the_beginning_and_the_end_are_read() -> None:
    filler = "The report says nothing new about the market. " * 5000
    text = f"I live in Lisbon. {filler} I'm vegetarian."
    own_clauses = [clause for clause in clauses(text) if clause.text.startswith("I")]
    assert [text[clause.start : clause.end] for clause in own_clauses] == ["I live in Lisbon", "I'm vegetarian"]


def test_few_words_that_memories_are_about_are_names() -> None:
    """Why no record of a thing is made from talk: of 710 slugs 190 are written as names."""
    about: list[bool] = []
    for text, _ in [*labelled(), *read(TUNING), *read(HELD_OUT)]:
        named = {slug(each) for each in names(f"X. {text}")}
        about += [each in named for each in {one for found_ in found(text) for one in found_.entity_ids}]
    assert len(about) > 600
    assert sum(about) / len(about) < 0.33
