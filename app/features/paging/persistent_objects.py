"""Which objects of a session outlast it, and what is remembered of each (seed 002, "Cross-Session Memory"). Pure.

An object lasts when something speaks for it: the model asked it back, or asked about it in several turns, somebody pinned
it, or it was read again, the same, in a later conversation. It does not when the same key was read since with another content,
or its file was edited: it is not so any more.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from app.features.paging.content_types import PASTED, SAID
from app.features.paging.keys import Family, base_key
from app.features.paging.outline import fitting
from app.features.paging.persistence_store import Content, ObjectEvidence, Origin
from app.features.paging.quotes import AnswerSource, answer
from app.features.paging.shrink import shrink
from app.features.paging.values import ContentKind, Counter
from app.memory.text import normalise
from app.store.ids import mark_of

ASKED_TURNS = 2
"""Turns with questions about an object that speak for it: one question may be a whim."""
MOST = 50
"""Objects of one session that become memories at a time, those first for which most speaks."""
MEMORY_TOKENS = 300
"""Most tokens of a memory of an object: as much as an answer to a question about it (`answering.ANSWER_TOKENS`)."""
QUOTED_TOKENS = 100
"""Of it for each question: a passage of some ten lines."""

_WRITES = frozenset({Family.EDIT.value, Family.WRITE.value})


class PersistentObject(NamedTuple):
    """A content that is to be remembered. `reading`: its last one; `evidence`: what speaks for it, over all `readings` of it in
    the session; `fresh`: as much of it as is no memory yet."""

    reading: ObjectEvidence
    readings: tuple[ObjectEvidence, ...]
    evidence: int
    fresh: int


def evidence(reading: ObjectEvidence) -> int:
    """How much speaks for an object: each restoration, each turn in which it was asked about (two at least), a pin that comes
    from neither, and that it was read before."""
    asked = reading.asked_turns if reading.asked_turns >= ASKED_TURNS else 0
    pin = reading.pinned and not reading.restores and not asked
    return reading.restores + asked + pin + reading.again


def place_of(reading: ObjectEvidence) -> str | None:
    """What a content is known by beside itself: two that share it are readings of the same. None: it has no key, or is the note
    of an edit, which says what was done and not what is so."""
    return None if reading.key is None or reading.family in _WRITES else f"object:{reading.family}:{reading.key}"


def file_of(reading: ObjectEvidence) -> str | None:
    """The file that was read, all of it or some lines, or edited."""
    if reading.key is None or reading.family not in (Family.READ.value, *_WRITES):
        return None
    return f"object:file:{base_key(reading.key)}"


def by_tool(reading: ObjectEvidence) -> bool:
    """Whether a tool gave it, rather than that the user brought it, or the assistant said it."""
    return reading.tool is not None and reading.tool not in (PASTED.tool, SAID.tool)


def content_key(content_hash: bytes) -> str:
    """What a content is known by, whatever it is a reading of."""
    return f"object:{content_hash.hex()}"


def latest(readings: Iterable[ObjectEvidence]) -> dict[str, ObjectEvidence]:
    """The last reading of each place, and the last edit of each file. `readings`: in their order."""
    found: dict[str, ObjectEvidence] = {}
    for each in readings:
        key = file_of(each) if each.family in _WRITES else place_of(each)
        if key is not None:
            found[key] = each
    return found


def lasting(readings: Sequence[ObjectEvidence]) -> list[PersistentObject]:
    """Contents for which more speaks than is known yet, those first for which most does; at most `MOST`."""
    last, order = latest(readings), {each.object_id: n for n, each in enumerate(readings)}
    alike: dict[tuple[str | None, bytes], list[ObjectEvidence]] = {}
    for each in readings:
        alike.setdefault((place_of(each), each.content_hash), []).append(each)
    found: list[PersistentObject] = []
    for (place, content_hash), same in alike.items():
        edit = last.get(file_of(same[-1]) or "")
        edited = edit is not None and order[edit.object_id] > order[same[-1].object_id]
        if same[-1].family in _WRITES or edited or (place is not None and last[place].content_hash != content_hash):
            continue
        speaks, fresh = sum(map(evidence, same)), sum(max(0, evidence(each) - each.remembered) for each in same)
        if fresh:
            found.append(PersistentObject(same[-1], tuple(same), speaks, fresh))
    return sorted(found, key=lambda each: -each.evidence)[:MOST]


def origins_of(readings: Iterable[ObjectEvidence], origins: Sequence[Origin]) -> dict[UUID, Origin]:
    """The message that each object stands in, the first of several; none for one that is not stored.

    `origins`: all of the conversation, in their order: messages that say the same are told by how many there were before.
    """
    seen: Tally[bytes] = Tally()
    at: dict[bytes, Origin] = {}
    for each in origins:
        at.setdefault(mark_of(each.message_hash, seen[each.message_hash]), each)
        seen[each.message_hash] += 1
    return {each.object_id: at[each.marks[0]] for each in readings if each.marks and each.marks[0] in at}


def text_of(reading: ObjectEvidence, content: Content, count: Counter) -> str:
    """What is remembered of an object, on one line: its stub, the passages that its last questions were answered with, and as
    much of L2 as there is room for. Nothing in other words than its own."""
    kind = ContentKind(reading.kind)
    told = [reading.stub]
    for question in content.questions:
        source = AnswerSource(reading.object_id, "", kind, content.text, key=reading.key)
        for best in answer(question, [source], count, QUOTED_TOKENS).quotes[:1]:
            told += [_flat(best.text)] if _flat(best.text) not in told else []
    compact = content.compact or shrink(content.text, kind, count, reading.key, reading.tokens).compact.text
    told.append(_flat(compact))
    return normalise(fitting(" – ".join(told), MEMORY_TOKENS, count))


def told_of(reading: ObjectEvidence) -> Mapping[str, object]:
    """What a memory tells of the object that it was (`details.object`)."""
    return {
        "id": str(reading.object_id),
        "type": reading.object_type,
        "tool": reading.tool,
        "key": reading.key,
        "hash": reading.content_hash.hex(),
        "tokens": reading.tokens,
    }


def _flat(text: str) -> str:
    return " ".join(text.split())
