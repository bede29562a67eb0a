"""Change single members of a chat completion, or of one chunk of its stream, in its own bytes; and add up usage."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from msgspec import Struct, field

from app.gateway.splice import Insertion, Span, dump, entries

NULL = b"null"
ERROR_CHARS = 1000
"""Of what an upstream said, in an error that is made of it."""
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\n|\r|\Z)")
_OF_ALL_TOKENS = frozenset({"logprobs", "token_ids"})
"""What upstreams tell of all tokens of a chunk, those of its calls too."""


class PartEdit(Struct):
    """What is changed in one element of `choices`.

    `gone`: calls that are taken out, by their position in `tool_calls`; `moved`: calls that get another index. `role`: it is
    taken out. `finish`: what takes the place of the finish reason.
    """

    gone: set[int] = field(default_factory=set)
    moved: dict[int, int] = field(default_factory=dict)
    role: bool = False
    finish: bytes | None = None

    def __bool__(self) -> bool:
        return bool(self.gone or self.moved or self.role or self.finish is not None)


def edits(data: bytes, top: Mapping[str, bytes], at: int, part: PartEdit) -> list[Insertion]:
    """What gives the JSON object `data` other top-level values, where it has them, and changes the choice at position `at`."""
    made: list[Insertion] = []
    for name, span in entries(data, data.index(b"{")):
        if name in top:
            made.append(Insertion(span.start, top[str(name)], span.end - span.start))
            if not part and len(made) == len(top):
                break  # nearly always id and created, which stand first
        elif name == "choices" and part:
            for position, each in entries(data, span.start):
                if position == at:
                    made += _of_part(data, each.start, part)
    return made


def _of_part(data: bytes, start: int, part: PartEdit) -> list[Insertion]:
    made: list[Insertion] = []
    for name, span in entries(data, start):
        if name in ("delta", "message"):
            made += _of_message(data, span.start, part)
        elif name == "finish_reason" and part.finish is not None:
            made.append(Insertion(span.start, part.finish, span.end - span.start))
        elif name in _OF_ALL_TOKENS and part.gone:
            made.append(Insertion(span.start, NULL, span.end - span.start))
    return made


def _of_message(data: bytes, start: int, part: PartEdit) -> list[Insertion]:
    made: list[Insertion] = []
    members = [*entries(data, start)]
    gone = [name == "role" and part.role for name, _ in members]
    for n, (name, span) in enumerate(members):
        if name != "tool_calls" or not (part.gone or part.moved):
            continue
        calls = [*entries(data, span.start)]
        out = [position in part.gone for position, _ in calls]
        gone[n] = all(out)
        if not gone[n]:
            made += without(data, span.start, [each for _, each in calls], out)
            made += [
                Insertion(index.start, str(part.moved[position]).encode(), index.end - index.start)
                for position, call in enumerate(each for _, each in calls)
                if position in part.moved
                for key, index in entries(data, call.start)
                if key == "index"
            ]
    return made + without(data, start, [span for _, span in members], gone)


def without(data: bytes, start: int, spans: Sequence[Span], gone: Sequence[bool]) -> list[Insertion]:
    """What takes members or elements, each with a comma, out of the object or array at `start`. `spans`: of all values."""
    if not any(gone):
        return []
    first = next((n for n, out in enumerate(gone) if not out), None)
    if first is None:
        return [Insertion(start + 1, b"", spans[-1].end - start - 1)]
    made = []
    if first:
        behind = data.index(b",", spans[first - 1].end) + 1
        made.append(Insertion(start + 1, b"", behind - start - 1))
    behind_it = zip(spans[first:], spans[first + 1 :], gone[first + 1 :], strict=False)
    return made + [Insertion(last.end, b"", each.end - last.end) for last, each, out in behind_it if out]


def with_data(event: bytes, old: bytes, new: bytes) -> bytes:
    """A server-sent event whose data was `old`, with `new` in its place; its other lines and its ends of line stay."""
    if event.count(old) == 1:
        return event.replace(old, new)
    parts: list[bytes] = []
    told = False
    for line in _LINE.findall(event):
        if line.partition(b":")[0].rstrip(b"\r\n") != b"data":
            parts.append(line)
        elif not told:  # data on several lines: a line break is white space in JSON
            told = True
            end = line[len(line.rstrip(b"\r\n")) :]
            parts += [b"data: " + each + end for each in new.split(b"\n")]
    return b"".join(parts)


def refusal(status: int, body: bytes) -> dict[str, Any]:
    """What an upstream answered in place of a later leg, as OpenAI writes an error: `{"error": {…}}`. Some say
    `{"error": "…"}`, `{"detail": …}`, or no JSON at all."""
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        said = None
    shaped = {"message": "", "type": "upstream_error", "param": None, "code": status}
    if isinstance(said, dict):
        error = said.get("error")
        if isinstance(error, dict) and isinstance(error.get("message"), str):
            return {"error": shaped | error}
        said = error or said.get("detail") or said.get("message")
    text = said if isinstance(said, str) else dump(said).decode() if said else body.decode("utf-8", "replace").strip()
    return {"error": shaped | {"message": text[:ERROR_CHARS] or f"The upstream answered {status}."}}


def summed(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> dict[str, Any]:
    """Two usages as one: figures added up, also those inside of details; what is no figure is the later one's."""
    total = dict(now)
    for name, earlier in (before or {}).items():
        later = total.get(name)
        if isinstance(earlier, Mapping):
            total[name] = summed(earlier, later if isinstance(later, Mapping) else {})
        elif _is_figure(earlier):
            total[name] = earlier + later if _is_figure(later) else earlier
        else:
            total.setdefault(name, earlier)
    return total


def _is_figure(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
