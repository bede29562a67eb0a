"""A server that nobody has spoken to: each page says so, and what would make something appear."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser

from tests.support.browsing import NARROW, visiting
from tests.support.ui_pages import MENU
from tests.support.ui_served import Served

QUICK = {"", "/memories", "/calls", "/conflicts"}
"""Pages that are looked at in every run."""
SILENT = {"", "/settings", "/keys"}
"""Pages that have something to show from the beginning."""


@pytest.mark.parametrize(
    "path", [pytest.param(each, marks=() if each in QUICK else pytest.mark.heavy) for each in MENU]
)
async def test_a_page_of_nothing(browser: Browser, empty: Served, path: str) -> None:
    async with visiting(browser, empty.base) as visitor:
        page = await visitor.go(f"/ui{path}")
        assert await visitor.axe() == []
        assert await visitor.overflow() == []
        if path not in SILENT:
            said = page.locator(".empty")
            assert await said.count() >= 1, "nothing says that there is nothing"
            assert len(await said.first.inner_text()) > 40, "nor what would make something appear"
        await visitor.width(NARROW)
        assert await visitor.overflow() == []
