"""What a helper LLM finds contradictory: shown by the route, by `mneme conflicts`, on the page, and as doubtful in a prompt."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.clients import Api, ask, prompt_of
from tests.support.replies import Script, chat_script
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

HELPER = "the-helper"
STEAK = "The steak I grilled for my birthday was my favourite meal ever."
FOUND = {
    "content": "Counts the birthday steak as the best meal",
    "kind": "preference",
    "quote": STEAK,
    "confidence": 0.9,
}


def answer(asked: dict[str, Any]) -> str:
    if asked["model"] != HELPER:
        return "All right."
    told = asked["messages"][-1]["content"]
    if "<pairs>" not in told:
        return json.dumps({"items": [FOUND] if STEAK in told else []})
    pairs = json.loads(told.removeprefix("<pairs>\n").removesuffix("\n</pairs>"))
    wrong = [each["pair"] for each in pairs if each["earlier"]["text"] == "Is vegetarian"]
    return json.dumps(
        {"verdicts": [{"pair": n, "verdict": "contradiction", "reason": "A steak is meat."} for n in wrong]}
    )


@pytest.fixture(scope="module")
def script() -> Script:
    return chat_script(answer)


@pytest.fixture(scope="module")
def worker() -> bool:
    return True


@pytest.fixture(scope="module")
def settings(module_upstream: Any) -> dict[str, str]:
    return {"HELPER_BASE_URL": module_upstream.url, "HELPER_MODEL": HELPER}


def test_the_user_is_asked_which_of_two_is_so(mneme: MnemeServer, upstream: ScriptedUpstream) -> None:
    api = Api(mneme, user="ana")
    for text in ("I'm a vegetarian.", STEAK):
        ask(mneme, text, headers={"x-mneme-user": "ana"})
        api.wait_for_quiet()
    (found,) = api.all("/conflicts", "conflicts", status="open")
    assert (found["strategy"], found["data"]["reason"]) == ("ask_user", "A steak is meat")
    assert "Is vegetarian" in [each["value"] for each in found["data"]["memories"]]
    assert "A steak is meat (the helper LLM's judgement)" in mneme.command("conflicts", "show", found["id"]).stdout
    assert "A steak is meat" in mneme.http.get(f"/ui/conflicts/{found['id']}").text
    upstream.requests.clear()
    ask(mneme, "Which food could I cook as a vegetarian tonight?", headers={"x-mneme-user": "ana"})
    prompt = prompt_of(upstream.requests[0])
    assert "- diet: vegetarian (to be confirmed)" in prompt
    assert "A steak is meat" not in prompt
