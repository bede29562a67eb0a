"""The first look: a message answered with memory and without, side by side, and why."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from playwright.async_api import Browser, expect

from tests.support.browsing import NARROW, Visitor, visiting
from tests.support.database import fresh_database
from tests.support.replies import Fin, Reply, Send, Step, Until, chat_script, chunked, head_of, reply_json
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

LISBON = "I am vegetarian, and I live in Lisbon."
DINNER = "Suggest a restaurant for tonight."
COOKIE = ("Set-Cookie", "mneme_ui=of-the-upstream; Path=/ui")


def answer(asked: dict[str, Any]) -> str | Reply | list[str]:
    """Says whether it was told of Lisbon."""
    question = asked["messages"][-1]["content"].rpartition("\n")[2]  # memory may quote an earlier one
    if question == "the night shift":
        problem = {"message": "The engine is overloaded.", "type": "server_error", "param": None, "code": None}
        return reply_json({"error": problem}, "503 Service Unavailable", [COOKIE])
    if question.startswith("<img"):
        return ["<img src=x ", "onerror=alert(1)>"]
    told = json.dumps(asked["messages"])
    return ["In ", "Lisbon: ", "the green table."] if "Lisbon" in told else ["Which city ", "are you in?"]


SCRIPT = chat_script(answer, model="small")


def in_events(*steps: Step) -> Reply:
    """A stream of events, of which the test says the rest."""
    lines = [("content-type", "text/event-stream"), ("transfer-encoding", "chunked")]
    return Reply([Send(head_of("200 OK", lines)), *steps])


@dataclass
class Looked:
    mneme: MnemeServer
    upstream: ScriptedUpstream


@pytest.fixture(scope="module")
async def looked(
    browser: Browser,
    postgres_server: str,
    database_template: str,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> AsyncIterator[Looked]:
    """A server that only these tests speak to; the parameter has its settings."""
    folder, settings = tmp_path_factory.mktemp("looked"), getattr(request, "param", {})
    async with fresh_database(postgres_server, database_template) as dsn:
        with (
            ScriptedUpstream(SCRIPT) as upstream,
            MnemeServer(folder, database=dsn, upstream=upstream.url, settings=settings) as mneme,
        ):
            yield Looked(mneme, upstream)


@pytest.fixture(autouse=True)
def upstream_as_it_was(looked: Looked) -> None:
    looked.upstream.script = SCRIPT
    looked.upstream.requests.clear()


def side(visitor: Visitor, memory: str, nth: int = 0) -> Any:
    return visitor.page.locator("[data-turns] > li").nth(nth).get_by_role("article", name=f"Answer {memory} memory")


async def say(visitor: Visitor, text: str) -> None:
    await visitor.page.get_by_label("Message").fill(text)
    await visitor.page.keyboard.press("Enter")
    await expect(visitor.page.get_by_role("status")).to_have_text("Both answers are there.")


async def test_memory_makes_the_difference(browser: Browser, looked: Looked) -> None:
    """By the keyboard alone: two messages, of which the second sends nothing of the first."""
    async with visiting(browser, looked.mneme.base_url) as visitor:
        page = await visitor.go("/ui")
        await page.get_by_label("As user").fill("ana")  # of whom the other tests' answers are not remembered
        await say(visitor, LISBON)
        await say(visitor, DINNER)
        assert await page.evaluate("document.activeElement.name") == "message", "ready for the next"
        await expect(side(visitor, "with")).to_contain_text("In Lisbon: the green table.")
        await expect(side(visitor, "without")).to_contain_text("Which city are you in?")
        notes = side(visitor, "with").get_by_role("listitem")
        assert any("Lisbon" in each and "score" in each for each in await notes.all_inner_texts())
        await expect(side(visitor, "without")).to_contain_text("Nothing was added")
        assert await visitor.axe() == []
        await page.emulate_media(color_scheme="dark")
        assert await visitor.axe(only=["color-contrast"]) == []
        await visitor.width(NARROW)
        assert await visitor.overflow() == []

        await side(visitor, "with").get_by_role("link", name="The whole account").click()
        await expect(page.get_by_role("heading", level=2, name="Where the tokens went")).to_be_visible()
    asked = [each.json() for each in looked.upstream.requests if each.path.endswith("completions")]
    assert [each["stream"] for each in asked] == [True] * 4
    assert {each["model"] for each in asked} == {"small"}, "the upstream's first"


async def test_answers_are_shown_as_they_come(browser: Browser, looked: Looked) -> None:
    go_on = threading.Event()
    begun = b'data: {"choices": [{"index": 0, "delta": {"content": "half "}}]}\n\n'
    rest = (
        b'data: {"choices": [{"index": 0, "delta": {"content": "whole"}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
    )
    looked.upstream.script = in_events(Send(chunked(begun)), Until(go_on), Send(chunked(rest)), Send(b"0\r\n\r\n"))
    async with visiting(browser, looked.mneme.base_url) as visitor:
        page = await visitor.go("/ui")
        await page.get_by_label("Model").fill("small")
        await page.get_by_label("Message").fill(DINNER)
        await page.get_by_role("button", name="Send").click()
        for memory in ("with", "without"):
            await expect(side(visitor, memory).locator("[data-text]")).to_have_text("half ")
            await expect(side(visitor, memory).locator("[data-text]")).to_have_attribute("aria-busy", "true")
        go_on.set()
        await expect(page.get_by_role("status")).to_have_text("Both answers are there.")
        await expect(side(visitor, "with").locator("[data-text]")).to_have_text("half whole")


async def test_the_upstreams_errors_are_told_in_words(browser: Browser, looked: Looked) -> None:
    async with visiting(browser, looked.mneme.base_url) as visitor:
        visitor.expects |= {503}
        page = await visitor.go("/ui")
        await page.get_by_label("Message").fill("the night shift")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("status")).to_have_text("Not every answer came: see below why.")
        for memory in ("with", "without"):
            await expect(side(visitor, memory)).to_contain_text("The engine is overloaded.")
        await say(visitor, "<img src=x onerror=alert(1)>")
        await expect(side(visitor, "without")).to_contain_text("<img src=x onerror=alert(1)>")
        (cookie,) = [each for each in await visitor.context.cookies() if each["name"] == "mneme_ui"]
        assert cookie["value"] != "of-the-upstream", "what an upstream sets is no cookie of this site"


async def test_an_answer_that_breaks_off_says_so(browser: Browser, looked: Looked) -> None:
    begun = b'data: {"choices": [{"index": 0, "delta": {"content": "half "}}]}\n\n'
    break_off = threading.Event()
    looked.upstream.script = in_events(Send(chunked(begun)), Until(break_off), Fin())
    async with visiting(browser, looked.mneme.base_url) as visitor:
        page = await visitor.go("/ui")
        await page.get_by_label("Model").fill("small")
        await page.get_by_label("Message").fill(DINNER)
        await page.keyboard.press("Enter")
        for memory in ("with", "without"):
            await expect(side(visitor, memory).locator("[data-text]")).to_have_text("half ")
        break_off.set()
        await expect(page.get_by_role("status")).to_have_text("Not every answer came: see below why.")
        await expect(side(visitor, "with").locator("[data-text]")).to_have_text("half ")
        await expect(side(visitor, "with").locator("[data-problem]")).not_to_be_empty()
        visitor.problems = [each for each in visitor.problems if "INCOMPLETE" not in each]


async def test_without_script(browser: Browser, looked: Looked) -> None:
    async with visiting(browser, looked.mneme.base_url, script=False) as visitor:
        page = await visitor.go("/ui")
        for message in (LISBON, DINNER):
            await page.get_by_label("As user").fill("ben")
            await page.get_by_label("Message").fill(message)
            await page.get_by_role("button", name="Send").click()
            await expect(page.get_by_role("heading", level=1, name="With memory, and without")).to_be_visible()
        await expect(page.get_by_role("region", name="With memory")).to_contain_text("In Lisbon: the green table.")
        await expect(page.get_by_role("region", name="Without memory")).to_contain_text("Which city are you in?")
        assert "Lisbon" in await page.locator(".look-notes").inner_text()
        await page.get_by_label("Message").fill("the night shift")
        await page.get_by_role("button", name="Send").click()
        await expect(page.get_by_role("alert").first).to_have_text("The engine is overloaded.")


async def test_another_site_sends_nothing(looked: Looked) -> None:
    """Without the page's token nothing goes upstream, nor under another name."""
    async with httpx.AsyncClient(base_url=looked.mneme.base_url, trust_env=False) as http:
        for path in ("/ui/look", "/ui/look/answer", "/ui/look/why"):
            given = {"message": "hello", "model": "small", "call": "x"}
            assert (await http.post(path, data=given)).status_code == 403, path
            token = (await http.get("/ui")).text.split('name="csrf" value="')[1].split('"')[0]
            answer = await http.post(path, data={**given, "csrf": token}, headers={"Host": "evil.example"})
            assert answer.status_code in (400, 403), path
    assert looked.upstream.requests == []


async def test_an_empty_message_is_refused_in_words(looked: Looked) -> None:
    async with httpx.AsyncClient(base_url=looked.mneme.base_url, trust_env=False) as http:
        token = (await http.get("/ui")).text.split('name="csrf" value="')[1].split('"')[0]
        answer = await http.post("/ui/look/answer", data={"csrf": token, "message": "  "})
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, "Write a message first.")


@pytest.mark.parametrize("looked", [{"AUTH": "keys"}], indirect=True)
async def test_a_key_sends_as_itself(browser: Browser, looked: Looked) -> None:
    """A key of one user asks as that user, and sends what was suggested by one press; one without the scope to call models sees
    no form, and is refused."""
    key = looked.mneme.create_key("hers", "--user", "ana")
    async with visiting(browser, looked.mneme.base_url) as visitor:
        page = await visitor.go("/ui/login")
        await page.get_by_label("Key").fill(key)
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_label("As user")).to_have_value("ana")
        await page.wait_for_load_state()  # before, the buttons are those of a page without script
        await page.get_by_role("button", name=LISBON).click()
        await expect(page.get_by_role("status")).to_have_text("Both answers are there.")
        await page.get_by_role("button", name=DINNER).click()
        await expect(side(visitor, "with")).to_contain_text("In Lisbon")
    assert "mneme_" not in repr(looked.upstream.requests), "the key is Mneme's, and goes nowhere"

    reader = looked.mneme.create_key("reader", "--scope", "read")
    async with visiting(browser, looked.mneme.base_url) as visitor:
        visitor.expects |= {403}
        page = await visitor.go("/ui/login")
        await page.get_by_label("Key").fill(reader)
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("heading", level=1, name="Overview")).to_be_visible()
        await expect(page.get_by_label("Message")).to_have_count(0)
        before = len(looked.upstream.requests)
        token = await page.locator("input[name=csrf]").first.input_value()
        answer = await page.request.post(
            looked.mneme.base_url + "/ui/look/answer", form={"csrf": token, "message": "hello", "model": "small"}
        )
        assert (answer.status, (await answer.json())["error"]["code"]) == (403, "missing_scope")
        assert len(looked.upstream.requests) == before


async def test_it_says_what_learns(looked: Looked) -> None:
    """Rules alone by default, with the advice to name a model."""
    async with httpx.AsyncClient(base_url=looked.mneme.base_url, trust_env=False) as http:
        page = (await http.get("/ui")).text
    assert "Rules learn alone here" in page
    assert "<code>MNEME_HELPER_MODEL</code>" in page


@pytest.mark.parametrize("looked", [{"HELPER_MODEL": "small"}], indirect=True)
async def test_it_names_the_model_that_learns(looked: Looked) -> None:
    async with httpx.AsyncClient(base_url=looked.mneme.base_url, trust_env=False) as http:
        page = (await http.get("/ui")).text
    assert "small reads it within a minute" in page
    assert "Rules learn alone" not in page
