"""The dialect of the Responses API: what is read of a request, and where memory goes in its own bytes."""

from __future__ import annotations

import json
from typing import Any

import orjson

from app.context.assemble import AppendTo, Edit, InsertMessage, Prepend
from app.context.transcript import mark_of_answer as mark_of
from app.features.responses import DIALECT as RESPONSES
from app.gateway.dialects.base import ChatRequest, leading, renamed
from app.gateway.dialects.chat import CHAT
from app.gateway.dialects.splice import splice
from app.gateway.dialects.sse import UpstreamAnswer
from app.gateway.prepare import weave
from mneme_replay.paths import MASK
from tests.support.responses import called, said
from tests.support.tables import each_of

USER = {"role": "user", "content": "q"}
PAST = [{"role": "user", "content": "old"}, {"role": "assistant", "content": "answer"}]


def read(body: bytes) -> ChatRequest:
    chat = RESPONSES.read(body, orjson.loads(body))
    assert chat is not None
    return chat


def asked(**document: Any) -> ChatRequest:
    return read(json.dumps({"model": "m", **document}).encode())


def woven(chat: ChatRequest, edits: list[Edit], **more: Any) -> Any:
    return orjson.loads(splice(chat.body, weave(RESPONSES.canvas(chat), edits, **more)))


def test_a_text_and_instructions_are_messages() -> None:
    chat = asked(input="q", instructions="Be kind.", max_output_tokens=9, stream=True)
    assert chat.messages == [{"role": "system", "content": "Be kind."}, USER]
    assert (leading(chat.messages), chat.answer_limit, chat.stream, chat.model) == (1, 9, True, "m")
    assert chat.system_prompt() == "Be kind."
    assert not chat.upstream_holds


@each_of(
    "document",
    [{}, {"input": None}, {"input": []}, {"input": 7}, {"input": ["q"]}, {"input": [{"type": "item_reference", "id": "x"}]},
     {"instructions": "x"}, {"instructions": "x", "input": []}],
)  # fmt: skip
def test_what_says_nothing_is_not_understood(document: dict[str, Any]) -> None:
    assert RESPONSES.read(json.dumps(document).encode(), document) is None


def test_what_the_upstream_holds() -> None:
    assert asked(input="q", previous_response_id="resp_1").follows == "resp_1"
    assert asked(input="q", previous_response_id="resp_1").upstream_holds
    assert asked(input="q", conversation="conv_1").upstream_holds
    for none in (None, "", 7):
        assert not asked(input="q", previous_response_id=none).upstream_holds
    assert (
        RESPONSES.session({"conversation": {"id": "conv_1"}})
        == RESPONSES.session({"conversation": "conv_1"})
        == "conv_1"
    )
    assert RESPONSES.session({}) is RESPONSES.session({"conversation": {"id": 7}}) is None
    assert RESPONSES.unfit({"background": True}) == "background"
    assert RESPONSES.unfit({"background": False}) is None


def test_what_else_stands_in_the_prompt() -> None:
    tool = {"type": "function", "name": "f", "parameters": {}}
    form = {"type": "json_schema", "name": "cat", "schema": {}}
    chat = asked(input="q", tools=[tool], text={"format": form, "verbosity": "low"})
    assert chat.schemas == [[tool], form]
    assert chat.has_tools
    assert asked(input="q", text={"format": {"type": "text"}}).schemas == []


def test_a_block_goes_into_the_text_and_no_other_byte_changes() -> None:
    body = b' {"x": 1.0, "input" : "q \\u00e9", "n":12345678901234567890 , "model":"m"}'
    chat = read(body)
    made = splice(body, weave(RESPONSES.canvas(chat), [Prepend(0, 'B"\n')]))
    assert made == body.replace(b'"q ', b'"B\\"\\nq ')
    assert splice(body, renamed(chat, "theirs")) == body.replace(b'"m"', b'"theirs"')


def test_a_block_goes_into_the_item_that_it_is_for() -> None:
    items = [
        USER,
        said("a"),
        called("f", "{}", "c1"),
        {"type": "function_call_output", "call_id": "c1", "output": "r"},
        USER,
    ]
    chat = asked(input=items)
    assert [each["role"] for each in chat.messages] == ["user", "assistant", "tool", "user"]
    made = woven(chat, [Prepend(0, "A"), Prepend(3, "B")])["input"]
    assert made == [{**USER, "content": "Aq"}, *items[1:4], {**USER, "content": "Bq"}]
    parts = [{"type": "input_image", "image_url": "u"}]
    (item,) = woven(asked(input=[{"role": "user", "content": parts}]), [Prepend(0, "A")])["input"]
    assert item["content"] == [{"type": "input_text", "text": "A"}, *parts]


def test_history_goes_before_the_items() -> None:
    chat = asked(input=[USER], instructions="S")
    past = [*PAST, {"role": "tool", "tool_call_id": "c1", "content": "r"}]
    made = woven(chat, [Prepend(1, "<a>"), Prepend(4, "<b>")], lead=1, history=past)
    output = {"type": "function_call_output", "call_id": "c1", "output": "r"}
    assert made["input"] == [
        {"role": "user", "content": "<a>old"},
        PAST[1],
        output,
        {"role": "user", "content": "<b>q"},
    ]
    assert made["instructions"] == "S"


def test_a_text_becomes_an_item_where_history_goes_before_it() -> None:
    body = b'{"model":"m","input": "q\\u00e9" ,"x":1.0}'
    made = splice(body, weave(RESPONSES.canvas(read(body)), [Prepend(2, "B")], lead=0, history=PAST))
    begin = b'{"model":"m","input": [' + b"".join(orjson.dumps(each) + b"," for each in PAST)
    assert made == begin + b'{"role":"user","content":"Bq\\u00e9"}] ,"x":1.0}'


@each_of(
    ("given", "wanted"),
    [
        ({"input": "q"}, {"instructions": "M", "input": "q"}),
        ({"input": "q", "instructions": None}, {"instructions": "M", "input": "q"}),
        ({"input": [USER]}, {"input": [{"role": "system", "content": "M"}, USER]}),
    ],
)
def test_a_system_block_where_there_is_no_system_message(given: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert woven(asked(**given), [InsertMessage(0, "system", "M")]) == {"model": "m", **wanted}


def test_a_system_block_beside_what_the_client_wrote() -> None:
    chat = asked(input="q", instructions="S")
    assert woven(chat, [AppendTo(0, "\n\nM")])["instructions"] == "S\n\nM"
    assert woven(chat, [InsertMessage(1, "system", "M")], lead=1)["instructions"] == "S\n\nM"
    items = asked(input=[{"role": "developer", "content": [{"type": "input_text", "text": "S"}]}, USER])
    assert woven(items, [AppendTo(0, "M")])["input"][0]["content"][1] == {"type": "input_text", "text": "M"}
    assert woven(items, [InsertMessage(1, "developer", "M")])["input"][1] == {"role": "developer", "content": "M"}


def test_what_the_upstream_holds_is_not_touched() -> None:
    chat = asked(input=[USER], previous_response_id="resp_1")
    made = woven(chat, [Prepend(0, "A"), Prepend(2, "B")], held=2)
    assert made["input"] == [{"role": "user", "content": "Bq"}]


def test_an_answer_can_be_named_where_the_upstream_keeps_it() -> None:
    answer = UpstreamAnswer(id="resp_1")
    assert RESPONSES.mark(asked(input="q"), answer) == mark_of("resp_1")
    assert mark_of("resp_1") != mark_of("resp_2")
    assert RESPONSES.mark(asked(input="q", store=False), answer) is None
    assert (
        RESPONSES.mark(asked(input="q"), UpstreamAnswer())
        is RESPONSES.mark(asked(input="q"), UpstreamAnswer(id=MASK))
        is None
    )
    assert CHAT.mark(asked(input="q"), answer) is None


def test_captures_know_the_elements() -> None:
    items = [{"role": "system", "content": "S"}, USER]
    body = json.dumps({"input": items}).encode()
    found = RESPONSES.scan(body)
    assert found is not None
    assert [orjson.loads(body[a:b]) for a, b in found.messages] == items == RESPONSES.elements({"input": items})
    text = RESPONSES.scan(b'{"input":"q"}')
    assert text is not None
    assert text.messages == []
    assert RESPONSES.scan(b'"x"') is None
    assert RESPONSES.elements({"input": "q"}) == []
