"""How much is kept: sampling, retention by the command, and names of settings that nobody knows."""

from __future__ import annotations

import json

import pytest

from tests.support.clients import Api, answer_of, ask, call_of, prompt_of
from tests.support.replies import Script, chat_script
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    return {"CAPTURE_SAMPLE": "0", "CAPTURE_DAYS": "30", "HISTORY_DAYS": "31", "CAPTURE_DAYZ": "3"}


@pytest.fixture(scope="module")
def script() -> Script:
    return chat_script(lambda asked: "Noted.")


def test_of_a_call_outside_of_the_sample_the_turn_is_kept(
    mneme: MnemeServer, upstream: ScriptedUpstream, api: Api
) -> None:
    first = ask(mneme, "My boat is called Estrela.", headers={"x-mneme-session": "s"})
    assert answer_of(first) == "Noted."
    assert api.said("s") == [("user", "My boat is called Estrela."), ("assistant", "Noted.")]
    call = api.call(call_of(first))
    assert call["metadata"] == {"captured": False}
    assert (call["request_headers"], call["response_bytes"], call["usage"]["prompt_tokens"] > 0) == ([], None, True)
    assert api.send("GET", f"/calls/{call_of(first)}/raw").status_code == 404
    upstream.requests.clear()
    ask(mneme, "What is my boat called?")
    assert "Estrela" in prompt_of(upstream.requests[-1])


def test_retention_by_the_command(mneme: MnemeServer) -> None:
    for options in (["--dry-run"], []):
        done = mneme.command("retention", "--json", *options)
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert told["dry_run"] == bool(options)
        assert (told["months"], told["calls"]) == ([], 0)
        assert told["before"] is not None
    assert "Of the captures before" in mneme.command("retention").stdout


def test_archives_by_the_commands(mneme: MnemeServer) -> None:
    done = mneme.command("archive", "run", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["months"] == []
    assert "archive: 0 changed." in mneme.command("sweep", "archive").stdout
    assert "Nothing is archived." in mneme.command("archive", "list", "--check").stdout
    absent = mneme.command("archive", "restore", "2020-01")
    assert (absent.returncode, "Nothing of 2020-01 is archived." in absent.stderr) == (1, True)
    assert mneme.command("archive", "restore", "2020-13").returncode == 2
    absent = mneme.command("archive", "drop", "2020-01", "--yes")
    assert (absent.returncode, "Nothing of 2020-01 is archived." in absent.stderr) == (1, True)
    assert mneme.command("archive", "drop", "2020-01").returncode == 1, "nobody is there to say yes"


def test_a_name_that_no_setting_has_is_told_at_the_start_and_by_the_doctor(mneme: MnemeServer) -> None:
    told = "MNEME_CAPTURE_DAYZ in the environment is no setting. Is MNEME_CAPTURE_DAYS meant?"
    mneme.wait_for_log(told)
    assert len(mneme.said(told)) == 1
    findings = json.loads(mneme.command("doctor", "--json").stdout)
    assert told in [each["what"] for each in findings if each["level"] == "warning"]
    assert [each["what"] for each in findings if each["what"].startswith("Stored: captures ")]
