"""The job that makes what a long session is shown shorter by: L1, L2 and a vector of each of its objects, ahead of need.

    record of a turn ─> shrink (one waits for a session) ─> a few objects at a time, oldest first:
        their vectors ─> their levels: in the helper LLM's words where they hold, else by structure ─> stored

What was stored once is never made anew: levels may be shown already, and another text would break the prompt's prefix. So a job
that comes twice, or stops half-way, finds only what is left.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from uuid import UUID

import numpy as np
import orjson
from msgspec import Struct

from app.errors import BadBody, HelperError
from app.features.paging.shrink import shrink
from app.features.paging.store import PagingStore
from app.features.paging.summaries import HelperSummary, asked, checked
from app.features.paging.values import Counter, Levels, SemanticObject
from app.providers.embeddings import Embedder
from app.providers.helper import Helper
from app.store.records import Vector

log = logging.getLogger(__name__)

SHRINK = "shrink"
"""The entrypoint."""

AT_ONCE = 4
"""Objects that are held at a time, and questions that a helper is asked at once: contents have up to 10 MB each."""
FAILURES = 2
"""Failures of the helper in a row after which a job asks no more: each may have taken a minute, and it may have a thousand
objects before it."""

PIECE_CHARS = 4_000
"""Characters of a content that one vector is made from, some 1,000 tokens (a small embedder knows a piece by its beginning)."""
PIECES = 8
"""Pieces of a longer content, spread evenly over it: the vector of a content is the mean of theirs."""


class ShrinkJob(Struct, frozen=True):
    """The payload of `shrink`."""

    tenant: UUID
    user: UUID
    session: UUID

    @classmethod
    def parse(cls, payload: bytes) -> ShrinkJob:
        """Raises `BadBody`: what cannot be read now cannot be read later."""
        try:
            fields: dict[str, Any] = orjson.loads(payload)
            return cls(UUID(fields["tenant"]), UUID(fields["user"]), UUID(fields["session"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadBody("This job's payload cannot be read.") from error


class Shrinker:
    """Does `shrink` jobs."""

    def __init__(
        self,
        shelf: PagingStore,
        *,
        embedder: Embedder,
        space: int | None,
        count: Counter,
        helper: Helper | None = None,
    ) -> None:
        """`space`: the number of the embedder's space, None without vectors. `count`: tokens of o200k. `helper`: None: by
        structure alone."""
        self._shelf = shelf
        self._embedder = embedder
        self._space = space if embedder.dimensions else None
        self._count = count
        self._helper = helper

    def handlers(self) -> dict[str, Callable[[bytes], Awaitable[None]]]:
        """By entrypoint, for the worker."""
        return {SHRINK: self.shrink}

    async def shrink(self, payload: bytes) -> None:
        """Make what the objects of a session lack. Raises `BadBody`, `Unavailable` (of the embedder), `StoreUnavailable`; not
        for a helper that fails."""
        job = ShrinkJob.parse(payload)
        asking = HelperUse(self._helper)
        seen: set[UUID] = set()
        while made := await self._shelf.unshrunk(job.tenant, job.user, job.session, AT_ONCE):
            if seen.issuperset(each.id for each in made):
                log.warning("objects stay as they are: their levels were not kept", extra={"session": str(job.session)})
                return
            seen.update(each.id for each in made)
            # First what may have to be tried again: a helper's answers would be lost with it.
            vectors = await self._vectors(made)
            levels = await asyncio.gather(*(self._levels(each, asking) for each in made))
            await self._shelf.store_levels(job.tenant, job.user, levels, vectors, self._space)

    async def _levels(self, made: SemanticObject, asking: HelperUse) -> Levels:
        told = await asking.ask(made)
        # Some 10 ms for 10,000 tokens: other jobs go on meanwhile.
        if told is not None and (held := await asyncio.to_thread(checked, told, made, self._count)) is not None:
            return held
        return await asyncio.to_thread(by_structure, made, self._count)

    async def _vectors(self, made: Sequence[SemanticObject]) -> dict[UUID, Vector]:
        if self._space is None:
            return {}
        cuts = [pieces(each) for each in made]
        found = await self._embedder.embed([piece for cut in cuts for piece in cut])
        vectors: dict[UUID, Vector] = {}
        at = 0
        for each, cut in zip(made, cuts, strict=True):
            mean = found[at : at + len(cut)].mean(axis=0)
            at += len(cut)
            if length := float(np.linalg.norm(mean)):
                vectors[each.id] = (mean / length).astype(np.float32)
        return vectors


class HelperUse:
    """The helper, for as long as it answers within one job."""

    def __init__(self, helper: Helper | None) -> None:
        self._helper = helper
        self._failed = 0

    async def ask(self, made: SemanticObject) -> HelperSummary | None:
        """An object in the helper's words, unchecked; None: there is no helper, none that answers, or too much to ask."""
        question = asked(made) if self._helper is not None and self._failed < FAILURES else None
        if question is None or self._helper is None:
            return None
        try:
            told = await self._helper.ask(
                HelperSummary, system=question.system, user=question.user, max_tokens=question.max_tokens
            )
        except HelperError as error:
            self._failed += 1
            # What it answered may quote the content: only up to the colon.
            log.info("an object is shortened by structure", extra={"reason": error.message.partition(": ")[0]})
            return None
        self._failed = 0
        return told


def by_structure(made: SemanticObject, count: Counter) -> Levels:
    """The levels of an object without a language model; None where one is not shorter than the level above."""
    detailed, compact, ask = shrink(made.content, made.kind, count, made.source_key, made.tokens_l0)
    if not detailed.text or detailed.tokens >= made.tokens_l0:
        return Levels(made.id, None, None)
    shorter = bool(compact.text) and compact.tokens < detailed.tokens
    return Levels(made.id, detailed, compact if shorter else None, ask)


def pieces(made: SemanticObject) -> list[str]:
    """What the vector of an object is made from: its stub with the beginning, and places spread over the rest."""
    text = made.content
    number = min(PIECES, max(1, -(-len(text) // PIECE_CHARS)))
    step = max(0, len(text) - PIECE_CHARS) / max(1, number - 1)
    starts = [round(n * step) for n in range(number)]
    first, *rest = (text[at : at + PIECE_CHARS] for at in starts)
    return [f"{made.stub}\n{first}", *(each for each in rest if each.strip())]
