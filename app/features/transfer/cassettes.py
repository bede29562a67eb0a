"""Captured calls as cassettes, and cassettes as calls to be recorded. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any
from uuid import UUID

from app.capture import recipe
from app.capture.facts import LABEL_HEADER, CallFacts, Outcome, labels_of, settled
from app.features.transfer.store import CapturedAnswer
from app.store import ids
from app.store.captures import CallDetail
from app.store.records import StreamRecord
from mneme_replay.cassette import Cassette, Chunk, Request, Response

IMPORTED = "imported"
"""Where the metadata of a call say what its cassette said of it."""
MAX_WORD = 256
"""Characters of a model or an upstream that are kept of a cassette, as of a request."""


def cassette_of(call: CallDetail, request: bytes, sent: bytes | None, answer: CapturedAnswer | None) -> Cassette:
    """The cassette of a captured call."""
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
        recorded_at=call.created_at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
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
        request=None if request.truncated else recipe.make(request.body, 0, ()),
        body=request.body if request.truncated else None,
        body_size=len(request.body),
        body_truncated=request.truncated,
        sent=recipe.make(cassette.sent, 0, ()) if cassette.sent is not None else None,
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
