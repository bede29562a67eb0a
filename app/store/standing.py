"""What holds for a user whatever is asked (`agent_data.standing`): it comes with the session, in the same round trip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple
from uuid import UUID

import orjson

MAX_FACTS = 40
"""Facts read for a prompt, the surest and newest first: half as many again as 200 tokens hold."""

FACT_FLOOR = 50
"""Least confidence of a fact in a prompt, of 100: what nobody confirmed begins there (seed 000 §5.4: 0.5)."""


class StandingFact(NamedTuple):
    """A fact. `note`: the id of what it says now. `memory`: the one that said so last, `session` and `turn` where."""

    fact_id: UUID
    note: UUID
    key: str
    many: bool
    value: str
    memory: UUID | None
    session: UUID | None
    turn: int | None


class Procedure(NamedTuple):
    """A habit that was drawn from repeated sequences; `details` have its trigger and its action."""

    memory_id: UUID
    details: Mapping[str, Any]


@dataclass(frozen=True)
class Standing:
    """`due`: memories to ask the user about, and since when each stands unconfirmed. `kept`: notes in the session's blocks that
    are so still, of whichever fact."""

    profile: str | None = None
    profile_note: UUID | None = None
    facts: tuple[StandingFact, ...] = ()
    due: Mapping[UUID, datetime] | None = None
    procedures: tuple[Procedure, ...] = ()
    kept: frozenset[UUID] = frozenset()

    @cached_property
    def notes(self) -> frozenset[UUID]:
        """The ids of all that there is to say now, and of what was said and still is so."""
        own = self.kept.union(each.note for each in self.facts)
        return own | {self.profile_note} if self.profile_note is not None else own


NOTHING = Standing()
_FACT_COLUMNS = (
    "fact_ids", "fact_notes", "fact_keys", "fact_many", "fact_values", "fact_memories", "fact_sessions", "fact_turns",
)  # fmt: skip


def take_standing(fields: dict[str, Any]) -> Standing:
    """What `agent_data.standing` returned, taken out of the columns of a row."""
    profile, note = fields.pop("profile", None), fields.pop("profile_note", None)
    columns = [fields.pop(name, None) for name in _FACT_COLUMNS]
    due, noted = fields.pop("due", None), fields.pop("due_noted", None)
    procedures, details = fields.pop("procedures", None), fields.pop("procedure_details", None)
    kept = fields.pop("notes_kept", None)
    if profile is None and columns[0] is None and due is None and procedures is None:
        return NOTHING
    return Standing(
        profile,
        note,
        tuple(map(StandingFact._make, zip(*columns, strict=True))) if columns[0] else (),
        dict(zip(due, noted, strict=True)) if due else None,
        tuple(Procedure(each, orjson.loads(text)) for each, text in zip(procedures, details, strict=True))
        if procedures
        else (),
        frozenset(kept or ()),
    )
