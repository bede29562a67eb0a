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
from app.features.replay.command import ReplayFailed, ReplayOptions, Selection, readable, report, run

BASE = "http://mneme.test"
CHAT = {"method": "POST", "path": "/v1/chat/completions?x=1"}


def outcome(call: str, *, identical: bool = True, **changes: int) -> dict[str, Any]:
    counts = dict.fromkeys(("kept", "moved", "rescored", "new", "gone"), 0) | changes
    side = {"rank": 1, "score": 0.5, "reason": "chosen", "signals": {}}
    none: dict[str, Any] = {"rank": None, "score": None, "reason": "forgotten", "signals": {}}
    items = [
        {
            "id": f"{call}-{name}-{n}", "change": name, "text": None if name == "gone" else "words", "kind": "fact",
            "was": side if name != "new" else none, "now": side if name != "gone" else none,
        }
        for name, many in counts.items() for n in range(many)
    ]  # fmt: skip
    return {
        "call_id": call, "identical": identical, "changes": counts, "items": items, "created_at": "2026", "model": "m",
        "tokens": {"was": 10, "now": 20}, "eta": {"was": 0.5, "now": 1.0}, "rebased": {"was": None, "now": None},
        "notes": [],
    }  # fmt: skip


def answers(*codes: str) -> dict[str, Any]:
    return {"error": {"message": f"It is {codes[0]}.", "type": "conflict_error", "param": None, "code": codes[0]}}


def test_a_report_adds_up() -> None:
    told = report(
        ReplayOptions("as_of"),
        [
            outcome("a", kept=3),
            outcome("b", identical=False, kept=1, new=2, gone=1),
            outcome("c", identical=False, rescored=1),
            {"call_id": "d", "skipped": "not_compiled", "why": "no"},
        ],
    )
    assert (told["calls"], told["replayed"], told["skipped"]) == (4, 3, {"not_compiled": 1})
    assert (told["identical"], told["same_context"]) == (1, 2)
    assert told["share_identical"] == pytest.approx(1 / 3)
    assert told["items"] == {"kept": 4, "moved": 0, "rescored": 1, "new": 2, "gone": 1}
    assert told["forgotten"] == 1
    assert told["tokens"] == {"was": 10, "now": 20}
    assert told["eta"] == {"was": 0.5, "now": 1.0}
    assert [each["call_id"] for each in told["changed"]] == ["b", "c"]
    assert {each["change"] for each in told["changed"][0]["items"]} == {"new", "gone"}
    text = readable(told)
    assert "3 of 4 calls compiled again (as_of)." in text
    assert "1 prompts identical to the byte (33.3%); 2 with the same items." in text
    assert "1 skipped: not_compiled" in text
    assert "1 of them forgotten since" in text
    assert "gone" in text


def test_a_report_of_nothing() -> None:
    told = report(ReplayOptions(), [])
    assert told["share_identical"] is None
    assert readable(told) == "No call was chosen."
    skipped = report(ReplayOptions(), [{"call_id": "d", "skipped": "version", "why": "no"}])
    assert readable(skipped) == "0 of 1 calls compiled again (today).\n  1 skipped: version"


def test_answers_are_counted() -> None:
    both = {"was": 100, "now": 50}
    answer = {
        "identical": False, "status": {"was": 200, "now": None}, "latency_ms": both, "prompt_tokens": both,
        "completion_tokens": {"was": None, "now": None},
    }  # fmt: skip
    told = report(ReplayOptions(send=True), [outcome("a") | {"answer": answer}])
    assert told["answers"] == {
        "identical": 0, "failed": 1, "latency_ms": both, "prompt_tokens": both,
        "completion_tokens": {"was": None, "now": None},
    }  # fmt: skip
    assert "latency 100 → 50 ms, tokens ? → ?" in readable(told)


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
            ("a", httpx.Response(200, json=outcome("a", kept=1))),
            ("b", httpx.Response(409, json=answers("not_compiled"))),
        )
    ]
    told = run(
        BASE, "mneme_k", "Bearer sk", Selection(filters={"label": ["golden", "x"]}, limit=2), ReplayOptions("as_of"),
        console=Console(stderr=True, quiet=True),
    )  # fmt: skip
    assert (told["replayed"], told["skipped"]) == (1, {"not_compiled": 1})
    assert told["not_replayed"] == [{"call_id": "b", "skipped": "not_compiled", "why": "It is not_compiled."}]
    first, second = (each.request for each in listing.calls)
    assert first.url.params.get_list("label") == ["golden", "x"]
    assert second.url.params["cursor"] == "n"
    assert json.loads(posts[0].calls.last.request.content) == {"mode": "as_of", "send": False}
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
        run(BASE, None, None, Selection(["a"]), ReplayOptions(), console=Console(stderr=True, quiet=True))


@respx.mock
def test_the_command_fails_under_a_share(tmp_path: Path) -> None:
    respx.post(url__regex=rf"{BASE}/api/v1/calls/\w/replay").mock(
        side_effect=lambda request: httpx.Response(200, json=outcome("x", identical="/a/" in str(request.url), kept=1))
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
