"""Templates, and how values look in them."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

UNITS = ("B", "KB", "MB", "GB", "TB")
DOT = "\ufdd1"
"""Stands before a segment of a path that is `.` or `..`, which browsers would walk: a noncharacter, as `api.common.SLASH`."""
SHORT = 8
"""Characters of an id where a list shows it; its whole text is in the title."""


def environment() -> Environment:
    """Everything is escaped; a name that is missing is an error, not an empty place."""
    made = Environment(
        loader=PackageLoader("app.features.ui"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        number=number, percent=percent, size=size, ms=milliseconds, money=money, moment=moment, short=short, count=count
    )
    made.globals.update(url=url, asset=asset)
    return made


def url(*segments: object, **query: Any) -> str:
    """A path under /ui: `url("users", "a/b", tab="facts")` is /ui/users/a%2Fb?tab=facts. Nones and empty texts are left out."""
    path = "/".join(("/ui", *(_segment(str(each)) for each in segments)))
    given = {name: value for name, value in query.items() if value is not None and value != ""}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


def ours(location: str | None, otherwise: str = "/ui") -> str:
    """`location` if it is a page of this site, else another: no link of ours leads elsewhere."""
    try:
        parts = urlsplit(location or "")
    except ValueError:
        return otherwise
    inside = not parts.scheme and not parts.netloc and (parts.path == "/ui" or parts.path.startswith("/ui/"))
    return location if location and inside and "\\" not in location else otherwise


def _segment(text: str) -> str:
    return quote(DOT + text if text in (".", "..") else text, safe="")


@cache
def assets() -> dict[str, tuple[bytes, str]]:
    """What /ui/static serves: name → content, media type. All style sheets are one; nothing is built."""
    here = files("app.features.ui")
    scripts = {each.name: each.read_bytes() for each in here.joinpath("static").iterdir() if each.name.endswith(".js")}
    sheets = sorted((each for each in here.joinpath("styles").iterdir()), key=lambda each: each.name)
    style = b"\n".join(each.read_bytes() for each in sheets if each.name.endswith(".css"))
    return {
        **{name: (content, "text/javascript") for name, content in scripts.items()},
        "mneme.css": (style, "text/css"),
        "mneme.svg": (here.joinpath("static", "mneme.svg").read_bytes(), "image/svg+xml"),
    }


@cache
def asset(name: str) -> str:
    """Where an asset is, named by its content too: browsers may keep it for good."""
    return f"/ui/static/{name}?v={sha256(assets()[name][0]).hexdigest()[:12]}"


# --- values --------------------------------------------------------------------------------------------------------------


def number(value: float | None, digits: int = 0) -> str:
    """1234567.8 → “1,234,568”; None → “–”."""
    return "–" if value is None else f"{value:,.{digits}f}"


def percent(value: float | None, digits: int = 0) -> str:
    """0.25 → “25 %”."""
    return "–" if value is None else f"{value * 100:.{digits}f} %"


def size(value: float | None) -> str:
    """Bytes: 1536 → “1.5 KB”."""
    if value is None:
        return "–"
    for unit in UNITS:
        if value < 1024 or unit == UNITS[-1]:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError


def milliseconds(value: float | None) -> str:
    """4.25 → “4.3 ms”, 2,500 → “2.5 s”."""
    if value is None:
        return "–"
    return f"{value / 1000:,.1f} s" if value >= 1000 else f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms"


def money(microcents: int | None) -> str:
    """Millionths of a cent: 12,345,678 → “$0.1235”."""
    return "–" if microcents is None else f"${microcents / 1e8:,.4f}"


def moment(value: str | None) -> Markup:
    """A moment of the API as <time>, in UTC to the second."""
    if not value:
        return Markup("–")
    shown = datetime.fromisoformat(value).strftime("%Y-%m-%d %H:%M:%S")
    return Markup('<time datetime="{}" title="{} UTC">{}</time>').format(value, shown, shown)


def short(value: object) -> Markup:
    """An id, shortened."""
    text = str(value)
    shown = text if len(text) <= SHORT + 1 else f"…{text[-SHORT:]}"
    return Markup('<span class="id" title="{}">{}</span>').format(text, shown)


def count(value: int, one: str, many: str | None = None) -> Markup:
    """`3|count("memory", "memories")` → “3 memories”."""
    return escape(f"{value:,} {one if value == 1 else many or one + 's'}")
