"""The two tools in the client's own bytes, and what a model may call them with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import openai.types.chat
import orjson
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.features.paging.tools import (
    MAX_ARGUMENTS_CHARS,
    MAX_NAME_CHARS,
    MAX_OBJECT_ID_CHARS,
    MAX_QUESTION_CHARS,
    QUOTED_CHARS,
    InvalidCall,
    Names,
    NeedsLeg,
    PhantomCall,
    Query,
    Restore,
    ToolInsertion,
    choose_names,
    definitions,
    offer,
    read_call,
    results,
    spoken,
    unknown_object,
)
from app.features.responses import DIALECT as RESPONSES
from app.gateway.dialects.chat import CHAT
from app.gateway.dialects.splice import splice
from app.providers.tokens import Tokenizers, tools_tokens
from tests.support.replies import captured_cases, captured_request

TOOLS_TOKENS = 207
"""What the two tools add to each request of a model of OpenAI's; docs/explanation/seeds.md (seed 002 §1.5) tells it."""

OWN = {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object"}}}
OURS = definitions(Names())
RESULT_CHARS = 400
"""No result that says what is wrong is longer."""


def offered(**fields: Any) -> ToolInsertion | str:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "q"}], **fields}).encode()
    chat = CHAT.read(body, orjson.loads(body))
    assert chat is not None
    found = offer(chat)
    if isinstance(found, ToolInsertion):
        made = orjson.loads(splice(body, found.insertions))
        tools = made.pop("tools")
        assert made == {key: value for key, value in orjson.loads(body).items() if key != "tools"}, (
            "nothing else changes"
        )
        given = fields.get("tools") or []
        assert tools[: len(given)] == given
        assert tools[len(given) :] == definitions(found.names)
    return found


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, None),
        ({"tools": None}, None),
        ({"tools": []}, None),
        ({"tools": [OWN]}, None),
        ({"tools": [OWN, OWN], "tool_choice": None}, None),
        ({"tools": [OWN], "tool_choice": "auto"}, None),
        ({"tools": [OWN], "tool_choice": "required"}, None),
        ({"tools": [OWN], "parallel_tool_calls": False}, None),
        ({"tools": [OWN], "response_format": {"type": "json_object"}}, None),
        ({"tools": [OWN], "structured_outputs": {"regex": "a"}}, None),
        ({"tools": [{"type": "custom", "custom": {"name": "c"}}]}, None),
        ({"n": 1, "functions": [], "stream": True}, None),
        ({"tools": [OWN], "tool_choice": "none"}, "tool-choice-none"),
        ({"tool_choice": "none"}, "tool-choice-none"),
        ({"tools": [OWN], "tool_choice": {"type": "function", "function": {"name": "get_time"}}}, "tool-choice-forced"),
        ({"tools": [OWN], "tool_choice": {"type": "allowed_tools", "allowed_tools": {}}}, "tool-choice-forced"),
        ({"tools": [OWN], "tool_choice": "sometimes"}, "tool-choice-forced"),
        ({"tool_choice": "auto"}, "tool-choice-without-tools"),
        ({"tools": [], "tool_choice": "required"}, "tool-choice-without-tools"),
        ({"functions": [{"name": "f"}]}, "legacy-functions"),
        ({"function_call": "auto"}, "legacy-functions"),
        ({"n": 2}, "several-choices"),
        ({"n": "1"}, "several-choices"),
        ({"tools": "all"}, "tools-unread"),
        ({"tools": [OWN, 1]}, "tools-unread"),
        ({"tools": {}}, "tools-unread"),
    ],
)
def test_who_gets_the_tools(fields: dict[str, Any], reason: str | None) -> None:
    found = offered(**fields)
    assert (found if isinstance(found, str) else None) == reason


def test_only_this_dialect() -> None:
    body = b'{"model":"m","input":"q"}'
    chat = RESPONSES.read(body, orjson.loads(body))
    assert chat is not None
    assert offer(chat) == "dialect"


@pytest.mark.parametrize("tools", [b"null", b"[ ]", b"[\n]", b'[ {"a" : [1.0 , {}]} , {"b":"]"}\n ]'])
def test_every_other_byte_stays(tools: bytes) -> None:
    body = (
        b'{ "messages" : [ {"role":"user","content":"\\u00e9"} ] , "x":1e2, "tools" : %s , "seed": 12345678901234567890 }'
        % tools
    )
    chat = CHAT.read(body, orjson.loads(body))
    assert chat is not None
    found = offer(chat)
    assert isinstance(found, ToolInsertion)
    made = splice(body, found.insertions)
    before, _, behind = body.partition(tools)
    assert made.startswith(before)
    assert made.endswith(behind)
    if tools.startswith(b"[ {"):
        assert tools.rstrip(b"\n ]") in made


def test_every_captured_request_can_take_them_or_says_why_not() -> None:
    seen = set()
    for case in captured_cases():
        _, path, _, body = captured_request(case)
        try:
            document = orjson.loads(body)
        except orjson.JSONDecodeError:
            continue
        chat = CHAT.read(body, document) if path == "/v1/chat/completions" and "messages" in document else None
        if chat is not None:
            found = offer(chat)
            seen.add(found if isinstance(found, str) else "offered")
            if isinstance(found, ToolInsertion):
                orjson.loads(splice(body, found.insertions))
    assert seen == {"offered", "tool-choice-forced", "tool-choice-without-tools", "several-choices"}


def test_the_definitions_are_what_the_sdk_takes() -> None:
    adapter = pydantic.TypeAdapter(openai.types.chat.ChatCompletionFunctionToolParam)
    for each in OURS:
        adapter.validate_python(each)
        assert len(each["function"]["name"]) <= MAX_NAME_CHARS


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("taken", "names"),
    [
        (set(), Names()),
        ({"get_time"}, Names()),
        ({"memory_query"}, Names("mneme_memory_query", "memory_restore")),
        ({"memory_restore", "mneme_memory_restore"}, Names("memory_query", "mneme_memory_restore_2")),
        ({"memory"}, Names("mneme_memory_query", "mneme_memory_restore")),
        ({"memory_query_all"}, Names("mneme_memory_query", "memory_restore")),
        ({"m"}, Names()),
        ({"m", "memory_query"}, Names("mneme_memory_query", "memory_restore")),
    ],
)
def test_a_client_that_owns_a_tool_of_that_name(taken: set[str], names: Names) -> None:
    found = choose_names(frozenset(taken))
    assert found == names
    assert set(found).isdisjoint(taken)


def test_a_client_that_owns_them_all() -> None:
    taken = {"m"}
    for _ in range(40):
        found = choose_names(frozenset(taken))
        assert set(found).isdisjoint(taken)
        taken |= set(found)


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "function", "function": {"name": "memory_query"}},
        {"type": "custom", "custom": {"name": "memory_query"}},
        {"type": "function", "name": "memory_query"},
    ],
)
def test_names_of_every_kind_of_tool_count(tool: dict[str, Any]) -> None:
    found = offered(tools=[tool])
    assert isinstance(found, ToolInsertion)
    assert found.names.query == "mneme_memory_query"


# --- calls ------------------------------------------------------------------------------------------------------------


def made(arguments: str, name: str = "memory_query", **more: Any) -> PhantomCall:
    return PhantomCall("c", name, arguments, **more)


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (made('{"question":"Which code?"}'), Query("Which code?")),
        (made('{"question":"  größe 🙂 ","why":1}'), Query("größe 🙂")),
        (made('{"object_id":" file:a.py "}', "memory_restore"), Restore("file:a.py")),
        (made(json.dumps({"question": "q" * MAX_QUESTION_CHARS})), Query("q" * MAX_QUESTION_CHARS)),
    ],
)
def test_what_is_asked(call: PhantomCall, found: Query | Restore) -> None:
    assert read_call(call, Names()) == found
    assert call.as_sent()["function"]["arguments"] == call.arguments


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (made(""), 'not a JSON object: ""'),
        (made('{"question":"Which'), "not a JSON object"),
        (made("x" * 1000), f'"{"x" * QUOTED_CHARS}…"'),
        (made("[1]"), "not a JSON object"),
        (made('"question"'), "not a JSON object"),
        (made("null"), "not a JSON object"),
        (made("{}"), "question is missing"),
        (made('{"question":" "}'), "question is missing"),
        (made('{"question":["a"]}'), "not a text"),
        (made('{"object_id":"o"}'), "question is missing"),
        (made('{"question":"q"}', "memory_restore"), "object_id is missing"),
        (made(json.dumps({"question": "q" * (MAX_QUESTION_CHARS + 1)})), f"at most {MAX_QUESTION_CHARS}"),
        (made(json.dumps({"object_id": "o" * 201}), "memory_restore"), f"at most {MAX_OBJECT_ID_CHARS}"),
        (made('{"question":"q"}', cut=True), f"longer than {MAX_ARGUMENTS_CHARS}"),
    ],
)
def test_what_is_wrong_is_said(call: PhantomCall, says: str) -> None:
    found = read_call(call, Names())
    assert isinstance(found, InvalidCall)
    assert says in found.result
    assert f"Call {call.name} with" in found.result
    assert len(found.result) <= RESULT_CHARS


@given(
    st.text()
    | st.recursive(st.none() | st.text() | st.integers(), lambda v: st.lists(v) | st.dictionaries(st.text(), v)).map(
        json.dumps
    )
)
def test_whatever_a_model_writes_is_answered_and_can_go_back(arguments: str) -> None:
    for name in Names():
        call = made(arguments, name)
        found = read_call(call, Names())
        assert not isinstance(found, InvalidCall) or len(found.result) <= RESULT_CHARS
        assert isinstance(json.loads(call.as_sent()["function"]["arguments"]), dict), (
            "vLLM parses the calls of earlier messages"
        )


def test_an_id_that_nobody_has() -> None:
    assert '"nothing"' in unknown_object("nothing")
    assert len(unknown_object("x" * 10_000)) <= RESULT_CHARS


def test_the_messages_of_a_leg() -> None:
    calls = [made('{"question":"q"}'), PhantomCall("d", "memory_restore", "{broken", 1)]
    need = NeedsLeg(tuple(calls), spoken("", {"reasoning": "hm", "reasoning_content": ""}, calls))
    assert need.message == {
        "role": "assistant",
        "content": None,
        "reasoning": "hm",
        "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "memory_query", "arguments": '{"question":"q"}'}},
            {"id": "d", "type": "function", "function": {"name": "memory_restore", "arguments": "{}"}},
        ],
    }
    assert results(calls, ["one", "two"]) == [
        {"role": "tool", "tool_call_id": "c", "content": "one"},
        {"role": "tool", "tool_call_id": "d", "content": "two"},
    ]
    with pytest.raises(ValueError, match="zip"):
        results(calls, ["one"])


def test_what_the_tools_cost_each_request() -> None:
    told = definitions(Names())
    assert tools_tokens(told, Tokenizers().for_model("gpt-4o")) == TOOLS_TOKENS
    page = Path(__file__).parents[3] / "docs" / "explanation" / "seeds.md"
    assert f"the two tools cost {TOOLS_TOKENS} tokens of each request" in page.read_text()
