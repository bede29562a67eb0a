"""What `mneme replay run` does: captured calls compiled again by a running Mneme, and a report of what became of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import mean
from typing import Any

import httpx
from msgspec import Struct, field
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from app.errors import MnemeError

TIMEOUT_S = 300.0
"""Seconds for one replay: with `--send` an upstream answers."""
PAGE = 200
"""Calls listed at a time."""
CHANGES = ("kept", "moved", "rescored", "new", "gone")
SHOWN = 20
"""Changed calls that the readable report names; the JSON has all."""


class ReplayFailed(MnemeError):
    """The replay failed."""


class Selection(Struct, frozen=True):
    """Which calls: these ids, else those that the filters of GET /api/v1/calls choose, newest first, `limit` at most."""

    ids: Sequence[str] = ()
    filters: Mapping[str, Any] = field(default_factory=dict)
    limit: int = 1000


class Wish(Struct, frozen=True):
    """How to replay: see POST /api/v1/calls/{id}/replay."""

    mode: str = "today"
    send: bool = False


def run(
    base: str, key: str | None, authorization: str | None, selection: Selection, wish: Wish, *, console: Console
) -> dict[str, Any]:
    """Replay a selection on the Mneme at `base`, and report. `authorization`: for the upstream, with `send`, where Mneme has no
    key of its own. Raises ReplayFailed; what one call is refused for is told in the report."""
    headers = {"x-mneme-key": key} if key is not None else {}
    if authorization is not None:
        headers["authorization"] = authorization
    columns = (TextColumn("replaying"), BarColumn(), MofNCompleteColumn())
    with (
        httpx.Client(base_url=base, headers=headers, timeout=TIMEOUT_S) as client,
        Progress(*columns, console=console) as progress,
    ):
        try:
            wanted = list(selection.ids) or list(_listed(client, selection))
            task = progress.add_task("replay", total=len(wanted))
            outcomes = []
            for each in wanted:
                outcomes.append(_replayed(client, each, wish))
                progress.advance(task)
        except httpx.HTTPError as error:
            raise ReplayFailed(f"{base} cannot be reached: {error}. Is `mneme serve` running?") from error
    return report(wish, outcomes)


def _listed(client: httpx.Client, selection: Selection) -> Iterator[str]:
    """The ids of the chat calls that the filters choose."""
    cursor, left = None, selection.limit
    while left > 0:
        params = {**selection.filters, "limit": PAGE} | ({"cursor": cursor} if cursor is not None else {})
        answer = client.get("/api/v1/calls", params=params)
        if answer.status_code != 200:
            raise ReplayFailed(f"The calls cannot be listed: {_reason(answer)[1]}")
        page = answer.json()
        for each in page["calls"]:
            if each["method"] == "POST" and each["path"].partition("?")[0] == "/v1/chat/completions" and left > 0:
                left -= 1
                yield each["id"]
        cursor = page["next"]
        if cursor is None:
            return


def _replayed(client: httpx.Client, call: str, wish: Wish) -> dict[str, Any]:
    answer = client.post(f"/api/v1/calls/{call}/replay", json={"mode": wish.mode, "send": wish.send})
    if answer.status_code == 200:
        return {"call_id": call, **answer.json()}
    if answer.status_code in (401, 403) or answer.status_code >= 500:
        # What is wrong with the key or the server is wrong with every call.
        raise ReplayFailed(f"The call {call} was not replayed: {_reason(answer)[1]}")
    code, message = _reason(answer)
    return {"call_id": call, "skipped": code, "why": message}


def report(wish: Wish, outcomes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The report over all calls. `identical`: prompts that are what they were to the byte, of those that were compiled again;
    `same_context`: those with the same items in the same order; tokens are those that Mneme added, and η as in the audit, both
    as means over the calls; `skipped`: calls that could not be compiled again, by reason."""
    done = [each for each in outcomes if "skipped" not in each]
    changes = Counter[str]()
    for each in done:
        changes.update(each["changes"])
    told: dict[str, Any] = {
        "mode": wish.mode,
        "calls": len(outcomes),
        "replayed": len(done),
        "skipped": dict(Counter(each["skipped"] for each in outcomes if "skipped" in each)),
        "identical": sum(each["identical"] for each in done),
        "share_identical": _share([each["identical"] for each in done]),
        "same_context": sum(_is_same(each) for each in done),
        "items": {name: changes[name] for name in CHANGES},
        "forgotten": sum(
            item["now"]["reason"] == "forgotten" for each in done for item in each["items"] if item["change"] == "gone"
        ),
    }
    for name in ("tokens", "eta"):
        told[name] = {side: _mean([each[name][side] for each in done]) for side in ("was", "now")}
    if wish.send:
        answers = [each["answer"] for each in done]
        told["answers"] = {
            "identical": sum(each["identical"] for each in answers),
            "failed": sum(each["status"]["now"] is None or each["status"]["now"] >= 300 for each in answers),
        } | {
            name: {side: _mean([each[name][side] for each in answers]) for side in ("was", "now")}
            for name in ("latency_ms", "prompt_tokens", "completion_tokens")
        }
    told["changed"] = [_changed(each) for each in done if not each["identical"]]
    told["not_replayed"] = [dict(each) for each in outcomes if "skipped" in each]
    return told


def _is_same(outcome: Mapping[str, Any]) -> bool:
    changes = outcome["changes"]
    return not (changes["moved"] or changes["new"] or changes["gone"])


def _changed(outcome: Mapping[str, Any]) -> dict[str, Any]:
    items = [each for each in outcome["items"] if each["change"] != "kept"]
    same = ("call_id", "created_at", "model", "changes", "tokens", "eta", "rebased", "notes")
    return {name: outcome[name] for name in same} | {"items": items}


def readable(told: Mapping[str, Any]) -> str:
    """The report for a person."""
    if not told["calls"]:
        return "No call was chosen."
    lines = [f"{told['replayed']} of {told['calls']} calls compiled again ({told['mode']})."]
    lines += [f"  {many} skipped: {why}" for why, many in told["skipped"].items()]
    if not told["replayed"]:
        return "\n".join(lines)
    share = f"{told['share_identical']:.1%}"
    lines.append(
        f"{told['identical']} prompts identical to the byte ({share}); {told['same_context']} with the same items."
    )
    lines.append("Items: " + ", ".join(f"{told['items'][name]} {name}" for name in CHANGES) + _forgotten(told))
    lines.append(f"Tokens added: {_pair(told['tokens'], '.1f')}; eta: {_pair(told['eta'], '.3f')} (means).")
    if "answers" in told:
        answers = told["answers"]
        lines.append(
            f"Answers: {answers['identical']} identical, {answers['failed']} failed; "
            f"latency {_pair(answers['latency_ms'], '.0f')} ms, tokens {_pair(answers['completion_tokens'], '.1f')}."
        )
    for each in told["changed"][:SHOWN]:
        changes = ", ".join(f"{many} {name}" for name, many in each["changes"].items() if many and name != "kept")
        lines.append(f"  {each['call_id']}  {changes or 'the same items, other bytes'}")
        for item in each["items"]:
            words = " ".join((item["text"] or "(forgotten)").split())[:80]
            lines.append(f"      {item['change']:<8} {_side(item['was'])} → {_side(item['now'])}  {words}")
    if len(told["changed"]) > SHOWN:
        lines.append(f"  and {len(told['changed']) - SHOWN} more; --json has all.")
    return "\n".join(lines)


def _forgotten(told: Mapping[str, Any]) -> str:
    return f" ({told['forgotten']} of them forgotten since)." if told["forgotten"] else "."


def _side(side: Mapping[str, Any]) -> str:
    place = f"#{side['rank']}" if side["rank"] is not None else side["reason"]
    return f"{place} ({side['score']:.3f})" if side["score"] is not None else place


def _pair(sides: Mapping[str, float | None], form: str) -> str:
    was, now = (f"{each:{form}}" if each is not None else "?" for each in (sides["was"], sides["now"]))
    return f"{was} → {now}"


def _mean(values: Sequence[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return round(mean(known), 4) if known else None


def _share(flags: Sequence[bool]) -> float | None:
    return sum(flags) / len(flags) if flags else None


def _reason(answer: httpx.Response) -> tuple[str, str]:
    try:
        error = answer.json()["error"]
        return str(error["code"] or f"http_{answer.status_code}"), str(error["message"])
    except (ValueError, LookupError, TypeError):
        return f"http_{answer.status_code}", f"HTTP {answer.status_code}"
