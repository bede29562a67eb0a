"""Deleting messages through the real server: gone from prompts and from the database, and not back with a transcript."""

from __future__ import annotations

import pytest

from tests.acceptance.conftest import OwnServers
from tests.support.clients import Api, ask, assistant, prompt_of, session_of, user
from tests.support.dump import dump_of, stands_in
from tests.support.ledger import CHAT
from tests.support.replies import Script, chat_script
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

SAID = "My parrot is called Barnabyqx."
OFF = {"x-mneme-capture": "off"}


WORKER = True


@pytest.fixture(scope="module")
def script() -> Script:
    return chat_script(lambda asked: "Noted.")


def last_prompt(upstream: ScriptedUpstream) -> str:
    return prompt_of([each for each in upstream.requests if each.path == CHAT][-1])


def delete(api: Api, session: str, text: str) -> dict[str, object]:
    """Delete the message of that text."""
    (wanted,) = [each for each in api.history(session) if each["content"] == text]
    answer = api.send("DELETE", f"/sessions/{session}/messages/{wanted['id']}")
    assert answer.status_code == 200, answer.text
    gone: dict[str, object] = answer.json()
    return gone


async def test_of_what_is_not_captured_nothing_remains(
    mneme: MnemeServer, upstream: ScriptedUpstream, module_database: str
) -> None:
    headers = {"x-mneme-user": "ana"} | OFF
    session = session_of(ask(mneme, SAID, headers=headers))
    api = Api(mneme, user="ana")
    api.wait_for_quiet()
    ask(mneme, "What is my parrot called?", headers=headers)
    assert "Barnabyqx" in last_prompt(upstream), "the proof can fail"
    assert stands_in("barnabyqx", await dump_of(module_database)), "the proof can fail"
    gone = delete(api, session, SAID)
    assert gone["forgotten"]
    api.wait_for_quiet()
    assert not stands_in("barnabyqx", await dump_of(module_database))
    ask(mneme, "What was my parrot called?", headers=headers)
    assert "Barnabyqx" not in last_prompt(upstream)


def test_a_block_that_quotes_it_leaves_the_next_prompt(mneme: MnemeServer, upstream: ScriptedUpstream) -> None:
    headers = {"x-mneme-user": "ben"}
    session = session_of(ask(mneme, SAID, headers=headers))
    api = Api(mneme, user="ben")
    api.wait_for_quiet()
    talk = [user("What is my parrot called?")]
    other = session_of(ask(mneme, talk, headers=headers))
    talk += [assistant("Noted."), user("Thank you!")]
    ask(mneme, talk, headers=headers)
    assert "Barnabyqx" in last_prompt(upstream), "the block stands in the prompt again"
    delete(api, session, SAID)
    talk += [assistant("Noted."), user("And what does my parrot eat?")]
    answer = ask(mneme, talk, headers=headers)
    assert session_of(answer) == other
    assert "Barnabyqx" not in last_prompt(upstream)


@pytest.mark.parametrize("how", ["deleted", "forgotten"])
def test_a_repeated_call_is_compiled_anew(mneme: MnemeServer, upstream: ScriptedUpstream, how: str) -> None:
    """What went upstream for its Idempotency-Key before quotes what is gone."""
    headers = {"x-mneme-user": how}
    api = Api(mneme, user=how)
    if how == "deleted":
        session = session_of(ask(mneme, SAID, headers=headers))
    else:
        kept = api.post("/memories", {"user": how, "text": SAID})
    api.wait_for_quiet()
    headers |= {"idempotency-key": "once"}
    first = ask(mneme, "What is my parrot called?", headers=headers)
    assert ask(mneme, "What is my parrot called?", headers=headers).headers["x-mneme-reason"] == "replayed"
    assert "Barnabyqx" in last_prompt(upstream)
    if how == "deleted":
        delete(api, session, SAID)
    else:
        assert api.send("DELETE", f"/memories/{kept['id']}").status_code == 200
    again = ask(mneme, "What is my parrot called?", headers=headers)
    assert "Barnabyqx" not in last_prompt(upstream)
    assert session_of(again) == session_of(first)
    assert len(api.history(session_of(first))) == 2, "it adds no turn"


def test_a_transcript_that_holds_it_goes_on_where_it_was(mneme: MnemeServer, upstream: ScriptedUpstream) -> None:
    headers = {"x-mneme-user": "cleo"}
    talk = [user(SAID)]
    session = session_of(ask(mneme, talk, headers=headers))
    api = Api(mneme, user="cleo")
    api.wait_for_quiet()
    delete(api, session, SAID)
    delete(api, session, "Noted.")
    assert api.said(session) == []
    talk += [assistant("Noted."), user("It is green.")]
    answer = ask(mneme, talk, headers=headers)
    assert session_of(answer) == session
    assert api.session(session)["parent_session_id"] is None
    assert api.said(session) == [("user", "It is green."), ("assistant", "Noted.")]
    assert [each["turn_index"] for each in api.history(session)] == [3, 4]
    # Asked again it is answered beside, and an answer that the client cut short is still taken for the one that was given.
    assert session_of(ask(mneme, talk, headers=headers)) == session
    (first, *_) = [each for each in api.history(session) if each["role"] == "assistant"]
    assert [each["sibling"] for each in api.history(session)] == [0, 0, 1]
    assert api.send("DELETE", f"/sessions/{session}/messages/{first['id']}").status_code == 200


def test_a_rewritten_answer_that_was_deleted_begins_no_other_session(
    mneme: MnemeServer, upstream: ScriptedUpstream
) -> None:
    headers = {"x-mneme-user": "dora"}
    session = session_of(ask(mneme, "A question", headers=headers))
    api = Api(mneme, user="dora")
    delete(api, session, "Noted.")
    talk = [user("A question"), assistant("No"), user("And then?")]  # the client stopped reading
    assert session_of(ask(mneme, talk, headers=headers)) == session
    assert api.said(session) == [("user", "A question"), ("user", "And then?"), ("assistant", "Noted.")]


def test_where_mneme_supplies_the_history_it_is_left_out(mneme: MnemeServer, upstream: ScriptedUpstream) -> None:
    headers = {"x-mneme-user": "emil", "x-mneme-session": "served", "x-mneme-history": "server"}
    ask(mneme, SAID, headers=headers)
    api = Api(mneme, user="emil")
    api.wait_for_quiet()
    ask(mneme, "What does it eat?", headers=headers)
    assert "Barnabyqx" in last_prompt(upstream)
    delete(api, "served", SAID)
    ask(mneme, "And drink?", headers=headers)
    assert "What does it eat?" in last_prompt(upstream)
    assert "Barnabyqx" not in last_prompt(upstream)


def test_said_in_another_session_by_a_transcript_it_is_not_learned_again(
    mneme: MnemeServer, upstream: ScriptedUpstream
) -> None:
    headers = {"x-mneme-user": "fay"}
    session = session_of(ask(mneme, SAID, headers=headers))
    api = Api(mneme, user="fay")
    api.wait_for_quiet()
    assert api.all("/memories", "memories")
    delete(api, session, SAID)
    ask(
        mneme,
        [user(SAID), assistant("Noted."), user("It is green.")],
        headers=headers | {"x-mneme-session": "another"},
    )
    api.wait_for_quiet()
    assert "Barnabyqx" not in str(api.all("/memories", "memories"))
    found = api.post("/memories/search", {"user": "fay", "query": "What is my parrot called?", "history": True})
    assert "Barnabyqx" not in str(found)
    ask(mneme, "What is my parrot called?", headers=headers)
    assert "Barnabyqx" not in last_prompt(upstream)


def test_said_again_it_is_not_found_before_the_worker_has_seen_it(
    own_server: OwnServers, upstream: ScriptedUpstream
) -> None:
    server = own_server(upstream.url, WORKER="off")
    headers = {"x-mneme-user": "hal"}
    session = session_of(ask(server, SAID, headers=headers))
    delete(Api(server, user="hal"), session, SAID)
    talk = [user(SAID), assistant("Noted."), user("It is green.")]
    again = ask(server, talk, headers=headers | {"x-mneme-session": "another"})
    assert Api(server, user="hal").said(session_of(again))[0] == ("user", SAID), "it stands where it was sent"
    ask(server, "What is my parrot called, the green one?", headers=headers)
    assert "It is green" in last_prompt(upstream), "the proof can fail"
    assert "Barnabyqx" not in last_prompt(upstream)


def test_a_capture_keeps_what_it_holds(mneme: MnemeServer, upstream: ScriptedUpstream) -> None:
    headers = {"x-mneme-user": "gus"}
    answer = ask(mneme, SAID, headers=headers)
    api = Api(mneme, user="gus")
    delete(api, session_of(answer), SAID)
    assert SAID.encode() in api.request(answer.headers["x-mneme-call-id"])
