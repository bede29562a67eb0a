"""Drafts of ontologies: whatever the catalog says, they load as they are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.features.knowledge.domain_sql import DomainColumn
from app.features.knowledge.ontology_yaml import OntologyDraft, read
from app.features.knowledge.schema import CatalogTable, ForeignKey, draft, singular
from tests.support.properties import examples
from tests.support.tables import each_of


def table(
    name: str, columns: dict[str, str], *key: str, schema: str = "erp", comment: str | None = None
) -> CatalogTable:
    return CatalogTable(
        schema, name, comment, key, tuple((DomainColumn(each, kind), None) for each, kind in columns.items())
    )


CUSTOMERS = table(
    "customers",
    {
        "id": "int4", "company_name": "text", "vip": "bool", "status": "text", "password_hash": "text",
        "created_at": "timestamptz", "updated_at": "timestamptz",
    },
    "id",
    comment="Who\nbuys",
)  # fmt: skip
ORDERS = table(
    "sales_orders",
    {
        "so_id": "text", "bill_to": "int4", "ship_to": "int4", "order_date": "date", "created_at": "timestamptz",
        "total": "numeric", "parent": "text",
    },
    "so_id",
)  # fmt: skip
LINES = table("order_lines", {"so_id": "text", "line": "int4"}, "so_id", "line")
KEYS = [
    ForeignKey(("erp", "sales_orders"), ("erp", "customers"), ("bill_to",), ("id",), False),
    ForeignKey(("erp", "sales_orders"), ("erp", "customers"), ("ship_to",), ("id",), True),
    ForeignKey(("erp", "sales_orders"), ("erp", "sales_orders"), ("parent",), ("so_id",), False),
    ForeignKey(("erp", "order_lines"), ("erp", "sales_orders"), ("so_id",), ("so_id",), False),
]


def loaded(text: str) -> OntologyDraft:
    reading = read(text)
    assert reading.errors == ()
    assert reading.draft is not None
    return reading.draft


def test_what_is_guessed() -> None:
    text = draft("erp", [CUSTOMERS, ORDERS, LINES], KEYS)
    found = loaded(text)
    customer, order = found.types["customer"], found.types["sales_order"]
    assert (customer.table, customer.key, customer.title, customer.time) == (
        "erp.customers",
        "id",
        "company_name",
        "created_at",
    )
    assert customer.show == ("status", "vip")  # no hash, no keys, no times
    assert (order.title, order.label, order.time) == ("so_id", "Sales Order {so_id}", "order_date")
    assert (order.words, order.found_by_name) == (("sales order", "order"), False)
    assert order.show == ("total",)
    assert [(each.source, each.name, each.target, each.cardinality, each.join) for each in found.relations] == [
        ("customer", "has_as_bill_to", "sales_order", "one_to_many", (("id", "bill_to"),)),
        ("customer", "has_as_ship_to", "sales_order", "one_to_one", (("id", "ship_to"),)),
    ]
    assert "# Who buys" in text
    assert "no key of one column: erp.order_lines" in text
    assert "from sales_order to itself: parent" in text


def test_an_empty_database_has_an_empty_draft() -> None:
    assert draft("erp", [], []).endswith("types: {}\n\nrelations: []\n")


def test_tables_of_one_name_are_told_apart_by_their_schemas() -> None:
    tables = [table("users", {"id": "int4"}, "id", schema=each) for each in ("crm", "web")]
    assert set(loaded(draft("erp", tables, [])).types) == {"crm_user", "web_user"}


names = st.text(alphabet=st.sampled_from("aAyYnN0_ -'\":#{}.é\n&*%"), min_size=1, max_size=12)


@examples(150)
@given(st.dictionaries(names, st.lists(names, min_size=1, max_size=5, unique=True), min_size=1, max_size=5), st.data())
def test_a_draft_loads_whatever_the_names_are(tables: dict[str, list[str]], data: st.DataObject) -> None:
    kinds = st.sampled_from(["text", "int4", "date", "jsonb", "bool"])
    catalog = [
        table(name, {each: data.draw(kinds) for each in columns}, columns[0]) for name, columns in tables.items()
    ]
    places = st.sampled_from([("erp", each) for each in tables])
    keys = []
    for _ in range(data.draw(st.integers(0, 4))):
        child, parent = data.draw(places), data.draw(places)
        keys.append(
            ForeignKey(child, parent, (tables[child[1]][-1],), (tables[parent[1]][0],), data.draw(st.booleans()))
        )
    text = draft("erp", catalog, keys)
    if "\ntypes: {}" not in text:  # a file without types says nothing
        loaded(text)


@each_of(
    ("many", "one"),
    [("customers", "customer"), ("companies", "company"), ("boxes", "box"), ("addresses", "address"), ("status", "status"),
     ("branches", "branch"), ("bus", "bus"), ("data", "data"), ("invoices", "invoice")],
)  # fmt: skip
def test_one_of_them(many: str, one: str) -> None:
    assert singular(many) == one
