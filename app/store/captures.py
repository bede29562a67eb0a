"""Captured calls, read back: what came in, what was sent, what came back and when, how the context was compiled."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from msgspec import Struct

from app.store import ids
from app.store.pools import Pool
from app.store.queries import Queries

OUTCOMES = {0: "complete", 1: "broken", 2: "gone", 3: "cancelled", 4: "failed"}
"""`call_outcome` of `enumerations`."""
_OUTCOME_NUMBERS = {name: number for number, name in OUTCOMES.items()}


class StoredCall(Struct, frozen=True, kw_only=True):
    """A call, as it is listed. Times in the unit of their names; costs in micro-cents."""

    call_id: UUID
    user_id: UUID
    user_external_id: str | None
    session_id: UUID | None
    session_external_id: str | None
    created_at: datetime
    method: str
    path: str
    upstream: str
    model: str
    answered_model: str | None
    streamed: bool
    status: int | None
    outcome: str
    memory_status: str
    reason: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    usage_counted: bool
    cost_microcents: int
    latency_ms: int | None
    first_byte_us: int | None
    overhead_us: int | None
    retry_count: int
    error: str | None
    labels: Sequence[str]
    tool_calls: int
    leg_of: UUID | None
    leg: int | None


class CallDetail(StoredCall, frozen=True, kw_only=True):
    """A call with its headers (secrets were masked when it was captured) and what is known of its bodies."""

    request_headers: list[list[str]]
    response_headers: list[list[str]]
    request_bytes: int
    request_truncated: bool
    request_sha256: str | None
    sent_sha256: str | None
    response_bytes: int | None
    response_truncated: bool | None
    metadata: dict[str, Any]


class StoredLeg(Struct, frozen=True):
    """One of the upstream's answers that a call's own was made of. Figures as in `StoredCall`."""

    call_id: UUID
    created_at: datetime
    upstream: str
    answered_model: str | None
    status: int | None
    outcome: str
    latency_ms: int | None
    first_byte_us: int | None
    error: str | None
    metadata: dict[str, Any]


class CallFilter(Struct, frozen=True):
    """Which calls to list; None: any. `status`: of the upstream's answer. `outcome`: see `OUTCOMES`. `labels`: all of them.
    `tools`: whether the answer called tools. `failed`: whether there was no answer, or one that was an error, or broke off.
    `legs`: those of calls, too."""

    session: UUID | None = None
    model: str | None = None
    status: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    outcome: str | None = None
    labels: Sequence[str] = ()
    tools: bool | None = None
    failed: bool | None = None
    min_latency_ms: int | None = None
    legs: bool = False

    @property
    def further(self) -> tuple[object, ...]:
        """What the queries take behind the page's size."""
        outcome = _OUTCOME_NUMBERS[self.outcome] if self.outcome is not None else None
        return (self.until, outcome, list(self.labels) or None, self.tools, self.failed, self.min_latency_ms, self.legs)


class RequestParts(Struct, frozen=True):
    """A request in parts: together they are the body, whose SHA-256 is `sha256` (None: the body was kept whole, as far as
    it goes)."""

    prefix: bytes
    elements: Sequence[bytes]
    suffix: bytes
    sha256: bytes | None
    truncated: bool


class StreamEvent(NamedTuple):
    """One event of an answer. `t_us`: microseconds since the request came in; `offset`: bytes from the answer's start."""

    seq: int
    t_us: int
    offset: int
    data: bytes


class StoredCompilation(Struct, frozen=True):
    """What a compile decided; `audit` as `app.context.audit.explain` made it."""

    user_id: UUID
    session_id: UUID | None
    audit: dict[str, Any]
    eta: float | None


class ShownItem(NamedTuple):
    """What may be shown of an item."""

    text: str | None
    metadata: dict[str, Any]


def text_of_item(item: Mapping[str, Any], known: ShownItem | None) -> str | None:
    """The words of an explained item, of a passage only its own."""
    if known is None or not known.text:
        return known.text if known is not None else None
    span = item["provenance"][0].get("span") if item["provenance"] else None
    return known.text[slice(*span)] if span is not None else known.text


class Captures:
    """The captured calls of a tenant. `user`: only that user's; None: any user's."""

    def __init__(self, pool: Pool, queries: Queries) -> None:
        self._pool = pool
        self._sql = queries

    async def page(
        self, tenant: UUID, user: UUID | None, wanted: CallFilter, *, before: UUID | None, limit: int
    ) -> list[StoredCall]:
        """Calls, newest first, older than the call `before`."""
        filters = (wanted.session, wanted.model, wanted.status, wanted.since, before, limit, *wanted.further)
        async with self._pool.transaction(tenant) as connection:
            if user is None:
                rows = await connection.fetch(self._sql["captures.list_of_tenant"], tenant, *filters)
            else:
                rows = await connection.fetch(self._sql["captures.list_of_user"], tenant, user, *filters)
        return [StoredCall(**_fields(tenant, row)) for row in rows]

    async def one(self, tenant: UUID, call: UUID, user: UUID | None) -> CallDetail | None:
        """A call."""
        async with self._pool.transaction(tenant) as connection:
            row = await connection.fetchrow(self._sql["captures.one"], tenant, call, user)
        return CallDetail(**_fields(tenant, row)) if row is not None else None

    async def legs(self, tenant: UUID, call: CallDetail) -> list[StoredLeg]:
        """The legs of a call, in their order."""
        ids_of = [UUID(each) for each in call.metadata.get("legs", ())]
        if not ids_of:
            return []
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["captures.legs"], tenant, call.user_id, ids_of, str(call.call_id))
        return [StoredLeg(**{**row, "outcome": OUTCOMES.get(row["outcome"], "failed")}) for row in map(dict, rows)]

    async def label(self, tenant: UUID, call: UUID, user: UUID | None, labels: Collection[str]) -> bool:
        """Give a call these labels in place of those that it had; whether there is such a call."""
        async with self._pool.transaction(tenant) as connection:
            found: bool = await connection.fetchval(
                self._sql["captures.label"], tenant, user, call, sorted(set(labels))
            )
        return found

    async def request(self, tenant: UUID, call: UUID, user: UUID | None, *, sent: bool) -> RequestParts | None:
        """The request of a call as it was received, or, with `sent`, as it went upstream."""
        async with self._pool.transaction(tenant) as connection:
            row = await connection.fetchrow(self._sql["captures.recipe"], tenant, call, user)
            if row is None:
                return None
            kind = "sent" if sent and row["sent_prefix"] is not None else "request"
            if kind == "request" and row["request_body"] is not None:
                whole = row["request_sha256"] if not row["request_truncated"] else None
                return RequestParts(row["request_body"], (), b"", whole, row["request_truncated"])
            prefix, suffix, chain = (row[f"{kind}_{part}"] for part in ("prefix", "suffix", "chain"))
            found = []
            if chain is not None:
                found = await connection.fetch(self._sql["captures.elements"], tenant, row["user_id"], chain)
        elements = [each["body"] for each in found]
        return RequestParts(prefix or b"", elements, suffix or b"", row[f"{kind}_sha256"], False)

    async def body(self, tenant: UUID, call: UUID, user: UUID | None) -> tuple[bytes, bool] | None:
        """The bytes of the answer, and whether they were cut off at the capture's limit. None: nothing was captured."""
        async with self._pool.transaction(tenant) as connection:
            row = await connection.fetchrow(self._sql["captures.body"], tenant, call, user)
        return (row["body"], row["truncated"]) if row is not None else None

    async def events(
        self, tenant: UUID, call: UUID, user: UUID | None, *, after: int, limit: int
    ) -> tuple[list[StreamEvent], int] | None:
        """Events number `after` and following, and how many there are at all. None: nothing was captured."""
        async with self._pool.transaction(tenant) as connection:
            row = await connection.fetchrow(self._sql["captures.events"], tenant, call, user, after, limit)
        if row is None:
            return None
        offsets, times, data = row["offsets"], row["times"], row["data"] or b""
        events = []
        for n, (offset, at) in enumerate(zip(offsets, times, strict=False)):
            end = offsets[n + 1] if n + 1 < len(offsets) else offsets[0] + len(data)
            events.append(StreamEvent(after + n, at, offset, data[offset - offsets[0] : end - offsets[0]]))
        return events, row["total"]

    async def compilation(self, tenant: UUID, call: UUID, user: UUID | None) -> StoredCompilation | None:
        """How the context was compiled; None: it was not (no memory, or no capture)."""
        async with self._pool.transaction(tenant) as connection:
            row = await connection.fetchrow(self._sql["captures.compilation"], tenant, call, user)
        return StoredCompilation(**dict(row)) if row is not None else None

    async def shown(
        self, tenant: UUID, user: UUID, *, messages: Sequence[UUID], memories: Sequence[UUID]
    ) -> dict[UUID, ShownItem]:
        """What may still be shown of these items of a user; what was erased or forgotten since is not in it."""
        found: dict[UUID, ShownItem] = {}
        async with self._pool.transaction(tenant) as connection:
            for query, wanted in (("message_texts", messages), ("memory_texts", memories)):
                if wanted:
                    rows = await connection.fetch(self._sql[f"captures.{query}"], tenant, user, list(wanted))
                    found |= {row["id"]: ShownItem(row["text"], row["metadata"]) for row in rows}
        return found


def _fields(tenant: UUID, row: Any) -> dict[str, Any]:
    fields = dict(row)
    fields["labels"] = fields["labels"] or []
    fields["tool_calls"] = fields["tool_calls"] or 0
    fields["leg_of"] = UUID(fields["leg_of"]) if fields["leg_of"] is not None else None
    fields["outcome"] = OUTCOMES.get(fields["outcome"], "failed")
    if fields["user_id"] == ids.nobody(tenant):
        fields["user_external_id"] = None
    return fields
