"""`mneme eval`, as a person runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


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
    file.write_text("\n".join(json.dumps(each) for each in [*lines, asked]))
    command = [sys.executable, "-m", "app.cli", "eval", str(file), "--budget", "100", "--json"]
    data = tmp_path / "data"
    done = subprocess.run(
        command,
        env=os.environ | {"MNEME_DATA_DIR": str(data)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["questions"], result["messages"], result["recall"]) == (1, 3, {"100": 1.0})
    assert not data.exists()


def test_a_profile_that_there_is_not_is_wrong_use(tmp_path: Path) -> None:
    file = tmp_path / "talk.jsonl"
    file.write_text("")
    done = subprocess.run(
        [sys.executable, "-m", "app.cli", "eval", str(file), "--profile", "none"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "prefill" in done.stderr
