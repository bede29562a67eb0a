"""Whatever people, models and tools say is text: nothing of it runs, and nothing of it breaks a page."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.async_api import Browser

from tests.support.browsing import NARROW, WIDE, visiting
from tests.support.replies import Reply, chat_script, reply_json
from tests.support.server import MnemeServer, wait_until
from tests.support.ui_pages import Reached, patterns, reachable
from tests.support.ui_served import Served, serving
from tests.support.ui_world import World

pytestmark = pytest.mark.heavy

SCRIPT = "<script>alert('run')</script>"
BREAK = "\"'><img src=x onerror=alert('run')><svg onload=alert('run')>"
RTL = "‮gnp.exe‬ مرحبا ​‍️"
LONG = "W" * 10_000
EMOJI = "👩‍🚀🏳️‍🌈 𝕌𝕟𝕚𝕔𝕠𝕕𝕖 Z͑ͫ̓ͪ̂ͫ̽͏a̴l̶g̷o"
JINJA = "{{ 7 * 7 }}{% raw %}${7*7}#{7*7}"
LINK = "javascript:alert('run')"
TEXTS = (SCRIPT, BREAK, RTL, EMOJI, JINJA, LINK, f"before {LONG}", "nul \x00 and \x1b[31m")
USER = f"{SCRIPT}/{BREAK}%2F..?#&"
SESSION = f"{BREAK} {RTL} {'S' * 300}"
MARK = "<script>alert"
STRANGE = "document.querySelectorAll('main img, main script, main iframe, main b, [onerror], [onload]').length"
"""Elements that no template of ours has."""


def _post(mneme: MnemeServer, path: str, body: Any, **headers: str) -> Any:
    """A name of any text stands in the body or the path's query, for headers hold none."""
    answer = mneme.http.post(path, json=body, headers=headers)
    assert answer.is_success, f"{path}: {answer.status_code} {answer.text[:400]}"
    return answer.json()


def answer(asked: dict[str, Any]) -> str | Reply:
    """A model that speaks as its user does, and calls the tools that it is given."""
    if asked.get("tools") and asked["messages"][-1]["role"] != "tool":
        name = asked["tools"][0]["function"]["name"]
        function = {"name": name, "arguments": json.dumps({"query": SCRIPT})}
        message = {
            "role": "assistant",
            "content": SCRIPT,
            "tool_calls": [{"id": BREAK, "type": "function", "function": function}],
        }
        head = {"id": SCRIPT, "object": "chat.completion", "created": 1, "model": BREAK}
        return reply_json({**head, "choices": [{"index": 0, "message": message, "finish_reason": SCRIPT}]})
    if "fail" in json.dumps(asked["messages"][-1]):
        return reply_json({"error": {"message": SCRIPT, "type": BREAK, "param": RTL, "code": EMOJI}}, "400 Bad Request")
    return "\n".join(TEXTS)


def spoil(mneme: MnemeServer) -> None:
    """Everything that can be named or said, said badly."""
    meta = {"user_id": USER, "session_id": SESSION}
    for text in TEXTS:
        body = {
            "model": BREAK,
            "messages": [{"role": "user", "content": text}],
            "metadata": meta,
            "stream": text is SCRIPT,
        }
        assert mneme.http.post("/v1/chat/completions", json=body, headers={"x-mneme-label": "a'\"><b>"}).is_success
    tool = {"type": "function", "function": {"name": "<script>alert(1)</script>", "parameters": {"type": "object"}}}
    asked = [{"role": "user", "content": SCRIPT}]
    _post(mneme, "/v1/chat/completions", {"model": "m", "messages": asked, "tools": [tool], "metadata": meta})
    failing = {"model": "m", "messages": [{"role": "user", "content": f"fail {SCRIPT}"}], "metadata": meta}
    assert mneme.http.post("/v1/chat/completions", json=failing).status_code == 400
    for text in TEXTS:
        clean = text.replace("\x00", " ")
        _post(
            mneme,
            "/api/v1/memories",
            {"user": USER, "text": clean, "tags": [SCRIPT, "T" * 60], "metadata": {BREAK: SCRIPT}},
        )
    cards = [
        {"type": "product_card", "data": {"title": BREAK, SCRIPT: LONG, "rows": [[SCRIPT]]}},
        {"type": "chart", "data": {}},
    ]
    _post(mneme, f"/api/v1/sessions/{_quoted(SESSION)}/cards?user={_quoted(USER)}", cards)
    thing = _post(
        mneme,
        "/api/v1/entities",
        {"type": "customer", "name": BREAK[:190], "key": SCRIPT, "properties": {SCRIPT: LONG}},
    )
    _post(mneme, f"/api/v1/entities/{_quoted(thing['id'])}/aliases", {"alias": SCRIPT})
    put = mneme.http.put(
        f"/api/v1/users/{_quoted(USER)}/facts/{_quoted(SCRIPT)}", json={"value": {BREAK: LONG}, "category": RTL}
    )
    assert put.is_success, put.text
    _post(mneme, "/api/v1/keys", {"name": BREAK, "user": USER, "limits": {"models": [SCRIPT]}})
    for place in ("<b>Ghent</b>", "<i>Porto</i>"):
        said = {
            "model": "m",
            "messages": [{"role": "user", "content": f"My sister lives in {place}"}],
            "metadata": {"user_id": USER},
        }
        _post(mneme, "/v1/chat/completions", said)
    quiet(mneme)


def quiet(mneme: MnemeServer) -> None:
    """Until all is learned."""

    def done() -> bool:
        queue = mneme.http.get("/api/v1/queue").json()
        return bool(queue["queued"] == 0 and queue["running"] == 0)

    wait_until(done, "the queue to be empty", seconds=60)


def _quoted(text: str) -> str:
    return quote(text, safe="")


@pytest.fixture(scope="module")
async def spoiled(
    browser: Browser, postgres_server: str, database_template: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Served]:
    """A server of a world that means ill."""
    folder: Path = tmp_path_factory.mktemp("spoiled")
    async with serving(postgres_server, database_template, folder, World(""), worker=True) as served:
        served.upstream.script = chat_script(answer)
        spoil(served.mneme)
        yield served


@pytest.fixture(scope="module")
def bad_pages(spoiled: Served) -> dict[str, list[Reached]]:
    """Its pages by their sort."""
    found: dict[str, list[Reached]] = {}
    for each in reachable(spoiled.mneme.http):
        found.setdefault(each.sort, []).append(each)
    return found


QUICK = {"/calls/{call}", "/memories", "/sessions/{session}"}
"""Patterns that are looked at in every run."""


@pytest.mark.parametrize(
    "pattern", [pytest.param(each, marks=() if each in QUICK else pytest.mark.heavy) for each in patterns()]
)
async def test_nothing_runs_and_nothing_breaks(
    browser: Browser, spoiled: Served, bad_pages: dict[str, list[Reached]], pattern: str
) -> None:
    wrong: list[str] = []
    async with visiting(browser, spoiled.base) as visitor:
        for each in bad_pages.get(pattern, []):
            if not each.page:
                continue
            page = await visitor.go(each.address)
            await page.evaluate("for (const each of document.querySelectorAll('main details')) each.open = true")
            wrong += [f"{each.address[:120]}: {said}" for said in await visitor.overflow()]
            strange = await page.evaluate(STRANGE)
            if strange:
                wrong.append(f"{each.address[:120]}: {strange} elements out of data")
            links = await page.evaluate("[...document.links].map((a) => a.protocol)")
            if not set(links) <= {"http:"}:
                wrong.append(f"{each.address[:120]}: links to {set(links)}")
            await visitor.width(NARROW)
            wrong += [f"{each.address[:120]}: narrow: {said}" for said in await visitor.overflow()]
            await visitor.width(WIDE)
    assert wrong == [], "\n".join(wrong)


def test_what_is_hostile_is_seen(bad_pages: dict[str, list[Reached]], spoiled: Served) -> None:
    """As text: else the pages above would be harmless for having nothing to show."""
    for pattern in (
        "/calls/{call}",
        "/users/{user}",
        "/memories/{memory}",
        "/sessions/{session}",
        "/entities/{entity}",
    ):
        shown = [spoiled.mneme.http.get(each.address).text for each in bad_pages[pattern] if each.page]
        assert any("&lt;script&gt;alert" in each or "&lt;img" in each for each in shown), pattern
        assert not any(MARK in each for each in shown), pattern
