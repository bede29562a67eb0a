"""The bytes of a call as a page shows them: a body laid out, and a stream, event by event and drawn over time. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import orjson
from msgspec import Struct

from app.dialects.sse import data_of

SHOWN_BYTES = 64 * 1024
"""Of a body, bytes that a page shows."""
LAID_OUT = 1024 * 1024
"""Largest JSON that is laid out, bytes."""
HEX_BYTES = 4096
PER_LINE = 16
WIDTH, HEIGHT = 1000, 180
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 26, 24
"""Of the drawing: room for what the axes say."""
TICKS = 400
"""Most marks of events; of more every nth is drawn."""
AXIS = 6
"""About so many steps of time on the axis."""
STEPS_MS = tuple(unit * 10**power for power in range(7) for unit in (1, 2, 5))
DATA_CHARS = 4000
"""Of an event's data, characters that a page shows."""
_SAYING = (("content", "text"), ("refusal", "text"), ("reasoning_content", "thought"), ("reasoning", "thought"))
"""Fields of a delta that have text, and what kind of text."""
_SAYING_IN_BLOCKS = (("text", "text"), ("thinking", "thought"), ("partial_json", "call"))
"""The same of a delta of `/v1/messages`."""


# --- a body --------------------------------------------------------------------------------------------------------------


class Body(Struct, frozen=True):
    """`size`: bytes; None: there is none, and `text` says why. `cut`: there is more than is shown."""

    kind: Literal["json", "text", "binary", "none"]
    text: str
    size: int | None
    cut: bool = False


def body(given: bytes | str) -> Body:
    """`given`: the bytes, or why there are none."""
    if isinstance(given, str):
        return Body("none", given, None)
    try:
        text = given.decode()
    except UnicodeDecodeError:
        return Body("binary", dump(given[:HEX_BYTES]), len(given), len(given) > HEX_BYTES)
    if "\0" in text[:SHOWN_BYTES]:
        return Body("binary", dump(given[:HEX_BYTES]), len(given), len(given) > HEX_BYTES)
    if given[:1] in (b"{", b"[") and len(given) <= LAID_OUT:
        try:
            text = orjson.dumps(orjson.loads(given), option=orjson.OPT_INDENT_2).decode()
        except (orjson.JSONDecodeError, TypeError):
            pass
        else:
            return Body("json", text[:SHOWN_BYTES], len(given), len(text) > SHOWN_BYTES)
    return Body("text", text[:SHOWN_BYTES], len(given), len(text) > SHOWN_BYTES)


def dump(data: bytes) -> str:
    """00000000  68 65 6c 6c 6f …  |hello…|"""
    lines = []
    for at in range(0, len(data), PER_LINE):
        part = data[at : at + PER_LINE]
        seen = "".join(chr(each) if 32 <= each < 127 else "." for each in part)
        lines.append(f"{at:08x}  {part.hex(' '):<{3 * PER_LINE - 1}}  |{seen}|")
    return "\n".join(lines)


# --- a stream ------------------------------------------------------------------------------------------------------------


class BodyEvent(NamedTuple):
    """`text`: what it adds to the answer; `kind`: text, thought, call, end, or other. `size`: bytes."""

    seq: int
    t_us: int
    offset: int
    size: int
    data: str
    text: str
    kind: str
    gap_us: int


class Mark(NamedTuple):
    x: float
    label: str


class Timeline(NamedTuple):
    """The drawing: an event's tick at `ticks`, the bytes so far as `line`, a polyline's points. `pause`: x, width and middle
    of the longest one. `first`: of the first event; `x_of` begins at `LEFT` and ends at `WIDTH - RIGHT`."""

    ticks: Sequence[float]
    line: str
    axis: Sequence[Mark]
    pause: tuple[float, float, float] | None
    first: float
    first_us: int
    last_us: int
    longest_us: int
    longest_after: int
    size: int
    thinned: int


def events_of(given: Sequence[Mapping[str, Any]], whole: int | None, before_us: int | None = None) -> list[BodyEvent]:
    """Events of the route. `whole`: bytes of the body, where these are the last; `before_us`: when the one before them came."""
    made = []
    last = before_us
    for n, each in enumerate(given):
        start = int(each["offset"])
        data = str(each["data"])
        binary = each.get("encoding") == "base64"
        size = len(data) * 3 // 4 if binary else len(data.encode())
        end = int(given[n + 1]["offset"]) if n + 1 < len(given) else whole if whole is not None else start + size
        kind, text = ("other", "") if binary else said(data)
        t_us = int(each["t_us"])
        gap = t_us - last if last is not None else 0
        made.append(BodyEvent(int(each["seq"]), t_us, start, max(0, end - start), data[:DATA_CHARS], text, kind, gap))
        last = t_us
    return made


def said(event: str) -> tuple[str, str]:
    """What an event of an answer adds to it, in any dialect: (kind, text)."""
    data = data_of(event.encode())
    if data is None:
        return "other", ""
    if data.strip() == b"[DONE]":
        return "end", ""
    try:
        chunk = orjson.loads(data)
    except orjson.JSONDecodeError:
        return "other", ""
    if not isinstance(chunk, dict):
        return "other", ""
    kind = chunk.get("type")
    if not isinstance(kind, str):
        return _said_chat(chunk)
    return _said_response(kind, chunk) if kind.startswith("response.") else _said_message(kind, chunk)


def _said_message(kind: str, chunk: Mapping[str, Any]) -> tuple[str, str]:
    delta, begun = chunk.get("delta"), chunk.get("content_block")
    if kind == "content_block_delta" and isinstance(delta, dict):
        found = ((said, delta.get(name)) for name, said in _SAYING_IN_BLOCKS)
        return next(((said, text) for said, text in found if isinstance(text, str) and text), ("other", ""))
    if kind == "content_block_start" and isinstance(begun, dict) and isinstance(name := begun.get("name"), str):
        return "call", f"{name}("
    return ("end" if kind in ("message_stop", "error") else "other"), ""


def _said_response(kind: str, chunk: Mapping[str, Any]) -> tuple[str, str]:
    delta = chunk.get("delta")
    if not isinstance(delta, str) or not kind.endswith(".delta"):
        return (
            ("end", "") if kind in ("response.completed", "response.failed", "response.incomplete") else ("other", "")
        )
    if "output_text" in kind or "refusal" in kind:
        return "text", delta
    return ("thought" if "reasoning" in kind else "call"), delta


def _said_chat(chunk: Mapping[str, Any]) -> tuple[str, str]:
    choices = chunk.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return "other", ""
    delta = choices[0].get("delta")
    if isinstance(delta, dict):
        for name, kind in _SAYING:
            if isinstance(text := delta.get(name), str) and text:
                return kind, text
        if isinstance(delta.get("tool_calls"), list):
            return "call", "".join(_called(each) for each in delta["tool_calls"] if isinstance(each, dict))
    return ("end", "") if choices[0].get("finish_reason") else ("other", "")


def _called(call: Mapping[str, Any]) -> str:
    made = call.get("function")
    if not isinstance(made, dict):
        return ""
    name, arguments = made.get("name"), made.get("arguments")
    return f"{name}(" * isinstance(name, str) + (arguments if isinstance(arguments, str) else "")


def timeline(events: Sequence[BodyEvent]) -> Timeline | None:
    """The drawing of these events; None: there are none. Time begins with the request, or where these events do not begin the
    answer, with the first of them."""
    if not events:
        return None
    begin = 0 if events[0].seq == 0 else events[0].t_us
    span = max(1, events[-1].t_us - begin)
    base = events[0].offset
    size = max(1, events[-1].offset + events[-1].size - base)

    def x_of(t_us: int) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * (t_us - begin) / span, 1)

    def y_of(offset: int) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (offset - base) / size, 1)

    step = -(-len(events) // TICKS)
    drawn = [*events[::step], *([events[-1]] if (len(events) - 1) % step else [])]
    points = [f"{x_of(drawn[0].t_us)},{y_of(base)}"]
    for each in drawn:
        points.append(f"{x_of(each.t_us)},{points[-1].partition(',')[2]}")
        points.append(f"{x_of(each.t_us)},{y_of(each.offset + each.size)}")
    longest = max(events[1:], key=lambda each: each.gap_us, default=None)
    pause = None
    if longest is not None and longest.gap_us > 0:
        start = x_of(longest.t_us - longest.gap_us)
        pause = (start, round(x_of(longest.t_us) - start, 1), round((start + x_of(longest.t_us)) / 2, 1))
    return Timeline(
        ticks=[x_of(each.t_us) for each in drawn],
        line=" ".join(points),
        axis=_axis(begin, span, x_of),
        pause=pause,
        first=x_of(events[0].t_us),
        first_us=events[0].t_us,
        last_us=events[-1].t_us,
        longest_us=longest.gap_us if longest is not None else 0,
        longest_after=longest.seq - 1 if longest is not None else 0,
        size=size,
        thinned=step,
    )


def _axis(begin: int, span: int, x_of: Any) -> list[Mark]:
    step = next((each for each in STEPS_MS if span / 1000 / each <= AXIS), STEPS_MS[-1]) * 1000
    first = -(-begin // step)
    return [Mark(x_of(n * step), _told(n * step)) for n in range(first, (begin + span) // step + 1)]


def _told(t_us: int) -> str:
    ms = t_us / 1000
    return f"{ms / 1000:g} s" if ms >= 1000 else f"{ms:g} ms"
