"""What words that point back mean, and which alternative a message picks."""

from __future__ import annotations

from datetime import UTC, datetime

from app.context.resolution import Alternative, Entity
from app.features.knowledge.ontology import NO_ONTOLOGY
from app.features.knowledge.resolution import Antecedent, Meaning, Occurrence, TextSpan, chosen, find, pick, refer
from tests.support.labelled_mentions import ONTOLOGY
from tests.support.tables import each_of

GAI = Entity("customer:gai_123", "customer", "Gai Media Entertainment")
ACME = Entity("customer:acme_1", "customer", "Acme Corporation")
ORDER = Entity("sales_order:so_1001", "sales_order", "Sales Order SO-1001")
ANA = Entity("contact:ana", "contact", "Ana Lopez")
OPTIONS = [
    Alternative(Entity("customer:delta_2", "customer", "Delta Foods"), 0.7),
    Alternative(Entity("customer:delta_1", "customer", "Delta Industries"), 0.7),
    Alternative(Entity("customer:d3", "customer", "Delta Industries Iberia"), 0.7),
]


def asked(options: list[Alternative]) -> Occurrence:
    return Occurrence(TextSpan(0, 5, "Delta", "delta"), Meaning("exact", tuple(options), False))


def meant(text: str, *antecedents: Antecedent) -> list[str]:
    (pointer,) = find(text, ONTOLOGY).pointers
    return [each.entity.id for each in refer(pointer, antecedents, ONTOLOGY)]


def test_the_latest_mention_comes_first() -> None:
    one, other = Antecedent(GAI, 3, 0), Antecedent(ACME, 1, 0)
    assert meant("do they pay?", one, other) == [ACME.id, GAI.id]
    assert meant("do they pay?", one._replace(distance=1, place=9), other) == [GAI.id, ACME.id]


def test_the_customer_is_a_customer() -> None:
    """Seed 004: "the customer" → only customers."""
    assert meant("what does the customer owe?", Antecedent(ORDER, 1, 0), Antecedent(GAI, 4, 0)) == [GAI.id]
    assert meant("what does the customer owe?", Antecedent(ORDER, 1, 0)) == []


def test_they_are_rather_the_customer_and_it_is_rather_the_order() -> None:
    """Seed 004: "they" → the most recent customer."""
    both = (Antecedent(ORDER, 1, 20), Antecedent(GAI, 1, 0))
    assert meant("have they paid?", *both) == [GAI.id]
    assert meant("did it ship?", *both) == [ORDER.id]
    assert meant("have they shipped?", Antecedent(ORDER, 1, 0)) == [ORDER.id], "better than nothing"


def test_she_is_a_person() -> None:
    assert meant("call her", Antecedent(ORDER, 1, 0), Antecedent(ANA, 5, 0)) == [ANA.id]
    assert meant("call her", Antecedent(ORDER, 1, 0)) == []


def test_in_the_same_message_only_what_stands_before_counts() -> None:
    assert meant("Do they know?", Antecedent(GAI, 1, 20, here=True)) == []
    assert meant("......... do they know?", Antecedent(GAI, 1, 0, here=True)) == [GAI.id]


def test_each_thing_is_meant_once() -> None:
    assert meant("do they pay?", Antecedent(GAI, 1, 0), Antecedent(GAI, 2, 0), Antecedent(ACME, 3, 0)) == [
        GAI.id,
        ACME.id,
    ]


def test_a_type_that_the_ontology_does_not_know_goes_by_its_name() -> None:
    (pointer,) = find("do they pay?").pointers
    vendor = Entity("vendor:1", "vendor", "V")
    machine = Entity("machine:1", "machine", "M")
    found = refer(pointer, [Antecedent(machine, 1, 0), Antecedent(vendor, 2, 0)], NO_ONTOLOGY)
    assert [each.entity for each in found] == [vendor]


@each_of(
    ("text", "picked", "words"),
    [
        ("The first one.", "customer:delta_2", "The first one"),
        ("the second", "customer:delta_1", "the second"),
        ("second one please", "customer:delta_1", "second"),
        ("I think the third option", "customer:d3", "the third option"),
        ("the last one", "customer:d3", "the last one"),
        ("2", "customer:delta_1", "2"),
        ("#2", "customer:delta_1", "#2"),
        ("option two", "customer:delta_1", "option two"),
        ("number 3!", "customer:d3", "number 3"),
        ("Delta Foods", "customer:delta_2", "Delta Foods"),
        ("foods", "customer:delta_2", "foods"),
        ("the Iberian one, Iberia", "customer:d3", "Iberia"),
        ("delta industries", "customer:delta_1", "delta industries"),
        ("customer:delta_1", "customer:delta_1", "customer:delta_1"),
        ("I mean delta_1, thanks", "customer:delta_1", "delta_1"),
    ],
)
def test_an_alternative_is_picked(text: str, picked: str, words: str) -> None:
    found = pick(text, asked(OPTIONS))
    assert found is not None
    assert found.option.entity.id == picked
    assert words in found.piece.text or found.piece.text in words
    assert text[found.piece.start : found.piece.end] == found.piece.text


@each_of(
    "text",
    [
        "never mind",
        "give me a second",
        "the fifth one",
        "delta",
        "foods or iberia?",
        "the first quarter was good",
        "the last time we spoke",
        "first of all, thanks for the long answer that you gave to me about the second one today",
        "12",
        "",
        "\x00",
    ],
)
def test_nothing_is_picked(text: str) -> None:
    assert pick(text, asked(OPTIONS)) is None


def test_of_one_alternative_none_is_picked() -> None:
    assert pick("the first one", asked(OPTIONS[:1])) is None


def test_a_choice_teaches_what_the_seed_shows() -> None:
    """Seed 004, table 3: `disambiguation_context` and `disambiguation_history`."""
    taught = chosen("Delta's", "customer:delta_1", ["customer:delta_2"], datetime(2024, 9, 15, tzinfo=UTC))
    assert (taught.norm, taught.text, taught.source, taught.own) == ("delta", "Delta", "user_stated", True)
    assert taught.confidence == 0.85
    assert taught.metadata == {
        "disambiguation_context": {"alternative_entities": ["customer:delta_2"], "preferred_for_user": True},
        "disambiguation_history": [{"chosen_at": "2024-09-15", "alternatives_count": 2}],
    }
