"""The job of `mneme reembed`: vectors of one user's items in another space, batch by batch.

No connection is held while texts are embedded, and each batch is committed by itself: what is interrupted goes on where it was.
It runs in the command's own process, because that one knows the new embedder; the worker's has the old one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable
from uuid import UUID

import orjson

from app.errors import BadBody
from app.providers.embeddings import Embedder, blank
from app.store.records import JobRecord
from app.store.reembed import ItemRef, ReembedStore

REEMBED = "reembed"
"""The entrypoint. No worker but the command's own has it."""

BATCH = 256
"""Items embedded and committed together: one request to an embeddings endpoint (`OpenAIEmbedder.MAX_BATCH_TEXTS`)."""

Progress = Callable[[int], None]
"""Told how many items were dealt with just now."""


def job(tenant: UUID, user: UUID, space: int) -> JobRecord:
    """The job for one user."""
    payload = orjson.dumps({"tenant": str(tenant), "user": str(user)})
    return JobRecord(REEMBED, payload, f"{REEMBED}:{space}:{user}", 0.0)


class Reembedder:
    """Does `reembed` jobs. `embedded`: vectors written; `wordless`: items by user that get none, having no words."""

    def __init__(self, store: ReembedStore, embedder: Embedder, progress: Progress = lambda _: None) -> None:
        self._store = store
        self._embedder = embedder
        self._progress = progress
        self.embedded = 0
        self.wordless: defaultdict[UUID, set[UUID]] = defaultdict(set)

    def handlers(self) -> dict[str, Callable[[bytes], Awaitable[None]]]:
        """By entrypoint, for the worker."""
        return {REEMBED: self.reembed}

    async def reembed(self, payload: bytes) -> None:
        """Embed what of a user has no vector yet. Raises `BadBody` for a payload that is none, `Unavailable` and
        `StoreUnavailable` for what may work later."""
        try:
            fields = orjson.loads(payload)
            tenant, user = UUID(fields["tenant"]), UUID(fields["user"])
        except (ValueError, KeyError, TypeError) as error:
            raise BadBody("This job's payload cannot be read.") from error
        epoch = await self._store.epoch(tenant, user)
        after: ItemRef | None = None
        while epoch is not None and (items := await self._store.lacking(tenant, user, after)):
            for at in range(0, len(items), BATCH):
                if not await self._batch(tenant, user, epoch, items[at : at + BATCH]):
                    return
            after = items[-1]

    async def _batch(self, tenant: UUID, user: UUID, epoch: int, refs: list[ItemRef]) -> bool:
        """False: the user was erased meanwhile."""
        items = await self._store.texts(tenant, user, refs)
        if items:
            vectors = await self._embedder.embed([each.text for each in items])
            empty = blank(vectors)
            self.wordless[user] |= {each.id for each, none in zip(items, empty, strict=True) if none}
            worded = [(each, vector) for each, vector, none in zip(items, vectors, empty, strict=True) if not none]
            added = await self._store.add(
                tenant, user, epoch, [each for each, _ in worded], [vector for _, vector in worded]
            )
            if added is None:
                return False
            self.embedded += added
        self._progress(len(refs))
        return True
