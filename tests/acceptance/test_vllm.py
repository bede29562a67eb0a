"""A real vLLM behind Mneme, asked by the OpenAI SDK. Set MNEME_TEST_VLLM_URL to its base URL, such as
http://127.0.0.1:8101/v1; it serves a tiny model named `tiny`, whose words are gibberish and whose protocol is not."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from tests.support.clients import Api
from tests.support.server import MnemeServer

URL = os.environ.get("MNEME_TEST_VLLM_URL", "")
pytestmark = [pytest.mark.heavy, pytest.mark.skipif(not URL, reason="MNEME_TEST_VLLM_URL names no vLLM")]

MODEL = "tiny"
HELLO: list[Any] = [{"role": "user", "content": "Say hello to my dog Rex."}]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, module_database: str) -> Iterator[MnemeServer]:
    with MnemeServer(tmp_path_factory.mktemp("vllm"), database=module_database, upstream=URL) as server:
        yield server


@pytest.fixture(scope="module")
def misled(tmp_path_factory: pytest.TempPathFactory, module_database: str) -> Iterator[MnemeServer]:
    """A server that believes in a window far larger than the real one: what it adds is refused."""
    settings = {"MODEL_WINDOWS": json.dumps({MODEL: 100_000})}
    folder = tmp_path_factory.mktemp("misled")
    with MnemeServer(folder, database=module_database, upstream=URL, settings=settings) as server:
        yield server


@pytest.fixture
def client(served: MnemeServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=served.url, api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture
def direct() -> Iterator[OpenAI]:
    with OpenAI(base_url=URL, api_key="none", max_retries=0) as made:
        yield made


def test_chat_is_answered_and_kept(client: OpenAI, served: MnemeServer) -> None:
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=HELLO, max_tokens=8, user="vllm")
    answer = raw.parse()
    assert answer.choices[0].message.content is not None
    assert answer.usage is not None
    api = Api(served, user="vllm")
    assert api.raw(raw.headers["x-mneme-call-id"]) == raw.content
    assert raw.headers["x-mneme-status"] == "ok"


def test_the_same_seed_gives_the_same_answer_with_and_without_mneme(client: OpenAI, direct: OpenAI) -> None:
    asked: dict[str, Any] = {"model": MODEL, "messages": HELLO, "max_tokens": 12, "temperature": 0.0, "seed": 7}
    through = client.chat.completions.create(**asked, extra_headers={"X-Mneme-Memory": "off"})
    alone = direct.chat.completions.create(**asked)
    assert through.choices[0].message.content == alone.choices[0].message.content
    assert through.usage == alone.usage


def test_a_stream_comes_in_pieces_with_usage(client: OpenAI) -> None:
    pieces = list(
        client.chat.completions.create(
            model=MODEL, messages=HELLO, max_tokens=16, stream=True, stream_options={"include_usage": True}
        )
    )
    assert len(pieces) > 3
    assert pieces[-1].usage is not None
    assert pieces[-1].choices == []


def test_tools_are_called_as_without_mneme(client: OpenAI, direct: OpenAI) -> None:
    """Random weights may end no call within any number of tokens: then neither way has one."""
    tool: Any = {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {"type": "object", "properties": {"city": {"enum": ["Lisbon"]}}, "required": ["city"]},
        },
    }
    asked: dict[str, Any] = {
        "model": MODEL, "messages": HELLO, "tools": [tool], "max_tokens": 64, "temperature": 0.0, "seed": 7,
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
    }  # fmt: skip
    through, alone = (
        way.chat.completions.create(**asked, extra_headers={"X-Mneme-Memory": "off"}).choices[0]
        for way in (client, direct)
    )
    assert through.finish_reason == alone.finish_reason
    assert through.message.content == alone.message.content
    assert [each.function for each in _calls(through)] == [each.function for each in _calls(alone)]
    assert "weather" in f"{through.message.content} {_calls(through)}"


def _calls(choice: Any) -> list[Any]:
    return choice.message.tool_calls or []


def test_logprobs_and_several_choices(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=4, n=2, logprobs=True, top_logprobs=2
    )
    assert [each.index for each in answer.choices] == [0, 1]
    for choice in answer.choices:
        assert choice.logprobs is not None
        assert choice.logprobs.content


def test_guided_json_holds(client: OpenAI) -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    schema |= {"additionalProperties": False}
    answer = client.chat.completions.create(
        model=MODEL,
        messages=HELLO,
        max_tokens=32,
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}},
    )
    assert isinstance(json.loads(answer.choices[0].message.content or "")["ok"], bool)
    unknown = client.chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=32, extra_body={"structured_outputs": {"choice": ["yes", "no"]}}
    )
    assert unknown.choices[0].message.content in ("yes", "no")


def test_an_over_long_prompt_is_refused_by_vllm_itself(client: OpenAI, direct: OpenAI) -> None:
    long: list[Any] = [{"role": "user", "content": "word " * 4000}]
    with pytest.raises(openai.BadRequestError) as through:
        client.chat.completions.create(model=MODEL, messages=long, max_tokens=8)
    with pytest.raises(openai.BadRequestError) as alone:
        direct.chat.completions.create(model=MODEL, messages=long, max_tokens=8)
    assert through.value.body == alone.value.body


TOLD: list[Any] = [{"role": "user", "content": "I am vegetarian, and I live in Lisbon, near the old lighthouse."}]


def longest(direct: OpenAI) -> list[Any]:
    """A prompt that just fits the window by itself, and asks memory."""
    for words in range(1100, 100, -20):
        messages = [{"role": "user", "content": "alpha " * words + "Where do I live, and what do I not eat?"}]
        try:
            direct.chat.completions.create(model=MODEL, max_tokens=8, messages=messages)  # type: ignore[arg-type]  # is one
        except openai.BadRequestError:
            continue
        return messages
    raise AssertionError("nothing fits")


def test_what_memory_adds_never_costs_the_answer(client: OpenAI, direct: OpenAI) -> None:
    """The window is learned from vLLM; a prompt that nearly fills it gets nothing added, or is sent again as written."""
    client.chat.completions.create(model=MODEL, user="full", max_tokens=4, messages=TOLD)
    raw = client.chat.completions.with_raw_response.create(
        model=MODEL, user="full", max_tokens=8, messages=longest(direct)
    )
    assert raw.status_code == 200
    assert raw.headers["x-mneme-status"] in ("ok", "degraded")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_prompt_too_long_for_what_was_added_is_sent_again_as_written(
    misled: MnemeServer, direct: OpenAI, stream: bool
) -> None:
    who = f"misled {stream}"
    with OpenAI(base_url=misled.url, api_key="none", max_retries=0) as client:
        client.chat.completions.create(model=MODEL, user=who, max_tokens=4, messages=TOLD)
        asked: Any = {"model": MODEL, "user": who, "max_tokens": 8, "messages": longest(direct), "stream": stream}
        raw = client.chat.completions.with_raw_response.create(**asked)
        if stream:
            assert all(each.id for each in raw.parse())
    assert raw.status_code == 200
    assert (raw.headers["x-mneme-status"], raw.headers["x-mneme-reason"]) == ("degraded", "too-long")
    call = raw.headers["x-mneme-call-id"]
    api = Api(misled, user=who)
    assert json.loads(api.request(call, sent=True))["messages"] == asked["messages"]
    assert [each["role"] for each in api.history(raw.headers["x-mneme-session-id"])] == ["user", "assistant"]


def test_a_stream_with_several_choices_logprobs_and_guided_json_is_kept_to_the_byte(
    client: OpenAI, served: MnemeServer
) -> None:
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}},
        "required": ["ok"],
        "additionalProperties": False,
    }
    with client.chat.completions.with_streaming_response.create(
        model=MODEL, messages=HELLO, user="stream", max_tokens=32, n=2, logprobs=True, top_logprobs=1, stream=True,
        stream_options={"include_usage": True}, extra_body={"structured_outputs": {"json": schema}},
    ) as answer:  # fmt: skip
        body = b"".join(answer.iter_bytes())
        call = answer.headers["x-mneme-call-id"]
    api = Api(served, user="stream")
    assert body.endswith(b"data: [DONE]\n\n")
    assert api.stream(call) == api.raw(call) == body
    history = api.history(api.call(call)["session_id"])
    assert [each["sibling"] for each in history] == [0, 0, 1]
    for each in history[1:]:
        assert isinstance(json.loads(each["content"])["ok"], bool)


def test_an_unknown_model_is_vllms_own_404(client: OpenAI, direct: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as through:
        client.chat.completions.create(model="no-such-model", messages=HELLO)
    with pytest.raises(openai.NotFoundError) as alone:
        direct.chat.completions.create(model="no-such-model", messages=HELLO)
    assert through.value.body == alone.value.body


# --- /v1/messages, which vLLM serves, too ---------------------------------------------------------------------------------

ANTHROPIC = {"anthropic-version": "2023-06-01"}


def message(base: str, user: str = "vllm-messages", **more: Any) -> httpx.Response:
    """`base`: with the /v1."""
    body = {"model": MODEL, "max_tokens": 12, "temperature": 0.0, "messages": HELLO, **more}
    return httpx.post(f"{base}/messages", json=body, headers={**ANTHROPIC, "X-Mneme-User": user}, timeout=60.0)


def test_messages_are_answered_and_kept(served: MnemeServer) -> None:
    answer = message(served.url)
    assert (answer.status_code, answer.headers["x-mneme-status"]) == (200, "ok")
    assert answer.json()["type"] == "message"
    api = Api(served, user="vllm-messages")
    assert api.raw(answer.headers["x-mneme-call-id"]) == answer.content
    usage = api.call(answer.headers["x-mneme-call-id"])["usage"]
    told = answer.json()["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (told["input_tokens"], told["output_tokens"])
    (session,) = api.sessions()
    assert api.said(session["id"])[0] == ("user", HELLO[0]["content"])


def test_a_message_says_the_same_with_and_without_mneme(served: MnemeServer) -> None:
    alone, through = message(URL), message(served.url, user="vllm-first")  # nothing is known yet
    assert alone.json()["content"] == through.json()["content"]
    assert alone.json()["usage"] == through.json()["usage"]


def test_a_message_streams_with_its_events_and_is_kept(served: MnemeServer) -> None:
    answer = message(served.url, user="vllm-stream", stream=True)
    kinds = [line.removeprefix("event: ") for line in answer.text.splitlines() if line.startswith("event: ")]
    assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")
    assert kinds.count("content_block_delta") > 3
    api = Api(served, user="vllm-stream")
    assert api.raw(answer.headers["x-mneme-call-id"]) == answer.content
    assert api.call(answer.headers["x-mneme-call-id"])["outcome"] == "complete"


def test_memory_reaches_vllm_in_its_blocks(served: MnemeServer) -> None:
    message(served.url, user="vllm-blocks", messages=[{"role": "user", "content": "My dog is called Rex."}])
    marked = {"type": "text", "text": "What is my dog called?", "cache_control": {"type": "ephemeral"}}
    answer = message(served.url, user="vllm-blocks", messages=[{"role": "user", "content": [marked]}])
    assert (answer.status_code, answer.headers["x-mneme-status"]) == (200, "ok")
    sent = json.loads(Api(served, user="vllm-blocks").request(answer.headers["x-mneme-call-id"], sent=True))
    *added, last = sent["messages"][-1]["content"]
    assert last == marked
    assert "Rex" in json.dumps(added)


def test_tokens_are_counted_by_vllm_itself(served: MnemeServer) -> None:
    body = {"model": MODEL, "messages": HELLO}
    through, alone = (
        httpx.post(f"{base}/messages/count_tokens", json=body, headers=ANTHROPIC) for base in (served.url, URL)
    )
    assert (through.status_code, through.json()) == (alone.status_code, alone.json())


def test_vllm_refuses_a_message_in_its_own_words(served: MnemeServer) -> None:
    long = [{"role": "user", "content": "word " * 4000}]
    through, alone = message(served.url, user="vllm-long", messages=long), message(URL, messages=long)
    assert through.status_code == alone.status_code >= 400
    assert through.json() == alone.json()
