"""What must not be remembered. Every number and key here is made up."""

from __future__ import annotations

from app.memory.secrets import KINDS, looks_secret, refuser
from tests.support.tables import each_of


@each_of(
    "text",
    [
        "sk-proj-" + "a1B2c3D4" * 4,
        "ghp_" + "a1B2c3D4e5" * 4,
        "AKIA" + "ABCDEFGH12345678",
        "xoxb-1234567890-abcdef",
        "mneme_" + "x" * 32,
        "sk_live_" + "0123456789abcdef",
        "-----BEGIN RSA PRIVATE KEY-----",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
        "postgres://ana:hunter2@db.example.com/x",
        "my password is hunter2",
        "Password: hunter2",
        "the pin for my card is 1234",
        "my API key is abc",
        "my credit card number is 12",
        "my card is 4111 1111 1111 1111",
        "4111-1111-1111-1111",
        "378282246310005",
        "IBAN GB82 WEST 1234 5698 7654 32",
        "DE89370400440532013000",
        "my ssn: 123-45-6789",
        "219-09-9999",
    ],
)
def test_secrets(text: str) -> None:
    assert looks_secret(text)


@each_of(
    "text",
    [
        "I live in Lisbon",
        "my phone is 555-0199",
        "my order is 4111 1111 1111 1112",  # the checksum is wrong
        "0000 0000 0000 0000",
        "pi is 3.14159265358979323846",
        "call me on +351 912 345 678",
        "2026-11-20T12:00:00",
        "I forgot my password",
        "the key to success",
        "skill-based matching",
        "https://example.com/a:b@c",
        "GB82 WEST 1234 5698 7654 33",
        "550e8400-e29b-41d4-a716-446655440000",
    ],
)
def test_no_secrets(text: str) -> None:
    assert not looks_secret(text)


@each_of("unit", ["1 ", "4-", "AB12 ", "password ", "a://", "sk-", "eyJ.", "-----BEGIN "])
def test_long_texts_are_no_burden(unit: str) -> None:
    assert looks_secret(unit * 20_000) in (True, False)


# --- numbers and addresses that say who somebody is -------------------------------------------------------------------

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


@each_of(("kind", "text"), [(kind, text) for kind, texts in FOUND.items() for text in texts])
def test_what_is_found(kind: str, text: str) -> None:
    assert KINDS[kind](text)
    assert refuser([kind])(text)
    assert not refuser([])(text)


@each_of("text", CLEAN)
def test_what_is_none(text: str) -> None:
    assert [kind for kind, check in KINDS.items() if check(text)] == []


def test_patterns_of_the_operators_own() -> None:
    refuses = refuser([], [r"\bemp-\d{4}\b"])
    assert refuses("my badge is EMP-1234")
    assert not refuses("my badge is 1234")


@each_of("unit", ["1 ", "+1", "a@", "a.", "12-", "passport ", "X1", "(0"])
def test_long_texts_are_no_burden_for_any_kind(unit: str) -> None:
    assert refuser(KINDS)(unit * 20_000) in (True, False)
