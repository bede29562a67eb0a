"""POST /api/v1/memories/batch: many memories made, changed and forgotten by one request.

Each change stands by itself: what is wrong with one is said beside it, and the others are done. (All or nothing would let one
memory that somebody else changed at this moment undo a thousand.) None is ever half done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel, Field, model_validator

from app.api.appending import Scribe
from app.api.common import ErrorDetail, Model, Name
from app.api.finding import find_memory
from app.api.memories import MAX_BATCH, session_for
from app.api.memory_models import MemoryIn, MemoryPatch, change_of, new_memory
from app.api.scope import Admitted, Gate, Scope
from app.api.welcome import Welcome
from app.errors import BadBody, MnemeError, NotFound, Unavailable
from app.store.memories import Memories
from app.store.records import Vector
from app.store.sessions import Sessions

Done = Literal["created", "reinforced", "updated", "deleted", "failed"]


class MemoryPatchOf(MemoryPatch):
    """A memory, and what to change of it."""

    id: Name


class BatchIn(Model):
    """What to do: first all of `create`, then `update`, then `delete`, each in order; 1,000 in all."""

    create: Annotated[list[MemoryIn], Field(max_length=MAX_BATCH)] = Field([])
    update: Annotated[list[MemoryPatchOf], Field(max_length=MAX_BATCH)] = Field([])
    delete: Annotated[list[Name], Field(max_length=MAX_BATCH, description="Ids of memories to forget.")] = Field([])

    @model_validator(mode="after")
    def _bounded(self) -> BatchIn:
        if not 0 < len(self.create) + len(self.update) + len(self.delete) <= MAX_BATCH:
            raise ValueError(f"a batch has 1 to {MAX_BATCH} changes")
        return self


class BatchResult(BaseModel):
    """What became of one change. `id`: of the memory, where there is one; `error`: why it failed."""

    op: Literal["create", "update", "delete"]
    index: int = Field(description="Its place in its list, from 0.")
    done: Done
    id: str | None = None
    error: ErrorDetail | None = None


class BatchOut(BaseModel):
    """Every change in order. `failed`: how many did."""

    results: list[BatchResult]
    failed: int


def batch_router(gate: Gate, memories: Memories, sessions: Sessions, scribe: Scribe, welcome: Welcome) -> APIRouter:
    """POST /api/v1/memories/batch."""
    router = gate.router("memories")
    routes = _Routes(memories, sessions, scribe, welcome)
    router.add_api_route("/memories/batch", routes.batch, methods=["POST"], response_model=BatchOut)
    return router


class _Routes:
    def __init__(self, memories: Memories, sessions: Sessions, scribe: Scribe, welcome: Welcome) -> None:
        self._memories = memories
        self._sessions = sessions
        self._scribe = scribe
        self._welcome = welcome

    async def batch(self, scope: Admitted, body: BatchIn) -> BatchOut:
        """Make, change and forget many memories: 200, with a result for each change. One that fails does not keep the others
        from being done; once the database is away, what is left fails as well."""
        texts = [each.text for each in body.create] + [each.text for each in body.update if each.text is not None]
        counts, vectors = await self._scribe.counts(texts), await self._scribe.vectors(texts)
        ready = iter(zip(counts, vectors, strict=True))
        run = _Run()
        for n, new in enumerate(body.create):
            tokens, vector = next(ready)
            await run.do("create", n, None, self._create, scope, new, tokens, vector)
        for n, patch in enumerate(body.update):
            given: tuple[int | None, Vector | None] = next(ready) if patch.text is not None else (None, None)
            await run.do("update", n, patch.id, self._update, scope, patch, *given)
        for n, memory in enumerate(body.delete):
            await run.do("delete", n, memory, self._delete, scope, memory)
        return BatchOut(results=run.results, failed=sum(each.done == "failed" for each in run.results))

    async def _create(self, scope: Scope, new: MemoryIn, tokens: int, vector: Vector | None) -> tuple[Done, UUID]:
        self._welcome.check_memory(new.text, new.tags)
        owner = scope.user(new.user)
        session = await session_for(self._sessions, scope, owner, new.session)
        ((found, created),) = await self._memories.add(scope.tenant, owner, [new_memory(new, tokens, vector, session)])
        return "created" if created else "reinforced", found.memory_id

    async def _update(
        self, scope: Scope, patch: MemoryPatchOf, tokens: int | None, vector: Vector | None
    ) -> tuple[Done, UUID]:
        if patch.model_fields_set <= {"id"}:
            raise BadBody("Say what to change.")
        self._welcome.check_memory(patch.text, patch.tags)
        user, memory = await find_memory(self._memories, scope, patch.id)
        if await self._memories.change(scope.tenant, user, memory, change_of(patch, tokens, vector)) is None:
            raise NotFound("There is no such memory.")
        return "updated", memory

    async def _delete(self, scope: Scope, text: str) -> tuple[Done, UUID]:
        user, memory = await find_memory(self._memories, scope, text)
        if not await self._memories.forget(scope.tenant, user, memory):
            raise NotFound("There is no such memory.")
        return "deleted", memory


class _Run:
    """The changes so far."""

    def __init__(self) -> None:
        self.results: list[BatchResult] = []
        self._ended: MnemeError | None = None

    async def do(
        self,
        op: Literal["create", "update", "delete"],
        index: int,
        named: str | None,
        change: Callable[..., Awaitable[tuple[Done, UUID]]],
        *arguments: object,
    ) -> None:
        """One change, and what became of it."""
        try:
            if self._ended is not None:
                raise self._ended
            done, memory = await change(*arguments)
        except MnemeError as error:
            if isinstance(error, Unavailable):
                self._ended = error
            told = ErrorDetail.model_validate(error.body()["error"])
            self.results.append(BatchResult(op=op, index=index, done="failed", id=named, error=told))
        else:
            self.results.append(BatchResult(op=op, index=index, done=done, id=str(memory)))
