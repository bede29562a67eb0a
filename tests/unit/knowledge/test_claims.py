"""What messages say of things: triples with the things' ids."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from app.context.resolution import Entity, Resolution
from app.features.knowledge.claims import about_things
from app.features.knowledge.ontology import EntityType, Ontology
from app.memory.candidate import MemoryCandidate, SourceExchange
from app.memory.extract import extract
from tests.support.tables import each_of

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
GAI = Entity("customer:gai_123", "customer", "Gai Media Entertainment")
ACME = Entity("customer:acme", "customer", "Acme")
ONTOLOGY = Ontology(
    {
        "customer": EntityType(
            "customer",
            "erp",
            "domain.customers",
            "customer_id",
            "name",
            "Customer {name}",
            predicates={"payment_terms": "payment_terms", "industry": "sector", "credit_limit": "credit_limit"},
        )
    }
)
NAMES = {
    "Gai Media": GAI,
    "Gai": GAI,
    "Gai Media Entertainment": GAI,
    "Acme": ACME,
    "the customer": GAI,
    "their": GAI,
    "Their": GAI,
    "they": GAI,
}


def resolved(text: str) -> list[Resolution]:
    """What a resolver finds of the names above."""
    names = sorted(NAMES, key=len, reverse=True)
    return [
        Resolution(match[0], match.start(), NAMES[match[0]], 0.22 if match[0][1:4] == "hey" else 0.95, "known_alias")
        for match in re.finditer("|".join(rf"\b{each}\b" for each in names), text)
    ]


def said(text: str, day_of: dict[str, str] | None = None) -> list[MemoryCandidate]:
    return about_things(text, NOW, extract(SourceExchange(text, NOW)), resolved(text), ONTOLOGY, day_of)


@each_of(
    ("text", "predicate", "value"),
    [
        ("Gai Media's payment terms are NET30", "payment_terms", "NET30"),
        ("Gai Media is on NET30 payment terms.", "payment_terms", "NET30"),
        ("Gai has NET30 payment terms", "payment_terms", "NET30"),
        ("The payment terms of Gai Media are NET 30 now", "payment_terms", "NET 30"),
        ("For Gai Media, payment terms are NET30", "payment_terms", "NET30"),
        ("Our client Gai's industry is entertainment", "industry", "entertainment"),
        ("Gai's sector is still entertainment", "industry", "entertainment"),
        ("Acme has a credit limit of $5,000", "credit_limit", "$5,000"),
        ("I called. Their payment terms are NET30", "payment_terms", "NET30"),
        ("Remember, Gai Media prefers Friday deliveries", "delivery_day_preference", "Friday"),
        ("Gai prefers Thursday", "day_preference", "Thursday"),
        ("Actually, Gai Media prefers Thursday deliveries now", "delivery_day_preference", "Thursday"),
    ],
)
def test_a_statement_has_the_thing_for_its_subject(text: str, predicate: str, value: str) -> None:
    (one,) = [each for each in said(text) if each.triple is not None]
    assert one.triple is not None
    assert one.triple.subject in (GAI.id, ACME.id)
    assert (one.triple.predicate, one.triple.value) == (predicate, value)
    assert one.triple.subject in one.entity_ids
    assert text[one.span[0] : one.span[1]], "its words stand in the message"


def test_the_seed_s_sentence() -> None:
    """Seed 004, transformation 2: "Remember, Gai Media prefers Friday deliveries"."""
    (one,) = said("Remember, Gai Media prefers Friday deliveries")
    assert one.content == "Gai Media prefers Friday deliveries"
    assert one.explicit
    assert one.kind == "preference"
    assert one.entity_ids == (GAI.id, "gai-media", "friday")


@each_of(
    "text",
    [
        "What are Gai Media's payment terms?",
        "Gai Media's payment terms are not NET30",
        "If Gai Media's payment terms are NET30, say so",
        "My boss says Gai Media's payment terms are NET30",
        "Gai Media's order is late",
        "Is Gai Media on NET30 payment terms?",
        "Gai Media's payment terms are what worries me",
    ],
)
def test_what_is_not_stated_gives_nothing(text: str) -> None:
    assert [each for each in said(text) if each.triple is not None] == []


def test_a_day_alone_is_of_what_is_known() -> None:
    (one,) = said("Gai prefers Thursday", {GAI.id: "delivery_day_preference"})
    assert one.triple is not None
    assert (one.triple.predicate, one.triple.value) == ("delivery_day_preference", "Thursday")


def test_a_correction_is_one() -> None:
    (one,) = said("No, Gai Media's payment terms are NET15")
    assert one.kind == "correction"
    (one,) = said("Gai Media's payment terms changed from NET30 to NET15")
    assert one.kind == "correction"
    assert one.triple is not None
    assert one.triple.value == "NET15"


def test_when_it_is_so() -> None:
    (past,) = said("Gai Media's payment terms were NET30 until May")
    assert (past.since, past.until) == (None, datetime(2026, 5, 1, tzinfo=UTC))
    assert past.triple is not None
    assert past.triple.value == "NET30"
    for text in ("Since June Gai Media's payment terms are NET15", "Gai's payment terms are NET15 since June"):
        (later,) = said(text)
        assert (later.since, later.until) == (datetime(2026, 6, 1, tzinfo=UTC), None)
        assert later.triple is not None
        assert later.triple.value == "NET15"


def test_without_things_nothing_changes() -> None:
    text = "I live in Lisbon and Gai Media prefers Friday deliveries"
    found = extract(SourceExchange(text, NOW))
    assert about_things(text, NOW, found, [], ONTOLOGY) == found
    unresolved = [Resolution("Gai Media", text.index("Gai"), None, requires_disambiguation=True)]
    assert about_things(text, NOW, found, unresolved, ONTOLOGY) == found


def test_what_is_said_of_the_user_stays_so() -> None:
    found = said("I live in Lisbon, and Gai Media's payment terms are NET30")
    assert [each.triple.subject for each in found if each.triple] == ["user", GAI.id]


@each_of(
    ("text", "content"),
    [
        ("No, they prefer Thursday now", "Gai Media Entertainment prefers Thursday"),
        ("Their payment terms are NET15", "Gai Media Entertainment's payment terms are NET15"),
        ("Our client Gai's industry is entertainment", "Gai's industry is entertainment"),
        ("Gai Media's payment terms were NET30 until May", "Gai Media's payment terms were NET30 until May"),
    ],
)
def test_it_is_told_with_the_name(text: str, content: str) -> None:
    (one,) = said(text)
    assert one.content == content
    assert "media" not in one.entity_ids
    assert "media-entertainment" not in one.entity_ids


def test_what_points_back_too_far_is_tied_to_nothing() -> None:
    """Seed 004, stage 4: 0.6 · e^(−0.5 · 2) = 0.22 of the exchange before, 0.13 of a message further back."""
    text = "Well, their payment terms are NET15"
    for confidence, many in ((0.2207, 1), (0.1339, 0)):
        back = Resolution("their", text.index("their"), GAI, confidence, "coreference")
        assert len(about_things(text, NOW, extract(SourceExchange(text, NOW)), [back], ONTOLOGY)) == many
