"""An ontology against the tables that it names."""

from __future__ import annotations

from app.features.knowledge.domain_sql import DomainColumn, Table
from app.features.knowledge.ontology_yaml import OntologyDraft, read
from app.features.knowledge.schema import check

TEXT = """\
domain: erp
types:
  customer:
    table: customers
    key: id
    title: name
    show: [status]
    time: since
    predicates: {terms: payment_terms}
  order: {table: orders, key: so_id}
relations:
  - {from: customer, relation: has, to: order, cardinality: one_to_many, join: {id: customer_id}}
"""


def draft() -> OntologyDraft:
    found = read(TEXT).draft
    assert found is not None
    return found


def table(*indexed: str, may_write: bool = False, **columns: str) -> Table:
    return Table({name: DomainColumn(name, each) for name, each in columns.items()}, may_write, frozenset(indexed))


CUSTOMERS = table("id", id="text", name="text", status="text", since="date", payment_terms="text")
ORDERS = table("so_id", "customer_id", so_id="text", customer_id="text")


def told(**tables: Table) -> list[tuple[str, int, str]]:
    return [(each.level, each.line, each.message) for each in check(draft(), tables)]


def test_what_fits_has_no_findings() -> None:
    assert told(customers=CUSTOMERS, orders=ORDERS) == []


def test_a_table_that_is_missing_is_an_error_in_its_line() -> None:
    assert [(level, line) for level, line, _ in told(customers=CUSTOMERS)] == [("error", 10)]


def test_columns_that_are_missing_are_errors_in_their_lines() -> None:
    found = told(customers=table("id", id="text", nam="text", since="date"), orders=table("so_id", so_id="text"))
    assert [(level, line) for level, line, _ in found] == [("error", 6), ("error", 7), ("error", 9), ("error", 12)]
    assert "is nam meant?" in found[0][2]


def test_a_time_of_change_that_is_none_is_an_error() -> None:
    changing = read(TEXT.replace("    time: since\n", "    time: since\n    changed: status\n")).draft
    assert changing is not None
    (found,) = check(changing, {"customers": CUSTOMERS, "orders": ORDERS})
    assert (found.level, found.line, found.message) == ("error", 9, "status is of type text: no date and no timestamp")


def test_a_time_that_is_none_is_an_error() -> None:
    columns = {**CUSTOMERS.columns, "since": DomainColumn("since", "text")}
    ((level, line, message),) = told(customers=CUSTOMERS._replace(columns=columns), orders=ORDERS)
    assert (level, line) == ("error", 8)
    assert "no date and no timestamp" in message


def test_what_is_slow_is_a_warning() -> None:
    slow = table("so_id", so_id="text", customer_id="int4")
    found = told(customers=CUSTOMERS._replace(indexed=frozenset()), orders=slow)
    assert {(level, line) for level, line, _ in found} == {("warning", 5), ("warning", 12)}
    assert any("compared as text" in message for _, _, message in found)
    assert any("no index of orders begins with customer_id" in message for _, _, message in found)


def test_a_role_that_could_write_is_an_error_unless_it_may() -> None:
    tables = {"customers": CUSTOMERS, "orders": ORDERS._replace(may_write=True)}
    assert [(level, line) for level, line, _ in told(**tables)] == [("error", 10)]
    assert check(draft(), tables, allow_writer=True) == ()
