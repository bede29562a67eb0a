"""What goes out: all that is stored of a user, line by line, in little memory, and the captured calls of a tenant.

A user's tables are found in the catalogue, as an erasure finds them. Each page is a transaction of its own, so that a slow
reader holds no connection; what is written meanwhile may or may not be in it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import pairwise
from typing import Any, NamedTuple
from uuid import UUID

import orjson
from msgspec import Struct

from app.capture import facts
from app.capture.facts import LABEL_HEADER, CallFacts, Outcome, labels_of, settled
from app.store import ids
from app.store.captures import CallDetail
from app.store.pools import Pool, content_of
from app.store.queries import Queries
from app.store.records import ROLE_NAMES, StreamRecord
from mneme_replay.cassette import Cassette, Chunk, Request, Response

VERSION = 1
"""Of the shape of the lines."""

IN_SPACES = "said_in_spaces"
"""What the user said in shared spaces stands in an export as if it were a table."""
PAGE_ROWS = 500
PAGE_BYTES = 1024 * 1024
"""A page: as many rows as have this many bytes as they are stored, one at least. Bodies of calls are up to
MNEME_MAX_BODY_BYTES each, and twice that as hexadecimal digits."""

LEFT_OUT = {
    "embeddings": "Vectors: made of the texts, which are there, by an embedder that another system may not have.",
    "index_items": "What ranking needs of the texts: made of them.",
    "index_log": "Which of these changed lately.",
    "index_state": "How far that is known.",
    "job_effects": "Which jobs were done: ids, kept for a week.",
    "capture_sweeps": "That captures of the user are to be collected: a date.",
    "erased_contents": "Keyed hashes of what was erased; what they stand for is not there any more.",
    "erased_users": "That the user was erased before: a date.",
}
"""Tables with a `user_id` that are not exported, and why."""


class Export:
    def __init__(self, pool: Pool, sql: Queries, *, page_bytes: int = PAGE_BYTES) -> None:
        self._pool = pool
        self._sql = sql
        self._bytes = page_bytes

    async def tables(self, tenant: UUID) -> list[str]:
        """The tables that an export has, in its order."""
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["export.tables"])
        return [row["name"] for row in rows if row["name"] not in LEFT_OUT]

    async def lines(self, tenant: UUID, user: UUID, tables: list[str]) -> AsyncIterator[bytes]:
        """`{"table", "row"}` for each row of the tables, then `{"end": {table: rows}}`: without that line it is not whole.
        bytea is hexadecimal after `\\x`, times are as in the API."""
        counts: dict[str, int] = {}
        for table in tables:
            async for page in self._pages(tenant, user, table):
                counts[table] = counts.get(table, 0) + len(page)
                head = b'{"table":"%s","row":' % table.encode()
                yield b"".join(head + line.encode() + b"}\n" for line in page)
        async for said in self._in_spaces(tenant, user):
            counts[IN_SPACES] = counts.get(IN_SPACES, 0) + len(said)
            rows = ({"table": IN_SPACES, "row": each} for each in said)
            yield b"".join(orjson.dumps(each, option=orjson.OPT_APPEND_NEWLINE) for each in rows)
        yield orjson.dumps({"end": counts}, option=orjson.OPT_APPEND_NEWLINE)

    async def messages(self, tenant: UUID, user: UUID, external: str) -> AsyncIterator[bytes]:
        """The user's messages as lines that POST /api/v1/import takes, each session in its order."""
        after: tuple[Any, ...] = (None, None, None, None)
        while True:
            async with self._pool.transaction(tenant) as connection:
                rows = await connection.fetch(self._sql["export.messages"], tenant, user, *after, PAGE_ROWS)
            if not rows:
                break
            yield b"".join(orjson.dumps(_line(row, external), option=orjson.OPT_APPEND_NEWLINE) for row in rows)
            after = tuple(rows[-1][name] for name in ("session_id", "turn_index", "sibling", "message_id"))
        async for said in self._in_spaces(tenant, user):
            lines = (said_line(each, external) for each in said if each["kind"] == "message")
            yield b"".join(orjson.dumps(each, option=orjson.OPT_APPEND_NEWLINE) for each in lines)

    async def _in_spaces(self, tenant: UUID, user: UUID) -> AsyncIterator[list[dict[str, Any]]]:
        """What the user said in shared spaces, in words: its rows are the spaces'."""
        after: tuple[Any, Any] = (None, None)
        while True:
            async with self._pool.transaction(tenant) as connection:
                rows = await connection.fetch(self._sql["spaces.words"], tenant, user, *after, PAGE_ROWS)
            if not rows:
                return
            yield [{**row, "id": str(row["id"]), "said_at": written(row["said_at"])} for row in rows]
            after = (rows[-1]["said_at"], rows[-1]["id"])

    async def _pages(self, tenant: UUID, user: UUID, table: str) -> AsyncIterator[list[str]]:
        after: list[str] | None = None
        while True:
            async with self._pool.transaction(tenant) as connection:
                rows = await connection.fetch(
                    self._sql["export.rows"], tenant, user, table, after, PAGE_ROWS, self._bytes
                )
            if not rows:
                return
            yield [row["line"] for row in rows]
            after = rows[-1]["key"]


def said_line(row: dict[str, Any], external: str) -> dict[str, Any]:
    """A message that a user said in a space, as POST /api/v1/import takes it."""
    return {
        "session": row["session"],
        "user": external,
        "space": row["space"],
        "role": "user",
        "content": row["text"],
        "created_at": row["said_at"],
    }


def written(moment: datetime) -> str:
    """A time as each line has it, the rows of tables too (`agent_data.export_rows`)."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _line(row: Any, external: str) -> dict[str, Any]:
    line = {
        "session": row["session"],
        "user": external,
        "role": ROLE_NAMES[row["role"]],
        "content": content_of(row["content"], row["content_parts"]),
        "created_at": written(row["created_at"]),
        "metadata": row["metadata"],
    }
    further = {name: row[name] for name in ("name", "tool_calls", "tool_call_id")}
    return line | {name: value for name, value in further.items() if value}


# --- for cassettes -------------------------------------------------------------------------------------------------------

CASSETTE_PAGE = 200
"""Ids that are read at once."""


class WantedCalls(Struct, frozen=True):
    """Which calls; None: any. `since` and later, before `until`. `labels`: all of them. `legs`: those of calls, too; named in
    `calls` they always are."""

    session: UUID | None = None
    model: str | None = None
    status: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    labels: Sequence[str] = ()
    calls: Sequence[UUID] | None = None
    legs: bool = False


class CapturedAnswer(NamedTuple):
    """The body of an answer, and (microseconds since the request came in, bytes) of each piece of it."""

    body: bytes
    truncated: bool
    pieces: list[tuple[int, int]]


class CassetteStore:
    """The captured calls of a tenant, for export. `user`: only that user's; None: any user's."""

    def __init__(self, pool: Pool, queries: Queries) -> None:
        self._pool = pool
        self._sql = queries

    async def ids(self, tenant: UUID, user: UUID | None, wanted: WantedCalls) -> AsyncIterator[UUID]:
        """The calls, oldest first. Each page is a transaction of its own: a slow reader holds no connection."""
        after: UUID | None = None
        labels = list(wanted.labels) or None
        filters = (wanted.session, wanted.model, wanted.status, wanted.since, wanted.until, labels)
        calls = list(wanted.calls) if wanted.calls is not None else None
        while True:
            async with self._pool.transaction(tenant) as connection:
                rows = await connection.fetch(
                    self._sql["cassettes.wanted"], tenant, user, *filters, calls, after, CASSETTE_PAGE, wanted.legs
                )
            for row in rows:
                yield row["call_id"]
            if len(rows) < CASSETTE_PAGE:
                return
            after = rows[-1]["call_id"]

    async def holders(self, tenant: UUID, calls: Sequence[UUID]) -> dict[UUID, set[UUID]]:
        """Whose calls these are, of those that are there."""
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["cassettes.holders"], tenant, list(calls))
        found: dict[UUID, set[UUID]] = {}
        for row in rows:
            found.setdefault(row["call_id"], set()).add(row["user_id"])
        return found

    async def answer(self, tenant: UUID, call: UUID, user: UUID | None) -> CapturedAnswer | None:
        """The answer of a call; None: nothing was captured."""
        async with self._pool.transaction(tenant) as connection:
            row = await connection.fetchrow(self._sql["cassettes.stream"], tenant, call, user)
        if row is None:
            return None
        offsets = [*row["chunk_offsets"], len(row["body"])]
        sizes = [end - start for start, end in pairwise(offsets)]
        return CapturedAnswer(row["body"], row["truncated"], list(zip(row["chunk_times"], sizes, strict=True)))


# --- cassettes made of captured calls, and read --------------------------------------------------------------------------

IMPORTED = "imported"
"""Where the metadata of a call say what its cassette said of it."""
MAX_WORD = 256
"""Characters of a model or an upstream that are kept of a cassette, as of a request."""


def cassette_of(call: CallDetail, request: bytes, sent: bytes | None, answer: CapturedAnswer | None) -> Cassette:
    labelled = any(name.encode("latin-1", "replace").lower() == LABEL_HEADER for name, _ in call.request_headers)
    imported = call.metadata.get(IMPORTED)
    imported = imported if isinstance(imported, Mapping) else {}
    response = None
    if call.status is not None:
        response = Response(
            status=call.status,
            headers=_headers(call.response_headers),
            body=answer.body if answer else b"",
            chunks=tuple(Chunk(*each) for each in answer.pieces) if answer else (),
            truncated=answer.truncated if answer else False,
        )
    return Cassette(
        id=imported.get("id") or str(call.call_id),
        recorded_at=written(call.created_at),
        outcome=call.outcome if response is not None or call.outcome != "complete" else "failed",  # type: ignore[arg-type]
        request=Request(
            method=call.method,
            path=call.path,
            headers=_headers(call.request_headers),
            body=request,
            truncated=call.request_truncated,
        ),
        sent=sent,
        response=response,
        error=call.error,
        # That it has none any more is to be said where its header would say otherwise.
        labels=tuple(call.labels) if call.labels or labelled else None,
        redacted=tuple(imported.get("redacted", ())),
        call=imported["call"] if "call" in imported else _known(call),
    )


def _headers(headers: list[list[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((name, value.replace("\ufffd", "?")) for name, value in headers)


def _known(call: CallDetail) -> dict[str, Any]:
    usage = {
        "prompt_tokens": call.prompt_tokens,
        "completion_tokens": call.completion_tokens,
        "cached_tokens": call.cached_tokens,
        "counted": call.usage_counted or None,
    }
    session = call.session_external_id or (str(call.session_id) if call.session_id else None)
    known = {
        "user": call.user_external_id,
        "session": session,
        "upstream": call.upstream,
        "model": call.model or None,
        "answered_model": call.answered_model,
        "stream": call.streamed,
        "memory_status": call.memory_status,
        "reason": call.reason,
        "usage": {name: value for name, value in usage.items() if value is not None} or None,
        "latency_ms": call.latency_ms,
        "overhead_us": call.overhead_us,
        "retry_count": call.retry_count or None,
        "redacted": call.metadata.get("redacted"),
    }
    return {name: value for name, value in known.items() if value is not None}


def facts_of(cassette: Cassette, tenant: UUID, user: UUID, at: datetime, stream: StreamRecord | None) -> CallFacts:
    """The call that a cassette records: whole, of no conversation, and at no cost. `at`: its time."""
    request, call = cassette.request, cassette.call
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in request.headers]
    known = {
        "id": cassette.id,
        "redacted": list(cassette.redacted) or None,
        "call": dict(call),
    }
    session = _text(call, "session")
    return CallFacts(
        call_id=call_id(cassette.id, at),
        tenant_id=tenant,
        user_id=user,
        session_id=(ids.issued(session) or ids.session_id(tenant, user, session)) if session else None,
        created_at=at,
        method=request.method,
        path=request.path,
        upstream=_text(call, "upstream") or "",
        outcome=Outcome[cassette.outcome.upper()],
        memory_status=_text(call, "memory_status") or "bypass",
        reason=_text(call, "reason"),
        model=_text(call, "model") or "",
        answered_model=_text(call, "answered_model"),
        streamed=call.get("stream") is True,
        status=cassette.response.status if cassette.response else None,
        request_headers=headers,
        response_headers=[
            (name.encode("latin-1"), value.encode("latin-1"))
            for name, value in (cassette.response.headers if cassette.response else ())
        ],
        request=None if request.truncated else facts.make(request.body, 0, ()),
        body=request.body if request.truncated else None,
        body_size=len(request.body),
        body_truncated=request.truncated,
        sent=facts.make(cassette.sent, 0, ()) if cassette.sent is not None else None,
        error=cassette.error,
        stream=stream,
        labels=settled(cassette.labels) if cassette.labels is not None else labels_of(headers),
        imported={name: value for name, value in known.items() if value is not None},
    )


def call_id(text: str, at: datetime) -> UUID:
    """The id under which a cassette is stored: its own, if Mneme gave it; else one that follows from it and its time."""
    issued = ids.issued(text)
    if issued is not None and issued.version == 7 and issued.int >> 80 == ids.uuid7_floor(at).int >> 80:
        return issued
    noise = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=10).digest()
    return ids.uuid7_of(at, int.from_bytes(noise, "big"))


def _text(call: Mapping[str, Any], name: str) -> str | None:
    value = call.get(name)
    return value.replace("\0", "\ufffd")[:MAX_WORD] if isinstance(value, str) and value else None
