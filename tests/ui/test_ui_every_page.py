"""What holds for every page of /ui that a visitor can reach: the browser complains of nothing, nothing scrolls sideways, axe
finds nothing in the light and in the dark, and the keyboard reaches what the mouse does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.support.browsing import NARROW, WIDE, Visitor
from tests.support.ui_pages import MENU, Reached, patterns

pytestmark = pytest.mark.heavy

FOCUS = """() => {
  const here = document.activeElement;
  if (!here || here === document.body) return null;
  const style = getComputedStyle(here), box = here.getBoundingClientRect();
  const seen = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0 || style.boxShadow !== "none";
  return {tag: here.tagName, text: (here.textContent || here.getAttribute("aria-label") || here.name || "").trim().slice(0, 60),
          seen, inside: box.width > 0 && box.height > 0, skip: here.classList.contains("skip")};
}"""
HEADINGS = (
    "() => [...document.querySelectorAll('main h1,main h2,main h3,main h4')].map((each) => Number(each.tagName[1]))"
)
STOPS = 40
"""Presses of the tab key on one page."""


async def look(visitor: Visitor, page: Reached) -> list[str]:
    """What is wrong with a page."""
    await visitor.page.emulate_media(color_scheme="light")
    await visitor.width(WIDE)
    await visitor.go(page.address)
    wrong = [f"axe: {each}" for each in await visitor.axe()]
    levels = await visitor.page.evaluate(HEADINGS)
    if levels.count(1) != 1:
        wrong.append(f"headings: {levels}")
    wrong += await visitor.overflow()
    await visitor.page.emulate_media(color_scheme="dark")
    wrong += [f"axe, dark: {each}" for each in await visitor.axe(only=["color-contrast"])]
    await visitor.width(NARROW)
    wrong += [f"narrow: {each}" for each in await visitor.overflow()]
    return [f"{page.address}: {each}" for each in wrong]


@pytest.mark.parametrize("pattern", patterns())
async def test_every_page_is_whole(visitor: Visitor, first_reached: Mapping[str, Reached], pattern: str) -> None:
    assert pattern in first_reached, f"no link leads to /ui{pattern}"
    page = first_reached[pattern]
    wrong = await look(visitor, page) if page.page else []
    assert wrong == [], "\n".join(wrong)


@pytest.mark.heavy
@pytest.mark.parametrize("pattern", patterns())
async def test_so_is_each_view_of_it(visitor: Visitor, reached: Mapping[str, Sequence[Reached]], pattern: str) -> None:
    """Tabs, filters, later pages."""
    wrong = [each for page in reached[pattern][1:] if page.page for each in await look(visitor, page)]
    assert wrong == [], "\n".join(wrong)


@pytest.mark.parametrize("path", ["", "/calls", *(pytest.param(each, marks=pytest.mark.heavy) for each in MENU[2:])])
async def test_the_keyboard_reaches_everything(visitor: Visitor, path: str) -> None:
    """The first stop skips the menu; each stop is seen; the focus is caught nowhere."""
    page = await visitor.go(f"/ui{path}")
    stops = []
    for _ in range(STOPS):
        await page.keyboard.press("Tab")
        stop = await page.evaluate(FOCUS)
        if stop is None:
            break
        stops.append(stop)
    assert stops[0]["skip"], stops[0]
    hidden = [each for each in stops if not (each["seen"] and each["inside"])]
    assert hidden == [], hidden
    assert len({(each["tag"], each["text"]) for each in stops}) > len(MENU)

    await visitor.go(f"/ui{path}")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    assert await page.evaluate("document.activeElement.id") == "main"
