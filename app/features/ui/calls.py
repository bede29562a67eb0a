"""Calls: what was asked, how it went, what memory had to do with it. One call has four views: its context, its stream, its
bytes, and the call sent again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

import orjson
from msgspec import Struct
from msgspec.structs import replace
from starlette.responses import Response

from app.features.ui import call_prompt
from app.features.ui.rendering import url
from app.features.ui.visit import Entry, Refused, Visit, or_none, or_refused, whole_number
from app.gateway.dialects import answer_of, dialect_of
from app.gateway.dialects.sse import data_of

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


# --- a body, laid out. Pure ----------------------------------------------------------------------------------------------


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
        text = "\0"
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


# --- a stream, event by event and drawn over time. Pure ------------------------------------------------------------------


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


def events_of(given: Sequence[Mapping[str, Any]], whole: int | None) -> list[BodyEvent]:
    """Events of the route. `whole`: bytes of the body, where these are the last."""
    made = []
    last: int | None = None
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


# --- all of them ---------------------------------------------------------------------------------------------------------

PAGE = 50
FILTERS = (
    "user", "session", "model", "status", "outcome", "label", "tools", "has_error", "min_latency_ms", "since", "until", "legs",
)  # fmt: skip
"""What GET /api/v1/calls takes."""
PARTS = ("request", "sent", "response")
MOST_BYTES = 8 * 1024 * 1024
"""Largest body that is read to be shown; of a larger one there is the download."""
LOOKED_AT = 4
"""Pages of the route's largest size (1,000 events) that a timeline is drawn from."""
API_PAGE = 1000
EVENTS = 50
"""Events in the table."""
ANSWER_CHARS = 20_000
"""Of an answer's text, characters that are shown."""


async def listed(visit: Visit) -> Response:
    given = {name: value for name in FILTERS if (value := visit.query(name)) is not None}
    empty: dict[str, Any] = {"calls": [], "next": None}
    page, refused = await or_refused(
        visit.api.get("calls", **asked(given), limit=PAGE, cursor=visit.query("cursor")), empty
    )
    return visit.render(
        "calls.html",
        status=400 if refused else 200,
        page=page,
        given=given,
        problem=refused.message if refused else None,
        words=call_prompt,
        first=visit.query("cursor") is None,
        base=str(visit.request.base_url).rstrip("/"),
    )


def asked(given: dict[str, str]) -> dict[str, Any]:
    """The form's values as the route takes them: labels one by one, moments without a zone in UTC."""
    made: dict[str, Any] = dict(given)
    if "label" in given:
        made["label"] = [each.strip() for each in given["label"].split(",") if each.strip()]
    for name in ("since", "until"):
        if name in given:
            made[name] = moment(given[name])
    return made


def moment(text: str) -> str:
    """As a form has it ("2026-11-22T19:00"), in UTC; what is no moment goes on, to be refused."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return text
    return found.isoformat() if found.tzinfo is not None else found.replace(tzinfo=UTC).isoformat()


# --- one -----------------------------------------------------------------------------------------------------------------


async def shown(visit: Visit) -> Response:
    """GET /ui/calls/{id}, `?tab=`."""
    tab = visit.query("tab", "context")
    if tab == "stream":
        return await _stream(visit)
    if tab == "raw":
        return await _raw(visit)
    if tab == "replay":
        return await _render(visit, "replay", replay=None)
    return await _context(visit)


# --- its context ---------------------------------------------------------------------------------------------------------


async def _context(visit: Visit) -> Response:
    identity = visit.segment("call")
    # What is only told in passing may be missing: a body that was redacted, a call without memory.
    one, context, received, sent, answer = await asyncio.gather(
        visit.api.get("calls", identity),
        or_none(visit.api.get("calls", identity, "context")),
        or_none(visit.api.content("calls", identity, "request")),
        or_none(visit.api.content("calls", identity, "request", sent=True)),
        or_none(visit.api.content("calls", identity, "raw", part="response")),
    )
    prompt = await asyncio.to_thread(_prompt, one, context, received, sent)
    values: dict[str, Any] = {"context": context, "prompt": prompt[0], "asked": prompt[1], "explained": None}
    values["answered"] = await asyncio.to_thread(_answered, one, answer)
    if context is not None:
        values["explained"] = _explained(visit, context)
    return await _render(visit, "context", one, **values)


def _prompt(
    one: Mapping[str, Any], context: Mapping[str, Any] | None, received: bytes | None, sent: bytes | None
) -> tuple[call_prompt.Prompt | None, str | None]:
    """What was sent against what was received, and the question."""
    if received is None or sent is None or max(len(received), len(sent)) > MOST_BYTES:
        return None, None
    was, now = call_prompt.read(received), call_prompt.read(sent)
    said, going = call_prompt.messages_of(was, one["path"]), call_prompt.messages_of(now, one["path"])
    if not going:
        return None, None
    quoted = call_prompt.quotable(context["items"]) if context is not None else {}
    made = replace(call_prompt.compare(said, going, quoted), fields=call_prompt.other_fields(was, now))
    return made, call_prompt.last_said(said)


def _answered(one: Mapping[str, Any], body: bytes | None) -> str | None:
    dialect = dialect_of(one["method"], one["path"].partition("?")[0])
    if body is None or dialect is None or len(body) > MOST_BYTES:
        return None
    answer = answer_of(body, dialect)
    text = "\n\n".join(each.content or each.refusal or "" for each in answer.choices) if answer else ""
    return text[:ANSWER_CHARS] or None


def _explained(visit: Visit, context: Mapping[str, Any]) -> dict[str, Any]:
    items = context["items"]
    show = visit.query("show", "all") or "all"
    picked = call_prompt.picked(items, show)
    start = whole_number(visit.query("from")) or 0
    here = picked[start : start + call_prompt.PAGE]
    present = {name: True for each in here for name, value in each["signals"].items() if value}
    spent = call_prompt.spending(context)
    profile = call_prompt.weights_of(here[0], context["strategy"]) if here else None
    return {
        "spent": spent,
        "window": call_prompt.segments(spent.sections),
        "sent": call_prompt.segments(spent.sent),
        "rows": call_prompt.rows(here, context["strategy"], call_prompt.highest(items)),
        "show": show,
        "start": start,
        "picked": len(picked),
        "following": start + len(here) if start + len(here) < len(picked) else None,
        "chosen": sum(each["chosen"] for each in items),
        "dropped": sum(not each["chosen"] for each in items) + int(context.get("omitted") or 0),
        "signals": [(call_prompt.signal(name), profile[name] if profile else None) for name in present],
        "here": {each["id"] for each in here},
        "ids": {each["id"]: n // call_prompt.PAGE * call_prompt.PAGE for n, each in enumerate(items)},
    }


# --- its stream ----------------------------------------------------------------------------------------------------------


async def _stream(visit: Visit) -> Response:
    identity = visit.segment("call")
    cursor, begin = visit.query("cursor"), visit.query("from")
    one, table = await asyncio.gather(
        visit.api.get("calls", identity),
        or_none(visit.api.get("calls", identity, "events", limit=EVENTS, cursor=cursor)),
    )
    drawn, following = [], begin
    if table is not None and (table["events"] or cursor):
        for _ in range(LOOKED_AT):
            page = await visit.api.get("calls", identity, "events", limit=API_PAGE, cursor=following)
            drawn += page["events"]
            following = page["next"]
            if following is None:
                break
    whole = one["response_bytes"]
    events = await asyncio.to_thread(events_of, drawn, whole if following is None else None)
    return await _render(
        visit,
        "stream",
        one,
        events=events,
        line=timeline(events),
        more=following,
        begins=begin is None,
        table=table,
        rows=events_of(table["events"], whole if table["next"] is None else None) if table else [],
    )


# --- its bytes -----------------------------------------------------------------------------------------------------------


async def _raw(visit: Visit) -> Response:
    identity = visit.segment("call")
    one, *bodies = await asyncio.gather(
        visit.api.get("calls", identity),
        *(_or_words(visit.api.content("calls", identity, "raw", part=part)) for part in PARTS),
    )
    made = await asyncio.to_thread(lambda: [body(each) for each in bodies])
    return await _render(visit, "raw", one, bodies=list(zip(PARTS, made, strict=True)))


async def passed_on(visit: Visit) -> Response:
    """GET /ui/calls/{id}/raw?part=: the bytes, as no browser would run them."""
    part = visit.query("part", "response")
    if part not in PARTS:
        raise Refused(404, "A call has a request, what was sent of it, and a response.")
    identity = visit.segment("call")
    await visit.api.get("calls", identity)  # what the route says else is no page
    return visit.pass_on("calls", identity, "raw", part=part)


# --- its replay ----------------------------------------------------------------------------------------------------------


async def send_again(visit: Visit) -> Response:
    """Serve POST /ui/calls/{id}/replay: send the call again and show both answers. Nothing is stored to redirect to."""
    identity = visit.segment("call")
    try:
        replay = await visit.api.send("POST", "calls", identity, "replay", body={})
    except Refused as refused:
        if refused.status == 404:
            raise
        return await _render(visit, "replay", replay=None, problem=refused.message, status=refused.status)
    return await _render(visit, "replay", replay=replay)


# --- its labels and outcome ----------------------------------------------------------------------------------------------


async def labelled(visit: Visit) -> Response:
    given = await visit.form()
    labels = [each.strip() for each in str(given.get("labels", "")).split(",") if each.strip()]
    identity = visit.segment("call")
    await visit.api.send("PATCH", "calls", identity, body={"labels": labels})
    return visit.redirect(
        url("calls", identity, tab=given.get("tab")), "Labels saved." if labels else "Labels removed."
    )


async def rated(visit: Visit) -> Response:
    """POST /ui/calls/{id}/outcome: what the answer was worth, or that taken back."""
    given = await visit.form()
    identity = visit.segment("call")
    if "back" in given:
        await visit.api.send("DELETE", "outcomes", identity)
        notice = "Taken back; the importance of its memories went back as well."
    else:
        comment = str(given.get("comment", "")).strip()
        body: dict[str, Any] = {"call": identity, "outcome": str(given.get("outcome", ""))}
        made = await visit.api.send("POST", "outcomes", body=body | ({"comment": comment} if comment else {}))
        moved = len(made["memories"])
        notice = f"Noted. It moved the importance of {moved:,} {'memory' if moved == 1 else 'memories'}."
    return visit.redirect(url("calls", identity, tab=given.get("tab")), notice)


# --- what its views share ------------------------------------------------------------------------------------------------


async def _render(visit: Visit, tab: str, one: Mapping[str, Any] | None = None, **values: Any) -> Response:
    identity = visit.segment("call")
    outcome = or_none(visit.api.get("outcomes", identity))
    if one is None:
        one, worth = await asyncio.gather(visit.api.get("calls", identity), outcome)
    else:
        worth = await outcome
    return visit.render(f"call_{tab}.html", call=one, worth=worth, tab=tab, words=call_prompt, **values)


async def _or_words(asked: Awaitable[bytes]) -> bytes | str:
    """The bytes, or why there are none."""
    try:
        return await asked
    except Refused as refused:
        return refused.message


ROUTES = (
    Entry("/calls", listed),
    Entry("/calls/{call}", shown),
    Entry("/calls/{call}/raw", passed_on),
    Entry("/calls/{call}/replay", send_again, ("POST",)),
    Entry("/calls/{call}/labels", labelled, ("POST",)),
    Entry("/calls/{call}/outcome", rated, ("POST",)),
)
