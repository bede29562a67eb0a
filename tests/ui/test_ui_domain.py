"""What the page shows of the business's own database."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.support.browsing import visiting
from tests.support.sample_domain import sample_domain
from tests.support.ui_served import serving
from tests.support.ui_world import ANA, World, fill, with_business


@pytest.mark.heavy
async def test_rows_and_what_contradicts_them(
    browser: Browser, postgres_server: str, database_template: str, tmp_path: Path
) -> None:
    async with sample_domain(postgres_server) as sample:
        erp = with_business(sample)
        async with serving(postgres_server, database_template, tmp_path, World(""), worker=True, **erp) as served:
            world = await asyncio.to_thread(fill, served.base, domain=True)
            async with visiting(browser, served.base) as visitor:
                page = await visitor.go(f"/ui/calls/{world.calls['conflict']}")
                main = page.get_by_role("main")
                for said in ("Gai Media Entertainment", "customers of erp where customer_id = gai_123", "NET15"):
                    await expect(main).to_contain_text(said)
                assert await visitor.axe() == []
                await visitor.go("/ui/conflicts?status=resolved")
                await main.get_by_role("link", name="payment terms").first.click()
                row = page.get_by_role("group", name="Both sides").locator("section").filter(has_text="own row")
                await expect(row).to_contain_text("NET15")
                await expect(row).to_contain_text("stands")
                await main.get_by_role("link", name="customer:gai_123").click()
                await expect(main).to_contain_text("domain.customers")
                await visitor.go(f"/ui/users/{ANA}?tab=memories&status=all")
                await expect(main).to_contain_text("payment terms are NET30")
