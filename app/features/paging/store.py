"""Semantic objects of sessions, at several fidelities, and what became of them (seed 002).

A request reads all that its session has in one round trip, but for texts that are not shown. What a call changes is written in
the transaction of its turn (`TurnStore.record_many`), once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple
from uuid import UUID

import numpy as np
import orjson
from asyncpg.pool import PoolConnectionProxy
from msgspec import Struct
from msgspec.structs import asdict, replace

from app.clock import Clock
from app.features.paging.values import (
    NOTHING_PAGED,
    SATURATION,
    WEIGHTS,
    WINDOW_TURNS,
    ContentKind,
    FaultRecord,
    Fidelity,
    Levels,
    ObjectAdmission,
    ObjectSpan,
    ObjectType,
    Paged,
    PagingRecord,
    Relationship,
    RelationType,
    SemanticObject,
    Shrunk,
    Zone,
)
from app.store.pools import Pool, halfvec, plain, storable
from app.store.queries import Queries
from app.store.records import Vector

NUMBERS = 14
"""Whole numbers that `agent_data.read_paging` gives of each object."""
_BETWEEN_TAGS = "\x1f"
_WANTED = {1: "restore", 2: "raise", 3: "release"}
_TYPES = {each.value: each for each in ObjectType}
_KINDS = {each.value: each for each in ContentKind}
_RELATIONS = {each.value: each for each in RelationType}
_LEVELS = tuple(Fidelity)


class ObjectHit(NamedTuple):
    """An object that may answer a question, with its whole content; `vector` and `text`: how like the question it is, 0 to 1
    each."""

    object: SemanticObject
    vector: float
    text: float


class PagingStore:
    def __init__(self, pool: Pool, sql: Queries, clock: Clock) -> None:
        self._pool = pool
        self._sql = sql
        self._clock = clock

    async def read(self, tenant: UUID, user: UUID, session: UUID, *, chains: Sequence[bytes] = ()) -> Paged:
        """What is stored of a session, in one round trip. `chains`: of the answers that its transcript holds
        (`body.keys_of`)."""
        async with self._pool.acquire() as connection:
            row = await connection.fetchrow(self._sql["paging.read"], tenant, user, session, list(chains), WINDOW_TURNS)
        assert row is not None, "a function with OUT arguments returns one row"
        return _paged(row) if row["zone"] is not None else NOTHING_PAGED

    async def texts(self, tenant: UUID, user: UUID, objects: Mapping[UUID, Fidelity]) -> dict[UUID, str]:
        """The text of each of these objects at its level; none for a level that was not made, and for who does not exist."""
        return await self._texts(tenant, user, None, list(objects), [int(each) for each in objects.values()])

    async def contents(self, tenant: UUID, user: UUID, session: UUID, objects: Sequence[UUID]) -> dict[UUID, str]:
        """L0 of these objects, as far as they are the session's."""
        return await self._texts(tenant, user, session, list(objects), [0] * len(objects))

    async def _texts(
        self, tenant: UUID, user: UUID, session: UUID | None, objects: list[UUID], levels: list[int]
    ) -> dict[UUID, str]:
        if not objects:
            return {}
        async with self._pool.acquire() as connection:
            rows = await connection.fetch(self._sql["paging.texts"], tenant, user, session, objects, levels)
        return {object_id: text for object_id, text in rows if text is not None}

    async def search(
        self,
        tenant: UUID,
        user: UUID,
        session: UUID,
        question: str,
        vector: Vector | None,
        space: int | None,
        limit: int,
    ) -> list[ObjectHit]:
        """The objects of a session that answer best, evicted ones too (seed 002 §2.3: likeness and words, weighted). Without a
        vector, and for objects that have none in this space, by words alone."""
        packed = halfvec(vector) if vector is not None and space is not None else None
        async with self._pool.acquire() as connection:
            rows = await connection.fetch(
                self._sql["paging.search"],
                tenant, user, session, storable(question), packed, space if packed is not None else None,
                *WEIGHTS, SATURATION, limit,
            )  # fmt: skip
        return [ObjectHit(_object(row), row["likeness"], row["words"]) for row in rows]

    async def keep(self, tenant: UUID, user: UUID, call_id: UUID | None, record: PagingRecord) -> None:
        """Write by itself what is no decision: what was segmented late, and what was asked through the API. Of an erased user
        nothing is written. Raises StoreUnavailable."""
        at = self._clock.now()
        async with self._pool.acquire() as connection:
            await write(connection, self._sql, tenant, user, call_id, at, replace(record, decided=False))

    async def unshrunk(self, tenant: UUID, user: UUID, session: UUID, limit: int) -> list[SemanticObject]:
        """Objects of a session without L1 and L2, oldest first, with their contents."""
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["paging.unshrunk"], tenant, user, session, limit)
        return [_object(row) for row in rows]

    async def store_levels(
        self,
        tenant: UUID,
        user: UUID,
        levels: Sequence[Levels],
        vectors: Mapping[UUID, Vector],
        space: int | None,
    ) -> None:
        """L1 and L2 of objects that have none yet, and vectors of contents. Each is shrunk from then on, also where nothing
        shorter was made."""
        ids = sorted({*(each.object_id for each in levels), *vectors}, key=lambda each: each.int)
        async with self._pool.transaction(tenant) as connection:
            await connection.execute(self._sql["paging.hold"], tenant, user, ids)
            if levels:
                await connection.execute(self._sql["paging.shrink"], tenant, user, self._clock.now(), *_columns(levels))
            if vectors and space is not None:
                await connection.execute(
                    self._sql["paging.embed"],
                    tenant, user, space, list(vectors), [halfvec(each) for each in vectors.values()],
                )  # fmt: skip


async def write(
    connection: PoolConnectionProxy[Any],
    sql: Queries,
    tenant: UUID,
    user: UUID,
    call_id: UUID | None,
    at: datetime,
    record: PagingRecord,
) -> None:
    """Write a record in whatever transaction the connection is in. `at`: when what it is of began."""
    chains = sorted(record.hidden)
    small = orjson.dumps(_record(record), default=plain).decode()
    await connection.execute(
        sql["paging.record"],
        tenant, user, record.session_id, call_id, at, record.decided, small,
        b"".join(sorted(record.marks)), [storable(each.content) for each in record.objects], chains,
        # Not orjson: what a model says may hold lone surrogates, as escapes.
        [json.dumps(record.hidden[each], default=str).encode() for each in chains],
    )  # fmt: skip


# --- what goes in --------------------------------------------------------------------------------------------------------


def _record(record: PagingRecord) -> dict[str, Any]:
    levels = {str(each.object_id): int(each.after) for each in record.transitions}
    names = {"pinned": _names(record.pinned), "uses": _names(record.uses), "heard": _names(record.heard)}
    asked = [str(each.object_id) for each in record.faults if each.object_id is not None]
    return {
        "zone": record.zone,
        "turn": record.turn,
        "budget": record.budget,
        "tokens": record.tokens,
        "shown_tokens": record.shown_tokens,
        "avoided_tokens": record.avoided_tokens,
        "offered": record.offered,
        "objects": [_new(each) for each in record.objects],
        "relationships": [[each.source, each.target, each.relation] for each in record.relationships],
        "admissions": [_admission(each) for each in record.admissions],
        "levels": levels,
        **names,
        "touched": sorted({*levels, *asked, *(name for each in names.values() for name in each)}),
        "made": [_describe_levels(levels) for levels in record.levels],
        "transitions": record.transitions,
        "faults": [
            asdict(each)
            | {
                "content_hash": each.content_hash.hex() if each.content_hash is not None else None,
                "question": _text(each.question),
                "answer": _text(each.answer),
            }
            for each in record.faults
        ],
    }


def _describe_levels(levels: Levels) -> dict[str, Any]:
    """Return L1 and L2 of an object as `agent_data.record_paging` takes them."""
    detailed, compact = levels.detailed, levels.compact
    return {
        "id": levels.object_id,
        "detailed": _shown(detailed.text) if detailed else None,
        "tokens_l1": detailed.tokens if detailed else None,
        "losses_l1": _replace_unstorable(detailed.losses if detailed else ()),
        "can_answer_l1": _replace_unstorable(detailed.can_answer if detailed else ()),
        "compact": _shown(compact.text) if compact else None,
        "tokens_l2": compact.tokens if compact else None,
        "losses_l2": _replace_unstorable(compact.losses if compact else ()),
        "can_answer_l2": _replace_unstorable(compact.can_answer if compact else ()),
        "fault_when": _replace_unstorable(levels.fault_when),
    }


def _replace_unstorable(texts: Sequence[str]) -> list[str]:
    return [_shown(text) for text in texts]


def _admission(made: ObjectAdmission) -> dict[str, Any]:
    fields = asdict(made)
    preview = storable(fields.pop("content_preview"))
    return fields | {"preview": preview}


def _new(made: SemanticObject) -> dict[str, Any]:
    return {
        "id": made.id,
        "object_type": made.object_type,
        "kind": made.kind,
        "source_tool": _text(made.source_tool),
        "source_key": _text(made.source_key),
        "content_hash": made.content_hash.hex(),
        "stub": _shown(made.stub),
        "key_entities": [storable(each) for each in made.key_entities],
        "tags": [storable(each) for each in made.tags],
        "parts": [[each.mark.hex(), each.start, each.stop] for each in made.parts],
        "last_accessed": made.last_accessed,
        "tokens_l0": made.tokens_l0,
        "tokens_l3": made.tokens_l3,
        "source_turn_start": made.source_turn_start,
        "source_turn_end": made.source_turn_end,
    }


def _names(objects: Iterable[UUID]) -> list[str]:
    return [str(each) for each in objects]


def _shown(text: str) -> str:
    """A text that stands in prompts as it is stored: without U+0000, as it was shown when it was made."""
    return storable(text.replace("\0", ""))


def _text(text: str | None) -> str | None:
    return storable(text) if text is not None else None


def _columns(levels: Sequence[Levels]) -> tuple[list[Any], ...]:
    def level(made: Shrunk | None) -> list[Any]:
        if made is None:
            return [None, None, "[]", "[]"]
        return [_shown(made.text), made.tokens, _list(made.losses), _list(made.can_answer)]

    rows = [[each.object_id, *level(each.detailed), *level(each.compact), _list(each.fault_when)] for each in levels]
    return tuple(map(list, zip(*rows, strict=True)))


def _list(texts: Sequence[str]) -> str:
    return orjson.dumps(_replace_unstorable(texts)).decode()


# --- what comes out ------------------------------------------------------------------------------------------------------


def _paged(row: Any) -> Paged:
    objects, wanted = _objects(row)
    asked: dict[UUID, list[FaultRecord]] = {}
    for of, turn, question in zip(row["asked"] or (), row["asked_turns"] or (), row["questions"] or (), strict=True):
        asked.setdefault(of, []).append(FaultRecord(turn, question))
    marks = row["marks"]
    edges = zip(row["sources"] or (), row["targets"] or (), row["relations"] or (), strict=True)
    return Paged(
        zone=Zone(row["zone"]),
        offered=row["offered"],
        marks=frozenset(marks[at : at + 16] for at in range(0, len(marks), 16)),
        objects=tuple(objects),
        relationships=tuple(Relationship(source, target, _RELATIONS[name]) for source, target, name in edges),
        restored=frozenset(each for each, what in wanted.items() if what == "restore"),
        raised=frozenset(each for each, what in wanted.items() if what == "raise"),
        released=frozenset(each for each, what in wanted.items() if what == "release"),
        asked={of: tuple(each) for of, each in asked.items()},
        hidden={
            chain: json.loads(hidden)
            for chain, hidden in zip(row["answer_chains"] or (), row["hidden"] or (), strict=True)
        },
    )


def _objects(row: Any) -> tuple[list[SemanticObject], dict[UUID, str]]:
    """The objects that `agent_data.read_paging` gives, and what is wanted of them."""
    ids = row["objects"] or ()
    wanted: dict[UUID, str] = {}
    made: list[SemanticObject] = []
    numbers = np.frombuffer(row["numbers"] or b"", ">i4").reshape(-1, NUMBERS).tolist()
    notes = orjson.loads(row["notes"] or b"[]")
    columns = (
        row[name] or () for name in ("types", "kinds", "tools", "keys", "hashes", "stubs", "details", "compacts")
    )
    more = (row[name] or () for name in ("tags", "reasons"))
    for key, type_, kind, tool, source, hashed, stub, detailed, compact, tags, reason, number, note in zip(
        ids, *columns, *more, numbers, notes, strict=True
    ):
        level, l0, l1, l2, l3, first, last, accessed, accesses, faults, micro_faults, pinned, wish, shrunk = number
        lost1, lost2, tells1, tells2, when, names, parts = note
        if wish:
            wanted[key] = _WANTED[wish]
        made.append(
            SemanticObject(
                id=key,
                object_type=_TYPES[type_],
                kind=_KINDS[kind],
                content="",
                stub=stub,
                tokens_l0=l0,
                tokens_l3=l3,
                parts=_parts(parts),
                content_hash=hashed,
                source_turn_start=first,
                source_turn_end=last,
                source_tool=tool,
                source_key=source,
                detailed=Shrunk(detailed or "", l1, tuple(lost1), tuple(tells1)) if l1 >= 0 else None,
                compact=Shrunk(compact or "", l2, tuple(lost2), tuple(tells2)) if l2 >= 0 else None,
                fault_when=tuple(when),
                key_entities=tuple(names),
                tags=tuple(tags.split(_BETWEEN_TAGS)) if tags else (),
                fidelity=_LEVELS[level],
                pinned=bool(pinned),
                pin_reason=reason,
                last_accessed=accessed,
                access_count=accesses,
                fault_count=faults,
                micro_fault_count=micro_faults,
                shrunk=bool(shrunk),
            )
        )
    return made, wanted


def _object(row: Any) -> SemanticObject:
    """A whole row of `semantic_objects`."""
    return SemanticObject(
        id=row["object_id"],
        object_type=_TYPES[row["object_type"]],
        kind=_KINDS[row["kind"]],
        content=row["content_full"],
        stub=row["stub"],
        tokens_l0=row["tokens_l0"],
        tokens_l3=row["tokens_l3"],
        parts=_parts(row["parts"]),
        content_hash=row["content_hash"],
        source_turn_start=row["source_turn_start"],
        source_turn_end=row["source_turn_end"],
        source_tool=row["source_tool"],
        source_key=row["source_key"],
        detailed=_level(row, "detailed", "l1"),
        compact=_level(row, "compact", "l2"),
        fault_when=tuple(row["fault_when"]),
        key_entities=tuple(row["key_entities"]),
        tags=tuple(row["tags"]),
        fidelity=_LEVELS[row["current_fidelity"]],
        pinned=row["pinned"],
        pin_reason=row["pin_reason"],
        last_accessed=row["accessed_turn"],
        access_count=row["access_count"],
        fault_count=row["fault_count"],
        micro_fault_count=row["micro_fault_count"],
    )


def _level(row: Any, name: str, level: str) -> Shrunk | None:
    tokens = row[f"tokens_{level}"]
    if tokens is None:
        return None
    return Shrunk(
        row[f"summary_{name}"] or "", tokens, tuple(row[f"losses_{level}"]), tuple(row[f"can_answer_{level}"])
    )


def _parts(parts: Sequence[Sequence[Any]]) -> tuple[ObjectSpan, ...]:
    return tuple(ObjectSpan(bytes.fromhex(mark), start, stop) for mark, start, stop in parts)


# --- objects as they are looked at from outside, and what people say of them ---------------------------------------------

Wish = Literal["pin", "unpin", "release"]


class StoredObject(Struct, frozen=True):
    """An object without its texts. `wanted`: of the next decision (restore, raise or release). Tokens of L1 and L2 are None
    until they were made, and where they would not be shorter; `shrunk_at` None: nobody has tried yet."""

    object_id: UUID
    session_id: UUID
    ordinal: int
    object_type: str
    kind: str
    source_tool: str | None
    source_key: str | None
    stub: str
    key_entities: list[str]
    tags: list[str]
    current_fidelity: int
    wanted: str | None
    pinned: bool
    pin_reason: str | None
    created_at: datetime
    last_accessed: datetime
    accessed_turn: int
    access_count: int
    fault_count: int
    micro_fault_count: int
    tokens_l0: int
    tokens_l1: int | None
    tokens_l2: int | None
    tokens_l3: int
    source_turn_start: int
    source_turn_end: int
    shrunk_at: datetime | None


class WholeObject(StoredObject, frozen=True):
    """The same with its texts. `turn`: of its session's last decision."""

    content_full: str
    content_hash: bytes
    summary_detailed: str | None
    summary_compact: str | None
    losses_l1: list[str]
    losses_l2: list[str]
    can_answer_l1: list[str]
    can_answer_l2: list[str]
    fault_when: list[str]
    turn: int


class StoredFault(NamedTuple):
    """A row of `fault_history`. `call_id` None: asked through the API."""

    fault_id: UUID
    call_id: UUID | None
    object_id: UUID | None
    fault_type: str
    turn: int
    content_hash: bytes | None
    question: str | None
    answer: str | None
    answer_tokens: int
    avoided_tokens: int
    latency_ms: int
    created_at: datetime


class StoredTransition(NamedTuple):
    """A row of `fidelity_transitions`. `zone`, `token_count`: of the whole prompt when the change was decided."""

    object_id: UUID
    call_id: UUID
    before: int
    after: int
    trigger: str
    turn: int
    zone: str
    token_count: int
    created_at: datetime


class StoredPressure(Struct, frozen=True):
    """How full a session's prompt was at its last decision. `total_context_tokens`: of its objects, at the level they are shown
    at (seed 002 §2.4)."""

    zone: str
    turn: int
    budget: int
    tokens: int
    shown_tokens: int
    avoided_tokens: int
    offered: bool
    updated_at: datetime
    total_context_tokens: int
    objects_at_l0: int
    objects_at_l1: int
    objects_at_l2: int
    objects_at_l3: int
    objects_evicted: int
    objects_pinned: int


class ObjectFilter(NamedTuple):
    """Which objects; None is any."""

    session: UUID | None = None
    type: str | None = None
    fidelity: int | None = None
    tag: str | None = None
    key: str | None = None
    pinned: bool | None = None


class ObjectStore:
    def __init__(self, pool: Pool, sql: Queries) -> None:
        self._pool = pool
        self._sql = sql

    async def page(
        self,
        tenant: UUID,
        user: UUID,
        wanted: ObjectFilter,
        *,
        after: tuple[Any, ...] | None,
        limit: int,
        among: Sequence[UUID] | None = None,
    ) -> list[StoredObject]:
        """Objects, newest first, after (created_at, ordinal, object_id); only those `among` these, if any are named."""
        rows = await self._fetch(
            "objects.list",
            tenant, user, *wanted, *(after or (None, None, None)), limit, None if among is None else list(among),
        )  # fmt: skip
        return [StoredObject(**dict(row)) for row in rows]

    async def one(self, tenant: UUID, user: UUID, object_id: UUID) -> WholeObject | None:
        rows = await self._fetch("objects.one", tenant, user, object_id)
        return WholeObject(**dict(rows[0])) if rows else None

    async def relationships(self, tenant: UUID, user: UUID, object_id: UUID) -> list[Relationship]:
        rows = await self._fetch("objects.relationships", tenant, user, object_id)
        return [Relationship(source, target, _RELATIONS[relation]) for source, target, relation in rows]

    async def asked(self, tenant: UUID, user: UUID, object_id: UUID, since: int) -> list[tuple[int, str]]:
        """The questions about an object from a turn on, each with its turn."""
        rows = await self._fetch("objects.asked", tenant, user, object_id, since)
        return [(row["turn_number"], row["question"]) for row in rows]

    async def faults(
        self,
        tenant: UUID,
        user: UUID,
        session: UUID,
        *,
        object_id: UUID | None = None,
        kind: str | None = None,
        after: tuple[Any, ...] | None,
        limit: int,
    ) -> list[StoredFault]:
        """What was asked of a session's objects, newest first, after (created_at, fault_id)."""
        bound = (tenant, user, session, object_id, kind, *(after or (None, None)), limit)
        return [StoredFault(*row) for row in await self._fetch("objects.faults", *bound)]

    async def transitions(
        self,
        tenant: UUID,
        user: UUID,
        session: UUID,
        *,
        object_id: UUID | None = None,
        trigger: str | None = None,
        after: tuple[Any, ...] | None,
        limit: int,
    ) -> list[StoredTransition]:
        """Changes of fidelity in a session, newest first, after (created_at, call_id, object_id)."""
        bound = (tenant, user, session, object_id, trigger, *(after or (None, None, None)), limit)
        return [StoredTransition(*row) for row in await self._fetch("objects.transitions", *bound)]

    async def pressure(self, tenant: UUID, user: UUID, session: UUID) -> StoredPressure | None:
        """Of a session; None where it was never paged."""
        rows = await self._fetch("objects.pressure", tenant, user, session)
        return StoredPressure(**dict(rows[0])) if rows else None

    async def wish(self, tenant: UUID, user: UUID, object_id: UUID, wish: Wish) -> bool:
        """Pin, unpin or release an object; False: there is none."""
        return bool(await self._fetch(f"objects.{wish}", tenant, user, object_id))

    async def _fetch(self, name: str, tenant: UUID, *bound: object) -> Sequence[Any]:
        async with self._pool.transaction(tenant) as connection:
            rows: Sequence[Any] = await connection.fetch(self._sql[name], tenant, *bound)
        return rows
