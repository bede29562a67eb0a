"""What the settings say is not to be stored: it reaches the upstream and the client, and nobody else."""

from __future__ import annotations

import json

import pytest

from tests.support.clients import Api, answer_of, ask, assistant, call_of, post, session_of, user
from tests.support.dump import dump_of, stands_in
from tests.support.replies import Recorded, Reply, Script, chat_script, reply_json
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

SSN, IMAGE, HEADER, SPOKEN, DELTA = "ssnqx0781", "imageqx0782", "headerqx0783", "spokenqx0784", "deltaqx0785"
PATHS = [
    "$.metadata.ssn",
    "$.messages[*].content[*].image_url.url",
    "$.messages[*].tool_call_id",
    "$.choices[*].message.content",
    "$.choices[*].delta.content",
    "$.input",
]
KEY = "keyqx0786"


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    return {"REDACT_PATHS": json.dumps(PATHS), "REDACT_HEADERS": '["x-patient"]'}


@pytest.fixture(scope="module")
def script() -> Script:
    chat = chat_script(lambda asked: [SPOKEN, DELTA] if asked.get("stream") else f"{SPOKEN} said.")

    def answer(request: Recorded) -> Reply:
        try:
            request.json()
        except ValueError:
            return reply_json({"error": {"message": "no JSON", "type": "x"}}, "400 Bad Request")
        return chat(request)  # type: ignore[operator]  # this kind of script is a function

    return answer


def seen(text: str) -> dict[str, object]:
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{IMAGE}"}}
    return {"role": "user", "content": [{"type": "text", "text": text}, picture]}


def chats(upstream: ScriptedUpstream) -> list[bytes]:
    return [each.body for each in upstream.requests if each.path == "/v1/chat/completions"]


async def test_it_goes_to_the_upstream_and_to_the_client_and_into_no_dump_and_no_log(
    mneme: MnemeServer, upstream: ScriptedUpstream, api: Api, module_database: str
) -> None:
    secret = {"x-patient": HEADER, "authorization": f"Bearer {KEY}"}
    metadata = {"ssn": SSN, "other": "kept"}
    first = [seen("What is this?")]
    answer = ask(mneme, first, headers=secret, metadata=metadata)
    assert SPOKEN in answer_of(answer)
    assert all(word.encode() in chats(upstream)[0] for word in (SSN, IMAGE))
    assert upstream.requests[-1].header("x-patient") == HEADER
    more = [*first, assistant(answer_of(answer)), user("And now?")]
    streamed = ask(mneme, more, headers=secret, metadata=metadata, stream=True)
    assert SPOKEN in streamed.text
    assert DELTA in streamed.text
    assert session_of(streamed) == session_of(answer), "it is recognised by what was said"
    post(mneme, json.dumps({"input": SSN, "model": "e"}).encode(), headers=secret, path="/v1/embeddings")
    post(mneme, b'{"metadata": {"ssn": "' + SSN.encode() + b'"', headers=secret)
    ask(mneme, first, headers=secret | {"x-mneme-memory": "off"}, metadata=metadata)
    ask(mneme, [seen("Not captured.")], headers=secret | {"x-mneme-capture": "off"}, metadata=metadata)
    dump = await dump_of(module_database)
    # (What was SPOKEN came back in the client's next request, where no path names it.)
    assert [word for word in (SSN, IMAGE, HEADER, DELTA, KEY) if stands_in(word, dump)] == []
    assert [word for word in (SSN, IMAGE, HEADER, SPOKEN, DELTA, KEY) if word in mneme.log_text()] == []
    assert b"what is this?" in dump
    call = api.call(call_of(answer))
    assert call["metadata"]["redacted"] == ["request", "response"]
    assert ["x-patient", "***"] in call["request_headers"]
    kept = json.loads(api.request(call_of(answer)))
    assert kept["metadata"] == {"ssn": "***", "other": "kept"}
    assert kept["messages"][0]["content"][1] == {"type": "image_url", "image_url": {"url": "***"}}
    assert json.loads(api.raw(call_of(answer)))["choices"][0]["message"]["content"] == "***"
    events = api.events(call_of(streamed))
    assert "".join(each["data"] for each in events) == api.raw(call_of(streamed)).decode()
    assert [role for role, _ in api.said(session_of(answer))] == ["user", "assistant", "user", "assistant"]


def test_a_repeated_key_is_compiled_anew_and_adds_no_turn(
    mneme: MnemeServer, upstream: ScriptedUpstream, api: Api
) -> None:
    """The stored body lacks something: it must never go upstream."""
    headers = {"idempotency-key": "k-1", "x-mneme-session": "repeated"}
    for _ in range(2):
        assert answer_of(ask(mneme, [seen("Again?")], headers=headers, metadata={"ssn": SSN}))
    one, two = chats(upstream)
    assert SSN.encode() in two
    assert IMAGE.encode() in two
    assert b"***" not in one + two
    assert len(api.said("repeated")) == 2


def test_requests_without_any_of_it_are_stored_to_the_byte(
    mneme: MnemeServer, upstream: ScriptedUpstream, api: Api
) -> None:
    body = b'{ "model":"gpt-4o","messages":[ {"role":"user","content":"plain"} ], "temperature":1.0 }'
    answer = post(mneme, body)
    assert api.request(call_of(answer)) == body
    assert api.call(call_of(answer))["metadata"] == {"redacted": ["response"]}


def test_a_wrong_path_is_said_at_the_start(mneme: MnemeServer) -> None:
    mneme._environment["MNEME_REDACT_PATHS"], before = '["metadata.ssn"]', mneme._environment["MNEME_REDACT_PATHS"]
    try:
        done = mneme.command("serve", "--port", "0")
    finally:
        mneme._environment["MNEME_REDACT_PATHS"] = before
    assert done.returncode == 1
    assert "'metadata.ssn' is no JSON path" in done.stderr
