"""A transcript taken apart: once, bounded, and always into the same objects."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.context.transcript import Transcript
from app.features.paging.segment import marks, segment, turns
from app.features.paging.values import ContentKind, ObjectType
from tests.support.properties import examples
from tests.unit.paging.made import CODE, COUNT, LONG_CODE, PROSE, SESSION, TRACEBACK, called, cut, places, said, user

PLAN = "My plan:\n" + "".join(
    f"{i}. Look at part {i} of the service, and write down what it needs from the others.\n" for i in range(1, 16)
)
DECISION = "I decided to keep Postgres. The trade-off is latency; the alternatives were two. " + PROSE * 5


def everything() -> list[dict[str, Any]]:
    """A session with all eight types of objects."""
    talk = "The harbour has four basins, a lock with two gates and green lights. "
    bread = "Rye bread wants sour dough, coarse flour, caraway and a hot oven. "
    messages = [{"role": "system", "content": "Be brief."}, user("Help me with the harbour.")]
    messages += [each for i in range(5) for each in (user(f"{talk} {i}?"), said(talk * 6 + str(i)))]
    messages += [user(f"{bread} So?"), said(bread * 30)]
    messages += called("Read", {"file_path": "src/money.py"}, LONG_CODE, "a")
    messages += called("Bash", {"command": "pytest"}, TRACEBACK, "b") + called(
        "Bash", {"command": "make"}, TRACEBACK + "!", "c"
    )
    messages += called("WebFetch", {"url": "https://a.example/harbour"}, PROSE * 6, "d")
    messages += called(
        "Grep", {"pattern": "lock"}, "\n".join(f"src/lock_{i}.py:{i}:gate = {i}" for i in range(60)), "e"
    )
    messages += called("TodoWrite", {"todos": []}, PLAN, "f")
    messages += [said(DECISION), user("What is this?\n```\n" + PROSE * 12 + "\n```\n")]
    messages += [each for i in range(11) for each in (user(f"{bread} {i}?"), said(bread * 5 + str(i)))]
    return messages


def test_all_types_of_the_seed() -> None:
    found = cut(everything())
    assert {each.object_type for each in found.objects} == set(ObjectType)
    assert {each.relation.value for each in found.relationships} >= {"parent_of", "references"}


def test_a_file_that_is_read_is_the_seeds_object() -> None:
    """Seed 002 §3.1, steps 3 and 4."""
    found = cut(
        [
            user("Hi"),
            *called("Read", {"file_path": "src/auth/middleware.ts"}, "export function a() {\n  return 1;\n}\n" * 40),
        ]
    )
    (made,) = found.objects
    assert made.object_type == ObjectType.FILE_CONTEXT
    assert (made.source_tool, made.source_key) == ("Read", "src/auth/middleware.ts")
    assert made.kind == ContentKind.CODE
    assert made.stub == "Read src/auth/middleware.ts (120 lines, TypeScript: a)" or made.stub.startswith(
        "Read src/auth/middleware.ts (120 lines"
    )
    assert made.tokens_l0 == COUNT(made.content)
    assert made.tokens_l3 == COUNT(made.stub)
    assert made.tags == ("read", "code", "typescript")
    (decision,) = found.admissions
    assert decision.admitted
    assert decision.object_id == made.id


@pytest.mark.parametrize("at", range(2, 56, 3))
def test_growing_is_the_same_as_coming_at_once(at: int) -> None:
    messages = everything()
    whole = cut(messages)
    before = cut(messages[:at])
    after = cut(messages, before)
    both = (*before.objects, *after.objects)
    assert {each.id for each in both} == {each.id for each in whole.objects}
    assert {each.id: each for each in both} == {each.id: each for each in whole.objects}
    assert {*before.relationships, *after.relationships} == set(whole.relationships)
    assert before.marks | after.marks == whole.marks


def test_places_are_where_the_objects_stand() -> None:
    messages = everything()
    found = cut(messages)
    where = places(Transcript.of(messages), found.objects)
    assert where.keys() == {each.id for each in found.objects}
    for each in found.objects:
        text = "".join(str(messages[i]["content"])[part.start : part.stop] for i, part in where[each.id])
        if len(each.parts) == 1:
            assert text == each.content
        else:
            assert all(
                str(messages[i]["content"])[part.start : part.stop].strip() in each.content
                for i, part in where[each.id]
            )
    spans = [(i, part.start, part.stop) for parts in where.values() for i, part in parts]
    for i, start, stop in spans:
        assert not any(
            i == j and start < end and begin < stop for j, begin, end in spans if (j, begin, end) != (i, start, stop)
        )


def test_a_client_that_cuts_its_head_off() -> None:
    messages = everything()
    first = cut(messages)
    rest = messages[13:]
    again = segment(SESSION, rest, Transcript.of(rest), COUNT, known=first.marks, objects=first.objects, first_turn=6)
    assert again.objects == ()
    assert len(places(Transcript.of(rest), first.objects)) == len(first.objects) - 1


def test_results_that_say_the_same_are_two_objects() -> None:
    messages = [
        user("x"),
        *called("Read", {"file_path": "a.py"}, LONG_CODE, "a"),
        *called("Read", {"file_path": "b.py"}, LONG_CODE, "b"),
    ]
    found = cut(messages)
    assert [each.source_key for each in found.objects] == ["a.py", "b.py"]
    assert len({each.id for each in found.objects}) == 2
    assert len(set(marks(Transcript.of(messages)))) == len(messages)


def test_turns_are_requests() -> None:
    assert turns(Transcript.of([user("a"), *called("t", {}, "x"), said("b"), user("c")]), 3) == [3, 3, 4, 4, 5]


def test_ids_belong_to_the_session() -> None:
    messages = [user("x"), *called("Read", {"file_path": "a.py"}, LONG_CODE)]
    other = segment(UUID(int=8), messages, Transcript.of(messages), COUNT)
    assert other.objects[0].id != cut(messages).objects[0].id
    assert replace(other.objects[0], id=cut(messages).objects[0].id) == cut(messages).objects[0]


def test_small_results_are_no_objects_and_no_decisions() -> None:
    found = cut(
        [user("x"), *called("Bash", {"command": "true"}, "ok"), *called("Read", {"file_path": "a"}, CODE[:300])]
    )
    assert (found.objects, found.admissions) == ((), ())


def test_old_forms_and_lost_calls() -> None:
    legacy: list[dict[str, Any]] = [
        {"role": "assistant", "function_call": {"name": "Read", "arguments": '{"path": "a.py"}'}},
        {"role": "function", "name": "Read", "content": LONG_CODE},
    ]
    assert cut([user("x"), *legacy]).objects[0].source_key == "a.py"
    orphan = {"role": "tool", "tool_call_id": "nobody", "name": "Read", "content": LONG_CODE}
    assert cut([user("x"), orphan]).objects[0].source_tool == "Read"
    parts = {"role": "tool", "tool_call_id": "z", "content": [{"type": "text", "text": LONG_CODE}]}
    assert cut([user("x"), parts]).objects[0].content == LONG_CODE


@pytest.mark.parametrize("times", [1, pytest.param(10, marks=pytest.mark.heavy)])
def test_hostile_input_is_bounded(times: int) -> None:
    big = [user("x"), *called("Bash", {"command": "cat big | head"}, "word " * (200_000 * times))]
    began = time.process_time()
    (made,) = cut(big).objects
    assert made.tokens_l0 == pytest.approx(200_000 * times, rel=0.1)
    assert time.process_time() - began < 2 * times
    many = [user("x")]
    for i in range(1_000 * times):
        many += called("Read", {"file_path": f"src/f{i}.py"}, "the same line of a file again and again\n" * 30, f"c{i}")
    began = time.process_time()
    found = segment(SESSION, many, Transcript.of(many), lambda text: len(text) // 4)
    assert len(found.objects) == 1_000 * times
    assert time.process_time() - began < 6 * times
    deep = called("Read", '{"a":' * 50_000, "[" * 100_000)
    assert len(cut([user("x"), *deep]).objects) == 1


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=30),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["content", "type", "text", "id", "function", "name", "arguments", "x"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@examples(60)
@given(
    st.lists(
        st.fixed_dictionaries(
            {"role": st.sampled_from(["user", "assistant", "tool", "function", "system", "?"])},
            optional={
                "content": st.one_of(JUNK, st.text(max_size=40).map(lambda text: (text + "\n") * 200)),
                "tool_calls": JUNK,
                "tool_call_id": JUNK,
                "function_call": JUNK,
                "name": JUNK,
            },
        ),
        max_size=12,
    )
)
def test_whatever_the_messages_look_like(messages: list[dict[str, Any]]) -> None:
    found = cut(messages)
    ids = {each.id for each in found.objects}
    assert len(ids) == len(found.objects)
    assert all(each.source in ids and each.target in ids for each in found.relationships)
    assert cut(messages, found).objects == ()
