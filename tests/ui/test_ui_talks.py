"""What one does about conversations, objects, entities and conflicts, in the browser, with its script and without."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, expect

from tests.support.browsing import Visitor, visiting
from tests.support.server import wait_until
from tests.support.ui_served import Served
from tests.support.ui_world import CHIARA

pytestmark = pytest.mark.heavy


@pytest.fixture(params=["script", pytest.param("plain", marks=pytest.mark.heavy)])
async def person(request: pytest.FixtureRequest, browser: Browser, changing: Served) -> AsyncIterator[Visitor]:
    """A visitor who may change everything; `plain`: whose browser runs no script."""
    async with visiting(browser, changing.base, script=request.param == "script") as visitor:
        yield visitor


async def test_a_conversation_is_read_with_its_cards(person: Visitor) -> None:
    page = await person.go("/ui/sessions")
    await page.get_by_role("main").get_by_role("link", name="lamp-shopping").first.click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("lamp-shopping")
    said = page.get_by_role("article", name="User, turn")
    await expect(said).to_have_count(2)
    await expect(said.first).to_contain_text("Which lamps fit a small stage?")
    answer = page.get_by_role("article", name="Assistant, turn 2")
    await expect(answer.get_by_role("article", name="Card 2, product_card")).to_contain_text("Arc 200")
    await answer.get_by_role("link", name="The call").click()
    assert "/ui/calls/" in page.url


async def test_branches_lead_to_each_other(person: Visitor) -> None:
    page = await person.go("/ui/sessions/office?user=chiara")
    await page.get_by_text("A branch leaves here").get_by_role("link").first.click()
    await expect(page.get_by_role("main")).to_contain_text("Tuesday at nine")


async def test_an_object_is_pinned_and_let_go(person: Visitor, changing: Served) -> None:
    api = changing.api(CHIARA)
    free = next(each for each in api.get("/objects", session="label-service")["objects"] if not each["pinned"])
    session = changing.world.sessions["label-service"]
    page = await person.go(f"/ui/sessions/{session}/objects")
    await page.get_by_role("button", name=f"Pin {free['handle']}").click()
    await expect(page.get_by_role("button", name=f"Unpin {free['handle']}")).to_be_visible()
    assert api.get(f"/objects/{free['id']}", session="label-service")["pinned"]
    await page.get_by_role("button", name=f"Unpin {free['handle']}").click()
    await expect(page.get_by_role("button", name=f"Pin {free['handle']}")).to_be_visible()


async def test_an_object_is_asked(person: Visitor, changing: Served) -> None:
    held = changing.api(CHIARA).get("/objects", session="label-service")["objects"][0]
    page = await person.go(f"/ui/sessions/{changing.world.sessions['label-service']}/objects/{held['id']}")
    await page.get_by_label("Ask it").fill("How many tests failed?")
    await page.get_by_role("button", name="Ask").click()
    await expect(page.get_by_role("status")).to_be_visible()


async def test_a_conflict_is_resolved(person: Visitor, changing: Served) -> None:
    who = "fritz" if person.script else "gerd"
    for place in ("Ghent", "Porto"):
        answer = changing.mneme.http.post(
            "/v1/chat/completions",
            json={"model": "gpt-4o", "messages": [{"role": "user", "content": f"My brother lives in {place}"}]},
            headers={"x-mneme-user": who},
        )
        assert answer.status_code == 200
        wait_for_learning(changing)
    page = await person.go(f"/ui/conflicts?user={who}")
    await page.get_by_role("main").get_by_role("link", name="lives in").first.click()
    await expect(page.get_by_role("group", name="Both sides")).to_contain_text("Ghent")
    kept = page.get_by_role("group", name="Both sides").locator("section").filter(has_text="Ghent")
    title = (await kept.get_by_role("heading").inner_text()).strip()
    await page.get_by_role("main").get_by_role("link", name=f"{title}: Ghent").click()
    await page.get_by_label("Why (optional)").fill("He told us.")
    await page.get_by_role("button", name="Resolve").click()
    await expect(page.get_by_role("main")).to_contain_text("resolved")
    await expect(page.get_by_role("main")).to_contain_text("He told us.")
    texts = [each["text"] for each in changing.api().get("/memories", user=who)["memories"]]
    assert texts == ["Brother lives in Ghent"]


async def test_an_entity_gets_another_name(person: Visitor, changing: Served) -> None:
    alias = "the big hall" if person.script else "the round hall"
    page = await person.go("/ui/entities")
    await page.get_by_role("main").get_by_role("link", name="Casa da Música").click()
    await page.get_by_role("textbox", name="Alias").fill(alias)
    await page.get_by_role("button", name="Add alias").click()
    await expect(page.get_by_role("rowheader", name=alias)).to_be_visible()
    found = changing.api().get(f"/entities/{changing.world.entity}/aliases")["aliases"]
    assert alias in [each["alias"] for each in found]


def wait_for_learning(served: Served) -> None:
    """Until the queue is empty, but for the world's dead letter."""

    def quiet() -> bool:
        queue = served.api().get("/queue")
        return bool(queue["queued"] == 0 and queue["running"] == 0)

    wait_until(quiet, "the queue to be empty", seconds=30)
