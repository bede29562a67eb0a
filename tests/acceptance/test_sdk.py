"""OpenAI's SDK against Mneme and against the upstream itself: the same script, the same results, the same errors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx2
import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

from tests.acceptance import sdk_upstream
from tests.support.clients import async_sdk, sdk
from tests.support.replies import Script
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

QUESTION: Any = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "What is the weather in Lisbon?"},
]
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "strict": True,
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }
]
IMAGE: Any = [
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}},
        ],
    }
]
CONNECTION = {"connection", "keep-alive", "transfer-encoding", "date"}
SHORT_S = 0.3


class Cat(BaseModel):
    name: str
    age: int


@pytest.fixture(scope="module")
def script() -> Script:
    return sdk_upstream.script


Outcome = tuple[Any, ...]


def headers_of(headers: Any) -> list[tuple[str, str]]:
    return sorted((k, v) for k, v in headers.multi_items() if k not in CONNECTION and not k.startswith("x-mneme-"))


def error_outcome(error: Exception) -> Outcome:
    """Everything of an exception that an application can look at."""
    kind = type(error).__name__
    if isinstance(error, openai.APIStatusError):
        told = headers_of(error.response.headers)
        about = (error.status_code, error.message, error.body, error.code, error.param, error.type, error.request_id)
        return (kind, *about, told)
    if isinstance(error, openai.APIError):
        return (kind, error.message, error.body, error.code)
    return (kind,)


def outcome(play: Callable[[OpenAI], Any], url: str) -> Outcome:
    with sdk(url) as client:
        try:
            return ("answer", play(client))
        except (openai.OpenAIError, httpx2.HTTPError, ValueError) as error:
            return error_outcome(error)


async def async_outcome(play: Callable[[AsyncOpenAI], Awaitable[Any]], url: str) -> Outcome:
    async with async_sdk(url) as client:
        try:
            return ("answer", await play(client))
        except (openai.OpenAIError, httpx2.HTTPError, ValueError) as error:
            return error_outcome(error)


# --- what is done -------------------------------------------------------------------------------------------------------


def create(model: str, **fields: Any) -> Callable[[OpenAI], Any]:
    given = {"messages": QUESTION, "user": "ana"} | fields
    return lambda client: client.chat.completions.create(model=model, **given).model_dump()


def stream(model: str, **fields: Any) -> Callable[[OpenAI], Any]:
    def play(client: OpenAI) -> Any:
        given = {"messages": QUESTION, "user": "ana"} | fields
        with client.chat.completions.create(model=model, stream=True, **given) as chunks:
            return [each.model_dump() for each in chunks]

    return play


def events(model: str, **fields: Any) -> Callable[[OpenAI], Any]:
    def play(client: OpenAI) -> Any:
        with client.chat.completions.stream(model=model, messages=QUESTION, **fields) as found:
            kinds = [each.type for each in found]
            return kinds, found.get_final_completion().model_dump(warnings=False)

    return play


def parse(model: str, **fields: Any) -> Callable[[OpenAI], Any]:
    def play(client: OpenAI) -> Any:
        given: Any = {"response_format": Cat} | fields
        done = client.chat.completions.parse(model=model, messages=QUESTION, **given)
        return done.choices[0].message.parsed, done.model_dump(warnings=False)

    return play


def raw(client: OpenAI) -> Any:
    answer = client.chat.completions.with_raw_response.create(model="text", messages=QUESTION)
    return (
        answer.status_code,
        headers_of(answer.headers),
        answer.request_id,
        answer.content,
        answer.parse().model_dump(),
    )


def streaming(client: OpenAI) -> Any:
    given: Any = {"model": "text", "messages": QUESTION, "stream": True}
    with client.chat.completions.with_streaming_response.create(**given) as answer:
        return answer.status_code, headers_of(answer.headers), b"".join(answer.iter_bytes())


def streamed_lines(client: OpenAI) -> Any:
    with client.chat.completions.with_streaming_response.create(model="text", messages=QUESTION) as answer:
        return list(answer.iter_lines())


def responses(client: OpenAI) -> Any:
    with client.responses.create(model="text", input="hi", stream=True) as found:
        return [each.model_dump() for each in found]


def with_short_timeout(model: str, **fields: Any) -> Callable[[OpenAI], Any]:
    return lambda client: create(model, **fields)(client.with_options(timeout=SHORT_S))


PLAYS: dict[str, Callable[[OpenAI], Any]] = {
    "create": create("text"),
    "create with every parameter": create(
        "text", temperature=0.0, top_p=1.0, seed=1, stop=["\n"], logit_bias={"50256": -100}, metadata={"a": "b"}, store=False,
        max_completion_tokens=100, presence_penalty=0.5, extra_body={"top_k": 3, "guided_json": {"type": "object"}},
        extra_headers={"x-custom": "1", "openai-beta": "x"}, extra_query={"api-version": "1"},
    ),
    "n=2": create("text", n=2),
    "logprobs": create("logprobs", logprobs=True, top_logprobs=1),
    "refusal": create("refusal"),
    "tools": create("tools", tools=TOOLS, tool_choice="auto", parallel_tool_calls=True),
    "legacy functions": create("function", functions=[{"name": "weather", "parameters": {}}], function_call="auto"),
    "image parts": create("text", messages=IMAGE),
    "tool results": create("text", messages=[
        *QUESTION, {"role": "assistant", "content": None, "tool_calls": sdk_upstream.TOOL_CALLS},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
        {"role": "tool", "tool_call_id": "call_2", "content": "rainy"},
    ]),
    "stream": stream("text"),
    "stream with usage": stream("text", stream_options={"include_usage": True}),
    "stream n=2": stream("text", n=2),
    "stream tools": stream("tools", tools=TOOLS),
    "stream legacy functions": stream("function", functions=[{"name": "weather", "parameters": {}}]),
    "event stream": events("text"),
    "event stream of tools": events("tools", tools=TOOLS),
    "event stream of structured output": events("json", response_format=Cat),
    "parse": parse("json"),
    "parse tools": parse("tools", tools=TOOLS, response_format=openai.NOT_GIVEN),
    "parse what was cut": parse("json-cut"),
    "parse what was filtered": parse("json-filtered"),
    "raw response": raw,
    "streaming response": streaming,
    "streaming lines": streamed_lines,
    "models": lambda client: client.models.list().model_dump(),
    "embeddings": lambda client: client.embeddings.create(model="e", input="x").model_dump(),
    "responses": responses,
    "file upload": lambda client: client.files.create(file=("a.bin", sdk_upstream.BYTES), purpose="batch").model_dump(
        exclude={"bytes"}
    ),
    "file download": lambda client: client.files.content("f").content,
    "unknown path": lambda client: client.get("/no/such/path", cast_to=object),
    **{f"error {status}": create(f"error-{status}") for status in sdk_upstream.ERRORS},
    **{f"stream error {status}": stream(f"error-{status}") for status in (400, 429, 500)},
    "html error": create("html"),
    "an answer that is no JSON": create("not-json"),
    "error in a stream": stream("in-band"),
    "error event and an end": stream("in-band-done"),
    "cut stream": stream("cut"),
    "time-out before the head": with_short_timeout("never"),
    "time-out in the stream": lambda client: stream("stall")(client.with_options(timeout=SHORT_S)),
}  # fmt: skip


@pytest.mark.parametrize("name", PLAYS)
def test_the_same_script_has_the_same_outcome(mneme: MnemeServer, upstream: ScriptedUpstream, name: str) -> None:
    direct = outcome(PLAYS[name], upstream.url)
    asked = [each.target for each in upstream.requests]
    upstream.requests.clear()
    through = outcome(PLAYS[name], mneme.url)
    assert through == direct
    if "error" not in name and "time-out" not in name and "cut" not in name and "no JSON" not in name:
        assert through[0] in ("answer", "LengthFinishReasonError", "ContentFilterFinishReasonError", "NotFoundError")
    assert [each.target for each in upstream.requests] == asked


def test_errors_are_the_classes_that_the_sdk_documents(mneme: MnemeServer, upstream: ScriptedUpstream) -> None:
    classes = {
        400: openai.BadRequestError, 401: openai.AuthenticationError, 403: openai.PermissionDeniedError,
        404: openai.NotFoundError, 409: openai.ConflictError, 422: openai.UnprocessableEntityError,
        429: openai.RateLimitError, 500: openai.InternalServerError, 503: openai.InternalServerError,
    }  # fmt: skip
    with sdk(mneme.url) as client:
        for status, expected in classes.items():
            with pytest.raises(expected) as found:
                create(f"error-{status}")(client)
            assert isinstance(found.value, openai.APIStatusError)
            assert found.value.request_id == "req-0123456789"
            assert (found.value.response.headers.get("retry-after") == "7") is (status == 429)


# --- asynchronous ---------------------------------------------------------------------------------------------------------


async def _chunks(found: AsyncIterator[Any]) -> list[Any]:
    return [each.model_dump() async for each in found]


async def async_create(client: AsyncOpenAI) -> Any:
    return (await client.chat.completions.create(model="text", messages=QUESTION)).model_dump()


async def async_stream(client: AsyncOpenAI) -> Any:
    async with await client.chat.completions.create(model="text", messages=QUESTION, stream=True) as found:
        return await _chunks(found)


async def async_events(client: AsyncOpenAI) -> Any:
    async with client.chat.completions.stream(model="json", messages=QUESTION, response_format=Cat) as found:
        kinds = [each.type async for each in found]
        return kinds, (await found.get_final_completion()).choices[0].message.parsed


async def async_parse(client: AsyncOpenAI) -> Any:
    done = await client.chat.completions.parse(model="json", messages=QUESTION, response_format=Cat)
    return done.choices[0].message.parsed


async def async_raw(client: AsyncOpenAI) -> Any:
    answer = await client.chat.completions.with_raw_response.create(model="text", messages=QUESTION)
    return answer.status_code, headers_of(answer.headers), answer.content


async def async_streaming(client: AsyncOpenAI) -> Any:
    given: Any = {"model": "text", "messages": QUESTION, "stream": True}
    async with client.chat.completions.with_streaming_response.create(**given) as answer:
        return [line async for line in answer.iter_lines()]


async def async_error(client: AsyncOpenAI) -> Any:
    return await client.chat.completions.create(model="error-429", messages=QUESTION)


async def async_in_band(client: AsyncOpenAI) -> Any:
    async with await client.chat.completions.create(model="in-band", messages=QUESTION, stream=True) as found:
        return await _chunks(found)


async def async_cut(client: AsyncOpenAI) -> Any:
    async with await client.chat.completions.create(model="cut", messages=QUESTION, stream=True) as found:
        return await _chunks(found)


ASYNC_PLAYS = [
    async_create, async_stream, async_events, async_parse, async_raw, async_streaming, async_error, async_in_band, async_cut,
]  # fmt: skip


@pytest.mark.parametrize("play", ASYNC_PLAYS, ids=lambda play: play.__name__)
async def test_the_same_asynchronous_script_has_the_same_outcome(
    mneme: MnemeServer, upstream: ScriptedUpstream, play: Callable[[AsyncOpenAI], Awaitable[Any]]
) -> None:
    assert await async_outcome(play, mneme.url) == await async_outcome(play, upstream.url)


# --- what can only be so through a proxy ----------------------------------------------------------------------------------


@pytest.fixture
def nowhere(own_server: Callable[..., MnemeServer]) -> MnemeServer:
    """A server whose upstream is not there."""
    return own_server("http://127.0.0.1:9/v1")


def test_an_upstream_that_refuses_the_connection_is_a_502_of_openais_shape(nowhere: MnemeServer) -> None:
    with sdk(nowhere.url) as client:
        for play in (create("text"), stream("text"), PLAYS["models"]):
            with pytest.raises(openai.InternalServerError) as found:
                play(client)
            assert found.value.status_code == 502
            assert found.value.type == "upstream_error"
            assert "upstream" in found.value.message
            assert found.value.response.headers["x-mneme-call-id"]


def test_the_sdk_sees_the_call_and_the_session(mneme: MnemeServer, upstream: ScriptedUpstream) -> None:
    with sdk(mneme.url, headers={"X-Mneme-User": "ana", "X-Mneme-Session": "from the sdk"}) as client:
        one = client.chat.completions.with_raw_response.create(model="text", messages=QUESTION)
        two = client.chat.completions.with_raw_response.create(model="text", messages=QUESTION)
    assert one.headers["x-mneme-session-id"] == two.headers["x-mneme-session-id"]
    assert one.headers["x-mneme-call-id"] != two.headers["x-mneme-call-id"]
