"""A transcript taken apart into semantic objects (seed 002 §3.1): once for each message, however often it is sent again. Pure.

    results of tools, long pastes, plans and decisions, phases of the conversation ─> what type each is
        ─> whether it becomes an object ─> how that relates to the others

A message is known by its mark: its hash, and for one that says the same as an earlier one also how many there were before.
Only messages with a new mark are read; the same transcript gives the same objects under the same ids, whether it comes at
once or grows turn by turn. Nothing here raises, whatever the messages look like, and nothing recurses.
"""

from __future__ import annotations

import re
from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID, uuid5

from msgspec import Struct, field
from msgspec.structs import replace

from app.context.transcript import HASH_BYTES, Transcript, text_of
from app.features.paging.keys import Family, UnderstoodCall, base_key, entities, paths, understand, urls
from app.features.paging.outline import clip, count_bounded, fitting
from app.features.paging.shrink import STUB_TOKENS, kind_of, language_of, stub
from app.features.paging.values import (
    ContentKind,
    Counter,
    ObjectAdmission,
    ObjectSpan,
    ObjectType,
    Relationship,
    RelationType,
    SemanticObject,
    overlap,
    terms,
)
from app.store.ids import mark_of

# --- of which type a content is ------------------------------------------------------------------------------------------

PASTE_TOKENS = 500
"""Tokens from which a text of the user, or a fenced block in it, is a paste: people type less than that."""
QUESTION_CHARS = 400
"""Characters at each end of a long text that stay as they are: a question stands before or after what it is about."""
ENDS_CHARS = 4_000
"""Characters at each end of a result in which its exit is looked for."""
SEEN_CHARS = 200_000
"""Characters of a content that are looked at for tracebacks, plans and decisions."""
PLAN_STEPS = 4
"""Numbered or ticked lines that make a plan, beside a word for one."""
DECISION_WORDS = 2
"""Different turns of phrase that make a decision."""

PASTED = UnderstoodCall("Pasted", Family.OTHER, None)
SAID = UnderstoodCall("Said", Family.OTHER, None)

_TRACEBACK = re.compile(
    r"^[ \t]{0,16}(?:Traceback \(most recent call last\)|panic: |thread '.{0,80}' panicked"
    r"|Exception in thread |error\[E\d{4}\]|npm ERR!|fatal: |FAILED \(|Segmentation fault|\w[\w.]{0,80}(?:Error|Exception): )",
    re.MULTILINE,
)
_EXIT = re.compile(
    r"\b(?:exit(?:ed)?(?: with)?(?:[ _]?code| status)?|return ?code|status)[\"']?\s?[:=]?\s{0,2}(?:[1-9]\d{0,2})\b"
    r"|<error>|\"(?:is_error|isError)\":\s?true",
    re.IGNORECASE,
)
_FAILED = re.compile(
    r"\b[1-9]\d{0,5} (?:failed|failures?|errors?|failing)\b|^FAILED |^FAIL\b|\bBUILD FAILED\b", re.MULTILINE
)
_STEP = re.compile(r"^\s{0,6}(?:\d{1,2}[.)]|[-*] \[[ xX~]\]|☐|☑|✓|✔)\s", re.MULTILINE)
_PLAN = re.compile(r"\b(?:plan|steps?|to-?dos?|tasks?|milestones?|roadmap|next)\b", re.IGNORECASE)
_DECISION = re.compile(
    r"\b(?:decided|decision|we(?:'ll| will) go with|i(?:'ll| will) go with|chose|choosing"
    r"|trade-?offs?|instead of|rationale|alternatives?|rather than|approach|pros|cons|recommend)\b",
    re.IGNORECASE,
)
_FENCE = re.compile(r"`{3,16}|~{3,16}")


class Fragment(NamedTuple):
    """A part of a message, `text[start:stop]`, that may become an object."""

    start: int
    stop: int
    object_type: ObjectType
    call: UnderstoodCall


def of_result(text: str, call: UnderstoodCall) -> ObjectType:
    if call.family == Family.PLAN:
        return ObjectType.PLAN
    if call.family == Family.READ:
        return ObjectType.FILE_CONTEXT
    if call.family == Family.FETCH:
        return ObjectType.EXTERNAL_REFERENCE
    if call.family in (Family.SHELL, Family.OTHER, Family.EDIT, Family.WRITE) and failed(text):
        return ObjectType.ERROR_CONTEXT
    return ObjectType.FILE_CONTEXT if call.family in (Family.EDIT, Family.WRITE) else ObjectType.TOOL_RESULT


def failed(text: str) -> bool:
    """Whether a result tells of a failure: a traceback, an exit that is not 0, failed tests."""
    ends = text if len(text) <= 2 * ENDS_CHARS else f"{text[:ENDS_CHARS]}\n{text[-ENDS_CHARS:]}"
    return any(each.search(ends) for each in (_EXIT, _FAILED)) or _TRACEBACK.search(text[:SEEN_CHARS]) is not None


def of_statement(text: str) -> ObjectType | None:
    """The type of what the assistant said, where it is a plan or a decision; None of anything else."""
    seen = text[:SEEN_CHARS]
    if len(_STEP.findall(seen)) >= PLAN_STEPS and _PLAN.search(seen):
        return ObjectType.PLAN
    if len({each.lower() for each in _DECISION.findall(seen)}) >= DECISION_WORDS:
        return ObjectType.DESIGN_DECISION
    return None


def pastes(text: str, count: Counter) -> list[Fragment]:
    """The parts of a user's message that are long pastes: fenced blocks, else all of a long text but its two ends."""
    if len(text) < PASTE_TOKENS:
        return []
    found = [each for each in _fences(text) if _long(text[slice(*each)], count)]
    if not found and _long(text, count):
        start, stop = _middle(text)
        found = [(start, stop)] if _long(text[start:stop], count) else []
    return [Fragment(start, stop, of_paste(text[start:stop]), PASTED) for start, stop in found]


def of_paste(text: str) -> ObjectType:
    if failed(text):
        return ObjectType.ERROR_CONTEXT
    if kind_of(text) in (ContentKind.CODE, ContentKind.DIFF):
        return ObjectType.FILE_CONTEXT
    return ObjectType.EXTERNAL_REFERENCE


def _fences(text: str) -> list[tuple[int, int]]:
    """What stands in fenced blocks; one that is not closed goes on to the end. In one pass."""
    spans: list[tuple[int, int]] = []
    fence, start, at = "", 0, 0
    for line in text.splitlines(keepends=True):
        mark = _FENCE.match(line)
        if mark and not fence:
            fence, start = mark[0], at + len(line)
        elif mark and line.strip() == fence:
            spans.append((start, at))
            fence = ""
        at += len(line)
    return [*spans, (start, at)] if fence else spans


def _long(text: str, count: Counter) -> bool:
    return len(text) >= PASTE_TOKENS and count_bounded(text, count) >= PASTE_TOKENS


def _middle(text: str) -> tuple[int, int]:
    """A long text without the paragraph at each end, or without the words at each end where the paragraphs are long."""
    start = text.find("\n\n", 0, QUESTION_CHARS)
    if start < 0:
        start = max(text.rfind("\n", 0, QUESTION_CHARS), text.rfind(" ", 0, QUESTION_CHARS), 0)
    stop = text.rfind("\n\n", len(text) - QUESTION_CHARS)
    if stop < 0:
        ends = (text.find(end, len(text) - QUESTION_CHARS) for end in "\n ")
        stop = min((at for at in ends if at >= 0), default=len(text))
    while start < stop and text[start].isspace():
        start += 1
    return start, stop


# --- phases of a conversation --------------------------------------------------------------------------------------------
#
# What user and assistant said between two changes of subject (seed 002 §1.2). A phase is an object once it has ended, so that
# none ever changes. The first message of the user never belongs to one: it says what the session is for, and stays as it is.

PHASE_TURNS = 10
"""Answers after which a phase ends, whatever it is about."""
MIN_TURNS = 2
"""Answers before which a change of subject ends nothing: a greeting is no phase."""
MIN_PHASE_TOKENS = 400
"""Tokens of a phase that becomes an object: several messages each keep a mark in its place."""
CHANGED_OVERLAP = 0.15
"""A message of the user changes the subject if less than this share of its words came up in the phase."""
MIN_WORDS = 4
"""Words with a content that a message needs to change the subject: "go on" does not."""
DEBUGGING_ERRORS = 2
"""Error contexts that make a phase a debugging session."""

PHASES = frozenset([ObjectType.CONVERSATION_PHASE, ObjectType.DEBUGGING_SESSION])
_SPEAKERS = {"user": "User", "assistant": "Assistant"}


def is_phase(made: SemanticObject) -> bool:
    return made.object_type in PHASES


def type_of(inside: Sequence[SemanticObject]) -> ObjectType:
    """What a phase with these objects was."""
    errors = sum(1 for each in inside if each.object_type == ObjectType.ERROR_CONTEXT)
    return ObjectType.DEBUGGING_SESSION if errors >= DEBUGGING_ERRORS else ObjectType.CONVERSATION_PHASE


def _phase_mark(mark: bytes) -> bytes:
    """What a message is known by to the phases: it is read twice, for what is pasted in it and for its phase."""
    return blake2b(mark, digest_size=HASH_BYTES, person=b"mneme phase").digest()


def changes_subject(words: frozenset[str], before: frozenset[str]) -> bool:
    """Whether a message of these words leaves what was spoken of."""
    return len(words) >= MIN_WORDS and overlap(words, before) < CHANGED_OVERLAP


def _free(text: str, held: Sequence[ObjectSpan]) -> list[tuple[int, int]]:
    """What of a text no object holds."""
    spans: list[tuple[int, int]] = []
    at = 0
    for part in sorted(held, key=lambda each: each.start):
        spans.append((at, part.start))
        at = part.stop
    spans.append((at, len(text)))
    return [(start, stop) for start, stop in spans if text[start:stop].strip()]


# --- which contents become objects ---------------------------------------------------------------------------------------
#
# Seed 002 (§1.6, §3.1) names the parts of the score (type, novelty, utility, recency) and one sum, 0.72; what they are and
# weigh is ours. What is rejected stays in the transcript as it is.

WEIGHT_TYPE = 0.25
WEIGHT_NOVELTY = 0.25
WEIGHT_UTILITY = 0.40
WEIGHT_RECENCY = 0.10
"""Weights of the four scores; they sum to 1. Utility leads: it is what paging is for."""
THRESHOLD = 0.40
"""A total below this is rejected: a few hundred tokens that mostly repeat what is an object already."""
MIN_TOKENS = 200
"""Contents under so many tokens are never scored: their stub with its handle would save less than half of them."""
ALWAYS_TOKENS = 2_000
"""Contents of so many tokens are admitted whatever their score: not to be able to page them out costs more than a row."""
UTILITY_HALF_TOKENS = 1_600
"""Tokens of a content of which the utility is one half: some 200 lines of code."""
FEW_NAMES = 8
"""Names of a content that are too few to be judged by: one known name among three does not make it a third known."""
RECENCY_HALF_TURNS = 20
"""Turns after which the recency is one half: only history that is seen late (an import, a first request) is old at all."""
PREVIEW_CHARS = 200
"""Seed 002 §1.6."""
TYPES: Mapping[ObjectType, float] = MappingProxyType(
    {
        ObjectType.DESIGN_DECISION: 1.0,
        ObjectType.PLAN: 0.9,
        ObjectType.ERROR_CONTEXT: 0.9,
        ObjectType.FILE_CONTEXT: 0.8,
        ObjectType.DEBUGGING_SESSION: 0.8,
        ObjectType.EXTERNAL_REFERENCE: 0.7,
        ObjectType.CONVERSATION_PHASE: 0.6,
        ObjectType.TOOL_RESULT: 0.5,
    }
)
"""How likely each type is to be asked for again."""


def novelty(words: frozenset[str], others: Iterable[frozenset[str]]) -> float:
    """1 − the largest share of its words that one of the others has. `others`: of the objects under another key; what was read
    again is told by `supersedes`, not by this."""
    weight = len(words) / max(len(words), FEW_NAMES)
    return 1.0 - weight * max((overlap(words, each) for each in others), default=0.0)


def utility(tokens: int) -> float:
    """tokens / (tokens + 1600): what paging it out can save, 0 to 1."""
    return tokens / (tokens + UTILITY_HALF_TOKENS) if tokens > 0 else 0.0


def recency(age_turns: int) -> float:
    """2^(−age / 20)."""
    return float(2.0 ** (-max(0, age_turns) / RECENCY_HALF_TURNS))


def admit(
    object_id: UUID, object_type: ObjectType, text: str, tokens: int, novelty_score: float, age_turns: int
) -> ObjectAdmission:
    """The decision on a content that would become this object: S(m) = 0.25·type + 0.25·novelty + 0.40·utility +
    0.10·recency."""
    parts = kind, new, useful, recent = TYPES[object_type], novelty_score, utility(tokens), recency(age_turns)
    total = WEIGHT_TYPE * kind + WEIGHT_NOVELTY * new + WEIGHT_UTILITY * useful + WEIGHT_RECENCY * recent
    admitted = tokens >= MIN_TOKENS and (total >= THRESHOLD or tokens >= ALWAYS_TOKENS)
    return ObjectAdmission(object_id if admitted else None, admitted, total, *parts, THRESHOLD, text[:PREVIEW_CHARS])


# --- how objects relate --------------------------------------------------------------------------------------------------
#
# They share keys and names (seed 002 §1.3), found through an index: 10,000 objects cost 10,000 look-ups.

MOST_REFERENCES = 6
"""Objects that one references: more of them is a listing, not a reference."""
EDITS_BACK = 12
"""Tool results before an error among which its cause is looked for."""
NAME_CHARS = 8
"""Characters of a name that is taken for a reference to the file that has it (`handler` stands in many)."""


def family(made: SemanticObject) -> Family:
    return Family(made.tags[0]) if made.tags else Family.OTHER


class Index:
    """The newest objects by key, by file name, and by the names in them."""

    def __init__(self) -> None:
        self._keys: dict[tuple[Family, str], SemanticObject] = {}
        self._spans: dict[tuple[Family, str], dict[str, SemanticObject]] = {}
        self._named: dict[str, SemanticObject] = {}

    def add(self, made: SemanticObject) -> None:
        key = made.source_key
        if key is not None:
            base = base_key(key)
            group = (family(made), base)
            if key == base:
                self._spans.pop(group, None)
            self._keys[group] = made
            self._spans.setdefault(group, {})[key] = made
            self._named[base] = made
            if "/" in base and "." in base.rpartition("/")[2]:
                self._named[base.rpartition("/")[2]] = made
        if made.object_type == ObjectType.FILE_CONTEXT:
            for name in made.key_entities:
                if len(name) >= NAME_CHARS and "/" not in name and "." not in name:
                    self._named[name] = made

    def covered(self, made: SemanticObject) -> list[SemanticObject]:
        """Objects whose place this one takes: the same key, or parts of what it is the whole of."""
        if made.source_key is None:
            return []
        base = base_key(made.source_key)
        found = self._spans.get((family(made), base), {})
        whole = made.source_key == base
        return [each for key, each in found.items() if whole or key == made.source_key]

    def read(self, key: str) -> SemanticObject | None:
        return self._keys.get((Family.READ, base_key(key)))

    def named(self, name: str) -> SemanticObject | None:
        return self._named.get(name)

    def of_file(self, key: str) -> Iterator[SemanticObject]:
        """Its newest reading, and what is known by its name."""
        yield from (each for each in (self.read(key), self.named(base_key(key))) if each is not None)


def of(made: SemanticObject, index: Index) -> list[Relationship]:
    """What a new object supersedes, depends on and references, among those of the index (it is not in it yet)."""
    found = [Relationship(made.id, each.id, RelationType.SUPERSEDES) for each in index.covered(made)]
    taken = {each.target for each in found} | {made.id}
    if made.source_key and family(made) in (Family.EDIT, Family.WRITE) and (read := index.read(made.source_key)):
        found.append(Relationship(made.id, read.id, RelationType.DEPENDS_ON))
        taken.add(read.id)
    names = (*made.key_entities, *(paths(made.source_key) + urls(made.source_key) if made.source_key else []))
    referred: dict[UUID, None] = {}
    for name in names:
        other = index.named(name)
        if other is not None and other.id not in taken and other.source_key != made.source_key:
            referred.setdefault(other.id)
    found += [Relationship(made.id, each, RelationType.REFERENCES) for each in list(referred)[:MOST_REFERENCES]]
    return found


# --- a transcript --------------------------------------------------------------------------------------------------------

NOVELTY_OBJECTS = 64
"""Newest objects that a new one is compared with: what is older than that was forgotten by the model too."""
NAMELESS = "tool"
"""The tool of a result whose call is not in the transcript."""


class Segmentation(Struct, frozen=True):
    """What is new in a transcript. `admissions`: of all contents that were looked at; `marks`: to be known from now on."""

    objects: tuple[SemanticObject, ...] = ()
    relationships: tuple[Relationship, ...] = ()
    admissions: tuple[ObjectAdmission, ...] = ()
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
    admissions: list[ObjectAdmission] = field(default_factory=list)
    done: set[bytes] = field(default_factory=set)
    index: Index = field(default_factory=Index)
    recent: list[frozenset[str]] = field(default_factory=list)
    indexed: bool = False
    """Whether the index has the objects of before: a request that brings nothing new does not pay for it."""

    def tool_result(self, position: int) -> None:
        text = text_of(self.messages[position])
        if len(text) < MIN_TOKENS:  # a token is a character at least, but in few scripts
            return
        name, arguments = self.calls.get(position, (NAMELESS, None))
        call = understand(name, arguments)
        made = self._admit(position, text, Fragment(0, len(text), of_result(text, call), call))
        if made is not None and made.object_type == ObjectType.ERROR_CONTEXT:
            edited = (each for key in self._edits_before(position) for each in self.index.of_file(key))
            cause = next((each for each in edited if each.id != made.id), None)
            self.relations += [Relationship(made.id, cause.id, RelationType.CAUSED_BY)] if cause else []

    def pastes(self, position: int) -> None:
        text = text_of(self.messages[position])
        for piece in pastes(text, self.count):
            self._admit(position, text, piece)

    def statement(self, position: int) -> None:
        text = text_of(self.messages[position])
        found = of_statement(text) if len(text) >= MIN_TOKENS else None
        if found is not None:
            self._admit(position, text, Fragment(0, len(text), found, SAID))

    def end_phases(self) -> None:
        """The phases of conversation that have ended: their texts, without what is an object by itself."""
        held: dict[bytes, list[ObjectSpan]] = {}
        for each in (*self.before, *self.made):
            if not is_phase(each):
                for part in each.parts:
                    held.setdefault(part.mark, []).append(part)
        current: list[int] = []
        words: set[str] = set()
        answers = 0
        begun = False
        for position, role in enumerate(self.transcript.roles):
            mark = self.marks[position]
            if role not in _SPEAKERS or mark is None:
                continue
            if role == "user" and not begun:
                begun = True
                continue
            if _phase_mark(mark) in self.known:
                continue
            said = frozenset(terms(text_of(self.messages[position])[:20_000]))
            change = role == "user" and answers >= MIN_TURNS and changes_subject(said, frozenset(words))
            if current and (change or answers >= PHASE_TURNS):
                self._phase(current, held)
                current, words, answers = [], set(), 0
            current.append(position)
            words |= said
            answers += role == "assistant"

    def _phase(self, positions: Sequence[int], held: Mapping[bytes, Sequence[ObjectSpan]]) -> None:
        said: list[str] = []
        parts: list[ObjectSpan] = []
        titles: dict[str, str] = {}
        own: list[bytes] = []
        for position in positions:
            role, mark = self.transcript.roles[position], self.marks[position]
            assert mark is not None, "it is no system message"
            own.append(mark)
            text = text_of(self.messages[position])
            for start, stop in _free(text, held.get(mark, ())):
                piece = text[start:stop].strip()
                said.append(f"{_SPEAKERS[role]}: {piece}")
                parts.append(ObjectSpan(mark, start, stop))
                titles.setdefault(role, " ".join(piece[:240].split()))
        self.done.update(map(_phase_mark, own))
        whole = "\n\n".join(said)
        tokens = count_bounded(whole, self.count)
        if tokens < MIN_PHASE_TOKENS:
            return
        first, last = self.turns[positions[0]], self.turns[positions[-1]]
        inside = [
            one for one in (*self.before, *self.made) if first <= one.source_turn_start <= last and not is_phase(one)
        ]
        key = uuid5(self.session, f"{blake2b(b''.join(own), digest_size=HASH_BYTES).hexdigest()}:phase")
        call = UnderstoodCall("", Family.OTHER, None)
        made = self._object(key, whole, tuple(parts), type_of(inside), call, (first, last), tokens)
        what = "Debugging" if made.object_type == ObjectType.DEBUGGING_SESSION else "Conversation"
        title = clip(titles.get("user") or titles.get("assistant", ""), 120)
        line = fitting(f"{what}, turns {first}–{last}: “{title}”", STUB_TOKENS, self.count)
        made = replace(made, stub=line, tokens_l3=self.count(line))
        self.made.append(made)
        self.relations += [Relationship(made.id, each.id, RelationType.PARENT_OF) for each in inside]

    def _admit(self, position: int, text: str, piece: Fragment) -> SemanticObject | None:
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
            (ObjectSpan(mark, piece.start, piece.stop),),
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
        relations = of(made, self.index)
        self.relations += relations
        self.made.append(made)
        self._remember(made)
        return made

    def _object(
        self,
        key: UUID,
        content: str,
        parts: tuple[ObjectSpan, ...],
        object_type: ObjectType,
        call: UnderstoodCall,
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
        if not is_phase(made):
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
                if looked == EDITS_BACK:
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
