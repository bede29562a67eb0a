"""Sessions with objects in Postgres, for the tests of what becomes memory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import orjson

from app.context.transcript import Transcript
from app.features.paging.segment import Segmentation, segment
from app.features.paging.values import SemanticObject
from app.store.pools import Pool
from tests.support.learning import NOW, Talk
from tests.unit.paging.made import COUNT, called

Admin = asyncpg.Connection


def readings(*files: tuple[str, str]) -> list[dict[str, Any]]:
    """A transcript in which each of these files (path, content) is read."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Have a look at the code, please."}]
    for n, (path, content) in enumerate(files):
        messages += called("Read", {"file_path": path}, content, f"c{n}")
    return messages


@dataclass
class Session:
    """A session whose transcript stands in the history, and its objects in the store."""

    pool: Pool
    admin: Admin
    talk: Talk
    objects: tuple[SemanticObject, ...] = ()
    messages: list[UUID] = field(default_factory=list)

    async def have(self, transcript: Sequence[Mapping[str, Any]], at: datetime | None = None) -> Segmentation:
        """Everything is said and cut into objects, as of `at`."""
        hashes = Transcript.of(transcript).hashes
        for message, hashed in zip(transcript, hashes, strict=True):
            calls = message.get("tool_calls")
            said = await self.talk.say(
                self.pool,
                message.get("content") or "",
                role=message["role"],
                message_hash=hashed,
                tool_calls=json.dumps(calls) if calls else None,
            )
            self.messages += [each.message_id for each in said]
        made = segment(self.talk.session, transcript, Transcript.of(transcript), COUNT)
        self.objects = made.objects
        await self.put(made.objects, at or self.talk.begun + timedelta(minutes=1))
        return made

    async def put(self, objects: Sequence[SemanticObject], at: datetime) -> None:
        await self.admin.execute(
            "INSERT INTO agent_data.paged_sessions (user_id, tenant_id, session_id, updated_at) VALUES ($1, $2, $3, $4)"
            " ON CONFLICT (user_id, session_id) DO UPDATE SET updated_at = EXCLUDED.updated_at",
            self.talk.user, self.talk.tenant, self.talk.session, at,
        )  # fmt: skip
        for n, each in enumerate(objects):
            await self.admin.execute(
                "INSERT INTO agent_data.semantic_objects (user_id, tenant_id, session_id, object_id, ordinal, object_type,"
                " kind, source_tool, source_key, content_full, content_hash, stub, tags, parts, created_at, accessed_turn,"
                " tokens_l0, tokens_l3, source_turn_start, source_turn_end)"
                " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, 0, $16, $17, $18, $19)"
                " ON CONFLICT DO NOTHING",
                self.talk.user, self.talk.tenant, self.talk.session, each.id, n + 1, each.object_type.value, each.kind.value,
                each.source_tool, each.source_key, each.content, each.content_hash, each.stub, list(each.tags),
                orjson.dumps([[part.mark.hex(), part.start, part.stop] for part in each.parts]).decode(),
                at + timedelta(seconds=n), each.tokens_l0, each.tokens_l3, each.source_turn_start, each.source_turn_end,
            )  # fmt: skip

    async def set(self, n: int, **columns: object) -> None:
        """Change the n-th object; the session has gone on."""
        for name, value in columns.items():
            await self.admin.execute(
                f"UPDATE agent_data.semantic_objects SET {name} = $3 WHERE user_id = $1 AND object_id = $2",
                self.talk.user, self.objects[n].id, value,
            )  # fmt: skip
        await self.touch()

    async def ask(self, n: int, *questions: str, kind: str = "micro_fault") -> None:
        """Questions about the n-th object, each in a turn of its own."""
        for turn, question in enumerate(questions):
            await self.admin.execute(
                "INSERT INTO agent_data.fault_history (user_id, tenant_id, session_id, fault_id, object_id, fault_type,"
                " turn_number, question, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
                self.talk.user, self.talk.tenant, self.talk.session, uuid4(), self.objects[n].id, kind, turn, question,
                self.talk.begun + timedelta(seconds=turn),
            )  # fmt: skip
        await self.touch()

    async def touch(self) -> None:
        await self.admin.execute(
            "UPDATE agent_data.paged_sessions SET updated_at = updated_at + interval '1 minute'"
            " WHERE user_id = $1 AND session_id = $2",
            self.talk.user, self.talk.session,
        )  # fmt: skip

    def job(self, **more: object) -> bytes:
        return orjson.dumps(
            {"tenant": self.talk.tenant, "user": self.talk.user, "session": self.talk.session, "id": str(uuid4())}
            | more
        )


def later(name: str, hours: float = 1, user: str = "ana") -> Talk:
    """A session that begins so many hours after the first one."""
    return Talk(user, name, begun=NOW - timedelta(hours=1) + timedelta(hours=hours))
