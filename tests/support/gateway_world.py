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
from app.store.queries import Queries
from app.store.turns import TurnStore
from tests.support.journey import Answer, Journey, Message, assistant, user
from tests.support.rows import insert_row, read_calls, read_messages, read_rows

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

    async def history(self, session: str | UUID | None = None) -> list[tuple[int, int, str, str | None]]:
        """(turn_index, sibling, role, content) of a session's messages, or of all."""
        names = {row["value"]: row["name"] for row in await read_rows(self.admin, "enumerations", enumeration="role")}
        rows = sorted(
            await read_messages(self.admin), key=lambda row: (row["session_id"], row["turn_index"], row["sibling"])
        )
        return [
            (row["turn_index"], row["sibling"], names[row["role"]], row["content"])
            for row in rows
            if session is None or row["session_id"] == UUID(str(session))
        ]

    async def last_call(self) -> dict[str, Any]:
        return (await read_calls(self.admin))[-1]

    async def body_of(self, call: Mapping[str, Any], kind: str) -> bytes:
        """A captured request put together again, as received (`request`) or as `sent`."""
        query = Queries.load()["captures.elements"]
        elements = await self.admin.fetch(query, call["tenant_id"], call["user_id"], call[f"{kind}_chain"])
        return rebuild(
            call[f"{kind}_prefix"], [row["body"] for row in elements], call[f"{kind}_suffix"], call[f"{kind}_sha256"]
        )

    async def remember(self, text: str, *, who: str = "local", kind: str = "fact") -> UUID:
        """A memory of a user's, put there by hand."""
        memory, person = ids.uuid7(self.journey.gateway._clock.now()), ids.user_id(ids.LOCAL_TENANT, who)
        await insert_row(
            self.admin, "memory_store", memory_id=memory, user_id=person, tenant_id=ids.LOCAL_TENANT, memory_tier=3,
            memory_scope=1, kind=kind, content_text=text, content_hash=sha256(text.encode()).digest(), provenance_type=0,
            token_count=5,
        )  # fmt: skip
        return memory
