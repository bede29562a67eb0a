"""Templates, how values look in them, and messages as a conversation is read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import orjson
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from msgspec import Struct
from msgspec.structs import replace

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
    text = str(value)
    shown = text if len(text) <= SHORT + 1 else f"…{text[-SHORT:]}"
    return Markup('<span class="id" title="{}">{}</span>').format(text, shown)


def count(value: int, one: str, many: str | None = None) -> Markup:
    """`3|count("memory", "memories")` → “3 memories”."""
    return escape(f"{value:,} {one if value == 1 else many or one + 's'}")


# --- messages: turns with their answers, gaps, parts of a content with a name. Pure --------------------------------------

SHOWN_CHARS = 3000
"""Of a text, before the rest is folded: a screen and a half."""

TOO_DEEP = "(nested too deep to be shown)"

_TEXTS = frozenset({"text", "input_text", "output_text"})
_PICTURES = frozenset({"image_url", "input_image", "image"})
_THOUGHTS = frozenset({"thinking", "reasoning", "redacted_thinking"})


class ContentPiece(Struct, frozen=True):
    """A part of a content. `kind` "" is plain text, else what it is (“Image”); `note`: which; `text`: what can be unfolded;
    `marked`: the stretch of the text (start, end, in characters) from which something was learned."""

    kind: str
    note: str
    text: str
    marked: tuple[int, int] | None = None


class ShownToolCall(Struct, frozen=True):
    name: str
    arguments: str


class Said(Struct, frozen=True):
    """A message. `row`: as the API has it; `tool`: of a result, which tool; `went_on`: the conversation went on from it."""

    row: Mapping[str, Any]
    pieces: Sequence[ContentPiece]
    calls: Sequence[ShownToolCall]
    tool: str | None
    went_on: bool = False


class Turn(Struct, frozen=True):
    """What stands at one place of a conversation: `shown`, and `others` in its stead. `missing`: places before it where nothing
    stands any more; `begins`: the first message of a branch that is its own."""

    index: int
    shown: Said
    others: Sequence[Said]
    missing: int
    begins: bool
    branches: Sequence[Mapping[str, Any]] = ()


def turns(
    messages: Sequence[Mapping[str, Any]],
    session: str,
    *,
    before: int,
    branches: Iterable[Mapping[str, Any]] = (),
    marked: MarkedWords | None = None,
) -> list[Turn]:
    """The turns of a page of messages, oldest first. `before`: the place in front of the page; `branches`: sessions that
    branched off, each after its `branch_turn_index`; `marked`: words to be marked."""
    names = {str(call.get("id")): _name(call) for each in messages for call in _calls(each)}
    parents = {each["parent_id"] for each in messages}
    of_turn: dict[int, list[Said]] = {}
    for each in messages:
        of_turn.setdefault(each["turn_index"], []).append(
            _build_said(each, names, went_on=each["id"] in parents, marked=marked)
        )
    branched: dict[int, list[Mapping[str, Any]]] = {}
    for branch in branches:
        branched.setdefault(branch["branch_turn_index"] or 0, []).append(branch)
    made = []
    inherited = False
    for index, siblings in of_turn.items():
        shown = next((each for each in reversed(siblings) if each.went_on), siblings[-1])
        own = shown.row["session_id"] == session
        made.append(
            Turn(
                index,
                shown,
                [each for each in siblings if each is not shown],
                missing=max(0, index - before - 1),
                begins=own and inherited,
                branches=branched.get(index, ()),
            )
        )
        inherited, before = not own, index
    return made


def whole(messages: Sequence[Mapping[str, Any]], limit: int) -> tuple[list[Mapping[str, Any]], int | None]:
    """Of `limit` + 1 messages asked for, the page, and where the one before it ends: its first turn is not cut in two. None:
    there is none before."""
    page = list(messages)
    if len(page) <= limit:
        return page, None
    first = page[0]["turn_index"]
    rest = [each for each in page if each["turn_index"] != first]
    page = rest or page
    return page, page[0]["turn_index"]


def pieces(content: object) -> list[ContentPiece]:
    """The parts of a content; pictures and files by name, never by loading them."""
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [ContentPiece("", "", content)]
    if not isinstance(content, list):
        return [ContentPiece("Content", "", pretty(content))]
    return [_piece(each) for each in content]


def pretty(value: object) -> str:
    """JSON to be read; a text that is JSON, too. Other text as it is, and what is nested too deep to be laid out."""
    if not isinstance(value, str):
        return _laid_out(value) or TOO_DEEP
    try:
        parsed = orjson.loads(value)
    except ValueError:
        return value
    return (_laid_out(parsed) if isinstance(parsed, dict | list) else None) or value


def _laid_out(value: object) -> str | None:
    """None: it is nested deeper than orjson writes (254 levels; it reads 1,024)."""
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS, default=str).decode()
    except TypeError:
        return None


def plain(data: Mapping[str, Any]) -> tuple[list[tuple[str, str]], dict[str, Any]]:
    """Of a card's data what a line can say, and the rest."""
    lines = [(str(name), _word(value)) for name, value in data.items() if not isinstance(value, dict | list)]
    return lines, {name: value for name, value in data.items() if isinstance(value, dict | list)}


def _word(value: object) -> str:
    return "–" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


class MarkedWords(Struct, frozen=True):
    """The place of words in a message's text: `start` and `end` in characters."""

    message_id: str
    start: int
    end: int

    @classmethod
    def parse(cls, text: str | None) -> MarkedWords | None:
        """Return the words that a link names (`<message>.<start>-<end>`), or None where it names none."""
        match = _MARKED.fullmatch(text or "")
        if match is None or int(match["start"]) >= int(match["end"]):
            return None
        return cls(match["message"], int(match["start"]), int(match["end"]))


_MARKED = re.compile(r"(?P<message>[0-9a-f-]{36})\.(?P<start>[0-9]{1,9})-(?P<end>[0-9]{1,9})")


def mark_words(pieces: Sequence[ContentPiece], words: MarkedWords) -> list[ContentPiece]:
    """Return the parts of a content, with these words marked.

    A message's text is made of its parts of plain text, with line ends between them (`text_of`).
    """
    marked = []
    place = 0
    for piece in pieces:
        if not piece.kind:
            start, end = max(words.start - place, 0), min(words.end - place, len(piece.text))
            if start < end:
                piece = replace(piece, marked=(start, end))
            place += len(piece.text) + 1
        marked.append(piece)
    return marked


def _build_said(
    row: Mapping[str, Any], names: Mapping[str, str], *, went_on: bool, marked: MarkedWords | None = None
) -> Said:
    calls = [ShownToolCall(_name(each), pretty(_arguments(each))) for each in _calls(row)]
    tool = None
    if row["role"] in ("tool", "function"):
        tool = names.get(str(row["tool_call_id"])) or row["name"] or "a tool"
    parts = pieces(row["content"])
    if marked is not None and marked.message_id == row["id"]:
        parts = mark_words(parts, marked)
    return Said(row, parts, calls, tool, went_on)


def _calls(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [each for each in row["tool_calls"] or () if isinstance(each, Mapping)]


def _name(call: Mapping[str, Any]) -> str:
    return str(_told(call).get("name") or call.get("type") or "a tool")


def _arguments(call: Mapping[str, Any]) -> object:
    told = _told(call)
    return told.get("arguments", told.get("input", ""))


def _told(call: Mapping[str, Any]) -> Mapping[str, Any]:
    """A call's own part: `function`, or `custom`; or the call itself."""
    inner = call.get("function", call.get("custom"))
    return inner if isinstance(inner, Mapping) else call


def _piece(part: object) -> ContentPiece:
    if isinstance(part, str):
        return ContentPiece("", "", part)
    if not isinstance(part, Mapping):
        return ContentPiece("Part", "", pretty(part))
    kind = str(part.get("type", "part"))
    if kind in _TEXTS:
        return ContentPiece("", "", str(part.get("text", "")))
    if kind in _PICTURES:
        inner = part.get("image_url", part.get("source", ""))
        place = inner.get("url", inner.get("file_id", "")) if isinstance(inner, Mapping) else inner
        return ContentPiece("Image", _where(str(place or part.get("file_id") or "")), "")
    if kind == "input_audio":
        inner = part.get("input_audio")
        inner = inner if isinstance(inner, Mapping) else {}
        told = (str(inner.get("format") or ""), _weight(str(inner.get("data") or "")))
        return ContentPiece("Audio", ", ".join(filter(None, told)), "")
    if kind in ("file", "input_file"):
        inner = part.get("file", part)
        inner = inner if isinstance(inner, Mapping) else {}
        return ContentPiece("File", str(inner.get("filename") or inner.get("file_id") or ""), "")
    if kind == "refusal":
        return ContentPiece("Refusal", "", str(part.get("refusal", "")))
    if kind in _THOUGHTS:
        return ContentPiece("Reasoning", "", str(part.get("thinking") or part.get("text") or pretty(part)))
    return ContentPiece(kind.replace("_", " ").capitalize(), str(part.get("name", "")), pretty(part))


def _where(place: str) -> str:
    """`image/png, 12 KB` of what stands in the message itself, else where it is."""
    if not place.startswith("data:"):
        return place
    head, _, data = place.partition(",")
    return ", ".join(filter(None, (head[5:].partition(";")[0] or "data", _weight(data))))


def _weight(base64: str) -> str:
    return f"{max(1, len(base64) * 3 // 4 // 1024):,} KB" if base64 else ""
