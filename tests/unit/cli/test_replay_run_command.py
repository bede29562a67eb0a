"""`mneme replay run`: what it asks for, and what it makes of the answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
import respx
from click.testing import CliRunner
from rich.console import Console

from app.cli import main
from app.features.replay.command import ReplayFailed, Selection, readable, report, run
from tests.support.tables import each_of

BASE = "http://mneme.test"
CHAT = {"method": "POST", "path": "/v1/chat/completions?x=1"}


def outcome(call: str, *, identical: bool = True, **changes: Any) -> dict[str, Any]:
    """Return what the route answers for a call, with these sides of its answer."""
    answer: dict[str, Any] = {
        "identical": identical, "status": {"was": 200, "now": 200}, "error": {"was": None, "now": None},
        "text": {"was": "a", "now": "a" if identical else "b", "difference": [] if identical else ["-a", "+b"]},
        "latency_ms": {"was": 100, "now": 50}, "prompt_tokens": {"was": 10, "now": 10},
        "completion_tokens": {"was": None, "now": None},
    }  # fmt: skip
    return {"call_id": call, "created_at": "2026", "model": "m", "answer": answer | changes}


def answers(*codes: str) -> dict[str, Any]:
    return {"error": {"message": f"It is {codes[0]}.", "type": "conflict_error", "param": None, "code": codes[0]}}


def test_a_report_adds_up() -> None:
    summary = report(
        [
            outcome("a"),
            outcome("b", identical=False, completion_tokens={"was": 4, "now": 6}),
            outcome("c", identical=False, status={"was": 200, "now": None}, error={"was": None, "now": "away"}),
            {"call_id": "d", "skipped": "not_a_chat", "why": "no"},
        ],
    )
    assert (summary["calls"], summary["replayed"], summary["skipped"]) == (4, 3, {"not_a_chat": 1})
    assert (summary["identical"], summary["failed"]) == (1, 1)
    assert summary["share_identical"] == pytest.approx(1 / 3)
    assert summary["latency_ms"] == {"was": 100, "now": 50}
    assert summary["completion_tokens"] == {"was": 4, "now": 6}
    assert [changed["call_id"] for changed in summary["changed"]] == ["b", "c"]
    text = readable(summary)
    assert "3 of 4 calls sent again." in text
    assert "1 answers identical (33.3%), 1 failed." in text
    assert "1 skipped: not_a_chat" in text
    assert "latency 100" in text.lower()
    assert "+b" in text
    assert "c  away" in text


def test_a_report_of_nothing() -> None:
    summary = report([])
    assert summary["share_identical"] is None
    assert readable(summary) == "No call was chosen."
    skipped = report([{"call_id": "d", "skipped": "not_captured", "why": "no"}])
    assert readable(skipped) == "0 of 1 calls sent again.\n  1 skipped: not_captured"


@respx.mock
def test_calls_are_chosen_page_by_page() -> None:
    pages = [
        {"calls": [{"id": "a", **CHAT}, {"id": "x", "method": "GET", "path": "/v1/models"}], "next": "n"},
        {"calls": [{"id": "b", **CHAT}, {"id": "c", **CHAT}], "next": None},
    ]
    listing = respx.get(f"{BASE}/api/v1/calls").mock(side_effect=[httpx.Response(200, json=each) for each in pages])
    posts = [
        respx.post(f"{BASE}/api/v1/calls/{call}/replay").mock(return_value=answer)
        for call, answer in (
            ("a", httpx.Response(200, json=outcome("a"))),
            ("b", httpx.Response(409, json=answers("not_a_chat"))),
        )
    ]
    told = run(
        BASE, "mneme_k", "Bearer sk", Selection(filters={"label": ["golden", "x"]}, limit=2),
        console=Console(stderr=True, quiet=True),
    )  # fmt: skip
    assert (told["replayed"], told["skipped"]) == (1, {"not_a_chat": 1})
    assert told["not_replayed"] == [{"call_id": "b", "skipped": "not_a_chat", "why": "It is not_a_chat."}]
    first, second = (each.request for each in listing.calls)
    assert first.url.params.get_list("label") == ["golden", "x"]
    assert second.url.params["cursor"] == "n"
    assert json.loads(posts[0].calls.last.request.content) == {}
    assert posts[0].calls.last.request.headers["x-mneme-key"] == "mneme_k"
    assert posts[0].calls.last.request.headers["authorization"] == "Bearer sk"


@respx.mock
@pytest.mark.parametrize(
    "refusal",
    [httpx.Response(401, json=answers("bad_key")), httpx.Response(500, content=b"x"), httpx.ConnectError("refused")],
)
def test_what_is_wrong_with_all_ends_it(refusal: httpx.Response | Exception) -> None:
    respx.post(f"{BASE}/api/v1/calls/a/replay").mock(side_effect=[refusal])
    with pytest.raises(ReplayFailed):
        run(BASE, None, None, Selection(["a"]), console=Console(stderr=True, quiet=True))


@respx.mock
def test_the_command_fails_under_a_share(tmp_path: Path) -> None:
    respx.post(url__regex=rf"{BASE}/api/v1/calls/\w/replay").mock(
        side_effect=lambda request: httpx.Response(200, json=outcome("x", identical="/a/" in str(request.url)))
    )
    asked = ["replay", "run", "--base", BASE, "--call", "a", "--call", "b", "--json", "--out", str(tmp_path / "r.json")]
    runner = CliRunner()
    assert runner.invoke(main, asked).exit_code == 0
    assert runner.invoke(main, [*asked, "--fail-under", "0.5"]).exit_code == 0
    assert runner.invoke(main, [*asked, "--fail-under", "0.6"]).exit_code == 1
    assert json.loads((tmp_path / "r.json").read_text())["identical"] == 1
    assert json.loads(runner.invoke(main, asked).stdout)["calls"] == 2
    for wrong in ([*asked, "--user", "ana"], ["replay", "run", "--fail-under", "2"], ["replay", "run", "--since", "x"]):
        assert runner.invoke(main, wrong).exit_code == 2
    bad = runner.invoke(main, ["replay", "run", "--base", BASE, "--call", "a", "--out", str(tmp_path / "no" / "r")])
    assert bad.exit_code == 1
    assert "cannot be written" in bad.output


def test_a_set_that_is_empty_is_no_success() -> None:
    with respx.mock:
        respx.get(f"{BASE}/api/v1/calls").mock(return_value=httpx.Response(200, json={"calls": [], "next": None}))
        asked = ["replay", "run", "--base", BASE, "--label", "golden", "--since", "2026-11-01"]
        assert CliRunner().invoke(main, asked).exit_code == 0
        assert CliRunner().invoke(main, [*asked, "--fail-under", "0"]).exit_code == 1


@each_of(
    ("option", "instead"),
    [("--as-of", "a replay sends the stored requests as they are"), ("--send", "a replay always sends the requests")],
)
def test_a_removed_option_is_refused_with_what_replaces_it(option: str, instead: str) -> None:
    refused = CliRunner().invoke(main, ["replay", "run", "--base", BASE, "--call", "a", option])
    assert refused.exit_code == 2
    assert f"{option} is no longer an option: {instead}; leave it out." in " ".join(refused.output.split())
    assert option not in CliRunner().invoke(main, ["replay", "run", "--help"]).output
