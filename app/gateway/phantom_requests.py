"""The requests of later legs, made of the first one's own bytes."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from app.gateway.phantom_events import without
from app.gateway.phantom_tools import Names, NeedsLeg, results
from app.gateway.splice import Insertion, entries, insert_messages, scan, splice


def following(body: bytes, need: NeedsLeg, texts: Sequence[str]) -> bytes:
    """The request once more, with what the model called and was told (`texts`, one for each call) behind its messages."""
    envelope = scan(body)
    assert envelope is not None, "what an upstream answered with calls is a chat request"
    said = [need.message, *results(need.calls, texts)]
    return splice(body, [insert_messages(envelope, len(envelope.messages), said)])


def without_tools(body: bytes, names: Names) -> bytes:
    """The request without the phantom tools: the client's own stay; where there are none, the member goes, for upstreams refuse
    an empty list."""
    members = [*entries(body, body.index(b"{"))]
    gone = [name == "tools" for name, _ in members]
    made: list[Insertion] = []
    for at, (name, span) in enumerate(members):
        if name != "tools":
            continue
        tools = [each for _, each in entries(body, span.start)]
        ours = [_name(body[each.start : each.end]) in names for each in tools]
        gone[at] = bool(ours) and all(ours)
        if not gone[at]:
            made += without(body, span.start, tools, ours)
    return splice(body, made + without(body, body.index(b"{"), [span for _, span in members], gone))


def _name(tool: bytes) -> object:
    function = orjson.loads(tool).get("function")
    return function.get("name") if isinstance(function, dict) else None
