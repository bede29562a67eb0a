"""Bodies compared: by value, by the very digits of their numbers, by the order of their keys; and the events of a stream."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.conformance.checks import short

_MISSING = object()
_EOL = re.compile(rb"\r\n|\n|\r")


class Digits(str):
    """A number as it was written; no string is equal to it."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Digits) and str(self) == str(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def parsed(body: bytes) -> Any:
    """JSON, or the bytes where it is none."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return body


def by_digits(body: bytes) -> Any:
    """JSON with its numbers as they were written."""
    try:
        return json.loads(body, parse_float=Digits, parse_int=Digits)
    except (ValueError, RecursionError):
        return body


def key_orders(value: Any, path: str = "$") -> dict[str, list[str]]:
    """The order of the keys of every object, by its place."""
    found: dict[str, list[str]] = {}
    if isinstance(value, Mapping):
        found[path] = list(value)
        for name, each in value.items():
            found |= key_orders(each, f"{path}.{name}")
    elif isinstance(value, list):
        for index, each in enumerate(value):
            found |= key_orders(each, f"{path}[{index}]")
    return found


def differences(right: Any, got: Any, path: str = "$") -> list[str]:
    """What is missing, added or changed in `got`, by its place."""
    if isinstance(right, Mapping) and isinstance(got, Mapping):
        found: list[str] = []
        for name in {**right, **got}:
            place = f"{path}.{name}"
            if name not in got:
                found.append(f"{place} is missing")
            elif name not in right:
                found.append(f"{place} is added: {short(json.dumps(got[name], ensure_ascii=False), 40)}")
            else:
                found += differences(right[name], got[name], place)
        return found
    if isinstance(right, list) and isinstance(got, list) and len(right) == len(got):
        return [each for i in range(len(right)) for each in differences(right[i], got[i], f"{path}[{i}]")]
    # True == 1 in Python, not in JSON
    if right != got or isinstance(right, bool) != isinstance(got, bool):
        return [f"{path} is {_json(got)} instead of {_json(right)}"]
    return []


def _json(value: Any) -> str:
    return short(value, 60) if isinstance(value, bytes) else short(json.dumps(value, ensure_ascii=False), 60)


def messages_lost(right: Sequence[Any], got: Any) -> list[str]:
    """Of messages that may be added to: what the client said and is not there any more, in its order.

    A message is there when its text stands in one of the same kind, and its other members are the same.
    """
    left = list(got) if isinstance(got, list) else []
    lost: list[str] = []
    for index, message in enumerate(right):
        place = next((i for i, each in enumerate(left) if _holds(each, message)), None)
        if place is None:
            lost.append(f"$.messages[{index}] is missing or changed: {short(json.dumps(message), 60)}")
        else:
            del left[: place + 1]
    return lost


def _holds(got: Any, message: Any) -> bool:
    if not isinstance(got, Mapping) or {**got, "content": None} != {**message, "content": None}:
        return False
    said, heard = message.get("content"), got.get("content")
    if isinstance(said, str) and isinstance(heard, str):
        return said in heard
    if isinstance(said, list) and isinstance(heard, list):
        return all(part in heard for part in said)
    return bool(said == heard)


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream; `comments` stand before it or in it."""

    data: bytes | None
    name: bytes | None = None
    id: bytes | None = None
    comments: tuple[bytes, ...] = ()

    @property
    def value(self) -> Any:
        return parsed(self.data) if self.data is not None else None


def events_of(body: bytes) -> list[Event]:
    """The events of a stream (WHATWG HTML §9.2.6); what is left at its end too."""
    events: list[Event] = []
    data: list[bytes] = []
    other: dict[bytes, bytes] = {}
    comments: list[bytes] = []

    def dispatch() -> None:
        if data or other or comments:
            whole = b"\n".join(data) if data else None
            events.append(Event(whole, other.get(b"event"), other.get(b"id"), tuple(comments)))
        data.clear()
        other.clear()
        comments.clear()

    for line in _EOL.split(body):
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not line:
            dispatch()
        elif not name:
            comments.append(value)
        elif name == b"data":
            data.append(value)
        else:
            other[name] = value
    dispatch()
    return events


def event_differences(right: bytes, got: bytes) -> list[str]:
    """Two streams, event by event, by value: their data, names and ids. Comments do not count."""
    wanted, seen = ([each for each in events_of(body) if each.data is not None] for body in (right, got))
    found: list[str] = []
    if len(wanted) != len(seen):
        found.append(f"{len(seen)} events instead of {len(wanted)}")
    for index, (one, other) in enumerate(zip(wanted, seen, strict=False)):
        found += differences(one.value, other.value, f"event {index + 1}")
        if (one.name, one.id) != (other.name, other.id):
            found.append(f"event {index + 1} has the fields {_fields(other)} instead of {_fields(one)}")
    return found


def _fields(event: Event) -> str:
    given = {"event": event.name, "id": event.id}
    return (
        ", ".join(f"{name}: {value.decode()}" for name, value in given.items() if value is not None) or "of data only"
    )
