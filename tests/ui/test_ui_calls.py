"""Why did the model know that? Calls, what they were told, their streams and replays, in the browser."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, expect

from tests.support.browsing import Visitor, visiting
from tests.support.ui_served import Served

ANSWER = "Plan it for Thursday."


@pytest.fixture(params=["script", pytest.param("plain", marks=pytest.mark.heavy)])
async def reader(request: pytest.FixtureRequest, browser: Browser, world: Served) -> AsyncIterator[Visitor]:
    """A visitor who only looks; `plain`: whose browser runs no script."""
    async with visiting(browser, world.base, script=request.param == "script") as visitor:
        yield visitor


async def test_one_finds_out_why_the_model_knew_that(reader: Visitor, world: Served) -> None:
    """From the list of calls to the candidate that told it, and on to the very message that it came from."""
    page = await reader.go("/ui/calls")
    await page.get_by_label("Session", exact=True).fill("next-week")
    await page.get_by_label("Label", exact=True).fill("golden")
    await page.get_by_role("button", name="Filter", exact=True).click()
    await page.get_by_role("region", name="Calls, newest first").locator("th[scope=row] a").first.click()
    assert page.url.endswith(f"/ui/calls/{world.world.calls['why']}")
    await expect(page.get_by_role("heading", name="Where the tokens went")).to_be_visible()
    candidates = page.get_by_role("region", name="Candidates, best first")
    row = candidates.locator("tr").filter(has_text="Gai Media prefers Thursday").filter(has_text="✓").first
    await expect(row).to_be_visible()
    await expect(row.locator(".c-signals dt").first).to_be_visible()
    chosen = await page.get_by_role("navigation", name="Which candidates").get_by_role("link", name="Dropped").count()
    assert chosen == 1
    source = row.locator('a[href*="/ui/sessions/"]').first
    target = await source.get_attribute("href")
    assert target is not None
    assert "#m-" in target
    await source.click()
    message = page.locator(f"[id='{target.partition('#')[2]}']")
    await expect(message).to_contain_text("prefers Thursday now")


async def test_a_stream_is_played(browser: Browser, world: Served) -> None:
    async with visiting(browser, world.base) as visitor:
        page = await visitor.go(f"/ui/calls/{world.world.calls['stream']}?tab=stream")
        said = page.get_by_label("The answer's text")
        await expect(said).to_contain_text(ANSWER)
        await page.get_by_label("Speed").select_option("0.25")
        await page.get_by_role("button", name="Restart").click()
        await expect(page.get_by_role("button", name="Pause")).to_be_visible()
        begun = len(await said.inner_text())
        await page.get_by_role("button", name="Pause").click()
        halfway = len(await said.inner_text())
        await page.get_by_label("Speed").select_option(index=5)
        await page.get_by_role("button", name="Play", exact=True).click()
        await expect(page.get_by_role("button", name="Play", exact=True)).to_be_visible()
        whole = len(await said.inner_text())
        assert begun <= halfway < whole
        # By the keyboard: the slider goes back to the beginning.
        await page.get_by_label("Position").focus()
        await page.keyboard.press("Home")
        assert len(await said.inner_text()) < whole


async def test_what_went_wrong_is_told(reader: Visitor, world: Served) -> None:
    page = await reader.go(f"/ui/calls/{world.world.calls['degraded']}")
    await expect(page.get_by_role("main")).to_contain_text("too-long", ignore_case=True)
    page = await reader.go(f"/ui/calls/{world.world.calls['error']}")
    await expect(page.get_by_role("main")).to_contain_text("503")
