"""Recognising what must not be remembered: credentials, private keys, card and account numbers.

Patterns of the well-known formats, checksums where a format has one (Luhn, ISO 7064), and words that announce a
password. Linear in the text.
"""

from __future__ import annotations

import re

from mneme_replay.secrets import FORMATS

_FORMATS = re.compile(
    rf"""
    {FORMATS}
    | \b\d{{3}}-\d{{2}}-\d{{4}}\b              # a US social security number
    """,
    re.VERBOSE,
)
_ANNOUNCED = (
    r"(?:pass(?:word|phrase|code)s?|pwd|passwd|pin(?:\ (?:code|number))?|api[-\ _]?keys?|secret[-\ _]keys?|"
    r"access[-\ _]?"
    r"(?:key|token)s?|auth(?:entication)?\ tokens?|bearer\ tokens?|private\ keys?|client\ secrets?|cvv|cvc|"
    r"security\ code|"
    r"recovery\ (?:phrase|codes?)|seed\ phrase|(?:bank\ )?account\ number|social\ security(?:\ number)?|ssn|"
    r"passport\ number|"
    r"(?:credit|debit)\ card(?:\ number)?|card\ number)"
)
_STATED = re.compile(
    rf"\b{_ANNOUNCED}(?:\ (?:for|of|to|on|at)\ [^.!?\n]{{1,60}}?)?(?:\ (?:is|was|are|will\ be)|'s|\s?[:=])\s*\S",
    re.IGNORECASE,
)
_DIGITS = re.compile(r"(?<![\w.])\d(?:[ -]?\d){12,18}(?![\w])")
_IBAN = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b")


def looks_secret(text: str) -> bool:
    """Does `text` hold a credential, or a number that opens an account?"""
    if _FORMATS.search(text) or _STATED.search(text):
        return True
    return has_card(text) or has_iban(text)


def has_card(text: str) -> bool:
    """Is there the number of a payment card?"""
    return any(_luhn(found[0]) for found in _DIGITS.finditer(text))


def has_iban(text: str) -> bool:
    """Is there the number of a bank account?"""
    return any(_mod97(found[0]) for found in _IBAN.finditer(text))


def _luhn(number: str) -> bool:
    """The checksum of payment cards (ISO/IEC 7812)."""
    digits = [int(c) for c in number if c.isdigit()]
    if len(set(digits)) == 1:
        return False
    doubled = [d if i % 2 == 0 else (2 * d - 9 if d > 4 else 2 * d) for i, d in enumerate(reversed(digits))]
    return sum(doubled) % 10 == 0


def _mod97(number: str) -> bool:
    """The checksum of an IBAN (ISO 13616, ISO 7064)."""
    plain = number.replace(" ", "")
    return int("".join(str(int(c, 36)) for c in plain[4:] + plain[:4])) % 97 == 1
