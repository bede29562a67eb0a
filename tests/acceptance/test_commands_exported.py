"""What was told to memory in a chat, in an export of its user, and in an import of that."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.test_told_at_once import in_force
from tests.support.clients import Api, ask
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer, wait_until

HEADERS = {"x-mneme-user": "xenia"}


@pytest.fixture(scope="module")
def worker() -> bool:
    """It learns of what is imported."""
    return True


def test_what_was_forgotten_or_taken_back_stays_so_where_it_is_imported(
    mneme: MnemeServer, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    for said in (
        "I work at Acme.",
        "I live in Lisbon.",
        "Always answer me in bullet points.",
        "Please forget that I work at Acme.",
        "No more bullet points please",
        "I see a therapist. Don't remember this.",
    ):
        ask(mneme, said, headers=HEADERS)
    assert in_force(mneme, "xenia") == ["Lives in Lisbon"]
    whole, messages = tmp_path / "whole.jsonl", tmp_path / "messages.jsonl"
    for file, further in ((whole, ()), (messages, ("--messages",))):
        done = mneme.command("export", "--user", "xenia", "--out", str(file), "--base", mneme.base_url, *further)
        assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in whole.read_text().splitlines()]
    kinds = [row["row"]["kind"] for row in rows if row.get("table") == "memory_commands"]
    assert sorted(kinds) == ["forget", "forget", "stop"], "the whole export has what was done"
    moved = messages.read_text()
    assert "Acme" not in moved
    assert "therapist" not in moved
    messages.write_text(moved.replace('"user":"xenia"', '"user":"yara"'))
    for _ in range(2):
        done = mneme.command("import", str(messages), "--base", mneme.base_url)
        assert done.returncode == 0, done.stderr
    api = Api(mneme, user="yara")
    wait_until(lambda: api.get("/memories")["memories"], "the import to be learned from")
    wait_until(lambda: in_force(mneme, "yara") == ["Lives in Lisbon"], "the wish to be taken back")
    found = str(api.post("/memories/search", {"query": "Acme therapist", "history": True, "k": 50})["items"])
    assert "Lisbon" in found
    assert "Acme" not in found
    assert "therapist" not in found
    # What is undone after the export is undone for its user; the import has nothing that was forgotten.
    for each in Api(mneme, user="xenia").get("/commands")["commands"]:
        if each["undo"] is not None:
            assert mneme.http.post(each["undo"], headers=HEADERS).status_code == 200
    assert {"Works at Acme", "Lives in Lisbon"} < set(in_force(mneme, "xenia"))
    assert in_force(mneme, "yara") == ["Lives in Lisbon"]


def test_an_older_wish_that_is_imported_later_is_taken_back_too_and_an_undo_holds(
    mneme: MnemeServer, tmp_path: Path
) -> None:
    headers = {"x-mneme-user": "zoe"}
    api, file = Api(mneme, user="zoe"), tmp_path / "old.jsonl"
    ask(mneme, "Always use emojis.", headers=headers)
    ask(mneme, "You don't have to use emojis any more.", headers=headers)
    assert in_force(mneme, "zoe") == []

    def imported(session: str) -> None:
        said = [("user", "Always use emojis in answers."), ("assistant", "Sure."), ("user", "I live in Lisbon.")]
        lines = [
            {"user": "zoe", "session": session, "role": role, "content": text, "created_at": f"2026-01-03T10:0{n}:00Z"}
            for n, (role, text) in enumerate(said)
        ]
        file.write_text("".join(json.dumps(each) + "\n" for each in lines))
        done = mneme.command("import", str(file), "--base", mneme.base_url)
        assert done.returncode == 0, done.stderr

    imported("january")
    wait_until(lambda: in_force(mneme, "zoe") == ["Lives in Lisbon"], "the import to be learned from, less the wish")
    (done,) = api.get("/commands")["commands"]
    assert len(done["items"]) == 2
    mneme.http.post(done["undo"], headers=headers)
    stands = sorted(in_force(mneme, "zoe"))
    assert len(stands) >= 2
    imported("january, again")
    ask(mneme, "I have a cat.", headers=headers)
    wait_until(lambda: len(in_force(mneme, "zoe")) == len(stands) + 1, "what came after the import")
    assert set(stands) < set(in_force(mneme, "zoe")), "what was undone is not done again"


def test_what_two_imported_sessions_say_in_one_moment_is_learned(mneme: MnemeServer, tmp_path: Path) -> None:
    file, said = tmp_path / "moment.jsonl", ["I am allergic to peanuts.", "I work at Acme.", "I have a cat called Tom."]
    lines = [
        {"user": "ida", "session": session, "role": "user", "content": said[n], "created_at": "2025-05-03T00:00:00Z"}
        for session, n in (("x", 0), ("y", 0), ("x", 1), ("y", 2))
    ]
    file.write_text("".join(json.dumps(each) + "\n" for each in lines))
    done = mneme.command("import", str(file), "--base", mneme.base_url)
    assert done.returncode == 0, done.stderr
    wait_until(lambda: len(in_force(mneme, "ida")) == 3, "all of it to be learned, once")
