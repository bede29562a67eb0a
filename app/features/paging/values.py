"""The values of paging (seed 002 §1): semantic objects at five fidelities, how they relate, what is stored of a session, what
one call changes of it. How an object is shown, which words a text has, and what a call's explanation tells. Pure.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple
from uuid import UUID

from msgspec import Struct

from app.context.assemble import neutralise
from app.memory.text import NO_TOPIC

Counter = Callable[[str], int]
"""Tokens of a text, as the session's model counts them."""

WINDOW_TURNS = 10
"""Turns in which the questions about an object are counted."""
SEED_WEIGHTS = (0.7, 0.3)
"""Of likeness and words, in seed 002 §2.3."""
WEIGHTS = (0.3, 0.7)
"""Those that find more. With the packaged vectors, over a session of 160 results and 191 questions about them, the right object
is among the first three for all of them, with the seed's for 151; of the 94 questions of `loadtests.micro_faults` for all, with
either (docs/explanation/paging.md)."""
SATURATION = 1.2
"""k of the text score, x / (x + k): words that a content has once count for half."""


class ObjectType(StrEnum):
    """Seed 002 §1.2."""

    CONVERSATION_PHASE = "conversation_phase"
    DESIGN_DECISION = "design_decision"
    DEBUGGING_SESSION = "debugging_session"
    FILE_CONTEXT = "file_context"
    TOOL_RESULT = "tool_result"
    PLAN = "plan"
    ERROR_CONTEXT = "error_context"
    EXTERNAL_REFERENCE = "external_reference"


class Fidelity(IntEnum):
    """How much of an object is shown; a larger number is less (seed 002 §1.2)."""

    FULL = 0
    DETAILED = 1
    COMPACT = 2
    STUB = 3
    EVICTED = 4


class RelationType(StrEnum):
    """Seed 002 §1.3."""

    PARENT_OF = "parent_of"
    CAUSED_BY = "caused_by"
    REFERENCES = "references"
    SUPERSEDES = "supersedes"
    DEPENDS_ON = "depends_on"


class Trigger(StrEnum):
    """Why a fidelity changed (seed 002 §1.5)."""

    PRESSURE = "pressure"
    ACCESS = "access"
    FAULT = "fault"
    COOPERATIVE = "cooperative"
    GOAL_CHANGE = "goal_change"


class FaultType(StrEnum):
    """Seed 002 §1.4."""

    FULL_RESTORE = "full_restore"
    MICRO_FAULT = "micro_fault"
    ENTROPY_TRIGGERED = "entropy_triggered"


class Zone(StrEnum):
    """How full the prompt is (seed 002 §1.5); `pressure` has the borders."""

    NORMAL = "normal"
    CAUTION = "caution"
    WARNING = "warning"
    CRITICAL = "critical"
    EMERGENCY = "emergency"


class ContentKind(StrEnum):
    """What a content is made of: how it can be shortened."""

    CODE = "code"
    LOG = "log"
    JSON = "json"
    TABLE = "table"
    DIFF = "diff"
    LISTING = "listing"
    PROSE = "prose"


class ObjectSpan(Struct, frozen=True):
    """`text[start:stop]` of the message with this mark (`mark_of`) in the transcript."""

    mark: bytes
    start: int
    stop: int


class Shrunk(Struct, frozen=True):
    """An object's text at L1 or L2. `losses`: what it dropped of the level above; `can_answer`: what it still tells."""

    text: str
    tokens: int
    losses: tuple[str, ...] = ()
    can_answer: tuple[str, ...] = ()


class SemanticObject(Struct, frozen=True):
    """A row of `semantic_objects` (seed 002 §1.2). Turns count the requests of a session: the assistant's messages before it.

    `content`: L0, empty where the caller had no need to load it; of a phase each text is preceded by its speaker.
    `parts`: where it stands in the transcript, in order. `content_hash`: 16 bytes of BLAKE2b over the content, for the
    fault history. `detailed`, `compact`: L1 and L2, None until they were made. `tags`: the family of tools, the kind,
    the language. `last_accessed`: the turn.
    """

    id: UUID
    object_type: ObjectType
    kind: ContentKind
    content: str
    stub: str
    tokens_l0: int
    tokens_l3: int
    parts: tuple[ObjectSpan, ...]
    content_hash: bytes
    source_turn_start: int
    source_turn_end: int
    source_tool: str | None = None
    source_key: str | None = None
    detailed: Shrunk | None = None
    compact: Shrunk | None = None
    fault_when: tuple[str, ...] = ()
    key_entities: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    fidelity: Fidelity = Fidelity.FULL
    pinned: bool = False
    pin_reason: str | None = None
    last_accessed: int = 0
    access_count: int = 0
    fault_count: int = 0
    micro_fault_count: int = 0
    shrunk: bool = False
    """Whether making L1 and L2 was tried; then a missing level would not be shorter."""

    def has(self, level: Fidelity) -> bool:
        """Whether it can be shown at this level: L1 and L2 only once they were made."""
        if level == Fidelity.DETAILED:
            return self.detailed is not None
        if level == Fidelity.COMPACT:
            return self.compact is not None
        return True

    def tokens_at(self, level: Fidelity) -> int:
        """Tokens of its text at a level; 0 for one that was not made, as in the seed's query (§2.4)."""
        if level == Fidelity.FULL:
            return self.tokens_l0
        if level == Fidelity.DETAILED:
            return self.detailed.tokens if self.detailed else 0
        if level == Fidelity.COMPACT:
            return self.compact.tokens if self.compact else 0
        return self.tokens_l3 if level == Fidelity.STUB else 0

    def text_at(self, level: Fidelity) -> str:
        """Its text at a level; empty for one that was not made, and when evicted."""
        if level == Fidelity.FULL:
            return self.content
        if level == Fidelity.DETAILED:
            return self.detailed.text if self.detailed else ""
        if level == Fidelity.COMPACT:
            return self.compact.text if self.compact else ""
        return self.stub if level == Fidelity.STUB else ""


class Relationship(Struct, frozen=True):
    """`source` references (was caused by, supersedes, depends on, is the parent of) `target` (seed 002 §1.3)."""

    source: UUID
    target: UUID
    relation: RelationType


class Transition(Struct, frozen=True):
    """A change of fidelity (seed 002 §1.5). `zone`, `token_count`: of the whole prompt when the change was decided, for a batch
    that is before its own changes, and after the turn has restored objects."""

    object_id: UUID
    before: Fidelity
    after: Fidelity
    trigger: Trigger
    turn: int
    zone: Zone
    token_count: int


class ObjectAdmission(Struct, frozen=True):
    """A decision on whether a content becomes an object (seed 002 §1.6). Scores are 0 to 1; `object_id` is None when
    rejected."""

    object_id: UUID | None
    admitted: bool
    total: float
    type: float
    novelty: float
    utility: float
    recency: float
    threshold: float
    content_preview: str


class FaultRecord(NamedTuple):
    turn: int
    question: str


class Paged(Struct, frozen=True):
    """The paging of a session, as stored.

    `objects`: in the order in which they were made, without their contents; of L1 and L2 the text is there only where it is
    what is shown now (`current_fidelity`), else it is empty (seed 002 §2.1). `marks`: of all messages that were segmented.
    `restored`: objects that the model asked back since the last decision; `raised`: that its questions are to raise;
    `released`: that somebody said are needed no more. `asked`: the questions of the last turns about each object. `hidden`:
    exchanges of the ledger, by the chain hash of the answer that they belong to, of those that were asked for. `offered`: a
    request of this session had the phantom tools.
    """

    zone: Zone = Zone.NORMAL
    offered: bool = False
    marks: frozenset[bytes] = frozenset()
    objects: tuple[SemanticObject, ...] = ()
    relationships: tuple[Relationship, ...] = ()
    restored: frozenset[UUID] = frozenset()
    raised: frozenset[UUID] = frozenset()
    released: frozenset[UUID] = frozenset()
    asked: Mapping[UUID, tuple[FaultRecord, ...]] = {}
    hidden: Mapping[bytes, Mapping[str, Any]] = {}


NOTHING_PAGED = Paged()


class Fault(Struct, frozen=True):
    """A question that the model asked, or an object that it wanted back (seed 002 §1.4).

    `object_id`: the best object; None where nothing answered. `avoided_tokens`: what the content would have cost beside the
    answer. `latency_ms`: to handle it. `pin`: it pins the object; `raises`: it is to be shown a level better from the next turn
    on.
    """

    fault_id: UUID
    fault_type: FaultType
    turn: int
    created_at: datetime
    object_id: UUID | None = None
    content_hash: bytes | None = None
    question: str | None = None
    answer: str | None = None
    answer_tokens: int = 0
    avoided_tokens: int = 0
    latency_ms: int = 0
    pin: bool = False
    raises: bool = False


class PagingRecord(Struct, frozen=True):
    """What one call changes of a session's paging; written in the transaction of its turn, once.

    `tokens`: of the prompt as the client wrote it, with memory; `shown_tokens`: as it was sent (what paging saved is the
    difference). `objects`: new ones, with their contents. `uses`: objects that the last messages name. `heard`: objects whose
    restoration or raise is part of this decision. `hidden`: exchanges for the ledger, by the chain hash of their answer; one
    that is there already is replaced. `marks`: new ones. `decided`: it is a request's decision; else only what was found out
    beside one (segmented late, asked through the API, asked of a body that was sent once more), and how full the session is
    stays as it was. `levels`: L1 and L2 that the request made, because it could not wait for the job.
    """

    session_id: UUID
    turn: int
    zone: Zone
    budget: int
    tokens: int
    shown_tokens: int
    offered: bool = False
    marks: frozenset[bytes] = frozenset()
    objects: tuple[SemanticObject, ...] = ()
    relationships: tuple[Relationship, ...] = ()
    admissions: tuple[ObjectAdmission, ...] = ()
    transitions: tuple[Transition, ...] = ()
    pinned: frozenset[UUID] = frozenset()
    uses: frozenset[UUID] = frozenset()
    heard: frozenset[UUID] = frozenset()
    faults: tuple[Fault, ...] = ()
    hidden: Mapping[bytes, Mapping[str, Any]] = {}
    decided: bool = True
    levels: tuple[Levels, ...] = ()

    @property
    def avoided_tokens(self) -> int:
        """Tokens that were not sent upstream: what was shown shorter, and what was answered rather than restored."""
        shown_shorter = max(0, self.tokens - self.shown_tokens) if self.decided else 0
        return shown_shorter + sum(each.avoided_tokens for each in self.faults)


class Levels(Struct, frozen=True):
    """L1 and L2 of an object, as a job made them. `compact` is None where it would not be shorter."""

    object_id: UUID
    detailed: Shrunk | None
    compact: Shrunk | None
    fault_when: tuple[str, ...] = ()


# --- how an object is shown below full fidelity --------------------------------------------------------------------------
#
# What is quoted was written by somebody, so it is defused as in a memory block (`assemble.neutralise`), line by line. The
# opening delimiter has the session's nonce, which nothing else in the transcript has.

TAG = "mneme-object"
HANDLE_DIGITS = 8
"""Hex digits of a handle: the beginning of the object's id. Two of 1,000 objects share one in 1 of 10,000 sessions; the caller
then takes the newer."""
INDENT = 32
"""Most blanks that a quoted line keeps before its first word."""
TOLD_CHARS = 400
"""Longest list of losses, or of what can be answered, characters."""

FRAME_TOKENS = 64
"""Upper bound of all that stands around a text at L1 or L2 but the losses and answers: delimiters, nonce, handle, how
to ask; o200k."""
STUB_FRAME_TOKENS = 44
"""The same around a stub."""
EVICTED_TOKENS = 28
"""Upper bound of what is shown of an evicted object: its handle."""
REST_TOKENS = 28
"""Upper bound of what stands in the place of each further part of an object."""
TOLD_CHARS_PER_TOKEN = 3
"""Characters of our own English that a token has at least: it has 4 to 5."""

_OPENER = re.compile(r"[<＜﹤](?=[\s/]*mneme[\W_]?object)", re.IGNORECASE)


def handle_of(object_id: UUID) -> str:
    """What the model calls an object by."""
    return object_id.hex[:HANDLE_DIGITS]


def defused(text: str) -> str:
    """Quoted lines that can be nothing but quoted text; the same when done twice."""
    lines: list[str] = []
    for line in text.splitlines():
        plain = neutralise(line)
        indent = min(INDENT, len(line) - len(line.lstrip(" \t"))) if line[:1] in (" ", "\t") else 0
        lines.append(" " * indent + plain if plain else "")
    return _OPENER.sub("(", "\n".join(lines)).strip("\n")


def render(made: SemanticObject, level: Fidelity, nonce: str, tools: Iterable[str]) -> str:
    """An object at a level below full, in the place of its first part. Above that it is the client's own text, untouched.
    `tools`: what asks, and what restores, are called in this request."""
    query, restore = tools
    opening = f"<{TAG} {nonce} id={handle_of(made.id)} L{int(level)}"
    if level == Fidelity.EVICTED:
        return f"{opening}/>"
    title = " ".join(defused(made.stub).split())
    if level == Fidelity.STUB:
        how = f"Left out: its content; ask {query}(question) or {restore}(id)."
        return f"{opening}>{title}. {how}</{TAG}>"
    losses, answers = _told(made, level)
    lines = [f"{opening}>", title, defused(made.text_at(level))]
    lines += [f"Left out: {losses}."] if losses else []
    lines += [f"It tells {answers}."] if answers else []
    lines += [f"Ask {query}(question) for details, or {restore}(id) to see all of it.", f"</{TAG}>"]
    return "\n".join(lines)


def render_rest(object_id: UUID, nonce: str) -> str:
    """What stands in the place of the further parts of an object that is shown at its first."""
    return f"<{TAG} {nonce} id={handle_of(object_id)} see above/>"


def shown_tokens(made: SemanticObject, level: Fidelity) -> int:
    """Upper bound of the tokens (o200k) of an object at a level, with all that stands around it, without rendering it."""
    if level == Fidelity.FULL:
        return made.tokens_l0
    rest = REST_TOKENS * (len(made.parts) - 1)
    if level == Fidelity.EVICTED:
        return EVICTED_TOKENS + rest
    if level == Fidelity.STUB:
        return made.tokens_l3 + STUB_FRAME_TOKENS + rest
    told = sum(map(len, _told(made, level))) // TOLD_CHARS_PER_TOKEN
    return made.tokens_at(level) + made.tokens_l3 + told + FRAME_TOKENS + rest


def _told(made: SemanticObject, level: Fidelity) -> tuple[str, str]:
    """Losses and answers of a level. What L2 lost is told against L1: both lists together say what is missing of the whole."""
    detailed, compact = made.detailed, made.compact
    shrunk = detailed if level == Fidelity.DETAILED else compact
    if shrunk is None:
        return "", ""
    lost = shrunk.losses
    if level == Fidelity.COMPACT and detailed is not None:
        lost = tuple(dict.fromkeys((*shrunk.losses, *detailed.losses)))
    return _listed(lost), _listed(shrunk.can_answer)


def _listed(told: tuple[str, ...]) -> str:
    text = "; ".join(neutralise(each) for each in told)
    return _OPENER.sub("(", text if len(text) <= TOLD_CHARS else text[: TOLD_CHARS - 1] + "…")


# --- words of prose and of code ------------------------------------------------------------------------------------------
#
# They are brought to one form: a question says "expired tokens" where the code says `TOKEN_EXPIRED`. Linear.

MAX_TERMS_CHARS = 262_144
"""Characters of a text whose words are looked at (some 65,000 tokens): a larger one is known by its beginning."""

_WORD = re.compile(r"[^\W_]+")
_HUMPS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_ENDINGS = ("ations", "ation", "ings", "ing", "ies", "ied", "ers", "ed", "er", "es", "s", "y", "e")
_LEFT = 3
"""Letters that a word keeps when its ending is taken off."""


def stem(word: str) -> str:
    """A lower-case word without its ending, so that expire, expires, expired and expiry are one. Rough on purpose: it is only
    ever compared with itself."""
    if word.isdigit() or not word.isascii():
        return word
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _LEFT:
            word = word[: -len(ending)]
            break
    # stopped and stop, running and run
    return word[:-1] if len(word) > _LEFT and word[-1] == word[-2] and word[-1] not in "aeiouls" else word


def terms(text: str) -> list[str]:
    """The words of a text with a content, in order: `authMiddleware` is three, itself and its two halves; numbers count."""
    found: list[str] = []
    for word in _WORD.findall(text[:MAX_TERMS_CHARS]):
        lower = word.lower()
        if lower in NO_TOPIC or (len(lower) < 2 and not lower.isdigit()):
            continue
        found.append(stem(lower))
        if word.isascii() and not (word.islower() or word.isdigit()):
            humps = _HUMPS.findall(word)
            if len(humps) > 1:
                found += [stem(each.lower()) for each in humps if len(each) > 1 and each.lower() not in NO_TOPIC]
    return found


def overlap(words: frozenset[str], others: frozenset[str]) -> float:
    """The share of `words` that is in `others`, 0 to 1; 0 for no words."""
    return len(words & others) / len(words) if words else 0.0


# --- the explanation of a call's paging ----------------------------------------------------------------------------------
#
# Objects that are shown in short are kept by their ids and levels, packed: a session may have hundreds, in each of its calls.


def explained(
    record: PagingRecord,
    shown: Iterable[SemanticObject],
    exchanges: int,
    tools: Iterable[str] | None,
    declined: str | None,
) -> dict[str, Any]:
    """The `paging` part of an explanation. `record`: tokens without memory; `shown`: the objects whose place may change, as
    they are shown; `exchanges`: how many of the ledger stand in the prompt; `tools`: names of the phantom tools; None: not
    offered, for `declined` where it was to be."""
    objects = list(shown)
    short = [each for each in objects if each.fidelity > Fidelity.FULL]
    at = [0] * len(Fidelity)
    for each in objects:
        at[each.fidelity] += 1
    return {
        "turn": record.turn,
        "budget": record.budget,
        "zone": record.zone.value,
        "tokens": record.tokens,
        "shown_tokens": record.shown_tokens,
        "at": at,
        "shown": {
            "ids": b64encode(b"".join(each.id.bytes for each in short)).decode(),
            "levels": "".join(str(int(each.fidelity)) for each in short),
        },
        "transitions": [
            [str(each.object_id), int(each.before), int(each.after), each.trigger.value] for each in record.transitions
        ],
        "exchanges": exchanges,
        "tools": list(tools) if tools is not None else None,
        "declined": declined,
    }


def expanded(part: Mapping[str, Any]) -> dict[str, Any]:
    """The part as the API shows it: the objects and what changed by name."""
    if "shown" not in part:
        return dict(part)  # not paged: it says why
    levels = ("L0", "L1", "L2", "L3", "L4")
    told = {key: value for key, value in part.items() if key not in ("at", "shown", "transitions")}
    packed = b64decode(part["shown"]["ids"])
    shown = [UUID(bytes=packed[at : at + 16]) for at in range(0, len(packed), 16)]
    return told | {
        "objects": dict(zip(levels, part["at"], strict=True)),
        "shown": [
            {"id": str(key), "fidelity": int(level)} for key, level in zip(shown, part["shown"]["levels"], strict=True)
        ],
        "transitions": [
            {"object_id": key, "from_fidelity": before, "to_fidelity": after, "trigger": why}
            for key, before, after, why in part["transitions"]
        ],
    }
