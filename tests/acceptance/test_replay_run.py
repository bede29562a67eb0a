"""`mneme replay run` against a real server: a labelled set of calls, as of then and today."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.clients import Api, ask, call_of
from tests.support.server import MnemeServer

pytestmark = pytest.mark.heavy

QUESTIONS = ("What do I play on Mondays?", "Where is my chess club?", "And with whom do I play chess?")


def run(mneme: MnemeServer, *arguments: str) -> subprocess.CompletedProcess[str]:
    return mneme.command("replay", "run", "--base", mneme.base_url, *arguments)


def report(mneme: MnemeServer, *arguments: str) -> dict[str, Any]:
    done = run(mneme, "--json", *arguments)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def labelled(mneme: MnemeServer) -> list[str]:
    """Three questions of Ana's, with what is known of her in them, labelled as a set: the last by its header."""
    headers = {"x-mneme-user": "ana"}
    with httpx.Client(base_url=mneme.base_url, headers=headers, timeout=30) as client:
        for text in ("Ana plays chess on Mondays.", "Ana's chess club is in Graz."):
            assert client.post("/api/v1/memories", json={"user": "ana", "text": text}).status_code == 201
        headers["x-mneme-session"] = "s"
        calls = [call_of(ask(mneme, text, headers=headers)) for text in QUESTIONS[:2]]
        calls.append(call_of(ask(mneme, QUESTIONS[2], headers=headers | {"x-mneme-label": "golden, " + "x" * 300})))
        for call in calls[:2]:
            answer = client.patch(f"/api/v1/calls/{call}", json={"labels": ["golden"]})
            assert answer.status_code == 200, answer.text
    return calls


def test_a_set_is_replayed_and_reported(mneme: MnemeServer, labelled: list[str], tmp_path: Path) -> None:
    same = report(mneme, "--label", "golden", "--as-of", "--fail-under", "1")
    assert (same["calls"], same["identical"], same["same_context"]) == (3, 3, 3)
    assert same["items"]["kept"] >= 2
    assert same["tokens"]["was"] == same["tokens"]["now"] > 0

    with httpx.Client(base_url=mneme.base_url, timeout=30) as client:
        body = {"user": "ana", "text": "Ana plays chess with Ivo on Mondays, at the chess club."}
        assert client.post("/api/v1/memories", json=body).status_code == 201
    today = report(mneme, "--label", "golden", "--user", "ana", "--out", str(tmp_path / "report.json"))
    assert today["identical"] < 3
    assert today["items"]["new"] >= 1
    assert json.loads((tmp_path / "report.json").read_text()) == today
    failed = run(mneme, "--label", "golden", "--fail-under", "1")
    assert failed.returncode == 1
    assert "3 of 3 calls compiled again (today)." in failed.stdout
    assert "with Ivo" in failed.stdout
    # As of then it is what it was, still.
    assert report(mneme, *(part for call in labelled for part in ("--call", call)), "--as-of")["identical"] == 3


def test_answers_are_compared(mneme: MnemeServer, labelled: list[str]) -> None:
    told = report(mneme, "--call", labelled[0], "--as-of", "--send")
    assert told["answers"]["identical"] == 1
    assert told["answers"]["failed"] == 0
    api = Api(mneme, user="ana")
    assert api.call(labelled[0])["labels"] == ["golden"]


def test_wrong_use_is_said(mneme: MnemeServer) -> None:
    assert run(mneme, "--call", "x", "--user", "ana").returncode == 2
    missing = run(mneme, "--call", "01a20196-3558-723d-b6b8-a219b6b97b60")
    assert missing.returncode == 0
    assert "1 skipped" in missing.stdout
    nobody = run(mneme, "--session", "nothing", "--user", "ana")
    assert nobody.returncode == 1
    assert "cannot be listed" in nobody.stderr
