"""Calls: what was asked, how it went, what memory had to do with it.

One call has four views: its context, its stream, its bytes, and the call compiled again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from datetime import UTC, datetime
from typing import Any

from starlette.responses import Response

from app.dialects.registry import answer_of, dialect_of
from app.features.ui import call_body, call_context, call_prompt, call_words
from app.features.ui.rendering import url
from app.features.ui.visit import Entry, Refused, Visit, or_none, whole_number

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


# --- all of them ---------------------------------------------------------------------------------------------------------


async def listed(visit: Visit) -> Response:
    """GET /ui/calls."""
    given = {name: value for name in FILTERS if (value := visit.query(name)) is not None}
    page: dict[str, Any] = {"calls": [], "next": None}
    problem = None
    try:
        page = await visit.api.get("calls", **asked(given), limit=PAGE, cursor=visit.query("cursor"))
    except Refused as refused:
        if refused.status not in (400, 404, 422):
            raise
        problem = refused.message
    return visit.render(
        "calls.html",
        status=200 if problem is None else 400,
        page=page,
        given=given,
        problem=problem,
        words=call_words,
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
        return await _render(visit, "replay", told=None, form={"mode": "today", "send": False})
    return await _context(visit)


# --- its context ---------------------------------------------------------------------------------------------------------


# --- context -------------------------------------------------------------------------------------------------------------


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
    made = call_prompt.compare(said, going, quoted)
    made = call_prompt.with_fields(made, call_prompt.other_fields(was, now))
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
    picked = call_context.picked(items, show)
    start = whole_number(visit.query("from")) or 0
    here = picked[start : start + call_context.PAGE]
    present = {name: True for each in here for name, value in each["signals"].items() if value}
    spent = call_context.spending(context)
    profile = call_context.weights_of(here[0], context["strategy"]) if here else None
    return {
        "spent": spent,
        "window": call_context.segments(spent.sections),
        "sent": call_context.segments(spent.sent),
        "rows": call_context.rows(here, context["strategy"], call_context.highest(items)),
        "show": show,
        "start": start,
        "picked": len(picked),
        "following": start + len(here) if start + len(here) < len(picked) else None,
        "chosen": sum(each["chosen"] for each in items),
        "dropped": sum(not each["chosen"] for each in items) + int(context.get("omitted") or 0),
        "signals": [(call_words.signal(name), profile[name] if profile else None) for name in present],
        "here": {each["id"] for each in here},
        "ids": {each["id"]: n // call_context.PAGE * call_context.PAGE for n, each in enumerate(items)},
    }


# --- its stream ----------------------------------------------------------------------------------------------------------


# --- stream --------------------------------------------------------------------------------------------------------------


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
    events = await asyncio.to_thread(call_body.events_of, drawn, whole if following is None else None)
    return await _render(
        visit,
        "stream",
        one,
        events=events,
        line=call_body.timeline(events),
        more=following,
        begins=begin is None,
        table=table,
        rows=call_body.events_of(table["events"], whole if table["next"] is None else None) if table else [],
    )


# --- its bytes -----------------------------------------------------------------------------------------------------------


# --- bytes ---------------------------------------------------------------------------------------------------------------


async def _raw(visit: Visit) -> Response:
    identity = visit.segment("call")
    one, *bodies = await asyncio.gather(
        visit.api.get("calls", identity),
        *(_or_words(visit.api.content("calls", identity, "raw", part=part)) for part in PARTS),
    )
    made = await asyncio.to_thread(lambda: [call_body.body(each) for each in bodies])
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


# --- replay --------------------------------------------------------------------------------------------------------------


async def replayed(visit: Visit) -> Response:
    """POST /ui/calls/{id}/replay: compiled again, and shown; nothing of it is stored, so there is nowhere to redirect to."""
    given = await visit.form()
    identity = visit.segment("call")
    form = {"mode": str(given.get("mode", "today")), "send": "send" in given}
    try:
        told, sent = await asyncio.gather(
            visit.api.send("POST", "calls", identity, "replay", body=form | {"messages": True}),
            or_none(visit.api.content("calls", identity, "request", sent=True)),
        )
    except Refused as refused:
        if refused.status == 404:
            raise
        return await _render(visit, "replay", told=None, form=form, problem=refused.message, status=refused.status)
    one = await visit.api.get("calls", identity)
    prompt = await asyncio.to_thread(_again, one, sent, told)
    return await _render(visit, "replay", one, told=told, form=form, prompt=prompt)


def _again(one: Mapping[str, Any], sent: bytes | None, told: Mapping[str, Any]) -> call_prompt.Prompt | None:
    """The prompt of now against that of then."""
    if sent is None or len(sent) > MOST_BYTES:
        return None
    then = call_prompt.messages_of(call_prompt.read(sent), one["path"])
    return call_prompt.compare(then, told["messages"]) if then and told["messages"] else None


# --- its labels and outcome ----------------------------------------------------------------------------------------------


# --- labels, outcomes ----------------------------------------------------------------------------------------------------


async def labelled(visit: Visit) -> Response:
    """POST /ui/calls/{id}/labels."""
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


# --- all of them ---------------------------------------------------------------------------------------------------------


async def _render(visit: Visit, tab: str, one: Mapping[str, Any] | None = None, **values: Any) -> Response:
    identity = visit.segment("call")
    outcome = or_none(visit.api.get("outcomes", identity))
    if one is None:
        one, worth = await asyncio.gather(visit.api.get("calls", identity), outcome)
    else:
        worth = await outcome
    return visit.render(f"call_{tab}.html", call=one, worth=worth, tab=tab, words=call_words, **values)


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
    Entry("/calls/{call}/replay", replayed, ("POST",)),
    Entry("/calls/{call}/labels", labelled, ("POST",)),
    Entry("/calls/{call}/outcome", rated, ("POST",)),
)
