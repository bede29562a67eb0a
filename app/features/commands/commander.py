"""What the user tells memory to do, in the newest message's own words, done before the prompt is compiled, so that the model
can say truthfully what became of it.

    forget    what clearly is meant is hidden (`store`); unclear: the model asks; too much, or everything: it asks
              for confirmation, which the next message gives
    correct   what is stated outright takes the place of what was said; "it's ..." only where the answer before quoted a
              memory to the user's question about themselves. Else it may be about anything: nothing is done, nothing is said
    stop      the standing wish that asks for something is taken back; `allow`: the one that forbids something. Where no wish
              speaks of it, it was plain talk: nothing is done, nothing is said
    recall    the prompt says all that is known of the user
    remember  is learned with the turn (app/memory/extract.py)

What the model is told quotes nothing that is to be forgotten: the block that says it stays in the conversation.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, NamedTuple
from uuid import UUID

from msgspec import Struct, field
from msgspec.structs import replace

from app.context.request import NAMED, Deed
from app.context.transcript import answer_text
from app.errors import MnemeError, StoreUnavailable
from app.features.commands.grammar import (
    WITHDRAWS,
    CommandTarget,
    StoredMemory,
    aim_of,
    commands,
    matched,
    may_say,
    of_self,
    quotes,
    says,
    says_all,
    taken_back,
    value_keys,
)
from app.features.commands.store import BRIEF, NEAREST, CommandOutcome, CommandStore, Doing, Done, HiddenMemory, Message
from app.gateway.dialects.base import ChatRequest
from app.gateway.identify import Identity
from app.gateway.prepare import (
    FAILED,
    IGNORED,
    LEFT_CHARS,
    NOTHING_TOLD,
    Obeyed,
    beside,
    find_newest_name,
    heard_in,
    is_another_speaker,
    newest,
    told,
)
from app.gateway.reconcile import Place, question_chain
from app.languages import all_of, heard, language, language_of
from app.memory.candidate import MemoryCandidate, SourceExchange, Triple
from app.memory.claims import AskedMemory, reply_to
from app.memory.commands import Command
from app.memory.extract import extract
from app.memory.text import content_hash, normalise, strip_injected
from app.metrics import Metrics
from app.providers.embeddings import Embedder
from app.store import ids
from app.store.memories import MemoryText
from app.store.validation import Validation

log = logging.getLogger("mneme.commands")

WITHIN_S = 5.0
"""Seconds that a request waits for a command: a message in a thousand has one. Forgetting 1,000 items takes some 2 s."""

LOOK_S = 1.0
"""Seconds more, where it could not be done, for a look whether another request did it: two queries by an index."""

RETRIED_WITHIN = timedelta(hours=1)
"""How long a message of a conversation that was never stored may be a retry: as `agent_data.recognise` has it."""

CONFIRMED_WITHIN = timedelta(hours=1)
"""How long "yes" confirms what was asked."""

NEAR = 0.4
"""Cosine of the command's words from which a memory is one that the user may mean, to be asked about; never to be forgotten for
it alone."""

FEW = 3
"""Messages with a word up to which it stands for what they say: "narcolepsy", not "meeting"."""

MAX_YES_CHARS = 80
"""Characters of a message that confirms."""

SAMPLE_CHARS = 200
"""Of a message, characters that are enough to have the rules of its language read."""

_QUESTION = re.compile(r"[^.!?。！？\n]*[?？]")
_LAST_SENTENCE = re.compile(r"[^.!?。！？\n]+[.!。！\s]*$")

_FORGOTTEN = (
    "Mneme has just forgotten what the user asks to forget in this message ({count}); it can be undone on the user's page of "
    "Mneme. Say briefly that it is forgotten, without repeating it{rest}."
)
_REST = ", and that mentions of it in other words may remain in older conversations"
_NOT_KEPT = "This message and its answer are not remembered, as the user asks{count}. Say so briefly."
_UNDONE = "What the user asks of memory in this message was done, and that was undone since. Nothing else was done."
_WHICH = "The user asks to forget something, and it is not clear what: nothing was forgotten. Ask which is meant{candidates}."
_NOTHING = "Mneme finds nothing of what the user asks to forget in this message: nothing was forgotten. Say so briefly."
_BESIDE = (
    "The user may ask Mneme in this message to forget something, beside something else: nothing was forgotten. If they mean "
    "it, tell them to ask for it in a message that says nothing else."
)
_WHAT_ELSE = (
    "The user corrects something, and it is not clear what: nothing was changed. Ask what is wrong, and what is so."
)
_CORRECTED = "Mneme has just changed what it remembers as the user says in this message. Confirm it briefly."
_TAKEN_BACK = (
    "The user takes a standing wish back in this message: Mneme has just dropped it ({count}), do not follow it any more. It "
    "can be undone on the user's page of Mneme."
)
_WHICH_WISH = (
    "The user seems to take back a standing wish in this message, or a part of one ({candidates}): nothing was changed. Ask "
    "what is to go and what is to stay."
)
_CONFIRM = (
    "What the user asks to forget in this message is {what}: nothing was forgotten yet. Ask for confirmation that it is to be "
    "forgotten; it is done when the next message says yes."
)
_BEFORE = "what they were asked to confirm before"
_READ_ONLY = (
    "Memory is read-only for this conversation: what the user asks of it in this message could not be done. Say so."
)


def confirms(text: str) -> bool:
    """Whether a message says yes, and nothing else."""
    return len(text) <= MAX_YES_CHARS and all_of("confirms").fullmatch(text.strip()) is not None


def asks_leave(answer: str) -> bool:
    """Whether an answer of the assistant's ends by asking whether it may forget: yes to another question is no leave."""
    questions = _QUESTION.findall(answer)
    last = questions[-1] if questions else "".join(_LAST_SENTENCE.findall(answer))
    return all_of("asks_leave").search(last) is not None


class _Meant(NamedTuple):
    """What a command is about. `candidates`: what it may be about, where it is not clear; `whole`: the messages are all that
    say it, in so many words; `sure`: it is done unasked."""

    memories: Sequence[UUID] = ()
    messages: Sequence[Message] = ()
    candidates: Sequence[tuple[UUID, str]] = ()
    whole: bool = True
    sure: bool = True


class _Put(NamedTuple):
    """What the user said right before this message, and what the assistant answered."""

    message_hash: bytes
    said: str
    answer: str


class _Turn(Struct):
    """What the commands of one message are done in."""

    doing: Doing
    identity: Identity
    chat: ChatRequest
    place: Place
    text: str
    chain: bytes
    now: datetime
    deeds: list[Deed] = field(default_factory=list)
    account: list[dict[str, Any]] = field(default_factory=list)
    changed: bool = False

    @property
    def session(self) -> UUID:
        return self.place.retrieval_session or self.place.session_id

    @property
    def message_hash(self) -> bytes | None:
        last = self.chat.transcript.last_user()
        return self.chat.transcript.hashes[last] if last is not None else None

    def mark(self, n: int) -> bytes:
        return sha256(b"command %d\0" % n + self.chain).digest()

    async def earlier(self, n: int) -> Done | None:
        """What was done before. Strangers say the same words: of what nobody said only the session's own counts."""
        since = None if self.identity.confined else self.now - RETRIED_WITHIN
        return await self.doing.earlier(self.mark(n), self.session, since)

    def say(self, words: str, done: Done | None = None, items: Sequence[tuple[UUID, str]] = ()) -> None:
        self.deeds.append(Deed(words, tuple(items)))
        if done is not None:
            told = {"id": str(done.command_id), "kind": done.kind, "scope": done.scope, "outcome": done.outcome}
            self.account.append(told | {"items": len(done.items)})


FORGET_MOST = 20
"""Most items (memories and messages) that a command in a chat (`forget that …`) hides without asking first: more than a name
or a topic brings up by itself."""


class Commander(Struct):
    """`count`: tokens of o200k. `most`: items that one command may hide without asking (`FORGET_MOST`). `unwelcome`:
    says of a text that it must not be kept."""

    store: CommandStore
    validation: Validation
    embedder: Embedder
    count: Callable[[str], int]
    metrics: Metrics
    most: int = FORGET_MOST
    unwelcome: Callable[[str], bool] = lambda _: False
    spoken: set[str | None] = field(default_factory=set)

    async def ready(self, chat: ChatRequest) -> None:
        """Read the rules of the message's language, where it is the first: some 0.2 s, for which other requests do not wait."""
        text = newest(chat)
        code = language_of(text) if text is not None else None
        if text is not None and code not in self.spoken:
            await asyncio.to_thread(_read_rules, text)
            self.spoken.add(code)

    def concerned(self, chat: ChatRequest) -> bool:
        """Whether there may be something to do: a look at the words, of a message that says nothing of the kind some 20 µs."""
        text = newest(chat)
        return text is not None and (confirms(text) or bool(commands(text)))

    async def obey(self, identity: Identity, chat: ChatRequest, place: Place, now: datetime, *, writes: bool) -> Obeyed:
        """Do what the newest message asks of memory, once. `writes`: whether memory may be changed. Raises nothing."""
        if await self._is_another_speaker(identity, chat, place):
            return IGNORED
        wanted, text = told(chat), newest(chat) or ""
        alone = bool(wanted) and not any(each.kind == "recall" for each in wanted) and heard(beside(text, wanted)).talk
        for each in wanted:
            if each.kind not in _DONE_BY:  # in the prompt, or with the turn
                self.metrics.commanded(each.kind, "heard")
        orders = [each for each in wanted if each.kind in _DONE_BY]
        forgets = any(each.kind == "forget" for each in orders)
        if orders and not writes:
            self.metrics.commanded(orders[0].kind, "read_only")
            return Obeyed((Deed(_READ_ONLY),) if forgets else (), alone=alone)
        if not orders and not (writes and confirms(text)):
            return Obeyed((Deed(_BESIDE),) if len(wanted) < len(heard_in(chat)) else (), alone=alone)
        try:
            async with asyncio.timeout(WITHIN_S):
                try:
                    obeyed = await self._obey(identity, chat, place, orders, text, now)
                except StoreUnavailable:  # two waited for each other, or a connection was lost: nothing was done
                    obeyed = await self._obey(identity, chat, place, orders, text, now)
                return replace(obeyed, alone=alone and len(obeyed.told) >= len(orders))
        except Exception as error:  # boundary: a command that fails must not keep the request from its answer
            if (done := await self._by_another(identity, chat, place, orders, text, now)) is not None:
                return replace(done, alone=alone)
            self.metrics.commanded(orders[0].kind if orders else "forget", "failed")
            expected = isinstance(error, MnemeError | TimeoutError)
            log.warning(
                "a command could not be done",
                extra={"error": type(error).__name__},
                exc_info=None if expected else error,
            )
            return replace(FAILED if forgets or not orders else NOTHING_TOLD, alone=alone)

    async def _is_another_speaker(self, identity: Identity, chat: ChatRequest, place: Place) -> bool:
        """Return whether the newest message is not the user's; without the database, as far as the request itself shows."""
        if find_newest_name(chat) is None:
            return False
        session = place.retrieval_session or place.session_id
        doing = self.store.doing(identity.tenant_id, place.user_id, session, confined=identity.confined, alone=False)
        try:
            async with asyncio.timeout(LOOK_S), doing as lookup:
                names, own_names = await lookup.read_speakers(session)
        except (MnemeError, TimeoutError):
            names, own_names = [], []
        return is_another_speaker(chat, names, own_names)

    async def _obey(
        self, identity: Identity, chat: ChatRequest, place: Place, orders: Sequence[Command], text: str, now: datetime
    ) -> Obeyed:
        session = place.retrieval_session or place.session_id
        near = {each.about: await self._vector(each.about) for each in orders if each.kind == "forget" and each.about}
        async with self.store.doing(identity.tenant_id, place.user_id, session, confined=identity.confined) as doing:
            turn = _Turn(doing, identity, chat, place, text, question_chain(place, chat.transcript), now)
            if not orders:
                await self._confirmed(turn)
            for n, order in enumerate(orders):
                await _DONE_BY[order.kind](self, turn, n, order, near)
        return Obeyed(tuple(turn.deeds), changed=turn.changed, account=tuple(turn.account))

    async def _by_another(
        self, identity: Identity, chat: ChatRequest, place: Place, orders: Sequence[Command], text: str, now: datetime
    ) -> Obeyed | None:
        """What another request did that said the very same; None: nobody did all of it, as far as can be seen."""
        session = place.retrieval_session or place.session_id
        look = self.store.doing(identity.tenant_id, place.user_id, session, confined=identity.confined, alone=False)
        try:
            async with asyncio.timeout(LOOK_S), look as doing:
                turn = _Turn(doing, identity, chat, place, text, question_chain(place, chat.transcript), now)
                for n in range(len(orders)):
                    before = await turn.earlier(n)
                    if before is None:
                        return None
                    self._again(turn, before)
        except (MnemeError, TimeoutError):
            return None
        # What was found before it was done is found anew.
        return Obeyed(tuple(turn.deeds), changed=True, account=tuple(turn.account)) if orders else None

    async def _vector(self, about: str) -> Any:
        """For asking what is meant; without, the user is asked openly."""
        if not self.embedder.dimensions:
            return None
        try:
            (vector,) = await self.embedder.embed([about])
        except MnemeError:
            return None
        return vector if vector.any() else None

    # --- forget -----------------------------------------------------------------------------------------------------------

    async def _forget(self, turn: _Turn, n: int, order: Command, near: dict[str, Any]) -> None:
        before = await turn.earlier(n)
        if before is not None and (not turn.place.new or before.outcome != "done"):
            self._again(turn, before)
            return
        candidates: Sequence[tuple[UUID, str]] = ()
        whole = sure = True
        if order.scope == "this":
            memories, messages = await self._this(turn, order)
            outcome: CommandOutcome = "done"
        elif order.scope == "everything":
            memories, messages = await turn.doing.everything()
            outcome = "confirm" if memories or messages else "done"
        else:
            memories, messages, candidates, whole, sure = await self._meant(turn, order, near.get(order.about))
            outcome = "done" if memories or messages else "ask"
            if (memories or messages) and (not sure or len(memories) + len(messages) > self.most):
                outcome = "confirm"
        if not memories and not messages and before is not None:
            self._again(turn, before)  # the first attempt did it, and was not stored
            return
        if outcome == "ask" and not candidates:
            self.metrics.commanded("forget", "nothing")
            turn.say(_NOTHING)
            return
        if outcome == "ask" and len(candidates) == 1:
            memories = [candidates[0][0]]
            messages, outcome = await turn.doing.said_by(memories), "confirm"
        items: tuple[HiddenMemory, ...] = ()
        if outcome == "done":
            items = await turn.doing.hide(memories, messages)
            turn.changed = turn.changed or bool(items)
            if before is not None and not before.undone:
                # What came since the first attempt goes with it.
                done = replace(before, items=(*before.items, *items))
                await turn.doing.confirmed(done.command_id, done.items)
                self._say_done(turn, done, whole=whole)
                return
        elif outcome == "confirm" and order.scope == "thing":
            items = (
                *(HiddenMemory(each, "memory") for each in memories),
                *(HiddenMemory(each.message_id, "message") for each in messages),
            )
        done = Done(ids.uuid7(turn.now), "forget", order.scope, outcome, items)
        await turn.doing.note(turn.session, turn.mark(n), turn.message_hash, done)
        if len(turn.text) > BRIEF:
            await turn.doing.hide_words(done.command_id, content_hash(turn.text))
        self.metrics.commanded("forget", outcome)
        if outcome == "confirm":
            count = _counted(len(memories) + len(messages))
            what = f"more than is forgotten unasked ({count})"
            if order.scope == "everything":
                what = f"everything that is known of the user ({count})"
            elif candidates:
                what = f"perhaps this: {NAMED}"
            elif not sure:
                what = f"perhaps what several messages say ({count})"
            turn.say(_CONFIRM.format(what=what), done, candidates)
        elif outcome == "ask":
            named = f", perhaps one of these: {NAMED}" if candidates else ""
            turn.say(_WHICH.format(candidates=named), done, candidates)
        else:
            self._say_done(turn, done, whole=whole)

    def _again(self, turn: _Turn, before: Done) -> None:
        """What was done before about this very message is told again."""
        self.metrics.commanded(before.kind, "again")
        if before.undone:
            turn.say(_UNDONE, before)
        elif before.outcome == "done" and before.kind == "correct":
            turn.say(_CORRECTED, before)
        elif before.outcome == "done" and before.kind in WITHDRAWS:
            turn.say(_TAKEN_BACK.format(count=_counted(len(before.items))), before)
        elif before.outcome == "done":
            self._say_done(turn, before)
        elif before.kind in WITHDRAWS:
            turn.say(_WHICH_WISH.format(candidates="named before"), before)
        elif before.kind == "correct":
            turn.say(_WHAT_ELSE, before)
        elif before.outcome == "confirm":
            turn.say(_CONFIRM.format(what=_BEFORE), before)
        else:
            turn.say(_WHICH.format(candidates=""), before)

    def _say_done(self, turn: _Turn, done: Done, *, whole: bool = False) -> None:
        """`whole`: all that says it is known to be forgotten; later nobody knows."""
        if done.scope == "this":
            count = f", nor is the turn before it ({_counted(len(done.items))})" if done.items else ""
            turn.say(_NOT_KEPT.format(count=count), done)
        else:
            rest = "" if whole or done.scope == "everything" else _REST
            turn.say(_FORGOTTEN.format(count=_counted(len(done.items)), rest=rest), done)

    async def _this(self, turn: _Turn, order: Command) -> tuple[Sequence[UUID], Sequence[Message]]:
        """A message that says nothing else means the turn before it; itself it is not kept in any case."""
        start, end = order.span
        if len((turn.text[:start] + turn.text[end:]).strip()) > LEFT_CHARS:
            return (), ()
        before = self._before(turn)
        return await turn.doing.turn(turn.session, before) if before is not None else ((), ())

    def _before(self, turn: _Turn) -> bytes | None:
        """The hash of the user's message before this one."""
        transcript, place = turn.chat.transcript, turn.place
        last = transcript.last_user() or 0
        for i in range(last - 1, -1, -1):
            if transcript.roles[i] == "user":
                return transcript.hashes[i]
        return next((each.message_hash for each in reversed(place.path) if each.role == "user"), None)

    def _asked(self, turn: _Turn) -> _Put | None:
        """The turn right before this message; None: something else stands between."""
        transcript, last = turn.chat.transcript, turn.chat.transcript.last_user() or 0
        sent = zip(transcript.roles[:last], transcript.hashes[:last], turn.chat.messages, strict=False)
        turn_messages = [(message.role, message.message_hash, message.content or "") for message in turn.place.path]
        turn_messages += [(role, hashed, answer_text(message)) for role, hashed, message in sent if hashed is not None]
        if [role for role, _, _ in turn_messages[-2:]] != ["user", "assistant"]:
            return None
        (_, hashed, asked), (_, _, answer) = turn_messages[-2:]
        return _Put(hashed, strip_injected(asked), answer) if hashed is not None else None

    async def _meant(self, turn: _Turn, order: Command, vector: Any) -> _Meant:
        """What clearly is meant, as memories and messages; else what may be."""
        aim = self._aim(turn, order)
        stored = await turn.doing.stored(aim.terms)
        found = matched(aim, stored)
        if found.unlike:
            return _Meant(
                candidates=[(each.memory_id, each.text) for each in found.memories if each.in_force][:NEAREST]
            )
        memories = [each.memory_id for each in found.memories]
        messages = {each.message_id: each for each in await turn.doing.said_by(memories)}
        keys = {value_keys(each) for each in found.memories}
        others = [each for each in stored if each.in_force and each.memory_id not in set(memories)]
        # Of more the user is asked in any case.
        for words in sorted(keys | {found.keys}, key=sorted)[: self.most + 1]:
            # What stays says it, too: the name alone tells nothing.
            shared = any(says(words, each.text) for each in others)
            for each in await turn.doing.messages(words):
                if says(words, each.text) and (not shared or says_all(aim, each.text)):
                    messages.setdefault(each.message_id, each)
        if memories or messages:
            return _Meant(memories, list(messages.values()), whole=frozenset() not in keys)
        return await self._untold(turn, aim) or _Meant(
            candidates=await turn.doing.near(vector, NEAR) if vector is not None else ()
        )

    async def _untold(self, turn: _Turn, aim: CommandTarget) -> _Meant | None:
        """What no memory says: messages that have all the words, and what was learned from those words."""
        said = [
            each
            for each in await turn.doing.messages(aim.spelled)
            if says_all(aim, each.text) and may_say(aim, each.text)
        ]
        if not said or (len(aim.words) < 2 and len(said) > FEW):
            return None
        learned = await turn.doing.learned_from([each.message_id for each in said])
        meant = [memory for memory, quotes in learned if says_all(aim, quotes)]
        return _Meant(meant, said, whole=False, sure=len(aim.words) > 1 or len(said) == 1)

    def _aim(self, turn: _Turn, order: Command) -> CommandTarget:
        found: list[Triple] = []
        for each in extract(SourceExchange(order.about, turn.now)):
            found += [each.triple] if each.triple is not None else []
            found += [Triple(e.subject, e.predicate or "", e.value) for e in each.ends if e.value]
        return aim_of(order.about, found, order.language)

    async def _confirmed(self, turn: _Turn) -> None:
        """The user says yes to what the message right before was asked about, and the answer to it was that question."""
        asked = self._asked(turn)
        if asked is None or not asks_leave(asked.answer):
            return
        pending = await turn.doing.pending(asked.message_hash, turn.now - CONFIRMED_WITHIN)
        if pending is None:
            return
        if pending.outcome == "done":  # said yes twice, or to what was done unasked
            self._again(turn, pending)
            return
        if pending.scope == "everything":
            memories, messages = await turn.doing.everything()
        else:
            memories = [each.id for each in pending.items if each.kind == "memory"]
            messages = await turn.doing.messages_of([each.id for each in pending.items if each.kind == "message"])
        items = await turn.doing.hide(memories, messages)
        done = replace(pending, outcome="done", items=items)
        await turn.doing.confirmed(pending.command_id, items)
        turn.changed = True
        self.metrics.commanded("forget", "confirmed")
        self._say_done(turn, done)

    # --- correct ----------------------------------------------------------------------------------------------------------

    async def _correct(self, turn: _Turn, n: int, order: Command, near: dict[str, Any]) -> None:
        before = await turn.earlier(n)
        if before is not None:
            self._again(turn, before)
            return
        found = turn.place.recognised
        blocks = found.blocks if found is not None else ()
        shown = blocks[-1].item_ids if blocks else ()
        lately = {each.memory_id: each for each in await turn.doing.said_lately(turn.session, shown)}
        for each in await turn.doing.stored(sorted(aim_of(_last_answer(turn), ()).names)):
            if each.in_force:
                lately.setdefault(each.memory_id, each)
        stated = self._stated(turn, order)
        changes = self._changes(turn, order, stated, list(lately.values()))
        if len(changes) == 1:
            await self._change(turn, n, *changes[0])
        elif changes and not stated:
            done = Done(ids.uuid7(turn.now), "correct", "thing", "ask")
            await turn.doing.note(turn.session, turn.mark(n), turn.message_hash, done)
            self.metrics.commanded("correct", "ask")
            turn.say(_WHAT_ELSE, done)

    # --- stop, allow ------------------------------------------------------------------------------------------------------

    async def _withdraw(self, turn: _Turn, n: int, order: Command, near: dict[str, Any]) -> None:
        before = await turn.earlier(n)
        if before is not None and (not turn.place.new or before.outcome != "done"):
            self._again(turn, before)
            return
        stored = await turn.doing.wishes(turn.now)
        found = taken_back(order.about, stored, order.language, allows=order.kind == "allow")
        if not found.wishes:
            if before is not None:
                self._again(turn, before)  # the first attempt did it, and was not stored
            return
        memories = [each.memory_id for each in found.wishes]
        outcome: CommandOutcome = "done" if found.clear else "ask"
        items = await turn.doing.end(memories) if found.clear else ()
        done = Done(ids.uuid7(turn.now), order.kind, order.scope, outcome, items)
        await turn.doing.note(turn.session, turn.mark(n), turn.message_hash, done)
        self.metrics.commanded(order.kind, outcome)
        turn.changed = turn.changed or found.clear
        if found.clear:
            turn.say(_TAKEN_BACK.format(count=_counted(len(items))), done)
        else:
            named = [(each.memory_id, each.text) for each in found.wishes]
            turn.say(_WHICH_WISH.format(candidates=NAMED), done, named)

    async def _change(self, turn: _Turn, n: int, old: StoredMemory, text: str, value: str | None) -> None:
        identity, user = turn.identity, turn.place.user_id
        ready = MemoryText(text, content_hash(text), self.count(text), await self._vector(text))
        heir = await self.validation.replace(
            turn.doing.connection, identity.tenant_id, user, old.memory_id, ready, value
        )
        if heir is None:
            return
        done = Done(ids.uuid7(turn.now), "correct", "thing", "done", (HiddenMemory(old.memory_id, "memory", "active"),))
        await turn.doing.note(turn.session, turn.mark(n), turn.message_hash, done, heir)
        turn.changed = True
        self.metrics.commanded("correct", "done")
        turn.say(_CORRECTED, done)

    def _stated(self, turn: _Turn, order: Command) -> dict[tuple[str, str], MemoryCandidate]:
        """What the correction states outright, by what it is about."""
        found = extract(SourceExchange(order.replacement, turn.now))
        return {(each.triple.subject, each.triple.predicate): each for each in found if each.triple is not None}

    def _changes(
        self,
        turn: _Turn,
        order: Command,
        stated: Mapping[tuple[str, str], MemoryCandidate],
        lately: Sequence[StoredMemory],
    ) -> list[tuple[StoredMemory, str, str | None]]:
        """What the correction sets right, and how it is right. Where nothing is stated outright, "it's 42" may be about
        anything: the answer before has to have quoted the memory, to a question of the user's about themselves."""
        right = language(order.language or "en").pattern("it_is").sub("", order.replacement, count=1)
        asked = None if stated else self._asked(turn)
        if asked is not None and not of_self(asked.said):
            asked = None
        found: list[tuple[StoredMemory, str, str | None]] = []
        for each in lately:
            own = stated.get((each.subject or "", each.predicate or ""))
            if own is not None and own.triple is not None:
                found.append((each, normalise(own.content), own.triple.value))
            elif asked is not None and quotes(each, asked.said, asked.answer):
                reply = reply_to(AskedMemory(each.text, each.value, each.predicate), f"No, {right}")
                if reply is not None and reply.text is not None:
                    found.append((each, normalise(reply.text), reply.value))
        found = [each for each in found if not self.unwelcome(each[1])]
        if order.about:
            aim = self._aim(turn, order)
            meant = {each.memory_id for each in matched(aim, [each for each, _, _ in found]).memories}
            found = [each for each in found if each[0].memory_id in meant] or found
        return found


_DONE_BY = {
    "forget": Commander._forget,
    "correct": Commander._correct,
    "stop": Commander._withdraw,
    "allow": Commander._withdraw,
}
"""What does a command, by its kind. The others are done elsewhere: in the prompt, or with the turn."""


def _read_rules(text: str) -> None:
    commands(text)
    extract(SourceExchange(text[:SAMPLE_CHARS], datetime.now(UTC)))


def _last_answer(turn: _Turn) -> str:
    for message in reversed(turn.chat.messages):
        if message.get("role") == "assistant":
            return answer_text(message)
    return next((each.content or "" for each in reversed(turn.place.path) if each.role == "assistant"), "")


def _counted(count: int) -> str:
    return f"{count} item" if count == 1 else f"{count} items"
