"""JSON by its shape: types, sizes, what values there are, the first elements, what names them. Pure, no recursion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from app.features.paging.outline import MAX_CHARS, Group, Outline, OutlineLine

GROUPS = (
    Group(
        "what fields it has, of which types, and how many elements",
        "{n} of {of} fields of its shape",
        "you need a field that is not shown",
    ),
    Group("its single values", "{n} of {of} single values", "you need a value that is not shown"),
    Group(
        "which elements there are, by name or id",
        "{n} of {of} names of elements",
        "you need an element by its name or id",
    ),
    Group("the first element of each list", "{n} values of first elements", ""),
    Group("", "{n} of {of} values of the other elements", "you need the values of an element that is not shown"),
)
SHAPE, SINGLE, NAME, FIRST, REST = range(len(GROUPS))

MAX_PARSED = MAX_CHARS * 4
"""Characters of a JSON text that is parsed (some 20 ms)."""
MAX_NODES = 20_000
"""Values that are looked at."""
VALUE_CHARS = 160
"""Characters of a value that are shown."""
NAMING = ("id", "name", "key", "title", "slug", "path", "email", "number", "code", "sku", "symbol", "label", "uid")
"""Fields that tell one element from another, best first."""


def parse(text: str) -> Any:
    """The value of a text that is one JSON object or list, or several in lines; None of anything else (or too deep, or
    too long)."""
    plain = text.strip()
    if len(plain) > MAX_PARSED or plain[:1] not in ("{", "["):
        return None
    try:
        return orjson.loads(plain)
    except ValueError:
        lines = plain.splitlines()
        if len(lines) < 2:
            return None
        try:
            return [orjson.loads(each) for each in lines if each.strip()]
        except ValueError:
            return None


def outline(text: str) -> Outline | None:
    """None where the text is no JSON after all (cut off, say): it is then shortened as prose."""
    value = parse(text)
    if not isinstance(value, dict | list):
        return None
    shape: dict[str, _Field] = {}
    lines: list[OutlineLine] = []
    todo: list[tuple[str, str, Any, int]] = [("", "$", value, SINGLE)]
    nodes = 0
    while todo and nodes < MAX_NODES:
        generic, place, item, group = todo.pop()
        nodes += 1
        shape.setdefault(generic, _Field()).add(item)
        if isinstance(item, Mapping):
            names = [each for each in NAMING if generic.endswith("[]") and _single(item.get(each))]
            if names:
                told = ", ".join(f"{each} = {_plain(item[each])}" for each in names)
                lines.append(OutlineLine(f"{_at(place)}: {told}", NAME))
                item = {key: each for key, each in item.items() if key not in names}
            todo += [(f"{generic}.{key}", f"{place}.{key}", each, group) for key, each in reversed(list(item.items()))]
        elif isinstance(item, list):
            todo += _elements(generic, place, item, group)
        else:
            lines.append(OutlineLine(f"{_at(place)} = {_plain(item)}", group))
    beyond = None if not todo else f"all after the first {MAX_NODES:,} values"
    fields = [
        OutlineLine(f"{generic.removeprefix('.') or '$'}: {field.told()}", SHAPE) for generic, field in shape.items()
    ]
    return Outline((), GROUPS, [*fields, *lines], beyond)


def _elements(generic: str, place: str, items: list[Any], group: int) -> list[tuple[str, str, Any, int]]:
    """Elements of a list to look at, last one first (they are popped)."""
    found = [
        (f"{generic}[]", f"{place}[{i}]", each, (FIRST if group == SINGLE else group) if i == 0 else REST)
        for i, each in enumerate(items[:MAX_NODES])
    ]
    return found[::-1]


def _at(place: str) -> str:
    """A place without the root: `items[3].name`."""
    return place.removeprefix("$").removeprefix(".") or "$"


def _single(value: object) -> bool:
    return isinstance(value, str | int | float)


def _plain(value: object) -> str:
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    folded = " ".join(text[: VALUE_CHARS * 2].split())
    return folded if len(folded) <= VALUE_CHARS else folded[: VALUE_CHARS - 1] + "…"


class _Field:
    """What is known of all values at one place of the shape."""

    MOST_VALUES = 6
    """Different values that are told: more of them are not an enumeration."""

    def __init__(self) -> None:
        self.types: dict[str, None] = {}
        self.sizes: list[int] = []
        self.values: dict[str, int] = {}
        self.low: float | None = None
        self.high: float | None = None
        self.seen = 0

    def add(self, value: object) -> None:
        self.seen += 1
        kind = {"dict": "object", "list": "list", "str": "text", "NoneType": "null", "bool": "bool"}.get(
            type(value).__name__, "number"
        )
        self.types.setdefault(kind)
        if isinstance(value, list):
            self.sizes.append(len(value))
        elif isinstance(value, str | bool) and len(self.values) <= self.MOST_VALUES:
            short = str(value)[:40]
            self.values[short] = self.values.get(short, 0) + 1
        elif isinstance(value, int | float) and not isinstance(value, bool):
            self.low = value if self.low is None else min(self.low, value)
            self.high = value if self.high is None else max(self.high, value)

    def told(self) -> str:
        told = "|".join(self.types)
        if self.sizes:
            least, most = min(self.sizes), max(self.sizes)
            told += f" of {most}" if least == most else f" of {least}–{most}"
        if self.seen > 1:
            if self.low is not None and self.low != self.high:
                told += f" {_short(self.low)}–{_short(self.high)}"
            if 1 < len(self.values) <= self.MOST_VALUES < self.seen:
                told += ": " + ", ".join(f"{value} ({times})" for value, times in self.values.items())
        return told


def _short(number: float | None) -> str:
    return f"{number:.6g}" if isinstance(number, float) else str(number)[:24]
