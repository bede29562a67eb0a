"""LlamaIndex's OpenAILike."""

from __future__ import annotations

import json
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, ImageBlock, TextBlock
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from scenarios import BASE_URL, CAT, KEY, PICTURE, SHORT_S, TURNS, headers, run, status_of


def model(scenario: str, name: str = "text", session: bool = False, **more: Any) -> OpenAILike:
    given: dict[str, Any] = {"max_retries": 0, "default_headers": headers(scenario, session)} | more
    return OpenAILike(
        api_base=BASE_URL, api_key=KEY, model=name, is_chat_model=True, is_function_calling_model=True, **given
    )


def user(text: str) -> ChatMessage:
    return ChatMessage(role="user", content=text)


def chat() -> Any:
    return model("chat").chat([user("hi")]).message.content


def stream() -> dict[str, Any]:
    pieces = [each.delta for each in model("stream").stream_chat([user("hi")]) if each.delta]
    return {"text": "".join(pieces), "pieces": len(pieces)}


async def asynchronous() -> dict[str, Any]:
    chunks = await model("asynchronous").astream_chat([user("hi")])
    pieces = [each.delta async for each in chunks if each.delta]
    return {"text": "".join(pieces), "pieces": len(pieces)}


def tools() -> list[Any]:
    def weather(city: str) -> str:
        """The weather."""
        return "sunny"

    llm = model("tools", "tools")
    made = llm.chat_with_tools(
        [FunctionTool.from_defaults(fn=weather)], user_msg="weather?", allow_parallel_tool_calls=True
    )
    return [[each.tool_name, each.tool_kwargs] for each in llm.get_tool_calls_from_response(made)]


def structured() -> Any:
    form = {"type": "json_schema", "json_schema": {"name": "cat", "strict": True, "schema": CAT}}
    return json.loads(model("structured", "json").chat([user("cat?")], response_format=form).message.content)


def error() -> dict[str, Any]:
    try:
        model("error", "error-429").chat([user("hi")])
    except Exception as refused:  # noqa: BLE001 - its kind is the client's own
        return {"status": status_of(refused), "message": str(refused)}
    return {}


def timeout() -> bool:
    try:
        model("timeout", "never", timeout=SHORT_S).chat([user("hi")])
    except Exception as late:  # noqa: BLE001
        return "imeout" in repr(late) or "timed out" in repr(late)
    return False


def abort() -> Any:
    chunks = model("abort", "stall").stream_chat([user("hi")])
    first = next(each.delta for each in chunks if each.delta)
    chunks.close()  # type: ignore[attr-defined]
    return first


def turns() -> int:
    transcript: list[ChatMessage] = []
    for text in TURNS:
        transcript.append(user(text))
        transcript.append(model("turns").chat(transcript).message)
    return len(transcript)


def session() -> int:
    return len([model("session", session=True).chat([user(text)]) for text in TURNS])


def image() -> Any:
    blocks = [TextBlock(text="What is this?"), ImageBlock(url=PICTURE)]
    return model("image").chat([ChatMessage(role="user", blocks=blocks)]).message.content


run({
    "chat": chat, "stream": stream, "asynchronous": asynchronous, "tools": tools, "structured": structured, "error": error,
    "timeout": timeout, "abort": abort, "turns": turns, "session": session, "image": image,
})  # fmt: skip
