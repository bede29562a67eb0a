"""What a prompt with objects in short costs and looks like, and what its last messages say of them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from app.context.transcript import Transcript
from app.features.paging.body import HiddenLegs
from app.features.paging.fidelity import Decision
from app.features.paging.prompt import (
    ReceivedRequest,
    Renderings,
    Where,
    costs_of,
    draw,
    first_turn,
    heard,
    messages_at,
    places,
    sheet,
)
from app.features.paging.segment import segment
from app.features.paging.tools import Names
from app.features.paging.values import (
    Fidelity,
    Relationship,
    RelationType,
    SemanticObject,
    Shrunk,
    Transition,
    Trigger,
    Zone,
    shown_tokens,
)
from app.providers.tokens import CountCache, message_tokens
from tests.support.paging import COUNTER, SESSION, TOKENIZERS, Message, chat_of
from tests.unit.paging.made import COUNT, LONG_CODE, PROSE, called, said, sized, user

NONCE = "5f0c1d9a"


def objects_of(messages: list[Message]) -> list[SemanticObject]:
    return list(segment(SESSION, messages, Transcript.of(messages), COUNT).objects)


def where_of(messages: list[Message], objects: list[SemanticObject]) -> Where:
    return places(messages_at(Transcript.of(messages)), objects)


def page_of(
    messages: list[Message], objects: list[SemanticObject], hidden: dict[int, HiddenLegs] | None = None
) -> ReceivedRequest:
    chat, counts = chat_of(messages), CountCache()
    costs = costs_of(chat, COUNTER, counts)
    return sheet(chat, costs, objects, where_of(messages, objects), hidden or {}, 0, COUNTER, counts)


NAMES = Names()
READ = [user("Repair it."), *called("Read", {"file_path": "src/a.py"}, LONG_CODE)]


def test_a_rendering_is_made_once_and_anew_where_its_text_is_another() -> None:
    (made,) = objects_of(READ)
    kept = Renderings()
    first = kept.of(made, Fidelity.STUB, NONCE, COUNTER, NAMES)
    assert kept.of(replace(made), Fidelity.STUB, NONCE, COUNTER, NAMES) is first
    assert first.tokens == COUNT(first.data.decode())
    assert kept.of(replace(made, stub="Read another"), Fidelity.STUB, NONCE, COUNTER, NAMES).data != first.data
    other = TOKENIZERS.for_model("unknown")
    assert kept.of(made, Fidelity.STUB, NONCE, other, NAMES).tokens > first.tokens
    low = replace(made, detailed=Shrunk("one", 1))
    assert b"one" in kept.of(low, Fidelity.DETAILED, NONCE, COUNTER, NAMES).data
    renamed = kept.of(made, Fidelity.STUB, NONCE, COUNTER, Names("mneme_memory_query"))
    assert b"ask mneme_memory_query(question) or memory_restore(id)" in renamed.data
    assert b"two" in kept.of(replace(low, detailed=Shrunk("two", 1)), Fidelity.DETAILED, NONCE, COUNTER, NAMES).data


def test_what_was_looked_at_least_is_forgotten_first() -> None:
    kept = Renderings(most_chars=600)
    many = [sized(i, 900) for i in range(4)]
    made = [kept.of(each, Fidelity.STUB, NONCE, COUNTER, NAMES) for each in many]
    assert kept.of(many[3], Fidelity.STUB, NONCE, COUNTER, NAMES) is made[3]
    assert kept.of(many[0], Fidelity.STUB, NONCE, COUNTER, NAMES) is not made[0]
    assert kept._chars <= 600


@pytest.mark.parametrize("model", ["gpt-4o", "gpt-4", "a-model-of-ones-own"])
def test_sizes_are_scaled_to_what_the_model_counts(model: str) -> None:
    (made,) = objects = objects_of(READ)
    counter, counts, chat = TOKENIZERS.for_model(model), CountCache(), chat_of(READ)
    page = sheet(chat, costs_of(chat, counter, counts), objects, where_of(READ, objects), {}, 0, counter, counts)
    really = message_tokens(READ[-1], counter)
    assert page.size(made, Fidelity.FULL) == pytest.approx(really, abs=1)
    assert page.size(made, Fidelity.STUB) >= shown_tokens(made, Fidelity.STUB)


def test_without_a_message_to_tell_the_counter_says_itself_how_far_it_is_off() -> None:
    messages = [user("x"), user("Look at this:\n" + LONG_CODE)]
    objects = objects_of(messages)
    counter, counts, chat = TOKENIZERS.for_model("unknown"), CountCache(), chat_of(messages)
    page = sheet(chat, costs_of(chat, counter, counts), objects, where_of(messages, objects), {}, 0, counter, counts)
    assert page.scale == 1 + counter.margin


def test_an_object_over_several_messages_is_told_at_its_first() -> None:
    talk: list[Message] = [user("Hello")]
    for i in range(11):
        talk += [user(f"Tell me of harbour {i}. {PROSE}"), said(f"Harbour {i}: {PROSE}")]
    talk += [user("And now?")]
    (phase, *_) = objects_of(talk)
    assert len(phase.parts) > 3
    page = page_of(talk, [phase])
    drawn = draw(page, [replace(phase, fidelity=Fidelity.STUB)], NONCE, Renderings(), COUNTER, CountCache())
    data = [each.data for each in drawn.insertions]
    assert len(data) == len(phase.parts)
    assert all(b"see above" in each for each in data[1:])
    assert b"see above" not in data[0]
    assert sum(drawn.costs) < sum(page.costs) * 0.6


def test_ranges_that_overlap_leave_the_message_as_it_is() -> None:
    (made,) = objects_of(READ)
    (part,) = made.parts
    twin = replace(made, id=UUID(int=5), parts=(replace(part, start=10),))
    page = page_of(READ, [made, twin])
    shown = [replace(each, fidelity=Fidelity.STUB) for each in (made, twin)]
    drawn = draw(page, shown, NONCE, Renderings(), COUNTER, CountCache())
    assert (drawn.insertions, list(drawn.costs)) == ([], list(page.costs))


def test_an_object_of_which_a_part_is_gone_is_not_there() -> None:
    made = sized(0, 900, parts=2)
    assert where_of(READ, [made]) == {}


def test_the_turns_of_a_transcript_without_its_head_go_on() -> None:
    whole = [*READ, *called("Read", {"file_path": "src/b.py"}, LONG_CODE + "# b\n", "c2")]
    objects = objects_of(whole)
    assert first_turn(Transcript.of(whole), objects, where_of(whole, objects)) == 0
    cut = whole[3:]
    assert first_turn(Transcript.of(cut), objects, where_of(cut, objects)) == 1
    assert first_turn(Transcript.of(whole), [], {}) == 0


# --- what is said of objects ----------------------------------------------------------------------------------------------


def one(number: int, key: str, *names: str) -> SemanticObject:
    return replace(sized(number, 900), source_key=key, key_entities=names, stub=f"Read {key}")


A, B = one(0, "src/auth/middleware.py", "verify_token", "AuthError"), one(1, "src/money.py:1-40", "convert_currency")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("Look at src/auth/middleware.py again", {A.id}),
        ("what does middleware.py do?", {A.id}),
        ("my-middleware.py or middleware.pyx?", set()),
        ("src/money.py and middleware.py", {A.id, B.id}),
        ("the middleware of the money", set()),
    ],
)
def test_a_message_names_files(text: str, named: set[UUID]) -> None:
    assert heard(chat_of([user("x"), said("y"), user(text)]), [A, B], []).accessed == named


def test_calls_name_what_they_are_about_and_not_their_own_result() -> None:
    call = called("Edit", {"file_path": "src/money.py"}, "ok")
    assert heard(chat_of([user("src/auth/middleware.py"), *call]), [A, B], []).accessed == {B.id}
    assert heard(chat_of([user("q"), *call]), [A, B], [], frozenset([B.id])).accessed == frozenset()
    old = Relationship(A.id, B.id, RelationType.SUPERSEDES)
    assert heard(chat_of([user("q"), *call]), [A, B], [old]).accessed == frozenset()


def test_relevance_is_the_share_of_the_questions_words() -> None:
    said_of = heard(chat_of([user("Which AuthError does verify_token raise?")]), [A, B], [])
    assert said_of.relevance[A.id] > 0.6 > said_of.relevance[B.id]
    assert said_of.relevance.get(UUID(int=99), 0.0) == 0.0
    assert set(said_of.relevance) == {A.id, B.id}
    assert len(said_of.relevance) == 2


def test_another_subject_is_another_goal() -> None:
    talk = [
        user("Repair the currency conversion in the money module"),
        said("The conversion rounds the currency wrongly."),
    ]
    same = [*talk, user("Repair the rounding of that currency conversion please")]
    other = [*talk, user("Describe how harbour ships enter basins during winter")]
    assert not heard(chat_of(same), [A], []).goal_changed
    assert heard(chat_of(other), [A], []).goal_changed
    assert not heard(chat_of([*other, *called("Read", {"file_path": "x.py"}, "y")]), [A], []).goal_changed, (
        "said before"
    )
    assert not heard(chat_of([user("Describe how harbour ships enter basins")]), [A], []).goal_changed


# --- old exchanges --------------------------------------------------------------------------------------------------------

TALK: list[Message] = [each for i in range(6) for each in (user(f"q{i}"), said(f"a{i}"))] + [user("now?")]
HIDDEN = HiddenLegs(
    ({"role": "assistant", "content": None, "tool_calls": []}, {"role": "tool", "tool_call_id": "q", "content": PROSE})
)
BATCH = Transition(UUID(int=1), Fidelity.FULL, Fidelity.STUB, Trigger.PRESSURE, 6, Zone.CRITICAL, 880)


@pytest.mark.parametrize(
    ("tokens", "transitions", "zone", "left"),
    [
        (3000, (BATCH,), Zone.CAUTION, []),
        (4400, (BATCH,), Zone.CRITICAL, [1, 3, 5]),
        (4400, (), Zone.CRITICAL, []),
        (4400, (replace(BATCH, trigger=Trigger.ACCESS),), Zone.CRITICAL, []),
        (4950, (), Zone.EMERGENCY, [1, 3, 5]),
    ],
)
def test_old_exchanges_go_with_a_batch_of_a_critical_prompt(
    tokens: int, transitions: tuple[Transition, ...], zone: Zone, left: list[int]
) -> None:
    page = page_of(TALK, [], dict.fromkeys((1, 3, 5, 7, 9), HIDDEN))
    assert all(each > 0 for each in page.added.values())
    decision = Decision(transitions, frozenset(), tokens, zone)
    assert page.to_go(tokens, 5000, Zone.NORMAL, decision) == left


def test_exchanges_that_are_a_batch_by_themselves_go() -> None:
    page = page_of(TALK, [], dict.fromkeys((1, 3, 5), HIDDEN))
    decision: Any = Decision((), frozenset(), 0, Zone.CRITICAL)
    budget = sum(page.added.values()) * 6
    assert page.to_go(budget * 9 // 10, budget, Zone.NORMAL, decision) == [1, 3, 5]
