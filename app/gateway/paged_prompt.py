"""A request's messages with some objects shown shorter: what that costs, and the bytes of it. Pure but for caches of counts.

Tokens of messages are exact, by the session's own counter, before and after. Those of objects are stored as o200k counts them
(as all that is stored), so they are scaled to the counter by what the two say of the same results.
"""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from threading import Lock
from typing import Any, NamedTuple
from uuid import UUID

from app.context.transcript import Transcript, query_of, text_of
from app.gateway.dialect import ChatRequest
from app.gateway.paged_body import Change, after, changed
from app.gateway.phantom_ledger import Hidden, expanded
from app.gateway.phantom_ledger import insertions as ledger_insertions
from app.gateway.splice import Insertion, escape
from app.paging.keys import base_key, understand
from app.paging.phases import PHASE_TURNS, changes_subject, is_phase
from app.paging.segment import marks, turns
from app.paging.showing import handle_of, render, render_rest, shown_tokens
from app.paging.values import Fidelity, Part, Relationship, RelationType, SemanticObject
from app.paging.words import overlap, terms
from app.providers.tokens import CountCache, TokenCounter

RENDERED_CHARS = 8_000_000
"""Characters of rendered objects that a process remembers: those shown in some hundred sessions with a window of 32,000
tokens."""
NAME_CHARS = 4
"""Shortest name of a file by which a message names it without its folder: `a.py`."""
SUBJECT_CHARS = 4_000
"""Of each earlier message whose words tell what was spoken of: as many as of a question (`QUERY_CHARS`)."""

Where = Mapping[UUID, tuple[tuple[int, Part], ...]]


class Rendering(NamedTuple):
    """An object in short. `data`: as the inside of a JSON string."""

    data: bytes
    tokens: int


class Renderings:
    """Remembers how objects look, for that takes longer than to look it up. Safe among threads."""

    def __init__(self, most_chars: int = RENDERED_CHARS) -> None:
        self._most = most_chars
        self._chars = 0
        self._kept: OrderedDict[tuple[Any, ...], Rendering] = OrderedDict()
        self._lock = Lock()

    def of(self, made: SemanticObject, level: Fidelity, nonce: str, counter: TokenCounter) -> Rendering:
        """What stands in the place of the object's first part."""
        # Losses and answers are made together with their text, so that this is all that a rendering depends on.
        key = (made.id, level, made.stub, made.text_at(level), nonce, counter.name)
        with self._lock:
            if (found := self._kept.get(key)) is not None:
                self._kept.move_to_end(key)
                return found
        shown = render(made, level, handle_of(made.id), nonce, counter.count)
        found = Rendering(escape(shown.text), shown.tokens)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = found
                self._chars += 2 * len(found.data)
            while self._chars > self._most:
                _, old = self._kept.popitem(last=False)
                self._chars -= 2 * len(old.data)
        return found


@dataclass(frozen=True, slots=True)
class Sheet:
    """A request as it came. `costs`: tokens of each message; `where`: of the objects that can be shown shorter in it: all of
    whose parts it has. `hidden`: exchanges of the ledger, by the index of their answer; `added`: tokens that they add, by it.
    `turn`: which request of the session it is, `first_turn`: of its first message. `scale`: of the stored counts to the
    model's."""

    chat: ChatRequest
    costs: Sequence[int]
    objects: Sequence[SemanticObject]
    where: Where
    hidden: Mapping[int, Hidden]
    added: Mapping[int, int]
    first_turn: int
    scale: float

    @property
    def turn(self) -> int:
        return self.first_turn + len(self.chat.transcript.answered)

    def size(self, made: SemanticObject, level: Fidelity) -> int:
        """Tokens of an object at a level, by the model's counter; below full an upper bound."""
        return math.ceil(shown_tokens(made, level) * self.scale)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A request as it goes out, but for memory. `costs`: of each message, with the exchange that belongs to it."""

    insertions: Sequence[Insertion]
    costs: Sequence[int]


def costs_of(chat: ChatRequest, counter: TokenCounter, counts: CountCache) -> list[int]:
    """Tokens of each message as it came."""
    hashes = chat.transcript.hashes
    return [counts.message(each, counter, hashed) for each, hashed in zip(chat.messages, hashes, strict=True)]


def places(transcript: Transcript, objects: Sequence[SemanticObject]) -> Where:
    """Where the objects stand of which the transcript has all parts."""
    at = {mark: i for i, mark in enumerate(marks(transcript)) if mark is not None}
    found: dict[UUID, tuple[tuple[int, Part], ...]] = {}
    for each in objects:
        if all(part.mark in at for part in each.parts):
            found[each.id] = tuple((at[part.mark], part) for part in each.parts)
    return found


def first_turn(transcript: Transcript, objects: Sequence[SemanticObject], where: Where) -> int:
    """The turn of the first message: 0, unless a client has cut off the head of its transcript. Then the newest object that is
    still there tells: its turn was counted before."""
    for each in reversed(objects):
        if each.id in where and not is_phase(each):
            return max(0, each.source_turn_start - turns(transcript)[where[each.id][0][0]])
    return 0


def sheet(
    chat: ChatRequest,
    costs: Sequence[int],
    objects: Sequence[SemanticObject],
    where: Where,
    hidden: Mapping[int, Hidden],
    first: int,
    counter: TokenCounter,
    counts: CountCache,
) -> Sheet:
    """The request, with those objects of which it may change the place. `where`: of all that it has. What stands in a message
    that has an exchange is left alone: the two would change the same bytes."""
    free = {
        key: parts
        for key, parts in where.items()
        if not any(at in hidden or not _has_text(chat.messages[at]) for at, _ in parts)
    }
    present = [each for each in objects if each.id in free]
    added = {
        at: sum(counts.message(one, counter) for one in expanded(chat.messages[at], each)) - costs[at]
        for at, each in hidden.items()
    }
    return Sheet(chat, costs, present, free, hidden, added, first, _scale(chat, costs, present, free, counter))


def draw(
    page: Sheet, shown: Sequence[SemanticObject], nonce: str, renderings: Renderings, counter: TokenCounter,
    counts: CountCache,
) -> Drawn:  # fmt: skip
    """The request with these objects at their levels; L1 and L2 have their texts."""
    chat, costs = page.chat, list(page.costs)
    changes: dict[int, list[Change]] = {}
    for each in shown:
        if each.fidelity == Fidelity.FULL or each.id not in page.where:
            continue
        (at, part), *others = page.where[each.id]
        data = renderings.of(each, each.fidelity, nonce, counter).data
        changes.setdefault(at, []).append(Change(part.start, part.stop, data))
        if others:
            rest = escape(render_rest(handle_of(each.id), nonce, counter.count).text)
            for at, part in others:
                changes.setdefault(at, []).append(Change(part.start, part.stop, rest))
    insertions = ledger_insertions(chat.body, chat.envelope, chat.messages, page.hidden)
    for at, own in changes.items():
        own.sort()
        if any(one.stop > other.start for one, other in pairwise(own)):
            continue  # two requests at once took the message apart differently: the client's text stands
        span, message = chat.envelope.messages[at], chat.messages[at]
        made = changed(chat.body, span, message, own)
        if made:
            insertions += made
            costs[at] = counts.message(after(chat.body, span, made), counter)
    for at, more in page.added.items():
        costs[at] += more
    return Drawn(insertions, costs)


def _has_text(message: Mapping[str, Any]) -> bool:
    """Whether its text lies in its content, and not in a refusal."""
    content = message.get("content")
    return (isinstance(content, str) and content != "") or (isinstance(content, list) and bool(content))


def _scale(
    chat: ChatRequest, costs: Sequence[int], objects: Sequence[SemanticObject], where: Where, counter: TokenCounter
) -> float:
    """The model's count of the messages that are one object each, over the stored one; without any, what the counter says of
    itself."""
    exact = stored = 0
    for each in objects:
        (at, part), *others = where[each.id]
        content = chat.messages[at].get("content")
        if not others and part.start == 0 and isinstance(content, str) and part.stop == len(content):
            exact += costs[at]
            stored += each.tokens_l0
    return exact / stored if stored else 1.0 + counter.margin


# --- what the last messages say of objects ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Heard:
    """`accessed`: objects that the last messages name; `relevance`: to what the user said last; `goal_changed`: it was of
    something else."""

    accessed: frozenset[UUID]
    relevance: Mapping[UUID, float]
    goal_changed: bool


class Relevance(Mapping[UUID, float]):
    """The share of a question's words that an object's line and names have, 0 to 1; worked out for those that are asked for,
    which are few while nothing changes."""

    def __init__(self, words: frozenset[str], objects: Sequence[SemanticObject]) -> None:
        self._words = words
        self._objects = {each.id: each for each in objects}
        self._found: dict[UUID, float] = {}

    def __getitem__(self, key: UUID) -> float:
        if key not in self._found:
            made = self._objects[key]
            own = " ".join((made.stub, made.source_key or "", *made.key_entities))
            self._found[key] = overlap(self._words, frozenset(terms(own)))
        return self._found[key]

    def __iter__(self) -> Iterator[UUID]:
        return iter(self._objects)

    def __len__(self) -> int:
        return len(self._objects)


def heard(
    chat: ChatRequest,
    objects: Sequence[SemanticObject],
    relations: Sequence[Relationship],
    new: Collection[UUID] = frozenset(),
) -> Heard:
    """What the messages behind the last answer, and its calls, say of the objects before them. `new`: those that came of these
    very messages.

    Of what was read several times only the last reading is named: the others are to go."""
    transcript, messages = chat.transcript, chat.messages
    question = query_of(messages)
    relevance = Relevance(frozenset(terms(question)), objects)
    passed = {each.target for each in relations if each.relation == RelationType.SUPERSEDES}.union(new)
    keyed = [each for each in objects if each.source_key and each.id not in passed]
    if not transcript.mid_turn():
        named = {each.id for each in keyed if _names(question, base_key(str(each.source_key)))}
        return Heard(frozenset(named), relevance, _leaves(chat, question))
    keys = {base_key(key) for key in _called(messages[transcript.answered[-1]])}
    called = {each.id for each in keyed if base_key(str(each.source_key)) in keys} if keys else frozenset[UUID]()
    return Heard(frozenset(called), relevance, False)


def _names(text: str, key: str) -> bool:
    """Whether a text names a key: a path, or a file by its name alone."""
    if key in text:
        return True
    name = key.rpartition("/")[2]
    if "." not in name or len(name) < NAME_CHARS or name not in text:
        return False
    return re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", text) is not None


def _called(message: Mapping[str, Any]) -> Collection[str]:
    """The keys of an answer's calls."""
    calls = message.get("tool_calls")
    found = set()
    for each in calls if isinstance(calls, list) else ():
        body = each.get("function") if isinstance(each, Mapping) else None
        if isinstance(body, Mapping) and isinstance(body.get("name"), str):
            key = understand(body["name"], body.get("arguments")).key
            found |= {key} if key else set()
    return found


def _leaves(chat: ChatRequest, question: str) -> bool:
    """Whether the user's message is about something else than what was said in the last turns."""
    answered = chat.transcript.answered
    if not answered:
        return False
    begin = answered[-PHASE_TURNS] if len(answered) >= PHASE_TURNS else 0
    before: set[str] = set()
    for at in range(begin, answered[-1] + 1):
        if chat.transcript.roles[at] in ("user", "assistant"):
            before.update(terms(text_of(chat.messages[at])[:SUBJECT_CHARS]))
    return changes_subject(frozenset(terms(question)), frozenset(before))
