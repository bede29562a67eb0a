"""A request's messages with some objects shown shorter: what is decided on them, what that costs, and the bytes of it. Pure but
for caches of counts.

Tokens of messages are exact, by the session's own counter, before and after. Those of objects are stored as o200k counts them
(as all that is stored), so they are scaled to the counter by what the two say of the same results.
"""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import pairwise
from threading import Lock
from typing import Any, NamedTuple
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from app.context.transcript import HASH_BYTES, TEXT_PARTS, Transcript, query_of, text_of
from app.features.paging.body import HiddenLegs, expanded
from app.features.paging.fidelity import MIN_BATCH, RECENT_TURNS, Decision, Moment, at_least, decide, zone
from app.features.paging.forms import FORMS
from app.features.paging.keys import base_key, understand
from app.features.paging.segment import PHASE_TURNS, Segmentation, changes_subject, is_phase, marks, turns
from app.features.paging.state import Paging
from app.features.paging.tools import Names, ToolInsertion, names_in
from app.features.paging.values import (
    Fault,
    FaultType,
    Fidelity,
    ObjectSpan,
    Paged,
    Relationship,
    RelationType,
    SemanticObject,
    Trigger,
    Zone,
    explained,
    overlap,
    render,
    render_rest,
    shown_tokens,
    terms,
)
from app.gateway.dialects.base import ChatRequest
from app.gateway.dialects.splice import ByteSpan, Insertion, entries, escape
from app.providers.tokens import HASHED, CountCache, TokenCounter

# --- changes in the client's own bytes -----------------------------------------------------------------------------------
#
# A message's text (`context.transcript.text_of`) may stand there as a string or as several text parts, with any escapes. Every
# byte outside the changed ranges stays as it was. Between two escapes the bytes are the text's own UTF-8, so only escapes are
# walked.

KEPT = "…"
"""What is left of a text part whose text is shown in an earlier one: some upstreams refuse an empty one."""
_ESCAPE = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.")
"""One character that is written as an escape."""


class TextChange(NamedTuple):
    """Put `data` (the inside of a JSON string) in place of `text[start:stop]` of a message."""

    start: int
    stop: int
    data: bytes


class MessagePart(NamedTuple):
    """A part of a message's text: where it begins in the text, and where its bytes lie, without the quotes."""

    at: int
    text: str
    inside: ByteSpan


def pieces(body: bytes, parts: Iterable[tuple[object, ByteSpan]]) -> list[MessagePart]:
    """The texts that `text_of` joins with line feeds. `parts`: see `forms.PagedForm`."""
    found: list[MessagePart] = []
    at = 0
    for part, where in parts:
        name = _text_name(part)
        if name is None:
            continue
        text = part[name] if isinstance(part, Mapping) else str(part)
        inside = dict(entries(body, where.start))[name] if name else where
        found.append(MessagePart(at, text, ByteSpan(inside.start + 1, inside.end - 1)))
        at += len(text) + 1
    return found


def changed(
    body: bytes, parts: Iterable[tuple[object, ByteSpan]], changes: Iterable[TextChange]
) -> list[Insertion] | None:
    """What makes the changes, which do not overlap; None where the text does not lie in the parts like that.

    Of a range that goes over several parts the first gets the data, and of each further one `KEPT` is left.
    """
    found = pieces(body, parts)
    made: list[Insertion] = []
    for start, stop, data in changes:
        covered = [each for each in found if max(start, each.at) < min(stop, each.at + len(each.text))]
        if not covered or stop > found[-1].at + len(found[-1].text):
            return None
        for each in covered:
            first, last = _bytes(body, each, max(0, start - each.at), min(len(each.text), stop - each.at))
            made.append(Insertion(first, data if each is covered[0] else KEPT.encode(), last - first))
    return made


def _text_name(part: object) -> str | None:
    """The member of a content part that holds its text: empty for a part that is a string; None for one without a text."""
    if isinstance(part, str):
        return ""
    if not isinstance(part, Mapping):
        return None
    kind = part.get("type", "text")
    if not isinstance(kind, str) or (kind not in TEXT_PARTS and kind != "refusal"):
        return None
    name = "refusal" if kind == "refusal" else "text"
    return name if isinstance(part.get(name), str) else None


def _bytes(body: bytes, piece: MessagePart, start: int, stop: int) -> tuple[int, int]:
    """Where `piece.text[start:stop]` lies in the body."""
    first, last = piece.inside
    if last - first == len(piece.text):  # a byte for each character: no escapes, and ASCII alone
        return first + start, first + stop
    if start == 0 and stop == len(piece.text):
        return first, last
    wanted = [start, stop]
    found: list[int] = []
    for text, pos, run in _runs(body, piece):
        while len(found) < 2 and wanted[len(found)] <= text + run:
            rest = wanted[len(found)] - text
            found.append(pos + len(piece.text[text : text + rest].encode()))
        if len(found) == 2:
            break
    return found[0], found[1]


def _runs(body: bytes, piece: MessagePart) -> Iterator[tuple[int, int, int]]:
    """The stretches without an escape: (characters before it, its offset in the body, its characters), empty ones too."""
    text = 0
    pos, end = piece.inside
    for found in _ESCAPE.finditer(body, pos, end):
        length = len(body[pos : found.start()].decode())
        yield text, pos, length
        text += length + 1
        pos = found.end()
    yield text, pos, len(piece.text) - text


# --- what objects look like, and what they cost --------------------------------------------------------------------------

RENDERED_CHARS = 8_000_000
"""Characters of rendered objects that a process remembers: those shown in some hundred sessions with a window of 32,000
tokens."""
NAME_CHARS = 4
"""Shortest name of a file by which a message names it without its folder: `a.py`."""
SUBJECT_CHARS = 4_000
"""Of each earlier message whose words tell what was spoken of: as many as of a question (`QUERY_CHARS`)."""
Where = Mapping[UUID, tuple[tuple[int, ObjectSpan], ...]]


class Rendering(NamedTuple):
    """An object in short. `data`: as the inside of a JSON string; `digest`: 16 bytes of it, by which its costs are kept."""

    data: bytes
    tokens: int
    digest: bytes


class Renderings:
    """Remembers how objects look, for that takes longer than to look it up. Safe among threads."""

    def __init__(self, most_chars: int = RENDERED_CHARS) -> None:
        self._most = most_chars
        self._chars = 0
        self._kept: OrderedDict[tuple[int, int], tuple[tuple[str, ...], Rendering]] = OrderedDict()
        self._lock = Lock()

    def of(self, made: SemanticObject, level: Fidelity, nonce: str, counter: TokenCounter, names: Names) -> Rendering:
        """What stands in the place of the object's first part. `names`: of the tools that it speaks of."""
        # Losses and answers are made together with their text, so that this is all that a rendering depends on.
        key, depends = (made.id.int, level.value), (made.stub, made.text_at(level), nonce, counter.name, *names)
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None and kept[0] == depends:
                self._kept.move_to_end(key)
                return kept[1]
        shown = render(made, level, nonce, names)
        data = escape(shown)
        found = Rendering(data, counter.count(shown), blake2b(data, digest_size=HASH_BYTES).digest())
        with self._lock:
            if (old := self._kept.pop(key, None)) is not None:
                self._chars -= _chars(*old)
            self._kept[key] = depends, found
            self._chars += _chars(depends, found)
            while self._chars > self._most:
                _, old = self._kept.popitem(last=False)
                self._chars -= _chars(*old)
        return found


def _chars(depends: tuple[str, ...], made: Rendering) -> int:
    return sum(map(len, depends)) + len(made.data)


class ReceivedRequest(Struct, frozen=True):
    """A request as it came. `costs`: tokens of each message; `where`: of the objects that can be shown shorter in it: all of
    whose parts it has. `hidden`: exchanges of the ledger, by the index of their answer; `added`: tokens that they add, by it.
    `first_turn`: of its first message. `scale`: of the stored counts to the model's. `names`: of the phantom tools in it.
    `measured`: tokens of objects as they are shown now."""

    chat: ChatRequest
    costs: Sequence[int]
    objects: Sequence[SemanticObject]
    where: Where
    hidden: Mapping[int, HiddenLegs]
    added: Mapping[int, int]
    first_turn: int
    scale: float
    names: Names
    measured: Mapping[UUID, int] = {}

    @property
    def turn(self) -> int:
        """Which request of the session it is."""
        return self.first_turn + len(self.chat.transcript.answered)

    def size(self, made: SemanticObject, level: Fidelity) -> int:
        """Tokens of an object at a level, by the model's counter: as it is shown now they are known, else below full an upper
        bound."""
        if level == made.fidelity and level != Fidelity.FULL and (known := self.measured.get(made.id)) is not None:
            return known
        return math.ceil(shown_tokens(made, level) * self.scale)

    def to_go(self, tokens: int, budget: int, before: Zone, decision: Decision) -> list[int]:
        """Exchanges that are not shown any more, by the index of their answer: in a prompt that is critically full all but
        those of the last turns, with the next batch of objects, or when they make one by themselves. `tokens`: of the prompt
        with nothing changed; `decision`: on its objects."""
        answered = self.chat.transcript.answered
        recent = answered[-RECENT_TURNS] if len(answered) >= RECENT_TURNS else 0
        old = [at for at in self.hidden if at < recent]
        if not old or not at_least(zone(tokens, budget, before), Zone.CRITICAL):
            return []
        batch = any(each.trigger == Trigger.PRESSURE for each in decision.transitions)
        worth_it = sum(self.added[at] for at in old) >= MIN_BATCH * budget
        return old if batch or worth_it or decision.zone == Zone.EMERGENCY else []


class PagedRequest(Struct, frozen=True):
    """A request as it goes out, but for memory. `costs`: of each message, with the exchange that belongs to it."""

    insertions: Sequence[Insertion]
    costs: Sequence[int]


def costs_of(chat: ChatRequest, counter: TokenCounter, counts: CountCache) -> list[int]:
    hashes = chat.transcript.hashes
    return [counts.message(each, counter, hashed) for each, hashed in zip(chat.messages, hashes, strict=True)]


def messages_at(transcript: Transcript) -> dict[bytes, int]:
    return {mark: at for at, mark in enumerate(marks(transcript)) if mark is not None}


def places(at: Mapping[bytes, int], objects: Sequence[SemanticObject]) -> Where:
    """Where the objects stand of which a transcript has all parts. `at`: `messages_at` of it."""
    found: dict[UUID, tuple[tuple[int, ObjectSpan], ...]] = {}
    for each in objects:
        parts = each.parts
        if len(parts) == 1:
            if (index := at.get(parts[0].mark)) is not None:
                found[each.id] = ((index, parts[0]),)
        elif all(part.mark in at for part in parts):
            found[each.id] = tuple((at[part.mark], part) for part in parts)
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
    hidden: Mapping[int, HiddenLegs],
    first: int,
    counter: TokenCounter,
    counts: CountCache,
) -> ReceivedRequest:
    """The request, with those objects of which it may change the place. `where`: of all that it has. What stands in a message
    that has an exchange is left alone: the two would change the same bytes."""
    taken = {at for at, each in enumerate(chat.messages) if at in hidden or not _has_text(each)}
    free = {key: parts for key, parts in where.items() if not any(at in taken for at, _ in parts)}
    present = [each for each in objects if each.id in free]
    added = {
        at: sum(counts.message(one, counter) for one in expanded(chat.messages[at], each)) - costs[at]
        for at, each in hidden.items()
    }
    scale = _scale(chat, costs, present, free, counter)
    return ReceivedRequest(chat, costs, present, free, hidden, added, first, scale, names_in(chat))


def draw(
    page: ReceivedRequest,
    shown: Sequence[SemanticObject],
    nonce: str,
    renderings: Renderings,
    counter: TokenCounter,
    counts: CountCache,
) -> PagedRequest:
    """The request with these objects at their levels; L1 and L2 have their texts."""
    chat, costs = page.chat, list(page.costs)
    changes: dict[int, list[TextChange]] = {}
    known: dict[int, bytes] = {}
    for each in shown:
        if each.fidelity == Fidelity.FULL:
            continue
        (at, part), *others = page.where[each.id]
        looks = renderings.of(each, each.fidelity, nonce, counter, page.names)
        changes.setdefault(at, []).append(TextChange(part.start, part.stop, looks.data))
        known[at] = looks.digest
        if others:
            rest = escape(render_rest(each.id, nonce))
            for at, part in others:
                changes.setdefault(at, []).append(TextChange(part.start, part.stop, rest))
    form = FORMS[chat.dialect.name]
    insertions = form.exchanges(chat, page.hidden)
    for at, own in changes.items():
        own.sort()
        if any(one.stop > other.start for one, other in pairwise(own)):
            continue  # two requests at once took the message apart differently: the client's text stands
        made = changed(chat.body, form.parts(chat, at), own)
        if made:
            insertions += made
            costs[at] = _cost(chat, at, made, known.get(at) if len(own) == 1 else None, counter, counts)
    for at, more in page.added.items():
        costs[at] += more
    return PagedRequest(insertions, costs)


def _cost(
    chat: ChatRequest,
    at: int,
    made: Sequence[Insertion],
    digest: bytes | None,
    counter: TokenCounter,
    counts: CountCache,
) -> int:
    """Tokens of a message as it goes out. `digest`: of its one change; then they are remembered by that and its hash."""

    def counted() -> int:
        return counts.message(FORMS[chat.dialect.name].after(chat, at, made), counter)

    hashed = chat.transcript.hashes[at]
    if digest is None or hashed is None or not chat.messages[at].keys() <= HASHED:
        return counted()
    return counts.get(b"paged" + hashed + digest + counter.name.encode(), counted)


def _has_text(message: Mapping[str, Any]) -> bool:
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
        alone = isinstance(content, str) or (isinstance(content, list) and len(content) == 1)
        if not others and part.start == 0 and alone and part.stop == len(text_of(chat.messages[at])):
            exact += costs[at]
            stored += each.tokens_l0
    return exact / stored if stored else 1.0 + counter.margin


# --- what the last messages say of objects -------------------------------------------------------------------------------


class Focus(Struct, frozen=True):
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
) -> Focus:
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
        return Focus(frozenset(named), relevance, _leaves(chat, question))
    keys = {base_key(key) for key in _called(messages[transcript.answered[-1]])}
    called = {each.id for each in keyed if base_key(str(each.source_key)) in keys} if keys else frozenset[UUID]()
    return Focus(frozenset(called), relevance, False)


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


# --- the decision on one prompt ------------------------------------------------------------------------------------------

LEFT_OUT = "left_out"
"""In a row of the ledger: the exchange is not shown any more."""


class TranscriptObjects(NamedTuple):
    """A transcript taken apart. `objects`: all that are known, in order; `where`: of those that it has; `costs`: tokens of each
    message as it came."""

    made: Segmentation
    objects: Sequence[SemanticObject]
    where: Where
    costs: Sequence[int]


class FixedTokens(NamedTuple):
    """Tokens of a prompt beside its messages. `schemas`: the client's, and what opens the answer; `tools`: ours; `memory`: the
    room that is left for it."""

    schemas: int
    tools: int
    memory: int


class Plan(Struct):
    """A decision under way. `left`: exchanges that are left out from now on, by the index of their answer."""

    page: ReceivedRequest
    relations: Sequence[Relationship]
    moment: Moment
    decision: Decision
    left: Mapping[int, Mapping[str, Any]] = {}

    def dearer(self, tokens: int) -> bool:
        """Decide once more, now that it is known what the prompt came to. False: there is nothing more to gain."""
        more = tokens - self.decision.tokens
        if tokens <= self.moment.budget or more <= 0 or not self.decision.transitions:
            return False
        self.moment = replace(self.moment, other_tokens=self.moment.other_tokens + more)
        self.decision = decide(self.page.objects, self.relations, self.moment, self.page.size)
        return True


def plan(
    page: ReceivedRequest,
    state: Paged,
    taken: TranscriptObjects,
    faults: Sequence[Fault],
    budget: int,
    beside: FixedTokens,
) -> Plan:
    """The first decision. `faults`: of calls that were answered just now."""
    relations = [*state.relationships, *taken.made.relationships]
    said = heard(page.chat, page.objects, relations, frozenset(each.id for each in taken.made.objects))
    # What was asked back just now stands in full at its place as well.
    asked = frozenset(
        each.object_id
        for each in faults
        if each.object_id is not None and each.pin and each.fault_type == FaultType.FULL_RESTORE
    )
    whole = sum(page.size(each, Fidelity.FULL) for each in page.objects)
    other = sum(page.costs) - whole + sum(page.added.values()) + sum(beside)
    moment = Moment(
        page.turn,
        budget,
        other,
        zone=state.zone,
        relevance=said.relevance,
        accessed=said.accessed,
        restored=state.restored | asked,
        raised=state.raised,
        released=state.released,
        goal_changed=said.goal_changed,
    )
    made = Plan(page, relations, moment, decide(page.objects, relations, moment, page.size))
    before = other + sum(page.size(each, each.fidelity) for each in page.objects)
    if left := page.to_go(before, budget, state.zone, made.decision):
        made.left = {at: {**page.hidden[at].as_json(), LEFT_OUT: True} for at in left}
        made.moment = replace(moment, other_tokens=other - sum(page.added[at] for at in left))
        hidden = {at: each for at, each in page.hidden.items() if at not in left}
        made.page = replace(page, hidden=hidden, added={at: page.added[at] for at in hidden})
        made.decision = decide(page.objects, relations, made.moment, page.size)
    return made


def fill(
    paging: Paging,
    made: Plan,
    taken: TranscriptObjects,
    shown: Sequence[SemanticObject],
    drawn: PagedRequest,
    offered: ToolInsertion | str,
    beside: FixedTokens,
    window: int,
) -> None:
    """What was decided, as the rest of the call needs it. `shown`: the objects whose place may change, as they are shown."""
    page, decision, moment = made.page, made.decision, made.moment
    needed = paging.state.offered or any(each.fidelity > Fidelity.FULL for each in shown)
    insertions, ours = list(drawn.insertions), 0
    if isinstance(offered, ToolInsertion) and needed:
        insertions += offered.insertions
        paging.names, paging.schemas, ours = offered.names, [offered.tools], beside.tools
    elif isinstance(offered, str) and needed:
        paging.declined = offered
    now = {each.id: each for each in shown}
    paging.objects = [
        now.get(each.id) or replace(each, fidelity=Fidelity.FULL) for each in taken.objects if each.id in taken.where
    ]
    paging.insertions, paging.costs, paging.window = insertions, drawn.costs, window
    paging.scale = page.scale
    paging.saved = sum(page.costs) - sum(drawn.costs)
    chains = page.chat.transcript.chains
    left = {chain: row for at, row in made.left.items() if (chain := chains[at]) is not None}
    wanted = moment.restored | moment.raised | moment.released
    paging.record = replace(
        paging.record,
        turn=page.turn,
        zone=decision.zone,
        tokens=sum(page.costs) + beside.schemas,
        shown_tokens=sum(drawn.costs) + beside.schemas + ours,
        offered=paging.names is not None or paging.state.offered,
        marks=taken.made.marks,
        objects=tuple(now.get(each.id, each) for each in taken.made.objects),
        relationships=taken.made.relationships,
        admissions=taken.made.admissions,
        transitions=decision.transitions,
        pinned=decision.pinned,
        uses=moment.accessed,
        heard=frozenset(each for each in wanted if each in now),
        hidden={**paging.record.hidden, **left},
    )
    paging.room = max(0, paging.budget - paging.record.shown_tokens)
    paging.explained = explained(paging.record, shown, len(page.hidden), paging.names, paging.declined)
