"""Streams in which a model calls phantom tools, and what a client has to get of them: slow, obvious, apart from the engine.

The specification is docs/explanation/paging-streams.md. `expected` knows a whole leg before it says anything, reads every
event as JSON and builds what is changed anew.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from app.features.paging.stream import Out, PhantomStream
from app.features.paging.tools import Names, NeedsLeg, PendingCalls
from tests.support.replies import CAPTURES, captured_cases

OURS = ("memory_query", "memory_restore")
DONE = b"data: [DONE]\n\n"
FOLLOWED = (None, "tool_calls", "function_call", "stop")
EMPTY: tuple[Any, ...] = (None, "", [], {})


@dataclass(frozen=True)
class Due:
    """An event that the client gets: of which of the leg's, and as which bytes or, rewritten, as which JSON."""

    source: int
    value: bytes | dict[str, Any]


@dataclass(frozen=True)
class Told:
    """What a leg comes to: its events for the client, whether another leg follows, and which calls are answered."""

    due: list[Due]
    followed: bool
    pending: bool
    calls: list[tuple[str, str]]
    """Name and arguments."""
    text: str
    leg_usage: dict[str, Any] | None


@dataclass
class Client:
    """What goes on from leg to leg."""

    id: str | None = None
    created: int | None = None
    role: bool = False
    usage: dict[str, Any] | None = None
    leg: int = 0


def captured_body(case: str) -> bytes:
    """The body of a captured response, without the framing of HTTP."""
    head, _, body = (CAPTURES / f"{case}.response.raw").read_bytes().partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" not in head:
        return body
    whole = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        whole, body = whole + body[:length], body[length + 2 :]
        if not length:
            break
    return whole


def captured_streams() -> dict[str, bytes]:
    """Every captured stream of chat completions."""
    found = {}
    for case in captured_cases():
        request = orjson.loads((CAPTURES / f"{case}.request.json").read_bytes())
        body = captured_body(case)
        if request["path"] == "/v1/chat/completions" and body.startswith((b"data:", b":")):
            found[case] = body
    return found


def split(body: bytes) -> list[bytes]:
    """The events of a stream that has line feeds only."""
    parts = body.split(b"\n\n")
    return [part + b"\n\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def expected(body: bytes, client: Client, names: Sequence[str] = OURS, rounds: int = 4) -> Told:
    """What a leg comes to. Its calls have indexes, its events line feeds, its names may come in pieces."""
    client.leg += 1
    events = split(body)
    read = [_read(each) for each in events]
    chunks = [each for each in read if each is not None and isinstance(each.get("choices"), list)]
    calls: dict[int, list[str]] = {}
    finish, text, usage = None, "", None
    begun: int | None = None
    for source, chunk in enumerate(read):
        if chunk is None or chunk not in chunks:
            continue
        usage = chunk.get("usage") or usage
        for part in _looked_at(chunk):
            text += part.get("delta", {}).get("content") or ""
            finish = part.get("finish_reason") or finish
            for call in part.get("delta", {}).get("tool_calls") or []:
                known = calls.setdefault(call["index"], ["", ""])
                function = call.get("function") or {}
                if function.get("name") != known[0]:
                    known[0] += function.get("name") or ""
                known[1] += function.get("arguments") or ""
                if begun is None and known[0] in names:
                    begun = source
    ours = [index for index in sorted(calls) if calls[index][0] in names]
    theirs = [index for index in sorted(calls) if index not in ours]
    failed = any(each is not None and each.get("error") for each in read)
    ended = any(each.strip() == DONE.strip() for each in events) or finish is not None
    whole = bool(ours) and finish in FOLLOWED and not failed and ended and client.leg <= rounds + 1
    followed, pending = whole and not theirs, whole and bool(theirs)
    due: list[Due] = []
    for source, (event, chunk_or_none) in enumerate(zip(events, read, strict=True)):
        if chunk_or_none is None or chunk_or_none not in chunks:
            ended_here = followed and event.strip() == DONE.strip()
            torn = begun is not None and source > begun and _is_torn(event)  # it may be a piece of a phantom call
            if not ended_here and not torn:
                due.append(Due(source, event))
            continue
        value = _chunk(chunk_or_none, client, ours, theirs, followed, stopped=bool(ours) and not theirs and not failed)
        if value is not None:
            due.append(Due(source, event if value == chunk_or_none else value))
    if followed and usage is not None:
        client.usage = added(client.usage, usage)
    return Told(due, followed, pending, [(calls[i][0], calls[i][1]) for i in ours], text, usage)


def _looked_at(chunk: dict[str, Any]) -> list[dict[str, Any]]:
    """The one choice: a request for several gets no phantom tools."""
    return [part for part in chunk["choices"] if part["index"] == 0]


def _read(event: bytes) -> dict[str, Any] | None:
    if not event.startswith(b"data:") or event.strip() == DONE.strip():
        return None
    try:
        found = json.loads(event[5:])
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _is_torn(event: bytes) -> bool:
    if not event.startswith(b"data:") or event.strip() == DONE.strip():
        return False
    try:
        json.loads(event[5:])
    except ValueError:
        return True
    return False


def _chunk(
    chunk: dict[str, Any], client: Client, ours: list[int], theirs: list[int], followed: bool, *, stopped: bool
) -> dict[str, Any] | None:
    """A chunk as the client gets it; None where nothing of it is left."""
    made = copy.deepcopy(chunk)
    cut = False
    for part in _looked_at(made):
        delta = part.get("delta", {})
        if delta.get("tool_calls"):
            kept = [call for call in delta["tool_calls"] if call["index"] not in ours]
            if len(kept) < len(delta["tool_calls"]):
                cut = True
                delta["tool_calls"] = kept
                if not kept:
                    del delta["tool_calls"]
                for name in ("logprobs", "token_ids"):
                    if name in part:
                        part[name] = None
            for call in kept:
                if any(index < call["index"] for index in ours):
                    call["index"] = theirs.index(call["index"])
        if client.leg > 1 and client.role and delta.get("role"):
            cut = True
            del delta["role"]
        if followed and part.get("finish_reason"):
            cut = True
            part["finish_reason"] = None
        elif stopped and client.leg > 5 and part.get("finish_reason") in ("tool_calls", "function_call"):
            part["finish_reason"] = "stop"
        told = delta.get("role") and not client.role
        rest = [value for name, value in delta.items() if name != "role" and value not in EMPTY]
        if cut and not told and not rest and not part.get("finish_reason"):
            return None
        client.role = client.role or bool(delta.get("role"))
    ended = followed and _finished_before(chunk)
    if ended and not chunk["choices"] and chunk.get("usage"):
        return None
    client.id = client.id or chunk.get("id")
    client.created = client.created or chunk.get("created")
    if client.leg > 1:
        made["id"], made["created"] = client.id, client.created
    if made.get("usage"):
        made["usage"] = added(client.usage, made["usage"]) if client.usage else made["usage"]
        if followed and chunk["choices"] and chunk["choices"][0].get("finish_reason"):
            made["usage"] = None
    return made


def _finished_before(chunk: dict[str, Any]) -> bool:
    return not chunk["choices"]  # the streams here tell their usage behind the finish reason, as all servers do


def added(before: dict[str, Any] | None, now: dict[str, Any]) -> dict[str, Any]:
    """Two usages as one."""
    total = copy.deepcopy(now)
    for name, value in (before or {}).items():
        if isinstance(value, dict):
            total[name] = added(value, total.get(name) or {})
        elif isinstance(value, int):
            total[name] = value + (total.get(name) or 0)
        else:
            total.setdefault(name, value)
    return total


# --- the engine, driven -----------------------------------------------------------------------------------------------


def chunks_of(body: bytes, rng: random.Random, most: int = 40) -> list[bytes]:
    """The body in chunks of random sizes, at most `most` of them."""
    places = sorted(rng.choices(range(len(body) + 1), k=rng.randrange(most)))
    return [body[a:b] for a, b in zip([0, *places], [*places, len(body)], strict=True)]


def sent(outs: Sequence[Out]) -> bytes:
    return b"".join(each for each in outs if isinstance(each, bytes))


def asked(outs: Sequence[Out]) -> NeedsLeg | None:
    return next((each for each in outs if isinstance(each, NeedsLeg)), None)


def pended(outs: Sequence[Out]) -> PendingCalls | None:
    return next((each for each in outs if isinstance(each, PendingCalls)), None)


def merged(*legs: bytes, names: Names | None = None) -> bytes:
    """What a client gets of these legs; they have to be as many as the engine asks for."""
    engine = PhantomStream(names or Names())
    found = b""
    for at, leg in enumerate(legs):
        if at:
            engine.next_leg()
        outs = engine.feed(leg) + engine.end()
        found += sent(outs)
        assert (asked(outs) is not None) == (at + 1 < len(legs))
    return found


# --- streams of our own making ----------------------------------------------------------------------------------------


def event(delta: object = None, *, finish: str | None = None, **more: Any) -> bytes:
    """A chunk with one choice, as vLLM writes it."""
    part = {"index": 0, "delta": {} if delta is None else delta, "logprobs": None, "finish_reason": finish}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 100, "model": "m"}
    return b"data: " + orjson.dumps(head | {"choices": [part]} | more) + b"\n\n"


def usage(prompt: int, completion: int, **more: Any) -> bytes:
    """The chunk with the figures."""
    figures = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 100, "model": "m", "choices": []}
    return b"data: " + orjson.dumps(head | {"usage": figures} | more) + b"\n\n"


def call(index: int, name: str | None = None, arguments: str | None = None, id_: str | None = None) -> dict[str, Any]:
    """One element of a delta's `tool_calls`."""
    made: dict[str, Any] = {"index": index}
    if id_ is not None:
        made |= {"id": id_, "type": "function"}
    function = {"name": name, "arguments": arguments}
    return made | {"function": {key: value for key, value in function.items() if value is not None}}


def calls(*given: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A delta with pieces of calls."""
    return {"content": None, "tool_calls": list(given), **more}
