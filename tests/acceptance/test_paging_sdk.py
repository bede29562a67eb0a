"""The OpenAI SDK's helpers on a paged session whose model looks something up before it answers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai import OpenAI
from pydantic import BaseModel

from tests.support.clients import Api, async_sdk, sdk
from tests.support.replies import Recorded, Reply, Script, reply_events, reply_json
from tests.support.server import MnemeServer

MODEL = "gpt-4o"
QUESTION = "Which limit does the last worker have?"
HEADERS = {"X-Mneme-Paging": "on"}
USAGE = {"prompt_tokens": 50, "completion_tokens": 5, "total_tokens": 55}


class Limit(BaseModel):
    limit: int


def listing() -> str:
    return "\n".join(f"worker_{n}: queue {n * 7}, host node-{n * 13 % 97}, limit {n + 1000}" for n in range(120))


def transcript() -> list[Any]:
    """A long listing, then another; the older one is shown in short."""
    messages: list[Any] = [{"role": "user", "content": "Look at the workers."}]
    for n, told in enumerate([listing(), listing().replace("worker", "runner").replace("queue", "lane")]):
        call = {"name": "list_workers", "arguments": json.dumps({"cluster": f"c{n}"})}
        messages += [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{n}", "type": "function", "function": call}],
            },
            {"role": "tool", "tool_call_id": f"c{n}", "content": told},
        ]
    return [*messages, {"role": "assistant", "content": "Seen."}, {"role": "user", "content": QUESTION}]


def answers(request: Recorded) -> Reply:
    """First a look-up, then what came of it: a figure in JSON."""
    if request.path != "/v1/chat/completions":
        return reply_json({"object": "list", "data": [{"id": MODEL, "object": "model", "max_model_len": 32_000}]})
    asked = request.json()
    looked_up = asked["messages"][-1]["role"] == "tool"
    offered = {each["function"]["name"] for each in asked.get("tools") or ()}
    head = {"id": f"chatcmpl-{int(looked_up)}", "created": 100 + int(looked_up), "model": MODEL}
    message: dict[str, Any] = {"role": "assistant", "content": '{"limit": 1119}'}
    reason = "stop"
    if not looked_up:
        assert "memory_query" in offered, "nothing was shortened"
        function = {"name": "memory_query", "arguments": json.dumps({"question": "worker_119 limit"})}
        call = {"id": "call_1", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        reason = "tool_calls"
    if not asked.get("stream"):
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
        return reply_json(head | {"object": "chat.completion", "choices": [choice], "usage": USAGE})
    if message.get("tool_calls"):
        message["tool_calls"] = [{"index": 0} | each for each in message["tool_calls"]]
    parts = [(message, None), ({}, reason)]
    chunks = [
        head | {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": end}]}
        for delta, end in parts
    ]
    if asked.get("stream_options"):
        chunks.append(head | {"object": "chat.completion.chunk", "choices": [], "usage": USAGE})
    return reply_events([*(b"data: %s\n\n" % json.dumps(each).encode() for each in chunks), b"data: [DONE]\n\n"])


@pytest.fixture(scope="module")
def script() -> Script:
    return answers


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    return {"PAGING_BUDGET_TOKENS": "4000"}


def body(**more: Any) -> Any:
    return {"model": MODEL, "messages": transcript(), "extra_headers": HEADERS, **more}


def test_parse(mneme: MnemeServer) -> None:
    with sdk(mneme.url) as client:
        made = client.chat.completions.parse(**body(response_format=Limit, user="parse"))
    assert made.choices[0].message.parsed == Limit(limit=1119)
    assert made.choices[0].message.tool_calls is None
    assert (made.id, made.usage and made.usage.total_tokens) == ("chatcmpl-0", 110)


def test_a_stream_that_is_parsed(mneme: MnemeServer) -> None:
    with sdk(mneme.url) as client, client.chat.completions.stream(**body(response_format=Limit, user="s")) as events:
        kinds = [event.type for event in events]
        made = events.get_final_completion()
    assert made.choices[0].message.parsed == Limit(limit=1119)
    assert not any(kind.startswith("tool_calls") for kind in kinds)


async def test_asynchronous_helpers(mneme: MnemeServer) -> None:
    async with async_sdk(mneme.url) as client:
        made = await client.chat.completions.parse(**body(response_format=Limit, user="a"))
        assert made.choices[0].message.parsed == Limit(limit=1119)
        async with client.chat.completions.stream(**body(user="a2")) as events:
            said = "".join([event.delta async for event in events if event.type == "content.delta"])
            final = await events.get_final_completion()
        assert said == final.choices[0].message.content == '{"limit": 1119}'
        plain = await client.chat.completions.create(**body(user="a3", stream=True))
        ids = {each.id async for each in plain}
    assert ids == {"chatcmpl-0"}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_raw_answers_are_what_is_kept(mneme: MnemeServer, stream: bool) -> None:
    who = f"raw {stream}"
    with (
        sdk(mneme.url) as client,
        client.chat.completions.with_streaming_response.create(**body(user=who, stream=stream)) as answer,
    ):
        data = b"".join(answer.iter_bytes())
        call, session = answer.headers["x-mneme-call-id"], answer.headers["x-mneme-session-id"]
    assert b"memory_query" not in data
    assert b"call_1" not in data
    api = Api(mneme, user=who)
    assert api.raw(call) == data
    assert api.said(session)[-1] == ("assistant", '{"limit": 1119}')
    assert len(api.call(call)["legs"]) == 2
    (fault,) = api.get(f"/sessions/{session}/faults")["faults"]
    assert "1119" in fault["answer"]


def test_a_tools_helper_of_the_sdk_gets_no_call_of_ours(mneme: MnemeServer) -> None:
    """`tools` with an own tool and `parallel_tool_calls: false`: the parsed answer has no call."""
    own: Any = {
        "type": "function",
        "function": {
            "name": "list_workers", "strict": True,
            "parameters": {
                "type": "object", "properties": {"cluster": {"type": "string"}}, "required": ["cluster"],
                "additionalProperties": False,
            },
        },
    }  # fmt: skip
    with OpenAI(base_url=mneme.url, api_key="k", max_retries=0) as client:
        made = client.chat.completions.parse(**body(tools=[own], parallel_tool_calls=False, user="own"))
    assert made.choices[0].message.tool_calls is None
    assert made.choices[0].message.content == '{"limit": 1119}'
