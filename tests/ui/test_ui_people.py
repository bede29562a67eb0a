"""What one does about users and memories, in the browser, with its script and without."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, expect

from tests.support.browsing import Visitor, visiting
from tests.support.ui_served import Served
from tests.support.ui_world import ANA

pytestmark = pytest.mark.heavy


@pytest.fixture(params=[pytest.param("script", marks=pytest.mark.heavy), "plain"])
async def person(request: pytest.FixtureRequest, browser: Browser, changing: Served) -> AsyncIterator[Visitor]:
    """A visitor who may change everything; `plain`: whose browser runs no script."""
    async with visiting(browser, changing.base, script=request.param == "script") as visitor:
        yield visitor


def remembered(served: Served, text: str, user: str) -> str:
    """A new memory's id."""
    return str(served.api().post("/memories", {"user": user, "text": text})["id"])


async def test_a_memory_is_corrected_and_its_history_says_so(person: Visitor, changing: Served) -> None:
    memory = remembered(changing, "The gate code is 4711", "dora")
    page = await person.go("/ui/users/dora?tab=memories")
    await page.get_by_role("link", name="Correct: The gate code is 4711").first.click()
    await page.get_by_role("textbox", name="What it says").fill("The gate code is 0815")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("status")).to_be_visible()
    history = page.locator("section").filter(has=page.get_by_role("heading", name="History"))
    await expect(history).to_contain_text("Edited")
    await expect(history).to_contain_text("The gate code is 4711")
    assert changing.api().get(f"/memories/{memory}")["text"] == "The gate code is 0815"
    changing.api().send("DELETE", f"/memories/{memory}")


async def test_another_memory_takes_its_place(person: Visitor, changing: Served) -> None:
    memory = remembered(changing, "The van is parked in bay two", "dora")
    page = await person.go(f"/ui/memories/{memory}")
    await page.get_by_label("Something else is so now").fill("The van is parked in bay nine")
    await page.get_by_role("button", name="Put this in its place").click()
    old = changing.api().get(f"/memories/{memory}")
    assert old["status"] == "superseded"
    await person.go(f"/ui/memories/{memory}")
    await page.get_by_role("main").get_by_role("link", name="The van is parked in bay nine").first.click()
    await expect(page.get_by_role("heading", name="What it took the place of")).to_be_visible()
    for each in (memory, old["superseded_by"]):
        changing.api().send("DELETE", f"/memories/{each}")


async def test_a_memory_is_confirmed(person: Visitor, changing: Served) -> None:
    memory = remembered(changing, "Bay four has the ramp", "dora")
    page = await person.go("/ui/users/dora?tab=memories")
    await page.get_by_role("button", name="Confirm: Bay four has the ramp").first.click()
    await expect(page.get_by_role("status")).to_be_visible()
    events = [each["event"] for each in changing.api().get(f"/memories/{memory}/history")["events"]]
    assert "confirmed" in events
    changing.api().send("DELETE", f"/memories/{memory}")


async def test_a_memory_is_forgotten_when_one_says_so_twice(person: Visitor, changing: Served) -> None:
    memory = remembered(changing, "The old alarm code was 1234", "dora")
    page = await person.go("/ui/users/dora?tab=memories")
    await page.get_by_role("link", name="Forget: The old alarm code was 1234").first.click()
    assert changing.api().send("GET", f"/memories/{memory}").status_code == 200, "a link forgets nothing"
    await page.get_by_role("button", name="Forget it").click()
    await expect(page.get_by_role("status")).to_be_visible()
    await expect(page.get_by_role("main")).not_to_contain_text("The old alarm code was 1234")
    assert changing.api().send("GET", f"/memories/{memory}").status_code == 404


async def test_what_is_asked_for_is_found(person: Visitor) -> None:
    page = await person.go(f"/ui/users/{ANA}?tab=memories")
    await page.get_by_label("Search by meaning").fill("On which day does Gai Media take deliveries?")
    await page.get_by_role("main").get_by_role("button", name="Show").click()
    await expect(page.get_by_role("main")).to_contain_text("Gai Media prefers Thursday")
    assert "q=On" in page.url, "a search can be linked to"
    await expect(page.get_by_label("Search by meaning")).to_have_value("On which day does Gai Media take deliveries?")


async def test_what_is_known_of_somebody_is_exported(person: Visitor) -> None:
    page = await person.go(f"/ui/users/{ANA}")
    async with page.expect_download() as coming:
        await page.get_by_role("link", name="Export").click()
    download = await coming.value
    lines = (await download.path()).read_text().splitlines()
    assert any("Gai Media prefers Thursday" in each for each in lines)
    assert all(isinstance(json.loads(each), dict) for each in lines)


async def test_somebody_is_erased_whose_name_is_typed(person: Visitor, changing: Served) -> None:
    name = "emil/o'brien <x>"
    remembered(changing, "Plays the accordion", name)
    page = await person.go("/ui/users/emil%2Fo'brien%20%3Cx%3E")
    await page.get_by_role("link", name="Erase").click()
    await page.get_by_label("Type this user's id").fill("emil")
    person.expects |= {400, 409, 422}
    await page.get_by_role("button", name="Erase this user").click()
    await expect(page.get_by_role("alert")).to_be_visible()
    assert changing.api().get("/memories", user=name)["memories"], "a wrong name erases nobody"
    await page.get_by_label("Type this user's id").fill(name)
    await page.get_by_role("button", name="Erase this user").click()
    await expect(page.get_by_role("heading", level=1, name="Erased")).to_be_visible()
    assert changing.api().get("/memories", user=name)["memories"] == []


async def test_what_is_in_doubt_is_confirmed(person: Visitor, changing: Served) -> None:
    """The world has two; each of the two browsers answers one."""
    who = "chiara" if person.script else "ana"
    page = await person.go(f"/ui/users/{who}?tab=due")
    await page.get_by_role("button", name="Yes, still right").first.click()
    await expect(page.get_by_role("status")).to_be_visible()
    await expect(page.get_by_role("main")).to_contain_text("Nothing asks to be confirmed")
