"""Every page of /ui that can be reached from the first by links, one of each sort."""

from __future__ import annotations

import functools
import html
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx
from starlette.routing import compile_path

from app.features.ui import calls, conflicts, entities, memories, overview, sessions, settings, users
from app.features.ui import settings as settings_page
from app.features.ui.visit import Entry
from app.settings import Settings

MENU = ("", "/calls", "/sessions", "/users", "/memories", "/entities", "/conflicts", "/jobs", "/keys", "/settings")
"""Under /ui."""
MOST = 400
"""Pages that are read to find all sorts."""
EACH = 2
"""Pages of a sort that are read with the same parameters."""

_LINK = re.compile(r'<a\b[^>]*?\shref="([^"]*)"')


def entries() -> list[Entry]:
    """All that the site is wired of, but for signing in."""
    modules = (overview, calls, users, memories, sessions, entities, conflicts, settings)
    return [*(each for module in modules for each in module.ROUTES), *settings_page.routes(Settings())]


@functools.cache
def patterns() -> list[str]:
    """The paths of pages that are read, under /ui."""
    return [each.path for each in entries() if "GET" in each.methods]


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return compile_path(pattern)[0]


def sort_of(path: str) -> str | None:
    """The pattern of a page's path (with /ui), the most exact first; None: no page of ours."""
    inside = path.removeprefix("/ui").rstrip("/")
    for pattern in patterns():
        if _compiled(pattern).match(inside) if pattern else inside == "":
            return pattern
    return None


class Reached(NamedTuple):
    """A page that is linked. `page`: HTML, not a download or a part of a page."""

    sort: str
    address: str
    page: bool


def reachable(http: httpx.Client, *, start: Sequence[str] = MENU) -> Iterator[Reached]:
    """One page for each sort and set of query parameters, in the order in which they are found."""
    seen: Counter[str] = Counter()
    todo = [f"/ui{each}" for each in start]
    read: set[str] = set()
    while todo and len(read) < MOST:
        address = todo.pop(0)
        parts = urlsplit(address)
        sort = sort_of(parts.path)
        names = ",".join(sorted({each.partition("=")[0] for each in parts.query.split("&") if each}))
        # `tab=facts` is another page than `tab=memories`.
        tab = next((each for each in parts.query.split("&") if each.startswith(("tab=", "view=", "part="))), "")
        shape = f"{sort}?{names}&{tab}"
        if sort is None or address in read or seen[shape] >= EACH:
            continue
        read.add(address)
        seen[shape] += 1
        answer = http.get(address)
        assert answer.status_code == 200, f"{address}: {answer.status_code} {answer.text[:800]}"
        page = answer.text.lstrip().startswith("<!doctype html>")
        if seen[shape] == 1:
            yield Reached(sort, address, page)
        if not page:
            continue
        links = (html.unescape(each).partition("#")[0] for each in _LINK.findall(answer.text))
        todo += [
            each if not each.startswith("?") else parts.path + each for each in links if each.startswith(("/ui", "?"))
        ]
