"""Real Chromium before the pages of /ui: a visitor whose browser complains of nothing, and what may be asked of every page."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from axe_playwright_python.base import AXE_SCRIPT
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Request, Response, async_playwright

CHROMIUM = ("/usr/bin/chromium", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
VARIABLE = "MNEME_TEST_CHROMIUM"
"""A browser's path; or `required`: a run without one fails rather than skips."""
ARGUMENTS = (
    "--no-sandbox",  # as root there is none
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",  # containers often have 64 MB
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
WIDE, NARROW = (1280, 800), (480, 800)
TIMEOUT_MS = 20_000.0
RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice")
AXE = {
    "runOnly": {"type": "tag", "values": list(RULES)},
    "resultTypes": ["violations"],
}
TRAP = """
window.addEventListener("securitypolicyviolation", (e) => console.error("CSP: " + e.violatedDirective + " " + e.blockedURI));
"""
OVERFLOW = """() => {
  const wide = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= wide) return [];
  const out = [];
  for (const each of document.querySelectorAll("body *")) {
    const box = each.getBoundingClientRect();
    if (box.width && box.right > wide + 1) out.push(each.tagName + "." + each.className + " " + Math.round(box.right));
  }
  return ["the page scrolls sideways: " + document.documentElement.scrollWidth + " > " + wide, ...out.slice(0, 12)];
}"""


def find_chromium() -> str | None:
    """The browser to test with."""
    told = os.environ.get(VARIABLE, "")
    for each in (told, *CHROMIUM):
        if each and each != "required" and (found := shutil.which(each)) is not None:
            return found
    return None


@contextlib.asynccontextmanager
async def chromium(path: str) -> AsyncIterator[Browser]:
    """The browser, which reaches nothing but this machine."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            await browser.close()


class Visitor:
    """Somebody with a browser before one server. `problems`: what the browser complained of, to be empty in the end.

    A page may answer with an error where a test expects it: `expects`.
    """

    def __init__(self, context: BrowserContext, page: Page, base: str, *, script: bool = True) -> None:
        self.context = context
        self.script = script
        """Whether the browser runs scripts."""
        self.page = page
        self.base = base
        self.problems: list[str] = []
        self.expects: set[int] = set()
        """Statuses of errors that a test provokes."""
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.problems.append(f"script error: {error}"))
        page.on("dialog", self._dialog)
        page.on("request", self._request)
        page.on("requestfailed", self._failed)
        page.on("response", self._response)

    async def go(self, path: str, status: int = 200) -> Page:
        """Open a page; `status`: what it must answer with."""
        if status >= 400:
            self.expects.add(status)
        answer = await self.page.goto(self.base + path)
        assert answer is not None
        assert answer.status == status, f"{path}: {answer.status} {(await answer.text())[:600]}"
        return self.page

    async def width(self, size: tuple[int, int]) -> None:
        await self.page.set_viewport_size({"width": size[0], "height": size[1]})

    async def overflow(self) -> list[str]:
        """Why the page scrolls sideways, if it does."""
        found: list[str] = await self.page.evaluate(OVERFLOW)
        return found

    async def axe(self, *, only: Sequence[str] = ()) -> list[str]:
        """What is not accessible, one line each. `only`: these rules."""
        options: dict[str, Any] = {**AXE, **({"runOnly": {"type": "rule", "values": list(only)}} if only else {})}
        # By the debugger, which the page's policy does not bind.
        if not await self.page.evaluate("typeof axe === 'object'"):
            await self.page.evaluate(AXE_SCRIPT)
        found = await self.page.evaluate("(options) => axe.run(document, options)", options)
        return [
            f"{each['id']} ({each['impact']}): {each['help']}: {node['target']} {node['html'][:160]} {_told(node)}"
            for each in found["violations"]
            for node in each["nodes"][:5]
        ]

    def check(self, where: str = "") -> None:
        """Fails if the browser complained."""
        assert self.problems == [], f"{where}: {self.problems}"

    # --- what the browser says ---------------------------------------------------------------------------------------------

    def _console(self, said: ConsoleMessage) -> None:
        if said.type not in ("error", "warning"):
            return
        expected = any(f"status of {each}" in said.text for each in self.expects)
        if not expected:
            self.problems.append(f"console {said.type}: {said.text}")

    async def _dialog(self, dialog: Any) -> None:
        self.problems.append(f"a dialog opened: {dialog.message}")
        await dialog.dismiss()

    def _request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob", "about") and parts.netloc != urlsplit(self.base).netloc:
            self.problems.append(f"a request to {request.url}")

    def _failed(self, request: Request) -> None:
        # What is left for another page, or becomes a download, is aborted.
        if request.failure != "net::ERR_ABORTED":
            self.problems.append(f"failed: {request.url}: {request.failure}")

    def _response(self, response: Response) -> None:
        if response.status >= 400 and response.status not in self.expects:
            self.problems.append(f"{response.status}: {response.url}")


@contextlib.asynccontextmanager
async def visiting(
    browser: Browser,
    base: str,
    *,
    script: bool = True,
    scheme: str = "light",
    size: tuple[int, int] = WIDE,
    cookies: Mapping[str, str] | None = None,
) -> AsyncIterator[Visitor]:
    """A visitor with cookies of their own; fails in the end if the browser complained."""
    context = await browser.new_context(
        java_script_enabled=script,
        color_scheme="dark" if scheme == "dark" else "light",
        viewport={"width": size[0], "height": size[1]},
        reduced_motion="reduce",
        locale="en-GB",
        timezone_id="UTC",
        accept_downloads=True,
    )
    context.set_default_timeout(TIMEOUT_MS)
    if cookies:
        await context.add_cookies([{"name": n, "value": v, "url": base + "/ui"} for n, v in cookies.items()])
    if script:
        await context.add_init_script(TRAP)
    page = await context.new_page()
    visitor = Visitor(context, page, base, script=script)
    try:
        yield visitor
        visitor.check()
    finally:
        await context.close()


def _told(node: Mapping[str, Any]) -> str:
    return " ".join(str(each.get("message", "")) for each in [*node["any"], *node["all"], *node["none"]])[:240]
