"""Which rows a question needs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from app.context.question import TimeSpan, asked_time
from app.context.resolution import Entity, Resolution
from app.features.knowledge.domain_sql import TraversalQuery, WalkLimits, plan, plural, spoken_of
from app.features.knowledge.ontology import NO_ONTOLOGY, EntityType, Ontology, Relation
from app.memory.episodes import SoughtRows
from tests.support.sample_domain import sample_ontology
from tests.support.tables import each_of

GAI = Entity("customer:gai_123", "customer", "Gai Media Entertainment")
SO = Entity("sales_order:SO-1045", "sales_order", "Sales Order SO-1045")
NOW = datetime(2024, 10, 15, tzinfo=UTC)
ONTOLOGY = sample_ontology()
LIMITS = WalkLimits()


def resolved(question: str, *entities: Entity, mention: str = "Gai Media") -> list[Resolution]:
    return [Resolution(mention, max(question.find(mention), 0), each, 0.95, "known_alias") for each in entities]


def tree(asks: Sequence[TraversalQuery]) -> object:
    """The plan as names: a listed one in capitals."""
    return [(each.type.name.upper() if each.listed else each.type.name, tree(each.onward)) if each.onward
            else each.type.name.upper() if each.listed else each.type.name for each in asks]  # fmt: skip


def planned(
    question: str, *entities: Entity, limits: WalkLimits = LIMITS, widened: Sequence[str] = ()
) -> Sequence[TraversalQuery]:
    found = resolved(question, *(entities or (GAI,)))
    return plan(found, question, asked_time(question, NOW), ONTOLOGY, limits, widened)


def test_the_seeds_question_takes_its_three_queries() -> None:
    """customer --[HAS_MANY]--> sales_orders --[CREATES]--> work_orders, the orders of September."""
    (root,) = planned("What did Gai Media order last month?")
    assert tree([root]) == [("CUSTOMER", [("SALES_ORDER", ["work_order"])])]
    (orders,) = root.onward
    assert orders.span == TimeSpan(datetime(2024, 9, 1, tzinfo=UTC), datetime(2024, 10, 1, tzinfo=UTC))
    assert (orders.relation is not None and orders.relation.name, orders.backwards, orders.limit) == ("has", False, 20)
    assert (orders.onward[0].span, orders.onward[0].limit) == (None, 100)


@each_of(
    ("question", "expected"),
    [
        ("How is Gai Media doing?", ["CUSTOMER"]),
        ("What are Gai Media's payment terms?", ["CUSTOMER"]),
        ("What are the payment terms and payments of Gai Media?", [("CUSTOMER", [("invoice", ["PAYMENT"])])]),
        ("Which work orders are open for Gai Media?", [("CUSTOMER", [("sales_order", ["WORK_ORDER"])])]),
        ("Has Gai Media paid?", [("CUSTOMER", [("invoice", ["PAYMENT"])])]),
        ("Has Gai Media paid its invoices?", [("CUSTOMER", [("INVOICE", ["PAYMENT"])])]),
        ("Gai Media's contacts and invoices", [("CUSTOMER", ["CONTACT", ("INVOICE", ["payment"])])]),
        ("Tell me about Gai Media", [("CUSTOMER", ["SALES_ORDER", "CONTACT", "INVOICE"])]),
        ("Does Gai Media reorder borders?", ["CUSTOMER"]),
    ],
)
def test_what_a_question_has_a_word_for(question: str, expected: object) -> None:
    assert tree(planned(question)) == expected


def test_relations_are_walked_from_both_ends() -> None:
    (root,) = planned("Which customer is SO-1045 for, and which product?", SO)
    assert {(each.type.name, each.backwards) for each in root.onward} == {("customer", True), ("product", False)}


def test_words_in_the_name_itself_ask_for_nothing() -> None:
    question = "What is up with Delta Invoice Services?"
    found = [Resolution("Delta Invoice Services", question.index("Delta"), GAI, 1.0)]
    assert tree(plan(found, question, None, ONTOLOGY)) == ["CUSTOMER"]


def test_a_procedure_widens_what_is_looked_for() -> None:
    assert tree(planned("How is Gai Media doing?", widened=["check the invoices as well"])) == [
        ("CUSTOMER", [("INVOICE", ["payment"])])
    ]


def test_a_habit_s_rows_are_narrowed_and_the_question_s_own_are_not() -> None:
    open_ones = [SoughtRows("invoices", (("status", "open"),))]
    (root,) = plan(resolved("How is Gai Media doing?", GAI), "How is Gai Media doing?", None, ONTOLOGY, rows=open_ones)
    assert [(each.type.name, each.where) for each in root.onward] == [("invoice", (("status", "open"),))]
    question = "Which invoices has Gai Media?"
    (root,) = plan(resolved(question, GAI), question, None, ONTOLOGY, widened=["invoice"], rows=open_ones)
    assert [(each.type.name, each.where) for each in root.onward] == [("invoice", ())]


def test_everything_is_a_few_rows_of_each() -> None:
    (root,) = planned("Tell me about Gai Media")
    assert {each.limit for each in root.onward} == {5}
    assert {
        each.limit
        for each in planned("Tell me about the orders of Gai Media")[0].onward
        if each.type.name == "sales_order"
    } == {20}


def test_nothing_known_is_nothing_asked() -> None:
    unknown = Entity("person:ana", "person", "Ana")
    assert plan(resolved("What did Ana order?", unknown), "What did Ana order?", None, ONTOLOGY) == ()
    assert plan(resolved("x", GAI), "What did Gai Media order?", None, NO_ONTOLOGY) == ()
    several = Resolution("Gai", 0, None, requires_disambiguation=True)
    assert plan([several], "What did Gai order?", None, ONTOLOGY) == ()


def count(asks: Sequence[TraversalQuery]) -> int:
    return sum(1 + count(each.onward) for each in asks)


def depth(asks: Sequence[TraversalQuery]) -> int:
    return max((1 + depth(each.onward) for each in asks), default=0)


def test_a_plan_is_bounded() -> None:
    question = "Tell me all: orders, contacts, invoices, products, payments, work orders"
    entities = [Entity(f"customer:c{n}", "customer", f"C{n}") for n in range(9)]
    limits = WalkLimits(queries=7, things=2)
    found = plan(resolved(question, *entities), question, None, ONTOLOGY, limits)
    assert (len(found), count(found)) == (2, 7)
    assert depth(planned(question, limits=WalkLimits(hops=0))) == 1
    assert depth(planned(question, limits=WalkLimits(hops=1))) == 2


NAMES = [f"t{n}" for n in range(6)]
graphs = st.lists(
    st.tuples(
        st.sampled_from(NAMES), st.sampled_from(NAMES), st.sampled_from(["one_to_many", "many_to_one", "one_to_one"])
    ),
    max_size=14,
)


@given(graphs, st.sets(st.sampled_from(NAMES)), st.booleans(), st.integers(0, 4), st.integers(1, 9))
def test_no_walk_visits_a_type_twice_or_goes_too_far(
    graph: list[tuple[str, str, str]], words: set[str], everything: bool, hops: int, queries: int
) -> None:
    types = {name: EntityType(name, "d", name, "id", "id", "{id}", words=(name,)) for name in NAMES}
    relations = [Relation("d", a, f"r{n}", b, how, "", (("id", "id"),)) for n, (a, b, how) in enumerate(graph)]  # type: ignore[arg-type]
    ontology = Ontology(types, relations, 1)
    question = ("Tell me about X: " if everything else "X: ") + " ".join(sorted(words))
    limits = WalkLimits(hops=hops, queries=queries)
    found = plan([Resolution("X", question.index("X"), Entity("t0:x", "t0", "X"))], question, None, ontology, limits)
    assert depth(found) <= hops + 1
    assert 1 <= count(found) <= queries

    def check(ask: TraversalQuery, above: frozenset[str]) -> None:
        assert ask.type.name not in above
        for each in ask.onward:
            assert each.relation is not None
            ends = (each.relation.source, each.relation.target)
            assert ends == ((each.type.name, ask.type.name) if each.backwards else (ask.type.name, each.type.name))
            check(each, above | {ask.type.name})

    for each in found:
        check(each, frozenset())


def test_words_are_found_whole_in_one_and_in_many() -> None:
    assert spoken_of(["WORK-ORDERS and clients"], ONTOLOGY) == {"work_order", "customer"}
    assert spoken_of(["the ordering of customership"], ONTOLOGY) == frozenset()
    assert spoken_of(["sales_order"], ONTOLOGY) == {"sales_order"}
    assert spoken_of(["orders"], NO_ONTOLOGY) == frozenset()


@each_of(
    ("one", "many"),
    [
        ("order", "orders"),
        ("company", "companies"),
        ("box", "boxes"),
        ("day", "days"),
        ("news", "news"),
        ("batch", "batches"),
    ],
)
def test_more_than_one(one: str, many: str) -> None:
    assert plural(one) == many
