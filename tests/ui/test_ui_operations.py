"""What an operator does: look how it goes, retry what failed, make keys and end them."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Route, expect

from tests.support.browsing import Visitor, visiting
from tests.support.ui_served import Served

EVERY_MS = 10_500
"""After which the overview has asked again."""


@pytest.mark.heavy
async def test_a_dead_letter_is_tried_again(browser: Browser, changing: Served) -> None:
    (dead,) = changing.api().get("/queue/dead")["dead"]
    async with visiting(browser, changing.base, script=False) as person:
        page = await person.go("/ui/jobs")
        letters = page.get_by_role("main").get_by_role("table")
        await expect(letters).to_contain_text("503 Service Unavailable")
        await page.get_by_role("button", name=f"Retry job {dead['id']}").click()
        await expect(page.get_by_role("status")).to_be_visible()
        await expect(page.get_by_role("main")).to_contain_text("Nothing failed for good")


async def test_a_key_is_made_shown_once_and_revoked(person: Visitor, changing: Served) -> None:
    name = "till, script" if person.script else "till, plain"
    page = await person.go("/ui/keys")
    await page.get_by_role("link", name="Make a key").click()
    await page.get_by_label("Name", exact=True).fill(name)
    await page.get_by_label("read", exact=True).check()
    await page.get_by_label("Requests per minute").fill("60")
    await page.get_by_role("button", name="Make the key").click()
    key = await page.locator("input[data-copy]").input_value()
    assert key.startswith("mneme_")
    await page.get_by_role("link", name="I have it").click()
    assert key not in await page.content()
    await page.get_by_role("main").get_by_role("link", name=name).click()
    assert key not in await page.content(), "it is shown once"
    await page.get_by_text("Revoke this key").click()
    await page.get_by_role("button", name="Yes, revoke it").click()
    row = page.get_by_role("region", name="Keys").locator("tr").filter(has_text=name)
    if await row.count() == 0:
        await person.go("/ui/keys")
    await expect(row).to_contain_text("revoked")
    (made,) = [each for each in changing.api().get("/keys", limit=1000)["keys"] if each["name"] == name]
    assert (made["scopes"], made["limits"]["requests_per_minute"]) == (["read"], 60)
    assert made["revoked_at"]


async def test_the_overview_tells_how_it_goes(person: Visitor) -> None:
    page = await person.go("/ui")
    main = page.get_by_role("main")
    for word in ("Calls", "Tokens", "too-long", "Failed for good", "Storage"):
        await expect(main).to_contain_text(word, ignore_case=True)
    assert await main.locator("svg").count() >= 3
    await main.get_by_role("navigation", name="Window of time").get_by_role("link").first.click()
    await expect(main.get_by_role("navigation", name="Window of time").locator("[aria-current=page]")).to_have_count(1)


@pytest.mark.heavy
@pytest.mark.parametrize("how", ["refused", "unreachable"])
async def test_the_overview_says_that_its_figures_are_old(browser: Browser, changing: Served, how: str) -> None:
    async def fails(route: Route) -> None:
        await (route.fulfill(status=503) if how == "refused" else route.abort())

    async with visiting(browser, changing.base) as person:
        await person.page.clock.install()
        page = await person.go("/ui")
        old = page.get_by_text("figures of before")
        await expect(old).to_be_hidden()
        await page.route("**/ui?*", fails)
        await page.clock.fast_forward(EVERY_MS)
        await expect(old).to_be_visible()
        await page.unroute("**/ui?*")
        await page.clock.fast_forward(EVERY_MS)
        await expect(old).to_be_hidden()
        person.problems.clear()  # of the failure


async def test_nothing_of_the_keys_is_cut_off(person: Visitor) -> None:
    page = await person.go("/ui/keys")
    table = page.get_by_role("region", name="Keys")
    assert await table.evaluate("(each) => each.scrollWidth <= each.clientWidth"), "at 1280 wide"


async def test_settings_hide_what_is_secret(person: Visitor, changing: Served) -> None:
    page = await person.go("/ui/settings")
    await expect(page.get_by_role("main")).to_contain_text("MNEME_RETRIEVAL_DEADLINE_MS")
    text = await page.content()
    password = changing.database.partition("://")[2].partition("@")[0].partition(":")[2]
    assert not password or password not in text
