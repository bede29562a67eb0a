"""How soon a page of /ui can be used, in Chromium, with one user's 100,000 memories behind it.

    python -m loadtests.ui [--memories N] [--quick]

Interactive is a page when its DOM is parsed, its scripts have run and its styles are there: `domContentLoadedEventEnd` of the
browser's own clock, since the navigation began; `first byte` is what the server took of it. Cold is the first visit, with
nothing in the browser's cache; warm the median of those after.
"""

from __future__ import annotations

import asyncio
import statistics
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import click
import httpx
from playwright.async_api import Browser
from pydantic import SecretStr
from rich.table import Table

from app.clock import SystemClock
from app.server.core import open_core
from app.settings import Settings
from loadtests import crowd
from loadtests.crowd import Person
from loadtests.scale import graph_of
from loadtests.stack import Stack, running
from loadtests.terminal import console, measuring
from tests.support.browsing import chromium, find_chromium, visiting
from tests.support.ui_many import more_calls

MEMORIES = 100_000
MESSAGES = 1_000
CALLS = 10_000
VISITS = 9
USER = "heavy"
FAR = "http://127.0.0.1:9/v1"
"""An upstream that is never asked."""
PAGES = {
    "overview": "/ui?live=off",
    "overview, a week": "/ui?hours=168&live=off",
    "calls": "/ui/calls",
    "user": f"/ui/users/{USER}",
    "memories of the user": f"/ui/users/{USER}?tab=memories",
    "memories of all": "/ui/memories",
    "search": f"/ui/users/{USER}?tab=memories&q=which+hotel+did+we+book+in+spring",
}
TIMES = """() => {
  const [each] = performance.getEntriesByType("navigation");
  const painted = performance.getEntriesByName("first-contentful-paint")[0];
  return {byte: each.responseStart, interactive: each.domContentLoadedEventEnd, painted: painted ? painted.startTime : 0,
          bytes: each.decodedBodySize, elements: document.querySelectorAll("*").length};
}"""


async def fill(stack: Stack, memories: int, out: Any) -> None:
    """One user's memories with their vectors, and calls over the last days."""
    settings = Settings(database_url=SecretStr(stack.dsn), upstream_base_url=FAR)
    admin = await asyncpg.connect(stack.dsn)
    try:
        async with open_core(settings, stack.dsn, SystemClock()) as core:
            space = await core.turns.space_of(core.embedder.space)
        assert space is not None, "the migration makes it"
        await crowd.prepare(admin, datetime.now(UTC))
        person = Person(USER, memories, MESSAGES)
        graph = await graph_of(admin, person)
        with ProcessPoolExecutor(1) as executor:
            async with crowd.without_slow_indexes(admin, out):
                await crowd.store(admin, [person], space, graph, executor, lambda count: None)
    finally:
        await admin.close()
    admin = await asyncpg.connect(stack.dsn)
    try:
        await more_calls(admin, CALLS, timedelta(seconds=50))
    finally:
        await admin.close()


async def visited(browser: Browser, base: str, path: str, visits: int) -> dict[str, Any]:
    """One page: the first visit, and the median of those after."""
    taken: list[dict[str, float]] = []
    async with visiting(browser, base) as visitor:
        for _ in range(1 + visits):
            page = await visitor.go(path)
            await page.wait_for_load_state("load")
            taken.append(await page.evaluate(TIMES))
    cold, warm = taken[0], taken[1:]
    middle = {name: statistics.median(each[name] for each in warm) for name in cold}
    return {"cold": cold["interactive"], **middle}


async def look(base: str, visits: int) -> dict[str, dict[str, Any]]:
    """All pages."""
    path = find_chromium()
    assert path is not None, "no Chromium here"
    async with chromium(path) as browser:
        return {name: await visited(browser, base, address, visits) for name, address in PAGES.items()}


@click.command()
@click.option("--memories", default=MEMORIES, show_default=True, help="Of one user.")
@click.option("--quick", is_flag=True, help="A tenth of them, and few visits.")
def main(memories: int, quick: bool) -> None:
    """Measure how soon pages can be used."""
    out = console()
    wanted, visits = (memories // 10, 3) if quick else (memories, VISITS)
    with measuring(), out.status("starting …") as status, running() as stack:
        # One call, for the others to be like.
        body = {"model": "gpt-4o", "messages": [{"role": "user", "content": "I live in Lisbon."}]}
        httpx.post(
            f"{stack.base_url}/v1/chat/completions", json=body, headers={"x-mneme-user": "ana"}
        ).raise_for_status()
        status.update(f"storing {wanted:,} memories")
        asyncio.run(fill(stack, wanted, status.update))
        status.update("looking")
        found = asyncio.run(look(stack.base_url, visits))
    table = Table("page", "first byte, ms", "painted, ms", "interactive, ms", "cold, ms", "KB", "elements")
    for name, each in found.items():
        figures = (
            each["byte"],
            each["painted"],
            each["interactive"],
            each["cold"],
            each["bytes"] / 1024,
            each["elements"],
        )
        table.add_row(name, *(f"{figure:,.0f}" for figure in figures))
    out.print(f"{wanted:,} memories of one user, {CALLS:,} calls; median of {visits} visits")
    out.print(table)


if __name__ == "__main__":
    main()
