"""Cards taken from the results of configured tools (MNEME_CARD_TOOLS), as a part of the job that learns from a turn."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from app.clock import Clock
from app.errors import BadRequest
from app.features.cards.store import NewCard, attach
from app.sources import CardTool
from app.store.learning import Effect, SourceMessage
from app.store.queries import Queries
from app.store.sessions import SessionRef, line_of

if TYPE_CHECKING:
    from app.jobs.learn import LearnJob


from typing import Any, NamedTuple

import orjson

MAX_RESULT_CHARS = 256 * 1024
"""Longest result that is read, characters: a hundred of the seed's cards of 2 KB, and some more around them."""

MAX_TAKEN = 100
"""Most cards of one result: more is a data set, not what a screen shows."""

MAX_CARD_BYTES = 64 * 1024
"""Largest card, bytes of compact JSON, as through the API."""


class ExtractedCard(NamedTuple):
    """A card: its type and data, and its data as compact JSON."""

    kind: str
    data: dict[str, Any]
    text: str


def cards_of(result: str, tool: CardTool) -> list[ExtractedCard] | str:
    """The cards that a tool's result shows, or why there are none: the result itself, or each item of the list at `items`."""
    if len(result) > MAX_RESULT_CHARS:
        return f"it is longer than {MAX_RESULT_CHARS} characters"
    try:
        value = orjson.loads(result)
    except orjson.JSONDecodeError:
        return "it is no JSON"
    items = [value]
    if tool.items is not None:
        found = _at(value, tool.items.split("."))
        if not isinstance(found, list):
            return f"it has no list at {tool.items!r}"
        items = found
    if len(items) > MAX_TAKEN:
        return f"it has {len(items)} items, more than {MAX_TAKEN}"
    try:
        taken = [_card(each, tool) for each in items]
    except orjson.JSONEncodeError:
        return "it is nested too deep"
    if any(len(each.text.encode()) > MAX_CARD_BYTES for each in taken):
        return f"it has an item of more than {MAX_CARD_BYTES} bytes"
    return taken


def _card(item: Any, tool: CardTool) -> ExtractedCard:
    data = item if isinstance(item, dict) else {"value": item}
    if b"\\u0000" in orjson.dumps(data):  # raises for what is nested too deep, which what follows relies on
        data = _without_nul(data)
    title = _at(data, tool.title.split(".")) if tool.title is not None else None
    if isinstance(title, str | int | float) and "title" not in data:
        data = {"title": title, **data}
    return ExtractedCard(tool.type, data, orjson.dumps(data).decode())


def _at(value: Any, path: Sequence[str]) -> Any:
    """What stands at a path of members and places in lists; None: nothing."""
    for part in path:
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and part.isascii() and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value


def _without_nul(value: Any) -> Any:
    """As Postgres can keep it: U+0000 becomes U+FFFD."""
    if isinstance(value, str):
        return value.replace("\0", "\ufffd")
    if isinstance(value, list):
        return [_without_nul(each) for each in value]
    if isinstance(value, dict):
        return {_without_nul(key): _without_nul(each) for key, each in value.items()}
    return value


log = logging.getLogger(__name__)

RESULTS = frozenset({"tool", "function"})
"""Roles of messages that hold a tool's result."""

CALL_DISTANCE = 64
"""Messages that a result stands behind its call at most: as many calls as one answer makes, and their results."""


class CardExtractor:
    """Takes cards from the results of tools."""

    def __init__(self, sql: Queries, tools: Mapping[str, CardTool], count: Callable[[str], int], clock: Clock) -> None:
        """`tools`: by name. `count`: tokens of o200k."""
        self._sql = sql
        self._tools = tools
        self._count = count
        self._clock = clock

    async def note(self, job: LearnJob, effect: Effect, messages: Sequence[SourceMessage]) -> None:
        """Within the job's effect: the cards of the results among its messages, each with the answer that followed. A result
        that shows none is passed over, and said in the log."""
        results = {each.message_id: each for each in messages if each.role in RESULTS}
        if not results:
            return
        ref = SessionRef(job.user, job.session)
        line = await line_of(effect.connection, self._sql, job.tenant, ref)
        if line is None:
            return
        rows = await effect.connection.fetch(
            self._sql["cards.results"], job.tenant, job.user, *line, list(results), CALL_DISTANCE
        )
        answers = answers_to(messages)
        cards: dict[UUID, list[NewCard]] = {}
        for row in rows:
            tool = self._tools.get(row["tool"] or "")
            if tool is None:
                continue
            found = cards_of(results[row["message_id"]].content, tool)
            if isinstance(found, str):
                told = {"tool": row["tool"], "message_id": str(row["message_id"]), "reason": found}
                log.warning("a tool's result gives no cards", extra=told)
                continue
            cards.setdefault(answers[row["message_id"]], []).extend(
                await asyncio.to_thread(self._ready, found, row["message_id"], row["tool_call_id"])
            )
        try:
            await attach(effect.connection, self._sql, job.tenant, ref, cards)
        except BadRequest as error:
            log.warning("tool results give no cards", extra={"job_key": job.key, "reason": str(error)})

    def _ready(self, found: Sequence[ExtractedCard], result: UUID, call: str | None) -> list[NewCard]:
        now = self._clock.now()
        return [
            NewCard(each.kind, each.data, self._count(each.text), now, tool_call_id=call, result=result)
            for each in found
        ]


def answers_to(messages: Sequence[SourceMessage]) -> dict[UUID, UUID]:
    """By result of a tool, the answer that shows what came of it: the last one before the user speaks again; where there is
    none, the result itself."""
    answers: dict[UUID, UUID] = {}
    answer: UUID | None = None
    for each in reversed(messages):
        if each.role == "user":
            answer = None
        elif each.role == "assistant":
            answer = answer or each.message_id
        elif each.role in RESULTS:
            answers[each.message_id] = answer or each.message_id
    return answers
