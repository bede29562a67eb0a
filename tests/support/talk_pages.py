"""The page over the API of a test, read as a browser without script reads it: links, forms with their hidden fields, text."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser

import httpx

from app.features.ui import conflicts, entities, sessions
from app.features.ui.site import Site
from app.features.ui.visit import Cookies
from tests.support.wired_api import WiredApi

LIFE_S = 3600.0
_SILENT = frozenset({"script", "style"})


@dataclass
class Form:
    """A form as it stands: where it goes, and what its fields hold; `buttons`: name and value of each, by its text."""

    action: str
    method: str
    fields: dict[str, str] = field(default_factory=dict)
    buttons: dict[str, tuple[str, str]] = field(default_factory=dict)


class Shown(HTMLParser):
    """A page: its text, links, forms and ids."""

    def __init__(self, response: httpx.Response) -> None:
        super().__init__()
        self.status = response.status_code
        self.html = response.text
        self.words: list[str] = []
        self.links: dict[str, str] = {}
        self.forms: list[Form] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self._silent = 0
        self._link: tuple[str, int] | None = None
        self._button: tuple[tuple[str, str], int] | None = None
        self.feed(response.text)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def form(self, end: str) -> Form:
        """The first form whose action ends so."""
        return next(each for each in self.forms if each.action.endswith(end))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.tags.append(tag)
        assert "style" not in given, "the policy allows no inline style"
        if "id" in given:
            self.ids.append(given["id"])
        if tag in _SILENT:
            self._silent += 1
        elif tag == "a":
            self._link = (given["href"], len(self.words))
        elif tag == "form":
            self.forms.append(Form(given["action"], given.get("method", "get")))
        elif tag == "input" and self.forms and "name" in given:
            self.forms[-1].fields[given["name"]] = given.get("value", "")
        elif tag == "button" and self.forms:
            self._button = ((given.get("name", ""), given.get("value", "")), len(self.words))

    def handle_endtag(self, tag: str) -> None:
        if tag in _SILENT:
            self._silent -= 1
        elif tag == "a" and self._link is not None:
            href, at = self._link
            self.links.setdefault(" ".join(" ".join(self.words[at:]).split()), href)
        elif tag == "button" and self._button is not None:
            named, at = self._button
            self.forms[-1].buttons[" ".join(" ".join(self.words[at:]).split())] = named

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.words.append(data)


@dataclass
class Visitor:
    """Somebody who looks at pages, signed in already: the API is open."""

    client: httpx.AsyncClient

    async def look(self, path: str, *, status: int = 200) -> Shown:
        answer = await self.client.get(path if path.startswith("/ui") else f"/ui/{path}")
        assert answer.status_code == status, f"{path}: {answer.status_code} {Shown(answer).text[:500]}"
        return Shown(answer)

    async def press(self, form: Form, button: str | None = None, *, status: int = 200, **fields: str) -> Shown:
        """Send a form, with its hidden fields and these, and follow where it leads."""
        name, value = form.buttons[button] if button is not None else ("", "")
        data = form.fields | ({name: value} if name else {}) | fields
        answer = await self.client.post(form.action, data=data, follow_redirects=True)
        assert answer.status_code == status, f"{form.action}: {answer.status_code} {Shown(answer).text[:500]}"
        return Shown(answer)


@asynccontextmanager
async def visiting(api: WiredApi) -> AsyncIterator[Visitor]:
    """The pages of sessions, entities and conflicts over `routes`, which are open."""
    site = Site(
        api.authenticator,
        api.app,
        Cookies("a secret of this test alone", LIFE_S),
        [*sessions.ROUTES, *entities.ROUTES, *conflicts.ROUTES],
        open_mode=True,
    )
    async with httpx.AsyncClient(transport=httpx.ASGITransport(site), base_url="http://mneme") as client:
        yield Visitor(client)
