"""Anthropic's Python SDK, synchronous and asynchronous."""

from __future__ import annotations

import json
from typing import Any

import anthropic
from anthropic import Anthropic, AsyncAnthropic
from scenarios import BASE_URL, WEATHER, headers, run

ROOT = BASE_URL.removesuffix("/v1")
FACT = "My cat is called Minka and she is afraid of thunder."
QUESTION: Any = [{"type": "text", "text": "What is my cat called?", "cache_control": {"type": "ephemeral"}}]


def client(scenario: str, session: bool = False) -> Anthropic:
    return Anthropic(base_url=ROOT, api_key="unused", max_retries=0, default_headers=headers(scenario, session))


def user(content: Any) -> Any:
    return {"role": "user", "content": content}


def chat() -> dict[str, Any]:
    """A fact, and a question about it in another conversation."""
    made = client("chat")
    made.messages.create(model="text", max_tokens=50, system="Be brief.", messages=[user(FACT)])
    raw = made.messages.with_raw_response.create(model="text", max_tokens=50, messages=[user(QUESTION)])
    message = raw.parse()
    return {"text": message.content[0].text, "stop": message.stop_reason, "status": raw.headers["x-mneme-status"]}


def stream() -> dict[str, Any]:
    with client("stream").messages.stream(model="text", max_tokens=50, messages=[user("hi")]) as events:
        pieces = list(events.text_stream)
        message = events.get_final_message()
    return {"text": "".join(pieces), "pieces": len(pieces), "stop": message.stop_reason}


async def asynchronous() -> str:
    given: Any = headers("asynchronous")
    async with AsyncAnthropic(base_url=ROOT, api_key="unused", max_retries=0, default_headers=given) as made:
        message = await made.messages.create(model="text", max_tokens=50, messages=[user("hi")])
        return str(message.content[0].text)


def tools() -> dict[str, Any]:
    """A call, its result, and the answer: one conversation."""
    made = client("tools")
    given: Any = [{"name": "weather", "description": "now", "input_schema": WEATHER}]
    asked = [user("How is the weather in Lisbon?")]
    first = made.messages.create(model="text", max_tokens=50, tools=given, messages=asked)
    (call,) = [each for each in first.content if each.type == "tool_use"]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}
    asked += [{"role": "assistant", "content": first.content}, user([result])]
    raw = made.messages.with_raw_response.create(model="text", max_tokens=50, tools=given, messages=asked)
    said = raw.parse().content[0].text
    return {"call": [call.name, json.dumps(call.input)], "text": said, "session": raw.headers["x-mneme-session-id"]}


def session() -> str:
    """The server has the history."""
    made = client("session", session=True)
    made.messages.create(model="text", max_tokens=50, messages=[user("First.")])
    return str(made.messages.create(model="text", max_tokens=50, messages=[user("How many?")]).content[0].text)


def count() -> int:
    return client("count").messages.count_tokens(model="text", messages=[user("hi")]).input_tokens


def error() -> list[Any]:
    try:
        client("error").messages.create(
            model="text", max_tokens=5, messages=[user("hi")], extra_headers={"X-Mneme-Memory": "?"}
        )
    except anthropic.BadRequestError as refused:
        body: Any = refused.body
        return [body["type"], body["error"]["type"]]
    return []


run({
    "chat": chat, "stream": stream, "asynchronous": asynchronous, "tools": tools, "session": session, "count": count,
    "error": error,
})  # fmt: skip
