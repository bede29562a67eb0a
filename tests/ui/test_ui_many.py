"""Ten thousand rows behind a list: it is paged, answers as before, and the browser holds no more than a page of them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from playwright.async_api import Browser, expect

from tests.support.browsing import visiting
from tests.support.database import connected
from tests.support.ui_many import more_calls, more_memories
from tests.support.ui_served import WORLD, Served, serving
from tests.support.ui_world import ANA, World

pytestmark = pytest.mark.heavy

ROWS = 10_000
PAGE_ROWS = 50
MOST_ELEMENTS = 6_000
"""Of a page: 50 rows of some 50 elements, and the page around them."""
SOON_S = 10.0
"""For a page on a busy machine; one that read every row would take longer still, and grow with them."""


@pytest.fixture(scope="module")
async def crowded(
    world_template: World, postgres_server: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Served]:
    """The world with ten thousand memories of one user's, and ten thousand calls."""
    folder = tmp_path_factory.mktemp("crowded")
    async with serving(postgres_server, WORLD, folder, world_template) as served:
        async with connected(served.database) as admin:
            await more_memories(admin, ANA, ROWS)
            await more_calls(admin, ROWS, timedelta(seconds=30))
        yield served


@pytest.mark.parametrize(
    "path", ["", "?hours=168", "/calls", "/memories", f"/users/{ANA}?tab=memories", f"/users/{ANA}"]
)
async def test_a_page_of_many(browser: Browser, crowded: Served, path: str) -> None:
    async with visiting(browser, crowded.base) as visitor:
        began = time.monotonic()
        page = await visitor.go(f"/ui{path}")
        took = time.monotonic() - began
        assert await page.evaluate("document.querySelectorAll('*').length") < MOST_ELEMENTS
        assert await page.locator("main tbody tr").count() <= 9 * PAGE_ROWS, "charts have a table each"
        assert await visitor.overflow() == []
        assert took < SOON_S


@pytest.mark.parametrize("path", ["/calls", "/memories", f"/users/{ANA}?tab=memories"])
async def test_one_leafs_through(browser: Browser, crowded: Served, path: str) -> None:
    """Each page has other rows; what was filtered stays so."""
    async with visiting(browser, crowded.base) as visitor:
        page = await visitor.go(f"/ui{path}")
        seen: set[str] = set()
        for _ in range(3):
            rows = page.locator("main tbody tr")
            assert await rows.count() == PAGE_ROWS
            links = await page.locator("main tbody tr a[href*='/ui/']").evaluate_all(
                "each => each.map((a) => a.pathname)"
            )
            own = {each for each in links if each.count("/") == 3 and each.split("/")[2] in ("calls", "memories")}
            assert len(own) == PAGE_ROWS
            assert not own & seen
            seen |= own
            before = page.url
            await page.get_by_role("link", name="Next page").click()
            await expect(page).not_to_have_url(before)
