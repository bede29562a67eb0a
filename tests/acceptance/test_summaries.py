"""A question about a whole conversation gets its summary into the prompt, and nothing of what was forgotten since."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.clients import Api, ask, call_of, prompt_of
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

pytestmark = pytest.mark.heavy

USER = "ana"
MONTHS = {
    "garden": (
        "2024-03-12",
        "raised bed",
        ("compost", "tomatoes", "slugs", "the hose", "mulch", "seedlings", "bark", "string"),
    ),
    "boat": (
        "2024-04-09",
        "old dinghy",
        ("varnish", "the rudder", "sails", "the anchor", "oars", "the mooring", "buckets", "rope"),
    ),
    "kitchen": (
        "2024-05-21",
        "kitchen wall",
        ("tiles", "grout", "the sink", "the lamp", "shelves", "the oven", "hooks", "paint"),
    ),
}
"""What was talked about when: a day, a thing, and what there was to say of it."""
SECRET = "The combination of the garden shed is 4711."


def lines() -> Iterator[dict[str, Any]]:
    for name, (day, thing, parts) in MONTHS.items():
        for n, part in enumerate(parts):
            at = f"{day}T10:{n:02}:00Z"
            asked = (
                f"For the {thing} I bought {part} on stall {n + 3} of the Ribeira market, and it cost {n + 11} euros."
            )
            if name == "garden" and n == 2:
                asked = f"Please remember: {SECRET}"
            answered = (
                f"Good. With {part} the {thing} comes along, and the {n + 2} other jobs around it can wait a week."
            )
            for role, text in (("user", asked), ("assistant", answered)):
                yield {"user": USER, "session": name, "role": role, "content": text, "created_at": at}


WORKER = True


@pytest.fixture(scope="module")
def api(mneme: MnemeServer) -> Api:
    """A user with three conversations behind them, which are over."""
    api = Api(mneme, user=USER)
    body = "\n".join(json.dumps(each) for each in lines()).encode()
    sent = mneme.http.post("/api/v1/import", content=body, headers={"content-type": "application/x-ndjson"})
    assert sent.status_code == 200, sent.text
    api.wait_for_quiet()
    for name in MONTHS:
        api.post(f"/sessions/{name}/end", {})
    api.wait_for_quiet()
    return api


def summaries(api: Api) -> dict[str, dict[str, Any]]:
    """Those in force, by session."""
    found = [each for each in api.all("/memories", "memories") if each["kind"] == "summary" and each["session"]]
    return {each["session"]: each for each in found if each["status"] == "active"}


def prompt(mneme: MnemeServer, upstream: ScriptedUpstream, question: str, session: str) -> tuple[str, str]:
    """What the model got for this question, and the id of the call."""
    upstream.requests.clear()
    got = ask(mneme, question, headers={"x-mneme-user": USER, "x-mneme-session": session})
    assert got.status_code == 200, got.text
    (sent,) = [each for each in upstream.requests if each.path == "/v1/chat/completions"]
    return prompt_of(sent), call_of(got)


def test_a_question_about_a_month_gets_the_summary_of_its_session(
    mneme: MnemeServer, upstream: ScriptedUpstream, api: Api
) -> None:
    kept = summaries(api)
    assert kept.keys() == MONTHS.keys()
    said, call = prompt(mneme, upstream, "What did we talk about in March 2024?", "asking")
    assert f"- [summary] {kept['garden']['text']} (2024-03-12)" in said
    (told,) = [each for each in api.chosen(call) if each["id"] == kept["garden"]["id"]]
    assert {"summary", "time"} <= set(told["legs"])
    assert (told["signals"]["recap"], told["signals"]["timely"], told["signals"]["digest"]) == (1.0, 1.0, 0.0)
    assert {each["session"] for each in told["provenance"]} == {"garden"}
    # The route finds what the prompt has.
    found = api.post("/memories/search", {"user": USER, "query": "What did we talk about in March 2024?"})["items"]
    assert found[0]["id"] == kept["garden"]["id"]
    assert found[0]["kind"] == "summary"
    assert "summary" in found[0]["via"]
    assert {each["session"] for each in found[0]["provenance"]} == {"garden"}


def test_a_question_about_one_thing_gets_the_turn_that_says_it(
    mneme: MnemeServer, upstream: ScriptedUpstream, api: Api
) -> None:
    said, call = prompt(mneme, upstream, "On which stall did I buy the varnish for the dinghy?", "asking one thing")
    assert "I bought varnish on stall 3" in said
    first = api.chosen(call)[0]
    assert first["source"] == "message"
    assert sum(each["kind"] == "summary" for each in api.chosen(call)) <= 1


def test_in_its_own_session_a_summary_is_no_memory(mneme: MnemeServer, upstream: ScriptedUpstream, api: Api) -> None:
    kept = summaries(api)
    said, call = prompt(mneme, upstream, "What did we talk about in April 2024?", "boat")
    assert kept["boat"]["id"] not in {each["id"] for each in api.chosen(call)}
    assert kept["boat"]["text"] not in said


def test_what_is_forgotten_is_in_no_summary_that_comes_up(
    mneme: MnemeServer, upstream: ScriptedUpstream, api: Api
) -> None:
    before = summaries(api)["garden"]
    assert "4711" in before["text"]
    (learned,) = [
        each for each in api.all("/memories", "memories") if "4711" in each["text"] and each["kind"] != "summary"
    ]
    assert api.send("DELETE", f"/memories/{learned['id']}").status_code < 300
    assert "garden" not in summaries(api)  # at once
    for question in ("What did we talk about in March 2024?", "What is the combination of the garden shed?"):
        said, _ = prompt(mneme, upstream, question, f"after {question}")
        assert "4711" not in said
    api.post("/sessions/garden/end", {})
    api.wait_for_quiet()
    anew = summaries(api)["garden"]
    assert anew["id"] != before["id"]
    assert "4711" not in anew["text"]
    said, _ = prompt(mneme, upstream, "What did we talk about in March 2024?", "at last")
    assert anew["text"] in said
    assert "4711" not in said
