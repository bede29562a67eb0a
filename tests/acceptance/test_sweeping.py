"""`mneme sweep`, the worker's own sweeps as /metrics shows them, and the question that an old memory leads to, whose
answer holds."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.clients import Api, ask, assistant, call_of, prompt_of, user
from tests.support.database import connected
from tests.support.replies import Script, chat_script
from tests.support.rows import set_memory, update_rows
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer, wait_until

LABEL = "To be confirmed by the user: "
LONG_AGO = timedelta(days=100)
SWEEPS = ("promotion", "demotion", "aging", "decay", "prune", "removal", "expiry", "aliases")


WORKER = True


@pytest.fixture(scope="module")
def script() -> Script:
    """A model that passes on what its context asks to have confirmed."""

    def answer(asked: dict[str, Any]) -> str:
        last = str(asked["messages"][-1]["content"])
        put = [line.removeprefix(LABEL) for line in last.splitlines() if line.startswith(LABEL)]
        return " ".join(["It is on its way.", *put])

    return chat_script(answer)


def test_the_workers_sweeps_are_seen_in_the_metrics(mneme: MnemeServer) -> None:
    _wait_for_the_worker(mneme)


def _wait_for_the_worker(mneme: MnemeServer) -> None:
    """Until it has swept what there was at its start."""

    def shown() -> bool:
        text = mneme.http.get("/metrics").text
        figures = [
            f'mneme_schedule_{what}{{task="{name}"}}' for what in ("changed", "last_run_seconds") for name in SWEEPS
        ]
        return all(figure in text for figure in figures)

    wait_until(shown, "every sweep has run once")


async def test_an_old_memory_is_swept_asked_about_and_confirmed(
    mneme: MnemeServer, api: Api, module_database: str
) -> None:
    _wait_for_the_worker(mneme)
    made = api.post("/memories", {"text": "Lives in Lisbon"})
    assert api.get("/memories/due") == {"memories": []}
    long_ago = datetime.now(UTC) - LONG_AGO
    async with connected(module_database) as admin:
        await update_rows(admin, "memory_store", {}, created_at=long_ago, last_validated_at=long_ago, confidence=0.85)
    done = mneme.command("sweep", "aging", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"sweep": "aging", "changed": 1}
    assert mneme.command("sweep", "aging").stdout == "aging: 0 changed.\n"
    assert api.get(f"/memories/{made['id']}")["status"] == "aging"

    (due,) = api.get("/memories/due")["memories"]
    assert due["id"] == made["id"]
    assert due["question"].endswith(" that says “Lives in Lisbon”; is that still right?")
    judged = api.post(f"/memories/{made['id']}/validate", {"answer": "no", "correction": "Lives in Faro"})
    assert judged["memory"]["superseded_by"] == judged["correction"]["id"]
    assert [each["text"] for each in api.all("/memories", "memories")] == ["Lives in Faro"]


def test_sweeps_can_be_run_by_hand_while_the_worker_runs(mneme: MnemeServer) -> None:
    for name in ("promotion", "decay"):
        done = mneme.command("sweep", name)
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"{name}: 0 changed.\n"


# --- put to the user by way of the model: the whole loop -------------------------------------------------------------------


async def learned_long_ago(mneme: MnemeServer, database: str, who: str, said: str) -> dict[str, Any]:
    """What a user said a hundred days ago, in doubt by now."""
    ask(mneme, said, headers={"x-mneme-user": who})
    api = Api(mneme, user=who)
    api.wait_for_quiet()
    (memory,) = api.all("/memories", "memories")
    at = datetime.now(UTC) - LONG_AGO
    async with connected(database) as admin:
        ages = {"created_at": at, "last_validated_at": at, "stated_at": at}
        await set_memory(admin, memory["id"], confidence=0.85, **ages)
    done = mneme.command("sweep", "aging")
    assert done.returncode == 0, done.stderr
    assert api.get(f"/memories/{memory['id']}")["status"] == "aging"
    return dict(memory)


@pytest.mark.parametrize("answer", ["Yes, that's right.", "No, Porto now.", "No, not any more."])
async def test_an_old_memory_is_asked_about_and_the_answer_holds(
    mneme: MnemeServer, upstream: ScriptedUpstream, module_database: str, answer: str
) -> None:
    who = f"ana {answer}"
    headers = {"x-mneme-user": who}
    memory = await learned_long_ago(mneme, module_database, who, "I live in Lisbon.")
    assert memory["text"] == "Lives in Lisbon"
    upstream.requests.clear()

    transcript = [user("Where do I live, and where is my parcel?")]
    first = ask(mneme, transcript, headers=headers)
    asked = prompt_of(upstream.requests[-1])
    assert asked.count(LABEL) == 1
    assert "that says “Lives in Lisbon”; is that still right?" in asked
    told = first.json()["choices"][0]["message"]["content"]
    assert told.endswith("is that still right?")
    api = Api(mneme, user=who)
    explained = api.get(f"/calls/{call_of(first)}/context")
    assert explained["sections"]["questions"]["asked"] == [memory["id"]]

    transcript += [assistant(told), user(answer)]
    second = ask(mneme, transcript, headers=headers)
    # It stands where it stood, and is not put again.
    assert prompt_of(upstream.requests[-1]).count(LABEL) == 1
    api.wait_for_quiet()
    after = api.get(f"/memories/{memory['id']}")
    profile = api.get(f"/users/{who}/profile")["profile"]
    if answer.startswith("Yes"):
        assert after["status"] == "active"
        assert after["confidence"] == pytest.approx(0.9)
        assert profile["personal"]["lives_in"] == "Lisbon"
        assert api.get("/memories/due") == {"memories": []}
    elif "Porto" in answer:
        assert after["status"] == "superseded"
        assert api.get(f"/memories/{after['superseded_by']}")["text"] == "Lives in Porto"
        assert profile["personal"]["lives_in"] == "Porto"
    else:
        assert after["status"] == "invalidated"
        assert "personal" not in profile

    transcript += [assistant(second.json()["choices"][0]["message"]["content"]), user("So where do I live?")]
    ask(mneme, transcript, headers=headers)
    block = prompt_of(upstream.requests[-1])
    if answer.startswith("No"):
        # What is not true any more left the prompt, but for what was said aloud.
        assert "- [fact] Lives in Lisbon" not in block
        assert LABEL not in block
