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
        assert 0 < figures["precision"] <= 1
    tokens = [each["tokens"] for each in result["prices"].values()]
    assert 0 < tokens[0] <= tokens[1] <= tokens[2]
    assert not data.exists()


def test_a_profile_that_there_is_not_is_wrong_use(tmp_path: Path) -> None:
    file = tmp_path / "talk.jsonl"
    file.write_text("")
    done = run(["eval", str(file), "--profile", "none"], environment=os.environ, folder=tmp_path)
    assert done.returncode == 2
    assert "prefill" in done.stderr
