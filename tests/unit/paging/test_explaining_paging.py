"""What an explanation tells of a call's paging."""

from __future__ import annotations

from uuid import UUID

import orjson
from msgspec.structs import replace

from app.features.paging.values import (
    Fidelity,
    PagingRecord,
    Transition,
    Trigger,
    Zone,
    expanded,
    explained,
)
from tests.unit.paging.made import SESSION, sized

OBJECTS = [sized(0, 900), sized(1, 900, fidelity=Fidelity.DETAILED), sized(2, 900, fidelity=Fidelity.EVICTED)]
CHANGE = Transition(OBJECTS[2].id, Fidelity.STUB, Fidelity.EVICTED, Trigger.PRESSURE, 7, Zone.CRITICAL, 29_000)
RECORD = replace(PagingRecord(SESSION, 7, Zone.WARNING, 32_000, 60_000, 24_000), transitions=(CHANGE,))


def test_it_tells_what_is_shown_how_and_why() -> None:
    part = orjson.loads(orjson.dumps(explained(RECORD, OBJECTS, 1, ["memory_query", "memory_restore"], None)))
    assert expanded(part) == {
        "turn": 7,
        "budget": 32_000,
        "zone": "warning",
        "tokens": 60_000,
        "shown_tokens": 24_000,
        "tools": ["memory_query", "memory_restore"],
        "declined": None,
        "objects": {"L0": 1, "L1": 1, "L2": 0, "L3": 0, "L4": 1},
        "shown": [{"id": str(UUID(int=2)), "fidelity": 1}, {"id": str(UUID(int=3)), "fidelity": 4}],
        "transitions": [{"object_id": str(UUID(int=3)), "from_fidelity": 3, "to_fidelity": 4, "trigger": "pressure"}],
        "exchanges": 1,
    }


def test_of_a_session_of_hundreds_it_takes_some_bytes_for_each_that_is_short() -> None:
    many = [sized(i, 900, fidelity=Fidelity.STUB) for i in range(300)]
    assert len(orjson.dumps(explained(RECORD, many, 0, None, "tool-choice-none"))) < 300 * 24


def test_a_call_that_was_not_paged_says_why() -> None:
    assert expanded({"reason": "history-supplied"}) == {"reason": "history-supplied"}
