"""LiteLLM as a client."""

from __future__ import annotations

import json
from typing import Any

import litellm
from scenarios import BASE_URL, CAT, KEY, PICTURE, SHORT_S, TURNS, WEATHER, headers, run, status_of

litellm.telemetry = False


def complete(scenario: str, messages: Any, name: str = "text", session: bool = False, **more: Any) -> Any:
    return litellm.completion(
        model=f"openai/{name}", api_base=BASE_URL, api_key=KEY, messages=messages, num_retries=0, max_retries=0,
        extra_headers=headers(scenario, session), **more,
    )  # fmt: skip


def user(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def chat() -> Any:
    return complete("chat", user("hi")).choices[0].message.content


def stream() -> dict[str, Any]:
    chunks = complete("stream", user("hi"), stream=True)
    pieces = [each.choices[0].delta.content for each in chunks if each.choices[0].delta.content]
    return {"text": "".join(pieces), "pieces": len(pieces)}


async def asynchronous() -> dict[str, Any]:
    chunks = await litellm.acompletion(
        model="openai/text", api_base=BASE_URL, api_key=KEY, messages=user("hi"), stream=True,
        extra_headers=headers("asynchronous"),
    )  # fmt: skip
    pieces = [each.choices[0].delta.content async for each in chunks if each.choices[0].delta.content]
    return {"text": "".join(pieces), "pieces": len(pieces)}


def tools() -> list[Any]:
    given = [{"type": "function", "function": {"name": "weather", "parameters": WEATHER}}]
    made = complete("tools", user("weather?"), "tools", tools=given)
    return [[each.function.name, json.loads(each.function.arguments)] for each in made.choices[0].message.tool_calls]


def structured() -> Any:
    form = {"type": "json_schema", "json_schema": {"name": "cat", "strict": True, "schema": CAT}}
    return json.loads(complete("structured", user("cat?"), "json", response_format=form).choices[0].message.content)


def error() -> dict[str, Any]:
    try:
        complete("error", user("hi"), "error-429")
    except litellm.RateLimitError as refused:
        return {"status": status_of(refused), "message": str(refused)}
    return {}


def timeout() -> bool:
    try:
        complete("timeout", user("hi"), "never", timeout=SHORT_S)
    except litellm.Timeout:
        return True
    return False


async def abort() -> Any:
    chunks = await litellm.acompletion(
        model="openai/stall", api_base=BASE_URL, api_key=KEY, messages=user("hi"), stream=True,
        extra_headers=headers("abort"),
    )  # fmt: skip
    async for each in chunks:
        if each.choices[0].delta.content:
            await chunks.aclose()
            return each.choices[0].delta.content
    return None


def turns() -> int:
    transcript: list[Any] = []
    for text in TURNS:
        transcript += user(text)
        transcript.append(complete("turns", transcript).choices[0].message.model_dump())
    return len(transcript)


def session() -> int:
    return len([complete("session", user(text), session=True) for text in TURNS])


def image() -> Any:
    parts = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": PICTURE}}]
    return complete("image", [{"role": "user", "content": parts}]).choices[0].message.content


run({
    "chat": chat, "stream": stream, "asynchronous": asynchronous, "tools": tools, "structured": structured, "error": error,
    "timeout": timeout, "abort": abort, "turns": turns, "session": session, "image": image,
})  # fmt: skip
