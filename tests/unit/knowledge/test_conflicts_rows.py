"""Memories against rows: seed 004's NET30 against NET15, and which side stands."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from app.context.resolution import RowValue
from app.features.knowledge.claims import Stands, against_rows, agreeing, logged_data, logged_outcome
from app.store.records import Claim
from tests.support.tables import each_of

GAI = "customer:gai_123"
SAID = datetime(2024, 8, 1, tzinfo=UTC)
ASKED = datetime(2024, 10, 15, 10, tzinfo=UTC)
MEMORY = UUID(int=456)
NET30 = Claim(MEMORY, GAI, "payment_terms", "NET30", SAID, 0.8)
NAMES = {GAI: "Gai Media Entertainment"}


def rows(
    value: str, strategy: str = "trust_db", changed: datetime | None = None, predicate: str = "payment_terms"
) -> dict[str, dict[str, RowValue]]:
    return {GAI: {predicate: RowValue("erp", "domain.customers", predicate, value, strategy, ASKED, changed)}}


def test_the_row_of_the_seed_wins() -> None:
    """Seed 004, table 9: conflict_data and resolution_outcome as in its example."""
    (clash,) = against_rows([NET30], rows("NET15"), NAMES)
    assert (clash.conflict_type, clash.stands, clash.entity_name) == ("memory_vs_db", "domain", NAMES[GAI])
    data = logged_data(clash)
    assert data["memory"] == {
        "memory_id": MEMORY,
        "predicate": "payment_terms",
        "value": "NET30",
        "confidence": 0.8,
        "created_at": SAID,
    }
    assert data["db_source"] == {
        "domain": "erp",
        "table": "domain.customers",
        "field": "payment_terms",
        "value": "NET15",
        "queried_at": ASKED,
    }
    assert logged_outcome(clash) == {
        "action": "supersede_memory",
        "memory_updates": [{"memory_id": MEMORY, "new_status": "invalidated"}],
        "rationale": "Domain database is authoritative for payment terms",
    }


def test_what_agrees_or_has_no_row_is_no_conflict() -> None:
    assert against_rows([NET30], rows("net 30"), NAMES) == []
    assert agreeing([NET30], rows("net 30")) == [NET30]
    assert against_rows([NET30], rows("NET15", predicate="industry"), NAMES) == []
    assert agreeing([NET30], {}) == []
    assert against_rows([NET30], {"customer:other": rows("NET15")[GAI]}, NAMES) == []


DAY = timedelta(days=1)


@each_of(
    ("strategy", "changed", "side"),
    [
        ("trust_db", SAID - DAY, "domain"),
        ("trust_recent", None, "domain"),
        ("trust_recent", SAID + DAY, "domain"),
        ("trust_recent", SAID, "domain"),
        ("trust_recent", SAID - DAY, "memory"),
        ("ask_user", None, None),
        ("both", None, "both"),
    ],
)
def test_which_side_stands(strategy: str, changed: datetime | None, side: Stands) -> None:
    (clash,) = against_rows([NET30], rows("NET15", strategy, changed), {})
    assert clash.stands == side
    assert clash.entity_name == GAI, "a thing without a name is called by its id"
    assert (logged_outcome(clash) is None) == (side in (None, "both"))
