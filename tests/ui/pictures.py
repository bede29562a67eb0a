"""The README's pictures, of the world: `python -m tests.ui.pictures [FOLDER]` (docs/pictures), each light and dark."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from playwright.async_api import expect

from app.features.embedded import EmbeddedPostgres
from tests.support.browsing import NARROW, WIDE, chromium, find_chromium, visiting
from tests.support.database import connected
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer
from tests.support.ui_many import more_calls
from tests.support.ui_world import ANA, CHIARA, SETTINGS, World, fill
from tests.support.ui_world_model import script

FOLDER = Path("docs/pictures")
SCHEMES = ("light", "dark")
CALLS, APART = 400, timedelta(seconds=200)
MOST_BYTES = 200_000
"""Of a picture: a page of text at this size takes some 100 KB."""


def pages(world: World) -> Mapping[str, str]:
    """What is shown, by the picture's name."""
    why = world.calls["why"]
    session = world.sessions["label-service"]
    return {
        "overview": "/ui?live=off",
        "calls": "/ui/calls",
        "call": f"/ui/calls/{why}",
        "stream": f"/ui/calls/{why}?tab=stream",
        "user": f"/ui/users/{ANA}?tab=memories&status=all",
        "memory": f"/ui/memories/{world.memories['corrected']}",
        "session": f"/ui/sessions/{world.sessions['lamp-shopping']}",
        "objects": f"/ui/sessions/{session}/objects",
        "entities": "/ui/entities",
        "conflicts": f"/ui/conflicts/{world.conflict}",
        "jobs": "/ui/jobs",
        "keys": "/ui/keys",
        "settings": "/ui/settings",
        "profile": f"/ui/users/{CHIARA}",
    }


async def busy(dsn: str) -> None:
    """Calls of the day before, for the overview to have something to draw."""
    async with connected(dsn) as admin:
        await more_calls(admin, CALLS, APART)


async def take(base: str, world: World, folder: Path) -> list[str]:
    """All of them; what the browser complained of fails it. The files' names."""
    path = find_chromium()
    assert path is not None, "no Chromium here"
    taken = []
    async with chromium(path) as browser:
        for scheme in SCHEMES:
            async with visiting(browser, base, scheme=scheme, size=WIDE) as visitor:
                for name, address in pages(world).items():
                    page = await visitor.go(address)
                    await page.wait_for_load_state("networkidle")
                    file = folder / f"{name}-{scheme}.png"
                    taken_bytes = await page.screenshot(path=file, animations="disabled", caret="hide")
                    assert len(taken_bytes) < MOST_BYTES, f"{file.name}: {len(taken_bytes)} bytes"
                    taken.append(file.name)
    return taken


async def take_look(base: str, folder: Path) -> list[str]:
    """The first look, of a server that nobody has spoken to: the messages that it suggests, the second of them answered."""
    path = find_chromium()
    assert path is not None, "no Chromium here"
    taken = []
    async with chromium(path) as browser:
        for scheme in SCHEMES:
            async with visiting(browser, base, scheme=scheme, size=WIDE) as visitor:
                page = await visitor.go("/ui")
                await page.get_by_label("As user").fill(f"ana-{scheme}")
                for n in range(2):
                    await page.locator("[data-try] button").nth(n).click()
                    await expect(page.get_by_role("status")).to_have_text("Both answers are there.")
                    await expect(page.locator("[data-turns] > li")).to_have_count(n + 1)
                for name, size in (("look", WIDE), ("look-narrow", NARROW)):
                    await visitor.width(size)
                    file = folder / f"{name}-{scheme}.png"
                    taken_bytes = await page.screenshot(path=file, animations="disabled", caret="hide")
                    assert len(taken_bytes) < MOST_BYTES, f"{file.name}: {len(taken_bytes)} bytes"
                    taken.append(file.name)
    return taken


def look(folder: Path) -> list[str]:
    """Of a server without an upstream: what one sees after `make serve`."""
    home = Path(tempfile.mkdtemp(prefix="mneme-look-"))
    with MnemeServer(home, database=None, upstream=None, worker=True) as server:
        return asyncio.run(take_look(server.base_url, folder))


def main(folder: Path) -> None:
    """Fill a server of its own, and take them."""
    folder.mkdir(parents=True, exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="mneme-pictures-"))
    with (
        ScriptedUpstream(script()) as upstream,
        MnemeServer(home, database=None, upstream=upstream.url, worker=True, settings=SETTINGS) as server,
    ):
        postgres = EmbeddedPostgres(home / ".mneme")
        dsn = postgres.start()
        world = fill(server.base_url, database=dsn)
        asyncio.run(busy(dsn))
        postgres.stop()
        taken = asyncio.run(take(server.base_url, world, folder))
    taken += look(folder)
    sys.stdout.write("".join(f"{folder / name}\n" for name in taken))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
