from __future__ import annotations

import json
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from app.context.transcript import (
    HASH_BYTES,
    QUERY_CHARS,
    Transcript,
    canonical,
    chain,
    message_hash,
    query_of,
    tail_hash,
    text_of,
)
from tests.support.context_samples import tail_of
from tests.support.tables import each_of


def call(name: str, arguments: Any, identity: str = "call_1") -> dict[str, Any]:
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def assistant(*calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **more}


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "detail": "low"}}

SAME = {
    "white space at the ends": ({"role": "user", "content": " hi\n"}, {"role": "user", "content": "hi"}),
    "null and empty": ({"role": "assistant", "content": None}, {"role": "assistant", "content": ""}),
    "absent and empty": ({"role": "assistant"}, {"role": "assistant", "content": ""}),
    "a part and a string": (
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "user", "content": "hi"},
    ),
    "input_text parts": (
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"role": "user", "content": "hi"},
    ),
    "a cache mark on a part": (
        {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]},
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
    ),
    "a cache mark on an image": (
        {"role": "user", "content": [IMAGE | {"cache_control": {"type": "ephemeral"}}]},
        {"role": "user", "content": [IMAGE]},
    ),
    "keys of an image in another order": (
        {"role": "user", "content": [{"image_url": {"detail": "low", "url": "x"}, "type": "image_url"}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x", "detail": "low"}}]},
    ),
    "reasoning and unknown fields": (
        {"role": "assistant", "content": "a", "reasoning_content": "hm", "refusal": None, "annotations": [], "x": 1},
        {"role": "assistant", "content": "a"},
    ),
    "a thought among the parts": (
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}]},
        {"role": "assistant", "content": "a"},
    ),
    "no tool calls in three ways": (
        {"role": "assistant", "content": "a", "tool_calls": []},
        {"role": "assistant", "content": "a", "tool_calls": None, "function_call": None},
    ),
    "tool call ids": (assistant(call("f", "{}", "a")), assistant(call("f", "{}", "b"))),
    "the id of a tool's result": (
        {"role": "tool", "content": "42", "tool_call_id": "a"},
        {"role": "tool", "content": "42", "tool_call_id": "b"},
    ),
    "arguments serialised anew": (
        assistant(call("f", '{"b": [1, 2], "a": "\\u00e9"}')),
        assistant(call("f", '{"a":"é","b":[1,2]}')),
    ),
    "arguments as an object": (assistant(call("f", {"a": 1})), assistant(call("f", '{"a":1}'))),
    "numbers as JavaScript writes them": (
        assistant(call("f", '{"a":[1.0,-0.0,1e3,1e16],"b":{"c":2.50}}')),
        assistant(call("f", '{"a":[1,0,1000,10000000000000000],"b":{"c":2.5}}')),
    ),
    "no arguments in two ways": (assistant(call("f", "")), assistant(call("f", "{}"))),
    "broken arguments with white space around": (
        assistant(call("f", ' {"a": ')),
        assistant(call("f", '{"a": ')),
    ),
    "the old function call": (
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"a": 1}'}},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"a":1}'}},
    ),
}

DIFFERENT = {
    "role": ({"role": "user", "content": "hi"}, {"role": "assistant", "content": "hi"}),
    "text": ({"role": "user", "content": "hi"}, {"role": "user", "content": "ho"}),
    "white space inside": ({"role": "user", "content": "a b"}, {"role": "user", "content": "a  b"}),
    "an image": (
        {"role": "user", "content": [{"type": "text", "text": "hi"}, IMAGE]},
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
    ),
    "which image": (
        {"role": "user", "content": [IMAGE]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "other"}}]},
    ),
    "where one part ends": (
        {"role": "user", "content": [{"type": "text", "text": "ab"}, {"type": "text", "text": "c"}]},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "bc"}]},
    ),
    "tool call": (assistant(call("f", "{}")), {"role": "assistant", "content": None}),
    "tool name": (assistant(call("f", "{}")), assistant(call("g", "{}"))),
    "arguments": (assistant(call("f", '{"a":1}')), assistant(call("f", '{"a":2}'))),
    "a number and its text": (assistant(call("f", '{"a":1}')), assistant(call("f", '{"a":"1"}'))),
    "a float inside a text": (assistant(call("f", '{"a":":1.0,"}')), assistant(call("f", '{"a":":1,"}'))),
    "broken arguments": (assistant(call("f", '{"a":')), assistant(call("f", '{"b":'))),
    "one call or two": (assistant(call("f", "{}")), assistant(call("f", "{}"), call("f", "{}"))),
    "custom tool input": (
        assistant({"type": "custom", "custom": {"name": "f", "input": "a"}}),
        assistant({"type": "custom", "custom": {"name": "f", "input": "b"}}),
    ),
    "text that looks like a frame": (
        {"role": "user", "content": "hi\0parts[]\0calls"},
        {"role": "user", "content": "hi"},
    ),
}


@each_of(("one", "other"), SAME.values())
def test_what_clients_change_does_not_count(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert canonical(one) == canonical(other) is not None


@each_of(("one", "other"), DIFFERENT.values())
def test_what_was_said_counts(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert canonical(one) != canonical(other)


@each_of("role", ["system", "developer"])
def test_system_messages_have_no_canonical_form(role: str) -> None:
    assert canonical({"role": role, "content": "It is 12:00."}) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
odd_messages = st.one_of(
    json_values,
    st.fixed_dictionaries(
        {},
        optional={
            "role": st.sampled_from(["user", "assistant", "tool", "system", "other", ""]) | json_values,
            "content": st.text() | st.lists(json_values | st.just(IMAGE), max_size=3) | json_values,
            "tool_calls": json_values | st.lists(st.builds(call, json_values, json_values), max_size=2),
            "function_call": json_values,
            "refusal": json_values,
        },
    ),
)


@given(st.lists(odd_messages, max_size=4))
def test_no_shape_raises_and_all_is_deterministic(messages: list[Any]) -> None:
    one, other = Transcript.of(messages), Transcript.of(messages)
    assert one == other
    assert len(one.roles) == len(one.hashes) == len(one.chains) == len(messages)
    for message in messages:
        assert isinstance(text_of(message), str)
        # What went over the wire as JSON is the same message.
        wire = json.loads(json.dumps(message))
        if message == wire:
            assert canonical(wire) == canonical(message)
    assert isinstance(query_of(messages), str)


@each_of(
    "message",
    [
        {"role": "user", "content": "\ud800"},
        {"role": "\ud800", "content": "x"},
        {"role": ["user"], "content": "x"},
        {"role": "user", "content": [["a"], 1, None, "b", {"type": ["text"], "text": "x"}]},
        {"role": "user", "content": 12345678901234567890123},
        assistant(call("f", "\ud800"), {"function": {"name": "\ud800", "arguments": {"a": "\ud800"}}}),
        assistant({"function": "f"}, call("f", '{"a": 1e999}')),
        {"role": "assistant", "content": None, "tool_calls": "f"},
    ],
)
def test_hostile_shapes(message: dict[str, Any]) -> None:
    form = canonical(message)
    assert form is not None
    assert form != canonical({"role": "user", "content": ""})


def test_depth_is_no_danger() -> None:
    deep: Any = 1.0
    deeper: Any = 2.0
    for _ in range(50_000):
        deep, deeper = [deep], [deeper]
    parts = [canonical({"role": "user", "content": [{"type": "x", "x": each}]}) for each in (deep, deeper)]
    assert parts[0] != parts[1]
    arguments = "[" * 900 + "1.0" + "]" * 900
    assert canonical(assistant(call("f", arguments))) == canonical(assistant(call("f", arguments.replace(".0", ""))))
    # Taken apart one by one: the interpreter's own destructor is not what is tested here.
    for each in (deep, deeper):
        item = each
        while isinstance(item, list):
            item = item.pop()


def test_chain_depends_on_all_before() -> None:
    a, b, c = (message_hash(each) for each in (b"a", b"b", b"c"))
    assert {len(each) for each in chain([a, b, c])} == {HASH_BYTES}
    assert chain([a, b, c])[:2] == chain([a, b])
    assert chain([a, b])[1] != chain([c, b])[1]
    assert chain([a, b])[1] != chain([b, a])[1]
    assert chain([c], start=chain([a, b])[-1])[-1] == chain([a, b, c])[-1]


def talk(*contents: str) -> list[dict[str, Any]]:
    return [{"role": "assistant" if i % 2 else "user", "content": each} for i, each in enumerate(contents)]


def test_transcript_is_the_chain_without_the_system_messages() -> None:
    said = talk("q1", "a1", "q2")
    clocked = [{"role": "system", "content": "It is 12:00."}, *said[:2], {"role": "developer", "content": "!"}, said[2]]
    plain, read = Transcript.of(said), Transcript.of(clocked)
    hashes = [message_hash(form) for each in said if (form := canonical(each)) is not None]
    assert list(plain.hashes) == hashes
    assert list(plain.chains) == chain(hashes)
    assert read.chains == (None, plain.chains[0], plain.chains[1], None, plain.chains[2])
    assert read.roles == ("system", "user", "assistant", "developer", "user")
    assert read.answered == (2,)
    assert read.last_user() == 4


def test_mid_turn() -> None:
    assert not Transcript.of(talk("q1", "a1", "q2")).mid_turn()
    assert Transcript.of(talk("q1", "a1")).mid_turn()
    assert Transcript.of([*talk("q1"), assistant(call("f", "{}")), {"role": "tool", "content": "1"}]).mid_turn()
    assert not Transcript.of([]).mid_turn()


def test_tail_hash_finds_a_trimmed_transcript() -> None:
    whole = Transcript.of(talk("q1", "a1", "q2", "a2", "q3", "a3"))
    trimmed = Transcript.of([{"role": "system", "content": "new"}, *talk("q2", "a2", "q3", "a3", "q4")])
    assert tail_of(whole, 2) == tail_of(trimmed, 2) is not None
    assert tail_of(whole, 1) == tail_of(trimmed, 1)
    assert tail_of(whole, 1) != tail_of(whole, 2)
    assert tail_of(whole, 3) != tail_of(trimmed, 2)
    assert tail_of(trimmed, 3) is None
    assert tail_of(Transcript.of(talk("q1")), 1) is None
    assert tail_hash(whole.hashes, whole.answered, 0) is None


def test_tail_hash_needs_the_same_words() -> None:
    assert tail_of(Transcript.of(talk("q2", "a2")), 1) != tail_of(Transcript.of(talk("q2", "a2 edited")), 1)


@each_of(
    ("message", "text"),
    [
        ({"role": "user", "content": "hi "}, "hi "),
        ({"role": "user", "content": [{"type": "text", "text": "a"}, IMAGE, {"type": "text", "text": "b"}]}, "a\nb"),
        ({"role": "user", "content": {"type": "text", "text": "a"}}, "a"),
        ({"role": "user", "content": ["a"]}, "a"),
        ({"role": "assistant", "content": None, "refusal": "No."}, "No."),
        ({"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}, "No."),
        ({"role": "assistant", "content": None}, ""),
        ({"role": "user", "content": 5}, ""),
        ("hi", ""),
    ],
)
def test_text_of(message: Any, text: str) -> None:
    assert text_of(message) == text


def test_query_is_the_last_user_message() -> None:
    messages = [
        *talk("first", "answer", " second "),
        assistant(call("f", "{}")),
        {"role": "tool", "content": "result"},
    ]
    assert query_of(messages) == "second"
    assert query_of(talk("first", "answer", "")) == ""
    assert query_of([{"role": "system", "content": "x"}]) == ""


def test_long_query_keeps_both_ends() -> None:
    query = query_of([{"role": "user", "content": "What is this? " + "x" * 10_000 + " Answer briefly."}])
    assert len(query) == QUERY_CHARS - 1
    assert query.startswith("What is this?")
    assert query.endswith("Answer briefly.")


@given(st.dictionaries(st.text(max_size=4), json_values, max_size=4))
def test_arguments_survive_another_serialiser(arguments: dict[str, Any]) -> None:
    try:
        wire = orjson.dumps(arguments).decode()
    except TypeError:  # integers beyond 64 bits, lone surrogates
        return
    indented = json.dumps(orjson.loads(wire), indent=2, sort_keys=True)
    assert canonical(assistant(call("f", wire))) == canonical(assistant(call("f", indented)))
