"""A transcript taken apart into semantic objects (seed 002 §3.1): once for each message, however often it is sent again. Pure.

A message is known by its mark: its hash, and for one that says the same as an earlier one also how many there were before. Only
messages with a new mark are read; the same transcript gives the same objects under the same ids, whether it comes at once or
grows turn by turn. Nothing here raises, whatever the messages look like, and nothing recurses.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any
from uuid import UUID, uuid5

from msgspec import Struct, field
from msgspec.structs import replace

from app.context.transcript import HASH_BYTES, Transcript, text_of
from app.paging import phases, relating, sorts
from app.paging.admission import MIN_TOKENS, admit, novelty
from app.paging.entities import entities
from app.paging.keys import Call, Family, understand
from app.paging.outline import count_bounded
from app.paging.shrink import kind_of, language_of, stub
from app.store.paging_values import Admission, Counter, ObjectType, Part, Relationship, SemanticObject, mark_of

NOVELTY_OBJECTS = 64
"""Newest objects that a new one is compared with: what is older than that was forgotten by the model too."""
NAMELESS = "tool"
"""The tool of a result whose call is not in the transcript."""


class Segmentation(Struct, frozen=True):
    """What is new in a transcript. `admissions`: of all contents that were looked at; `marks`: to be known from now on."""

    objects: tuple[SemanticObject, ...] = ()
    relationships: tuple[Relationship, ...] = ()
    admissions: tuple[Admission, ...] = ()
    marks: frozenset[bytes] = frozenset()


def marks(transcript: Transcript) -> list[bytes | None]:
    """What each message is known by; None for a system message. The second and later messages that say the same have marks of
    their own."""
    seen: Tally[bytes] = Tally()
    found: list[bytes | None] = []
    for hashed in transcript.hashes:
        if hashed is None:
            found.append(None)
            continue
        times = seen[hashed]
        seen[hashed] += 1
        found.append(mark_of(hashed, times))
    return found


def turns(transcript: Transcript, first: int = 0) -> list[int]:
    """The turn of each message: how many requests there were before it, which is how many answers. `first`: of the
    first one."""
    found: list[int] = []
    for role in transcript.roles:
        found.append(first)
        first += role == "assistant"
    return found


def segment(
    session: UUID,
    messages: Sequence[object],
    transcript: Transcript,
    count: Counter,
    *,
    known: frozenset[bytes] = frozenset(),
    objects: Sequence[SemanticObject] = (),
    first_turn: int = 0,
) -> Segmentation:
    """The objects in the messages that are not known yet, and how they relate to each other and to `objects`.

    `known`: the `marks` of all that was segmented before; `objects`: what came of it, in order (contents may be left out);
    `first_turn`: the turn of the first message, for a client that cuts the head off its transcript.
    """
    work = _Work(
        session,
        messages,
        transcript,
        count,
        known,
        before=list(objects),
        marks=marks(transcript),
        turns=turns(transcript, first_turn),
        calls=dict(_calls(messages, transcript.roles)),
    )
    for position, role in enumerate(transcript.roles):
        mark = work.marks[position]
        if mark is None or mark in known:
            continue
        if role in ("tool", "function"):
            work.tool_result(position)
        elif role == "user":
            work.pastes(position)
        elif role == "assistant":
            work.statement(position)
        work.done.add(mark)
    work.end_phases()
    return Segmentation(tuple(work.made), tuple(work.relations), tuple(work.admissions), frozenset(work.done))


class _Work(Struct):
    """One segmentation under way."""

    session: UUID
    messages: Sequence[object]
    transcript: Transcript
    count: Counter
    known: frozenset[bytes]
    before: list[SemanticObject]
    marks: list[bytes | None]
    turns: list[int]
    calls: dict[int, tuple[str, object]]
    made: list[SemanticObject] = field(default_factory=list)
    relations: list[Relationship] = field(default_factory=list)
    admissions: list[Admission] = field(default_factory=list)
    done: set[bytes] = field(default_factory=set)
    index: relating.Index = field(default_factory=relating.Index)
    recent: list[frozenset[str]] = field(default_factory=list)
    indexed: bool = False
    """Whether the index has the objects of before: a request that brings nothing new does not pay for it."""

    def tool_result(self, position: int) -> None:
        text = text_of(self.messages[position])
        if len(text) < MIN_TOKENS:  # a token is a character at least, but in few scripts
            return
        name, arguments = self.calls.get(position, (NAMELESS, None))
        call = understand(name, arguments)
        made = self._admit(position, text, sorts.Piece(0, len(text), sorts.of_result(text, call), call))
        if made is not None and made.object_type == ObjectType.ERROR_CONTEXT:
            self.relations += relating.causes(made, self._edits_before(position), self.index)

    def pastes(self, position: int) -> None:
        text = text_of(self.messages[position])
        for piece in sorts.pastes(text, self.count):
            self._admit(position, text, piece)

    def statement(self, position: int) -> None:
        text = text_of(self.messages[position])
        found = sorts.of_statement(text) if len(text) >= MIN_TOKENS else None
        if found is not None:
            self._admit(position, text, sorts.Piece(0, len(text), found, sorts.SAID))

    def end_phases(self) -> None:
        """The phases of conversation that have ended: their texts, without what is an object by itself."""
        held: dict[bytes, list[Part]] = {}
        for each in (*self.before, *self.made):
            if not phases.is_phase(each):
                for part in each.parts:
                    held.setdefault(part.mark, []).append(part)
        for phase in phases.ended(self.messages, self.transcript.roles, self.marks, self.known, held):
            self.done |= phase.marks
            self._phase(phase)

    def _phase(self, each: phases.Phase) -> None:
        tokens = count_bounded(each.text, self.count)
        if tokens < phases.MIN_PHASE_TOKENS:
            return
        first, last = self.turns[each.first], self.turns[each.last]
        inside = [
            one
            for one in (*self.before, *self.made)
            if first <= one.source_turn_start <= last and not phases.is_phase(one)
        ]
        object_type = phases.type_of(inside)
        call = Call("", Family.OTHER, None)
        made = self._object(
            uuid5(self.session, each.name), each.text, each.parts, object_type, call, (first, last), tokens
        )
        line = phases.stub(each.title, first, last, object_type, self.count)
        made = replace(made, stub=line, tokens_l3=self.count(line))
        self.made.append(made)
        self.relations += relating.parents(made, inside)

    def _admit(self, position: int, text: str, piece: sorts.Piece) -> SemanticObject | None:
        """The object that a piece of a message becomes, with its relations; None when it is rejected."""
        content = text[piece.start : piece.stop]
        tokens = count_bounded(content, self.count)
        if tokens < MIN_TOKENS:
            return None
        mark = self.marks[position]
        assert mark is not None
        if not self.indexed:
            self.indexed = True
            for each in self.before:
                self._remember(each)
        made = self._object(
            uuid5(self.session, f"{mark.hex()}:{piece.start}"),
            content,
            (Part(mark, piece.start, piece.stop),),
            piece.object_type,
            piece.call,
            (self.turns[position], self.turns[position]),
            tokens,
        )
        names = frozenset(made.key_entities) - {made.source_key}
        age = self.turns[-1] - self.turns[position]
        decision = admit(
            made.id, made.object_type, content, tokens, novelty(names, self.recent[-NOVELTY_OBJECTS:]), age
        )
        self.admissions.append(decision)
        if not decision.admitted:
            return None
        relations = relating.of(made, self.index)
        self.relations += relations
        self.made.append(made)
        self._remember(made)
        return made

    def _object(
        self,
        key: UUID,
        content: str,
        parts: tuple[Part, ...],
        object_type: ObjectType,
        call: Call,
        span: tuple[int, int],
        tokens: int,
    ) -> SemanticObject:
        kind = kind_of(content, call.tool, call.key)
        line = stub(content, kind, self.count, call.tool or None, call.key)
        language = language_of(call.key)
        return SemanticObject(
            id=key,
            object_type=object_type,
            kind=kind,
            content=content,
            stub=line,
            tokens_l0=tokens,
            tokens_l3=self.count(line),
            parts=parts,
            content_hash=blake2b(content.encode("utf-8", "surrogatepass"), digest_size=HASH_BYTES).digest(),
            source_turn_start=span[0],
            source_turn_end=span[1],
            source_tool=call.tool or None,
            source_key=call.key,
            key_entities=entities(content, call.key),
            tags=(call.family.value, kind.value, *([language.lower()] if language else [])),
            last_accessed=span[1],
        )

    def _remember(self, made: SemanticObject) -> None:
        if not phases.is_phase(made):
            self.index.add(made)
            self.recent.append(frozenset(made.key_entities) - {made.source_key})

    def _edits_before(self, position: int) -> Iterator[str]:
        """Keys of what was edited shortly before a message, newest first."""
        looked = 0
        for earlier in range(position - 1, -1, -1):
            if earlier in self.calls:
                call = understand(*self.calls[earlier])
                if call.family in (Family.EDIT, Family.WRITE) and call.key:
                    yield call.key
                looked += 1
                if looked == relating.EDITS_BACK:
                    return


def _calls(messages: Sequence[object], roles: Sequence[str]) -> Iterator[tuple[int, tuple[str, object]]]:
    """The call that each tool's result answers: (position of the result, (tool, arguments)). Ids may come again: the
    newest counts."""
    waiting: dict[str, tuple[str, object]] = {}
    for position, role in enumerate(roles):
        message = messages[position]
        if not isinstance(message, Mapping):
            continue
        if role == "assistant":
            waiting |= _made(message)
        elif role == "tool":
            found = waiting.get(str(message.get("tool_call_id")))
            if found is not None:
                yield position, found
            elif isinstance(name := message.get("name"), str):
                yield position, (name, None)
        elif role == "function":
            name = str(message.get("name") or NAMELESS)
            yield position, waiting.get(f"function {name}", (name, None))


def _made(message: Mapping[str, Any]) -> dict[str, tuple[str, object]]:
    found: dict[str, tuple[str, object]] = {}
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list | tuple) else []:
        body = (call.get("function") or call.get("custom")) if isinstance(call, Mapping) else None
        if isinstance(body, Mapping) and isinstance(call, Mapping):
            given = body["arguments"] if "arguments" in body else body.get("input")
            found[str(call.get("id"))] = (str(body.get("name") or NAMELESS), given)
    legacy = message.get("function_call")
    if isinstance(legacy, Mapping):
        name = str(legacy.get("name") or NAMELESS)
        found[f"function {name}"] = (name, legacy.get("arguments"))
    return found
