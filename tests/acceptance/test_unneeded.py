"""A conversation of somebody of whom much is known, most of whose turns have nothing to do with it: what need says, once, and
nothing else, so that the upstream's prefix cache keeps working."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from tests.support.clients import Api, Message, answer_of, ask, assistant, call_of, user
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

SAID = "From now on, always answer in two sentences."
FACTS = {"lives_in": "Utrecht", "sister.allergic_to": "walnuts"}
WISH = "Answer in two sentences"


WORKER = True


@pytest.fixture
def known(mneme: MnemeServer, request: pytest.FixtureRequest) -> Api:
    """Somebody who said one thing in an earlier conversation, and of whom two are known."""
    person = request.node.name
    api = Api(mneme, user=person)
    past = f"past of {person}"
    api.post(f"/sessions/{past}/messages", {"user": person, "messages": [{"role": "user", "content": SAID}]})
    for key, value in FACTS.items():
        assert api.send("PUT", f"/users/{person}/facts/{key}", json={"value": value}).is_success
    api.wait_for_quiet()
    return api


def converse(
    mneme: MnemeServer, upstream: ScriptedUpstream, known: Api, questions: list[str]
) -> tuple[list[list[Message]], list[list[Message]], list[str]]:
    """What the client sent in each turn, what went upstream, and the calls."""
    transcript: list[Message] = []
    sent, calls = [], []
    for question in questions:
        transcript.append(user(question))
        sent.append(list(transcript))
        answer = ask(mneme, transcript, headers=known.headers)
        calls.append(call_of(answer))
        transcript.append(assistant(answer_of(answer)))
    got = [each.json()["messages"] for each in upstream.requests if each.path == "/v1/chat/completions"]
    return sent, got, calls


def text_of(messages: list[Message]) -> str:
    return "\n".join(str(each["content"]) for each in messages)


def test_turns_that_need_nothing_change_no_byte(mneme: MnemeServer, upstream: ScriptedUpstream, known: Api) -> None:
    questions = [
        "What is 17 times 23?",
        "And its square root?",
        "Where do I live?",
        "Thanks!",
        "Where do I live, again?",
    ]
    sent, got, calls = converse(mneme, upstream, known, questions)
    for earlier, later in itertools.pairwise(got):
        assert later[: len(earlier)] == earlier, "the prefix stays"
    # The first turn has the standing wish; the second and fourth add nothing of their own; the third has the fact and no more.
    assert WISH in text_of(got[0])
    assert "Utrecht" not in text_of(got[1])
    for n in (1, 3, 4):
        assert got[n][-1] == sent[n][-1]
    told = str(got[2][-1]["content"])
    assert told.split("\n")[1:3] == ["About the user:", "- lives in: Utrecht"]
    assert "walnuts" not in told
    assert text_of(got[-1]).count(WISH) == text_of(got[-1]).count("lives in: Utrecht") == 1
    contexts = [known.get(f"/calls/{call}/context") for call in calls]
    assert [each["rebased"] for each in contexts] == [None] * len(questions)
    wishes: list[dict[str, Any]] = [each["sections"]["wishes"] for each in contexts]
    assert [len(each["chosen"]) for each in wishes] == [1, 0, 0, 0, 0]
    facts = [each["sections"]["facts"] for each in contexts]
    assert [each["why"] for each in facts] == [[], [], ["asked"], [], []]


def test_what_bears_on_a_question_is_said_without_being_asked_for(
    mneme: MnemeServer, upstream: ScriptedUpstream, known: Api
) -> None:
    _, got, _ = converse(mneme, upstream, known, ["What snack should I pack for a trip with my sister?"])
    assert "walnuts" in text_of(got[0])
    assert "Utrecht" not in json.dumps(got[0])
