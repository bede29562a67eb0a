"""A later leg's request is the first one's, byte for byte, with what was said since; or without our tools."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.features.paging.body import following, without_tools
from app.features.paging.tools import Names, NeedsLeg, PhantomCall, ToolInsertion, offer, spoken
from app.gateway.dialects.chat import CHAT
from app.gateway.dialects.splice import splice

OWN = {"type": "function", "function": {"name": "weather", "parameters": {}}}
CALL = PhantomCall("c1", "memory_query", '{"question":"q"}')


def offered(body: bytes) -> tuple[bytes, Names]:
    chat = CHAT.read(body, json.loads(body))
    assert chat is not None
    made = offer(chat)
    assert isinstance(made, ToolInsertion)
    return splice(body, made.insertions), made.names


@pytest.mark.parametrize("messages", ['[{"role":"user","content":"hi"}]', '[ {"content" : "a\\u00e9"} , {"x":1.0} ]'])
def test_what_was_said_goes_behind_all_messages(messages: str) -> None:
    body = b'{ "messages": ' + messages.encode() + b' , "temperature":1.0}'
    need = NeedsLeg((CALL,), spoken("Hm.", {}, [CALL]))
    made = following(body, need, ["the answer"])
    was, now = json.loads(body), json.loads(made)
    assert now["messages"][: len(was["messages"])] == was["messages"]
    said, told = now["messages"][len(was["messages"]) :]
    assert (said["content"], said["tool_calls"][0]["id"]) == ("Hm.", "c1")
    assert told == {"role": "tool", "tool_call_id": "c1", "content": "the answer"}
    begun = body.index(b" ]") if b" ]" in body else body.index(b"}]") + 1
    assert made.startswith(body[:begun])
    assert made.endswith(body[begun:])


@pytest.mark.parametrize(
    "body",
    [
        b'{"messages":[{"role":"user"}]}',
        b'{"messages": [{"role": "user"}] , "x": 1.0}',
        b'{"model":"m","messages":[{}],"tools":[' + json.dumps(OWN).encode() + b"]}",
        b'{"tools": [ ' + json.dumps(OWN).encode() + b' ] , "messages":[{}]}',
    ],
)
def test_without_our_tools_it_is_as_it_was(body: bytes) -> None:
    with_ours, names = offered(body)
    assert with_ours != body
    assert without_tools(with_ours, names) == body


@pytest.mark.parametrize("tools", [b"[]", b"null"])
def test_an_empty_list_of_tools_goes(tools: bytes) -> None:
    with_ours, names = offered(b'{"tools":' + tools + b',"messages":[{}]}')
    assert json.loads(without_tools(with_ours, names)) == {"messages": [{}]}


def test_tools_of_the_clients_that_are_called_alike_stay() -> None:
    own: dict[str, Any] = {"type": "function", "function": {"name": "memory_query"}}
    body = json.dumps({"messages": [{}], "tools": [own, {"type": "custom", "custom": {"name": "x"}}]}).encode()
    with_ours, names = offered(body)
    assert names == Names("mneme_memory_query", "memory_restore")
    assert without_tools(with_ours, names) == body


def test_a_request_without_tools_is_left_alone() -> None:
    body = b'{"messages":[{}],"tools":[]}'
    assert without_tools(body, Names()) == body
