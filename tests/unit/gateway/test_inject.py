"""What comes out of `inject` and `splice` is what the same edits make of the parsed messages."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import orjson
from hypothesis import given
from hypothesis import strategies as st

from app.capture.record import GIVEN
from app.context.assemble import AppendTo, Edit, InsertMessage, Prepend
from app.gateway.dialects.base import renamed
from app.gateway.dialects.chat import CHAT
from app.gateway.dialects.splice import splice
from app.gateway.prepare import outgoing, weave
from app.store.turns import StoredMessage

Message = dict[str, Any]


def woven(messages: list[Message], edits: list[Edit], indent: int | None = None, **more: Any) -> list[Message]:
    body = json.dumps({"model": "m", "messages": messages, "seed": 1}, indent=indent).encode()
    chat = CHAT.read(body, orjson.loads(body))
    assert chat is not None
    made: list[Message] = orjson.loads(splice(body, weave(CHAT.canvas(chat), edits, **more)))["messages"]
    return made


def said(role: str, content: Any) -> Message:
    return {"role": role, "content": content}


ONE = [said("system", "S"), said("user", "q1")]
PAST = [said("user", "old"), said("assistant", "answer")]


def test_history_goes_behind_the_leading_system_messages() -> None:
    assert woven(ONE, [], lead=1, history=PAST) == [ONE[0], *PAST, ONE[1]]
    assert woven(ONE[1:], [], lead=0, history=[ONE[0], *PAST]) == [ONE[0], *PAST, ONE[1]]
    assert woven(ONE[:1], [], lead=1, history=PAST) == [ONE[0], *PAST]


def test_blocks_go_into_the_messages_that_they_count() -> None:
    edits: list[Edit] = [Prepend(1, "<a>"), Prepend(3, "<b>")]
    assert woven(ONE, edits, lead=1, history=PAST) == [
        ONE[0],
        said("user", "<a>old"),
        PAST[1],
        said("user", "<b>q1"),
    ]
    assert PAST[0]["content"] == "old", "what was given stays as it was"


def test_parts_and_empty_contents_take_a_block() -> None:
    parts = [{"type": "image_url", "image_url": {"url": "u"}}]
    assert woven([said("user", parts)], [Prepend(0, "B")])[0]["content"] == [{"type": "text", "text": "B"}, *parts]
    past = [said("user", parts), said("user", None)]
    made = woven([said("user", "q")], [Prepend(0, "B"), AppendTo(0, "E"), Prepend(1, "B")], lead=0, history=past)
    assert made[0]["content"] == [{"type": "text", "text": "B"}, *parts, {"type": "text", "text": "E"}]
    assert made[1]["content"] == "B"


def test_a_system_message_of_its_own_stands_where_it_was_planned() -> None:
    block: list[Edit] = [InsertMessage(1, "system", "M")]
    assert woven(ONE, block) == [ONE[0], said("system", "M"), ONE[1]]
    assert woven(ONE, block, lead=1, history=PAST) == [ONE[0], said("system", "M"), *PAST, ONE[1]]
    # The session's own system prompt is supplied, and the block goes behind it.
    assert woven(ONE[1:], block, lead=0, history=[ONE[0], *PAST]) == [ONE[0], said("system", "M"), *PAST, ONE[1]]
    assert woven(ONE, [InsertMessage(4, "system", "M")], lead=1, history=PAST)[4] == said("system", "M")
    assert woven(ONE, [InsertMessage(0, "system", "M")], lead=1, history=PAST)[0] == said("system", "M")


def test_the_model_gets_its_other_name() -> None:
    body = b'{"messages": [{"role": "user", "content": "q"}], "model": "mine", "x": 1.0}'
    chat = CHAT.read(body, orjson.loads(body))
    assert chat is not None
    assert splice(body, renamed(chat, "theirs")) == body.replace(b'"mine"', b'"theirs"')


texts = st.text(max_size=8)
roles = st.sampled_from(["user", "assistant"])
a_message = st.builds(said, roles, texts)


@given(st.lists(a_message, min_size=1, max_size=5), st.lists(a_message, max_size=4), st.data())
def test_edits_are_the_same_on_bytes_as_on_values(own: list[Message], past: list[Message], data: st.DataObject) -> None:
    lead = data.draw(st.integers(0, len(own)))
    whole = [*own[:lead], *past, *own[lead:]]
    at = data.draw(st.lists(st.integers(0, len(whole) - 1), unique=True))
    text = data.draw(texts)
    made = woven(
        own, [Prepend(i, text) for i in sorted(at)], data.draw(st.sampled_from([None, 0, 3])), lead=lead, history=past
    )
    assert made == [{**each, "content": text + each["content"]} if i in at else each for i, each in enumerate(whole)]


# --- stored messages ----------------------------------------------------------------------------------------------------


def stored(**given: Any) -> StoredMessage:
    plain: dict[str, Any] = {
        "message_id": UUID(int=1),
        "parent_message_id": None,
        "turn_index": 3,
        "sibling": 0,
        "role": "user",
        "content": "text",
    }
    return StoredMessage(**plain | given)


def test_a_stored_message_goes_out_as_it_came_in() -> None:
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    assert outgoing(stored(token_count=5, message_hash=b"h")).message == said("user", "text")
    assert outgoing(stored(role="assistant", content=None, tool_calls=calls)).message == {
        **said("assistant", None),
        "tool_calls": calls,
    }
    assert outgoing(stored(role="tool", tool_call_id="c", name="f")).message == {
        **said("tool", "text"),
        "name": "f",
        "tool_call_id": "c",
    }
    parts = [{"type": "text", "text": "text"}]
    assert outgoing(stored(content_parts=parts)).message["content"] == parts
    made = outgoing(stored(token_count=5, message_hash=b"h"))
    assert (made.token_count, made.message_hash, made.turn_index) == (5, b"h", 3)


def test_the_old_function_call_goes_out_as_one() -> None:
    old = [{"type": "function", "function": {"name": "f", "arguments": "{}"}}]
    message = outgoing(stored(role="assistant", content=None, tool_calls=old)).message
    assert message["function_call"] == {"name": "f", "arguments": "{}"}
    assert "tool_calls" not in message


def test_fields_and_roles_of_the_clients_own_come_back() -> None:
    given = {GIVEN: {"role": "critic", "fields": {"x": 1}}}
    assert outgoing(stored(role="other", metadata=given)).message == {**said("critic", "text"), "x": 1}
    # What an application wrote beside an imported message makes nobody a system.
    assert outgoing(stored(metadata={"role": "system", GIVEN: {"role": "system"}})).message == said("user", "text")
    assert outgoing(stored(metadata={GIVEN: "no object"})).message == said("user", "text")
