"""`/v1/responses` has memory like chat: OpenAI's SDK against Mneme, over an upstream that keeps what it answered."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI
from pydantic import BaseModel

from tests.support.clients import MODEL, Api, answer_of, ask, error_of, post, sdk
from tests.support.replies import Reply, Rst, Script, Send, Until, reply_events, reply_json
from tests.support.responses import (
    asked_last,
    called,
    event_bytes,
    events_of,
    response_of,
    responses_script,
    said,
    thought,
)
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

PATH = "/v1/responses"
FACT = "My cat is called Minka and she is afraid of thunder."
TOOLS: Any = [
    {
        "type": "function", "name": "weather", "strict": True,
        "parameters": {
            "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
            "additionalProperties": False,
        },
    }
]  # fmt: skip


class Cat(BaseModel):
    name: str
    age: int


def answer(asked: dict[str, Any]) -> Any:
    """Echoes the last line; calls a function where there is one and it has no result yet."""
    last = asked_last(asked)
    if "age" in json.dumps(asked.get("text", {})):
        return '{"name":"Minka","age":3}'
    if asked.get("tools") and "sunny" not in last:
        return [thought("I must look."), called("weather", '{"city":"Lisbon"}', "call_1")]
    return "You said: " + last.rsplit("\n", 1)[-1]


@pytest.fixture(scope="module")
def script() -> Script:
    return responses_script(answer)


@pytest.fixture
def own_upstream() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream(responses_script(answer)) as upstream:
        yield upstream


names = (f"responses-{n}" for n in itertools.count())


@pytest.fixture
def someone() -> str:
    return next(names)


@pytest.fixture
def api(mneme: MnemeServer, someone: str) -> Api:
    return Api(mneme, user=someone)


@pytest.fixture
def client(mneme: MnemeServer, upstream: ScriptedUpstream, someone: str) -> Any:
    with sdk(mneme.url, headers={"X-Mneme-User": someone}) as made:
        yield made


def only_session(api: Api) -> str:
    (session,) = api.sessions()
    return str(session["id"])


def respond(mneme: MnemeServer, who: str, body: dict[str, Any] | bytes, **headers: str) -> httpx.Response:
    data = body if isinstance(body, bytes) else json.dumps({"model": MODEL, **body}).encode()
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return post(mneme, data, headers={"X-Mneme-User": who, **given}, path=PATH)


# --- a turn like any other -------------------------------------------------------------------------------------------------


def test_an_answer_is_a_turn_like_any_other(client: OpenAI, api: Api) -> None:
    raw = client.responses.with_raw_response.create(model=MODEL, input=FACT, instructions="Be kind.")
    made = raw.parse()
    assert made.output_text == f"You said: {FACT}"
    assert raw.headers["x-mneme-status"] == "ok"
    session = raw.headers["x-mneme-session-id"]
    assert api.said(session) == [("user", FACT), ("assistant", f"You said: {FACT}")]
    call = api.call(raw.headers["x-mneme-call-id"])
    assert made.usage is not None
    assert (call["usage"]["prompt_tokens"], call["usage"]["completion_tokens"]) == (
        made.usage.input_tokens,
        made.usage.output_tokens,
    )
    assert call["usage"]["cached_tokens"] == 1
    assert api.raw(raw.headers["x-mneme-call-id"]) == raw.content


def test_memory_goes_into_the_question_and_no_other_byte_changes(
    mneme: MnemeServer, upstream: ScriptedUpstream, client: OpenAI, api: Api, someone: str
) -> None:
    client.responses.create(model=MODEL, input=FACT)
    body = (
        b'{ "x": 1.0, "big":12345678901234567890, "model":"gpt-4o",'
        b'"input" :"What is my cat\\u0027s name? Minka" , "store":true}'
    )
    answered = respond(mneme, someone, body)
    assert answered.status_code == 200
    sent = upstream.requests[-1].body
    before, _, after = body.partition(b"What is my")
    assert sent.startswith(before + b"<mneme-memory ")
    assert sent.endswith(b"What is my" + after)
    assert FACT in json.loads(sent)["input"]
    call = answered.headers["x-mneme-call-id"]
    assert api.request(call) == body
    assert api.request(call, sent=True) == sent
    assert FACT in json.dumps(api.chosen(call))
    items = [{"role": "user", "content": [{"type": "input_text", "text": "And what is Minka afraid of?"}]}]
    respond(mneme, someone, {"input": items})
    block, question = upstream.requests[-1].json()["input"][0]["content"]
    assert block["type"] == "input_text"
    assert block["text"].startswith("<mneme-memory ")
    assert question == items[0]["content"][0]


def test_a_conversation_that_the_client_keeps(client: OpenAI, api: Api, upstream: ScriptedUpstream) -> None:
    transcript: list[Any] = []
    for n in range(3):
        transcript.append({"role": "user", "content": f"Question {n}"})
        transcript += client.responses.create(model=MODEL, input=transcript, store=False).output
    session = only_session(api)
    told = [each for n in range(3) for each in (("user", f"Question {n}"), ("assistant", f"You said: Question {n}"))]
    assert api.said(session) == told


def test_a_conversation_that_the_upstream_keeps(client: OpenAI, api: Api, upstream: ScriptedUpstream) -> None:
    first = client.responses.create(model=MODEL, input="Question 0")
    second = client.responses.create(model=MODEL, input="Question 1", previous_response_id=first.id)
    third = client.responses.create(
        model=MODEL, input=[{"role": "user", "content": "Question 2"}], previous_response_id=second.id, stream=True
    )
    assert [each.type for each in third][-1] == "response.completed"
    told = [each for n in range(3) for each in (("user", f"Question {n}"), ("assistant", f"You said: Question {n}"))]
    assert api.said(only_session(api)) == told
    for request in upstream.requests[-2:]:
        given = request.json()["input"]
        assert isinstance(given, str) or len(given) == 1, "nothing is supplied that the upstream has"
        assert "Question 0" not in json.dumps(given)
    branch = client.responses.with_raw_response.create(model=MODEL, input="Rather this", previous_response_id=first.id)
    found = api.session(branch.headers["x-mneme-session-id"])
    assert found["parent_session_id"] == second_session(api, branch.headers["x-mneme-session-id"])
    # It can go on as a transcript, too.
    whole: list[Any] = [
        {"role": "user", "content": "Question 0"},
        *first.output,
        {"role": "user", "content": "Rather this"},
        *branch.parse().output,
        {"role": "user", "content": "And now all of it"},
    ]
    again = client.responses.with_raw_response.create(model=MODEL, input=whole)
    assert again.headers["x-mneme-session-id"] == branch.headers["x-mneme-session-id"]


def second_session(api: Api, other: str) -> str:
    (session,) = (each for each in api.sessions() if each["id"] != other)
    return str(session["id"])


def test_what_the_upstream_holds_is_not_given_again(client: OpenAI, api: Api, upstream: ScriptedUpstream) -> None:
    client.responses.create(model=MODEL, input=FACT)
    first = client.responses.create(model=MODEL, input="What is my cat afraid of?")
    assert FACT in upstream.requests[-1].json()["input"]
    client.responses.create(model=MODEL, input="My cat? What is it afraid of?", previous_response_id=first.id)
    assert FACT not in upstream.requests[-1].json()["input"], "it stands in the prompt, for the upstream has it"


def test_an_answer_that_mneme_has_not_seen(
    client: OpenAI, upstream: ScriptedUpstream, mneme: MnemeServer, someone: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model=MODEL, input="hi", previous_response_id="resp_elsewhere")
    assert refused.value.code == "previous_response_not_found"
    upstream.script = responses_script(answer)
    direct = httpx.post(upstream.url + "/responses", json={"model": MODEL, "input": "hi"}).json()
    answered = respond(mneme, someone, {"input": "on", "previous_response_id": direct["id"]})
    assert answered.status_code == 200
    assert answered.headers["x-mneme-reason"] == "unknown-response"


def test_a_conversation_by_its_id(mneme: MnemeServer, api: Api, someone: str, upstream: ScriptedUpstream) -> None:
    for n, named in enumerate(["conv_1", {"id": "conv_1"}, "conv_1"]):
        answered = respond(mneme, someone, {"input": f"Question {n}", "conversation": named})
        assert answered.json()["output"][0]["content"][0]["text"] == f"You said: Question {n}"
        assert "Question 0" not in upstream.requests[-1].json()["input"] or n == 0
    assert len(api.said(only_session(api))) == 6


def test_mneme_supplies_the_history_of_its_own_sessions(
    mneme: MnemeServer, someone: str, upstream: ScriptedUpstream
) -> None:
    """A session begun by chat goes on here, and back there."""
    mine = {"X-Mneme-Session": "mine"}
    upstream.script = {
        "/v1/chat/completions": reply_json({"choices": [{"message": {"role": "assistant", "content": "Hello."}}]}),
        PATH: reply_json(response_of({}, [said("Well.")], "resp_x")),
    }
    answer_of(ask(mneme, "Question 0", headers={"X-Mneme-User": someone, **mine}))
    respond(mneme, someone, {"input": "Question 1"}, **mine)
    assert upstream.requests[-1].json()["input"] == [
        {"role": "user", "content": "Question 0"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "Question 1"},
    ]
    ask(mneme, "Question 2", headers={"X-Mneme-User": someone, **mine})
    assert [each["content"] for each in upstream.requests[-1].json()["messages"]] == [
        "Question 0", "Hello.", "Question 1", "Well.", "Question 2",
    ]  # fmt: skip


# --- tools, structured output, streams ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("held", [False, True], ids=["the client keeps it", "the upstream keeps it"])
def test_tools(client: OpenAI, api: Api, held: bool) -> None:
    asked: list[Any] = [{"role": "user", "content": "What is the weather in Lisbon?"}]
    first = client.responses.create(model=MODEL, input=asked, tools=TOOLS)
    call = next(each for each in first.output if each.type == "function_call")
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    if held:
        second = client.responses.create(model=MODEL, input=[result], tools=TOOLS, previous_response_id=first.id)
    else:
        whole: Any = [*asked, *first.output, result]
        second = client.responses.create(model=MODEL, input=whole, tools=TOOLS)
    assert second.output_text == "You said: sunny"
    history = api.history(only_session(api))
    assert [each["role"] for each in history] == ["user", "assistant", "tool", "assistant"]
    assert history[1]["tool_calls"][0]["function"]["name"] == "weather"
    assert history[2]["tool_call_id"] == "call_1"


def test_structured_output(client: OpenAI, upstream: ScriptedUpstream) -> None:
    made = client.responses.parse(model=MODEL, input="Describe the cat.", text_format=Cat)
    assert made.output_parsed == Cat(name="Minka", age=3)
    assert upstream.requests[-1].json()["text"]["format"]["type"] == "json_schema"


def test_a_stream_comes_event_by_event_and_ends_when_it_is_stored(client: OpenAI, api: Api, mneme: MnemeServer) -> None:
    with client.responses.stream(model=MODEL, input="hi", tools=TOOLS) as stream:
        kinds = [each.type for each in stream]
        whole = stream.get_final_response()
    assert kinds[0] == "response.created"
    assert "response.function_call_arguments.delta" in kinds
    assert kinds[-1] == "response.completed"
    assert whole.output[-1].type == "function_call"
    (call,) = api.calls()
    events = api.stream(call["id"])
    assert events.count(b"event: response.completed") == 1
    assert api.call(call["id"])["usage"]["prompt_tokens"] == whole.usage.input_tokens  # type: ignore[union-attr]


def test_the_last_event_waits_for_the_record_and_for_itself(
    mneme: MnemeServer, upstream: ScriptedUpstream, api: Api, someone: str
) -> None:
    """It may come in pieces, and long after it has begun."""
    go_on = threading.Event()
    events = events_of(response_of({}, [said("Hello.")], "resp_slow"))
    last = events[-1]
    whole = reply_events(events[:-1], end=())
    cut = b"%x\r\n" % len(last) + last[:40]
    upstream.script = Reply([*whole.steps, Send(cut), Until(go_on), Send(last[40:] + b"\r\n0\r\n\r\n")])
    body = json.dumps({"model": MODEL, "input": "hi", "stream": True}).encode()
    seen = b""
    headers = {"content-type": "application/json", "X-Mneme-User": someone}
    with mneme.http.stream("POST", PATH, content=body, headers=headers) as answered:
        for chunk in answered.iter_raw():
            seen += chunk
            if seen == b"".join(events[:-1]):
                go_on.set()
            if last in seen:
                assert api.said(only_session(api)) == [("user", "hi"), ("assistant", "Hello.")]
    assert seen == b"".join(events)


# --- errors and endings ------------------------------------------------------------------------------------------------------


def test_errors_come_as_the_upstream_made_them(client: OpenAI, upstream: ScriptedUpstream, api: Api) -> None:
    body = {
        "error": {"message": "Slow down.", "type": "rate_limit_error", "param": None, "code": "rate_limit_exceeded"}
    }
    upstream.script = reply_json(body, "429 Too Many Requests", [("retry-after", "7")])
    with pytest.raises(openai.RateLimitError) as refused:
        client.responses.create(model=MODEL, input="hi")
    assert refused.value.response.headers["retry-after"] == "7"
    assert refused.value.body == body["error"]
    assert api.sessions() == []


@pytest.mark.parametrize(
    ("status", "more", "reason"),
    [
        ("incomplete", {"incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        ("failed", {"error": {"code": "server_error", "message": "The engine died."}}, "interrupted"),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
def test_answers_that_did_not_end_well(
    client: OpenAI, upstream: ScriptedUpstream, api: Api, status: str, more: Any, reason: str, streamed: bool
) -> None:
    response = response_of({}, [said("Half an ans")], "resp_half", status, **more)
    upstream.script = reply_events(events_of(response)) if streamed else reply_json(response)
    made = client.responses.create(model=MODEL, input="hi", stream=streamed)
    if streamed:
        assert [each.type for each in made][-1] == f"response.{status}"  # type: ignore[union-attr]
    last = api.history(only_session(api))[-1]
    assert (last["content"], last["finish_reason"]) == ("Half an ans", reason)
    (call,) = api.calls()
    assert api.call(call["id"])["outcome"] == "complete"


def test_a_stream_that_breaks_off_is_kept_as_far_as_it_came(
    client: OpenAI, upstream: ScriptedUpstream, api: Api
) -> None:
    events = events_of(response_of({}, [said("Hello there.")], "resp_cut"), last=False)
    upstream.script = reply_events(events[:5], end=[Rst()])
    with pytest.raises((openai.APIError, httpx.HTTPError, Exception)):
        list(client.responses.create(model=MODEL, input="hi", stream=True))
    last = api.history(only_session(api))[-1]
    assert last["role"] == "assistant"
    assert "Hello there.".startswith(last["content"])
    assert last["finish_reason"] == "interrupted"


def test_an_error_event_in_the_stream(client: OpenAI, upstream: ScriptedUpstream, api: Api) -> None:
    begun = events_of(response_of({}, [], "resp_err"), last=False)
    event = {"type": "error", "code": "server_error", "message": "dead", "param": None, "sequence_number": 2}
    upstream.script = reply_events([*begun, event_bytes(event)])
    assert [each.type for each in client.responses.create(model=MODEL, input="hi", stream=True)][-1] == "error"
    (call,) = api.calls()
    assert "dead" in api.call(call["id"])["error"]


# --- without memory ----------------------------------------------------------------------------------------------------------


def test_what_runs_in_the_background_passes_through(
    mneme: MnemeServer, upstream: ScriptedUpstream, someone: str, api: Api
) -> None:
    queued = response_of({}, [], "resp_bg", "queued")
    upstream.script = {PATH: reply_json(queued), PATH + "/resp_bg": reply_json(response_of({}, [said("x")], "resp_bg"))}
    body = b'{"model":"gpt-4o","background" : true,"input":"hi"}'
    answered = respond(mneme, someone, body)
    assert answered.json() == queued
    assert (answered.headers["x-mneme-status"], answered.headers["x-mneme-reason"]) == ("bypass", "background")
    assert upstream.requests[-1].body == body
    assert api.sessions() == []
    found = mneme.http.get(PATH + "/resp_bg", headers={"X-Mneme-User": someone})
    assert found.json()["status"] == "completed"
    assert len(api.calls()) == 2


@pytest.mark.parametrize(
    "body",
    [b"{}", b"[]", b"nonsense", b"", b'{"input":[1,"x"]}', b'{"input":{}}', b'{"input":[{"type":"item_reference","id":"x"}]}',
     b'{"input":[{"role":"user","content":' + b"[" * 500 + b"]" * 500 + b"}]}"],
)  # fmt: skip
def test_what_mneme_does_not_understand_is_the_upstreams_to_judge(
    mneme: MnemeServer, upstream: ScriptedUpstream, someone: str, body: bytes
) -> None:
    said_no = {"error": {"message": "No.", "type": "invalid_request_error", "param": "input", "code": None}}
    upstream.script = reply_json(said_no, "400 Bad Request")
    answered = respond(mneme, someone, body)
    assert answered.status_code == 400
    assert answered.json() == said_no
    assert upstream.requests[-1].body == body


def test_memory_can_be_left_out(mneme: MnemeServer, upstream: ScriptedUpstream, someone: str, api: Api) -> None:
    body = json.dumps({"model": MODEL, "input": "hi"}).encode()
    answered = respond(mneme, someone, body, X_Mneme_Memory="off")
    assert answered.headers["x-mneme-reason"] == "memory-off"
    assert upstream.requests[-1].body == body
    assert api.sessions() == []
    assert error_of(respond(mneme, someone, body, X_Mneme_Memory="perhaps"))["param"].lower() == "x-mneme-memory"


def test_a_repeated_key_adds_no_turn_and_sends_the_same_bytes(
    mneme: MnemeServer, upstream: ScriptedUpstream, someone: str, api: Api
) -> None:
    for _ in range(2):
        respond(mneme, someone, {"input": "hi"}, Idempotency_Key="k1")
    assert upstream.requests[-1].body == upstream.requests[-2].body
    assert len(api.said(only_session(api))) == 2


def test_what_is_not_to_be_stored_is_not(
    own_server: Callable[..., MnemeServer], own_upstream: ScriptedUpstream
) -> None:
    """And the conversation is one all the same."""
    paths = [f"$.{name}" for name in ("input", "output", "response.output", "item", "delta", "text", "part")]
    server = own_server(own_upstream.url, REDACT_PATHS=json.dumps(paths))
    transcript: list[Any] = []
    with sdk(server.url, headers={"X-Mneme-User": "ana"}) as client:
        for n in range(2):
            transcript.append({"role": "user", "content": f"secret question {n}"})
            with client.responses.stream(model=MODEL, input=transcript) as events:
                transcript += events.get_final_response().output
        last = client.responses.create(model=MODEL, input="secret last", previous_response_id="resp_2").output_text
    assert last == "You said: secret last"
    api = Api(server, user="ana")
    history = api.history(only_session(api))
    assert [each["role"] for each in history] == ["user", "assistant"] * 3
    assert "secret" not in json.dumps(history)
    for call in api.calls():
        assert b"secret" not in api.request(call["id"]) + api.raw(call["id"])
