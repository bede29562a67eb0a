"""Cards that are taken from the results of tools: which of a result's values are cards, as the settings say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from app.sources import CardTool

MAX_RESULT_CHARS = 256 * 1024
"""Longest result that is read, characters: a hundred of the seed's cards of 2 KB, and some more around them."""

MAX_TAKEN = 100
"""Most cards of one result: more is a data set, not what a screen shows."""

MAX_CARD_BYTES = 64 * 1024
"""Largest card, bytes of compact JSON, as through the API."""


class TakenCard(NamedTuple):
    """A card: its type and data, and its data as compact JSON."""

    kind: str
    data: dict[str, Any]
    text: str


def cards_of(result: str, tool: CardTool) -> list[TakenCard] | str:
    """The cards that a tool's result shows, or why there are none: the result itself, or each item of the list at `items`."""
    if len(result) > MAX_RESULT_CHARS:
        return f"it is longer than {MAX_RESULT_CHARS} characters"
    try:
        value = orjson.loads(result)
    except orjson.JSONDecodeError:
        return "it is no JSON"
    items = [value]
    if tool.items is not None:
        found = _at(value, tool.items.split("."))
        if not isinstance(found, list):
            return f"it has no list at {tool.items!r}"
        items = found
    if len(items) > MAX_TAKEN:
        return f"it has {len(items)} items, more than {MAX_TAKEN}"
    try:
        taken = [_card(each, tool) for each in items]
    except orjson.JSONEncodeError:
        return "it is nested too deep"
    if any(len(each.text.encode()) > MAX_CARD_BYTES for each in taken):
        return f"it has an item of more than {MAX_CARD_BYTES} bytes"
    return taken


def _card(item: Any, tool: CardTool) -> TakenCard:
    data = item if isinstance(item, dict) else {"value": item}
    if b"\\u0000" in orjson.dumps(data):  # raises for what is nested too deep, which what follows relies on
        data = _without_nul(data)
    title = _at(data, tool.title.split(".")) if tool.title is not None else None
    if isinstance(title, str | int | float) and "title" not in data:
        data = {"title": title, **data}
    return TakenCard(tool.type, data, orjson.dumps(data).decode())


def _at(value: Any, path: Sequence[str]) -> Any:
    """What stands at a path of members and places in lists; None: nothing."""
    for part in path:
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and part.isascii() and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value


def _without_nul(value: Any) -> Any:
    """As Postgres can keep it: U+0000 becomes U+FFFD."""
    if isinstance(value, str):
        return value.replace("\0", "\ufffd")
    if isinstance(value, list):
        return [_without_nul(each) for each in value]
    if isinstance(value, dict):
        return {_without_nul(key): _without_nul(each) for key, each in value.items()}
    return value
