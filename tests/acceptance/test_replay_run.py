"""`mneme replay run` against a real server: a labelled set of calls, sent again."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.clients import Api, ask, call_of
from tests.support.replies import chat_script
from tests.support.scripted import ScriptedUpstream
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


def test_a_set_is_sent_again_and_reported(mneme: MnemeServer, labelled: list[str], tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    same = report(mneme, "--label", "golden", "--fail-under", "1", "--out", str(out))
    assert (same["calls"], same["replayed"], same["identical"], same["failed"]) == (3, 3, 3, 0)
    assert json.loads(out.read_text()) == same
    assert report(mneme, *(part for call in labelled for part in ("--call", call)))["identical"] == 3
    assert Api(mneme, user="ana").call(labelled[0])["labels"] == ["golden"]


def test_other_answers_are_told(mneme: MnemeServer, upstream: ScriptedUpstream, labelled: list[str]) -> None:
    script = upstream.script
    upstream.script = chat_script(lambda asked: "Something else.")
    try:
        failed = run(mneme, "--label", "golden", "--fail-under", "1")
    finally:
        upstream.script = script
    assert failed.returncode == 1
    assert "3 of 3 calls sent again." in failed.stdout
    assert "+Something else." in failed.stdout


@pytest.mark.parametrize("option", ["--as-of", "--send"])
def test_a_removed_option_says_what_replaces_it(mneme: MnemeServer, option: str) -> None:
    refused = run(mneme, "--label", "golden", option)
    assert refused.returncode == 2
    assert f"{option} is no longer an option" in " ".join(refused.stderr.split())


def test_wrong_use_is_said(mneme: MnemeServer) -> None:
    assert run(mneme, "--call", "x", "--user", "ana").returncode == 2
    missing = run(mneme, "--call", "01a20196-3558-723d-b6b8-a219b6b97b60")
    assert missing.returncode == 0
    assert "1 skipped" in missing.stdout
    nobody = run(mneme, "--session", "nothing", "--user", "ana")
    assert nobody.returncode == 1
    assert "cannot be listed" in nobody.stderr
