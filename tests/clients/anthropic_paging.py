"""Anthropic's Python SDK on a session that is paged: two long results, and a question about the older one."""

from __future__ import annotations

import json
from typing import Any

from anthropic import Anthropic, APIStatusError, AsyncAnthropic
from scenarios import BASE_URL, headers, run

ROOT = BASE_URL.removesuffix("/v1")
QUESTION = "Which limit does worker_119 have?"
TOOLS: Any = [
    {
        "name": "list_workers",
        "input_schema": {"type": "object", "properties": {"cluster": {"type": "string"}}},
        "cache_control": {"type": "ephemeral"},
    }
]


def paged(scenario: str) -> dict[str, str]:
    return {**headers(scenario), "X-Mneme-Paging": "on"}


def client(scenario: str) -> Anthropic:
    return Anthropic(base_url=ROOT, api_key="unused", max_retries=0, default_headers=paged(scenario))


def listing(what: str) -> str:
    return "\n".join(f"{what}_{n}: queue {n * 7}, host node-{n * 13 % 97}, limit {n + 1000}" for n in range(120))


def transcript(question: str = QUESTION) -> list[Any]:
    """A long listing, then another, as a text and as blocks; the last block of all carries a mark."""
    messages: list[Any] = [{"role": "user", "content": "Look at the workers."}]
    told: list[Any] = [listing("worker"), [{"type": "text", "text": listing("runner")}]]
    for n, content in enumerate(told):
        call = {"type": "tool_use", "id": f"toolu_{n}", "name": "list_workers", "input": {"cluster": f"c{n}"}}
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": content}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    marked = {"type": "text", "text": question, "cache_control": {"type": "ephemeral"}}
    return [*messages, {"role": "assistant", "content": "Seen."}, {"role": "user", "content": [marked]}]


def asked(question: str = QUESTION, **more: Any) -> dict[str, Any]:
    thinks = {"type": "enabled", "budget_tokens": 1024}
    return {
        "model": "m",
        "max_tokens": 2000,
        "thinking": thinks,
        "tools": TOOLS,
        "messages": transcript(question),
        **more,
    }


def told(message: Any) -> dict[str, Any]:
    usage = message.usage
    return {
        "id": message.id,
        "kinds": [each.type for each in message.content],
        "signatures": [each.signature for each in message.content if each.type == "thinking"],
        "text": "".join(each.text for each in message.content if each.type == "text"),
        "stop": message.stop_reason,
        "usage": [usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens],
    }


def whole() -> dict[str, Any]:
    return told(client("whole").messages.create(**asked()))


def stream() -> dict[str, Any]:
    """Also what its helper makes of the events, one by one."""
    with client("stream").messages.stream(**asked()) as events:
        seen = [(each.type, getattr(each, "index", None)) for each in events]
        message = events.get_final_message()
    starts = [index for kind, index in seen if kind == "content_block_start"]
    return {**told(message), "starts": starts}


async def asynchronous() -> dict[str, Any]:
    async with AsyncAnthropic(base_url=ROOT, api_key="unused", max_retries=0, default_headers=paged("async")) as made:
        async with made.messages.stream(**asked()) as events:
            text = "".join([each async for each in events.text_stream])
            message = await events.get_final_message()
        return {**told(message), "heard": text}


def conversation() -> dict[str, Any]:
    """The answer goes back as the SDK has it, and the conversation goes on."""
    made = client("conversation")
    messages = transcript()
    with made.messages.stream(**asked(messages=messages)) as events:
        first = events.get_final_message()
    messages += [{"role": "assistant", "content": first.content}, {"role": "user", "content": "Thank you."}]
    raw = made.messages.with_raw_response.create(**asked(messages=messages))
    return {**told(raw.parse()), "session": raw.headers["x-mneme-session-id"]}


def tools() -> dict[str, Any]:
    """A call of the client's own beside ours: it gets its own, and comes back with the result."""
    made = client("tools")
    messages = transcript("Compare both, please.")
    with made.messages.stream(**asked(messages=messages)) as events:
        first = events.get_final_message()
    calls = [each for each in first.content if each.type == "tool_use"]
    results = [{"type": "tool_result", "tool_use_id": each.id, "content": "limit 7"} for each in calls]
    messages += [{"role": "assistant", "content": first.content}, {"role": "user", "content": results}]
    last = made.messages.create(**asked(messages=messages))
    return {**told(last), "calls": [[each.name, json.dumps(each.input)] for each in calls], "first": told(first)}


def refused() -> list[Any]:
    """The upstream gives up when it is asked on."""
    try:
        with client("refused").messages.stream(**asked("Overload yourself.")) as events:
            events.get_final_message()
    except APIStatusError as error:
        body: Any = error.body
        return [type(error).__name__, body["error"]["type"], body["error"]["message"]]
    return ["no error"]


run(
    {
        "whole": whole,
        "stream": stream,
        "async": asynchronous,
        "conversation": conversation,
        "tools": tools,
        "refused": refused,
    }
)
