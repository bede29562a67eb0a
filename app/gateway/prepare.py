"""Before the upstream is called: find the conversation, compile the context, and make the bytes that go out, which are the
client's own body with insertions (`Preparer`); and what the newest message tells memory to do."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from app.capture.facts import CompileFacts
from app.capture.record import GIVEN
from app.context.assemble import AppendTo, Block, Edit, InsertMessage, Prepend
from app.context.audit import Explained
from app.context.compile import Compiler
from app.context.facts_section import shown
from app.context.notes import outdated
from app.context.question import at_home
from app.context.reasoning import Form, drop_thought_parts, find_open_loop, restore, select_form
from app.context.request import AskedCards, Compilation, CompileRequest, Deed, PathMessage
from app.context.resolution import RECENT, EarlierMessage, Inquiry, Knows, Who
from app.context.retrieve import Scope, SharedScope
from app.context.transcript import SYSTEM_ROLES, answer_text, query_of, text_of
from app.gateway.addon import CallPart
from app.gateway.dialects.base import Canvas, ChatRequest, renamed
from app.gateway.dialects.splice import Insertion, splice
from app.gateway.identify import EarlierAnswer, Identity, Switches, body_of, repeat_key
from app.gateway.reconcile import Place, is_server_managed, over_held, reconcile, reconcile_held
from app.gateway.upstream import Target
from app.index.indexes import CurrentIndex, HeldIndex, Indexes
from app.memory.commands import Command, commands
from app.memory.speakers import SessionSpeakers
from app.memory.text import strip_injected
from app.sources import Price
from app.store import ids
from app.store.indexed import NO_INDEX, NO_SPACES, IndexAsk, IndexRead, SharedRead, SpacesAsk
from app.store.turns import Recognised, StoredMessage, TurnStore

# --- messages that go out ------------------------------------------------------------------------------------------------


def outgoing(stored: StoredMessage) -> PathMessage:
    """A stored message as it goes to the upstream again, with what the client's own fields and roles were."""
    given = stored.metadata.get(GIVEN)
    given = given if isinstance(given, dict) else {}
    message: dict[str, Any] = {
        "role": given.get("role", stored.role) if stored.role == "other" else stored.role,
        "content": stored.content_parts if stored.content_parts is not None else stored.content,
    }
    if stored.name:
        message["name"] = stored.name
    if stored.tool_calls:
        message |= _calls(stored.tool_calls)
    if stored.tool_call_id:
        message["tool_call_id"] = stored.tool_call_id
    message |= given.get("fields", {})
    return PathMessage(
        message, stored.token_count, stored.message_hash, stored.turn_index, stored.message_id, stored.reasoning
    )


def _build_path(
    stored: Sequence[StoredMessage], chat: ChatRequest, *, send_reasoning: bool, upstream_holds: bool
) -> list[PathMessage]:
    """Return stored messages as they go out again, with the reasoning that their upstream wants back.

    Args:
        stored: The messages before the client's own.
        chat: The request, whose dialect the reasoning must have come in.
        send_reasoning: Whether reasoning goes back after its tool loop has ended, too.
        upstream_holds: Whether the upstream itself has the messages, and their reasoning.
    """
    path = [outgoing(message) for message in stored]
    messages = [path_message.message for path_message in path]
    begin = len(path) if upstream_holds else 0 if send_reasoning else find_open_loop(messages, chat.messages)
    form = chat.dialect.name
    return [_add_reasoning(message, form if n >= begin else None) for n, message in enumerate(path)]


def _add_reasoning(message: PathMessage, form: Form | None) -> PathMessage:
    """Return a message with its reasoning in this form, or (None) without any."""
    plain = message.message if form == "messages" else drop_thought_parts(message.message)
    record = select_form(message.reasoning, form) if form is not None else None
    if record is None or form is None:
        return message._replace(message=plain, reasoning=None)
    return message._replace(message=restore(plain, record, form), reasoning=record)


def _calls(stored: Any) -> dict[str, Any]:
    """Tool calls, or the old `function_call`, which has no id."""
    first = stored[0] if isinstance(stored, list) and len(stored) == 1 else None
    if isinstance(first, Mapping) and "id" not in first and "function" in first:
        return {"function_call": first["function"]}
    return {"tool_calls": stored}


def weave(
    canvas: Canvas,
    edits: Sequence[Edit],
    *,
    lead: int = 0,
    history: Sequence[Mapping[str, Any]] = (),
    held: int = 0,
) -> list[Insertion]:
    """The insertions that turn the client's body into the compiled one.

    `history` goes behind the client's first `lead` messages, unless the upstream puts so many there itself (`held`, where
    nothing can be changed); `edits` count along the list with them in it.
    """
    supplied = [dict(each) for each in history]
    between = held or len(supplied)
    insertions: list[Insertion] = []
    first: list[Mapping[str, Any]] = []
    for edit in edits:
        index = edit.index if isinstance(edit, InsertMessage) else edit.message_index
        inside = index - lead
        behind = index if index < lead else index - between
        if isinstance(edit, InsertMessage):
            message = {"role": edit.role, "content": edit.text}
            if 0 <= inside <= len(supplied):
                # Between the client's and the supplied ones, in one insertion with these: the commas are its own.
                first.append(message) if inside == 0 else supplied.insert(inside, message)
            else:
                insertions += canvas.insert(behind, [message])
        elif 0 <= inside < between:
            if supplied:
                _edit_message(supplied[inside], edit)
        elif isinstance(edit, Prepend):
            insertions += canvas.prepend(behind, edit.text)
        else:
            insertions += canvas.append(behind, edit.text)
    if first or supplied:
        insertions[:0] = canvas.insert(lead, [*first, *supplied])
    return insertions


def _edit_message(message: dict[str, Any], edit: Prepend | AppendTo) -> None:
    content = message.get("content")
    before = isinstance(edit, Prepend)
    if isinstance(content, list):
        part = {"type": "text", "text": edit.text}
        message["content"] = [part, *content] if before else [*content, part]
    else:
        text = content if isinstance(content, str) else ""
        message["content"] = edit.text + text if before else text + edit.text


# --- what the user tells memory to do ------------------------------------------------------------------------------------
#
# In the newest message, in the user's own words. A feature does it (`features/commands`), before the prompt is compiled.

LEFT_CHARS = 12
"""Characters beside "don't remember this" in a message that says nothing else: then the turn before it is meant, too."""


class Obeyed(Struct, frozen=True):
    """What became of a message's commands. `told`: as `CompileRequest.deeds` has it; `account`: for the call's explanation;
    `changed`: memory is not as it was before. `alone`: the message says nothing but commands, so that
    nothing need be looked for. `is_ignored`: another speaker said them."""

    told: tuple[Deed, ...] = ()
    alone: bool = False
    is_ignored: bool = False
    changed: bool = False
    account: tuple[dict[str, Any], ...] = ()


NOTHING_TOLD = Obeyed()
IGNORED = Obeyed(is_ignored=True)
FAILED = Obeyed(
    (
        Deed(
            "Mneme could not do now what the user asks of memory in this message. Say so, and that it can be asked for again."
        ),
    )
)


def told(chat: ChatRequest) -> tuple[Command, ...]:
    """The commands in the user's newest message: in the user's own words, where it is the last thing said."""
    return tuple(each for each in heard_in(chat) if each.plain)


def heard_in(chat: ChatRequest) -> tuple[Command, ...]:
    """These, and those that may be none: said beside something else."""
    text = newest(chat)
    return commands(text) if text is not None else ()


def ordered(chat: ChatRequest) -> bool:
    """Whether the newest message tells memory to forget. What it corrects may be anything: of that nothing is said."""
    return bool(_orders(chat)) and not is_another_speaker(chat)


def find_newest_name(chat: ChatRequest) -> str | None:
    """Return the speaker's name on the newest user message; None without one."""
    last = chat.transcript.last_user()
    return _read_name(chat.messages[last]) if last is not None else None


def is_another_speaker(
    chat: ChatRequest, stored_names: Collection[str | None] = (), own_names: Collection[str] = ()
) -> bool:
    """Return whether the newest user message is another named speaker's, or a bot's, and not the user's.

    Args:
        chat: The request.
        stored_names: The names on the session's stored user messages (None: messages without a name).
        own_names: The names by which the user is known.
    """
    name = find_newest_name(chat)
    if name is None:
        return False
    roles = chat.transcript.roles
    names = [_read_name(message) for role, message in zip(roles, chat.messages, strict=True) if role == "user"]
    return name in SessionSpeakers((*stored_names, *names), own_names).find_other_speakers()


def _read_name(message: Mapping[str, Any]) -> str | None:
    name = message.get("name")
    return name if isinstance(name, str) and name else None


def newest(chat: ChatRequest) -> str | None:
    """What the user has just said; None: the last thing said was something else."""
    last = chat.transcript.last_user()
    if last is None or chat.transcript.mid_turn():
        return None
    return strip_injected(text_of(chat.messages[last]))


def _orders(chat: ChatRequest) -> list[Command]:
    """The commands in the newest message that tell memory to forget."""
    return [each for each in told(chat) if each.kind == "forget"]


def private_from(chat: ChatRequest, obeyed: Obeyed) -> int | None:
    """From which message on the request is not to be found later: the user asks there not to keep it, or that something be
    forgotten, and of that the model was told something. None: it may be."""
    orders = _orders(chat) if not obeyed.is_ignored else []
    if any(each.scope == "this" for each in orders) or (orders and obeyed.told):
        return chat.transcript.last_user()
    return None


def without_orders(chat: ChatRequest) -> Mapping[str, Any] | None:
    """The newest message without its sentences to forget something, to be kept and learned from like any; None: nothing else is
    said in it, or the user asks not to keep it."""
    text, orders = newest(chat), _orders(chat)
    last = chat.transcript.last_user()
    message = chat.messages[last] if last is not None else None
    if text is None or not orders or any(each.scope == "this" for each in orders):
        return None
    rest = beside(text, orders)
    if len(rest) <= LEFT_CHARS or not isinstance(message, Mapping) or not isinstance(message.get("content"), str):
        return None
    return {**message, "content": rest}


def beside(text: str, orders: Sequence[Command]) -> str:
    """What a message says beside these commands."""
    rest, done = "", 0
    for each in orders:
        start, end = each.span
        rest, done = rest + text[done:start], max(done, end)
    return (rest + text[done:]).strip(" .,;:!?。！？\n")


class Obeys(Protocol):
    """Does what users tell memory to do."""

    async def ready(self, chat: ChatRequest) -> None:
        """Read the rules of the message's language, where it is the first."""

    def concerned(self, chat: ChatRequest) -> bool:
        """Whether there may be something to do."""

    async def obey(self, identity: Identity, chat: ChatRequest, place: Place, now: datetime, *, writes: bool) -> Obeyed:
        """Do what the newest message asks of memory, once. `writes`: whether memory may be changed. Raises nothing."""


# --- the request ---------------------------------------------------------------------------------------------------------

KNOWN_MEMBERS = 10_000
"""Users whose spaces are kept at hand: some 2 MB."""


class Prepared(Struct, frozen=True):
    """A request that is ready to go out, and how its context was compiled."""

    body: bytes
    compilation: Compilation

    @property
    def facts(self) -> CompileFacts:
        compiled = self.compilation
        return CompileFacts(compiled.audit, compiled.eta)


class ReadsCards(Protocol):
    """Reads the cards that messages ask for."""

    def begin(
        self, tenant: UUID, chat: ChatRequest, place: Place, deadline_s: float | None = None
    ) -> AskedCards | None:
        """What the last message asks for, waited for until `deadline_s` seconds from now (None: as long as it takes); None: it
        asks for nothing, or stands where nothing was shown yet."""


class Preparer:
    """Looks for what came before, reconciles and compiles, in that order."""

    def __init__(
        self,
        store: TurnStore,
        compiler: Compiler,
        knower: Knows | None = None,
        cards: ReadsCards | None = None,
        indexes: Indexes | None = None,
    ) -> None:
        """`knower`: None where nothing can be known beside memory; `cards`: None where none are looked for. `indexes`: what
        became of them is read with the place; None: apart from it."""
        self._indexes = indexes
        self._spaces: dict[UUID, tuple[UUID, ...]] = {}
        """By user those whose indexes are asked for with the next request's place. (Whether they may be read, that says.)"""
        self._store = store
        self._compiler = compiler
        self._knower = knower
        self._cards = cards

    async def replay(self, identity: Identity, chat: ChatRequest) -> EarlierAnswer | None:
        """What came of the request's Idempotency-Key before. Raises StoreUnavailable."""
        key = repeat_key(identity, chat.body)
        earlier = await self._store.idempotent(identity.tenant_id, identity.user_id, key) if key is not None else None
        return EarlierAnswer(body_of(earlier), earlier.session_id, earlier.answered) if earlier is not None else None

    async def place(
        self,
        identity: Identity,
        chat: ChatRequest,
        switches: Switches,
        now: datetime,
        index: IndexAsk = NO_INDEX,
        spaces: SpacesAsk = NO_SPACES,
    ) -> Place:
        """Where the request stands. `index`, `spaces`: what of the user's index, and of spaces', is asked with it. Raises
        NotFound (another user's session), StoreUnavailable."""
        if chat.upstream_holds:
            place = await reconcile_held(self._store, identity, chat.transcript, chat.follows, now, index, spaces)
        else:
            place = await reconcile(
                self._store, identity, chat.messages, chat.transcript, switches.history, now, index, spaces
            )
        if not place.spaces:
            return place
        shared = _build_shared_scopes(identity.tenant_id, place.spaces, place.retrieval_session, place.visible_from)
        return replace(place, shared=shared)

    def late(self, identity: Identity) -> None:
        """The request is at its deadline."""
        if self._indexes is not None and not identity.confined:
            self._indexes.late(identity.user_id)

    async def _placed(self, identity: Identity, chat: ChatRequest, switches: Switches, now: datetime) -> Place:
        """The same, with the user's index where the server has one."""
        indexes, user = self._indexes, identity.user_id
        if indexes is None or identity.confined:
            return await self.place(identity, chat, switches, now)
        held = indexes.held(user)
        ask, spaces_held = indexes.ask_spaces(self._spaces.get(user, ()))
        index = indexes.ask(held) if held is not None else NO_INDEX
        place = await self.place(identity, chat, switches, now, index, ask)
        self._spaces.pop(user, None)
        if place.spaces:
            self._spaces[user] = tuple(each.space_id for each in place.spaces)
            if len(self._spaces) > KNOWN_MEMBERS:
                del self._spaces[next(iter(self._spaces))]
        if place.shared:
            reads = {each.space_id: _current(spaces_held.get(each.space_id), each.read) for each in place.spaces}
            place = replace(place, shared=tuple(each._replace(fresh=reads.get(each.space_id)) for each in place.shared))
        read = place.recognised.index if place.recognised is not None else None
        return replace(place, fresh=CurrentIndex(held, read)) if held is not None and read is not None else place

    async def find(
        self, identity: Identity, chat: ChatRequest, switches: Switches, now: datetime, deadline_s: float | None = None
    ) -> tuple[Place, Inquiry | None]:
        """Where the request stands (`place`), and what is being found out of the things that it names, within `deadline_s`
        seconds: both at once, unless only the place tells what was said before."""
        who = Who(identity.tenant_id, None if identity.confined else identity.user_id)
        # In a tool loop nothing new is said; what there was to know stands in the prompt.
        if self._knower is None or self._knower.idle(who) or chat.transcript.mid_turn():
            return await self._placed(identity, chat, switches, now), None
        text, began = query_of(chat.messages), time.monotonic()
        if chat.upstream_holds or is_server_managed(chat.transcript, identity, switches.history):
            place = await self._placed(identity, chat, switches, now)
            recent = _recent_of([*(outgoing(each).message for each in place.path[-RECENT:]), *chat.messages])
            left_s = max(0.0, deadline_s + began - time.monotonic()) if deadline_s is not None else None
            return place, await self._knower.inquire(who, text, recent, now, left_s)
        asking = self._knower.inquiring(who, text, _recent_of(chat.messages), now, deadline_s)
        try:
            return await self._placed(identity, chat, switches, now), await asking
        finally:
            asking.cancel()  # where it is not over, the place was not found

    async def compile(
        self,
        identity: Identity,
        chat: ChatRequest,
        place: Place,
        target: Target,
        now: datetime,
        *,
        search: bool = True,
        profile: str = "auto",
        price: Price | None = None,
        learns: bool = False,
        inquiry: Inquiry | None = None,
        deadline_s: float | None = None,
        part: CallPart | None = None,
        obeyed: Obeyed = NOTHING_TOLD,
    ) -> Prepared:
        """The context and the body with it; without `search`, of what the place already holds, and what is known by now.
        `profile`: of `score.PROFILE_NAMES`. `price`: None: as the server has it. `learns`: what the user says next will be
        learned from. `deadline_s`: seconds for which cards are waited for. `part`: what an addon makes of the call.
        `obeyed`: what became of the message's commands. Raises StoreUnavailable, Unavailable."""
        request = replace(
            _request(identity, chat, place, target, now),
            profile=profile,
            price=price,
            learns=learns,
            inquiry=inquiry,
            deeds=obeyed.told,
            cards=self._cards.begin(identity.tenant_id, chat, place, deadline_s) if search and self._cards else None,
        )
        if part is not None:
            schemas = [*request.schemas, *part.schemas]
            request = replace(request, costs=part.costs, schemas=schemas, window=part.window)
        looked = search and not obeyed.alone
        compiled = await self._compiler.compile(request if looked else replace(request, search=False))
        if part is not None:
            compiled = explaining(compiled, part.name, part.explained)
        if obeyed.account:
            compiled = explaining(compiled, "commands", list(obeyed.account))
        added = part.insertions if part is not None else ()
        return Prepared(build_body(chat, compiled, place, target.model_alias, added), compiled)


def _current(held: HeldIndex | None, read: IndexRead | None) -> CurrentIndex | None:
    return CurrentIndex(held, read) if held is not None and read is not None else None


def _build_shared_scopes(
    tenant: UUID, spaces: Sequence[SharedRead], session: UUID | None, visible_from: int
) -> tuple[SharedScope, ...]:
    """What a request asks of the spaces that its user may read."""
    # What of this session was said in a space stands in the prompt already, while all of the session does.
    whole = session if visible_from <= 1 else None
    return tuple(SharedScope(each.space_id, each.name, said_session(tenant, each.space_id, whole)) for each in spaces)


def said_session(tenant: UUID, space: UUID, session: UUID | None) -> UUID | None:
    """Where a space keeps what is said to it in this session of a user's."""
    return ids.session_id(tenant, space, said_in(session)) if session is not None else None


def said_in(session: UUID) -> str:
    """How a space calls it. (Not by the session's id alone, by which the user's own is found.)"""
    return f"said in {session}"


def explaining(compiled: Compilation, name: str, explained: object) -> Compilation:
    """With what else is told of it: by an addon of this name, or of commands."""
    return replace(compiled, audit=Explained({**compiled.audit, name: explained}))


def build_body(
    chat: ChatRequest, compiled: Compilation, place: Place, model: str | None, added: Sequence[Insertion] = ()
) -> bytes:
    """Return the body that goes upstream. `model`: another name for the model; `added`: what an addon puts into it."""
    insertions = weave(
        chat.dialect.canvas(chat),
        compiled.edits,
        lead=compiled.lead,
        history=compiled.history,
        held=len(place.path) if place.upstream_holds else 0,
    )
    # A block goes before what is put in place of the text behind it.
    return unwoven(chat, model, [*insertions, *added])


def unwoven(chat: ChatRequest, model: str | None, added: Sequence[Insertion]) -> bytes:
    """The body without memory: with what an addon puts into it."""
    insertions = [*added, *renamed(chat, model)]
    return splice(chat.body, insertions) if insertions else chat.body


def _request(identity: Identity, chat: ChatRequest, place: Place, target: Target, now: datetime) -> CompileRequest:
    request = CompileRequest(
        scope=Scope(
            tenant_id=identity.tenant_id,
            user_id=place.user_id,
            confine=place.retrieval_session if identity.confined else None,
            session=place.retrieval_session,
            visible_from=place.visible_from,
            ancestors=place.ancestors,
            fresh=place.fresh,
            shared=() if identity.confined or place.user_id != identity.user_id else place.shared,
        ),
        session_id=place.session_id,
        new_session=place.how == "new",
        messages=chat.messages,
        transcript=chat.transcript,
        model=target.model_alias or chat.model,
        now=at_home(now, place.standing),  # "yesterday" is the user's
        placement=target.placement,
        answer_limit=chat.answer_limit,
        has_tools=chat.has_tools,
        schemas=chat.schemas,
        path=_build_path(place.path, chat, send_reasoning=target.send_reasoning, upstream_holds=place.upstream_holds),
        path_complete=place.path_complete,
        server_managed=place.server_managed,
        start_chain=place.start_chain,
        standing=place.standing,
    )
    if place.upstream_holds:
        request = over_held(request, place)
    found = place.recognised
    if found is None or not found.known:
        return request
    request = replace(
        request,
        new_session=found.tip_message_id is None,
        summary=found.summary_text,
        summary_tokens=found.summary_token_count,
        block_epoch=found.block_epoch,
    )
    if request.server_managed and not SYSTEM_ROLES & set(chat.transcript.roles):
        request = replace(request, system_prompt=found.system_prompt, system_prompt_tokens=found.system_prompt_tokens)
    if place.how == "branch":
        return request  # its blocks are another session's
    blocks = live_blocks(found)
    gone = (found.gone_items & shown(blocks)) | outdated(blocks, place.standing)
    return replace(request, blocks=blocks, gone=gone)


def live_blocks(found: Recognised) -> list[Block]:
    """The memory blocks that stand in a session's prompts."""
    return [
        Block(b.chain_hash, b.message_hash, b.message_id, b.text, b.item_ids, b.token_count, b.item_spaces)
        for b in found.blocks
    ]


def _recent_of(messages: Sequence[Mapping[str, Any]]) -> list[EarlierMessage]:
    """The last messages before the question, oldest first."""
    asked = next((i for i in range(len(messages) - 1, -1, -1) if messages[i].get("role") == "user"), 0)
    before = ((str(message.get("role") or ""), answer_text(message)) for message in messages[:asked])
    return [EarlierMessage(role, text) for role, text in before if text and role not in SYSTEM_ROLES][-RECENT:]
