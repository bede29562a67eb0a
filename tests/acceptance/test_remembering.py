"""What one conversation said is known in the next: with the worker, and by what the server keeps and learns alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.providers.tokens import Tokenizers
from tests.support.clients import (
    MODEL,
    Api,
    ask,
    assistant,
    call_of,
    context_of,
    prompt_of,
    sdk,
    session_of,
    user,
)
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

SMALL = "small-window"
WINDOW = 800
"""Tokens: little enough that memory does not fit beside a long question."""


@pytest.fixture(scope="module", params=[False, True], ids=["the server alone", "with the worker"])
def worker(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    return {"MODEL_WINDOWS": json.dumps({SMALL: WINDOW})}


def learned(mneme: MnemeServer, worker: bool) -> Api:
    api = Api(mneme)
    if worker:
        api.wait_for_quiet()
    return api


def tokens_of(messages: list[dict[str, Any]]) -> int:
    counter = Tokenizers().for_model(MODEL)
    return sum(counter.count(each["content"]) for each in messages)


def test_facts_of_one_session_reach_the_next_and_say_where_they_come_from(
    mneme: MnemeServer, upstream: ScriptedUpstream, worker: bool
) -> None:
    introduction = "I'm vegetarian, I live in Lisbon, please call me Ana"
    name = f"ana {worker}"  # one database for both
    with sdk(mneme.url) as client:
        client.chat.completions.create(model=MODEL, user=name, messages=[{"role": "user", "content": introduction}])
        api = learned(mneme, worker)
        answer = client.chat.completions.with_raw_response.create(
            model=MODEL, user=name, messages=[{"role": "user", "content": "suggest a restaurant"}]
        )
    first, second = (each for each in upstream.requests if each.path == "/v1/chat/completions")
    assert prompt_of(first) == introduction
    prompt = prompt_of(second)
    for fact in ("vegetarian", "Lisbon", "Ana"):
        assert fact in prompt
    assert prompt.endswith("suggest a restaurant")

    api = Api(mneme, user=name)
    calls = api.calls()
    assert [each["memory_status"] for each in calls] == ["ok", "ok"]
    source = next(each for each in api.history(calls[1]["session_id"]) if each["role"] == "user")
    assert source["content"] == introduction
    chosen = api.chosen(answer.headers["x-mneme-call-id"])
    for fact in ("vegetarian", "Lisbon", "Ana"):
        telling = [each for each in chosen if fact in each["text"]]
        assert telling, f"{fact} is in the prompt, and no chosen item explains it"
        for item in telling:
            from_user = [each for each in item["provenance"] if each["message_id"] == source["id"]]
            assert from_user or item["kind"] == "message", item
            assert item["signals"]
        assert any(each["message_id"] == source["id"] for item in telling for each in item["provenance"])


def test_the_budget_holds_and_is_told(mneme: MnemeServer, upstream: ScriptedUpstream, worker: bool) -> None:
    headers = {"x-mneme-user": f"bea {worker}"}
    for n in range(12):
        ask(
            mneme,
            f"Note {n}: my friend number {n} lives in house {n} of Lisbon street and likes soup.",
            headers=headers,
        )
    learned(mneme, worker)
    upstream.requests.clear()
    answer = ask(mneme, "Who of my friends likes soup in Lisbon?", headers=headers, model=SMALL)
    figures = context_of(answer)
    sent = next(each for each in upstream.requests if each.path == "/v1/chat/completions").json()["messages"]
    assert figures["memories"] > 0
    assert figures["tokens"] <= figures["budget"] <= WINDOW - WINDOW // 4
    assert tokens_of(sent) <= WINDOW - WINDOW // 4
    explained = Api(mneme, user=f"bea {worker}").get(f"/calls/{call_of(answer)}/context")
    left_out = [each for each in explained["items"] if not each["chosen"]]
    assert all(each["reason"] for each in left_out)
    assert len([each for each in explained["items"] if each["chosen"]]) == figures["memories"]


def test_what_mneme_added_is_not_learned_again(mneme: MnemeServer, upstream: ScriptedUpstream, worker: bool) -> None:
    """The block of one turn is in no stored message, and does not stand in the next block."""
    headers = {"x-mneme-user": "dora"}
    ask(mneme, "My cat is called Minka.", headers=headers)
    learned(mneme, worker)
    first = ask(mneme, "What is my cat called?", headers=headers)
    learned(mneme, worker)
    ask(mneme, "And how old is my cat?", headers=headers)
    api = Api(mneme, user="dora")
    assert api.said(session_of(first)) == [("user", "What is my cat called?"), ("assistant", "All right.")]
    blocks = [prompt_of(each) for each in upstream.requests if each.path == "/v1/chat/completions"][1:]
    assert all("Minka" in each for each in blocks)
    assert all(each.count("</mneme-memory") == 1 for each in blocks)
    for item in api.all("/memories", "memories"):
        assert "mneme-memory" not in item["text"]


def test_a_session_goes_on_where_its_memory_block_stood(
    mneme: MnemeServer, upstream: ScriptedUpstream, worker: bool
) -> None:
    """The prompts of one session begin alike, byte for byte: an upstream's prefix cache keeps working."""
    headers = {"x-mneme-user": "eva"}
    ask(mneme, "I am allergic to peanuts and I live in Faro.", headers=headers)
    learned(mneme, worker)
    upstream.requests.clear()
    transcript = [user("What should I not eat in Faro?")]
    first = ask(mneme, transcript, headers=headers)
    transcript += [assistant("All right."), user("Thank you. And where do I live?")]
    second = ask(mneme, transcript, headers=headers)
    assert session_of(first) == session_of(second)
    one, two = (each.json()["messages"] for each in upstream.requests if each.path == "/v1/chat/completions")
    assert "peanuts" in one[0]["content"]
    assert two[: len(one)] == one


def test_memory_stays_with_its_user(mneme: MnemeServer, upstream: ScriptedUpstream, worker: bool) -> None:
    ask(mneme, "My secret word is Zanzibar.", headers={"x-mneme-user": "fay"})
    learned(mneme, worker)
    upstream.requests.clear()
    answer = ask(mneme, "What is my secret word?", headers={"x-mneme-user": "gus"})
    assert "Zanzibar" not in prompt_of(upstream.requests[-1])
    assert "Zanzibar" not in json.dumps(Api(mneme, user="gus").get(f"/calls/{call_of(answer)}/context"))


def test_a_preview_says_whose_message_an_item_is_as_a_search_does(mneme: MnemeServer) -> None:
    api = Api(mneme, user="whose")
    told = {
        "content": "The parcel for Ben lies under the old oak.",
        "role": "user",
        "name": "Cleo",
        "metadata": {"by": "cleo-7"},
    }
    api.send("POST", "/sessions/parcels/messages", json={"user": "whose", "messages": [told]}).raise_for_status()
    asked = "Where does the parcel for Ben lie?"
    found = api.send("POST", "/memories/search", json={"query": asked}).json()["items"]
    shown = api.send("POST", "/context", json={"query": asked}).json()["items"]
    (searched,) = [source for each in found for source in each["provenance"] if source["metadata"]]
    assert (searched["session"], searched["metadata"]) == ("parcels", {"by": "cleo-7"})
    whose = {str(source["metadata"]) for each in shown if each["source"] == "message" for source in each["provenance"]}
    assert whose == {str({"by": "cleo-7"})}


def test_all_that_is_known_is_told_when_it_is_asked_for(
    mneme: MnemeServer, upstream: ScriptedUpstream, worker: bool
) -> None:
    """The prompt also has statements without a slot, and quotes no earlier conversation."""
    headers = {"x-mneme-user": f"gil {worker}"}
    ask(mneme, "I'm a solicitor in York, we have an old rails monolith that I'm porting to React", headers=headers)
    ask(mneme, "I take the tram to the office.", headers=headers)
    learned(mneme, worker)
    for question in (
        "What do you know about me?",
        "summarise what u know about me",
        "Was weißt du über mich?",
        "我是谁？",
    ):
        upstream.requests.clear()
        ask(mneme, question, headers=headers)
        prompt = prompt_of(next(request for request in upstream.requests if request.path == "/v1/chat/completions"))
        for word in ("solicitor", "York", "rails", "tram"):
            assert word in prompt, (question, prompt)
        assert "From earlier conversations" not in prompt, prompt
