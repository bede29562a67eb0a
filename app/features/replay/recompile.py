"""A captured request, compiled again: as of then, or with today's memory and settings. Nothing is stored or counted as used.

*As of then*: the present code, on the inputs of then. The candidates and the numbers that they were scored by, the live
blocks, the clock, window, reserve and budget are what was kept (`context/inputs.py`); texts are read by id, an edited one
as it was. What was forgotten or erased since does not come back: a candidate of it is left out, and a block that quotes it
is dropped with its epoch, as the next request would do.

*Today*: the same place in the same conversation (its transcript, path and live blocks: what was said later in it is not
known there), with today's search, clock, models and settings.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, Literal, NamedTuple
from uuid import UUID

from msgspec import Struct, field
from msgspec.structs import replace

from app.capture.facts import rebuild
from app.clock import Clock
from app.context.assemble import Block
from app.context.audit import quoted_memories, recalled
from app.context.candidates import CHANNELS, Candidate
from app.context.compile import Compiler
from app.context.facts_section import came_with, is_item, shown
from app.context.inputs import KeptInputs, Numbers, digest, read, unpack
from app.context.notes import outdated
from app.context.question import Asked
from app.context.request import Compilation, CompileRequest, Deed, Read
from app.context.resolution import RECENT, Inquiry, Knows, Who
from app.context.retrieve import Retrieved, Retriever, Scope, Wanted
from app.context.score import PROFILE_NAMES, PROFILES, Profile
from app.context.transcript import query_of
from app.errors import Conflict, MnemeError, NotFound
from app.gateway.addon import Addon
from app.gateway.dialects import dialect_of
from app.gateway.dialects.base import ChatRequest, Dialect
from app.gateway.dialects.splice import Insertion, parse_object, with_value
from app.gateway.prepare import ReadsCards, build_path, outgoing, recent_of, shared_scopes, with_costs, woven
from app.gateway.reconcile import Place, over_held, read_path, with_held, with_path
from app.gateway.upstream import Router, Target
from app.memory.candidate import Provenance
from app.providers.models import ModelRegistry
from app.providers.tokens import CountCache, Tokenizers
from app.store.captures import CallDetail, Captures
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.records import ROLE_NAMES, ResolutionStore
from app.store.spaces import Shared, SharedSpaces
from app.store.turns import Recognised, StoredBlock, StoredMessage, TurnStore
from app.store.user_profile import (
    FACT_FLOOR,
    MAX_FACTS,
    MAX_WISHES,
    NOTHING,
    EndedFact,
    Standing,
    StandingFact,
    StandingWish,
    take_standing,
)

# --- what it was compiled from -------------------------------------------------------------------------------------------


class StoredInputs(Struct, frozen=True):
    """What was kept of a compile (`app.context.inputs`) and what it decided (`app.context.audit`)."""

    user_id: UUID
    session_id: UUID | None
    inputs: dict[str, Any]
    audit: dict[str, Any]
    eta: float | None


class _RecordedItem(NamedTuple):
    """A message or memory as it was. `in_force`: it is today. `origin`: the only message that a memory comes from today."""

    id: UUID
    memory: bool
    text: str
    role: int | None
    name: str | None
    session_id: UUID | None
    external_id: str | None
    turn_index: int | None
    token_count: int
    created_at: datetime
    content_hash: bytes | None
    entity_ids: list[str] | None
    origin: UUID | None
    sources: list[dict[str, Any]] | None
    metadata: dict[str, Any] | None
    in_force: bool
    space: str | None = None
    """The shared space that it is of; None: it is the user's own."""
    space_id: UUID | None = None


class FactWords(NamedTuple):
    """What a fact said. `many`: a user may have several of its key."""

    key: str
    many: bool
    value: str


class Cost(Struct, frozen=True):
    """What an answer that was asked for again came to. `priced`: the model's price is known; costs are in micro-cents."""

    model: str
    prompt: int
    completion: int
    cached: int
    microcents: int
    priced: bool


class ReplayStore:
    """Reads for replays; of a tenant, and always of one user."""

    def __init__(self, pool: Pool, queries: Queries) -> None:
        self._pool = pool
        self._sql = queries

    async def inputs(self, tenant: UUID, call: UUID, user: UUID | None) -> StoredInputs | None:
        """What a call's context was compiled from; None: it was not. `user`: only that user's. Raises StoreUnavailable."""
        async with self._pool.transaction(tenant) as connection:
            row = await connection.fetchrow(self._sql["replays.inputs"], tenant, call, user)
        return StoredInputs(**dict(row)) if row is not None else None

    async def items(
        self, tenant: UUID, user: UUID, wanted: Collection[UUID], then: datetime, spaces: Sequence[Shared] = ()
    ) -> dict[UUID, _RecordedItem]:
        """Those of these items that may still be shown, as they were: the user's own, and those of these spaces. Raises
        StoreUnavailable."""
        if not wanted:
            return {}
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["replays.items"], tenant, user, list(wanted), then)
            found = {row["id"]: _RecordedItem(**dict(row)) for row in rows}
            missing = [each for each in wanted if each not in found]
            for space, name in spaces:
                rows = await connection.fetch(self._sql["replays.items"], tenant, space, missing, then)
                found |= {row["id"]: _RecordedItem(**dict(row), space=name, space_id=space) for row in rows}
        return found

    async def facts(
        self, tenant: UUID, user: UUID, wanted: Sequence[tuple[UUID, UUID]], then: datetime
    ) -> dict[UUID, FactWords]:
        """What facts (id, and id of the note) said at a moment, by note, as far as it may still be said. Raises
        StoreUnavailable."""
        if not wanted:
            return {}
        facts, notes = zip(*wanted, strict=True)
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["replays.facts"], tenant, user, facts, notes, then)
        return {row["note"]: FactWords(row["key"], row["many"], row["value"]) for row in rows}

    async def standing(self, tenant: UUID, user: UUID, *, pooled: bool, quoted: Collection[UUID] = ()) -> Standing:
        """What holds for a user today (`pooled`: there is one), and for the tenant. `quoted`: items of memory blocks. Raises
        StoreUnavailable."""
        async with self._pool.transaction(tenant) as connection:
            (row,) = await connection.fetch(
                self._sql["replays.standing"], tenant, user, pooled, MAX_FACTS, FACT_FLOOR, list(quoted), MAX_WISHES
            )
        return take_standing(dict(row))

    async def blocks(
        self, tenant: UUID, user: UUID, session: UUID, epoch: int, messages: Sequence[UUID]
    ) -> list[StoredBlock]:
        """Those of these memory blocks that are still stored, oldest first. Raises StoreUnavailable."""
        if not messages:
            return []
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["replays.blocks"], tenant, user, session, epoch, list(messages))
        return [StoredBlock(**dict(row) | {"item_ids": tuple(row["item_ids"])}) for row in rows]

    async def system_prompt(self, tenant: UUID, digest: bytes) -> str | None:
        """A system prompt by its SHA-256. Raises StoreUnavailable."""
        async with self._pool.transaction(tenant) as connection:
            text: str | None = await connection.fetchval(self._sql["replays.system_prompt"], tenant, digest)
        return text

    async def summaries(self, tenant: UUID, user: UUID, session: UUID) -> list[str]:
        """The summaries of a session that are still stored. Raises StoreUnavailable."""
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["replays.summaries"], tenant, user, session)
        return [row["text"] for row in rows]

    def messages_at(self, then: datetime) -> RecordedMessages:
        """Stored messages as they were shown at a moment."""
        return RecordedMessages(self._pool, self._sql, then)

    async def note_spend(
        self, tenant: UUID, user: UUID, call: UUID, replay: UUID, key: UUID | None, at: datetime, cost: Cost
    ) -> None:
        """Count what an answer cost that was asked for again: there is no call that would. Raises StoreUnavailable."""
        async with self._pool.transaction(tenant) as connection:
            await connection.execute(self._sql["replays.hold_user"], user)
            await connection.execute(
                self._sql["replays.note_spend"],
                tenant, replay, call, user, key, cost.model, at, cost.prompt, cost.completion, cost.cached, cost.priced,
                cost.microcents,
            )  # fmt: skip


class RecordedMessages:
    """A `gateway.reconcile.Messages` of a moment: what was compacted later is shown, what was forgotten is not."""

    def __init__(self, pool: Pool, queries: Queries, then: datetime) -> None:
        self._pool = pool
        self._sql = queries
        self._then = then

    async def session_messages(
        self, tenant: UUID, user: UUID, line: Sequence[tuple[UUID, int]], *, limit: int
    ) -> list[StoredMessage]:
        """As `TurnStore.session_messages`. Raises StoreUnavailable."""
        sessions, befores = [each for each, _ in line], [before for _, before in line]
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(
                self._sql["replays.session_messages"], tenant, user, sessions, befores, limit, self._then
            )
        return list(map(StoredMessage.of, rows))


# --- what a compile is given in place of a search and of a model's figures -----------------------------------------------


class RecordedRetriever(Retriever):
    def __init__(
        self,
        found: Sequence[Candidate],
        asked: bool | None = None,
        ended: Sequence[EndedFact] = (),
        beyond: Sequence[tuple[float, int]] = (),
    ) -> None:
        self._found = [each._replace(ended=tuple(e for e in ended if e.item == each.id)) for each in found]
        self._asked = asked
        self._beyond = beyond

    async def candidates(
        self, asked: Asked, scope: Scope, wanted: Wanted, profile: Profile, limits: object = None
    ) -> Retrieved:
        return Retrieved(list(self._found), {}, self._asked, beyond=self._beyond)


class RecordedModel(ModelRegistry):
    """A model with the window and the reserve of then."""

    def __init__(self, window: int, reserve: int) -> None:
        super().__init__()
        self._then = (window, reserve)

    def window(self, model: str) -> int:
        return self._then[0]

    def response_reserve(self, model: str, requested: int | None) -> int:
        return self._then[1]


def ended_of(kept: KeptInputs, items: Mapping[UUID, _RecordedItem]) -> list[EndedFact]:
    """What was said to be so no more, as far as it may still be shown."""
    found = []
    for item, memory, at, heir in kept.ended:
        old, new = items.get(memory), items.get(heir) if heir is not None else None
        if old is not None and (heir is None or new is not None):
            found.append(EndedFact(item, memory, old.text, None, at, heir, new.text if new is not None else None))
    return found


def candidates_of(kept: KeptInputs, audit: Mapping[str, Any], items: Mapping[UUID, _RecordedItem]) -> list[Candidate]:
    """The candidates of then, as far as they may still be shown. Raises Conflict for numbers that do not belong to them."""
    columns = audit["items"]
    try:
        numbers = unpack(kept.packed, columns["source"])
    except ValueError as error:
        raise Conflict(f"What was kept of this compile does not fit together: {error}.", code="version") from error
    spans = columns.get("spans") or [None] * len(numbers)
    rows = zip(
        columns["id"], columns["kind"], columns["tier"], columns["tokens"], columns["legs"], columns["sources"], spans,
        numbers, strict=True,
    )  # fmt: skip
    found = []
    for identity, kind, tier, tokens, channels, sources, span, own in rows:
        item = items.get(UUID(str(identity)))
        if item is not None:
            found.append(_candidate(item, kind, tier, tokens, channels, sources, span, own))
    return found


def _candidate(
    item: _RecordedItem, kind: str, tier: int | None, tokens: int, channels: int, sources: Any, span: Any, own: Numbers
) -> Candidate:
    role = ROLE_NAMES.get(item.role) if item.role is not None else None
    text = item.text[slice(*span)] if span is not None else item.text
    origin = None
    if own.alone:
        origin = UUID(str(sources[0][0])) if sources and sources[0][0] is not None else item.origin
    return Candidate(
        item.id,
        "memory" if item.memory else "message",
        kind,
        text,
        role,
        item.name,
        item.session_id,
        item.turn_index,
        tier,
        item.created_at,
        own.last_accessed_at,
        tokens,
        own.confidence,
        own.provenance_type if own.provenance_type is not None else int(Provenance.of_role(role)),
        own.importance,
        own.access_count,
        item.content_hash or b"",
        frozenset(name for bit, name in enumerate(CHANNELS) if channels >> bit & 1),
        own.similarity,
        item.entity_ids or (),
        origin,
        item.external_id,
        item.metadata,
        item.sources,
        own.near_text,
        own.near_vector,
        own.named,
        tuple(span) if span is not None else None,
        tokens if item.memory else item.token_count,
        own.timely,
        own.reinforcements,
        own.sure_since,
        own.odds,
        space=item.space,
        space_id=item.space_id,
    )


# --- compiling -----------------------------------------------------------------------------------------------------------

Mode = Literal["today", "as_of"]


class Recompiled(Struct, frozen=True):
    """What came of it. `body`: what would go upstream; `identical`: to the byte what went then. `before`: the explanation of
    then, as stored. `fates`: what became since of items of then that are not what they were (forgotten, not_in_force).
    `notes`: what else could not be had again."""

    mode: Mode
    call: CallDetail
    chat: ChatRequest
    target: Target
    body: bytes
    compilation: Compilation
    before: Mapping[str, Any]
    eta: float | None
    mneme: str
    fates: Mapping[str, str]
    notes: Sequence[str]

    @property
    def was(self) -> str | None:
        """SHA-256 of the body that went upstream then, as hex."""
        return self.call.sent_sha256 or self.call.request_sha256

    @property
    def now(self) -> str:
        """SHA-256 of the body, as hex."""
        return sha256(self.body).hexdigest()

    @property
    def identical(self) -> bool:
        return self.now == self.was


class _Captured(Struct):
    """A call with what is needed to compile it again."""

    call: CallDetail
    tenant: UUID
    user: UUID
    chat: ChatRequest
    kept: KeptInputs
    audit: Mapping[str, Any]
    eta: float | None
    items: Mapping[UUID, _RecordedItem] = field(default_factory=dict)
    quoted: set[UUID] = field(default_factory=set)
    """What the live blocks quote."""
    lost: set[UUID] = field(default_factory=set)
    """Notes of facts that may not be said any more."""
    notes: list[str] = field(default_factory=list)


class Recompiler(Struct):
    """`compiler`: today's. `turns`: for its history. `nonce_key`: as the compiler has it. `knower`: today's; None: what
    the business's own database says is left out of what is compiled as of today. `addon`: as the gateway has it."""

    captures: Captures
    replays: ReplayStore
    turns: TurnStore
    compiler: Compiler
    router: Router
    tokenizers: Tokenizers
    counts: CountCache
    clock: Clock
    nonce_key: Callable[[], bytes]
    knowing: ResolutionStore
    spaces: SharedSpaces
    cards: ReadsCards | None
    knower: Knows | None = None
    addon: Addon | None = None

    async def run(self, tenant: UUID, call: UUID, user: UUID | None, mode: Mode) -> Recompiled:
        """Compile a call again; `user`: only that user's. Raises NotFound, Conflict (it cannot be: `code` says why),
        StoreUnavailable, Unavailable."""
        captured = await self._read(tenant, call, user)
        kept, chat = captured.kept, captured.chat
        blocks, lost = await self._blocks(captured)
        quoted = captured.quoted = {item for block in blocks for item in block.item_ids}
        wanted = {UUID(each) for each in captured.audit["items"]["id"]} | {each for each in quoted if is_item(each)}
        wanted |= {each.memory for each in kept.notes.wishes} | {item for each in kept.deeds for item in each.items}
        wanted |= {each for ended in kept.ended for each in (ended.memory, ended.heir) if each is not None}
        spaces = await self.spaces.of(tenant, captured.user) if not kept.confined else ()
        captured.items = await self.replays.items(tenant, captured.user, wanted, kept.now, spaces)
        place = await self._place(captured, mode)
        target = self._target_then(captured) if mode == "as_of" else self.router.route(chat.model)
        request = await self._request(captured, place, target, mode, spaces)
        seen = shown(blocks)
        looked_at = {each for each in quoted if is_item(each)} - (came_with(blocks) - seen)
        gone = {each for each in looked_at if self._is_gone(captured, each, mode, told=each not in seen)}
        gone |= kept.gone | captured.lost if mode == "as_of" else outdated(blocks, request.standing)
        request = replace(request, blocks=blocks, block_epoch=kept.epoch + lost, gone=frozenset(gone))
        if mode == "as_of":
            compiler = self._compiler_then(captured)
        else:
            compiler = self.compiler
            request = replace(
                request, model=target.model_alias or chat.model, placement=target.placement, now=self.clock.now()
            )
        inquiry = await self._inquiry(captured, chat, place, request.now, mode)
        request = replace(request, inquiry=inquiry, cards=await self._shown(captured))
        insertions: Sequence[Insertion] = ()
        addon, part = self.addon, None
        if addon is not None and (told := captured.audit.get(addon.name)) is not None:
            part = await addon.again(tenant, captured.user, kept.session_id, chat, request.model, told)
        elif addon is None and "shown" in captured.audit.get("paging", {}):
            captured.notes.append("What was shown shorter cannot be shown so again: there is no app.features.paging.")
        if part is not None:
            request = with_costs(request, part.costs, part.schemas, captured.audit["budget"]["window"])
            captured.notes += part.notes
            insertions = part.insertions
        compiled = await compiler.compile(request)
        body = woven(chat, compiled, place, target.model_alias, insertions)
        fates = {str(each): told for each in wanted if (told := _fate(captured.items.get(each))) is not None}
        again = Recompiled(
            mode, captured.call, chat, target, body, compiled, captured.audit, captured.eta, kept.mneme, fates,
            captured.notes,
        )  # fmt: skip
        return await self._as_answered(tenant, again) if mode == "as_of" else again

    async def _read(self, tenant: UUID, call: UUID, user: UUID | None) -> _Captured:
        found = await self.captures.one(tenant, call, user)
        if found is None:
            raise NotFound("There is no such call, or the time of its capture is over (MNEME_CAPTURE_DAYS).")
        if found.metadata.get("captured") is False:
            raise Conflict("Of this call nothing was captured, so it cannot be compiled again.", code="not_captured")
        if {"request", "sent"} & set(found.metadata.get("redacted", ())):
            raise Conflict(
                "Of this call values were not stored (MNEME_REDACT_PATHS), so it cannot be compiled again.",
                code="capture_redacted",
            )
        stored = await self.replays.inputs(tenant, call, found.user_id)
        dialect = dialect_of(found.method, found.path.partition("?")[0])
        chat = await self._chat(tenant, found, dialect) if stored is not None and dialect is not None else None
        if stored is None or chat is None:
            why = f" ({found.reason})" if found.reason else ""
            raise Conflict(f"For this call no context was compiled{why}.", code="not_compiled")
        kept = read(stored.inputs)
        if kept is None or kept.profile not in PROFILE_NAMES or stored.audit["strategy"] not in PROFILES:
            raise Conflict(
                "This call was compiled by another version of Mneme, which kept other inputs.", code="version"
            )
        return _Captured(found, tenant, found.user_id, chat, kept, stored.audit, stored.eta)

    async def _chat(self, tenant: UUID, call: CallDetail, dialect: Dialect) -> ChatRequest | None:
        parts = await self.captures.request(tenant, call.call_id, call.user_id, sent=False)
        if parts is None or parts.truncated or parts.sha256 is None:
            return None
        try:
            body = rebuild(parts.prefix, parts.elements, parts.suffix, parts.sha256)
        except ValueError as error:
            raise MnemeError(f"{error}.", code="capture_mismatch") from error
        document = parse_object(body)
        return dialect.read(body, document) if document is not None else None

    async def _request(
        self, captured: _Captured, place: Place, target: Target, mode: Mode, spaces: Sequence[Shared]
    ) -> CompileRequest:
        """The compile's request, but for its memory blocks."""
        kept, chat = captured.kept, captured.chat
        ancestors = kept.ancestors
        if mode == "today" and kept.retrieval != kept.session_id:
            ancestors = (*ancestors, kept.session_id)  # a branch: what was said in it came after this request
        system = summary = None
        if kept.system is not None:
            system = await self.replays.system_prompt(captured.tenant, kept.system[0])
            if system is None:
                captured.notes.append("The session's system prompt of then is not stored any more.")
        if kept.summary is not None:
            told = await self.replays.summaries(captured.tenant, captured.user, kept.session_id)
            summary = next((each for each in told if digest(each) == kept.summary[0]), None)
            if summary is None:
                captured.notes.append("The session's summary of then is not stored any more.")
        request = CompileRequest(
            scope=Scope(
                tenant_id=captured.tenant,
                user_id=captured.user,
                confine=kept.retrieval if kept.confined else None,
                session=kept.retrieval,
                visible_from=kept.visible_from,
                ancestors=ancestors,
                shared=shared_scopes(captured.tenant, spaces, kept.retrieval, kept.visible_from)
                if mode == "today"
                else (),
            ),
            session_id=kept.session_id,
            new_session=kept.new_session,
            messages=chat.messages,
            transcript=chat.transcript,
            model=kept.model,
            now=kept.now,
            placement=captured.audit["placement"],
            answer_limit=chat.answer_limit,
            has_tools=chat.has_tools,
            schemas=chat.schemas,
            path=build_path(
                place.path, chat, send_reasoning=target.send_reasoning, upstream_holds=place.upstream_holds
            ),
            path_complete=place.path_complete,
            server_managed=kept.server_managed,
            start_chain=place.start_chain,
            system_prompt=system,
            system_prompt_tokens=kept.system[1] if kept.system is not None else 0,
            summary=summary,
            summary_tokens=kept.summary[1] if kept.summary is not None else 0,
            standing=await self._standing(captured, mode),
            learns=kept.learns,
            profile=captured.audit["strategy"] if mode == "as_of" else kept.profile,
            price=kept.price,
            search=kept.search or mode == "today",
            deeds=[
                Deed(each.words, tuple((one, item.text) for one in each.items if (item := captured.items.get(one))))
                for each in kept.deeds
            ],
        )
        return over_held(request, place) if place.upstream_holds else request

    async def _standing(self, captured: _Captured, mode: Mode) -> Standing:
        """What there is to say whatever is asked: as of then that which there was, as far as it may still be said."""
        kept, tenant, user = captured.kept, captured.tenant, captured.user
        if mode == "today":
            return await self.replays.standing(tenant, user, pooled=not kept.confined, quoted=captured.quoted)
        notes = kept.notes
        words = await self.replays.facts(tenant, user, [(each.fact_id, each.note) for each in notes.facts], kept.now)
        facts = []
        for fact, note, memory, since, said in notes.facts:
            if (found := words.get(note)) is not None:
                doubted = memory in notes.doubted
                facts.append(StandingFact(fact, note, *found, memory, None, None, since, said, doubted))
        wishes = [
            StandingWish(each.memory, item.text, None, None, each.messages)
            for each in notes.wishes
            if (item := captured.items.get(each.memory)) is not None
        ]
        captured.lost = {each.note for each in notes.facts} - words.keys()
        if captured.lost:
            captured.notes.append(f"Of the facts about the user {len(captured.lost)} were forgotten since.")
        profile = notes.profile
        if profile is None and notes.profile_note is not None:  # it stood in a block: said again only if that has to go
            today = await self.replays.standing(tenant, user, pooled=False)
            profile = today.profile if today.profile_note == notes.profile_note else None
        # What was due and not found is not kept; that something was had its room in the block.
        due = notes.due or {UUID(int=0): kept.now} if notes.due is not None else None
        own = notes.profile_note if profile is not None else None
        standing = Standing(
            profile, own, tuple(facts), due, wishes=tuple(wishes), borne=notes.borne, doubted=notes.doubted
        )
        return standing if standing != NOTHING else NOTHING

    async def _inquiry(
        self, captured: _Captured, chat: ChatRequest, place: Place, now: datetime, mode: Mode
    ) -> Inquiry | None:
        """What is known of the things that the request names: as of then, what was: nobody is asked again."""
        kept = captured.kept
        if mode == "today":
            if self.knower is None and kept.known is not None:
                captured.notes.append("What is known today of the things that it names is left out.")
            if self.knower is None:
                return None
            who = Who(captured.tenant, None if kept.confined else captured.user)
            recent = recent_of([*(outgoing(each).message for each in place.path[-RECENT:]), *chat.messages])
            return await self.knower.inquire(who, query_of(chat.messages), recent, now)
        if kept.known is None:
            return None
        claims = await self.knowing.claims(captured.tenant, captured.user, quoted_memories(captured.audit))
        known, lost = recalled(captured.audit, kept.known, {each.memory_id: each.value for each in claims})
        if lost:
            captured.notes.append(f"Of {lost} conflicts what the memory said is not stored any more.")
        return known

    async def _shown(self, captured: _Captured) -> Read | None:
        """The cards that it asks for: those that were found then, in either mode, for cards never change."""
        wanted = captured.kept.cards
        if wanted is None:
            return None
        if self.cards is None:
            captured.notes.append("The cards that it asks for cannot be read: there is no app.features.cards.")
            return None
        found = await self.cards.again(captured.tenant, captured.user, wanted)
        if lost := len(wanted) - len(found.ids):
            captured.notes.append(f"Of the cards that it asks for {lost} were deleted since.")
        return Read(found)

    async def _place(self, captured: _Captured, mode: Mode) -> Place:
        """Where the request stood, with the stored messages that Mneme supplied."""
        kept, way, chat = captured.kept, captured.kept.path, captured.chat
        place = Place(kept.session_id, False, "continue", kept.server_managed, 0, captured.user)
        place = replace(place, upstream_holds=chat.upstream_holds)
        if way is None:
            return place
        last = UUID(way["last"])
        line = tuple((UUID(session), turn) for session, turn in way.get("line", ()))
        found = Recognised("named", kept.session_id, True, ancestors=line, tip_turn_index=way["turn"])
        store = self.replays.messages_at(kept.now) if mode == "as_of" else self.turns
        path, complete = await read_path(store, captured.tenant, captured.user, found, last)
        place = replace(place, how=way["how"], parent_message_id=last, start_chain=bytes.fromhex(way.get("start", "")))
        if place.upstream_holds:
            own = [each for each in chat.transcript.hashes if each is not None]
            place = with_held(place, path, complete, own)
        else:
            place = with_path(place, path, complete, chat.messages, chat.transcript)
        if len(place.path) < way["messages"]:
            less = way["messages"] - len(place.path)
            captured.notes.append(f"{less} earlier messages of the session are not shown any more.")
        return place

    async def _blocks(self, captured: _Captured) -> tuple[list[Block], int]:
        """The live blocks of then, and 1 where one of them is not stored any more, which ended their epoch."""
        kept = captured.kept
        rows = await self.replays.blocks(captured.tenant, captured.user, kept.session_id, kept.epoch, kept.live)
        if len(rows) < len(kept.live):
            captured.notes.append("Memory blocks of then quoted what was deleted since: all of them are gone.")
            return [], 1
        blocks = [Block(b.chain_hash, b.message_hash, b.message_id, b.text, b.item_ids, b.token_count) for b in rows]
        return blocks, 0

    @staticmethod
    def _is_gone(captured: _Captured, item: UUID, mode: Mode, *, told: bool) -> bool:
        """`told`: only what it said is, in a line about a conflict."""
        known = captured.items.get(item)
        return known is None or (mode == "today" and not known.in_force and not told)

    def _compiler_then(self, captured: _Captured) -> Compiler:
        budget, terms = captured.audit["budget"], captured.kept.terms(captured.audit["strategy"])
        return Compiler(
            RecordedRetriever(
                candidates_of(captured.kept, captured.audit, captured.items),
                captured.kept.asked if captured.kept.price is not None else None,
                ended_of(captured.kept, captured.items),
                [captured.kept.beyond] if captured.kept.beyond is not None else [],
            ),
            RecordedModel(budget["window"], budget["reserve"]),
            self.tokenizers,
            self.counts,
            nonce_key=self.nonce_key,
            memory_cap=terms.cap,
            profiles={terms.profile.name: terms.profile},
            budgets=terms.budgets,
            questions=terms.questions,
            price=terms.price or "balanced",
        )

    def _target_then(self, captured: _Captured) -> Target:
        """Where it went, as far as the bytes show it: the model's name there, and the placement."""
        kept, chat = captured.kept, captured.chat
        known = {each.name: each for each in self.router.targets}
        target = known.get(captured.call.upstream) or self.router.targets[0]
        alias = kept.model if kept.model != chat.model else None
        return replace(target, model_alias=alias, placement=captured.audit["placement"])

    async def _as_answered(self, tenant: UUID, again: Recompiled) -> Recompiled:
        """What went to an upstream that stood in for another named the model as that one does."""
        if again.identical:
            return again
        parts = await self.captures.request(tenant, again.call.call_id, again.call.user_id, sent=True)
        document = parse_object(b"".join([parts.prefix, *parts.elements, parts.suffix])) if parts is not None else None
        named = document.get("model") if document is not None else None
        if not isinstance(named, str) or not again.chat.model:
            return again
        return replace(again, body=with_value(again.body, "model", named))


def _fate(item: _RecordedItem | None) -> str | None:
    """What became of an item of then; None: it is as it was."""
    if item is None:
        return "forgotten"
    return None if item.in_force else "not_in_force"
