"""What one does about users and memories, in the browser, with its script and without."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.support.browsing import Visitor
from tests.support.ui_served import Served

pytestmark = pytest.mark.heavy


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


async def test_a_session_is_deleted_with_what_it_taught(person: Visitor, changing: Served) -> None:
    said = [{"role": "user", "content": "My parrot is called Barnaby."}, {"role": "assistant", "content": "Noted."}]
    for session in ("to-go", "to-stay"):
        changing.api().post(f"/sessions/{session}/messages", {"user": "flora", "messages": said})
    page = await person.go("/ui/sessions/to-go?user=flora")
    await page.get_by_text("Delete…", exact=True).last.click()
    await page.get_by_role("button", name="Delete this session").click()
    await expect(page.get_by_role("status")).to_contain_text("The session is deleted, with 2 messages")
    main = page.get_by_role("main")
    await expect(main.get_by_role("link", name="to-stay", exact=True)).to_be_visible()
    await expect(main.get_by_role("link", name="to-go", exact=True)).to_have_count(0)
    assert changing.api().get("/sessions/to-go/history", user="flora")["messages"] == []
    changing.api().send("DELETE", "/users/flora")
