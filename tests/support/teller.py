"""Turns written and asked for as the gateway does it, on a real store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg

from app.capture import facts
from app.capture.facts import AnsweredChoice, CallFacts, Exchange, NewTurnMessage, Outcome, Usage
from app.capture.record import Recorder
from app.context.transcript import Transcript, canonical, chain, message_hash
from app.gateway.reconcile import tails
from app.store import ids
from app.store.turns import Recognised, TurnStore

NOW = datetime.now(UTC).replace(microsecond=0)
TENANT, OTHER_TENANT = UUID(int=0xA), UUID(int=0xB)
ANA = ids.user_id(TENANT, "ana")
Message = dict[str, Any]


def said(role: str, text: str) -> Message:
    return {"role": role, "content": text}


def talk(*texts: str) -> list[Message]:
    """Alternately the user and the assistant."""
    return [said("assistant" if n % 2 else "user", text) for n, text in enumerate(texts)]


def hash_of(message: Message) -> bytes:
    form = canonical(message)
    assert form is not None
    return message_hash(form)


@dataclass
class Teller:
    """Writes turns as the gateway does, and asks as it does."""

    store: TurnStore
    recorder: Recorder
    admin: asyncpg.Connection[Any]
    at: datetime = NOW
    calls: list[UUID] = field(default_factory=list)

    async def tell(
        self,
        transcript: Sequence[Message],
        *answers: str,
        session: UUID,
        new: int | None = None,
        user: UUID = ANA,
        tenant: UUID = TENANT,
        call: UUID | None = None,
        facts: dict[str, Any] | None = None,
        **given: Any,
    ) -> bool:
        """A turn whose last `new` messages are new (all, if it says nothing), and its answers."""
        self.at += timedelta(seconds=1)
        seen = Transcript.of(transcript)
        whole = next((each for each in reversed(seen.chains) if each is not None), b"")
        made = [AnsweredChoice(m := said("assistant", text), hash_of(m), "stop") for text in answers]
        both = ([*seen.roles, "assistant"], [*seen.hashes, made[0].hash]) if made else ([], [])
        if new and "parent_message_id" not in given:
            tip = await self.rows("SELECT head_message_id FROM agent_data.sessions WHERE session_id = $1", session)
            given["parent_message_id"] = tip[0]["head_message_id"] if tip else None
        fresh = range(len(transcript) - new, len(transcript)) if new is not None else range(len(transcript))
        plain: dict[str, Any] = {
            "session_id": session,
            "user": "ana",
            "said": [NewTurnMessage(transcript[i], seen.hashes[i]) for i in fresh if seen.hashes[i] is not None],
            "answers": made,
            "question_chain": whole,
            "answer_chains": [chain([each.hash], whole)[0] for each in made],
            "tails": tails(*both),
            "ended_at": self.at + timedelta(milliseconds=500),
            "expires_at": self.at + timedelta(days=90),
            "model": "m",
        }
        fields: dict[str, Any] = {
            "call_id": call or ids.uuid7(self.at), "tenant_id": tenant, "user_id": user, "created_at": self.at,
            "method": "POST", "path": "/v1/chat/completions", "upstream": "up", "outcome": Outcome.COMPLETE,
            "memory_status": "ok", "status": 200, "usage": Usage(10, 5), "cost_microcents": 3,
        }  # fmt: skip
        self.calls.append(fields["call_id"])
        return await self.recorder.record(CallFacts(**fields | (facts or {})), Exchange(**plain | given), None)

    async def recognise(
        self, transcript: Sequence[Message] = (), *, user: UUID = ANA, tenant: UUID = TENANT, **given: Any
    ) -> Recognised:
        seen = Transcript.of(transcript)
        last = seen.answered[-1] if seen.answered else 0
        one, two = tails(seen.roles, seen.hashes)
        asked: dict[str, Any] = {
            "chains": [seen.chains[i] for i in seen.answered],
            "question": next((each for each in reversed(seen.chains[:last]) if each is not None), None),
            "whole": next((each for each in reversed(seen.chains) if each is not None), None),
            "tail1": one,
            "tail2": two,
        }
        return await self.store.recognise(tenant, user, **asked | given)

    async def rows(self, query: str, *arguments: Any) -> list[dict[str, Any]]:
        return [dict(row) for row in await self.admin.fetch(query, *arguments)]

    async def places(self, session: UUID) -> list[tuple[int, int, str]]:
        rows = await self.rows(
            "SELECT turn_index, sibling, content FROM agent_data.conversation_history WHERE session_id = $1"
            " ORDER BY turn_index, sibling",
            session,
        )
        return [tuple(row.values()) for row in rows]


def recipe_of(*elements: bytes, lead: int = 0, known: facts.Position | None = None) -> tuple[bytes, facts.Recipe]:
    body, spans = b'{"messages":[', []
    for n, each in enumerate(elements):
        body += b"," if n else b""
        spans.append((len(body), len(body) + len(each)))
        body += each
    return body + b"]}", facts.make(body + b"]}", 13, spans, known, None, lead)
