"""Two people whose client names them badly never share a memory: three dialects, and the four fields that can name a user."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest

from tests.acceptance import test_messages
from tests.support.clients import MODEL, post
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
}  # fmt: skip
"""Values that name nobody, which a header can carry too."""
ONLY_IN_BODIES: dict[str, Any] = {
    "blank": "  ", "yes": True, "no": False, "a list": ["ana"], "an object": {"id": "ana"}, "a huge number": 10**30,
}  # fmt: skip
"""Values that name nobody, which only a body can carry."""


class Sender(NamedTuple):
    """What one request says of its user."""

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
    # The local user knows the secret first: whoever falls back to the local user is found out.
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
