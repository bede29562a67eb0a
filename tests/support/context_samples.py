"""Candidates for the tests of app/context, with whatever a test does not care about filled in."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from app.context.candidates import Candidate, ItemSource
from app.context.score import Scored
from app.context.transcript import Transcript, tail_hash
from app.memory.candidate import Provenance

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def memory(number: int, text: str = "", /, **given: Any) -> Candidate:
    """Memory `number`; `text` defaults to a text of its own, `provenance` to no source."""
    text = text or f"fact number {number}"
    values: dict[str, Any] = {
        "id": UUID(int=number),
        "source": "memory",
        "kind": "fact",
        "text": text,
        "role": None,
        "speaker": None,
        "session_id": None,
        "turn_index": None,
        "tier": 1,
        "created_at": NOW - timedelta(days=1),
        "last_accessed_at": None,
        "token_count": 10,
        "confidence": 0.5,
        "provenance_type": Provenance.FACT,
        "importance": 0.5,
        "access_count": 0,
        "content_hash": hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest(),
        "channels": frozenset({"vector"}),
        "similarity": None,
    }
    given = dict(given)
    sources = given.pop("provenance", ())
    values["sources"] = [
        {"session": each.session, "message_id": str(each.message_id), "turn_index": each.turn_index} for each in sources
    ]
    values["origin"] = sources[0].message_id if len({each.message_id for each in sources}) == 1 else None
    return Candidate(**(values | given))


def message(number: int, text: str = "", /, **given: Any) -> Candidate:
    """Raw message `number`, of the user unless a role is given."""
    role = given.get("role", "user")
    session = given.get("session_id", UUID(int=1))
    values: dict[str, Any] = {
        "source": "message",
        "kind": "turn",
        "role": role,
        "session_id": session,
        "turn_index": number,
        "tier": None,
        "provenance_type": Provenance.of_role(role),
    }
    return memory(number, text or f"message number {number}", **(values | given))


def scored(candidate: Candidate, score: float) -> Scored:
    return Scored(candidate, score, max(0.0, score), ("similarity",), (score,))


def source(number: int) -> ItemSource:
    """The message `number` as where something comes from."""
    return ItemSource("session", UUID(int=number), number, {})


def tail_of(transcript: Transcript, turns: int) -> bytes | None:
    """The hash of a transcript's last answered turns."""
    return tail_hash(transcript.hashes, transcript.answered, turns)
