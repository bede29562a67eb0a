"""The YAML of an ontology: what is right, and every way to be wrong, with its line."""

from __future__ import annotations

import re
import time

from hypothesis import given
from hypothesis import strategies as st

from app.features.knowledge.ontology import entity_type
from app.features.knowledge.ontology_yaml import MAX_BYTES, MAX_DEPTH, MAX_FINDINGS, read
from tests.support.properties import examples
from tests.support.sample_domain import ONTOLOGY_YAML, sample_ontology
from tests.support.tables import each_of

GOOD = """\
domain: erp
types:
  customer:
    table: domain.customers
    key: customer_id
    title: name
    label: Customer {name}
    also: [short_name]
    identifier: 'C-\\d{3}'
    words: [Customer, client]
    show: [status]
    time: created_at
    predicates: {payment_terms: terms}
    conflicts: {payment_terms: ask_user}
    found_by_name: true
  order:
    table: orders
    key: id
relations:
  - from: customer
    relation: has
    to: order
    cardinality: one_to_many
    semantics: Customer places orders
    join: {customer_id: customer_id, region: region}
    constraints: {lifecycle: [a, 1, true, null]}
"""


def test_trust_in_the_recent_needs_a_time_of_change() -> None:
    text = GOOD.replace("ask_user", "trust_recent")
    ((level, line, column, message),) = [
        (each.level, each.line, each.column, each.message) for each in read(text).findings
    ]
    assert (level, line, column) == ("warning", 14, 32)
    assert "trust_recent is trust_db for payment_terms" in message
    reading = read(text.replace("time: created_at", "time: created_at\n    changed: updated_at"))
    assert reading.findings == ()
    assert reading.draft is not None
    customer = reading.draft.types["customer"]
    assert (customer.changed, entity_type(customer.spec())) == ("updated_at", customer)


def test_everything_that_a_file_may_say() -> None:
    reading = read(GOOD)
    assert reading.findings == ()
    assert reading.draft is not None
    customer, order = reading.draft.types.values()
    assert (customer.table, customer.key, customer.title, customer.label) == (
        "domain.customers", "customer_id", "name", "Customer {name}",
    )  # fmt: skip
    assert (customer.also, customer.identifier, customer.words) == (("short_name",), r"C-\d{3}", ("customer", "client"))
    assert (customer.show, customer.time) == (("status",), "created_at")
    assert (customer.predicates, customer.conflicts) == ({"payment_terms": "terms"}, {"payment_terms": "ask_user"})
    assert (order.title, order.label, order.found_by_name, order.time) == ("id", "{id}", True, None)
    (relation,) = reading.draft.relations
    assert relation.join == (("customer_id", "customer_id"), ("region", "region"))
    assert relation.constraints == {"lifecycle": ["a", "1", True, None]}
    assert reading.draft.places["types", "order", "table"] == (17, 12)


def test_the_sample_is_good_and_comes_back_from_what_is_stored() -> None:
    reading = read(ONTOLOGY_YAML)
    assert reading.findings == ()
    for kind in sample_ontology().types.values():
        assert entity_type(kind.spec()) == kind


def changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new, 1)


BAD = [
    ("", 1, "the file is empty"),
    ("[1]", 1, "is a mapping"),
    ("domain: erp\ntypes: {a: {table: t, key: k}\n", 3, "this is no YAML"),
    ("domain: erp\n", 1, "needs `types:`"),
    ("domain: erp\ntypes: {}\n", 2, "there are no types"),
    (changed("domain: erp", "domain: Erp 1"), 1, "is no name"),
    (changed("domain: erp", "domain: no"), 1, "read as true or false: write it in quotes"),
    (changed("domain: erp", "domain: 12"), 1, "read as a number"),
    (changed("domain: erp", "domain: [erp]"), 1, "is a text, not a list"),
    (changed("domain: erp", "domian: erp"), 1, "is domain meant?"),
    (changed("    key: customer_id", "    keys: customer_id"), 5, "is key meant?"),
    (changed("    table: domain.customers\n", ""), 4, "types.customer needs `table:`"),
    (changed("    table: domain.customers", "    table:"), 4, "types.customer needs `table:`"),
    (changed("domain.customers", "a.b.c"), 4, "is no table"),
    (changed("domain.customers", "x" * 64), 4, "longer than 63 bytes"),
    (changed("domain.customers", '"a\\0b"'), 4, "control character"),
    (changed("    key: customer_id", "    key: customer_id\n    key: other"), 6, "'key' stands twice"),
    (changed("  order:\n", "  customer:\n"), 16, "'customer' stands twice"),
    (changed("  order:\n", "  Order!:\n"), 17, "is no name"),
    (changed("Customer {name}", "'Customer {name'"), 7, "brace that is not closed"),
    (changed("Customer {name}", "Customer"), 7, "names no column"),
    (changed("also: [short_name]", "also: short_name"), 8, "is a list"),
    (changed("also: [short_name]", "also: [a, a]"), 8, "'a' stands twice"),
    (changed(r"'C-\d{3}'", "'C-('"), 9, "is no regular expression"),
    (changed(r"'C-\d{3}'", "'(a+)+'"), 9, "may take for ever"),
    (changed(r"'C-\d{3}'", "'.*'"), 9, "the empty text"),
    (changed("[Customer, client]", "[yes]"), 10, "write it in quotes"),
    (changed("[Customer, client]", "{a: b}"), 10, "is a list, [a, b], not a mapping"),
    (changed("{payment_terms: terms}", "{Payment Terms: terms}"), 13, "is no name"),
    (changed("{payment_terms: terms}", "{payment_terms: [terms]}"), 13, "not a list"),
    (changed("ask_user", "trust_me"), 14, "is no strategy: one of trust_db"),
    (changed("{payment_terms: ask_user}", "{terms: ask_user}"), 14, "no predicate of customer"),
    (changed("found_by_name: true", "found_by_name: maybe"), 15, "is true or false"),
    (changed("  - from: customer", "  - from: custmer"), 20, "there is no type 'custmer' (is customer meant?)"),
    (changed("    to: order", "    to: orders"), 22, "is order meant?"),
    (changed("one_to_many", "many"), 23, "is no cardinality"),
    (changed("    join: {customer_id: customer_id, region: region}\n", ""), 20, "needs `join:`"),
    (changed("{customer_id: customer_id, region: region}", "{}"), 25, "at least one pair"),
    (changed("{customer_id: customer_id, region: region}", "[a]"), 25, "is a mapping"),
    (changed("constraints: {lifecycle: [a, 1, true, null]}", "constraints: none"), 26, "is a mapping"),
    (GOOD.replace("relations:\n  - from", "relations:\n    from").replace("\n    ", "\n    "), 20, "is a list"),
    (GOOD + "  - {from: customer, relation: has, to: order, cardinality: one_to_many, join: {a: b}}\n", 27, "line 20 already"),
    (
        GOOD + "  - {from: order, relation: of, to: customer, cardinality: many_to_one,"
        " join: {region: region, customer_id: customer_id}}\n",
        27,
        "the relation of line 20 from its other end",
    ),
    (GOOD + "---\ndomain: x\n", 27, "a second document"),
    (changed("domain: erp", "domain: &a erp"), 1, "anchors and aliases"),
    (GOOD + "more: *a\n", 27, "anchors and aliases"),
    (changed("domain: erp", "domain: !!python/object/apply:os.system ['x']"), 1, "is a text, not a list"),
    (changed("[a, 1, true, null]", "[" * MAX_DEPTH + "]" * MAX_DEPTH), 26, "nested deeper"),
    ("a: \x01", 1, "this is no YAML"),
    ("#" * (MAX_BYTES + 1), 1, "larger than 256 KiB"),
]  # fmt: skip


@each_of(("text", "line", "message"), BAD)
def test_what_is_wrong_is_said_with_its_line(text: str, line: int, message: str) -> None:
    reading = read(text)
    assert reading.draft is None
    told = [(each.line, each.message) for each in reading.findings]
    assert any(at == line and message in said for at, said in told), told


def test_all_errors_are_told_in_their_order_and_not_more_than_anybody_reads() -> None:
    text = changed("    key: customer_id", "    kee: x").replace("one_to_many", "many").replace("ask_user", "x")
    assert [each.line for each in read(text).errors] == [4, 5, 14, 23]
    many = "domain: erp\ntypes:\n" + "".join(f"  t{n}: {{tabel: t}}\n" for n in range(100))
    assert len(read(many).findings) == MAX_FINDINGS


ROUND = """\
domain: erp
types: {a: {table: a, key: id}, b: {table: b, key: id}, c: {table: c, key: id}}
relations:
  - {from: a, relation: has, to: b, cardinality: one_to_many, join: {id: a_id}}
  - {from: b, relation: has, to: c, cardinality: one_to_many, join: {id: b_id}}
  - {from: c, relation: has, to: a, cardinality: one_to_many, join: {id: c_id}}
  - {from: a, relation: above, to: a, cardinality: one_to_many, join: {id: parent_id}}
"""


def test_a_round_of_many_is_doubtful_and_told_where_it_closes() -> None:
    reading = read(ROUND)
    assert reading.draft is not None
    assert [(each.level, each.line) for each in reading.findings] == [("warning", 6), ("warning", 7)]
    assert "c → a → b → c" in reading.findings[0].message
    assert "to itself" in reading.findings[1].message


def test_a_round_with_a_way_up_is_no_round() -> None:
    up = ROUND.replace("one_to_many, join: {id: c_id}", "many_to_one, join: {c_id: id}")
    assert read(up.partition("  - {from: a, relation: above")[0]).findings == ()


def test_a_pattern_that_matches_ordinary_words_is_doubtful() -> None:
    (finding,) = read(changed(r"'C-\d{3}'", "'[A-Za-z]+'")).findings
    assert (finding.level, finding.line, finding.column) == ("warning", 9, 17)
    assert "customer" in finding.message


def test_a_deep_or_wide_file_is_refused_at_once() -> None:
    began = time.process_time()
    assert read("a: " + "[" * 100_000).draft is None
    assert read("{" * 100_000).draft is None
    assert read("domain: x\ntypes: " + "{a: " * 60_000).draft is None
    assert time.process_time() - began < 5


@examples(200)
@given(st.text(max_size=300))
def test_no_text_makes_it_raise(text: str) -> None:
    reading = read(text)
    assert reading.draft is None
    assert all(each.line >= 1 and each.column >= 1 and each.message for each in reading.findings)


@examples(200)
@given(st.data())
def test_no_damage_makes_it_raise(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(GOOD) - 1))
    piece = data.draw(st.text(alphabet=st.sampled_from("\n {}[]:,'\"&*!|>-%@`ax1\x00\u2028"), max_size=5))
    cut = data.draw(st.integers(0, 20))
    reading = read(GOOD[:at] + piece + GOOD[at + cut :])
    assert (reading.draft is None) == bool(reading.errors)
    assert all(not re.search(r"[\x00\n]", each.message) for each in reading.findings)
