"""A session of 400 turns, compacted by the real worker: ρ, and which facts a prompt of it still has, before and after."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest

from tests.support.clients import Api, ask, error_of
from tests.support.long_session import FACTS, TURNS, exchanges
from tests.support.replies import Script, chat_script
from tests.support.server import MnemeServer, wait_until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]  # what is said later waits a minute for a helper LLM

SMALL = "small-window"
WINDOW = 7300
HELPER = "the-helper"

RATIO = 5.0
"""Seed 000 §11.3."""


def helper_answer(asked: dict[str, Any]) -> str:
    """A helper that adds nothing to what rules learn, and condenses by copying what the user says of themselves, and some
    inventions."""
    shown = asked["messages"][-1]["content"]
    if shown.startswith("<conversation>\n{"):
        notes = json.loads(shown.removeprefix("<conversation>\n").removesuffix("\n</conversation>"))["notes"]
        return json.dumps({"keep": [note["id"] for note in notes]})
    points: list[dict[str, Any]] = [{"text": "The user owns 77 elephants in Kathmandu", "lines": [1]}]
    for line in asked["messages"][-1]["content"].splitlines():
        found = re.match(r"\[(\d+)\] (?:user|note): (.*)", line)
        told = [fact.said for fact in FACTS if found is not None and fact.said in found[2]]
        points += [{"text": each, "lines": [int(found[1])]} for each in told if found is not None]
    return json.dumps({"points": points})


def answer(asked: dict[str, Any]) -> str:
    return helper_answer(asked) if asked["model"] == HELPER else "All right."


@pytest.fixture(scope="module")
def script() -> Script:
    return chat_script(answer)


@pytest.fixture(scope="module", params=["extractive", "helper"])
def method(request: pytest.FixtureRequest) -> str:
    return str(request.param)


WORKER = True


@pytest.fixture(scope="module")
def settings(method: str, module_upstream: Any) -> dict[str, str]:
    given = {"MODEL_WINDOWS": json.dumps({SMALL: WINDOW})}
    if method == "helper":
        given |= {"HELPER_BASE_URL": module_upstream.url, "HELPER_MODEL": HELPER}
    return given


@pytest.fixture(scope="module")
def talk(mneme: MnemeServer, method: str) -> tuple[Api, str]:
    """The API of the user, and the session."""
    name = f"ana {method}"
    api = Api(mneme, user=name)
    messages: list[dict[str, str]] = []
    for asked, answered in exchanges():
        messages += [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}]
    for at in range(0, len(messages), 400):
        api.post("/sessions/long/messages", {"messages": messages[at : at + 400]})
    api.wait_for_quiet()
    # A turn tells which model, and so which window, the session has.
    ask(mneme, "Good evening", headers={"x-mneme-user": name, "x-mneme-session": "long"}, model=SMALL)
    api.wait_for_quiet()
    return api, "long"


def prompt(api: Api, question: str) -> str:
    """What would stand before the model for this question, without the question."""
    sent = api.post("/context", {"session": "long", "query": question, "model": SMALL})["messages"]
    texts = [str(each["content"]) for each in sent]
    return "\n".join(texts).rpartition(question)[0]


def found(api: Api) -> list[str]:
    return [fact.answer for fact in FACTS if fact.answer in prompt(api, fact.question)]


def test_400_turns_are_compacted_and_their_facts_are_still_found(
    mneme: MnemeServer, talk: tuple[Api, str], method: str, record_property: Any
) -> None:
    api, session = talk
    before = found(api)
    said = api.said(session)
    api.post(f"/sessions/{session}/compact", {})
    wait_until(lambda: bool(api.get(f"/sessions/{session}/summary")["compactions"]), "the compaction", seconds=60)
    api.wait_for_quiet()
    after = found(api)
    summary = api.get(f"/sessions/{session}/summary")
    (done,) = summary["compactions"]
    in_summary = [fact.answer for fact in FACTS if fact.answer in summary["summary"]]
    record_property("ratio", done["ratio"])
    record_property("found", f"{len(before)} before, {len(after)} after, {len(in_summary)} in the summary")
    print(
        f"\n{method}: {done['messages']} messages, {done['removed_tokens']} tokens into {done['summary_tokens']}: "
        f"ρ = {done['ratio']:.1f}; of {len(FACTS)} facts {len(before)} were found before, {len(after)} after, "
        f"{len(in_summary)} stand in the summary itself"
    )
    assert done["method"] == method
    assert done["ratio"] >= RATIO
    assert summary["ratio"] == pytest.approx(done["ratio"])
    assert summary["active_tokens"] <= WINDOW
    assert len(after) >= 0.9 * len(FACTS)
    assert len(after) >= len(before) - 1
    assert "Kathmandu" not in summary["summary"]
    # The originals are all there, and the prompt has the first turn, the summary, and the last turns as they were said.
    assert api.said(session) == said
    assert len(said) == 2 * TURNS + 2
    shown = prompt(api, "What did we talk about?")
    assert said[0][1] in shown
    assert "Earlier in this conversation: " in shown
    for _, text in said[-8:]:
        assert text in shown
    compacted = next(text for role, text in said[20:] if role == "assistant")
    assert shown.count(compacted) <= 1


def test_a_real_turn_goes_on_after_the_compaction(
    mneme: MnemeServer, talk: tuple[Api, str], method: str, upstream: Any
) -> None:
    upstream.requests.clear()
    got = ask(
        mneme,
        "What is the name of our puppy?",
        headers={"x-mneme-user": f"ana {method}", "x-mneme-session": "long"},
        model=SMALL,
    )
    assert got.status_code == 200
    (sent,) = [
        each.json()
        for each in upstream.requests
        if each.path == "/v1/chat/completions" and each.json()["model"] == SMALL
    ]
    texts = "\n".join(str(each["content"]) for each in sent["messages"])
    assert "Bramble" in texts
    roles = [each["role"] for each in sent["messages"]]
    assert all(one != other for one, other in pairwise(roles)), roles


def test_the_metric_and_the_other_routes(mneme: MnemeServer, talk: tuple[Api, str]) -> None:
    api, session = talk
    # Does nothing where it is done already; another process may have run the test that does it.
    api.post(f"/sessions/{session}/compact", {})
    wait_until(lambda: bool(api.get(f"/sessions/{session}/summary")["compactions"]), "the compaction", seconds=60)
    text = mneme.http.get("/metrics").text
    ratio = re.search(r'^mneme_compaction\{what="ratio"\} (\S+)', text, re.MULTILINE)
    assert ratio is not None
    assert float(ratio[1]) >= RATIO
    working = api.get(f"/sessions/{session}/working")
    assert working["pending_confirmations"] == []
    # A turn that is learned from while its session ends leaves it pending, rightly: not what is tried here.
    api.wait_for_quiet()
    ended = api.post(f"/sessions/{session}/end", {})
    assert ended["queued"] == ["session_end"]
    assert api.session(session)["status"] == "closed"
    wait_until(lambda: not api.get(f"/sessions/{session}/summary")["pending"], "the session-end work", seconds=30)
    assert api.post(f"/sessions/{session}/consolidate", {"entities": ["Clara"]})["queued"] == ["consolidate"]
    api.wait_for_quiet()
    summaries = [each for each in api.all("/memories", "memories") if each["kind"] == "summary"]
    assert all("Kathmandu" not in each["text"] for each in summaries)


def test_bad_wishes(mneme: MnemeServer, talk: tuple[Api, str]) -> None:
    api, session = talk
    for path, body in (
        (f"/sessions/{session}/compact", {"target_tokens": -1}),
        (f"/sessions/{session}/compact", {"target_tokens": "all"}),
        (f"/sessions/{session}/compact", {"unknown": 1}),
        (f"/sessions/{session}/consolidate", {"entities": "Clara"}),
        (f"/sessions/{session}/consolidate", {"entities": ["x"] * 21}),
    ):
        refused = api.send("POST", path, json=body)
        assert refused.status_code == 400, refused.text
        error_of(refused)
    for method, path in (
        ("GET", "working"),
        ("GET", "summary"),
        ("POST", "end"),
        ("POST", "compact"),
        ("POST", "consolidate"),
    ):
        missing = api.send(method, f"/sessions/there-is-none/{path}")
        assert missing.status_code == 404, path
        error_of(missing)
