"""What must not be remembered. Every number and key here is made up."""

from __future__ import annotations

import pytest

from app.memory.secrets import looks_secret


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize("unit", ["1 ", "4-", "AB12 ", "password ", "a://", "sk-", "eyJ.", "-----BEGIN "])
def test_long_texts_are_no_burden(unit: str) -> None:
    assert looks_secret(unit * 20_000) in (True, False)
