from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from app.context.assemble import NOTE, TAG, render
from app.features import responses as responses
from app.features.simulated import MODEL, SimulatedTransport, answer_to, notes_in
from app.gateway import dialects
from app.gateway.dialects.sse import answer_of_json, fold, payloads
from app.gateway.upstream import SIMULATED_BASE_URL, UpstreamRequest, UpstreamResponse
from tests.support.clock import FakeClock
from tests.support.context_samples import memory, message
from tests.support.tables import each_of

NOW = datetime(2026, 11, 20, tzinfo=UTC)
BLOCK = "\n".join(
    [
        f"<{TAG} 0badcafe>",
        NOTE,
        "- [preference] I'm vegetarian (2026-11-19)",
        "2026-11-19:",
        "user: call me Ana",
        f"</{TAG} 0badcafe>",
        "",
        "",
    ]
)


def words(text: str) -> int:
    return len(text.split())


async def ask(method: str, path: str, body: object = None) -> tuple[UpstreamResponse, bytes]:
    transport = SimulatedTransport(words, FakeClock(NOW), pause_s=0)
    raw = b"" if body is None else body if isinstance(body, bytes) else orjson.dumps(body)
    response = await transport.send(UpstreamRequest(method, SIMULATED_BASE_URL + path, [], raw))
    data = b"".join([chunk async for chunk in response.chunks])
    await response.aclose()
    await transport.aclose()
    return response, data


async def chat(**asked: Any) -> tuple[UpstreamResponse, bytes]:
    messages = [{"role": "user", "content": BLOCK + "suggest a restaurant"}]
    return await ask("POST", "/chat/completions", {"model": "any", "messages": messages, **asked})


async def test_it_says_what_it_is_and_what_it_remembers() -> None:
    response, data = await chat()
    answer = answer_of_json(data)
    assert answer is not None
    text = answer.choices[0].content or ""
    assert (response.status, answer.model, answer.choices[0].finish_reason) == (200, MODEL, "stop")
    assert "simulated" in text
    assert "“suggest a restaurant”" in text
    assert "2 notes:\n- [preference] I'm vegetarian (2026-11-19)\n- user: call me Ana" in text
    assert NOTE not in text
    assert TAG not in text
    assert answer.usage == {
        "prompt_tokens": words(BLOCK) + 3,
        "completion_tokens": words(text),
        "total_tokens": words(BLOCK) + 3 + words(text),
    }
    assert answer.created == int(NOW.timestamp())
    assert dict(response.headers)[b"content-length"] == b"%d" % len(data)


async def test_a_stream_says_the_same() -> None:
    whole = answer_of_json((await chat())[1])
    response, data = await chat(stream=True, stream_options={"include_usage": True})
    assert whole is not None
    assert dict(response.headers)[b"content-type"].startswith(b"text/event-stream")
    streamed = fold(payloads(data))
    assert streamed.done
    assert streamed.choices == whole.choices
    assert streamed.usage == whole.usage
    assert len(list(payloads(data))) > 5
    without = fold(payloads((await chat(stream=True))[1]))
    assert without.usage is None
    assert without.choices == whole.choices


async def test_the_same_request_gets_the_same_answer() -> None:
    assert (await chat())[1] == (await chat())[1]
    assert (await chat(stream=True))[1] == (await chat(stream=True))[1]


async def test_several_choices_and_a_limit() -> None:
    for stream in (False, True):
        _, data = await chat(n=2, max_tokens=2, stream=stream)
        answer = fold(payloads(data)) if stream else answer_of_json(data)
        assert answer is not None
        assert [choice.index for choice in answer.choices] == [0, 1]
        assert {choice.content for choice in answer.choices} == {"This is a simulated answer: no "}
        assert {choice.finish_reason for choice in answer.choices} == {"length"}


async def test_models() -> None:
    _, data = await ask("GET", "/models")
    (model,) = orjson.loads(data)["data"]
    assert model["id"] == MODEL
    assert model["max_model_len"] >= 100_000, "tools of a client's own leave room for memory"
    assert orjson.loads((await ask("GET", f"/models/{MODEL}"))[1])["id"] == MODEL
    head, nothing = await ask("HEAD", "/models")
    assert head.bodyless
    assert nothing == b""


@each_of(
    ("method", "path", "body", "status"),
    [
        ("POST", "/embeddings", {}, 404),
        ("GET", "/chat/completions", None, 404),
        ("GET", "/models/other", None, 404),
        ("POST", "/chat/completions", b"{", 400),
        ("POST", "/chat/completions", [], 400),
        ("POST", "/chat/completions", {"messages": []}, 400),
        ("POST", "/chat/completions", {"messages": ["x"]}, 400),
    ],
)
async def test_errors_have_openai_s_shape(method: str, path: str, body: object, status: int) -> None:
    response, data = await ask(method, path, body)
    assert response.status == status
    error = orjson.loads(data)["error"]
    assert error["type"] == "invalid_request_error"
    assert error["message"]
    assert set(error) == {"message", "type", "param", "code"}


@each_of("content", [None, "", 3, [], [{"type": "image_url"}], [{"type": "text", "text": "x"}], {}])
def test_contents_of_all_sorts(content: object) -> None:
    assert "simulated" in answer_to([{"role": "user", "content": content}])
    assert "simulated" in answer_to([{"content": content}])


def test_long_messages_are_quoted_in_part() -> None:
    assert "“" + "x" * 200 + "…”" in answer_to([{"role": "user", "content": "x" * 500}])


def test_no_notes() -> None:
    assert notes_in("plain") == []
    assert "Memory gave me nothing" in answer_to([{"role": "user", "content": "hi"}])


def test_the_block_is_the_compiler_s_own() -> None:
    """Should the compiler write its block otherwise, this is where to follow it."""
    block = render("0badcafe", [memory(1, "lives in Lisbon"), message(2, "call me Ana", role="user")], "they met")
    notes = notes_in(f"{block}\n\nsuggest a restaurant")
    assert len(notes) == 3
    assert notes[0].endswith("they met")
    assert "lives in Lisbon" in notes[1]
    assert notes[2] == "- user: call me Ana"


async def respond(**asked: Any) -> tuple[UpstreamResponse, bytes]:
    return await ask("POST", "/responses", {"model": "any", "input": BLOCK + "suggest a restaurant", **asked})


async def test_the_responses_api_says_it_too() -> None:
    response, data = await respond(instructions="Be kind.")
    whole = responses.DIALECT.whole(data)
    assert whole is not None
    assert (response.status, whole.model, whole.choices[0].finish_reason) == (200, MODEL, "stop")
    assert "“suggest a restaurant”" in (whole.choices[0].content or "")
    assert "2 notes:" in (whole.choices[0].content or "")
    assert whole.usage is not None
    assert whole.usage["prompt_tokens"] == words(BLOCK) + 5
    _, data = await respond(instructions="Be kind.", stream=True)
    streamed = responses.DIALECT.fold(payloads(data))
    assert streamed.choices == whole.choices
    assert data.split(b"\n\n")[-2].startswith(b"event: response.completed\n")
    _, data = await respond(max_output_tokens=1)
    cut = responses.DIALECT.whole(data)
    assert cut is not None
    assert cut.choices[0].finish_reason == "length"


@each_of("asked", [b"{x", b"[]", {}, {"input": 7}, {"input": []}, {"input": "q", "previous_response_id": "resp_1"}])
async def test_what_the_responses_api_cannot_do_here(asked: object) -> None:
    response, data = await ask("POST", "/responses", asked)
    assert response.status == 400
    assert orjson.loads(data)["error"]["type"] == "invalid_request_error"


async def test_without_its_dialect_the_responses_api_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.features.simulated.dialect_of", lambda _method, _path: None)
    response, data = await ask("POST", "/responses", {"input": "Hello."})
    assert (response.status, b"configure a real one" in data) == (404, True)


@each_of("path", ["/chat/completions", *(path.removeprefix("/v1") for path in dialects._FEATURES)])
async def test_it_speaks_each_dialect(path: str) -> None:
    said = [{"role": "user", "content": "hello"}]
    response, data = await ask("POST", path, {"model": "any", "messages": said, "input": "hello", "max_tokens": 9})
    assert response.status == 200, data
    dialect = dialects.dialect_of("POST", f"/v1{path}")
    assert dialect is not None
    assert "simulated" in (dialects.answer_of(data, dialect).choices[0].content or "")
