"""`mneme eval`, as a person runs it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.forking import run


@pytest.mark.heavy
def test_an_evaluation_from_a_file(tmp_path: Path) -> None:
    """It makes a database of its own, and leaves nothing behind."""
    said = ["My sister Olga keeps bees in Riga.", "I sold the old boat to a fisherman.", "The dentist is on Monday."]
    lines = [
        {"user": "ana", "session": "s", "role": "user", "content": text, "metadata": {"id": str(n)}}
        for n, text in enumerate(said)
    ]
    file = tmp_path / "talk.jsonl"
    asked = {"user": "ana", "question": "Who keeps bees?", "evidence": ["0"], "kind": "plain"}
    idle = {"user": "ana", "question": "What is 17 times 23?", "evidence": []}
    file.write_text("\n".join(json.dumps(each) for each in [*lines, asked, idle]))
    data = tmp_path / "data"
    done = run(
        ["eval", str(file), "--budget", "100", "--json"],
        environment=os.environ | {"MNEME_DATA_DIR": str(data)},
        folder=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["questions"], result["messages"], result["recall"]) == (1, 3, {"100": 1.0})
    assert list(result["prices"]) == ["frugal", "balanced", "thorough"]
    for figures in result["prices"].values():
        assert (figures["recall"], figures["unrelated"], figures["unrelated_median"]) == (1.0, 0, 0)
        assert 0 <= figures["precision"] <= 1  # of messages: what is told as a memory is not quoted again
    tokens = [each["tokens"] for each in result["prices"].values()]
    assert 0 < tokens[0] <= tokens[1] <= tokens[2]
    assert not data.exists()


def test_a_profile_that_there_is_not_is_wrong_use(tmp_path: Path) -> None:
    file = tmp_path / "talk.jsonl"
    file.write_text("")
    done = run(["eval", str(file), "--profile", "none"], environment=os.environ, folder=tmp_path)
    assert done.returncode == 2
    assert "prefill" in done.stderr


@pytest.mark.heavy
def test_what_is_learned_from_a_file_is_shown_with_its_words_and_ways(tmp_path: Path) -> None:
    """The file needs no question."""
    contents = ["Good morning! I live in Lisbon.", "Hello", "I work in the affiliate team at a company called Foo."]
    lines = [
        {"user": "ana", "session": "s", "role": role, "content": text, "created_at": f"2026-03-0{n + 1}T10:00:00Z"}
        for n, (text, role) in enumerate(zip(contents, ["user", "assistant", "user"], strict=True))
    ]
    file = tmp_path / "talk.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    environment = os.environ | {"MNEME_DATA_DIR": str(tmp_path / "data")}
    command = run(["eval", str(file), "--learned", "--json"], environment=environment, folder=tmp_path)
    assert command.returncode == 0, command.stderr
    result = json.loads(command.stdout)
    assert (result["messages"], result["sessions"], result["ways"]) == (3, 1, {"judge": 1, "rule": 1})
    home, job = result["memories"]
    assert (home["text"], home["words"], home["way"], home["message"]) == (
        "Lives in Lisbon", "I live in Lisbon", "rule", 0,
    )  # fmt: skip
    assert (job["way"], job["message"], contents[2][slice(*job["span"])]) == ("judge", 2, job["words"])
    table = run(["eval", str(file), "--learned"], environment=environment, folder=tmp_path).stdout
    assert "ana, session s" in table
    assert "fact, learned from “I live in Lisbon” on 2026-03-01 by rule" in table
    assert "by way: judge 1, rule 1" in table
