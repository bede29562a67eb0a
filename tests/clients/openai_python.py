"""OpenAI's Python SDK, synchronous and asynchronous."""

from __future__ import annotations

import json
from typing import Any

import openai
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel
from scenarios import BASE_URL, KEY, PICTURE, SHORT_S, TURNS, WEATHER, headers, run


class Cat(BaseModel):
    name: str
    age: int


def client(scenario: str, session: bool = False, **more: Any) -> OpenAI:
    return OpenAI(base_url=BASE_URL, api_key=KEY, max_retries=0, default_headers=headers(scenario, session), **more)


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def chat() -> str:
    return client("chat").chat.completions.create(model="text", messages=[user("hi")]).choices[0].message.content


def stream() -> dict[str, Any]:
    chunks = client("stream").chat.completions.create(model="text", messages=[user("hi")], stream=True)
    pieces = [each.choices[0].delta.content for each in chunks if each.choices and each.choices[0].delta.content]
    return {"text": "".join(pieces), "pieces": len(pieces)}


async def asynchronous() -> dict[str, Any]:
    async with AsyncOpenAI(
        base_url=BASE_URL, api_key=KEY, max_retries=0, default_headers=headers("asynchronous")
    ) as made:
        chunks = await made.chat.completions.create(model="text", messages=[user("hi")], stream=True)
        pieces = [e.choices[0].delta.content async for e in chunks if e.choices and e.choices[0].delta.content]
        return {"text": "".join(pieces), "pieces": len(pieces)}


def tools() -> list[Any]:
    given: Any = [{"type": "function", "function": {"name": "weather", "parameters": WEATHER}}]
    made = client("tools").chat.completions.create(model="tools", messages=[user("weather?")], tools=given)
    return [[each.function.name, json.loads(each.function.arguments)] for each in made.choices[0].message.tool_calls]


def structured() -> Any:
    made = client("structured").chat.completions.parse(model="json", messages=[user("cat?")], response_format=Cat)
    return made.choices[0].message.parsed.model_dump()


def error() -> dict[str, Any]:
    try:
        client("error").chat.completions.create(model="error-429", messages=[user("hi")])
    except openai.RateLimitError as refused:
        return {"status": refused.status_code, "message": refused.body["message"]}
    return {}


def timeout() -> bool:
    try:
        client("timeout", timeout=SHORT_S).chat.completions.create(model="never", messages=[user("hi")])
    except openai.APITimeoutError:
        return True
    return False


def abort() -> str:
    with client("abort").chat.completions.create(model="stall", messages=[user("hi")], stream=True) as chunks:
        return next(each.choices[0].delta.content for each in chunks)


def turns() -> int:
    transcript: list[Any] = []
    for text in TURNS:
        transcript.append(user(text))
        made = client("turns").chat.completions.create(model="text", messages=transcript)
        transcript.append(made.choices[0].message)
    return len(transcript)


def session() -> int:
    made = client("session", session=True)
    return len([made.chat.completions.create(model="text", messages=[user(text)]) for text in TURNS])


def image() -> str:
    parts: Any = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": PICTURE}}]
    made = client("image").chat.completions.create(model="text", messages=[{"role": "user", "content": parts}])
    return made.choices[0].message.content


def responses() -> list[str]:
    made = client("responses")
    first = made.responses.create(model="text", input="Question 1")
    with made.responses.stream(model="text", input="Question 2", previous_response_id=first.id) as events:
        return [first.output_text, events.get_final_response().output_text]


run({
    "chat": chat, "stream": stream, "asynchronous": asynchronous, "tools": tools, "structured": structured, "error": error,
    "timeout": timeout, "abort": abort, "turns": turns, "session": session, "image": image, "responses": responses,
})  # fmt: skip
