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
from tests.support.rows import insert_row, set_object, touch_paged_session
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
        owner = {"user_id": self.talk.user, "tenant_id": self.talk.tenant, "session_id": self.talk.session}
        await insert_row(self.admin, "paged_sessions", **owner, updated_at=at)
        for n, made in enumerate(objects):
            columns = ("source_tool", "source_key", "content_hash", "stub", "tokens_l0", "tokens_l3", "source_turn_start",
                       "source_turn_end")  # fmt: skip
            await insert_row(
                self.admin, "semantic_objects", **owner, **{name: getattr(made, name) for name in columns}, object_id=made.id,
                ordinal=n + 1, object_type=made.object_type.value, kind=made.kind.value, content_full=made.content,
                tags=list(made.tags), created_at=at + timedelta(seconds=n), accessed_turn=0,
                parts=orjson.dumps([[part.mark.hex(), part.start, part.stop] for part in made.parts]).decode(),
            )  # fmt: skip

    async def set(self, n: int, **columns: object) -> None:
        """Change the n-th object; the session has gone on."""
        await set_object(self.admin, self.objects[n].id, **columns)
        await self.touch()

    async def ask(self, n: int, *questions: str, kind: str = "micro_fault") -> None:
        """Questions about the n-th object, each in a turn of its own."""
        for turn, question in enumerate(questions):
            await insert_row(
                self.admin, "fault_history", user_id=self.talk.user, tenant_id=self.talk.tenant,
                session_id=self.talk.session, fault_id=uuid4(), object_id=self.objects[n].id, fault_type=kind,
                turn_number=turn, question=question, created_at=self.talk.begun + timedelta(seconds=turn),
            )  # fmt: skip
        await self.touch()

    async def touch(self) -> None:
        await touch_paged_session(self.admin, self.talk.session)

    def job(self, **more: object) -> bytes:
        return orjson.dumps(
            {"tenant": self.talk.tenant, "user": self.talk.user, "session": self.talk.session, "id": str(uuid4())}
            | more
        )


def later(name: str, hours: float = 1, user: str = "ana") -> Talk:
    """A session that begins so many hours after the first one."""
    return Talk(user, name, begun=NOW - timedelta(hours=1) + timedelta(hours=hours))
