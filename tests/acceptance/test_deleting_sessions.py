"""Deleting sessions through the real server: whose they are, what goes with them, and what comes of them afterwards."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.clients import Api, ask, assistant, prompt_of, session_of, user
from tests.support.ledger import CHAT
from tests.support.replies import Recorded, Reply, Script, Until, chat_script, reply_events
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer
from tests.support.sockets import DEADLINE_S

SAID = "My parrot is called Barnabyqx."


WORKER = True


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    return {"AUTH": "keys"}


@pytest.fixture(scope="module")
def script() -> Script:
    return chat_script(lambda asked: "Noted.")


@pytest.fixture(scope="module")
def key(mneme: MnemeServer) -> str:
    return mneme.create_key("app", "--tenant", "one")


class Caller:
    """A user of an application, at the proxy and at the API."""

    def __init__(self, server: MnemeServer, key: str, name: str) -> None:
        self.api = Api(server, user=name, key=key)
        self._server = server
        self._headers = {"authorization": f"Bearer {key}", "x-mneme-user": name}

    def ask(self, talk: list[dict[str, object]] | str, **headers: str) -> str:
        """The session in which it was answered."""
        answer = ask(
            self._server,
            talk,
            headers=self._headers | {name.replace("_", "-"): value for name, value in headers.items()},
        )
        assert answer.headers["x-mneme-status"] == "ok"
        return session_of(answer)

    def stream(self, talk: list[dict[str, object]]) -> str:
        return ask(self._server, talk, headers=self._headers, stream=True).text

    def delete(self, session: str) -> dict[str, object]:
        answer = self.api.send("DELETE", f"/sessions/{session}")
        assert answer.status_code == 200, answer.text
        gone: dict[str, object] = answer.json()
        return gone

    def memories(self) -> set[str]:
        self.api.wait_for_quiet()
        return {each["text"] for each in self.api.all("/memories", "memories")}

    def is_open(self, session: str) -> bool:
        shown = self.api.session(session)
        return shown["status"] == "active" and shown["ended_at"] is None


def last_prompt(upstream: ScriptedUpstream) -> str:
    return prompt_of([each for each in upstream.requests if each.path == CHAT][-1])


def test_only_its_own_tenant_deletes_it(mneme: MnemeServer, upstream: ScriptedUpstream, key: str) -> None:
    ana = Caller(mneme, key, "ana")
    session = ana.ask(SAID)
    other = mneme.create_key("other", "--tenant", "two")
    for headers, status in (
        ({"authorization": f"Bearer {other}", "x-mneme-user": "ana"}, 404),
        ({}, 401),
        ({"authorization": "Bearer mneme_wrong"}, 401),
    ):
        assert mneme.http.delete(f"/api/v1/sessions/{session}", headers=headers).status_code == status
    assert ana.api.said(session) == [("user", SAID), ("assistant", "Noted.")]
    assert ana.memories() == {"Parrot's name is Barnabyqx"}


def test_a_branch_and_its_parent_go_one_by_one(mneme: MnemeServer, upstream: ScriptedUpstream, key: str) -> None:
    ben = Caller(mneme, key, "ben")
    talk = [user(SAID)]
    parent = ben.ask(talk)
    talk += [assistant("Noted."), user("It eats figs.")]
    assert ben.ask(talk) == parent
    other = [*talk[:2], user("My cat is called Zelenkaqx.")]
    branch = ben.ask(other)
    assert ben.api.session(branch)["parent_session_id"] == parent
    assert ben.memories() == {"Parrot's name is Barnabyqx", "Cat's name is Zelenkaqx"}

    assert ben.delete(branch)["messages"] == 2, "what it shares is its parent's"
    assert len(ben.api.said(parent)) == 4
    assert ben.memories() == {"Parrot's name is Barnabyqx"}
    other += [assistant("Noted."), user("And what does it eat?")]
    assert ben.ask(other) == branch, "its transcript is recognised"
    assert ben.api.said(branch)[2:] == [("user", "And what does it eat?"), ("assistant", "Noted.")]

    assert ben.delete(parent)["messages"] == 4
    assert ben.api.said(parent) == []
    assert ben.api.said(branch) == [("user", "And what does it eat?"), ("assistant", "Noted.")]
    assert ben.memories() == set()
    assert ben.delete(parent)["messages"] == 0, "once more changes nothing"


def test_what_another_session_says_stays(mneme: MnemeServer, upstream: ScriptedUpstream, key: str) -> None:
    cleo = Caller(mneme, key, "cleo")
    cleo.ask(SAID, x_mneme_session="one")
    cleo.api.wait_for_quiet()
    cleo.ask(f"{SAID} My cat is called Mimiqx.", x_mneme_session="two")
    assert cleo.memories() == {"Parrot's name is Barnabyqx", "Cat's name is Mimiqx"}
    gone = cleo.delete("two")
    assert (len(gone["forgotten"]), len(gone["kept"])) == (1, 1)  # type: ignore[arg-type]  # JSON
    assert cleo.memories() == {"Parrot's name is Barnabyqx"}
    cleo.delete("one")
    assert cleo.memories() == set()


def test_what_comes_again_is_not_learned_and_what_goes_on_is_kept(
    mneme: MnemeServer, upstream: ScriptedUpstream, key: str
) -> None:
    """The conversation begins anew under its id: it is open again, and has what was said since."""
    dora = Caller(mneme, key, "dora")
    talk = [user(SAID)]
    session = dora.ask(talk)
    dora.api.wait_for_quiet()
    dora.delete(session)
    assert dora.api.session(session)["status"] == "closed"

    talk += [assistant("Noted."), user("My dog is called Wuffqx.")]
    assert dora.ask(talk) == session
    assert dora.api.said(session) == [("user", "My dog is called Wuffqx."), ("assistant", "Noted.")]
    assert dora.memories() == {"Dog's name is Wuffqx"}
    assert dora.is_open(session)
    dora.ask("What is my parrot called?")
    assert "Barnabyqx" not in last_prompt(upstream)

    dora.delete(session)
    added = dora.api.post(f"/sessions/{session}/messages", {"messages": [user("I live in Lisbon.")]})
    assert (added["session_id"], added["created"]) == (session, False)
    assert dora.api.said(session) == [("user", "I live in Lisbon.")]
    assert dora.memories() == {"Lives in Lisbon"}
    assert dora.is_open(session)
    closed = dora.api.post(f"/sessions/{session}/close", {})
    assert (closed["status"], closed["ended_at"] is None) == ("closed", False)
    dora.api.post(f"/sessions/{session}/messages", {"messages": [user("Hello.")]})
    assert dora.api.session(session)["status"] == "closed", "what was closed by itself stays so"


def test_a_turn_that_is_under_way_goes_with_its_session(
    mneme: MnemeServer, upstream: ScriptedUpstream, key: str
) -> None:
    emil = Caller(mneme, key, "emil")
    talk = [user(SAID)]
    session = emil.ask(talk)
    emil.api.wait_for_quiet()
    begun, go, plain = threading.Event(), threading.Event(), upstream.script
    chunks = [
        {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o",
         "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
        for delta, reason in (({"role": "assistant", "content": "Barnabyqx."}, None), ({}, "stop"))
    ]  # fmt: skip
    events = [*(b"data: " + json.dumps(each).encode() + b"\n\n" for each in chunks), b"data: [DONE]\n\n"]

    def script(asked: Recorded) -> Reply:
        begun.set()
        head, *rest = reply_events(events).steps
        return Reply([head, Until(go), *rest])

    talk += [assistant("Noted."), user("My cat is called Mimiqx. What is my parrot called?")]
    upstream.script = script
    with ThreadPoolExecutor(1) as aside:
        streamed = aside.submit(emil.stream, talk)
        assert begun.wait(DEADLINE_S)
        assert emil.delete(session)["messages"] == 2
        go.set()
        assert "Barnabyqx" in streamed.result(DEADLINE_S), "its client has it all"
    upstream.script = plain
    assert emil.api.said(session) == []
    assert emil.memories() == set()
    talk += [assistant("Barnabyqx."), user("Thank you.")]
    again = emil.ask(talk)
    assert emil.api.said(again)[-2:] == [("user", "Thank you."), ("assistant", "Noted.")]
    assert emil.memories() == set()
