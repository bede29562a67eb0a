"""Denied and forgotten memories stay away until the user says so again; people's verdicts are exported as labels."""

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
    return [memory["text"] for memory in api.all("/memories", "memories", user=name)]


def say(mneme: MnemeServer, api: Api, name: str, *texts_said: str) -> None:
    """Say this in a conversation of its own, the user first, and wait until it was learned from."""
    messages = [(user, assistant)[n % 2](text) for n, text in enumerate(texts_said)]
    assert ask(mneme, messages, headers={"x-mneme-user": name}).status_code == 200
    api.wait_for_quiet()


@pytest.mark.parametrize("way", ["page", "chat"])
@pytest.mark.parametrize("statement", ["I'm allergic to peanuts.", "My wife's name is Ana.", "I live in Lisbon."])
def test_what_was_forgotten_comes_back_when_the_user_says_it_again(
    mneme: MnemeServer, statement: str, way: str
) -> None:
    api, name = Api(mneme), f"{way} {statement}"
    say(mneme, api, name, statement)
    (text,) = texts(api, name)
    if way == "page":
        (memory,) = api.all("/memories", "memories", user=name)
        api.send("DELETE", f"/memories/{memory['id']}")
    else:
        say(
            mneme,
            api,
            name,
            f"Forget that {statement[0].lower() + statement[1:] if statement.startswith('My') else statement}",
        )
    assert texts(api, name) == []
    say(mneme, api, name, statement, "Noted.", "What is the capital of France?")
    assert texts(api, name) == [], "a transcript that is sent again"
    say(mneme, api, name, statement)
    assert texts(api, name) == [text], "the same words in a new message"


def test_what_was_denied_stays_away_from_an_import_and_is_exported_as_a_label(mneme: MnemeServer) -> None:
    api, name = Api(mneme), "denied"
    statement = "Good evening. I live in Lisbon." + FILLER
    line: dict[str, Any] = {"user": name, "role": "user", "content": statement, "created_at": "2026-03-01T10:00:00Z"}

    def import_line(session: str) -> None:
        body = json.dumps(line | {"session": session}).encode()
        response = mneme.http.post("/api/v1/import", content=body, headers={"content-type": "application/x-ndjson"})
        assert response.status_code == 200, response.text
        api.wait_for_quiet()

    import_line("old")
    (memory,) = api.all("/memories", "memories", user=name)
    (source,) = memory["provenance"]
    start, end = source["span"]
    assert (statement[start:end], source["quote"], source["way"]) == ("I live in Lisbon", "I live in Lisbon", "rule")
    assert memory["learned_by"] == "rule"
    api.post(f"/memories/{memory['id']}/invalidate", {})
    import_line("copy")
    assert texts(api, name) == []
    outright = api.post("/memories", {"user": name, "text": "Likes tea"})
    assert (outright["learned_by"], outright["provenance"]) == ("stated", [])
    api.post(f"/memories/{outright['id']}/validate", {"answer": "yes"})

    response = mneme.command("labels", "--user", name)
    assert response.returncode == 0, response.stderr
    (label,) = map(json.loads, response.stdout.splitlines())
    assert {key: label[key] for key in ("message", "start", "end", "kind", "subject", "way", "verdict")} == {
        "message": 0, "start": start, "end": end, "kind": "fact", "subject": "user", "way": "rule", "verdict": "not_true",
    }  # fmt: skip
    assert (label["conversation"], label["message_id"]) == (source["session_id"], source["message_id"])
    assert "text" not in label
    file = mneme.folder / "labels.jsonl"
    assert mneme.command("labels", "--text", "--out", str(file)).returncode == 0
    exported = [json.loads(row) for row in file.read_text().splitlines()]
    assert label | {"text": "I live in Lisbon"} in exported

    api.send("DELETE", f"/users/{name}")
    assert mneme.command("labels", "--user", name).stdout == ""
    wrong = mneme.command("labels", "--tenant", "nobody")
    assert (wrong.returncode, "There is no tenant nobody" in wrong.stderr) == (1, True)
