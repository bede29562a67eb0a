"""What clients give to be remembered: refused where it is a secret or a personal number, else made ready for the store.

Messages as a client writes them become messages as they are stored: ids, hashes, token counts, vectors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace
from pydantic import BaseModel, Field

from app.api.common import Given, Moment, Name, Text, Word
from app.clock import Clock
from app.context.reasoning import separate
from app.context.transcript import SYSTEM_ROLES, canonical, message_hash, text_of
from app.errors import BadBody, BadRequest
from app.index.analyse import pack
from app.memory.text import content_hash
from app.providers.embeddings import Embedder, blank
from app.providers.tokens import TokenCounter
from app.store.history import NewMessage
from app.store.records import Vector

Role = Literal["system", "developer", "user", "assistant", "tool", "function"]
FUTURE = timedelta(days=1)
"""How far ahead a client's clock may be; beyond it, and before 1970, a time is a mistake, and would open a partition of its
own."""
EMBED_SLICE = 16
"""Texts embedded before other requests have their turn: some 5 ms of CPU for long ones."""
REFUSED = (
    "This looks like a secret or a personal number, which is not remembered here "
    "(MNEME_STORE_SECRETS, MNEME_REFUSE_PII, MNEME_REFUSE_PATTERNS)."
)


class MessageIn(BaseModel):
    """A message as OpenAI writes it, with a time and metadata; other fields of OpenAI's are taken, and not kept."""

    role: Role
    content: Text | list[dict[str, Any] | str] | None = Field(None, description="Text, or content parts.")
    name: Word | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: Name | None = None
    created_at: Moment | None = Field(None, description="When it was said: 1970 to tomorrow; now if it is left out.")
    metadata: dict[str, Any] = Field({}, description="Comes back in the history and in provenance.")
    cards: Given = Field([], description="Shown with this answer (seed 003, append_message).")


class IntakeMessage(Struct, frozen=True):
    """A message with its id and its time."""

    message_id: UUID
    created_at: datetime
    message: MessageIn


def check_time(at: datetime, now: datetime) -> None:
    """Raises BadRequest for a time before 1970 or more than a day ahead."""
    if at.timestamp() < 0 or at > now + FUTURE:
        raise BadRequest(f"{at.isoformat()} is not between 1970 and tomorrow.", param="created_at")


def plain_text(message: MessageIn) -> str | None:
    """Return the text of a message, without the thoughts in front of an answer; None when it has no content."""
    content = separate({"role": message.role, "content": message.content})[0]["content"]
    return None if content is None else text_of({"content": content})


class IntakePreparer(Struct, frozen=True):
    """Prepares messages and memories for the store: off the database's connections, and off the event loop where it is
    work. `counter`: the tokenizer that stored counts are in (o200k)."""

    embedder: Embedder
    counter: TokenCounter
    clock: Clock

    def now(self) -> datetime:
        return self.clock.now()

    async def messages(self, said: Sequence[IntakeMessage]) -> list[NewMessage]:
        """Messages ready to be stored."""
        prepared = await asyncio.to_thread(lambda: [self._prepare(each) for each in said])
        # Instructions of the application are not what was said in the conversation: they are not searched for.
        texts = [(each.content or "") if each.role not in SYSTEM_ROLES else "" for each in prepared]
        # A remote embedder is asked by the job that learns from them.
        vectors = await self.vectors(texts) if self.embedder.local else [None] * len(texts)
        return [replace(each, vector=vector) for each, vector in zip(prepared, vectors, strict=True)]

    async def vectors(self, texts: Sequence[str]) -> list[Vector | None]:
        """A vector for each text; None for a text without words, and for all where there is no embedder.

        Raises Unavailable where a remote embedder cannot answer.
        """
        found: list[Vector | None] = []
        if not self.embedder.dimensions:
            return [None] * len(texts)
        for at in range(0, len(texts), EMBED_SLICE):
            rows = await self.embedder.embed(texts[at : at + EMBED_SLICE])
            found += [None if empty else row for row, empty in zip(rows, blank(rows), strict=True)]
            await asyncio.sleep(0)
        return found

    async def counts(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text."""
        return await asyncio.to_thread(lambda: [self.counter.count(text) for text in texts])

    def _prepare(self, said: IntakeMessage) -> NewMessage:
        message = said.message
        plain, reasoning = separate({"role": message.role, "content": message.content})
        content = plain["content"]
        text = None if content is None else text_of({"content": content})
        form = canonical(message.model_dump(include={"role", "content", "tool_calls"}, exclude_none=True))
        return NewMessage(
            message_id=said.message_id,
            role=message.role,
            content=text,
            created_at=said.created_at,
            token_count=self.counter.count(text or ""),
            content_hash=content_hash(text) if text else None,
            message_hash=message_hash(form) if form is not None else None,
            content_parts=content if isinstance(content, list) else None,
            name=message.name,
            tool_calls=message.tool_calls,
            tool_call_id=message.tool_call_id,
            metadata=message.metadata,
            reasoning=reasoning,
            terms=pack(text) if text else None,
        )


class IntakeCheck:
    """Judges what clients state outright, before anything of it is stored."""

    def __init__(self, refuses: Callable[[str], bool]) -> None:
        """`refuses`: see `secrets.unwelcome`."""
        self._refuses = refuses

    def check(self, *texts: str, param: str) -> None:
        """Raises BadBody, which does not say what was found, where one of the texts is not to be remembered."""
        if any(self._refuses(text) for text in texts):
            raise BadBody(REFUSED, param=param, code="not_remembered")

    def check_memory(self, text: str | None, tags: Sequence[str] | None) -> None:
        """The words of a memory. (Its metadata is the application's own: it is in no prompt, and is not looked into.)"""
        if text is not None:
            self.check(text, param="text")
        if tags:
            self.check(*tags, param="tags")

    def check_fact(self, key: str, value: Any) -> None:
        """A fact says what its key and each of its values say together: `password: hunter2`."""
        self.check(*(f"{name.replace('_', ' ')}: {text}" for name, text in _values(key, value)), param="value")


def _values(key: str, value: Any) -> Iterator[tuple[str, str]]:
    # The depth is bounded (`parse_json`).
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _values(name, each)
    elif isinstance(value, list):
        for each in value:
            yield from _values(key, each)
    elif value is not None and not isinstance(value, bool):
        yield key, str(value)
