"""What the hot path asks of Postgres: recognise, fetch, record. One round trip each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from msgspec import Struct, field
from msgspec.structs import fields

from app.store.indexed import NO_INDEX, NO_SPACES, IndexAsk, IndexRead, SharedRead, SpacesAsk, shared_of
from app.store.item_columns import NO_PLACES, Places, build_memory_places, ids_of
from app.store.pools import FromPool, Pool, Reads
from app.store.queries import Queries
from app.store.records import ROLE_NAMES, TurnRecord, Vector, batch
from app.store.user_profile import FACT_FLOOR, MAX_FACTS, MAX_WISHES, NOTHING, Standing, take_standing

_NO_SESSION = UUID(int=0)


class StoredBlock(NamedTuple):
    """A live memory block of a session, as an earlier prompt had it."""

    text: str
    chain_hash: bytes
    message_hash: bytes
    message_id: UUID
    item_ids: tuple[UUID, ...]
    token_count: int
    item_spaces: tuple[UUID | None, ...] = ()
    """Of each item the space that it is of; empty where all are the user's own."""


class Recognised(Struct, frozen=True):
    """What `agent_data.recognise` found. `how`: foreign, named, asked, chain, rewritten, tail or none.

    `tip_…`: where the session goes on, its newest answer (later messages may be stored: questions without one);
    `tip_question_…`: its last question, read for a retry alone; `head_…`: where the transcript left off, `head_open` if nothing
    was said after it; `asked_…`: the question that it repeats, or whose answer was rewritten. `ancestors`: the sessions that
    it branched off, nearest first, each with the last turn shared.
    """

    how: str
    session_id: UUID | None
    known: bool
    user_id: UUID | None = None
    external_id: str | None = None
    parent_session_id: UUID | None = None
    branch_turn_index: int | None = None
    ancestors: tuple[tuple[UUID, int], ...] = ()
    tip_message_id: UUID | None = None
    tip_turn_index: int = 0
    tip_chain: bytes | None = None
    tip_text: str | None = None
    tail1: bytes | None = None
    tip_question_id: UUID | None = None
    tip_question_hash: bytes | None = None
    tip_question_index: int | None = None
    head_message_id: UUID | None = None
    head_turn_index: int | None = None
    head_position: int | None = None
    head_open: bool = False
    head_visible_from: int = 1
    asked_message_id: UUID | None = None
    asked_turn_index: int | None = None
    request_chain: bytes | None = None
    request_count: int | None = None
    sent_chain: bytes | None = None
    sent_count: int | None = None
    system_prompt: str | None = None
    system_prompt_tokens: int = 0
    summary_text: str | None = None
    summary_token_count: int = 0
    block_epoch: int = 0
    blocks: tuple[StoredBlock, ...] = ()
    gone_items: frozenset[UUID] = frozenset()
    standing: Standing = NOTHING
    config: Mapping[str, Any] = field(default_factory=dict)
    """The session's own settings."""
    index: IndexRead | None = None
    """What became of the user's index, where that was asked."""
    shared: tuple[SharedRead, ...] = ()
    """The spaces that the user may read."""


class StoredMessage(NamedTuple):
    """A message of a session, as `agent_data.session_messages` has it. `hidden`: it was forgotten, erased or compacted, and
    is not shown again."""

    message_id: UUID
    parent_message_id: UUID | None
    turn_index: int
    sibling: int
    role: str
    content: str | None
    content_parts: Any = None
    name: str | None = None
    tool_calls: Any = None
    tool_call_id: str | None = None
    message_hash: bytes | None = None
    token_count: int = 0
    metadata: Mapping[str, Any] = MappingProxyType({})
    hidden: bool = False
    reasoning: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, row: Sequence[Any]) -> StoredMessage:
        """A row of it: the columns in this order, the role by its number. (By position: hundreds come at a time.)"""
        return cls._make((*row[:4], ROLE_NAMES.get(row[4], "other"), *row[5:]))


class EarlierCall(Struct, frozen=True):
    """The call that came earlier under a repeat key. `answered`: to the end. `body_parts`: prefix, elements and suffix
    of the body that went upstream, None where it was not captured."""

    call_id: UUID
    session_id: UUID | None
    answered: bool
    body_parts: tuple[bytes, Sequence[bytes], bytes] | None
    sha256: bytes | None


class RetrievedRow(NamedTuple):
    """One item, as `agent_data.fetch_chosen` returns it. `n`: which of those asked for, from 1. `origin`: the only message that
    a memory comes from. `reinforcements`: how often a memory was said again; `sure_since`: when it was last known to be right;
    `ended`: what it says that is so no more (`Ended.of`)."""

    n: int
    item_kind: int
    item_id: UUID
    kind: str
    content: str
    role: int | None
    name: str | None
    session_id: UUID | None
    external_id: str | None
    turn_index: int | None
    tier: int | None
    provenance_type: int
    confidence: float
    importance: float
    access_count: int
    last_accessed_at: datetime | None
    created_at: datetime
    token_count: int
    content_hash: bytes | None
    status: str
    entity_ids: list[str] | None
    origin: UUID | None
    sources: list[dict[str, Any]] | None
    metadata: dict[str, Any] | None
    reinforcements: int = 0
    sure_since: datetime | None = None
    ended: list[dict[str, Any]] | None = None
    owner: UUID | None = None
    """The space that it is of; None: it is the user's own."""


class TurnStore:
    """Recognise, fetch, record."""

    def __init__(
        self, pool: Pool, queries: Queries, *, history: Reads | None = None, memory: Reads | None = None
    ) -> None:
        """`pool`: for recording, and for what the others are not given for. `history`: where a request stands; `memory`: what
        is found for it."""
        self._pool = pool
        self._history = history or FromPool(pool, queries)
        self._memory = memory or FromPool(pool, queries)
        self._sql = queries

    async def recognise(
        self,
        tenant: UUID,
        user: UUID,
        *,
        nobody: bool = False,
        issued: UUID | None = None,
        named: UUID | None = None,
        chains: Sequence[bytes] = (),
        question: bytes | None = None,
        whole: bytes | None = None,
        tail1: bytes | None = None,
        tail2: bytes | None = None,
        retry: bool = False,
        index: IndexAsk = NO_INDEX,
        spaces: SpacesAsk = NO_SPACES,
    ) -> Recognised:
        """The session of a request; see `agent_data.recognise` for what each argument means. `index`: what of the user's index
        is asked with it; `spaces`: what of the indexes of spaces, should the user be a member."""
        # An id that the client was issued may say that it is somebody else's session: whose, is known only then. And what a
        # standby has is known of one user at a time: whatever is of a space is the primary's.
        direct = self._history.direct
        reads = direct if (nobody and issued is not None) or spaces.spaces else self._history
        arguments = (
            tenant, user, nobody, issued, named, list(chains), question, whole, tail1, tail2, retry, MAX_FACTS, FACT_FLOOR,
            MAX_WISHES, *index, *spaces,
        )  # fmt: skip
        row = await reads.one("turns.recognise", *arguments)
        if row is not None and row["shared_ids"] and not isinstance(reads, FromPool):
            row = await direct.one("turns.recognise", *arguments)
        assert row is not None, "a function with OUT arguments returns one row"
        return _recognised(row)

    async def session_messages(
        self, tenant: UUID, user: UUID, line: Sequence[tuple[UUID, int]], *, limit: int
    ) -> list[StoredMessage]:
        """Messages of a line of sessions, nearest first, each before the turn index that comes with it; newest first,
        siblings included."""
        sessions, befores = [each for each, _ in line], [before for _, before in line]
        rows = await self._history.many("turns.session_messages", tenant, user, sessions, befores, limit)
        return list(map(StoredMessage.of, rows))

    async def idempotent(self, tenant: UUID, user: UUID, key: bytes) -> EarlierCall | None:
        """The call that came earlier under this repeat key."""
        row = await self._history.one("turns.idempotent_call", tenant, user, key)
        if row is None or row["call_id"] is None:
            return None
        parts = None
        if row["prefix"] is not None and row["elements"] is not None:
            parts = (row["prefix"], row["elements"], row["suffix"] or b"")
        return EarlierCall(row["call_id"], row["session_id"], bool(row["answered"]), parts, row["sha256"])

    async def tied(self, tenant: UUID, user: UUID, entities: Sequence[str], limit: int) -> list[UUID]:
        """Memories that are about one of these, the latest first."""
        row = await self._memory.one("turns.tied", tenant, user, list(entities), limit)
        return (row and row["items"]) or []

    async def claiming(
        self, tenant: UUID, user: UUID, sought: Sequence[Mapping[str, Any]], limit: int
    ) -> dict[UUID, float]:
        """Memories whose predicate is `like` one of these, about one of its `entities` (None: anything), the latest first: by
        id, with the highest `boost`."""
        row = await self._memory.one("turns.claiming", tenant, user, list(sought), limit)
        return dict(zip(row["items"] or (), row["boosts"] or (), strict=True)) if row is not None else {}

    async def list_statements(self, tenant: UUID, user: UUID, limit: int) -> tuple[Places, int]:
        """Return the places of the user's own statements in force, the most important first, and the number of all."""
        row = await self._memory.one("turns.own_statements", tenant, user, limit)
        if row is None or not row["items"]:
            return NO_PLACES, 0
        return build_memory_places(row["items"], row["ats"]), row["total"]

    async def procedures(self, tenant: UUID, user: UUID) -> Standing:
        """A user's habits, and nothing else of what holds for him."""
        row = await self._memory.one("turns.procedures", tenant, user)
        return take_standing(row) if row is not None else NOTHING

    async def strategies(self) -> str:
        """The weights of seed 004's strategies, JSON; empty where there are none."""
        async with self._pool.acquire() as connection:
            return await connection.fetchval(self._sql["turns.strategies"]) or ""

    async def fetch_items(
        self,
        tenant: UUID,
        user: UUID,
        places: Places,
        *,
        confine: UUID | None,
        session: UUID | None,
        visible: int,
        ancestors: Sequence[UUID],
        history: bool,
        shared: Sequence[tuple[UUID, UUID | None]] = (),
    ) -> list[RetrievedRow]:
        """The items at these places that may come up, in any order. `shared`: spaces, of which some are asked for, each
        with a session of its own that stands in the prompt; those that the user may read at this moment are looked at."""
        if shared:
            spaces, sessions = zip(*shared, strict=True)
            rows = await self._memory.direct.many(
                "turns.fetch_shared",
                tenant, user, ids_of(places), places["kind"].tolist(), places["at"].tolist(),
                session, visible, list(ancestors), history, list(spaces), list(sessions),
            )  # fmt: skip
            return list(map(RetrievedRow._make, rows))
        rows = await self._memory.many(
            "turns.fetch_items",
            tenant, user, ids_of(places), places["kind"].tolist(), places["at"].tolist(),
            confine, session, visible, list(ancestors), history,
        )  # fmt: skip
        return list(map(RetrievedRow._make, rows))

    async def record(self, turn: TurnRecord) -> bool:
        """Write a turn; returns when it is durable. False: it was stored before."""
        return await self.record_many([turn])

    async def record_many(self, turns: Sequence[TurnRecord]) -> bool:
        """Write turns in one transaction, all or none; returns when they are durable. False: all were stored before.

        No two of them have a session or a repeat key in common. Raises what asyncpg raises for what is wrong with one
        of them, UniqueViolationError where some of them are stored already and some are not.
        """
        ordered = sorted(turns, key=lambda each: (each.call.user_id, each.call.session_id or _NO_SESSION))
        arguments = batch(ordered)
        asking = [each for each in ordered if each.asked and each.call.session_id is not None]
        more = [(each.call, each.part) for each in ordered if each.part is not None]
        more.sort(key=lambda each: (each[0].user_id, each[1].session_id))
        if not asking and not more:
            async with self._pool.acquire() as connection:
                return bool(await connection.fetchval(self._sql["turns.record_turns"], *arguments))
        async with self._pool.transaction(None) as connection:
            if not await connection.fetchval(self._sql["turns.record_turns"], *arguments):
                return False
            for call, part in more:
                await part.write(connection, self._sql, call)
            for turn in asking:
                call = turn.call
                await connection.execute(
                    self._sql["lifecycle.asked_in_turn"],
                    call.tenant_id, call.user_id, call.session_id, list(turn.asked), call.created_at,
                )  # fmt: skip
        return True

    async def warm(self, vector: Vector | None, space: int | None) -> None:
        """Ask what each request asks, of nobody, so that it is planned: that takes longer than a request waits for memory."""
        nobody = UUID(int=0)
        await self.recognise(nobody, nobody, index=IndexAsk(space, 0, 0, 0, "1:1:"))
        for reads in (self._history, self._memory):
            await reads.one("index.warm", nobody, nobody, space)
        await self._memory.one("index.load", nobody, nobody, space, 0, 0, 0)
        await self.tied(nobody, nobody, ["warm"], 1)
        for shared in ((), [(nobody, None)]):
            await self.fetch_items(
                nobody,
                nobody,
                NO_PLACES,
                confine=None,
                session=None,
                visible=0,
                ancestors=(),
                history=False,
                shared=shared,
            )

    async def space_of(self, name: str) -> int | None:
        """The number of an embedding space."""
        async with self._pool.acquire() as connection:
            number: int | None = await connection.fetchval(self._sql["turns.space_of"], name)
            return number

    async def secret(self) -> bytes:
        """What keys the delimiters of memory blocks: 64 bytes, the same for the life of the database."""
        async with self._pool.acquire() as connection:
            text: str = await connection.fetchval(self._sql["turns.secret"])
        return text.encode()[:64]


_RECOGNISED = frozenset(each.name for each in fields(Recognised))


def _recognised(row: dict[str, Any]) -> Recognised:
    texts = row["block_texts"] or []
    chains, hashes = row["block_chains"] or [], row["block_hashes"] or []
    messages, items = row["block_messages"] or [], row["block_items"] or []
    counts, tokens, spaces = row["block_item_counts"] or [], row["block_tokens"] or [], row["block_spaces"] or []
    blocks, at = [], 0
    for i, text in enumerate(texts):
        own = tuple(items[at : at + counts[i]])
        at += counts[i]
        of = tuple(spaces[at - counts[i] : at])
        blocks.append(StoredBlock(text, chains[i], hashes[i], messages[i], own, tokens[i], of if any(of) else ()))
    line = zip(row["ancestors"] or [], row["ancestor_turns"] or [], strict=True)
    known = {name: value for name, value in row.items() if value is not None and name in _RECOGNISED}
    return Recognised(
        **known
        | {
            "session_id": row["session_id"],
            "standing": take_standing(row),
            "blocks": tuple(blocks),
            "gone_items": frozenset(row["gone_items"] or ()),
            "ancestors": tuple((session, turn or 0) for session, turn in line),
            "index": IndexRead.of(row) if row["snapshot"] is not None else None,
            "shared": shared_of(row),
        }
    )
