"""Pydantic AI."""

from __future__ import annotations

from typing import Any

from openai import AsyncOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent, ImageUrl, ModelHTTPError, NativeOutput, ToolDefinition
from pydantic_ai.direct import model_request
from pydantic_ai.messages import ModelRequest
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from scenarios import BASE_URL, KEY, PICTURE, SHORT_S, TURNS, WEATHER, headers, run


class Cat(BaseModel):
    name: str
    age: int


def provider(scenario: str, session: bool = False, **more: Any) -> OpenAIProvider:
    made = AsyncOpenAI(
        base_url=BASE_URL, api_key=KEY, max_retries=0, default_headers=headers(scenario, session), **more
    )
    return OpenAIProvider(openai_client=made)


def model(scenario: str, name: str = "text", session: bool = False, **more: Any) -> OpenAIChatModel:
    return OpenAIChatModel(name, provider=provider(scenario, session, **more))


async def chat() -> str:
    return (await Agent(model("chat")).run("hi")).output


async def stream() -> dict[str, Any]:
    async with Agent(model("stream")).run_stream("hi") as answered:
        pieces = [each async for each in answered.stream_text(delta=True, debounce_by=None)]
    return {"text": "".join(pieces), "pieces": len(pieces)}


async def tools() -> list[Any]:
    given = ModelRequestParameters(function_tools=[ToolDefinition(name="weather", parameters_json_schema=WEATHER)])
    asked = [ModelRequest.user_text_prompt("weather?")]
    made = await model_request(model("tools", "tools"), asked, model_request_parameters=given)
    return [[each.tool_name, each.args_as_dict()] for each in made.tool_calls]


async def structured() -> Any:
    agent = Agent(model("structured", "json"), output_type=NativeOutput(Cat))
    return (await agent.run("cat?")).output.model_dump()


async def error() -> dict[str, Any]:
    try:
        await Agent(model("error", "error-429")).run("hi")
    except ModelHTTPError as refused:
        return {"status": refused.status_code, "message": str(refused)}
    return {}


async def timeout() -> bool:
    try:
        await Agent(model("timeout", "never", timeout=SHORT_S)).run("hi")
    except Exception as late:  # noqa: BLE001 - its kind is the client's own
        return "imeout" in repr(late) or "timed out" in repr(late)
    return False


async def abort() -> str:
    async with Agent(model("abort", "stall")).run_stream("hi") as answered:
        async for each in answered.stream_text(delta=True, debounce_by=None):
            return each
    return ""


async def turns() -> int:
    agent, told = Agent(model("turns")), []
    for text in TURNS:
        told = (await agent.run(text, message_history=told)).all_messages()
    return len(told)


async def session() -> int:
    agent = Agent(model("session", session=True))
    return len([await agent.run(text) for text in TURNS])


async def image() -> str:
    return (await Agent(model("image")).run(["What is this?", ImageUrl(PICTURE)])).output


async def responses() -> list[str]:
    agent = Agent(OpenAIResponsesModel("text", provider=provider("responses")))
    first = await agent.run("Question 1")
    second = await agent.run("Question 2", message_history=first.all_messages())
    return [first.output, second.output]


run({
    "chat": chat, "stream": stream, "tools": tools, "structured": structured, "error": error, "timeout": timeout,
    "abort": abort, "turns": turns, "session": session, "image": image, "responses": responses,
})  # fmt: skip
