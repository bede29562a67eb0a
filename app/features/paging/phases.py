"""Phases of a conversation (seed 002 §1.2): what user and assistant said between two changes of subject. Pure, incremental.

A phase is an object once it has ended, so that none ever changes. The first message of the user never belongs to one: it says
what the session is for, and stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

from app.context.transcript import HASH_BYTES, text_of
from app.features.paging.outline import clip, fitting
from app.features.paging.shrink import STUB_TOKENS
from app.features.paging.values import Counter, ObjectSpan, ObjectType, SemanticObject
from app.features.paging.words import overlap, terms

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


class Phase(NamedTuple):
    """`first`, `last`: positions of its messages; `name`: what its id is made from; `marks`: of its messages, as phases
    know them."""

    first: int
    last: int
    name: str
    title: str
    text: str
    parts: tuple[ObjectSpan, ...]
    marks: frozenset[bytes]


def is_phase(made: SemanticObject) -> bool:
    return made.object_type in PHASES


def type_of(inside: Sequence[SemanticObject]) -> ObjectType:
    """What a phase with these objects was."""
    errors = sum(1 for each in inside if each.object_type == ObjectType.ERROR_CONTEXT)
    return ObjectType.DEBUGGING_SESSION if errors >= DEBUGGING_ERRORS else ObjectType.CONVERSATION_PHASE


def phase_mark(mark: bytes) -> bytes:
    """What a message is known by to the phases: it is read twice, for what is pasted in it and for its phase."""
    return blake2b(mark, digest_size=HASH_BYTES, person=b"mneme phase").digest()


def changes_subject(words: frozenset[str], before: frozenset[str]) -> bool:
    """Whether a message of these words leaves what was spoken of."""
    return len(words) >= MIN_WORDS and overlap(words, before) < CHANGED_OVERLAP


def ended(
    messages: Sequence[object],
    roles: Sequence[str],
    marks: Sequence[bytes | None],
    known: frozenset[bytes],
    held: Mapping[bytes, Sequence[ObjectSpan]],
) -> list[Phase]:
    """The phases that ended and are not known yet. `held`: parts of messages that are objects by themselves."""
    found: list[Phase] = []
    current: list[int] = []
    words: set[str] = set()
    answers = 0
    begun = False
    for position, role in enumerate(roles):
        mark = marks[position]
        if role not in _SPEAKERS or mark is None:
            continue
        if role == "user" and not begun:
            begun = True
            continue
        if phase_mark(mark) in known:
            continue
        said = frozenset(terms(text_of(messages[position])[:20_000]))
        change = role == "user" and answers >= MIN_TURNS and changes_subject(said, frozenset(words))
        if current and (change or answers >= PHASE_TURNS):
            found.append(_phase(messages, roles, marks, held, current))
            current, words, answers = [], set(), 0
        current.append(position)
        words |= said
        answers += role == "assistant"
    return found


def stub(title: str, first: int, last: int, object_type: ObjectType, count: Counter) -> str:
    """Its one line: what it was, when, and what the user asked first."""
    what = "Debugging" if object_type == ObjectType.DEBUGGING_SESSION else "Conversation"
    return fitting(f"{what}, turns {first}–{last}: “{clip(title, 120)}”", STUB_TOKENS, count)


def _phase(
    messages: Sequence[object],
    roles: Sequence[str],
    marks: Sequence[bytes | None],
    held: Mapping[bytes, Sequence[ObjectSpan]],
    positions: Sequence[int],
) -> Phase:
    said: list[str] = []
    parts: list[ObjectSpan] = []
    titles: dict[str, str] = {}
    own: list[bytes] = []
    for position in positions:
        mark = marks[position]
        assert mark is not None
        own.append(mark)
        text = text_of(messages[position])
        for start, stop in _free(text, held.get(mark, ())):
            piece = text[start:stop].strip()
            said.append(f"{_SPEAKERS[roles[position]]}: {piece}")
            parts.append(ObjectSpan(mark, start, stop))
            titles.setdefault(roles[position], " ".join(piece[:240].split()))
    name = blake2b(b"".join(own), digest_size=HASH_BYTES).hexdigest()
    title = titles.get("user") or titles.get("assistant", "")
    return Phase(
        positions[0],
        positions[-1],
        f"{name}:phase",
        title,
        "\n\n".join(said),
        tuple(parts),
        frozenset(map(phase_mark, own)),
    )


def _free(text: str, held: Sequence[ObjectSpan]) -> list[tuple[int, int]]:
    """What of a text no object holds."""
    spans: list[tuple[int, int]] = []
    at = 0
    for part in sorted(held, key=lambda each: each.start):
        spans.append((at, part.start))
        at = part.stop
    spans.append((at, len(text)))
    return [(start, stop) for start, stop in spans if text[start:stop].strip()]
