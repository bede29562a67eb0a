"""The compile explained: which items were looked at, what each scored and why, how the budget was spent, and what was known of
the things that the question names.

Two forms. What is stored (`compilations`) is compact: no texts, each name once, items as columns, which are made and read
several times as fast as a row for each. What the API shows (`GET /api/v1/calls/{id}/context`) is expanded from it when it is
read, with the texts joined then: what was erased since is not there any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import Any
from uuid import UUID

import numpy as np
import orjson

from app.context.candidates import CHANNEL_SETS, CHANNELS, Candidate
from app.context.facts_section import FactLines, FactsFound, fact_cost
from app.context.notes import Count
from app.context.pack import Efficiency, Packed, Reason
from app.context.question import Asked, query_type, temporal_scope
from app.context.resolution import Clash, DomainFact, Entity, Resolution
from app.context.score import Scored

VERSION = 5
DIGITS = 4
"""Decimals of a stored score: far finer than any difference that decides."""

MAX_ITEMS = 100
"""Items stored one by one, best first. Of those beyond (all dropped, and scored lower than any stored one that was
dropped) only the number for each reason is kept: a compile looks at up to 600."""


_CHANNEL_BITS = {channels: number for number, channels in enumerate(CHANNEL_SETS)}
"""As which number the channels that brought an item are stored: the sum of 2^n."""


class Explained(dict[str, Any]):
    """What `explain` made; not changed any more, so that it is written as JSON once, for whoever stores it."""

    @cached_property
    def fragment(self) -> orjson.Fragment:
        """It as JSON, for orjson to put into what stands around it."""
        return orjson.Fragment(orjson.dumps(self, default=str))


def written(audit: Mapping[str, Any]) -> Any:
    """What `explain` made, for orjson to write; not again where it was written before."""
    return audit.fragment if isinstance(audit, Explained) else audit


def explain(packed: Packed, efficiency: Efficiency, told: Mapping[str, Any], most: int = MAX_ITEMS) -> Explained:
    """The explanation as it is stored; plain values but for UUIDs.

    `told`: what else a compile decided. `status`, `reason`: as in the response headers. `budget`: its figures by name,
    tokens (window, system, reserve, tools, available, memory, history, client, live …). `strategy`: the profile. `rebased`:
    why the session's blocks were begun anew, if they were; `live_blocks`: how many stay. `tokens`: what Mneme added to the
    prompt, the blocks of earlier turns included. `sections`: of each its budget, what it took, and what was left out and
    why. `widened`: words that procedures had looked for besides. `history`: what became of the session's earlier messages.
    Where something is known, `told_known`. `most`: items that are stored one by one.
    """
    rest = sorted(packed.dropped, key=attrgetter("item.score"), reverse=True)
    room = max(0, most - len(packed.chosen))
    sessions: dict[str, int] = {}
    names: list[str] = []
    if packed.chosen or rest:
        names = list((packed.chosen[0] if packed.chosen else rest[0].item).names)
    items: list[tuple[Scored, Reason, UUID | None]] = [(each, Reason.CHOSEN, None) for each in packed.chosen]
    items += [(each.item, each.reason, each.because_of) for each in rest[:room]]
    counts = {str(reason): many for reason, many in Counter([each.reason for each in packed.dropped]).items()}
    return Explained(
        {
            "v": VERSION,
            **told,
            "eta": {
                name: round(value, DIGITS) if value is not None else None
                for name, value in efficiency._asdict().items()
            },
            "counts": counts | {"chosen": len(packed.chosen)},
            "signals": names,
            "items": _columns(items, sessions),
            "sessions": list(sessions),
            "omitted": len(rest) - len(rest[:room]),
        }
    )


def expand(stored: Mapping[str, Any], texts: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The explanation as the API shows it: each item an object, its text from `texts` (by id as a string) where
    known."""
    names, sessions, columns = stored["signals"], stored["sessions"], stored["items"]
    signals = zip(*columns["values"], strict=True)
    rows = zip(
        columns["id"], columns["source"], columns["kind"], columns["tier"], columns["score"], signals, columns["reason"],
        columns["because_of"], columns["tokens"], columns["legs"], columns["sources"],
        columns.get("spans") or [None] * len(columns["id"]), columns.get("spaces") or [None] * len(columns["id"]), strict=True,
    )  # fmt: skip
    items = []
    for identity, source, kind, tier, score, values, reason, because_of, tokens, channels, sources, span, space in rows:
        item: dict[str, Any] = {
            "id": str(identity),
            "source": source,
            "kind": kind,
            "tier": tier,
            "score": score,
            "signals": dict(zip(names, values, strict=True)),
            "chosen": reason == Reason.CHOSEN,
            "reason": str(reason),
            "token_count": tokens,
            "legs": [name for bit, name in enumerate(CHANNELS) if channels >> bit & 1],
            "provenance": [
                {"session": sessions[session], "message_id": str(message or identity), "turn_index": turn}
                for message, session, turn in sources
            ],
        }
        if span is not None:
            item["provenance"][0]["span"] = list(span)
        if space is not None:
            item["space"] = space
        if because_of is not None:
            item["because_of"] = str(because_of)
        if texts is not None and item["id"] in texts:
            item["text"] = texts[item["id"]]
        items.append(item)
    hidden = {"v", "signals", "sessions", "items"}
    return {key: value for key, value in stored.items() if key not in hidden} | {"items": items}


def shown_texts(stored: Mapping[str, Any]) -> dict[str, list[str]]:
    """Ids of the items whose texts `expand` wants, by source (`memory`, `message`)."""
    wanted: dict[str, list[str]] = {"memory": [], "message": []}
    for identity, source in zip(stored["items"]["id"], stored["items"]["source"], strict=True):
        wanted[source].append(str(identity))
    return wanted


def asked_memories(explained: Mapping[str, Any]) -> Sequence[UUID]:
    """The memories that the prompt asked the user about, of what `explain` made."""
    questions = (explained.get("sections") or {}).get("questions") or {}
    return [each if isinstance(each, UUID) else UUID(each) for each in questions.get("asked") or ()]


def used_memories(explained: Mapping[str, Any]) -> list[tuple[UUID, float]]:
    """The memories that stood in the prompt, of what `explain` made, with their relevance, 0..1: what `relevance_accumulator`
    adds up for U(m) of seed 000 §5.3. That is the score; where some exceed 1 (`auto`, whose weights do not sum to 1), its part
    of the best, so that the best counts 1 and the order stays.

    A memory stood there also where the message that it was learned from was chosen in its place, or where a fact's
    line said it: that bears on the message, and so counts 1 where it was not even looked for. A memory of this session alone
    whose message stands in the prompt counts by its likelihood (`in_prompt`)."""
    in_prompt = [(UUID(str(memory)), relevance) for memory, relevance in explained.get("in_prompt") or ()]
    chosen = _chosen_memories(explained)
    chosen_ids = {UUID(str(memory)) for memory, _ in chosen}
    return [*chosen, *((memory, relevance) for memory, relevance in in_prompt if memory not in chosen_ids)]


def _chosen_memories(explained: Mapping[str, Any]) -> list[tuple[UUID, float]]:
    """Return the memories that were chosen, or that a chosen item repeats, each with its relevance."""
    facts = (explained.get("sections") or {}).get("facts") or {}
    told = {UUID(str(each)) for each in facts.get("memories") or () if each is not None}
    items = explained.get("items")
    if not items or not items["id"]:
        return [(each, 1.0) for each in sorted(told)]
    best = max([1.0, *items["score"]])
    chosen = {each for each, reason in zip(items["id"], items["reason"], strict=True) if reason == Reason.CHOSEN}
    rows = zip(*(items[name] for name in ("id", "source", "score", "reason", "because_of")), strict=True)
    used = {
        identity: min(max(score / best, 0.0), 1.0)
        for identity, source, score, reason, because in rows
        if source == "memory"
        and (
            reason == Reason.CHOSEN
            or (reason == Reason.DUPLICATE and because in chosen)
            or (reason == Reason.VISIBLE and UUID(str(identity)) in told)
        )
    }
    known = {UUID(str(each)) for each in used}
    return [*used.items(), *((each, 1.0) for each in sorted(told) if each not in known)]


def _columns(told: Sequence[tuple[Scored, Reason, UUID | None]], sessions: dict[str, int]) -> dict[str, list[Any]]:
    """The items; `sessions` gets the names that they mention, numbered."""
    items = [each for each, _, _ in told]
    candidates = [each.candidate for each in items]
    # All at once: Python's own `round`, value by value, would take as long as all the rest.
    return {
        "id": [each.id for each in candidates],
        "source": [each.source for each in candidates],
        "kind": [each.kind for each in candidates],
        "tier": [each.tier for each in candidates],
        "score": np.round([each.score for each in items], DIGITS).tolist(),
        "values": _rounded([each.values for each in items]),
        "reason": [reason for _, reason, _ in told],
        "because_of": [because for _, _, because in told],
        "tokens": [each.token_count for each in candidates],
        "legs": [_CHANNEL_BITS[each.channels] for each in candidates],
        "sources": [
            # No message: the item itself.
            [[None, sessions.setdefault(each.session_name or str(each.session_id), len(sessions)), each.turn_index]]
            if each.source == "message"
            else _sources(each, sessions)
            for each in candidates
        ],
        # The characters of the message that a passage is.
        "spans": [each.span for each in candidates],
    } | ({"spaces": [each.space for each in candidates]} if any(each.space for each in candidates) else {})


def _rounded(rows: Sequence[Sequence[float]]) -> list[list[float]]:
    """Columns of the rows. (An array of tuples takes numpy twice as long to make as one of their numbers.)"""
    if not rows:
        return []
    flat = np.fromiter(chain.from_iterable(rows), float, len(rows) * len(rows[0]))
    columns: list[list[float]] = np.round(flat, DIGITS).reshape(len(rows), -1).T.tolist()
    return columns


def _sources(memory: Candidate, sessions: dict[str, int]) -> Sequence[Sequence[Any]]:
    """(message, session's number, turn) of each source, as they were stored: to make values of them first would take as long as
    all the rest."""
    return [
        [message, sessions.setdefault(each.get("session") or "", len(sessions)), each.get("turn_index")]
        for each in memory.sources or ()
        if (message := each.get("message_id"))
    ]


# --- what was known of the things that a question names ------------------------------------------------------------------
#
# A memory's value is not kept: it is read by the memory's id when the explanation is shown, so that what was forgotten since
# is not there any more. What the business's own database said is kept as the prompt told it.


def told_known(
    asked: Asked, learned: FactsFound, told: FactLines, chosen: Mapping[str, int], budget: int, count: Count
) -> dict[str, Any]:
    """The keys that a compile with knowledge adds to its explanation. `chosen`: tokens of the facts that are told, by subject;
    `budget`: tokens that they may take at most. Of facts beyond it only the number is kept."""
    known = learned.known
    return {
        "entities": [_resolution(each) for each in known.resolutions],
        "query": query_type(asked, resolved=bool(asked.things), domain=bool(known.queries))._asdict()
        | {"temporal_scope": temporal_scope(asked.span)},
        "domain": {
            "status": "degraded" if known.reason == "domain" else "ok" if known.queries else "none",
            "reason": known.reason,
            "queries": [each._asdict() | {"filters": dict(each.filters)} for each in known.queries],
        }
        | _facts(told, chosen, budget, count),
        "conflicts": [_clash(each) for each in learned.clashes],
    }


def _resolution(each: Resolution) -> dict[str, Any]:
    return {
        "mention": each.mention,
        **_entity(each.entity),
        "confidence": each.confidence,
        "method": each.method,
        "requires_disambiguation": each.requires_disambiguation,
        "alternatives": [_entity(other.entity) | {"confidence": other.confidence} for other in each.alternatives],
    }


def _entity(found: Entity | None) -> dict[str, Any]:
    if found is None:
        return {"canonical_id": None, "canonical_name": None, "type": None}
    return {"canonical_id": found.id, "canonical_name": found.name, "type": found.type}


def _facts(told: FactLines, chosen: Mapping[str, int], budget: int, count: Count) -> dict[str, Any]:
    """Return the facts that fill the budget and those that earlier blocks tell, with the number of the others."""
    kept, room = [], budget
    for each in told.facts:
        if room <= 0:
            break
        room -= fact_cost(each, count)
        kept.append(_fact(each, each.subject in chosen, chosen.get(each.subject, 0)))
    kept += [_fact(each, False, 0) | {"visible": True} for each in told.seen]
    omitted = len(told.facts) + len(told.seen) - len(kept)
    return {"facts": kept} | ({"omitted": omitted} if omitted else {})


def _fact(each: DomainFact, chosen: bool, tokens: int) -> dict[str, Any]:
    return each._asdict() | {"chosen": chosen, "tokens": tokens}


def _clash(each: Clash) -> dict[str, Any]:
    row = each.row
    told: dict[str, Any] = {
        "conflict_type": each.conflict_type,
        "entity_id": each.entity_id,
        "entity_name": each.entity_name,
        "predicate": each.predicate,
        "memory": {
            "memory_id": each.memory_id,
            "confidence": round(each.memory_confidence, 4),
            "said_at": each.memory_at,
        },
        "db_source": None,
        "other": None,
        "strategy": each.strategy,
        "stands": each.stands,
        "since": each.since,
    }
    if row is not None:
        told["db_source"] = {name: getattr(row, name) for name in ("domain", "table", "field", "value", "queried_at")}
    if each.other_id is not None:
        told["other"] = {"memory_id": each.other_id, "said_at": each.other_at}
    return {"id": each.conflict_id} | told if each.conflict_id is not None else told


def quoted_memories(audit: Mapping[str, Any]) -> list[UUID]:
    """The memories whose values the conflicts of an explanation tell."""
    sides = [side for each in audit.get("conflicts", ()) for side in (each["memory"], each["other"]) if side]
    return [UUID(str(side["memory_id"])) for side in sides if side["memory_id"] is not None]


def fill(explained: dict[str, Any], values: Mapping[UUID, str]) -> None:
    """Put in what these memories say; None: it was forgotten since."""
    for each in explained.get("conflicts", ()):
        for side in (each["memory"], each["other"]):
            if side:
                side["value"] = values.get(UUID(str(side["memory_id"]))) if side["memory_id"] is not None else None
