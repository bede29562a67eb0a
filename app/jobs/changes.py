"""Closes, doubts and withdraws the memories that the user's later words end or take back, within a learning job's effect.

what an exchange states is taken in ─> its signs of change (`app/memory/changes.py`)
    ├── an end:       memories that it names are closed, or doubted where it is unclear; a new value replaces the old one
    └── a retraction: what the session's last own messages taught is withdrawn; the right value replaces the wrong one
A replaced value is stated in the old words.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from app.languages import sentences
from app.memory.candidate import MemoryCandidate, Provenance, SourceExchange
from app.memory.changes import (
    MAX_CHARS,
    Retraction,
    StatedChange,
    StoredStatement,
    blank_span,
    find_changes,
    find_retraction,
    has_now_word,
    judge_change,
    list_ended_slots,
    list_search_patterns,
    restate,
    shares_words,
)
from app.memory.claims import single_valued
from app.memory.drafts import Draft
from app.memory.extract_clauses import own_word
from app.memory.speakers import SessionSpeakers
from app.memory.statements import is_own_throughout
from app.memory.text import normalise
from app.store.learning import RECENT_TURNS, Effect, HistoryEvent, SourceMessage

Extract = Callable[[SourceExchange], Awaitable[Sequence[MemoryCandidate]]]

_LATE = timedelta(minutes=1)
"""Time after its last message from which a job learns late; a turn's own job runs within seconds."""
_MOST_UNNAMED, _MOST_NAMED = 2, 50
"""The user's messages before a retraction that it may mean, without and with words that name what was wrong."""
_MOST_LATER = 200
"""Most later messages that are read for what they end; few sessions have as many."""


class Restatement(NamedTuple):
    """A statement with its new or right value, and the message that gave the value."""

    candidate: MemoryCandidate
    message: SourceMessage


def strip_taken_back(exchange: SourceExchange) -> SourceExchange:
    """Return the exchange without the words that take something back, and without the statement before them in the message."""
    retraction = find_retraction(exchange.user_text)
    if retraction is None or retraction.kind == "fix":  # "no, I meant …" is read with the words before it
        return exchange
    start, _ = _find_own_statement(exchange.user_text, retraction)
    return replace(exchange, user_text=blank_span(exchange.user_text, (start, retraction.span[1])))


async def select_own_messages(effect: Effect, rows: Sequence[Any]) -> list[Any]:
    """Return the rows of the user's own messages, without those of other named speakers.

    Args:
        effect: The transaction of the job's effect.
        rows: Messages with their `session_id` and the speaker's `name`.
    """
    sessions = {row["session_id"] for row in rows if row["name"]}
    if not sessions:
        return list(rows)
    labels_by_session: dict[UUID, dict[str, str | None]] = {}
    own_names = await effect.connection.fetchval(effect.sql["learning.own_names"], effect.user)
    for session in sessions:
        speakers = await effect.connection.fetch(effect.sql["learning.session_speakers"], effect.user, session)
        names = [speaker["name"] for speaker in speakers]
        labels_by_session[session] = SessionSpeakers(names, list(own_names or ())).find_other_speakers()
    return [row for row in rows if not row["name"] or row["name"] not in labels_by_session[row["session_id"]]]


class MemoryReviser(Struct, frozen=True):
    """The step of a learning job that revises memories. `extract`: the rules, which read the old words with their new value."""

    extract: Extract

    async def revise(
        self, effect: Effect, scope: UUID, session: UUID, exchanges: Sequence[tuple[SourceExchange, SourceMessage]]
    ) -> list[Restatement]:
        """Close, doubt and withdraw the memories that these exchanges end or take back; return what they state anew.

        Args:
            effect: The transaction of the job's effect.
            scope: The scope of the job's memories (`LearnJob.scope`).
            session: The exchanges' session.
            exchanges: The exchanges in order, with the user's own message of each.
        """
        restatements: list[Restatement] = []
        for exchange, message in exchanges:
            # In a message of several lines a retraction may concern the words beside it, which may be somebody else's.
            if own_word(exchange.user_text) and (retraction := find_retraction(exchange.user_text)) is not None:
                restatements += await self._take_back(effect, scope, session, exchange, message, retraction)
            restatements += await self.end(effect, scope, [(exchange, message)])
        return restatements

    async def end(
        self, effect: Effect, scope: UUID, exchanges: Sequence[tuple[SourceExchange, SourceMessage]]
    ) -> list[Restatement]:
        """Close or doubt the memories that these exchanges end; return what they state anew."""
        return [
            restatement
            for exchange, message in exchanges
            for change in find_changes(exchange.user_text)
            for restatement in await self._end(effect, scope, exchange, message, change)
        ]

    async def read_later(
        self, effect: Effect, confined: UUID | None, statements: Sequence[Draft], until: datetime
    ) -> list[tuple[SourceExchange, SourceMessage]]:
        """Return what the user said after these statements that may end one of them, where they are learned late.

        Imported conversations are learned in any order, so that what ends a statement may have been learned before it.

        Args:
            effect: The transaction of the job's effect.
            confined: The session of a job without a user, or None.
            statements: The statements that were just taken in.
            until: The time of the job's last message.
        """
        if effect.now - until < _LATE or not statements:
            return []
        patterns = {pattern for draft in statements for pattern in list_search_patterns(_name_whole(draft))}
        if any(
            draft.candidate.triple and draft.candidate.triple.predicate in list_ended_slots() for draft in statements
        ):
            patterns.add("%")
        rows = await effect.rows("changes.said_later", confined, until, sorted(patterns), MAX_CHARS, _MOST_LATER)
        return [
            (
                SourceExchange(row["content"], row["created_at"]),
                SourceMessage(row["message_id"], row["turn_index"], "user", row["content"], [], row["created_at"], {}),
            )
            for row in await select_own_messages(effect, rows)
            if find_changes(row["content"]) and (own_word(row["content"]) or is_own_throughout(row["content"]))
        ]

    async def _end(
        self, effect: Effect, scope: UUID, exchange: SourceExchange, message: SourceMessage, change: StatedChange
    ) -> list[Restatement]:
        patterns = list_search_patterns(change)
        if not patterns and not change.predicates:
            return []
        arguments = (scope, message.created_at, message.message_id, patterns, list(change.predicates))
        rows = await effect.rows("changes.in_force", *arguments)
        verdicts = {row["memory_id"]: judge_change(change, _read_statement(row)) for row in rows}
        closed = [row for row in rows if verdicts[row["memory_id"]] == "closes"]
        doubted = [memory for memory, verdict in verdicts.items() if verdict == "doubts"]
        await _close(effect, [row["memory_id"] for row in closed], message)
        await _doubt(effect, doubted, message)
        if not change.new:
            return await self._state_successor(closed, exchange, message)
        if not change.old:
            return []
        quotes = [quote for row in closed for quote in row["quotes"]]
        if change.follows:
            quotes = quotes or [change.lead + change.old]
            texts = [text for quote in quotes for text in await self._replace_value(quote, change.new, exchange)]
        else:
            texts = [text for quote in quotes if (text := restate(quote, change.old, change.new)) is not None]
        return await self._state_again(texts[:1], quotes, exchange, message)

    async def _state_successor(
        self, closed: Sequence[Any], exchange: SourceExchange, message: SourceMessage
    ) -> list[Restatement]:
        """Return what the message says to be so now, with the words of the memory that it replaces.

        "I take the tram now" alone is no answer to "How do I get to the office?".
        """
        if not closed:
            return []
        ended = closed[0]["content_text"]
        return [
            Restatement(replace(candidate, content=f"{candidate.content} (before: {ended})"), message)
            for candidate in await self._read(exchange.user_text, exchange)
            if candidate.kind in ("fact", "preference", "correction") and has_now_word(candidate.quote)
        ]

    async def _replace_value(self, quote: str, value: str, exchange: SourceExchange) -> list[str]:
        """Return the old words with another value, where they state the value of something that has only one."""
        triples = [candidate.triple for candidate in await self._read(quote, exchange)]
        return [
            quote.replace(triple.value, value)
            for triple in triples
            if triple is not None and triple.value in quote and single_valued(triple.predicate)
        ]

    async def _take_back(
        self,
        effect: Effect,
        scope: UUID,
        session: UUID,
        exchange: SourceExchange,
        message: SourceMessage,
        retraction: Retraction,
    ) -> list[Restatement]:
        _, before = _find_own_statement(exchange.user_text, retraction)
        if before:  # it is of words in the same message, from which nothing was learned
            right = restate(before, retraction.old, retraction.right, typo=retraction.typo)
            return await self._state_again([right] if right else [], [before], exchange, message)
        # Words that it names may have been said long before: "Just kidding about Leeds".
        first = 0 if retraction.old else message.turn_index - RECENT_TURNS
        most = _MOST_NAMED if retraction.old else _MOST_UNNAMED
        for row in await effect.rows("changes.said_before", scope, session, first, message.turn_index - 1, most):
            words, memories = row["content"], await effect.rows("changes.texts", list(row["memories"]))
            right = restate(words, retraction.old, retraction.right, typo=retraction.typo)
            if retraction.old and not shares_words(retraction.old, [words]):
                continue
            if right is None and retraction.kind == "fix":
                if not retraction.old:
                    return []  # a correction means the words just before it
                continue
            if right is None and not memories:
                continue
            stated = await self._state_again([right] if right else [], [words], exchange, message)
            if right is not None:
                restated = {normalise(candidate.content).casefold() for candidate in await self._read(right, exchange)}
                withdrawn = [
                    memory for memory in memories if normalise(memory["content_text"]).casefold() not in restated
                ]
            else:
                withdrawn = list(_select_named(memories, retraction))
            await _withdraw(effect, [memory["memory_id"] for memory in withdrawn], message)
            return stated
        return []

    async def _state_again(
        self, texts: Sequence[str], quotes: Sequence[str], exchange: SourceExchange, message: SourceMessage
    ) -> list[Restatement]:
        """Return what the old words say with the new value in them, and did not say before."""
        old = {candidate.content for text in quotes for candidate in await self._read(text, exchange)}
        candidates = [candidate for text in texts for candidate in await self._read(text, exchange)]
        quote = exchange.user_text
        return [
            Restatement(
                replace(
                    candidate,
                    kind=candidate.kind if candidate.triple is None else "correction",
                    provenance_type=Provenance.CORRECTION,
                    quote=quote,
                    span=(0, len(quote)),
                ),
                message,
            )
            for candidate in candidates
            if candidate.content not in old
        ]

    async def _read(self, text: str, exchange: SourceExchange) -> Sequence[MemoryCandidate]:
        return await self.extract(SourceExchange(text, exchange.now))


def _name_whole(draft: Draft) -> StatedChange:
    """Return a change that names a whole statement, to look for messages about it."""
    triple = draft.candidate.triple
    return StatedChange(triple.value if triple is not None else draft.text, (), "")


def _read_statement(row: Any) -> StoredStatement:
    return StoredStatement(
        row["kind"], row["content_text"], row["subject"], row["predicate"], row["value"], tuple(row["quotes"])
    )


def _select_named(rows: Sequence[Any], retraction: Retraction) -> Sequence[Any]:
    """Return the memories that the words of a retraction name ("I lied, I'm not a pilot"), or all where they name none."""
    words = f"{retraction.old} {retraction.right}".strip()
    chosen = [row for row in rows if words and shares_words(words, [row["content_text"], *row["quotes"]])]
    return chosen or rows


def _find_own_statement(text: str, retraction: Retraction) -> tuple[int, str]:
    """Return where the last statement before a retraction in the same message begins, and its words.

    Where there is none, return the retraction's place and no words.
    """
    start = retraction.span[0]
    before = [sentence for sentence in sentences(text[:start]) if not sentence.asked]
    if retraction.typo or not before or not text[:start].strip():
        return start, ""
    last = before[-1]
    words = text[last.start : last.end]
    return (last.start, words) if any(char.isalnum() for char in words) else (start, "")


async def _close(effect: Effect, memories: Sequence[UUID], message: SourceMessage) -> None:
    if memories:
        rows = await effect.rows("changes.close", list(memories), message.created_at, effect.now)
        await _record_events(
            effect, [row["memory_id"] for row in rows], "invalidated", {"reason": "ended"}, message, effect.now
        )


async def _withdraw(effect: Effect, memories: Sequence[UUID], message: SourceMessage) -> None:
    for memory in memories:
        await effect.run("lifecycle.deny", memory, effect.now, message.created_at)
    await _record_events(effect, memories, "invalidated", {"reason": "taken_back"}, message, effect.now)


async def _doubt(effect: Effect, memories: Sequence[UUID], message: SourceMessage) -> None:
    if memories:
        rows = await effect.rows("changes.doubt", list(memories), message.message_id, effect.now)
        await _record_events(
            effect, [row["memory_id"] for row in rows], "aging", {"status": "aging"}, message, effect.now
        )


async def _record_events(
    effect: Effect, memories: Sequence[UUID], event: str, after: dict[str, str], message: SourceMessage, now: datetime
) -> None:
    state: dict[str, Any] = {"status": "invalidated", "message_id": message.message_id} | after
    events = [HistoryEvent(memory, event, {"status": "active"}, state)._asdict() for memory in memories]
    if events:
        await effect.run("learning.tell", events, now)
