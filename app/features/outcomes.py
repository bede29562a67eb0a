"""/api/v1/outcomes: what answers were worth, and what that says of the memories in their prompts (seed 001)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Response
from pydantic import AfterValidator, BaseModel, Field, StringConstraints, model_validator

from app.api.common import DEFAULT_PAGE, Cursor, Limit, Model, Name, clean, decode_cursor, paged
from app.api.memories import SMALLEST_SHARE
from app.api.scope import Admitted, CallerScope, Gate, find_call
from app.clock import Clock
from app.context.audit import used_memories
from app.errors import NotFound
from app.features import Process
from app.settings import Settings
from app.store.captures import Captures
from app.store.pools import Pool
from app.store.queries import Queries


class Outcomes:
    def __init__(self, pool: Pool, sql: Queries, clock: Clock) -> None:
        self._pool = pool
        self._sql = sql
        self._clock = clock

    async def owner(self, tenant: UUID, call: UUID, user: UUID | None) -> UUID | None:
        """Whose call this is (of `user`, if one is named)."""
        async with self._pool.transaction(tenant) as connection:
            found: UUID | None = await connection.fetchval(self._sql["outcomes.owner"], tenant, call, user)
        return found

    async def block_items(self, tenant: UUID, user: UUID, session: UUID, call: UUID, blocks: int) -> list[UUID]:
        """What the session's last `blocks` memory blocks before the call hold, messages as well as memories."""
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["outcomes.block_items"], tenant, user, session, blocks, call)
        return [row["item_id"] for row in rows]

    async def rate(
        self,
        tenant: UUID,
        user: UUID,
        call: UUID,
        *,
        score: float | None,
        comment: str | None = None,
        metadata: dict[str, Any] | None = None,
        memories: Sequence[UUID] = (),
    ) -> bool | None:
        """Say what the answer was worth (None: take it back), and move the importance of `memories`, which count when it is
        said for the first time. True: something had been said of it before; None: there is no such call."""
        async with self._pool.transaction(tenant) as connection:
            known: bool | None = await connection.fetchval(
                self._sql["outcomes.rate"],
                tenant, user, call, score, comment, metadata or {}, list(memories), self._clock.now(),
            )  # fmt: skip
        return known

    async def page(
        self, tenant: UUID, user: UUID | None, *, before: UUID | None = None, limit: int = 1, call: UUID | None = None
    ) -> list[OutcomeOut]:
        """Outcomes of a user, or of all, the latest calls first, before the call `before`; of that user's `call` only, if it
        is named."""
        async with self._pool.transaction(tenant) as connection:
            if user is None:
                rows = await connection.fetch(self._sql["outcomes.page_of_tenant"], tenant, before, limit)
            else:
                rows = await connection.fetch(self._sql["outcomes.page"], tenant, user, before, limit, call)
        return [_out(row) for row in rows]

    async def report(
        self, tenant: UUID, user: UUID | None, *, after: tuple[int, UUID] | None, limit: int
    ) -> list[Reported]:
        """Memories of a user, or of all, by how many rated answers they stood in, after (answers, memory)."""
        place = (*(after or (None, None)), limit)
        async with self._pool.transaction(tenant) as connection:
            if user is None:
                rows = await connection.fetch(self._sql["outcomes.report_of_tenant"], tenant, *place)
            else:
                rows = await connection.fetch(self._sql["outcomes.report"], tenant, user, *place)
        return [_reported(row) for row in rows]


# --- the routes ----------------------------------------------------------------------------------------------------------

Word = Literal["positive", "negative", "neutral"]
_SCORES: dict[str, float] = {"positive": 1.0, "negative": -1.0, "neutral": 0.0}
MAX_COMMENT_CHARS = 4000
"""Longest comment, characters: what a person writes into a box."""


def _held(score: float) -> float:
    # What is less, a column of type `real` refuses.
    return score if abs(score) >= SMALLEST_SHARE else 0.0


class OutcomeIn(Model):
    """What an answer was worth: `outcome`, or `score`, or both if they agree."""

    call: Name = Field(description="The call: its `x-mneme-call-id`.")
    outcome: Word | None = None
    score: Annotated[float, Field(ge=-1, le=1, allow_inf_nan=False), AfterValidator(_held)] | None = Field(
        None, description="-1 to 1; positive is 1, negative -1."
    )
    comment: Annotated[str, StringConstraints(max_length=MAX_COMMENT_CHARS), AfterValidator(clean)] | None = None
    metadata: dict[str, Any] = Field({})

    @model_validator(mode="after")
    def _agreeing(self) -> OutcomeIn:
        if self.outcome is None and self.score is None:
            raise ValueError("say what it was worth: outcome or score")
        if self.outcome is not None and self.score is not None and _word(self.score) != self.outcome:
            raise ValueError(f"a score of {self.score:g} is not {self.outcome}")
        return self

    @property
    def worth(self) -> float:
        return self.score if self.score is not None else _SCORES[self.outcome or "neutral"]


class Moved(BaseModel):
    """A memory that stood in the prompt, and what the outcome did to its importance."""

    id: UUID
    change: float


class OutcomeOut(BaseModel):
    """What an answer was worth."""

    call: UUID
    user: str | None
    session_id: UUID | None
    outcome: Word
    score: float
    comment: str | None
    metadata: dict[str, Any]
    memories: list[Moved]
    created_at: datetime
    updated_at: datetime


class OutcomePage(BaseModel):
    outcomes: list[OutcomeOut]
    next: str | None


class Answers(BaseModel):
    """Rated answers; `mean_score` is null where there were none."""

    answers: int
    positive: int
    negative: int
    mean_score: float | None


class Reported(BaseModel):
    """A memory: the answers with it in their prompt, against those without it since it was learned. `difference` of the mean
    scores is null where one of them is."""

    id: UUID
    text: str
    kind: str
    status: str
    importance: float
    answers_with: Answers
    answers_without: Answers
    difference: float | None


class ReportPage(BaseModel):
    memories: list[Reported]
    next: str | None


class OutcomeDeleted(BaseModel):
    call: UUID
    deleted: bool


def outcomes_router(gate: Gate, outcomes: Outcomes, captures: Captures) -> APIRouter:
    async def _memories(scope: CallerScope, call: UUID, owner: UUID) -> list[UUID]:
        """The memories in the prompt: those chosen for the turn, and those of earlier blocks that still stood there."""
        compiled = await captures.compilation(scope.tenant, call, owner)
        if compiled is None:
            return []
        found = [UUID(str(memory)) for memory, _ in used_memories(compiled.audit)]
        blocks = compiled.audit.get("live_blocks")
        if blocks and compiled.session_id is not None:
            found += await outcomes.block_items(scope.tenant, owner, compiled.session_id, call, int(blocks))
        return list(dict.fromkeys(found))

    async def _owner(scope: CallerScope, call: UUID) -> UUID:
        named = scope.named()
        owner = await outcomes.owner(scope.tenant, call, named.id if named is not None else None)
        if owner is None:
            raise NotFound("There is no such call.", param="call")
        return owner

    async def _one(scope: CallerScope, call: UUID, owner: UUID) -> OutcomeOut:
        rows = await outcomes.page(scope.tenant, owner, call=call)
        if not rows:
            raise NotFound("Nothing was said of this answer.")
        return rows[0]

    async def rate(scope: Admitted, response: Response, body: OutcomeIn) -> OutcomeOut:
        """Say what an answer was worth (201; 200 where something was said of it before: the last word counts). Each memory
        that stood in its prompt becomes more or less important by up to 0.1, within 0 to 1."""
        call = find_call(body.call)
        owner = await _owner(scope, call)
        known = await outcomes.rate(
            scope.tenant,
            owner,
            call,
            score=body.worth,
            comment=body.comment,
            metadata=body.metadata,
            memories=await _memories(scope, call, owner),
        )
        if known is None:
            raise NotFound("There is no such call.", param="call")
        response.status_code = 200 if known else 201
        return await _one(scope, call, owner)

    async def listing(scope: Admitted, limit: Limit = DEFAULT_PAGE, cursor: Cursor = None) -> OutcomePage:
        """List outcomes, of one user or of all, the latest calls first."""
        (before,) = decode_cursor(cursor, (UUID,)) or (None,)
        named = scope.named()
        rows = await outcomes.page(scope.tenant, named.id if named else None, before=before, limit=limit + 1)
        page, following = paged(rows, limit, lambda row: (row.call,))
        return OutcomePage(outcomes=page, next=following)

    async def get(scope: Admitted, call_id: str) -> OutcomeOut:
        """Read what an answer was worth."""
        call = find_call(call_id)
        return await _one(scope, call, await _owner(scope, call))

    async def delete(scope: Admitted, call_id: str) -> OutcomeDeleted:
        """Take back what was said of an answer; the importance of its memories goes back as well."""
        call = find_call(call_id)
        owner = await _owner(scope, call)
        if not await outcomes.rate(scope.tenant, owner, call, score=None):
            raise NotFound("Nothing was said of this answer.")
        return OutcomeDeleted(call=call, deleted=True)

    async def report(scope: Admitted, limit: Limit = DEFAULT_PAGE, cursor: Cursor = None) -> ReportPage:
        """For each memory, of one user or of all: answers with it in their prompt against the same user's answers without
        it, most answers first."""
        after = decode_cursor(cursor, (int, UUID))
        named = scope.named()
        rows = await outcomes.report(
            scope.tenant, named.id if named else None, after=after and (after[0], after[1]), limit=limit + 1
        )
        page, following = paged(rows, limit, lambda row: (row.answers_with.answers, row.id))
        return ReportPage(memories=page, next=following)

    router = gate.router("outcomes")
    router.add_api_route("/outcomes", listing, methods=["GET"], response_model=OutcomePage)
    router.add_api_route("/outcomes", rate, methods=["POST"], response_model=OutcomeOut)
    router.add_api_route("/outcomes/report", report, methods=["GET"], response_model=ReportPage)
    router.add_api_route("/outcomes/{call_id}", get, methods=["GET"], response_model=OutcomeOut)
    router.add_api_route("/outcomes/{call_id}", delete, methods=["DELETE"], response_model=OutcomeDeleted)
    return router


def _word(score: float) -> Word:
    return "positive" if score > 0 else "negative" if score < 0 else "neutral"


def _out(row: Any) -> OutcomeOut:
    same = ("session_id", "score", "comment", "metadata", "memories", "created_at", "updated_at")
    own = {"call": row["call_id"], "user": row["user_external_id"], "outcome": _word(row["score"])}
    return OutcomeOut.model_validate({name: row[name] for name in same} | own)


def _reported(row: Any) -> Reported:
    mine, others = row["mean_score"], row["other_mean_score"]
    return Reported(
        id=row["memory_id"],
        text=row["content_text"],
        kind=row["kind"],
        status=row["status"],
        importance=row["importance"],
        answers_with=Answers(
            answers=row["answers"], positive=row["positive"], negative=row["negative"], mean_score=mine
        ),
        answers_without=Answers(
            answers=row["other_answers"],
            positive=row["other_positive"],
            negative=row["other_negative"],
            mean_score=others,
        ),
        difference=None if others is None else mine - others,
    )


def routes(process: Process, settings: Settings, gate: Gate) -> Sequence[APIRouter]:
    pool, sql = process.pool, process.queries
    return (outcomes_router(gate, Outcomes(pool, sql, process.clock), Captures(pool, sql)),)
