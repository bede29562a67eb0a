"""The helper LLM's client: what is asked, and every way in which an answer can be useless."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import respx
from pydantic import BaseModel

from app.errors import HelperError, NotReady
from app.features.helper import HelperClient, strict_schema
from app.providers.helper import build_helper
from app.settings import Settings

URL = "http://helper.test/v1/chat/completions"


class Inner(BaseModel):
    title: str
    weight: float = 0.5


class Answer(BaseModel):
    """What is asked for."""

    items: list[Inner]
    note: str | None = None


GOOD = {"items": [{"title": "a", "weight": 0.25}], "note": None}


def completion(content: str | None, **choice: Any) -> httpx.Response:
    message = {"role": "assistant", "content": content, "refusal": choice.pop("refusal", None)}
    return httpx.Response(200, json={"choices": [{"message": message, "finish_reason": "stop", **choice}]})


@pytest.fixture
async def helper() -> AsyncIterator[HelperClient]:
    found = HelperClient("http://helper.test/v1/", model="small", api_key="sk-h", timeout_s=5)
    yield found
    await found.close()


async def ask(helper: HelperClient) -> Answer:
    return await helper.ask(Answer, system="Extract.", user="I live in Lisbon", max_tokens=300)


@respx.mock
async def test_it_asks_with_a_schema_and_bounds(helper: HelperClient) -> None:
    route = respx.post(URL).mock(return_value=completion(json.dumps(GOOD)))
    answer = await ask(helper)
    assert answer.items[0].weight == 0.25
    request = route.calls.last.request
    body = json.loads(request.content)
    assert body["model"] == "small"
    assert body["max_completion_tokens"] == 300
    assert [message["content"] for message in body["messages"]] == ["Extract.", "I live in Lisbon"]
    assert body["response_format"]["json_schema"]["strict"] is True
    assert body["response_format"]["json_schema"]["schema"] == strict_schema(Answer)
    assert request.headers["authorization"] == "Bearer sk-h"


def test_the_schema_is_strict() -> None:
    schema = strict_schema(Answer)
    inner = schema["$defs"]["Inner"]
    for node in (schema, inner):
        assert node["additionalProperties"] is False
        assert node["required"] == list(node["properties"])
    assert set(inner["properties"]) == {"title", "weight"}  # a property called title is no annotation
    assert "default" not in json.dumps(schema)


@respx.mock
@pytest.mark.parametrize(
    "text",
    [
        "Sure! Here it is:\n```json\nOBJECT\n```\nAnything else?",
        "OBJECT",
        "  \nOBJECT",
        "<think>a { half } thought {} {</think>OBJECT",
        'The set {a, b} is not it, {"items": 3} neither, but OBJECT is.',
    ],
)
async def test_prose_around_the_object_is_fine(helper: HelperClient, text: str) -> None:
    respx.post(URL).mock(return_value=completion(text.replace("OBJECT", json.dumps(GOOD))))
    assert (await ask(helper)).items[0].title == "a"


@respx.mock
@pytest.mark.parametrize(
    ("response", "says"),
    [
        (completion(json.dumps(GOOD)[:-9]), "no whole JSON object"),
        (completion('{"items": [{"title": "a"}], "note": '), "no whole JSON object"),
        (completion("I cannot do that."), "no whole JSON object"),
        (completion("[1, 2]"), "no whole JSON object"),
        (completion("{" * 5000), "no whole JSON object"),
        (completion('{"items": 3}'), "another shape: items"),
        (completion('{"items": [{"title": 1}]}'), r"another shape: items\.0\.title"),
        (completion("{}"), "another shape"),
        (completion(""), "empty"),
        (completion(None), "empty"),
        (completion(None, refusal="No."), "refused: No"),
        (completion(json.dumps(GOOD), finish_reason="length"), "cut off at 300 tokens"),
        (httpx.Response(200, text="<html>"), "no chat completion"),
        (httpx.Response(200, json={"choices": []}), "no chat completion"),
        (httpx.Response(200, json=[]), "no chat completion"),
        (httpx.Response(200, json={"choices": [{"message": "hi"}]}), "no chat completion"),
        (httpx.Response(429, text="slow down"), r"status 429 \(too many requests\): slow down"),
        (httpx.Response(500, text="x" * 9999), "status 500"),
        (httpx.Response(401, text="bad key"), "bad key"),
        (httpx.ConnectError("refused"), "cannot be reached: ConnectError refused"),
        (httpx.ReadTimeout("slow"), "no answer within 5 s"),
    ],
)
async def test_a_useless_answer_says_why(helper: HelperClient, response: httpx.Response | Exception, says: str) -> None:
    respx.post(URL).mock(side_effect=[response])
    with pytest.raises(HelperError, match=says) as caught:
        await ask(helper)
    assert len(caught.value.message) < 400
    assert "sk-h" not in caught.value.message


@respx.mock
async def test_a_server_without_schemas_is_asked_in_words(helper: HelperClient) -> None:
    refusal = httpx.Response(400, json={"error": {"message": "response_format is not supported"}})
    route = respx.post(URL).mock(side_effect=[refusal, completion(json.dumps(GOOD))])
    assert (await ask(helper)).note is None
    body = json.loads(route.calls.last.request.content)
    assert "response_format" not in body
    assert body["max_tokens"] == 300
    assert '"additionalProperties": false' in body["messages"][0]["content"]


@respx.mock
async def test_the_first_refusal_is_told(helper: HelperClient) -> None:
    respx.post(URL).mock(side_effect=[httpx.Response(400, text="no such model"), httpx.Response(503, text="later")])
    with pytest.raises(HelperError, match="status 400: no such model"):
        await ask(helper)


@respx.mock
async def test_an_endless_answer_is_cut(helper: HelperClient) -> None:
    respx.post(URL).mock(return_value=httpx.Response(200, content=b" " * (HelperClient.MAX_ANSWER_BYTES + 1)))
    with pytest.raises(HelperError, match="more than"):
        await ask(helper)


async def test_a_server_that_only_drips_runs_into_the_time_limit() -> None:
    """Each byte comes in time, the whole does not: httpx's own time-outs would never end it."""
    done = asyncio.Event()

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        try:
            while not writer.is_closing():
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.01)
        except ConnectionError:
            pass
        finally:
            writer.close()
            done.set()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    helper = HelperClient(f"http://127.0.0.1:{port}/v1", model="m", timeout_s=0.3)
    with pytest.raises(HelperError, match=r"no answer within 0\.3 s"):
        await ask(helper)
    await helper.close()
    await asyncio.wait_for(done.wait(), 10)
    server.close()
    await server.wait_closed()


def configured(**values: object) -> Settings:
    return Settings(_env_file=None, **values)  # type: ignore[arg-type]  # pydantic checks them


def test_the_settings_decide() -> None:
    assert build_helper(configured()) is None
    assert build_helper(configured(helper_base_url="http://127.0.0.1:9/v1", helper_model="m")) is not None
    with pytest.raises(NotReady, match="MNEME_HELPER_MODEL"):
        build_helper(configured(helper_base_url="http://127.0.0.1:9/v1"))
