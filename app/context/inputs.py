"""What of a compile is kept so that it can be run again as of then: numbers and ids, never texts.

A candidate's own numbers (the ranking's, and what counters said of a memory at that moment) stand here; its id, tier, tokens
and span stand in the audit, in the same order; its words are read again from history and memory, as far as they may still be
shown. Numbers are packed (base64 of little-endian columns): as JSON they would take three times the space and ten times as
long.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from struct import Struct
from typing import Any, NamedTuple
from uuid import UUID

from app.context.candidates import Candidate
from app.context.request import CompileRequest

VERSION = 1

_NEVER = -(2**63)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NAMED, _ALONE = 1, 2

RANKED = Struct("<ffB")
"""Of every item: `near_text`, `near_vector`, and whether its speaker is named (1) and it has one message as its origin (2)."""
COUNTED = Struct("<ffiqB")
"""Of every memory: what moves with its use. `used`: microseconds since 1970."""
SEEN = Struct("<f")
"""Of every item its own cosine (NaN: none), where the profile asks for it."""


class Numbers(NamedTuple):
    """The numbers that one item was scored by. What a message has no number for is as retrieval has it."""

    near_text: float
    near_vector: float
    named: float
    alone: bool
    similarity: float | None = None
    confidence: float = 1.0
    importance: float = 0.5
    access_count: int = 0
    last_accessed_at: datetime | None = None
    provenance_type: int | None = None


@dataclass(frozen=True, slots=True)
class Kept:
    """The inputs of a compile, read again. `path`: what the gateway kept of the way to the session's earlier messages."""

    now: datetime
    model: str
    session_id: UUID
    new_session: bool
    confined: bool
    visible_from: int
    server_managed: bool
    profile: str
    epoch: int
    live: tuple[UUID, ...]
    mneme: str
    cap: int
    search: bool
    retrieval: UUID | None
    ancestors: tuple[UUID, ...]
    gone: frozenset[UUID]
    summary: tuple[bytes, int] | None
    system: tuple[bytes, int] | None
    path: Mapping[str, Any] | None
    packed: Mapping[str, str]


@cache
def own_version() -> str:
    """Mneme's own version, as it stands beside what was compiled by it."""
    return version("mneme-proxy")


def keep(
    request: CompileRequest, audit: Mapping[str, Any], considered: Sequence[Candidate], cap: int, *, similarity: bool
) -> dict[str, Any]:
    """What `Compiler` adds to its inputs. `audit`: as `explain` made it, whose items the numbers run along; `cap`: most tokens
    of a block; `similarity`: the profile asks for the items' own cosines."""
    kept: dict[str, Any] = {"v": VERSION, "mneme": own_version(), "cap": cap}
    if not request.search:
        kept["search"] = False
    if request.scope.session != request.session_id:
        kept["retrieval"] = _text(request.scope.session)
    if request.scope.ancestors:
        kept["ancestors"] = [str(each) for each in request.scope.ancestors]
    if request.gone:
        kept["gone"] = sorted(str(each) for each in request.gone)
    if audit["rebased"] is not None:  # those that were dropped: what they held decided it
        kept["live"] = [str(each.message_id) for each in request.blocks]
    if request.summary:
        kept["summary"] = [digest(request.summary).hex(), request.summary_tokens]
    if request.system_prompt is not None:
        kept["system"] = [digest(request.system_prompt).hex(), request.system_prompt_tokens]
    return kept | pack(audit["items"]["id"], considered, similarity=similarity)


def pack(wanted: Sequence[UUID], considered: Sequence[Candidate], *, similarity: bool) -> dict[str, str]:
    """The numbers of these items, in that order; nothing where there is none."""
    if not wanted:
        return {}
    by_id = {each.id: each for each in considered}
    items = [by_id[each] for each in wanted]
    memories = [each for each in items if each.source == "memory"]
    put = RANKED.pack
    ranked = [
        put(each.near_text, each.near_vector, (_NAMED if each.named else 0) | (_ALONE if each.origin else 0))
        for each in items
    ]
    packed = {"ranked": _text_of(ranked)}
    if memories:
        put = COUNTED.pack
        counted = [
            put(
                each.confidence,
                each.importance,
                each.access_count,
                _micros(each.last_accessed_at),
                each.provenance_type,
            )
            for each in memories
        ]
        packed["counted"] = _text_of(counted)
    if similarity:
        packed["seen"] = _text_of(
            [SEEN.pack(each.similarity if each.similarity is not None else math.nan) for each in items]
        )
    return packed


def read(inputs: Mapping[str, Any]) -> Kept | None:
    """The inputs again; None where they were kept by a Mneme that cannot do this, or by a later one."""
    if inputs.get("v") != VERSION:
        return None
    return Kept(
        now=datetime.fromisoformat(inputs["now"]),
        model=inputs["model"],
        session_id=UUID(inputs["session"]),
        new_session=inputs["new_session"],
        confined=inputs["confined"],
        visible_from=inputs["visible_from"],
        server_managed=inputs["server_managed"],
        profile=inputs["profile"],
        epoch=inputs["epoch"],
        live=tuple(UUID(each) for each in inputs["live"]),
        mneme=inputs["mneme"],
        cap=inputs["cap"],
        search=inputs.get("search", True),
        retrieval=_uuid(inputs.get("retrieval", inputs["session"])),
        ancestors=tuple(UUID(each) for each in inputs.get("ancestors", ())),
        gone=frozenset(UUID(each) for each in inputs.get("gone", ())),
        summary=_named(inputs.get("summary")),
        system=_named(inputs.get("system")),
        path=inputs.get("path"),
        packed={name: inputs[name] for name in ("ranked", "counted", "seen") if name in inputs},
    )


def unpack(packed: Mapping[str, str], sources: Sequence[str]) -> list[Numbers]:
    """The numbers of the audit's items, whose sources (`memory` or `message`) these are. Raises ValueError where they do not
    belong together."""
    ranked = _unpack(packed, "ranked", RANKED, len(sources))
    memories = sum(1 for each in sources if each == "memory")
    counted = iter(_unpack(packed, "counted", COUNTED, memories) if memories else ())
    seen = _unpack(packed, "seen", SEEN, len(sources)) if "seen" in packed else [(math.nan,)] * len(sources)
    found = []
    for source, (text, vector, flags), (cosine,) in zip(sources, ranked, seen, strict=True):
        own = Numbers(text, vector, float(flags & _NAMED), bool(flags & _ALONE), cosine if cosine == cosine else None)
        if source == "memory":
            confidence, importance, uses, used, provenance = next(counted)
            own = own._replace(
                confidence=confidence,
                importance=importance,
                access_count=uses,
                last_accessed_at=_EPOCH + used * _MICROSECOND if used != _NEVER else None,
                provenance_type=provenance,
            )
        found.append(own)
    return found


def digest(text: str) -> bytes:
    """By which a text that is not kept here is known again: SHA-256 of its UTF-8 (as `system_prompts` has it)."""
    return sha256(text.replace("\0", "\ufffd").encode("utf-8", "replace")).digest()


def _text_of(rows: Sequence[bytes]) -> str:
    return b64encode(b"".join(rows)).decode()


def _unpack(packed: Mapping[str, str], name: str, kind: Struct, many: int) -> list[tuple[Any, ...]]:
    whole = b64decode(packed.get(name, ""))
    if len(whole) != many * kind.size:
        raise ValueError(f"{len(whole) // kind.size} numbers for {many} items")
    return list(kind.iter_unpack(whole))


def _micros(at: datetime | None) -> int:
    return (at - _EPOCH) // _MICROSECOND if at is not None else _NEVER


def _text(value: UUID | None) -> str | None:
    return str(value) if value is not None else None


def _uuid(value: str | None) -> UUID | None:
    return UUID(value) if value is not None else None


def _named(value: Sequence[Any] | None) -> tuple[bytes, int] | None:
    return (bytes.fromhex(value[0]), value[1]) if value is not None else None
