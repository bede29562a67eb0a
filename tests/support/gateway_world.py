"""A gateway on a database, with a look into that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from uuid import UUID

import asyncpg

from app.capture.facts import rebuild
from app.store import ids
from app.store.turns import TurnStore
from tests.support.journey import Answer, Journey, Message, assistant, user

PATIENT = 20_000


@dataclass
class World:
    """A gateway on a database, and a look into that."""

    journey: Journey
    store: TurnStore
    admin: asyncpg.Connection[Any]

    async def ask(self, messages: Sequence[Message], **more: Any) -> Answer:
        answer = await self.journey.ask(messages, **more)
        assert answer.status == 200, answer.body
        return answer

    async def converse(
        self, turns: int, transcript: list[Message] | None = None, *, headers: Mapping[str, str] | None = None
    ) -> tuple[list[Message], list[str | None]]:
        """A client that sends everything each time."""
        transcript, sessions = transcript if transcript is not None else [], []
        for _ in range(turns):
            transcript.append(user(f"Question {len(transcript) // 2 + 1}"))
            answer = await self.ask(transcript, headers=headers)
            sessions.append(answer.session)
            transcript.append(assistant(answer.text))
        return transcript, sessions

    async def rows(self, query: str, *arguments: Any) -> list[dict[str, Any]]:
        return [dict(row) for row in await self.admin.fetch(query, *arguments)]

    async def history(self, session: str | UUID | None = None) -> list[tuple[int, int, str, str | None]]:
        """(turn_index, sibling, role, content) of a session's messages, or of all."""
        rows = await self.rows(
            "SELECT turn_index, sibling, e.name, content FROM agent_data.conversation_history h"
            " JOIN agent_data.enumerations e ON e.enumeration = 'role' AND e.value = h.role"
            " WHERE $1::uuid IS NULL OR session_id = $1 ORDER BY session_id, turn_index, sibling",
            UUID(str(session)) if session is not None else None,
        )
        return [(row["turn_index"], row["sibling"], row["name"], row["content"]) for row in rows]

    async def last_call(self) -> dict[str, Any]:
        return (await self.rows("SELECT * FROM agent_data.upstream_calls ORDER BY call_id DESC LIMIT 1"))[0]

    async def body_of(self, call: Mapping[str, Any], kind: str) -> bytes:
        """A captured request put together again, as received (`request`) or as `sent`."""
        elements = await self.rows(
            "SELECT body FROM agent_data.request_elements($1, $2, $3)",
            call["tenant_id"],
            call["user_id"],
            call[f"{kind}_chain"],
        )
        return rebuild(
            call[f"{kind}_prefix"], [row["body"] for row in elements], call[f"{kind}_suffix"], call[f"{kind}_sha256"]
        )

    async def remember(self, text: str, *, who: str = "local", kind: str = "fact") -> UUID:
        """A memory of a user's, put there by hand."""
        memory, person = ids.uuid7(self.journey.gateway._clock.now()), ids.user_id(ids.LOCAL_TENANT, who)
        await self.admin.execute(
            "INSERT INTO agent_data.memory_store (memory_id, user_id, tenant_id, memory_tier, memory_scope, kind,"
            " content_text, content_hash, provenance_type, token_count) VALUES ($1, $2, $3, 3, 1, $4, $5, $6, 0, 5)",
            memory,
            person,
            ids.LOCAL_TENANT,
            kind,
            text,
            sha256(text.encode()).digest(),
        )
        return memory
