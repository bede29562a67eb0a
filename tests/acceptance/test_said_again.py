"""What was denied or forgotten stays away until the user says it again; and what people said of memories, as labels."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.clients import Api, ask, assistant, user
from tests.support.server import MnemeServer

FILLER = " Please help me plan the week of the whole team, which is a long story." * 4
"""Makes a message so long that it is not hidden with one memory that ended."""


@pytest.fixture(scope="module")
def worker() -> bool:
    return True


def texts(api: Api, name: str) -> list[str]:
    return [each["text"] for each in api.all("/memories", "memories", user=name)]


def say(mneme: MnemeServer, api: Api, name: str, *said: str) -> None:
    """Say this in a conversation of its own, the user first, and wait until it was learned from."""
    messages = [(user, assistant)[n % 2](text) for n, text in enumerate(said)]
    assert ask(mneme, messages, headers={"x-mneme-user": name}).status_code == 200
    api.wait_for_quiet()


@pytest.mark.parametrize("way", ["page", "chat"])
@pytest.mark.parametrize("said", ["I'm allergic to peanuts.", "My wife's name is Ana.", "I live in Lisbon."])
def test_what_was_forgotten_comes_back_when_the_user_says_it_again(mneme: MnemeServer, said: str, way: str) -> None:
    api, name = Api(mneme), f"{way} {said}"
    say(mneme, api, name, said)
    (kept,) = texts(api, name)
    if way == "page":
        (memory,) = api.all("/memories", "memories", user=name)
        api.send("DELETE", f"/memories/{memory['id']}")
    else:
        say(mneme, api, name, f"Forget that {said[0].lower() + said[1:] if said.startswith('My') else said}")
    assert texts(api, name) == []
    say(mneme, api, name, said, "Noted.", "What is the capital of France?")
    assert texts(api, name) == [], "a transcript that is sent again"
    say(mneme, api, name, said)
    assert texts(api, name) == [kept], "the same words in a new message"


def test_what_was_denied_stays_away_from_an_import_and_is_exported_as_a_label(mneme: MnemeServer) -> None:
    api, name = Api(mneme), "denied"
    said = "Good evening. I live in Lisbon." + FILLER
    line: dict[str, Any] = {"user": name, "role": "user", "content": said, "created_at": "2026-03-01T10:00:00Z"}

    def imports(session: str) -> None:
        body = json.dumps(line | {"session": session}).encode()
        done = mneme.http.post("/api/v1/import", content=body, headers={"content-type": "application/x-ndjson"})
        assert done.status_code == 200, done.text
        api.wait_for_quiet()

    imports("old")
    (memory,) = api.all("/memories", "memories", user=name)
    (source,) = memory["provenance"]
    start, end = source["span"]
    assert (said[start:end], source["quote"], source["way"]) == ("I live in Lisbon", "I live in Lisbon", "rule")
    assert memory["learned_by"] == "rule"
    api.post(f"/memories/{memory['id']}/invalidate", {})
    imports("copy")
    assert texts(api, name) == []
    outright = api.post("/memories", {"user": name, "text": "Likes tea"})
    assert (outright["learned_by"], outright["provenance"]) == ("stated", [])
    api.post(f"/memories/{outright['id']}/validate", {"answer": "yes"})

    done = mneme.command("labels", "--user", name)
    assert done.returncode == 0, done.stderr
    (label,) = map(json.loads, done.stdout.splitlines())
    assert {key: label[key] for key in ("message", "start", "end", "kind", "subject", "way", "verdict")} == {
        "message": 0, "start": start, "end": end, "kind": "fact", "subject": "user", "way": "rule", "verdict": "not_true",
    }  # fmt: skip
    assert (label["conversation"], label["message_id"]) == (source["session_id"], source["message_id"])
    assert "text" not in label
    file = mneme.folder / "labels.jsonl"
    assert mneme.command("labels", "--text", "--out", str(file)).returncode == 0
    written = [json.loads(each) for each in file.read_text().splitlines()]
    assert label | {"text": "I live in Lisbon"} in written

    api.send("DELETE", f"/users/{name}")
    assert mneme.command("labels", "--user", name).stdout == ""
    wrong = mneme.command("labels", "--tenant", "nobody")
    assert (wrong.returncode, "There is no tenant nobody" in wrong.stderr) == (1, True)
