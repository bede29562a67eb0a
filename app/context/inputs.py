"""What of a compile is kept so that it can be run again as of then: numbers and ids, never texts.

A candidate's own numbers (the ranking's, and what counters said of a memory at that moment) stand here; its id, tier, tokens
and span stand in the audit, in the same order; its words are read again from history and memory, as far as they may still be
shown. Numbers are packed (base64 of little-endian columns): as JSON they would take three times the space and ten times as
long. Of the notes in a block a fact is kept by its ids (its words stand in the fact's own history, and go with it), the
tenant's profile with its text; of the cards that a message asks for their ids. What was known of the things that the question
names stands in the audit (`audit`), but for what that does not tell. What Mneme did at the user's word is kept in words of
Mneme's own.
"""

from __future__ import annotations

import math
import struct
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from itertools import repeat
from typing import Any, NamedTuple
from uuid import UUID

from msgspec import Struct, convert, field
from msgspec.structs import fields, replace

from app.context.assemble import Block
from app.context.budget import KNOWN_SECTIONS, Budgets
from app.context.candidates import Candidate
from app.context.notes import NotesDue, due_now
from app.context.request import CompileRequest
from app.context.score import PROFILES, Profile
from app.sources import Price
from app.store.user_profile import EndedFact

VERSION = 2

_NEVER = -(2**63)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NAMED, _ALONE = 1, 2

RANKED = struct.Struct("<fffB")
"""Of every item: `near_text`, `near_vector`, `timely`, and whether its speaker is named (1) and it has one message as its
origin (2)."""
COUNTED = struct.Struct("<ffiqB")
"""Of every memory: what moves with its use. `used`: microseconds since 1970."""
SEEN = struct.Struct("<f")
"""Of every item its own cosine, or its log-odds (NaN: none), where the profile asks for it."""
SURE = struct.Struct("<iq")
"""Of every memory, where the profile asks for it: how often it was said again, and since when it is sure (as `used`)."""
_COSINES = frozenset({"similarity", "semantic_similarity"})
"""Signals that read the items' own cosines."""
_BUDGETS = tuple(each.name for each in fields(Budgets))
_COLUMNS = ("ranked", "counted", "seen", "sure", "odds")


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
    timely: float = 0.0
    reinforcements: int = 0
    sure_since: datetime | None = None
    odds: float | None = None


class Terms(NamedTuple):
    """What a compiler is set to: `Compiler` has what each is. `profile`: the one that the question called for. `price`: of a
    token, where the profile has likelihoods; `asked`: whether memory was asked."""

    cap: int
    profile: Profile
    diversity: float | None
    budgets: Budgets
    questions: int
    price: Price | None = None
    asked: bool = True


class FactInput(NamedTuple):
    """A fact of the user's that bore on the message, or that stood in a live block: its id, its note's, the memory
    that said so last, since when it was so, and the messages that said it."""

    fact_id: UUID
    note: UUID
    memory: UUID | None
    since: datetime | None = None
    messages: tuple[UUID, ...] = ()


class WishInput(NamedTuple):
    """A standing wish that there was to say, or that stood in the prompt: the id of its memory, and the messages that
    said it."""

    memory: UUID
    messages: tuple[UUID, ...] = ()


class EndedInput(NamedTuple):
    """Of an item that was shown, a memory that was so no more, since when, and which had taken its place."""

    item: UUID
    memory: UUID
    at: datetime | None
    heir: UUID | None


class NotesInput(Struct, frozen=True):
    """What there was to say beside memories. `profile`: text of the tenant's; None where it stood in a live block already.
    `due`: of what was found, memories to ask the user about; None: the user was not to be asked at all."""

    profile_note: UUID | None = None
    profile: str | None = None
    facts: tuple[FactInput, ...] = ()
    due: Mapping[UUID, datetime] | None = None
    wishes: tuple[WishInput, ...] = ()
    borne: frozenset[UUID] = frozenset()
    """Notes of facts on which something bore that is not known again."""
    doubted: frozenset[UUID] = frozenset()
    """Of what was found, and behind the facts, memories in doubt."""


class DeedInput(NamedTuple):
    """What the block said that Mneme had done: its own words, and the memories that they named."""

    words: str
    items: tuple[UUID, ...]


class _Hex(bytes):
    """Bytes that JSON has as hexadecimal digits."""


class KeptInputs(Struct, frozen=True, kw_only=True):
    """The inputs of a compile, read again. `path`: what the gateway kept of the way to the session's earlier messages.
    `profile`: as it was asked for (the audit has the one that was taken); `weights`: of that one, where they are not ours.
    `learns`: what the user would say next was to be learned from. `known`: ids of what the ontology led to (`related`);
    None where there was nothing to know; `cards`: None where none were asked for, or read."""

    now: datetime
    model: str
    session_id: UUID = field(name="session")
    new_session: bool
    confined: bool
    visible_from: int
    server_managed: bool
    profile: str
    epoch: int
    live: tuple[UUID, ...]
    mneme: str
    cap: int
    budgets: Budgets
    questions: int
    retrieval: UUID | None
    packed: Mapping[str, str]
    notes: NotesInput
    diversity: float | None = None
    weights: Mapping[str, float] | None = None
    learns: bool = False
    search: bool = True
    ancestors: tuple[UUID, ...] = ()
    gone: frozenset[UUID] = frozenset()
    summary: tuple[_Hex, int] | None = None
    system: tuple[_Hex, int] | None = None
    path: Mapping[str, Any] | None = None
    known: Mapping[str, frozenset[str]] | None = None
    cards: tuple[UUID, ...] | None = None
    ended: tuple[EndedInput, ...] = ()
    price: Price | None = None
    asked: bool = True
    deeds: tuple[DeedInput, ...] = ()
    beyond: tuple[float, int] | None = None
    """Mean relevance, weighted by tokens, and total tokens of the candidates that were not fetched."""

    def terms(self, taken: str) -> Terms:
        """How the compiler was set; `taken`: the name of the profile that was taken."""
        profile = PROFILES[taken]
        if self.weights is not None:
            profile = replace(profile, weights=self.weights)
        if self.price is None:  # by the weights alone, as before there was a price
            profile = replace(profile, priced=False)
        return Terms(self.cap, profile, self.diversity, self.budgets, self.questions, self.price, self.asked)


@cache
def own_version() -> str:
    """Mneme's own version, as it stands beside what was compiled by it."""
    return version("mneme-proxy")


def keep(
    request: CompileRequest,
    query: str,
    scale: float,
    blocks: Sequence[Block],
    audit: Mapping[str, Any],
    considered: Sequence[Candidate],
    terms: Terms,
    ended: Sequence[EndedFact],
) -> dict[str, Any]:
    """What a compile was asked for, and how the compiler was set. `scale`: of the stored counts to the model's; `blocks`:
    the live ones; `audit`: as `explain` made it, whose items the numbers run along; `ended`: what was said to be so no
    more."""
    scope, profile = request.scope, terms.profile
    has = dict.fromkeys(KNOWN_SECTIONS, request.inquiry is not None)
    has |= {"cards": request.cards is not None, "working": request.has_tools, "turns": terms.budgets.turns is not None}
    kept: dict[str, Any] = {
        "v": VERSION,
        "mneme": own_version(),
        "cap": terms.cap,
        "budgets": {name: getattr(terms.budgets, name) for name in _BUDGETS if has.get(name, True)},
        "questions": terms.questions,
        "query": query,
        "now": request.now.isoformat(),
        "model": request.model,
        "session": str(request.session_id),
        "new_session": request.new_session,
        "confined": scope.confine is not None,
        "visible_from": scope.visible_from,
        "server_managed": request.server_managed,
        "answer_limit": request.answer_limit,
        "profile": request.profile,
        "epoch": request.block_epoch,
        # Of blocks that were dropped, those: what they held decided it.
        "live": [str(each.message_id) for each in (blocks if audit["rebased"] is None else request.blocks)],
        "scale": scale,
    }
    if scope.session != request.session_id:
        kept["retrieval"] = _text(scope.session)
    system = request.system_prompt
    unusual = {
        "price": terms.price,
        "asked": None if terms.asked else False,
        "diversity": terms.diversity,
        "weights": dict(profile.weights) if profile.weights != PROFILES[profile.name].weights else None,
        "learns": request.learns or None,
        "search": None if request.search else False,
        "ancestors": [str(each) for each in scope.ancestors] or None,
        "deeds": [[each.words, [str(item) for item, _ in each.items]] for each in request.deeds] or None,
        "gone": sorted(map(str, request.gone)) or None,
        "summary": [digest(request.summary).hex(), request.summary_tokens] if request.summary else None,
        "system": [digest(system).hex(), request.system_prompt_tokens] if system is not None else None,
        # Without words.
        "ended": [[str(each.item), str(each.memory), _iso(each.at), _text(each.heir)] for each in ended] or None,
    }
    kept |= {name: value for name, value in unusual.items() if value is not None}
    return kept | pack(audit["items"]["id"], considered, profile)


def sum_candidates(candidates: Sequence[tuple[float, int]]) -> tuple[float, int]:
    """Return the mean relevance, weighted by tokens, and the total tokens of candidates given as (relevance, tokens)."""
    tokens = sum(cost for _, cost in candidates)
    worth = sum(relevance * cost for relevance, cost in candidates)
    return (worth / tokens if tokens else 0.0, tokens)


def keep_notes(
    request: CompileRequest, audit: Mapping[str, Any], opened: NotesDue, blocks: Sequence[Block]
) -> dict[str, Any]:
    """What of the notes is kept: that which there was to say, and what stands in the blocks that stay (should they have to go,
    it would be said again)."""
    standing = request.standing
    live = {item for block in blocks for item in block.item_ids}
    kept: dict[str, Any] = {}
    if opened.profile:
        kept["profile"] = [str(standing.profile_note), standing.profile]
    elif standing.profile_note in live:
        kept["profile"] = [str(standing.profile_note), None]
    open_now = {each.note for each in opened.facts}
    facts = [each for each in standing.facts if each.note in open_now or each.note in live]
    if facts:
        kept["facts"] = [
            [str(each.fact_id), str(each.note), _text(each.memory), _iso(each.since), [*map(str, each.messages)]]
            for each in facts
        ]
    if wishes := [*opened.wishes, *(each for each in opened.heard if each.memory in live)]:
        kept["wishes"] = [[str(each.memory), [*map(str, each.messages)]] for each in wishes]
    if borne := [note for note, why in opened.why.items() if why in ("worth", "then")]:
        kept["borne"] = [*map(str, borne)]
    told = {*audit["items"]["id"], *(each.memory for each in facts)}
    if doubted := sorted(map(str, standing.doubted & told)):
        kept["doubted"] = doubted
    if due := due_now(standing, learns=request.learns and request.search):
        found = [each for each in audit["items"]["id"] if each in due]
        kept["due"] = {str(each): due[each].isoformat() for each in found}
    return {"notes": kept} if kept else {}


def pack(wanted: Sequence[UUID], considered: Sequence[Candidate], profile: Profile) -> dict[str, str]:
    """The numbers of these items, in that order, as far as the profile asks for them; nothing where there is none."""
    if not wanted:
        return {}
    by_id = {each.id: each for each in considered}
    items = [by_id[each] for each in wanted]
    memories = [each for each in items if each.source == "memory"]
    put = RANKED.pack
    flags = [(_NAMED if each.named else 0) | (_ALONE if each.origin else 0) for each in items]
    ranked = [put(one.near_text, one.near_vector, one.timely, own) for one, own in zip(items, flags, strict=True)]
    packed = {"ranked": _text_of(ranked)}
    if memories:
        put = COUNTED.pack
        used = [_micros(each.last_accessed_at) for each in memories]
        packed["counted"] = _text_of(
            [
                put(each.confidence, each.importance, each.access_count, at, each.provenance_type)
                for each, at in zip(memories, used, strict=True)
            ]
        )
        if profile.standing or profile.priced:
            sure = [SURE.pack(each.reinforcements, _micros(each.sure_since)) for each in memories]
            packed["sure"] = _text_of(sure)
    if profile.priced:
        packed["odds"] = _text_of([SEEN.pack(each.odds if each.odds is not None else math.nan) for each in items])
    if not _COSINES.isdisjoint(profile.weights):
        packed["seen"] = _text_of(
            [SEEN.pack(each.similarity if each.similarity is not None else math.nan) for each in items]
        )
    return packed


def read(inputs: Mapping[str, Any]) -> KeptInputs | None:
    """The inputs again; None where they were kept by a Mneme that cannot do this, or by a later one."""
    if inputs.get("v") != VERSION:
        return None
    notes = dict(inputs.get("notes", {}))
    notes["profile_note"], notes["profile"] = notes.get("profile", (None, None))
    packed = {name: inputs[name] for name in _COLUMNS if name in inputs}
    told = {"retrieval": inputs["session"], **inputs, "notes": notes, "packed": packed}
    return convert(told, KeptInputs, dec_hook=lambda kind, text: kind.fromhex(text))


def unpack(packed: Mapping[str, str], sources: Sequence[str]) -> list[Numbers]:
    """The numbers of the audit's items, whose sources (`memory` or `message`) these are. Raises ValueError where they do not
    belong together."""
    ranked = _unpack(packed, "ranked", RANKED, len(sources))
    memories = sum(1 for each in sources if each == "memory")
    counted = iter(_unpack(packed, "counted", COUNTED, memories) if memories else ())
    seen = _unpack(packed, "seen", SEEN, len(sources)) if "seen" in packed else [(math.nan,)] * len(sources)
    sure = iter(_unpack(packed, "sure", SURE, memories)) if "sure" in packed else repeat((0, _NEVER))
    judged = _unpack(packed, "odds", SEEN, len(sources)) if "odds" in packed else [(math.nan,)] * len(sources)
    found = []
    for source, (text, vector, timely, flags), (cosine,), (odds,) in zip(sources, ranked, seen, judged, strict=True):
        cosine, odds = (each if each == each else None for each in (cosine, odds))  # NaN is not itself
        named, alone = float(flags & _NAMED), bool(flags & _ALONE)
        own = Numbers(text, vector, named, alone, cosine, timely=timely, odds=odds)
        if source == "memory":
            confidence, importance, uses, used, provenance = next(counted)
            again, since = next(sure)
            own = own._replace(
                confidence=confidence,
                importance=importance,
                access_count=uses,
                last_accessed_at=_moment(used),
                provenance_type=provenance,
                reinforcements=again,
                sure_since=_moment(since),
            )
        found.append(own)
    return found


def digest(text: str) -> bytes:
    """By which a text that is not kept here is known again: SHA-256 of its UTF-8 (as `system_prompts` has it)."""
    return sha256(text.replace("\0", "\ufffd").encode("utf-8", "replace")).digest()


def _text_of(rows: Sequence[bytes]) -> str:
    return b64encode(b"".join(rows)).decode()


def _unpack(packed: Mapping[str, str], name: str, kind: struct.Struct, many: int) -> list[tuple[Any, ...]]:
    whole = b64decode(packed.get(name, ""))
    if len(whole) != many * kind.size:
        raise ValueError(f"{len(whole) // kind.size} numbers for {many} items")
    return list(kind.iter_unpack(whole))


def _micros(at: datetime | None) -> int:
    return (at - _EPOCH) // _MICROSECOND if at is not None else _NEVER


def _moment(micros: int) -> datetime | None:
    return _EPOCH + micros * _MICROSECOND if micros != _NEVER else None


def _iso(at: datetime | None) -> str | None:
    return at.isoformat() if at is not None else None


def _text(value: UUID | None) -> str | None:
    return str(value) if value is not None else None
