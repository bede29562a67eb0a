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

from app.errors import HelperBudgetError, HelperError, NotReady
from app.features.helper import HelperClient, strict_schema
from app.gateway.upstream import find_helper_endpoint
from app.providers.helper import HelperEndpoint, build_helper
from app.settings import DEFAULT_UPSTREAM, Settings
from tests.support.tables import each_of

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
    found = HelperClient(HelperEndpoint("http://helper.test/v1/", "small", "sk-h"), timeout_s=5)
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
    assert DEFAULT_UPSTREAM not in json.dumps(schema)


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
    helper = HelperClient(HelperEndpoint(f"http://127.0.0.1:{port}/v1", "m", None), timeout_s=0.3)
    with pytest.raises(HelperError, match=r"no answer within 0\.3 s"):
        await ask(helper)
    await helper.close()
    await asyncio.wait_for(done.wait(), 10)
    server.close()
    await server.wait_closed()


def configured(**values: object) -> Settings:
    return Settings(_env_file=None, **values)  # type: ignore[arg-type]  # pydantic checks them


OWN = "http://127.0.0.1:9/v1"
ROUTES = [
    {"name": "local", "base_url": OWN, "api_key": "sk-local", "models": ["qwen*"], "aliases": {"small": "qwen-4b"}}
]


@each_of(
    ("values", "endpoint"),
    [
        ({}, None),
        ({"upstream_base_url": OWN}, None),
        ({"helper_model": "m", "helper_base_url": OWN}, (OWN, "m", None, None)),
        ({"helper_model": "m", "upstream_base_url": OWN}, (OWN, "m", None, DEFAULT_UPSTREAM)),
        (
            {"helper_model": "m", "upstream_base_url": OWN, "upstream_api_key": "sk-u"},
            (OWN, "m", "sk-u", DEFAULT_UPSTREAM),
        ),
        (
            {"helper_model": "m", "upstream_base_url": OWN, "upstream_api_key": "sk-u", "helper_api_key": "sk-h"},
            (OWN, "m", "sk-h", DEFAULT_UPSTREAM),
        ),
        # A key goes nowhere but to where it was given for.
        (
            {"helper_model": "m", "helper_base_url": OWN, "upstream_base_url": URL, "upstream_api_key": "sk-u"},
            (OWN, "m", None, None),
        ),
        ({"helper_model": "m", "OPENAI_API_KEY": "sk-o"}, ("https://api.openai.com/v1", "m", "sk-o", "openai")),
        ({"helper_model": "m", "upstream_base_url": OWN, "OPENAI_API_KEY": "sk-o"}, (OWN, "m", None, DEFAULT_UPSTREAM)),
        ({"helper_model": "qwen-8b", "upstreams": ROUTES}, (OWN, "qwen-8b", "sk-local", "local")),
        ({"helper_model": "small", "upstreams": ROUTES}, (OWN, "qwen-4b", "sk-local", "local")),
    ],
)
def test_the_model_alone_switches_it_on(
    values: dict[str, Any], endpoint: tuple[str, str, str | None, str | None] | None
) -> None:
    found = find_helper_endpoint(configured(**values))
    assert found == (HelperEndpoint(*endpoint) if endpoint is not None else None)
    assert (build_helper(found, configured(), None) is None) is (endpoint is None)


@each_of(
    ("values", "told"),
    [
        ({"helper_base_url": OWN}, "MNEME_HELPER_MODEL"),
        ({"helper_model": "m"}, "MNEME_UPSTREAM_BASE_URL"),
        ({"helper_model": "gpt", "upstreams": ROUTES}, "which no upstream serves"),
    ],
)
def test_settings_that_lead_nowhere_say_what_is_missing(values: dict[str, Any], told: str) -> None:
    with pytest.raises(NotReady, match=told):
        find_helper_endpoint(configured(**values))


def test_an_endpoint_does_not_show_its_key() -> None:
    assert "sk-h" not in repr(HelperEndpoint(OWN, "m", "sk-h"))


class Ledger:
    """A budget that notes what it was asked; `left`: tokens."""

    def __init__(self, left: int) -> None:
        self.left = left

    async def reserve(self, tokens: int) -> None:
        if tokens > self.left:
            raise HelperBudgetError("the day's tokens are spent")
        self.left -= tokens

    async def settle(self, tokens: int) -> None:
        self.left -= tokens


@respx.mock
@pytest.mark.parametrize(
    ("usage", "taken"), [({"total_tokens": 42}, 42), (None, None), ({"total_tokens": "many"}, None)]
)
async def test_a_call_is_counted_by_what_the_server_says_else_by_what_was_reserved(
    usage: Any, taken: int | None
) -> None:
    answer = completion(json.dumps(GOOD)).json() | {"usage": usage}
    route = respx.post(URL).mock(return_value=httpx.Response(200, json=answer))
    ledger = Ledger(1_000)
    helper = HelperClient(HelperEndpoint("http://helper.test/v1", "small", None), budget=ledger)
    await ask(helper)
    reserved = len("Extract.I live in Lisbon") // HelperClient.CHARS_PER_TOKEN + 300
    assert 1_000 - ledger.left == (taken or reserved)
    ledger.left = 10
    with pytest.raises(HelperBudgetError):
        await ask(helper)
    assert route.call_count == 1
    await helper.close()
