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
SAID = "Counts the birthday steak as the best meal"


def answer(asked: dict[str, Any]) -> str:
    if asked["model"] != HELPER:
        return "All right."
    text = asked["messages"][-1]["content"].removeprefix("<conversation>\n").removesuffix("\n</conversation>")
    shown = json.loads(text)
    steak = [message["message"] for message in shown["messages"] if message["user"] == STEAK]
    diet = [note["id"] for note in shown["notes"] if note["text"] == "Is vegetarian"]
    found = {"text": SAID, "kind": "preference", "quote": STEAK}
    updates = [found | {"message": n, "memory": memory} for n in steak for memory in diet]
    return json.dumps({"updates": updates, "keep": [note["id"] for note in shown["notes"]]})


@pytest.fixture(scope="module")
def script() -> Script:
    return chat_script(answer)


WORKER = True


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    """The model alone: it is at the upstream."""
    return {"HELPER_MODEL": HELPER}


def test_the_user_is_asked_which_of_two_is_so(mneme: MnemeServer, upstream: ScriptedUpstream) -> None:
    api = Api(mneme, user="ana")
    for text in ("I'm a vegetarian.", STEAK):
        ask(mneme, text, headers={"x-mneme-user": "ana"})
        api.wait_for_quiet()
    (found,) = api.all("/conflicts", "conflicts", status="open")
    assert (found["strategy"], found["data"]["reason"]) == ("ask_user", STEAK.rstrip("."))
    assert "Is vegetarian" in [each["value"] for each in found["data"]["memories"]]
    assert f"{STEAK.rstrip('.')} (the helper LLM's judgement)" in mneme.command("conflicts", "show", found["id"]).stdout
    assert STEAK.rstrip(".") in mneme.http.get(f"/ui/conflicts/{found['id']}").text
    upstream.requests.clear()
    ask(mneme, "Which food could I cook as a vegetarian tonight?", headers={"x-mneme-user": "ana"})
    assert "- diet: vegetarian (to be confirmed)" in prompt_of(upstream.requests[0])
    # What it was used for is shown to the operator.
    day = mneme.http.get("/api/v1/queue").json()["helper"]
    assert day["calls"] >= 1
    assert day["messages"] >= day["calls"]
    assert 0 < day["tokens"] < day["tokens_per_day"] == 2_000_000
    assert "The helper LLM today" in mneme.http.get("/ui/jobs").text
    assert f'mneme_helper_today{{what="calls"}} {day["calls"]:.1f}' in mneme.http.get("/metrics").text
    doctor = mneme.command("doctor").stdout
    assert f"{HELPER} at " in doctor
    assert "asked without a key" in doctor
