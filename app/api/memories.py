"""/api/v1/memories: what is remembered, to read, to correct, to forget, and to ask the user about.

Each change of a batch stands by itself: what is wrong with one is said beside it, and the others are done. (All or nothing
would let one memory that somebody else changed at this moment undo a thousand.) None is ever half done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Response
from msgspec import Struct
from msgspec.structs import asdict
from pydantic import (
    AfterValidator,
    BaseModel,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from app.api.common import (
    DEFAULT_PAGE,
    Cursor,
    Dated,
    ErrorDetail,
    Limit,
    Model,
    Name,
    SessionName,
    SpaceName,
    StoredUserName,
    UserName,
    Word,
    clean,
    decode_cursor,
    encode_cursor,
    paged,
    parse_json,
)
from app.api.intake import IntakeCheck, IntakePreparer
from app.api.scope import Admitted, CallerScope, Gate, find_memory, session_of
from app.errors import BadBody, BadRequest, MnemeError, NotFound, Unavailable
from app.memory.claims import validation_question
from app.memory.text import content_hash
from app.store import ids
from app.store.kinds import Kind, LearnedWay, MemoryOrigin
from app.store.memories import (
    IN_FORCE,
    MOST_CONFIDENCE,
    STATUSES,
    Memories,
    Memory,
    MemoryChange,
    MemoryFilter,
    MemoryText,
    NewMemory,
    Status,
)
from app.store.records import Vector
from app.store.sessions import NewSession, Sessions
from app.store.spaces import MEMORY, SharedSpaces, owner_of, space_of
from app.store.tenancy import UserRef
from app.store.validation import Validation

MAX_TEXT_CHARS = 32_768
"""Longest memory: its words must fit one tsvector (1 MB), and its text a prompt."""
_MAX_TAGS = 64
SMALLEST_SHARE = 1e-30
"""What is less is nothing: a column of type `real` refuses what it cannot hold, which is below 1e-45 (IEEE 754 binary32)."""
_MAX_BATCH = 1000
"""Most memories of one request."""
MAX_FILTERS = 64
_DEFAULT_DUE = 10
"""Memories to ask about in one answer: nobody answers more questions in a row."""


# --- bodies --------------------------------------------------------------------------------------------------------------


def _worded(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text


def _held(share: float) -> float:
    return share if share >= SMALLEST_SHARE else 0.0


MemoryWords = Annotated[
    str, StringConstraints(min_length=1, max_length=MAX_TEXT_CHARS), AfterValidator(clean), AfterValidator(_worded)
]
Tags = Annotated[list[Word], Field(max_length=_MAX_TAGS)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False), AfterValidator(_held)]


def _check_confidence(value: Any, parse: ValidatorFunctionWrapHandler) -> float:
    """Return a confidence as a number. Raises PydanticCustomError, which names the limit, for anything else."""
    try:
        share: float = parse(value)
    except ValidationError as error:
        raise PydanticCustomError(
            "confidence", "must be a number from 0 to {most}", {"most": MOST_CONFIDENCE}
        ) from error
    return share


Confidence = Annotated[
    float,
    Field(ge=0, le=MOST_CONFIDENCE, allow_inf_nan=False),
    AfterValidator(_held),
    WrapValidator(_check_confidence),
]
"""How far a memory is believed, 0 to `MOST_CONFIDENCE` (seed 004: LEAST(0.95, …))."""


class MemoryIn(Model):
    """A memory, said outright: it is taken as true and validated."""

    user: UserName | None = Field(None, description="Whose; else X-Mneme-User, else the key's user.")
    text: MemoryWords
    kind: Kind = "fact"
    tier: Annotated[int, Field(ge=1, le=4)] | None = Field(
        None, description="1 session, 2 episodic, 3 semantic, 4 procedural; 3, or 4 for a procedure."
    )
    tags: Tags = Field([])
    metadata: dict[str, Any] = Field({})
    importance: Share = 0.5
    session: SessionName | None = Field(None, description="The session that it belongs to; made where it is missing.")
    space: SpaceName | None = Field(
        None, description="The shared space that it is said to; unset: the user's own memory."
    )

    @model_validator(mode="after")
    def _in_one_place(self) -> MemoryIn:
        if self.space is not None and self.session is not None:
            raise ValueError("a memory of a shared space is of no session of a user's")
        return self


class MemoryPatch(Model):
    """What to change; a field that is left out stays."""

    text: MemoryWords | None = None
    kind: Kind | None = None
    tier: Annotated[int, Field(ge=1, le=4)] | None = None
    tags: Tags | None = None
    metadata: dict[str, Any] | None = Field(None, description="Replaces all metadata.")
    importance: Share | None = None
    confidence: Confidence | None = Field(None, description="How far the memory is believed.")
    expires_at: Dated | None = Field(None, description="null: never.")


def _shape(value: object) -> str:
    return "many" if isinstance(value, list) else "one"


OneOrMany = Annotated[
    Annotated[MemoryIn, Tag("one")]
    | Annotated[list[MemoryIn], Field(min_length=1, max_length=_MAX_BATCH), Tag("many")],
    Discriminator(_shape),
]


class Source(BaseModel, extra="allow"):
    """A message that an item comes from."""

    session: str | None = None
    message_id: UUID | None = None
    turn_index: int | None = None
    metadata: dict[str, Any] = {}


class LearnedFrom(Source):
    """A message that a memory comes from, and the words in it that say so."""

    session_id: UUID | None = None
    created_at: datetime | None = Field(None, description="When the message was said.")
    quote: str | None = Field(None, description="The user's words. A forgotten message's are left out.")
    span: tuple[int, int] | None = Field(
        None, description="Where the words begin and end in the message's text, in characters."
    )
    way: LearnedWay | None = Field(None, description="Who found them: rules, the fitted judge, or the helper LLM.")


class MemoryOut(BaseModel):
    """A memory. `tier`: 0 working to 4 procedural; `scope`: local to its session, or global; `space`: the shared space whose
    it is, in place of a user."""

    id: UUID
    user: str | None
    space: str | None
    session: str | None
    session_id: UUID | None
    tier: int
    scope: Literal["local", "global"]
    kind: str
    text: str
    status: Status
    importance: float
    confidence: float
    confidence_factors: dict[str, Any]
    tags: list[str]
    entity_ids: list[str]
    subject: str | None
    predicate: str | None
    object: str | None
    speaker: str | None = Field(
        description="The other named speaker of a session whom the memory is about; null: the user."
    )
    metadata: dict[str, Any]
    details: dict[str, Any]
    learned_by: MemoryOrigin | None = Field(
        description="Who found it in a message, `stated` outright (API, page, answer), or `derived` by consolidation."
    )
    provenance: list[LearnedFrom]
    token_count: int
    access_count: int
    reinforcement_count: int
    created_at: datetime
    updated_at: datetime
    last_accessed_at: datetime | None
    expires_at: datetime | None
    valid_from: datetime | None
    valid_to: datetime | None
    validated: bool
    validated_by: str | None
    superseded_by: UUID | None


class MemoryCreated(MemoryOut):
    """`created`: false when a memory in force said the same; that one is returned."""

    created: bool


class MemoriesCreated(BaseModel):
    memories: list[MemoryCreated]


class MemoryPage(BaseModel):
    memories: list[MemoryOut]
    next: str | None


class EventOut(BaseModel):
    """A change: created, merged, reinforced, promoted, demoted, decayed, aging, asked, confirmed, edited, invalidated, expired,
    restored, superseded or deleted; by system, user or api."""

    at: datetime
    event: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    actor: str


class EventPage(BaseModel):
    events: list[EventOut]
    next: str | None


class Invalidation(Model):
    reason: Annotated[str, StringConstraints(max_length=1000), AfterValidator(clean)] | None = None


class Deleted(BaseModel):
    id: UUID
    deleted: bool


Done = Literal["created", "reinforced", "updated", "deleted", "failed"]


class MemoryPatchOf(MemoryPatch):
    """A memory, and what to change of it."""

    id: Name


class BatchIn(Model):
    """What to do: first all of `create`, then `update`, then `delete`, each in order; 1,000 in all."""

    create: Annotated[list[MemoryIn], Field(max_length=_MAX_BATCH)] = Field([])
    update: Annotated[list[MemoryPatchOf], Field(max_length=_MAX_BATCH)] = Field([])
    delete: Annotated[list[Name], Field(max_length=_MAX_BATCH, description="Ids of memories to forget.")] = Field([])

    @model_validator(mode="after")
    def _bounded(self) -> BatchIn:
        if not 0 < len(self.create) + len(self.update) + len(self.delete) <= _MAX_BATCH:
            raise ValueError(f"a batch has 1 to {_MAX_BATCH} changes")
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


class DueOut(BaseModel):
    """A memory to ask about. `confidence`: what is left of it; `noted_at`: when it was said, or last confirmed."""

    id: UUID
    text: str
    question: str
    noted_at: datetime
    confidence: float
    importance: float


class DuePage(BaseModel):
    memories: list[DueOut]


class Answer(Model):
    """What the user says of a memory. `no` with a correction puts what is right in its place."""

    answer: Literal["yes", "no"]
    correction: MemoryWords | None = Field(None, description="What is right instead.")
    object: Name | None = Field(None, description="The value in the correction, where the memory is a triple.")


class Judged(BaseModel):
    """The memory after the answer, and the one that took its place."""

    memory: MemoryOut
    correction: MemoryOut | None


# --- routes --------------------------------------------------------------------------------------------------------------


def memories_router(gate: Gate, routes: MemoryRoutes) -> APIRouter:
    """The routes of /api/v1/memories, but for the search (`search`). `due` goes before `{memory_id}`, to which it would be an
    id."""
    router = gate.router("memories")
    router.add_api_route("/memories/due", routes.due, methods=["GET"])
    router.add_api_route("/memories/{memory_id}/validate", routes.validate, methods=["POST"])
    router.add_api_route("/memories/batch", routes.batch, methods=["POST"])
    router.add_api_route("/memories", routes.listing, methods=["GET"])
    router.add_api_route("/memories", routes.create, methods=["POST"], status_code=201)
    router.add_api_route("/memories/{memory_id}", routes.get, methods=["GET"])
    router.add_api_route("/memories/{memory_id}", routes.patch, methods=["PATCH"])
    router.add_api_route("/memories/{memory_id}", routes.delete, methods=["DELETE"])
    router.add_api_route("/memories/{memory_id}/invalidate", routes.invalidate, methods=["POST"])
    router.add_api_route("/memories/{memory_id}/restore", routes.restore, methods=["POST"])
    router.add_api_route("/memories/{memory_id}/history", routes.history, methods=["GET"])
    return router


class MemoryRoutes(Struct, frozen=True):
    memories: Memories
    sessions: Sessions
    validation: Validation
    spaces: SharedSpaces
    preparer: IntakePreparer
    intake_check: IntakeCheck

    async def listing(
        self,
        scope: Admitted,
        user: Annotated[StoredUserName | None, Query(description="Of this user only.")] = None,
        tier: Annotated[list[Annotated[int, Field(ge=0, le=4)]] | None, Query(max_length=MAX_FILTERS)] = None,
        kind: Annotated[list[Kind] | None, Query(max_length=MAX_FILTERS)] = None,
        tag: Annotated[list[Word] | None, Query(description="All of these.", max_length=MAX_FILTERS)] = None,
        metadata: Annotated[str | None, Query(description="JSON object that the metadata contains.")] = None,
        status: Annotated[
            list[Status | Literal["all"]] | None, Query(description="Else: what is in force.", max_length=MAX_FILTERS)
        ] = None,
        superseded_by: Annotated[
            UUID | None, Query(description="Those whose place this memory took; say `status=all` as well.")
        ] = None,
        limit: Limit = DEFAULT_PAGE,
        cursor: Cursor = None,
    ) -> MemoryPage:
        """List memories, newest first."""
        after = decode_cursor(cursor, (datetime, UUID))
        wanted = MemoryFilter(
            tiers=tier, kinds=list(kind) if kind else None, statuses=_statuses(status), tags=tag, metadata=_object(metadata),
            superseded_by=superseded_by,
        )  # fmt: skip
        rows = await self.memories.page(
            scope.tenant, scope.owner(user), wanted, after=after and (after[0], after[1]), limit=limit + 1
        )
        page, following = paged(rows, limit, lambda row: (row.created_at, row.memory_id))
        return MemoryPage(memories=[MemoryOut.model_validate(_fields(scope, row)) for row in page], next=following)

    async def create(self, scope: Admitted, response: Response, body: OneOrMany) -> MemoryCreated | MemoriesCreated:
        """Add one memory, or a list of them. 201: at least one is new; 200: all were there."""
        wanted = body if isinstance(body, list) else [body]
        owners = [(scope.user(each.user), each.space) for each in wanted]
        for each in wanted:
            self.intake_check.check_memory(each.text, each.tags)
        texts = [each.text for each in wanted]
        counts, vectors = await self.preparer.counts(texts), await self.preparer.vectors(texts)
        made: dict[int, tuple[Memory, bool]] = {}
        for owner, shared in dict.fromkeys(owners):
            places = [i for i, each in enumerate(owners) if each == (owner, shared)]
            new = [await self._new(scope, owner, wanted[i], counts[i], vectors[i]) for i in places]
            made |= dict(zip(places, await self._add(scope, owner, shared, new), strict=True))
        out = [
            MemoryCreated.model_validate(_fields(scope, row) | {"created": created})
            for row, created in (made[i] for i in range(len(wanted)))
        ]
        if not any(each.created for each in out):
            response.status_code = 200
        return MemoriesCreated(memories=out) if isinstance(body, list) else out[0]

    async def _new(
        self, scope: CallerScope, owner: UserRef, given: MemoryIn, tokens: int, vector: Vector | None
    ) -> NewMemory:
        """A memory to add; its session is made where it is missing. Raises NotFound for another user's."""
        session = None
        if given.session is not None:
            session = await session_of(self.sessions, scope.tenant, given.session, owner.id)
            if session is None:
                session, _ = await self.sessions.create(scope.tenant, owner, NewSession(external=given.session))
        return NewMemory(
            text=given.text,
            content_hash=content_hash(given.text),
            token_count=tokens,
            vector=vector,
            kind=given.kind,
            tier=given.tier or (4 if given.kind == "procedure" else 3),
            tags=list(dict.fromkeys(given.tags)),
            metadata=given.metadata,
            importance=given.importance,
            session=session.session_id if session is not None else None,
        )

    async def _add(
        self, scope: CallerScope, user: UserRef, space: str | None, new: Sequence[NewMemory]
    ) -> list[tuple[Memory, bool]]:
        """Memories of a user, or of a space that they are a member of; then it is noted that they said so."""
        if space is None:
            return await self.memories.add(scope.tenant, user, new)
        said = partial(self.spaces.saying, scope.tenant, user.id, space, kind=MEMORY)
        return await self.memories.add(scope.tenant, owner_of(scope.tenant, space), new, within=said)

    async def get(self, scope: Admitted, memory_id: str) -> MemoryOut:
        """Read a memory."""
        user, memory = await find_memory(self.memories, scope, memory_id)
        return _present(scope, await self.memories.one(scope.tenant, user, memory))

    async def patch(self, scope: Admitted, memory_id: str, body: MemoryPatch) -> MemoryOut:
        """Change a memory in place; what it said before stays in its history. 409: another memory in force says the same."""
        if not body.model_fields_set:
            raise BadBody("Say what to change.")
        self.intake_check.check_memory(body.text, body.tags)
        user, memory = await find_memory(self.memories, scope, memory_id)
        texts = [body.text] if body.text is not None else []
        counts, vectors = await self.preparer.counts(texts), await self.preparer.vectors(texts)
        change = _change_of(body, counts[0] if counts else None, vectors[0] if vectors else None)
        return _present(scope, await self.memories.change(scope.tenant, user, memory, change))

    async def delete(self, scope: Admitted, memory_id: str) -> Deleted:
        """Forget a memory: its words leave the memory, its history and the indexes for good, and are not learned again from
        what was said until now.

        What was said in a conversation stays there, and so do captured calls: erase the user to take those away.
        """
        _, memory = await self._delete(scope, memory_id)
        return Deleted(id=memory, deleted=True)

    async def invalidate(self, scope: Admitted, memory_id: str, body: Invalidation | None = None) -> MemoryOut:
        """Say that a memory is not true (any more). It stays, to be restored; it is not found or used until then.

        What was said until now does not bring it back, whoever reads it again; what the user says later is learned. 409: it is
        not in force.
        """
        user, memory = await find_memory(self.memories, scope, memory_id)
        reason = body.reason if body is not None else None
        return _present(scope, await self.memories.invalidate(scope.tenant, user, memory, reason))

    async def restore(self, scope: Admitted, memory_id: str) -> MemoryOut:
        """Bring a memory back that was invalidated or superseded, or has expired."""
        user, memory = await find_memory(self.memories, scope, memory_id)
        return _present(scope, await self.memories.restore(scope.tenant, user, memory))

    async def history(
        self, scope: Admitted, memory_id: str, limit: Limit = DEFAULT_PAGE, cursor: Cursor = None
    ) -> EventPage:
        """What became of a memory, oldest first. Of a forgotten one it says what happened, not what it said."""
        (after,) = decode_cursor(cursor, (int,)) or (0,)
        if after < 0:
            raise BadRequest("This cursor is not one that this list gave out.", param="cursor")
        user, memory = await find_memory(self.memories, scope, memory_id)
        if await self.memories.one(scope.tenant, user, memory) is None:
            raise NotFound("There is no such memory.")
        rows = await self.memories.events(scope.tenant, user, memory, after=after, limit=limit + 1)
        following = encode_cursor([after + limit]) if len(rows) > limit else None
        events = [EventOut.model_validate(row, from_attributes=True) for row in rows[:limit]]
        return EventPage(events=events, next=following)

    async def batch(self, scope: Admitted, body: BatchIn) -> BatchOut:
        """Make, change and forget many memories: 200, with a result for each change. One that fails does not keep the others
        from being done; once the database is away, what is left fails as well."""
        texts = [each.text for each in body.create] + [each.text for each in body.update if each.text is not None]
        counts, vectors = await self.preparer.counts(texts), await self.preparer.vectors(texts)
        ready = iter(zip(counts, vectors, strict=True))
        run = _BatchRun()
        for n, new in enumerate(body.create):
            tokens, vector = next(ready)
            await run.do("create", n, None, self._create, scope, new, tokens, vector)
        for n, patch in enumerate(body.update):
            given: tuple[int | None, Vector | None] = next(ready) if patch.text is not None else (None, None)
            await run.do("update", n, patch.id, self._update, scope, patch, *given)
        for n, memory in enumerate(body.delete):
            await run.do("delete", n, memory, self._delete, scope, memory)
        return BatchOut(results=run.results, failed=sum(each.done == "failed" for each in run.results))

    async def _create(self, scope: CallerScope, new: MemoryIn, tokens: int, vector: Vector | None) -> tuple[Done, UUID]:
        self.intake_check.check_memory(new.text, new.tags)
        owner = scope.user(new.user)
        made = await self._new(scope, owner, new, tokens, vector)
        ((found, created),) = await self._add(scope, owner, new.space, [made])
        return "created" if created else "reinforced", found.memory_id

    async def _update(
        self, scope: CallerScope, patch: MemoryPatchOf, tokens: int | None, vector: Vector | None
    ) -> tuple[Done, UUID]:
        if patch.model_fields_set <= {"id"}:
            raise BadBody("Say what to change.")
        self.intake_check.check_memory(patch.text, patch.tags)
        user, memory = await find_memory(self.memories, scope, patch.id)
        if await self.memories.change(scope.tenant, user, memory, _change_of(patch, tokens, vector)) is None:
            raise NotFound("There is no such memory.")
        return "updated", memory

    async def _delete(self, scope: CallerScope, text: str) -> tuple[Done, UUID]:
        user, memory = await find_memory(self.memories, scope, text)
        if not await self.memories.forget(scope.tenant, user, memory):
            raise NotFound("There is no such memory.")
        return "deleted", memory

    async def due(
        self,
        scope: Admitted,
        user: Annotated[StoredUserName | None, Query(description="Whose; else the header's, else the key's.")] = None,
        limit: Limit = _DEFAULT_DUE,
    ) -> DuePage:
        """List what to ask the user about: old statements that nobody has confirmed, what matters most first."""
        found = await self.validation.due(scope.tenant, scope.user(user).id, limit=limit)
        return DuePage(
            memories=[
                DueOut.model_validate(
                    asdict(each)
                    | {
                        "id": each.memory_id,
                        "text": each.content_text,
                        "question": validation_question(each.content_text, each.noted_at),
                    }
                )
                for each in found
            ]
        )

    async def validate(self, scope: Admitted, memory_id: str, body: Answer) -> Judged:
        """Say whether a memory is still right. 409: it is not in force."""
        if body.answer == "yes" and (body.correction is not None or body.object is not None):
            raise BadBody("A memory that is right needs no correction.", param="correction")
        if body.object is not None and body.correction is None:
            raise BadBody("The object is that of a correction.", param="object")
        self.intake_check.check(
            *(each for each in (body.correction, body.object) if each is not None), param="correction"
        )
        user, memory = await find_memory(self.memories, scope, memory_id)
        heir = None
        if body.answer == "yes":
            await self.validation.confirm(scope.tenant, user, memory)
        elif body.correction is None:
            await self.validation.deny(scope.tenant, user, memory)
        else:
            heir = await self._correct(scope, user, memory, body.correction, body.object)
        return Judged(
            memory=_present(scope, await self.memories.one(scope.tenant, user, memory)),
            correction=_present(scope, await self.memories.one(scope.tenant, user, heir)) if heir is not None else None,
        )

    async def _correct(self, scope: CallerScope, user: UUID, memory: UUID, text: str, value: str | None) -> UUID:
        counts, vectors = await self.preparer.counts([text]), await self.preparer.vectors([text])
        said = MemoryText(text, content_hash(text), counts[0], vectors[0])
        return await self.validation.correct(scope.tenant, user, memory, said, value)


class _BatchRun:
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


def _statuses(given: list[Any] | None) -> tuple[str, ...]:
    if not given:
        return IN_FORCE
    if "all" in given:
        return tuple(each for each in STATUSES if each != "forgotten" or "forgotten" in given)
    return tuple(given)


def _object(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        value = parse_json(text.encode())
    except (BadBody, UnicodeEncodeError) as error:
        raise BadRequest("This is not a JSON object.", param="metadata") from error
    if not isinstance(value, dict):
        raise BadRequest("This is not a JSON object.", param="metadata")
    return value


# --- between bodies and rows ---------------------------------------------------------------------------------------------


def _change_of(given: MemoryPatch, tokens: int | None, vector: Vector | None) -> MemoryChange:
    """What is to be changed. `tokens` and `vector`: of the new text, if there is one."""
    text = None
    if given.text is not None and tokens is not None:
        text = MemoryText(given.text, content_hash(given.text), tokens, vector)
    return MemoryChange(
        text=text,
        kind=given.kind,
        tier=given.tier,
        tags=list(dict.fromkeys(given.tags)) if given.tags is not None else None,
        metadata=given.metadata,
        importance=given.importance,
        confidence=given.confidence,
        set_expiry="expires_at" in given.model_fields_set,
        expires_at=given.expires_at,
    )


def _fields(scope: CallerScope, row: Memory) -> dict[str, Any]:
    space = space_of(scope.tenant, row.user_id, row.user_external_id)
    return asdict(row) | {
        "id": row.memory_id,
        "user": None if space is not None or row.user_id == ids.nobody(scope.tenant) else row.user_external_id,
        "space": space,
        "session": row.session_external_id,
        "tier": row.memory_tier,
        "scope": "global" if row.memory_scope else "local",
        "text": row.content_text,
        "subject": row.subject_entity_id,
        "object": row.object_value,
        "learned_by": row.origin,
        "provenance": row.sources,
        "validated": row.is_validated,
    }


def _present(scope: CallerScope, row: Memory | None) -> MemoryOut:
    if row is None or row.status == "forgotten":
        raise NotFound("There is no such memory.")
    return MemoryOut.model_validate(_fields(scope, row))
