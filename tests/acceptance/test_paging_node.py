"""The SDKs for Node on a paged session, beside the same without Mneme: what an application gets is the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.client_envs import Client, Installed, install
from tests.support.message_legs import streamed, text, use, whole
from tests.support.replies import Recorded, Reply, Script, reply_events, reply_json
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
OWN, LOOK_UP = ("list_workers", {"cluster": "c9"}), ("memory_query", {"question": "worker_119 limit"})
ANSWER = "It is 1119."


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    return {"PAGING_BUDGET_TOKENS": "4000"}


def said(asked: dict[str, Any]) -> tuple[str, list[tuple[str, dict[str, Any]]]]:
    """What a model says: it looks up what was shortened, calls the client's tool where it is to compare, and answers then."""
    last = json.dumps(asked["messages"][-1])
    if "limit 7" in last:
        return "The other has 7.", []
    offered = "memory_query" in json.dumps(asked["tools"])
    looks = [LOOK_UP] if offered and "Quoted from this conversation" not in last else []
    own = [OWN] if "Compare" in last else []
    return ("" if looks or own else ANSWER), [*looks, *own]


def answers(request: Recorded) -> Reply:
    if request.path not in (CHAT, MESSAGES):
        return reply_json({"object": "list", "data": [{"id": "m", "object": "model", "max_model_len": 32_000}]})
    asked = request.json()
    words, calls = said(asked)
    if request.path == MESSAGES:
        blocks = [*([text(words)] if words else []), *(use(name, given, f"toolu_{name}") for name, given in calls)]
        if asked.get("stream"):
            return reply_events([streamed(blocks)])
        return reply_json(json.loads(whole(blocks)))
    return chat_reply(asked, words, calls)


def chat_reply(asked: dict[str, Any], words: str, calls: list[tuple[str, dict[str, Any]]]) -> Reply:
    head = {"id": "chatcmpl-1", "created": 100, "model": "m"}
    reason = "tool_calls" if calls else "stop"
    made = [
        {"id": f"call_{name}", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
        for name, given in calls
    ]
    message: dict[str, Any] = {"role": "assistant", "content": words or None} | ({"tool_calls": made} if made else {})
    if not asked.get("stream"):
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
        usage = {"prompt_tokens": 50, "completion_tokens": 5, "total_tokens": 55}
        return reply_json(head | {"object": "chat.completion", "choices": [choice], "usage": usage})
    if made:
        message["tool_calls"] = [{"index": n} | each for n, each in enumerate(made)]
    chunks = [
        head | {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": end}]}
        for delta, end in ((message, None), ({}, reason))
    ]
    return reply_events([*(b"data: %s\n\n" % json.dumps(each).encode() for each in chunks), b"data: [DONE]\n\n"])


@pytest.fixture(scope="module")
def script() -> Script:
    return answers


@pytest.fixture(scope="module")
def node() -> Installed:
    return install(Client("paging-node", "Node, paged", "paging_node.mjs", ("openai", "@anthropic-ai/sdk")))


@pytest.fixture(scope="module")
def direct(node: Installed, module_upstream: ScriptedUpstream) -> tuple[dict[str, object], list[Recorded]]:
    """What the application has without Mneme, and what was sent."""
    began = len(module_upstream.requests)
    return node.run(module_upstream.url, "direct"), module_upstream.requests[began:]


@pytest.fixture(scope="module")
def paged(
    node: Installed, mneme: MnemeServer, module_upstream: ScriptedUpstream, direct: object
) -> tuple[dict[str, object], list[Recorded]]:
    """The same through Mneme."""
    began = len(module_upstream.requests)
    return node.run(mneme.url, "paged"), module_upstream.requests[began:]


SCENARIOS = (
    "chat-whole", "chat-stream", "chat-chunks", "chat-tools", "messages-whole", "messages-stream", "messages-tools",
)  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_an_application_gets_the_same(
    direct: tuple[dict[str, Any], object], paged: tuple[dict[str, Any], object], scenario: str
) -> None:
    assert paged[0][scenario] == direct[0][scenario]
    told = json.dumps(paged[0][scenario])
    assert ("The other has 7." if scenario.endswith("tools") else ANSWER) in told
    assert "memory_query" not in told


def test_the_prompts_were_paged(
    direct: tuple[object, list[Recorded]], paged: tuple[object, list[Recorded]], mneme: MnemeServer
) -> None:
    """The older listing goes shorter with each request, and the model looks up what it lacks within one answer."""
    sent = [[each for each in requests if each.path in (CHAT, MESSAGES)] for _, requests in (direct, paged)]
    plain, short = ([len(each.body) for each in requests] for requests in sent)
    assert len(plain) == 9
    assert len(short) > len(plain), "look-ups are legs of their own"
    assert max(short) < 0.7 * min(plain), (plain, short)
    assert all("<mneme-object" in each.body.decode() for each in sent[1])
