"""What rows say, as lines of a prompt."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from app.context.question import TimeSpan
from app.context.resolution import Entity
from app.features.knowledge.domain_sql import COUNTED, VALUE_CHARS, Family, TraversalQuery
from app.features.knowledge.ontology import EntityType
from app.features.knowledge.render_facts import (
    FactRow,
    QueryOutcome,
    changed_at,
    days,
    facts,
    name_of,
    row_values,
    shown,
    when,
)
from tests.support.sample_domain import sample_ontology
from tests.support.tables import each_of

GAI = Entity("customer:gai_123", "customer", "Gai Media Entertainment")
TYPES = sample_ontology().types
CREATES = next(each for each in sample_ontology().relations if each.name == "creates")
HAS = sample_ontology().relations[0]
SEPTEMBER = TimeSpan(datetime(2024, 9, 1, tzinfo=UTC), datetime(2024, 10, 1, tzinfo=UTC))
NUMBERS: Mapping[str, Family] = {"status": "text", "total_amount": "number", "so_id": "text", "order_date": "date"}


def order(so: str, status: str, amount: str | None, at: str) -> FactRow:
    return FactRow(so, "gai_123", {"so_id": so, "status": status, "total_amount": amount, "order_date": at})


def work(wo: str, so: str, status: str | None) -> FactRow:
    return FactRow(wo, so, {"wo_id": wo, "status": status, "assigned_to": "Ravi"})


ORDERS = (order("SO-1052", "in_fulfillment", "2200", "2024-09-22"), order("SO-1045", "fulfilled", "3500", "2024-09-15"))
WORK = (work("WO-501", "SO-1045", "done"), work("WO-502", "SO-1045", "done"), work("WO-503", "SO-1052", "in_progress"))


def orders(
    rows: tuple[FactRow, ...] = ORDERS, total: int | None = None, onward: tuple[QueryOutcome, ...] = ()
) -> QueryOutcome:
    ask = TraversalQuery(TYPES["sales_order"], GAI, HAS, span=SEPTEMBER)
    return QueryOutcome(ask, rows, len(rows) if total is None else total, NUMBERS, onward)


def works(rows: tuple[FactRow, ...] = WORK, total: int | None = None, **given: object) -> QueryOutcome:
    ask = TraversalQuery(TYPES["work_order"], GAI, CREATES, listed=False)
    return QueryOutcome(ask, rows, len(rows) if total is None else total, {"status": "text"}, **given)  # type: ignore[arg-type]


def customer(**values: str | None) -> QueryOutcome:
    row = FactRow(
        "gai_123", None, {"name": "Gai Media Entertainment", "industry": "Entertainment", "status": "Active"} | values
    )
    return QueryOutcome(TraversalQuery(TYPES["customer"], GAI), (row,), 1, {})


def text(told: QueryOutcome) -> str:
    (fact,) = facts([told])
    return fact.text


def test_the_seeds_facts_of_september() -> None:
    """Seed 004, stage 4: two orders, $5,700, their work orders: 2 done, 1 in progress."""
    own, listed = facts([customer(), orders(onward=(works(),))])
    assert own.text == "Customer Gai Media Entertainment (customer:gai_123): industry: Entertainment; status: Active"
    assert own.subject == "erp/customer:gai_123/customer"
    assert listed.text == (
        "Sales orders of Gai Media Entertainment, September 2024:"
        " SO-1052 (2024-09-22): status: in_fulfillment, total_amount: 2200 — work orders: 1 in_progress;"
        " SO-1045 (2024-09-15): status: fulfilled, total_amount: 3500 — work orders: 2 done;"
        " 2 in all, total_amount 5700"
    )
    assert listed.subject == "erp/customer:gai_123/sales_order/September 2024"
    assert (listed.entity, listed.query_type) == ("customer:gai_123", "sales_order")


def test_what_is_not_all_there_has_no_sum_and_says_how_much_is_missing() -> None:
    assert text(orders(total=12)).endswith("; and 10 more")
    assert text(orders(total=COUNTED + 1)).endswith("; and more than 998 more")
    assert "total_amount 5700" not in text(orders(total=12))
    assert "work orders" not in text(orders(onward=(works(total=7),)))
    assert "work orders" not in text(orders(onward=(works(error="timeout"),)))


def test_a_sum_needs_a_number_in_every_row() -> None:
    missing = (*ORDERS, order("SO-1", "new", None, "2024-09-01"))
    assert text(orders(missing)).endswith("; 3 in all")
    assert text(orders(ORDERS[:1])).endswith("; 1 in all")


def test_what_rows_share_is_not_added_up() -> None:
    sold = next(each for each in sample_ontology().relations if each.name == "is_for")
    rows = tuple(FactRow(name, "SO-1", {"name": name, "price": "10"}) for name in ("a", "b"))
    told = QueryOutcome(TraversalQuery(TYPES["product"], GAI, sold), rows, 2, {"price": "number"})
    assert text(told).endswith("; 2 in all")


def test_nothing_is_said_to_be_nothing_and_a_failure_says_nothing() -> None:
    assert text(orders(())) == "Sales orders of Gai Media Entertainment, September 2024: none"
    assert facts([QueryOutcome(orders().ask, error="timeout")]) == ()
    assert facts([QueryOutcome(TraversalQuery(TYPES["customer"], GAI), (), 0, {})]) == ()


def test_what_rows_have_is_counted_by_their_state() -> None:
    many = tuple(
        work(f"WO-{n}", "SO-1045", state) for n, state in enumerate(["a", "a", "b", "c", "d", "e", "f", "g", None])
    )
    assert "work orders: 2 a, 1 b, 1 c, 1 d, 1 e, 3 other" in text(orders(onward=(works(many),)))


def test_what_rows_have_without_a_state_is_counted_and_added_up() -> None:
    pays = next(each for each in sample_ontology().relations if each.name == "is_paid_by")
    rows = tuple(FactRow(str(n), "INV-1", {"amount": "10.50", "method": "card"}) for n in range(2))
    told = QueryOutcome(TraversalQuery(TYPES["payment"], GAI, pays, listed=False), rows, 2, {"amount": "number"})
    invoices = QueryOutcome(
        TraversalQuery(TYPES["invoice"], GAI, HAS),
        (FactRow("INV-1", "gai_123", {"invoice_id": "INV-1"}),),
        1,
        {},
        (told,),
    )
    assert text(invoices) == "Invoices of Gai Media Entertainment: INV-1 — payments: 2, amount 21; 1 in all"


def test_rows_say_what_memories_may_say() -> None:
    at = datetime(2024, 10, 15, tzinfo=UTC)
    found = row_values([customer(payment_terms="NET15"), orders(onward=(works(),))], at)
    assert found["customer:gai_123"]["payment_terms"] == (
        "erp",
        "domain.customers",
        "payment_terms",
        "NET15",
        "trust_db",
        at,
        None,
    )
    assert found["sales_order:SO-1045"]["status"].value == "fulfilled"
    assert found["work_order:WO-503"]["status"].value == "in_progress"
    assert "payment_terms" not in row_values([customer(payment_terms=None)], at)["customer:gai_123"]


@each_of(
    ("value", "family", "at"),
    [
        ("2024-09-15 09:30 UTC", "timestamptz", datetime(2024, 9, 15, 9, 31, tzinfo=UTC)),
        ("2024-09-15", "timestamptz", datetime(2024, 9, 15, 0, 1, tzinfo=UTC)),
        ("2024-09-15 09:30", "timestamp", datetime(2024, 9, 15, 9, 31, tzinfo=UTC)),
        ("2024-09-15", "date", datetime(2024, 9, 16, tzinfo=UTC)),
        ("9999-12-31", "date", None), ("infinity", "timestamptz", None), ("2024-09-15", "text", None),
        ("2024-09-15", None, None), (None, "date", None),
    ],
)  # fmt: skip
def test_when_a_row_was_changed_at_the_latest(value: str | None, family: Family | None, at: datetime | None) -> None:
    assert changed_at(value, family) == at


def test_rows_say_when_they_were_changed() -> None:
    kind = msgspec.structs.replace(TYPES["customer"], changed="updated_at")
    row = FactRow("gai_123", None, {"status": "Active", "updated_at": "2024-09-15"})
    told = QueryOutcome(TraversalQuery(kind, GAI), (row,), 1, {"updated_at": "date"})
    found = row_values([told], datetime(2024, 10, 15, tzinfo=UTC))
    assert found["customer:gai_123"]["status"].changed_at == datetime(2024, 9, 16, tzinfo=UTC)


@each_of(
    ("value", "family", "told"),
    [
        (None, "text", None), ("  ", "text", None), ("a\nb\x00\x1b[31m c", "text", "a b [31m c"), ("3500.00", "number", "3500"),
        ("120.50", "number", "120.50"), ("NaN", "number", "NaN"), ("1e400", "number", "1e400"), ("-0.00", "number", "-0"),
        ("2024-09-15 00:00 UTC", "timestamptz", "2024-09-15"), ("2024-09-15 09:30 UTC", "timestamptz", "2024-09-15 09:30 UTC"),
        ("2024-09-15 00:00", "timestamp", "2024-09-15"), ("x" * (VALUE_CHARS + 1), "text", "x" * VALUE_CHARS + "…"),
        ('{"a": [1, 2]}', "other", '{"a": [1, 2]}'), ("true", "boolean", "true"),
    ],
)  # fmt: skip
def test_values_as_a_person_reads_them(value: str | None, family: Family, told: str | None) -> None:
    assert shown(value, family) == told


@given(st.text(max_size=500), st.sampled_from(["text", "other", "array", "number", "timestamp"]))
def test_a_value_is_one_line_of_bounded_length(value: str, family: Family) -> None:
    told = shown(value[: VALUE_CHARS + 1], family)
    if told is not None and family in ("text", "other", "array"):
        assert told.isprintable()
        assert len(told) <= VALUE_CHARS + 1


def test_a_row_is_called_by_its_label_else_by_its_key() -> None:
    kind = EntityType("contact", "crm", "contacts", "id", "last", "{first} {last}")
    assert name_of(kind, FactRow("7", None, {"first": "Ana", "last": "Silva"})) == "Ana Silva"
    assert name_of(kind, FactRow("7", None, {"first": None, "last": "Silva"})) == "Silva"
    assert name_of(kind, FactRow("7", None, {"first": None, "last": None})) == "7"
    assert name_of(TYPES["sales_order"], FactRow("SO-1", None, {"so_id": None})) == "SO-1"


@each_of(
    ("begin", "end", "told"),
    [("2024-09-01", "2024-10-01", "September 2024"), ("2024-12-01", "2025-01-01", "December 2024"),
     ("2024-01-01", "2025-01-01", "2024"), ("2024-09-15", "2024-09-16", "2024-09-15"),
     ("2024-09-01", "2024-09-15", "2024-09-01 to 2024-09-14"),
     ("2024-09-01", "2024-11-01", "2024-09-01 to 2024-10-31"), ("2024-09-01", None, "since 2024-09-01"),
     (None, "2024-09-01", "before 2024-09-01"), (None, None, "at any time")],
)  # fmt: skip
def test_a_span_as_one_says_it(begin: str | None, end: str | None, told: str) -> None:
    span = TimeSpan(*(datetime.fromisoformat(each).replace(tzinfo=UTC) if each else None for each in (begin, end)))
    assert when(span) == told


def test_the_seeds_date_range() -> None:
    assert days(SEPTEMBER) == ["2024-09-01", "2024-09-30"]
