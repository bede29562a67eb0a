"""Two users whose client sends no valid name never share a memory, in three dialects and the four fields for a user."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
import pytest

from tests.acceptance import test_messages
from tests.support.clients import MODEL, error_of, post, sdk
from tests.support.replies import Recorded, Reply, Script, chat_script
from tests.support.responses import responses_script
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

FACT = "My cat is called Tosca."
QUESTION = "What is my cat's name?"
SECRET = b"Tosca"

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
DIALECTS = (CHAT, RESPONSES, MESSAGES)
FIELDS = ("X-Mneme-User", "user", "safety_identifier", "metadata.user_id")
LONG = "u" * 513

NOBODY: dict[str, Any] = {
    "empty": "", "no-break and zero-width spaces": "\u00a0\u200b", "too long": LONG, "a slot": "{{user_id}}",
    "a shell's slot": "${USER_ID}", "a tag": "<user_id>", "undefined": "undefined", "null as text": "null",
    "None as text": "None", "an object as text": "[object Object]", "a prefix without its id": "user-undefined",
    "a missing value behind a prefix": "acme:null", "an empty end": "user_", "an expression": "req.user.id",
    "a slot with a filter": "{user|upper}", "an open slot": "{{user", "a slot as HTML": "&lt;user&gt;",
    "half a character": "ana \ufffd", "an unknown person": "anonymous", "a guest behind a prefix": "acme:guest",
    "a JSON object as text": '{"id": "7"}',
}  # fmt: skip
"""Values that name nobody, which a header can carry too."""
ONLY_IN_BODIES: dict[str, Any] = {
    "blank": "  ", "U+0000": "a\0b", "yes": True, "no": False, "a list": ["ana"], "an object": {"id": "ana"},
    "a huge number": 10**30,
}  # fmt: skip
"""Values that name nobody, which only a body can carry."""


class Sender(NamedTuple):
    """The part of a request that names its user."""

    headers: dict[str, str]
    fields: dict[str, Any]


def name_user(field: str, value: Any) -> Sender:
    if field == "X-Mneme-User":
        return Sender({field: value}, {})
    if field == "metadata.user_id":
        return Sender({}, {"metadata": {"user_id": value}})
    return Sender({}, {field: value})


def send(mneme: MnemeServer, dialect: str, text: str, sender: Sender = Sender({}, {})) -> httpx.Response:  # noqa: B008
    message = [{"role": "user", "content": text}]
    body: dict[str, Any] = {"model": MODEL, **({"input": text} if dialect == RESPONSES else {"messages": message})}
    if dialect == MESSAGES:
        body["max_tokens"] = 50
    raw: Any = {name: value.encode() for name, value in sender.headers.items()}
    return post(mneme, json.dumps(body | sender.fields).encode(), headers=raw, path=dialect)


def cases() -> Iterator[tuple[str, str, Any]]:
    """(what it is, the field, a value that names nobody)"""
    for field in FIELDS:
        yield from ((kind, field, value) for kind, value in NOBODY.items())
        if field != "X-Mneme-User":
            yield from ((kind, field, value) for kind, value in ONLY_IN_BODIES.items())


@pytest.fixture(scope="module")
def script() -> Script:
    scripts: dict[str, Any] = {
        CHAT: chat_script(lambda asked: "All right."),
        RESPONSES: responses_script(lambda asked: "All right."),
        MESSAGES: test_messages.script,
    }

    def answer(request: Recorded) -> Reply:
        reply: Reply = scripts.get(request.path, scripts[CHAT])(request)
        return reply

    return answer


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_value_that_names_nobody_never_shares_a_memory(
    mneme: MnemeServer, upstream: ScriptedUpstream, dialect: str
) -> None:
    # The local user has the secret first, so that a fallback to the local user shows.
    send(mneme, dialect, FACT)
    send(mneme, dialect, QUESTION)
    assert SECRET in upstream.requests[-1].body, "the one person at this machine is remembered"
    faults: dict[tuple[str, str], str] = {}
    for kind, field, value in cases():
        sender = name_user(field, value)
        for text in (QUESTION, FACT, QUESTION):
            answer = send(mneme, dialect, text, sender)
            if answer.status_code != 200:
                faults[field, kind] = f"refused: {answer.status_code}"
            elif text == QUESTION and SECRET in upstream.requests[-1].body:
                faults[field, kind] = "told to somebody else"
            elif answer.headers.get("x-mneme-reason") != "no-user":
                faults.setdefault((field, kind), f"reason: {answer.headers.get('x-mneme-reason')}")
    assert not faults, "\n".join(f"{field} {kind}: {fault}" for (field, kind), fault in faults.items())


@pytest.mark.parametrize("dialect", DIALECTS)
def test_two_people_are_two_in_every_field_and_a_number_is_its_text(
    mneme: MnemeServer, upstream: ScriptedUpstream, dialect: str
) -> None:
    people: list[tuple[str, Any, Any]] = [(field, f"ana {dialect}", f"ben {dialect}") for field in FIELDS]
    people += [(field, 7, 8) for field in FIELDS[1:]] + [(field, 7.5, 8.5) for field in FIELDS[1:]]
    for n, (field, ana, ben) in enumerate(people):
        word = f"Tosca{'abcdefghijklmnop'[n]}"
        send(mneme, dialect, f"My cat is called {word}.", name_user(field, ana))
        for sender, expected in ((name_user(field, ben), False), (name_user(field, ana), True)):
            answer = send(mneme, dialect, QUESTION, sender)
            assert answer.status_code == 200, answer.text
            assert (word.encode() in upstream.requests[-1].body) is expected, (field, ana, ben, expected)
            assert "x-mneme-reason" not in answer.headers
    send(mneme, dialect, QUESTION, Sender({"X-Mneme-User": "7"}, {}))
    assert b"Tosca" in upstream.requests[-1].body, "a number in a body, and its text in a header, are one user"


def test_a_client_that_sends_empty_headers_is_served(mneme: MnemeServer, upstream: ScriptedUpstream) -> None:
    """OpenAI's SDK, whose default headers are placeholders that nothing has filled."""
    names = ("User", "Session", "Space", "Memory", "Capture", "History", "Paging", "Price", "Profile", "Label", "Key")
    headers = {f"X-Mneme-{name}": "" for name in names}
    with sdk(mneme.url, headers=headers) as client:
        message: Any = [{"role": "user", "content": "My dog is called Rex."}]
        for text in ("My dog is called Rex.", "What is my dog's name?"):
            message = [{"role": "user", "content": text}]
            nameless = client.chat.completions.with_raw_response.create(model=MODEL, messages=message)
            assert nameless.headers["x-mneme-reason"] == "no-user"
        assert b"Rex" not in upstream.requests[-1].body
        for text in ("My dog is called Rex.", "What is my dog's name?"):
            message = [{"role": "user", "content": text}]
            named = client.chat.completions.with_raw_response.create(model=MODEL, messages=message, user="dora")
            assert (named.headers["x-mneme-status"], named.headers.get("x-mneme-reason")) == ("ok", None)
        assert b"Rex" in upstream.requests[-1].body, "the next source counts"
        client.models.list()
        stream = client.chat.completions.create(model=MODEL, messages=message, user="dora", stream=True)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices) == "All right."
    assert (
        len([line for line in mneme.logs if line.get("field") == "X-Mneme-User" and line.get("fault") == "blank"]) == 1
    )


def test_true_and_false_switch_memory(mneme: MnemeServer, upstream: ScriptedUpstream) -> None:
    sender = Sender({"X-Mneme-User": "tess", "X-Mneme-Memory": "true"}, {})
    send(mneme, CHAT, FACT, sender)
    assert send(mneme, CHAT, QUESTION, sender).headers["x-mneme-status"] == "ok"
    assert SECRET in upstream.requests[-1].body
    for value in ("false", "0"):
        answer = send(mneme, CHAT, QUESTION, Sender({"X-Mneme-User": "tess", "X-Mneme-Memory": value}, {}))
        assert answer.headers["x-mneme-reason"] == "memory-off"
        assert SECRET not in upstream.requests[-1].body


def test_a_placeholder_session_joins_no_two_people(mneme: MnemeServer, upstream: ScriptedUpstream) -> None:
    for value in ("", "undefined", "{{conversation_id}}", "s" * 513):
        sender = Sender({"X-Mneme-User": "null", "X-Mneme-Session": value}, {})
        first, second = (send(mneme, CHAT, text, sender) for text in (FACT, QUESTION))
        assert first.headers["x-mneme-session-id"] != second.headers["x-mneme-session-id"], value
        assert SECRET not in upstream.requests[-1].body


@pytest.mark.parametrize("value", ["", " ", "undefined", "{{user}}", "u" * 513, "\u200b"])
def test_the_api_refuses_what_names_nobody_and_names_the_field(mneme: MnemeServer, value: str) -> None:
    asked = [
        mneme.http.post("/api/v1/memories", json={"kind": "fact", "text": FACT, "user": value}),
        mneme.http.post("/api/v1/chat", json={"message": "hi", "user": value}),
        mneme.http.post("/api/v1/users", json={"id": value}),
        mneme.http.post("/api/v1/sessions", json={"user": value}),
        mneme.http.post(
            "/api/v1/import",
            content=json.dumps({"session": "s", "user": value, "role": "user", "content": FACT}),
            headers={"content-type": "application/x-ndjson"},
        ),
    ]
    for answer in asked:
        assert answer.status_code == 400, answer.text
        assert "send your own name of the user" in answer.text
        param = answer.json()["error"]["param"]
        assert param in ("user", "id") or answer.json()["errors"][0]["error"].startswith("user: ")
    if value.strip():
        header: Any = {"x-mneme-user": value.encode()}
        refused = mneme.http.post("/api/v1/memories", json={"kind": "fact", "text": FACT}, headers=header)
        assert (refused.status_code, error_of(refused)["param"]) == (400, "X-Mneme-User")


@pytest.mark.parametrize("name", ["null", "{{u}}", "acme:null", "<user>", "_"])
def test_reads_and_deletions_take_a_name_that_is_refused_now(mneme: MnemeServer, name: str) -> None:
    header: Any = {"x-mneme-user": name.encode()}
    read = [
        mneme.http.get("/api/v1/memories", params={"user": name}),
        mneme.http.get("/api/v1/sessions", headers=header),
        mneme.http.post("/api/v1/memories/search", json={"query": QUESTION, "user": name}),
        mneme.http.post("/api/v1/context", json={"query": QUESTION, "user": name}, headers=header),
    ]
    assert [answer.status_code for answer in read] == [200] * len(read), [answer.text for answer in read]
    erased = mneme.http.delete(f"/api/v1/users/{quote(name, safe='')}", headers=header)
    assert (erased.status_code, error_of(erased)["type"]) == (404, "not_found_error")
    assert mneme.http.get("/api/v1/memories", params={"user": "u" * 513}).status_code == 400
    assert mneme.http.get("/api/v1/memories", headers={"x-mneme-user": ""}).status_code == 400


def test_the_api_takes_a_number_for_its_text(mneme: MnemeServer) -> None:
    for number, name in ((7, "7"), (7.0, "7"), (-3, "-3"), (7.5, "7.5")):
        text = f"My cat is called Number {number}."
        made = mneme.http.post("/api/v1/memories", json={"kind": "fact", "text": text, "user": number})
        assert made.status_code in (200, 201), made.text
        listed = mneme.http.get("/api/v1/memories", params={"user": name}).json()["memories"]
        assert text in [memory["text"] for memory in listed]
        assert mneme.http.post("/api/v1/memories/search", json={"query": QUESTION, "user": number}).status_code == 200
    for value in (True, 2**70, ["ana"], {"id": "ana"}):
        for path, body in (("", {"kind": "fact", "text": FACT}), ("/search", {"query": QUESTION})):
            refused = mneme.http.post(f"/api/v1/memories{path}", json=body | {"user": value})
            assert (refused.status_code, error_of(refused)["param"]) == (400, "user"), refused.text
            assert "send your own name of the user" in error_of(refused)["message"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_space_does_not_stop_a_client_whose_user_is_rejected(mneme: MnemeServer, dialect: str) -> None:
    for field in FIELDS:
        sender = name_user(field, "{{u}}")
        answer = send(mneme, dialect, QUESTION, Sender(sender.headers | {"X-Mneme-Space": "team"}, sender.fields))
        assert (answer.status_code, answer.headers["x-mneme-reason"]) == (200, "no-user"), answer.text
        assert "x-mneme-space" not in answer.headers
