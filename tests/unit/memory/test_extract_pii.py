"""Numbers and addresses that say who somebody is. All are made up, or the examples of the formats themselves."""

from __future__ import annotations

import pytest

from app.memory.secrets import KINDS, refuser

FOUND = {
    "card": ["my card is 4111 1111 1111 1111"],
    "iban": ["GB82 WEST 1234 5698 7654 32"],
    "national_id": [
        "my ssn is 219-09-9999",
        "AB 12 34 56 C",
        "codice fiscale RSSMRA85T10A562S",
        "CPF 123.456.789-09",
        "personnummer 850709-9805",
        "DNI 12345678Z",
        "NIE X1234567L",
        "numéro 2 55 08 14 168 025 38",
        "my passport number is AB1234567",
        "my NIF is 123456789",
    ],
    "phone": [
        "call me on +351 912 345 678",
        "my phone is 555-0199-22",
        "my mobile number is (020) 7946 0958",
        "0044 20 7946 0958",
    ],
    "email": ["write to ana.duarte+x@mail.example.com", "ana@example.org is mine"],
}
CLEAN = [
    "Lives in Lisbon",
    "Birthday is 4 May 1990",
    "Has an exam on 2026-11-28 at 12:30",
    "Budget is 1,200,000 euros",
    "Prefers posts under 800 words",
    "Uses Python 3.12.4 and Postgres 15",
    "Order number 20261128 arrived",
    "The address is 10.0.0.12",
    "Follows @ana on the site",
    "Weighs 82.5 kg",
    "pi is 3.14159265358979",
]


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in FOUND.items() for text in texts])
def test_what_is_found(kind: str, text: str) -> None:
    assert KINDS[kind](text)
    assert refuser([kind])(text)
    assert not refuser([])(text)


@pytest.mark.parametrize("text", CLEAN)
def test_what_is_none(text: str) -> None:
    assert [kind for kind, check in KINDS.items() if check(text)] == []


def test_patterns_of_the_operators_own() -> None:
    refuses = refuser([], [r"\bemp-\d{4}\b"])
    assert refuses("my badge is EMP-1234")
    assert not refuses("my badge is 1234")


@pytest.mark.parametrize("unit", ["1 ", "+1", "a@", "a.", "12-", "passport ", "X1", "(0"])
def test_long_texts_are_no_burden(unit: str) -> None:
    assert refuser(KINDS)(unit * 20_000) in (True, False)
