"""Coming in, going out, and how it looks: keys, a session that ends with its key, light and dark."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, expect

from app.api.auth import KEY_CACHE_S
from tests.support.browsing import Visitor, visiting
from tests.support.ui_served import Served

GROUND = "getComputedStyle(document.body).backgroundColor"


@pytest.fixture(params=["script", pytest.param("plain", marks=pytest.mark.heavy)])
async def stranger(request: pytest.FixtureRequest, browser: Browser, guarded: Served) -> AsyncIterator[Visitor]:
    """Somebody before a route that wants a key; `plain`: whose browser runs no script."""
    async with visiting(browser, guarded.base, script=request.param == "script") as visitor:
        yield visitor


async def enter(visitor: Visitor, key: str) -> None:
    await visitor.page.get_by_label("Key").fill(key)
    await visitor.page.get_by_role("button", name="Sign in").click()


async def test_one_signs_in_and_out_with_a_key(stranger: Visitor, guarded: Served) -> None:
    key = guarded.mneme.create_key("page")
    page = await stranger.go("/ui/calls?model=gpt-4o")
    await expect(page.get_by_role("heading", level=1, name="Sign in")).to_be_visible()
    stranger.expects.add(401)
    await enter(stranger, "mneme_wrong")
    await expect(page.get_by_role("alert")).to_be_visible()
    await enter(stranger, key)
    await expect(page.get_by_role("heading", level=1, name="Calls")).to_be_visible()
    assert page.url.endswith("/ui/calls?model=gpt-4o"), "where one wanted to go"
    assert key not in await page.content()
    (cookie,) = [each for each in await stranger.context.cookies() if each["name"] == "mneme_ui"]
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Lax", "/ui")
    assert key not in cookie["value"]

    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_role("heading", level=1, name="Sign in")).to_be_visible()
    await stranger.go("/ui/memories")
    await expect(page.get_by_role("heading", level=1, name="Sign in")).to_be_visible()


async def test_a_key_that_is_revoked_opens_nothing_more(stranger: Visitor, guarded: Served) -> None:
    admin, key = guarded.mneme.create_key("admin"), guarded.mneme.create_key("short")
    page = await stranger.go("/ui/login")
    await enter(stranger, key)
    await expect(page.get_by_role("heading", level=1, name="Overview")).to_be_visible()
    api = guarded.api(key=admin)
    (own,) = [
        each for each in api.get("/keys", limit=1000)["keys"] if each["name"] == "short" and not each["revoked_at"]
    ]
    assert api.send("DELETE", f"/keys/{own['id']}").is_success
    sign_in = page.get_by_role("heading", level=1, name="Sign in")
    async with asyncio.timeout(3 * KEY_CACHE_S):  # servers notice within KEY_CACHE_S
        while not await sign_in.is_visible():
            await stranger.go("/ui/users")


async def test_a_key_of_one_user_sees_that_user_alone(stranger: Visitor, guarded: Served) -> None:
    """What a key may not do the page says in words."""
    key = guarded.mneme.create_key("hers", "--user", "ana")
    stranger.expects |= {403}
    page = await stranger.go("/ui/login")
    await enter(stranger, key)
    for path in ("/ui/memories", "/ui/calls", "/ui/sessions", "/ui/users", "/ui/conflicts", "/ui/users/bruno"):
        await page.goto(guarded.base + path)
        await expect(page.get_by_role("heading", level=1)).to_have_count(1)
        assert "Ghent" not in await page.content(), path
        assert "Matosinhos, and" not in await page.content(), path


async def test_light_and_dark(browser: Browser, world: Served) -> None:
    async with visiting(browser, world.base, scheme="dark") as visitor:

        async def choose(name: str) -> str:
            button = page.get_by_role("button", name=name, exact=True)
            await button.click()
            await expect(button).to_have_attribute("aria-pressed", "true")
            return str(await page.evaluate(GROUND))

        page = await visitor.go("/ui/jobs")
        dark = await page.evaluate(GROUND)
        light = await choose("Light")
        assert light != dark
        assert page.url.endswith("/ui/jobs"), "where one was"
        await visitor.go("/ui/keys")
        assert await page.evaluate(GROUND) == light, "it stays"
        assert await choose("Dark") == dark
        assert await choose("Auto") == dark
        await page.emulate_media(color_scheme="light")
        assert await page.evaluate(GROUND) == light
