"""Both sides of a contradiction, what stands of them, and the ways to decide; the zones of a gauge."""

from __future__ import annotations

from typing import Any

import pytest

from app.features.paging import fidelity
from app.features.paging.values import ObjectType
from app.features.ui.conflicts import choices, sides
from app.features.ui.sessions import BORDERS, TYPES, zones

ONE, TWO = "memory-1", "memory-2"
ROW = {
    "domain": "erp",
    "table": "domain.customers",
    "field": "terms",
    "value": "NET15",
    "queried_at": "2026-01-02T00:00:00Z",
}


def conflict(*, row: bool, outcome: dict[str, Any] | None = None, strategy: str = "both") -> dict[str, Any]:
    told = [{"memory_id": each, "value": f"value {each}", "confidence": 0.7} for each in (ONE, TWO)]
    data: dict[str, Any] = {"memory": told[0], "db_source": ROW} if row else {"memories": told}
    return {
        "data": data, "outcome": outcome, "status": "open" if outcome is None else "resolved", "strategy": strategy,
        "memory_ids": [ONE] if row else [ONE, TWO],
    }  # fmt: skip


def stand(**given: Any) -> list[bool | None]:
    return [each.stands for each in sides(conflict(**given))]


def ended(memory: str, status: str = "superseded") -> list[dict[str, str]]:
    return [{"memory_id": memory, "new_status": status}]


def test_sides_as_they_were_noticed() -> None:
    memory, row = sides(conflict(row=True))
    assert (memory.title, memory.value, memory.memory, memory.told) == (
        "The memory",
        f"value {ONE}",
        ONE,
        [("Sure", "0.70")],
    )
    assert (row.title, row.value, row.memory, row.at) == ("The business's own row", "NET15", None, ROW["queried_at"])
    assert row.told == [("Field", "domain.customers.terms"), ("Database", "erp")]
    assert [each.title for each in sides(conflict(row=False))] == ["The first memory", "The second memory"]
    assert sides(conflict(row=False) | {"data": {}}) == [], "what was forgotten has no sides left"


@pytest.mark.parametrize(
    ("outcome", "with_row", "of_two"),
    [
        (None, [None, None], [None, None]),
        ({"action": "keep_both", "keep": "both"}, [True, True], [True, True]),
        ({"action": "supersede_memory", "memory_updates": ended(ONE, "invalidated")}, [False, True], [False, True]),
        ({"action": "supersede_memory", "memory_updates": ended(ONE, "expired")}, [False, True], [False, True]),
        ({"action": "keep_memory", "memory_updates": ended(TWO)}, [True, False], [True, False]),
        ({"action": "row_agrees"}, [True, True], [True, True]),
        ({"action": "row_changed"}, [None, None], [None, None]),
        ({"action": "supersede_memory", "winner": TWO, "superseded": ONE}, [False, True], [False, True]),
        ({"action": "close_earlier", "later": TWO, "earlier": ONE}, [True, True], [True, True]),
    ],
)
def test_what_stands(outcome: dict[str, Any] | None, with_row: list[bool | None], of_two: list[bool | None]) -> None:
    assert stand(row=True, outcome=outcome) == with_row
    assert stand(row=False, outcome=outcome) == of_two


def test_the_ways_to_decide_are_those_that_the_route_takes() -> None:
    assert [each.keep for each in choices(conflict(row=True))] == ["memory", "domain", "both"]
    assert [each.keep for each in choices(conflict(row=False))] == ["memory", "other", "both"]


def test_a_choice_says_what_it_chooses() -> None:
    of_row = choices(conflict(row=True))
    assert [each.label for each in of_row] == [f"The memory: value {ONE}", "The business's row: NET15", "Both"]
    of_two = conflict(row=False)
    of_two["data"]["memories"].reverse()
    labels = [each.label for each in choices(of_two)]
    assert labels == [f"The first memory: value {ONE}", f"The second memory: value {TWO}", "Both"], (
        "by id, not by place"
    )
    of_two["data"]["memories"][1]["value"] = "long" * 100
    assert choices(of_two)[0].label == f"The first memory: {'long' * 15}…"
    assert [each.label for each in choices(of_two | {"data": {}})] == ["The first memory", "The second memory", "Both"]


@pytest.mark.parametrize("share", [0.0, 0.63, 1.0, 2.5])
def test_zones_fill_the_gauge(share: float) -> None:
    found = zones(share)
    assert [name for name, _, _ in found] == ["normal", "caution", "warning", "critical", "emergency"]
    assert [at for _, at, _ in found] == [0.0, 0.60, 0.75, 0.85, 0.95], "seed 002 §1.5"
    assert sum(wide for _, _, wide in found) == pytest.approx(max(1.0, share))


def test_the_page_speaks_of_objects_as_paging_does() -> None:
    assert fidelity.BORDERS == BORDERS
    assert list(TYPES) == list(ObjectType)
