"""What holds for a user whatever is asked (`agent_data.standing`): it comes with the session, in the same round trip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple
from uuid import UUID

import orjson
from msgspec import Struct

MAX_FACTS = 40
"""Facts read for a prompt, the surest and newest first: half as many again as 200 tokens hold."""

MAX_WISHES = 12
"""Standing wishes read for a prompt, the last ones said: who has more than a dozen has given contrary ones."""

FACT_FLOOR = 50
"""Least confidence of a fact in a prompt, of 100: what nobody confirmed begins there (seed 000 §5.4: 0.5)."""


class StandingFact(NamedTuple):
    """A fact. `note`: the id of what it says now. `memory`: the one that said so last, `session` and `turn` where.
    `since`: since when it is so, where that is known. `messages`: those that say it. `doubted`: it may be so no more."""

    fact_id: UUID
    note: UUID
    key: str
    many: bool
    value: str
    memory: UUID | None
    session: UUID | None
    turn: int | None
    since: datetime | None = None
    messages: tuple[UUID, ...] = ()
    doubted: bool = False


class StandingWish(NamedTuple):
    """What the user has asked for always, in their own words. `memory`: its id; `session`, `turn`: where it was said first;
    `messages`: those that say it."""

    memory: UUID
    text: str
    session: UUID | None = None
    turn: int | None = None
    messages: tuple[UUID, ...] = ()


class EndedFact(NamedTuple):
    """Something that an item says, and that is so no more (`agent_data.ended_since`). `memory`: the one that said so;
    `quote`: the words that it was learned from, None where the item is that memory. `heir`, `now`: the memory that
    took its place, and what it says; None where none did."""

    item: UUID
    memory: UUID
    said: str
    quote: str | None
    at: datetime | None
    heir: UUID | None = None
    now: str | None = None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> EndedFact:
        """A row of it, as JSON."""
        heir, at = row["heir_id"], row["ended_at"]
        return cls(
            UUID(row["item_id"]), UUID(row["memory_id"]), row["said"], row["quote"],
            datetime.fromisoformat(at) if at else None, UUID(heir) if heir else None, row["heir"],
        )  # fmt: skip


class Procedure(NamedTuple):
    """A habit that was drawn from repeated sequences; `details` have its trigger and its action."""

    memory_id: UUID
    details: Mapping[str, Any]


class Standing(Struct, frozen=True, dict=True):
    """`due`: memories to ask the user about, and since when each stands unconfirmed. `kept`: notes in the session's blocks that
    are so still, of whichever fact. `doubted`: memories that may be so no more, until the user has confirmed them."""

    profile: str | None = None
    profile_note: UUID | None = None
    facts: tuple[StandingFact, ...] = ()
    due: Mapping[UUID, datetime] | None = None
    procedures: tuple[Procedure, ...] = ()
    kept: frozenset[UUID] = frozenset()
    wishes: tuple[StandingWish, ...] = ()
    doubted: frozenset[UUID] = frozenset()

    @cached_property
    def notes(self) -> frozenset[UUID]:
        """The ids of all that there is to say now, and of what was said and still is so."""
        own = self.kept.union(each.note for each in self.facts)
        return own | {self.profile_note} if self.profile_note is not None else own


NOTHING = Standing()
_FACT_COLUMNS = (
    "fact_ids", "fact_notes", "fact_keys", "fact_many", "fact_values", "fact_memories", "fact_sessions", "fact_turns",
    "fact_since",
)  # fmt: skip
_MEMORY = _FACT_COLUMNS.index("fact_memories")
_WISH_COLUMNS = ("wish_ids", "wish_texts", "wish_sessions", "wish_turns")


def take_standing(fields: dict[str, Any]) -> Standing:
    """What `agent_data.standing` returned, taken out of the columns of a row."""
    profile, note = fields.pop("profile", None), fields.pop("profile_note", None)
    facts = _rows(fields, _FACT_COLUMNS, "fact_messages")
    wishes = _rows(fields, _WISH_COLUMNS, "wish_messages")
    due, noted = fields.pop("due", None), fields.pop("due_noted", None)
    procedures, details = fields.pop("procedures", None), fields.pop("procedure_details", None)
    kept, doubted = fields.pop("notes_kept", None), frozenset(fields.pop("doubted", None) or ())
    if profile is None and not facts and not wishes and not doubted and procedures is None:
        return NOTHING
    return Standing(
        profile,
        note,
        tuple(StandingFact._make((*each, each[_MEMORY] in doubted)) for each in facts),
        dict(zip(due, noted, strict=True)) if due else None,
        tuple(Procedure(each, orjson.loads(text)) for each, text in zip(procedures, details, strict=True))
        if procedures
        else (),
        frozenset(kept or ()),
        tuple(map(StandingWish._make, wishes)),
        doubted=doubted,
    )


def _rows(fields: dict[str, Any], names: Sequence[str], messages: str) -> list[tuple[Any, ...]]:
    """The rows of these columns, each with its messages, which come as JSON, behind them."""
    columns, said = [fields.pop(name, None) for name in names], fields.pop(messages, None)
    if not columns[0]:
        return []
    ids = [tuple(map(UUID, each or ())) for each in orjson.loads(said)] if said else [()] * len(columns[0])
    return list(zip(*columns, ids, strict=True))
