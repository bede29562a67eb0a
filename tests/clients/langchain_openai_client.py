"""LangChain's ChatOpenAI."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from scenarios import BASE_URL, CAT, KEY, PICTURE, SHORT_S, TURNS, WEATHER, headers, run, status_of


def model(scenario: str, name: str = "text", session: bool = False, **more: Any) -> ChatOpenAI:
    given: dict[str, Any] = {"max_retries": 0, "default_headers": headers(scenario, session)} | more
    return ChatOpenAI(base_url=BASE_URL, api_key=KEY, model=name, **given)


def chat() -> Any:
    return model("chat").invoke("hi").content


def stream() -> dict[str, Any]:
    pieces = [each.content for each in model("stream").stream("hi") if each.content]
    return {"text": "".join(pieces), "pieces": len(pieces)}


async def asynchronous() -> dict[str, Any]:
    pieces = [each.content async for each in model("asynchronous").astream("hi") if each.content]
    return {"text": "".join(pieces), "pieces": len(pieces)}


def tools() -> list[Any]:
    given = {"type": "function", "function": {"name": "weather", "parameters": WEATHER}}
    made = model("tools", "tools").bind_tools([given]).invoke("weather?")
    return [[each["name"], each["args"]] for each in made.tool_calls]


def structured() -> Any:
    schema = {"title": "Cat", "description": "A cat.", **CAT}
    return model("structured", "json").with_structured_output(schema, method="json_schema").invoke("cat?")


def error() -> dict[str, Any]:
    try:
        model("error", "error-429").invoke("hi")
    except Exception as refused:  # noqa: BLE001 - its kind is the client's own
        return {"status": status_of(refused), "message": str(refused)}
    return {}


def timeout() -> bool:
    try:
        model("timeout", "never", timeout=SHORT_S).invoke("hi")
    except Exception as late:  # noqa: BLE001
        return "imeout" in type(late).__name__ or "timed out" in str(late).lower()
    return False


def abort() -> Any:
    chunks = model("abort", "stall").stream("hi")
    first = next(each.content for each in chunks if each.content)
    chunks.close()  # type: ignore[attr-defined]
    return first


def turns() -> int:
    transcript: list[Any] = []
    for text in TURNS:
        transcript.append(HumanMessage(text))
        transcript.append(model("turns").invoke(transcript))
    return len(transcript)


def session() -> int:
    return len([model("session", session=True).invoke(text) for text in TURNS])


def image() -> Any:
    parts = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": PICTURE}}]
    return model("image").invoke([HumanMessage(content=parts)]).content


def responses() -> list[str]:
    made = model("responses", use_responses_api=True)
    first = made.invoke("Question 1")
    follows = made.bind(previous_response_id=first.response_metadata["id"])
    return [first.text, follows.invoke("Question 2").text]


run({
    "chat": chat, "stream": stream, "asynchronous": asynchronous, "tools": tools, "structured": structured, "error": error,
    "timeout": timeout, "abort": abort, "turns": turns, "session": session, "image": image, "responses": responses,
})  # fmt: skip
