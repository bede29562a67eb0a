"""Items of the Responses API as messages: what comes back from a client is recognised as what a model gave."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.context.transcript import canonical
from app.features.responses import assistant_of, items_of, messages_of
from tests.support.responses import called, said, thought
from tests.support.tables import each_of

USER = {"role": "user", "content": "What is the weather?"}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "sunny"}


def test_what_a_model_gave_in_a_row_is_one_message() -> None:
    items = [
        USER,
        thought("hm"),
        said("Let me look."),
        called("weather", '{"city":"Lisbon"}', "c1"),
        RESULT,
        said("Sun."),
    ]
    messages, places = messages_of(items)
    assert [each["role"] for each in messages] == ["user", "assistant", "tool", "assistant"]
    assert places == [(0, 1), (1, 4), (4, 5), (5, 6)]
    assert messages[1]["content"] == "Let me look."
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Lisbon"}'}}
    assert messages[1]["tool_calls"] == [call]
    assert messages[2] == {"role": "tool", "tool_call_id": "c1", "content": "sunny"}


def test_a_conversation_is_the_same_in_both_dialects() -> None:
    """Hash for hash, so that it can go on in the other one."""
    picture = {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "low"}
    parts = [{"type": "input_text", "text": "What is this?"}, picture]
    items: list[Any] = [
        {"type": "message", "role": "user", "content": parts},
        said("A cat."),
        called("name", '{"of": "cat"}', "c2"),
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "Minka"}]},
    ]
    chat: list[Any] = [
        {"role": "user", "content": [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"}},
        ]},
        {"role": "assistant", "content": "A cat.", "tool_calls": [
            {"id": "other", "type": "function", "function": {"name": "name", "arguments": '{"of":"cat"}'}},
        ]},
        {"role": "tool", "tool_call_id": "other", "content": "Minka"},
    ]  # fmt: skip
    messages, _ = messages_of(items)
    assert [canonical(each) for each in messages] == [canonical(each) for each in chat]


@each_of(
    "item",
    [
        {"type": "item_reference", "id": "msg_1"},
        {"type": "compaction", "encrypted_content": "x"},
        {"type": "message", "role": "critic", "content": "x"},
        {"type": 7, "role": ["user"]},
        {"id": "msg_2"},
        {},
        7,
        None,
    ],
)
def test_what_nobody_knows_is_no_message(item: Any) -> None:
    messages, places = messages_of([USER, item, USER])
    assert [each["role"] for each in messages] == ["user", "user"]
    assert places == [(0, 1), (2, 3)]


def test_refusals_and_several_texts() -> None:
    refusal = {"role": "assistant", "type": "message", "content": [{"type": "refusal", "refusal": "I must not."}]}
    assert assistant_of([refusal]) == {"role": "assistant", "content": None, "refusal": "I must not."}
    two = assistant_of([said("One."), said("Two.")])
    assert two is not None
    assert canonical(two) == canonical({"role": "assistant", "content": "One.\nTwo."})


def test_a_message_of_calls_alone() -> None:
    items = [{"role": "assistant", "content": None}, called("weather", "{}", "c1")]
    message = assistant_of(items)
    assert message is not None
    assert message["content"] is None
    assert [each["type"] for each in items_of([message])] == ["function_call"]


def test_results_of_other_tools_are_results() -> None:
    shot = {"type": "computer_screenshot", "image_url": "u"}
    (message,), _ = messages_of([{"type": "computer_call_output", "call_id": "c9", "output": shot}])
    assert message == {"role": "tool", "tool_call_id": "c9", "content": [shot]}


def test_messages_come_back_as_items() -> None:
    custom = {"type": "custom_tool_call", "call_id": "c3", "name": "shell", "input": "ls"}
    items: list[Any] = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [
            {"type": "input_text", "text": "See"},
            {"type": "input_image", "image_url": "u", "detail": "auto"},
            {"type": "input_file", "file_id": "f1"},
        ]},
        {"role": "assistant", "content": "Well."},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        custom,
        {"type": "function_call_output", "call_id": "c1", "output": "1"},
        {"type": "custom_tool_call_output", "call_id": "c3", "output": "2"},
        {"role": "assistant", "content": ""},
    ]  # fmt: skip
    assert items_of(messages_of(items)[0]) == items


contents = st.text(max_size=12) | st.lists(
    st.fixed_dictionaries({"type": st.sampled_from(["input_text", "output_text", "x"]), "text": st.text(max_size=5)})
    | st.none() | st.text(max_size=3) | st.integers()
)  # fmt: skip
an_item = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from(["user", "assistant", "system", "critic"]) | st.none() | st.integers(),
        "type": st.sampled_from(["message", "function_call", "function_call_output", "reasoning", "new"])
        | st.integers(),
        "content": contents | st.none(),
        "output": contents | st.none(),
        "arguments": st.text(max_size=5) | st.none(),
    },
)


@given(st.lists(an_item | st.none() | st.text(max_size=2), max_size=8))
def test_anything_is_read_without_a_complaint(items: list[Any]) -> None:
    messages, places = messages_of(items)
    assert len(messages) == len(places)
    covered = [n for begin, end in places for n in range(begin, end)]
    assert covered == sorted(set(covered)), "in their order, and none twice"
    for message in messages:
        canonical(message)
    items_of(messages)
