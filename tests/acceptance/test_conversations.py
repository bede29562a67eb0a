"""Conversations as clients send them: the whole transcript each time, or a session and what is new. Nothing twice."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.clients import (
    Api,
    Message,
    answer_of,
    ask,
    assistant,
    session_of,
    system,
    user,
)
from tests.support.replies import Script, chat_script, reply_json
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

TURNS = 20


def echo(asked: dict[str, Any]) -> str:
    """Answers what was asked last, whatever memory stands before it."""
    content = next(each["content"] for each in reversed(asked["messages"]) if each["role"] == "user")
    return "You said: " + str(content).rsplit("\n", 1)[-1]


@pytest.fixture(scope="module")
def script() -> Script:
    return chat_script(echo)


names = (f"user-{n}" for n in itertools.count())


@pytest.fixture
def someone() -> str:
    """A user whom no other test knows."""
    return next(names)


@pytest.fixture
def api(mneme: MnemeServer, someone: str) -> Api:
    return Api(mneme, user=someone)


def converse(
    mneme: MnemeServer, who: str, turns: int, *, transcript: list[Message] | None = None, begin: int = 1
) -> tuple[list[Message], set[str]]:
    """A client-managed conversation; the transcript after it, and the sessions that it was said to belong to."""
    transcript = transcript if transcript is not None else []
    sessions = set()
    for n in range(begin, begin + turns):
        transcript.append(user(f"Question {n}"))
        answer = ask(mneme, transcript, headers={"x-mneme-user": who})
        sessions.add(session_of(answer))
        transcript.append(assistant(answer_of(answer)))
    return transcript, sessions


def spoken(transcript: Sequence[Message]) -> list[tuple[str, Any]]:
    return [(each["role"], each["content"]) for each in transcript if each["role"] != "system"]


def chats(upstream: ScriptedUpstream) -> list[list[Message]]:
    """The messages of every chat request that the upstream got."""
    return [each.json()["messages"] for each in upstream.requests if each.path == "/v1/chat/completions"]


def test_a_client_managed_transcript_is_one_session_with_no_duplicate(
    mneme: MnemeServer, api: Api, someone: str
) -> None:
    transcript, sessions = converse(mneme, someone, TURNS)
    assert len(sessions) == 1
    history = api.history(sessions.pop())
    assert len(history) == 2 * TURNS
    assert [(each["role"], each["content"]) for each in history] == spoken(transcript)
    assert [each["turn_index"] for each in history] == list(range(1, 2 * TURNS + 1))
    assert {each["sibling"] for each in history} == {0}
    assert [each["parent_id"] for each in history] == [None, *(each["id"] for each in history[:-1])]
    assert len(api.sessions()) == 1
    assert api.sessions()[0]["message_count"] == 2 * TURNS


def test_an_edit_in_the_middle_is_a_branch(mneme: MnemeServer, api: Api, someone: str) -> None:
    transcript, (original,) = converse(mneme, someone, 5)
    edited = [*transcript[:4], user("Question 3, put better")]
    answer = ask(mneme, edited, headers={"x-mneme-user": someone})
    branch = session_of(answer)
    assert branch != original
    found = api.session(branch)
    assert (found["parent_session_id"], found["branch_turn_index"]) == (original, 4)
    edited.append(assistant(answer_of(answer)))
    assert api.said(branch) == spoken(edited)
    assert api.said(original) == spoken(transcript)

    edited, (still,) = converse(mneme, someone, 1, transcript=edited, begin=4)
    assert still == branch
    assert api.said(branch) == spoken(edited)
    transcript, (still,) = converse(mneme, someone, 1, transcript=transcript, begin=6)
    assert still == original
    assert api.said(original) == spoken(transcript)
    assert len(api.sessions()) == 2


def test_a_regeneration_is_a_sibling(mneme: MnemeServer, upstream: ScriptedUpstream, api: Api, someone: str) -> None:
    transcript, (session,) = converse(mneme, someone, 3)
    upstream.script = chat_script(lambda asked: "Another answer")
    again = ask(mneme, transcript[:-1], headers={"x-mneme-user": someone})
    assert session_of(again) == session
    history = api.history(session)
    assert len(history) == 7
    old, new = history[-2:]
    assert (old["content"], new["content"]) == ("You said: Question 3", "Another answer")
    assert old["turn_index"] == new["turn_index"] == 6
    assert (old["sibling"], new["sibling"]) == (0, 1)
    assert old["parent_id"] == new["parent_id"] == history[-3]["id"]

    _, (still,) = converse(mneme, someone, 1, transcript=[*transcript[:-1], assistant("Another answer")], begin=4)
    assert still == session
    question = next(each for each in api.history(session) if each["content"] == "Question 4")
    assert question["parent_id"] == new["id"]
    assert question["turn_index"] == 7


def test_a_trimmed_head_is_the_same_session(mneme: MnemeServer, api: Api, someone: str) -> None:
    transcript, (session,) = converse(mneme, someone, 6)
    for n in range(7, 10):
        window = transcript[-4:]
        window, (still,) = converse(mneme, someone, 1, transcript=window, begin=n)
        assert still == session
        transcript += window[-2:]
    assert api.said(session) == spoken(transcript)


def test_a_system_prompt_with_a_clock_is_the_same_session(mneme: MnemeServer, api: Api, someone: str) -> None:
    transcript: list[Message] = []
    sessions = set()
    for n in range(4):
        transcript.append(user(f"Question {n}"))
        clock = system(f"You are kind. It is {n}:30.")
        answer = ask(mneme, [clock, *transcript], headers={"x-mneme-user": someone})
        sessions.add(session_of(answer))
        transcript.append(assistant(answer_of(answer)))
    (session,) = sessions
    assert api.said(session) == spoken(transcript)


def test_messages_that_come_back_a_little_different_are_the_same(mneme: MnemeServer, api: Api, someone: str) -> None:
    """Clients trim white space, write parts for a text, drop empty fields and add their own."""
    headers = {"x-mneme-user": someone}
    first = ask(mneme, [user("Hello there \n")], headers=headers)
    varied: list[Message] = [
        {"role": "user", "content": [{"type": "text", "text": "Hello there"}]},
        {"role": "assistant", "content": answer_of(first) + "\n", "refusal": None, "annotations": [], "x": 1},
        user("Next"),
    ]
    second = ask(mneme, varied, headers=headers)
    assert session_of(second) == session_of(first)
    assert [each["role"] for each in api.history(session_of(first))] == ["user", "assistant"] * 2


def test_two_conversations_may_begin_alike(mneme: MnemeServer, api: Api, someone: str) -> None:
    headers = {"x-mneme-user": someone}
    one, two = ask(mneme, "hi", headers=headers), ask(mneme, "hi", headers=headers)
    assert session_of(one) != session_of(two)
    assert len(api.sessions()) == 2


TOOL_CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Lisbon"}'}}


def test_a_tool_loop_is_stored_once(mneme: MnemeServer, upstream: ScriptedUpstream, api: Api, someone: str) -> None:
    headers = {"x-mneme-user": someone}
    calling = {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]}
    upstream.script = reply_json({
        "id": "1", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": calling, "finish_reason": "tool_calls"}],
    })  # fmt: skip
    transcript = [user("What is the weather?")]
    first = ask(mneme, transcript, headers=headers)
    upstream.script = chat_script(lambda asked: "It is sunny.")
    transcript += [calling, {"role": "tool", "tool_call_id": "call_1", "content": "sunny"}]
    second = ask(mneme, transcript, headers=headers)
    assert session_of(second) == session_of(first)
    history = api.history(session_of(first))
    assert [each["role"] for each in history] == ["user", "assistant", "tool", "assistant"]
    assert history[1]["tool_calls"] == [TOOL_CALL]
    assert history[2]["tool_call_id"] == "call_1"
    assert history[3]["content"] == "It is sunny."


@pytest.mark.parametrize("texts", [("A", "B", "C"), ("A", "A", "A")], ids=["different", "alike"])
@pytest.mark.parametrize("taken", [0, 1, 2])
def test_several_choices_are_siblings_and_any_of_them_goes_on(
    mneme: MnemeServer, upstream: ScriptedUpstream, api: Api, someone: str, texts: tuple[str, ...], taken: int
) -> None:
    headers = {"x-mneme-user": someone}
    upstream.script = reply_json({
        "id": "1", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": n, "message": assistant(text), "finish_reason": "stop"} for n, text in enumerate(texts)],
    })  # fmt: skip
    transcript = [user("Tell me")]
    first = ask(mneme, transcript, headers=headers, n=3)
    history = api.history(session_of(first))
    assert [(each["turn_index"], each["sibling"]) for each in history] == [(1, 0), (2, 0), (2, 1), (2, 2)]
    assert [each["content"] for each in history[1:]] == list(texts)
    upstream.script = chat_script(echo)
    second = ask(mneme, [*transcript, assistant(texts[taken]), user("More")], headers=headers)
    assert session_of(second) == session_of(first)
    went_on = api.history(session_of(first))[4:]
    assert [each["content"] for each in went_on] == ["More", "You said: More"]
    followed = next(each for each in history if each["id"] == went_on[0]["parent_id"])
    assert followed["content"] == texts[taken]


# --- the same, server-managed -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_server_managed_gives_the_same_history_and_the_same_prompts(
    mneme: MnemeServer, upstream: ScriptedUpstream, api: Api, someone: str, stream: bool
) -> None:
    client = f"{someone}-client"
    _, (by_transcript,) = converse(mneme, client, TURNS)
    prompts = chats(upstream)
    upstream.requests.clear()
    headers = {"x-mneme-user": someone, "x-mneme-session": "our chat"}
    sessions = {session_of(ask(mneme, f"Question {n}", headers=headers, stream=stream)) for n in range(1, TURNS + 1)}
    assert len(sessions) == 1
    assert chats(upstream) == prompts
    same = ("turn_index", "sibling", "role", "content")
    one, two = (
        [[each[name] for name in same] for each in found]
        for found in (Api(mneme, user=client).history(by_transcript), api.history("our chat"))
    )
    assert one == two
    assert len(two) == 2 * TURNS
    assert api.session("our chat")["id"] in sessions


def test_a_session_id_that_mneme_issued_goes_on_server_managed(
    mneme: MnemeServer, upstream: ScriptedUpstream, api: Api, someone: str
) -> None:
    transcript, (session,) = converse(mneme, someone, 2)
    answer = ask(mneme, "Question 3", headers={"x-mneme-user": someone, "x-mneme-session": session})
    assert session_of(answer) == session
    assert chats(upstream)[-1] == [*transcript, user("Question 3")]
    assert len(api.history(session)) == 6


def test_a_session_keeps_its_system_prompt_and_takes_a_new_one(
    mneme: MnemeServer, upstream: ScriptedUpstream, someone: str
) -> None:
    headers = {"x-mneme-user": someone, "x-mneme-session": "with a system prompt"}
    ask(mneme, [system("Speak like a pirate."), user("One")], headers=headers)
    ask(mneme, "Two", headers=headers)
    ask(mneme, [system("Speak like a judge."), user("Three")], headers=headers)
    ask(mneme, "Four", headers=headers)
    prompts = chats(upstream)
    leading = [[each["content"] for each in prompt if each["role"] == "system"] for prompt in prompts]
    assert leading == [["Speak like a pirate."]] * 2 + [["Speak like a judge."]] * 2
    assert [each["content"] for each in prompts[-1] if each["role"] == "user"] == ["One", "Two", "Three", "Four"]


def test_a_tool_result_alone_goes_on_server_managed(
    mneme: MnemeServer, upstream: ScriptedUpstream, api: Api, someone: str
) -> None:
    headers = {"x-mneme-user": someone, "x-mneme-session": "tools"}
    calling = {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]}
    upstream.script = reply_json({
        "id": "1", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": calling, "finish_reason": "tool_calls"}],
    })  # fmt: skip
    ask(mneme, "What is the weather?", headers=headers)
    upstream.script = chat_script(lambda asked: "It is sunny.")
    result = {"role": "tool", "tool_call_id": "call_1", "content": "sunny"}
    ask(mneme, [result], headers=headers)
    prompt = chats(upstream)[-1]
    assert [each["role"] for each in prompt] == ["user", "assistant", "tool"]
    assert prompt[1]["tool_calls"] == [TOOL_CALL]
    assert prompt[2] == result
    assert [each["role"] for each in api.history("tools")] == ["user", "assistant", "tool", "assistant"]


def test_the_header_says_who_supplies_the_history(
    mneme: MnemeServer, upstream: ScriptedUpstream, api: Api, someone: str
) -> None:
    headers = {"x-mneme-user": someone, "x-mneme-session": "named", "x-mneme-history": "client"}
    ask(mneme, "One", headers=headers)
    ask(mneme, [user("One"), assistant("You said: One"), user("Two")], headers=headers)
    assert len(chats(upstream)[-1]) == 3
    assert len(api.history("named")) == 4
