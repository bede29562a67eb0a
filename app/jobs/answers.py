"""The user's answer to "is that still right?", found in a turn and done within the job that learns from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from app.memory.answers import Note, Reply, may_answer, puts, reply_to
from app.memory.candidate import Candidate, Provenance
from app.memory.drafts import Draft, make_drafts
from app.providers.embeddings import Embedder
from app.store.learning import Effect, SourceMessage
from app.store.memories import MemoryText
from app.store.validation import Answered, Pending, Validation


class Verdict(Struct, frozen=True):
    """What is to be done with a memory that was asked about."""

    pending: Pending
    answer: Answered


class Answers:
    """Reads answers before a job's effect, and does within it what they say."""

    def __init__(
        self,
        validation: Validation,
        *,
        embedder: Embedder,
        count: Callable[[str], int],
        store_secrets: bool = False,
        refuses: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`count`: tokens of o200k. `refuses`: says of a text that it must not be kept."""
        self._validation = validation
        self._embedder = embedder
        self._count = count
        self._store_secrets = store_secrets
        self._refuses = refuses

    async def read(self, tenant: UUID, user: UUID, session: UUID, asked: SourceMessage) -> list[Verdict]:
        """What the message says of the notes that the assistant asked about just before. Most messages cost a look at their
        first words. Raises StoreUnavailable, Unavailable."""
        if not may_answer(asked.content):
            return []
        found: list[Verdict] = []
        for each in await self._validation.pending(tenant, user, session, asked.turn_index):
            note = Note(each.content_text, each.object_value, each.predicate)
            reply = reply_to(note, asked.content) if puts(each.said, note) else None
            if reply is not None:
                text = await self._text(reply, asked)
                found.append(Verdict(each, Answered(reply.verdict == "yes", text, reply.value)))
        return found

    async def act(
        self, effect: Effect, tenant: UUID, user: UUID, verdicts: Sequence[Verdict], statements: Sequence[Draft]
    ) -> None:
        """Do it, after what the message states was taken in: what it says in full comes first."""
        for each in verdicts:
            about = (each.pending.subject_entity_id, each.pending.predicate)
            said = [
                draft.content_hash
                for draft in statements
                if draft.candidate.triple is not None
                and (draft.candidate.triple.subject, draft.candidate.triple.predicate) == about
            ]
            answer = replace(each.answer, said=said)
            await self._validation.settle(effect.connection, tenant, user, each.pending.memory_id, answer)

    async def _text(self, reply: Reply, asked: SourceMessage) -> MemoryText | None:
        """What is right instead, made ready to be kept; None where it may not be."""
        if reply.text is None:
            return None
        said = Candidate(
            reply.text, "correction", Provenance.CORRECTION, asked.content, (0, len(asked.content)), 1.0, 0.0
        )
        drafts = make_drafts([(said, asked)], self._count, store_secrets=self._store_secrets, refuses=self._refuses)
        if not drafts:
            return None
        (draft,) = drafts
        vector = None
        if self._embedder.dimensions:
            (vector,) = await self._embedder.embed([draft.text])
        usable = vector if vector is not None and vector.any() else None
        return MemoryText(draft.text, draft.content_hash, draft.token_count, usable)
