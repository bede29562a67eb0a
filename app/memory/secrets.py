"""Recognising what must not be remembered: credentials and keys, and what says who somebody is (numbers, addresses).

Patterns of the well-known formats with their checksums where they have one, and words that announce such a number. Each kind
may be refused or kept (`MNEME_REFUSE_PII`), beside patterns of the operator's own. Linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence

from mneme_replay.secrets import FORMATS

# --- credentials, private keys, card and account numbers -----------------------------------------------------------------

_FORMATS = re.compile(
    rf"""
    {FORMATS}
    | \b\d{{3}}-\d{{2}}-\d{{4}}\b              # a US social security number
    """,
    re.VERBOSE,
)
_ANNOUNCED = (
    r"(?:pass(?:word|phrase|code)s?|pwd|passwd|pin(?:\ (?:code|number))?|api[-\ _]?keys?|secret[-\ _]keys?|"
    r"access[-\ _]?(?:key|token)s?|auth(?:entication)?\ tokens?|bearer\ tokens?|private\ keys?|client\ secrets?|cvv|"
    r"cvc|security\ code|recovery\ (?:phrase|codes?)|seed\ phrase|(?:bank\ )?account\ number|"
    r"social\ security(?:\ number)?|ssn|passport\ number|(?:credit|debit)\ card(?:\ number)?|card\ number)"
)
_STATED = re.compile(
    rf"\b{_ANNOUNCED}(?:\ (?:for|of|to|on|at)\ [^.!?\n]{{1,60}}?)?(?:\ (?:is|was|are|will\ be)|'s|\s?[:=])\s*\S",
    re.IGNORECASE,
)
_DIGITS = re.compile(r"(?<![\w.])\d(?:[ -]?\d){12,18}(?![\w])")
_IBAN = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b")


def looks_secret(text: str) -> bool:
    """Does `text` hold a credential, or a number that opens an account?"""
    return bool(_FORMATS.search(text) or _STATED.search(text)) or _has_card(text) or _has_iban(text)


def _has_card(text: str) -> bool:
    """Is there the number of a payment card?"""
    return any(_luhn(found[0]) for found in _DIGITS.finditer(text))


def _has_iban(text: str) -> bool:
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


# --- who somebody is: addresses, telephone numbers, numbers that states give ---------------------------------------------

_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@(?:[\w-]{1,63}\.){1,4}[A-Za-z]{2,24}\b")
_PHONE = re.compile(
    r"(?<![\w.,+])(?:(?P<far>\+|00)[1-9]|\(?0?[1-9])(?:[ ()./-]{0,2}\d){6,13}(?![\w])(?![.,:-]\d)", re.IGNORECASE
)
_PHONE_WORDS = re.compile(
    r"\b(?:phone|mobile|cell|telephone|tel|whatsapp|landline|fax)\b|\b(?:call|ring|text|reach) (?:me|us|him|her|them)\b",
    re.IGNORECASE,
)
_PHONE_DIGITS = range(7, 16)  # ITU E.164: at most fifteen; announced numbers of one town have seven
_IDENTITY = re.compile(
    r"""
    \b\d{3}-\d{2}-\d{4}\b                                            # US social security
    | \b[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z]\ ?(?:\d{2}\ ?){3}[A-D]\b  # UK national insurance
    | \b[A-Z]{6}\d{2}[A-EHLMPRST]\d{2}[A-Z]\d{3}[A-Z]\b              # Italian codice fiscale
    | \b\d{3}\.\d{3}\.\d{3}-\d{2}\b                                  # Brazilian CPF
    | \b(?:19|20)?\d{6}[-+]\d{4}\b                                   # Swedish personnummer
    """,
    re.VERBOSE,
)
_SPANISH = re.compile(r"\b([XYZ]?\d{7,8})-?([A-Z])\b")
_SPANISH_LETTERS = "TRWAGMYFPDXBNJZSQVHLCKE"  # the remainder by 23 chooses one
_FRENCH = re.compile(r"(?<![\w.])([12] ?\d{2} ?\d{2} ?(?:\d{2}|2[AB]) ?\d{3} ?\d{3}) ?(\d{2})(?![\w.])")
_ANNOUNCED_NUMBER = re.compile(
    r"\b(?:social security|national insurance|national id|tax id|tax identification|identity card|id card|passport|"
    r"driv(?:er's|ing) licen[cs]e|insurance|nif|nie|dni|cpf|ssn|nino|aadhaar|personnummer|steuer-?id|bsn|pesel|health card)"
    r"(?: (?:number|no\.?|code|card number))?(?:'s| is| was|:| =)? ?(?:[A-Z]{1,3}[ -]?)?\d(?:[ .-]?[A-Z0-9]){5,17}\b",
    re.IGNORECASE,
)


def _has_email(text: str) -> bool:
    """Is there an address of e-mail?"""
    return _EMAIL.search(text) is not None


def _has_phone(text: str) -> bool:
    """Is there a number of a telephone: with its country's code, or announced as one?"""
    announced = _PHONE_WORDS.search(text) is not None
    for found in _PHONE.finditer(text):
        digits = sum(char.isdigit() for char in found[0])
        if digits in _PHONE_DIGITS and (found["far"] or announced):
            return True
    return False


def _has_national_id(text: str) -> bool:
    """Is there a number by which a state knows somebody?"""
    if _IDENTITY.search(text) or _ANNOUNCED_NUMBER.search(text):
        return True
    if any(_spanish(number, letter) for number, letter in _SPANISH.findall(text)):
        return True
    return any(_french(number, key) for number, key in _FRENCH.findall(text))


def _spanish(number: str, letter: str) -> bool:
    digits = number.replace("X", "0").replace("Y", "1").replace("Z", "2")
    return len(digits) == 8 and _SPANISH_LETTERS[int(digits) % 23] == letter


def _french(number: str, key: str) -> bool:
    plain = number.replace(" ", "").replace("2A", "19").replace("2B", "18")
    return 97 - int(plain) % 97 == int(key)


KINDS: Mapping[str, Callable[[str], bool]] = {
    "card": _has_card,
    "iban": _has_iban,
    "national_id": _has_national_id,
    "phone": _has_phone,
    "email": _has_email,
}
"""What can be refused, by the names of `MNEME_REFUSE_PII`."""


def refuser(kinds: Collection[str], patterns: Sequence[str] = ()) -> Callable[[str], bool]:
    """Says of a text whether it holds one of these kinds, or something that one of the patterns finds (regular expressions,
    without regard to case)."""
    checks = [KINDS[kind] for kind in kinds]
    own = [re.compile(pattern, re.IGNORECASE) for pattern in patterns]
    return lambda text: any(check(text) for check in checks) or any(pattern.search(text) for pattern in own)


def unwelcome(store_secrets: bool, kinds: Collection[str], patterns: Sequence[str] = ()) -> Callable[[str], bool]:
    """Says of a text whether it is not to be remembered, by the settings MNEME_STORE_SECRETS, MNEME_REFUSE_PII and
    MNEME_REFUSE_PATTERNS."""
    refuses = refuser(kinds, patterns)
    return lambda text: (not store_secrets and looks_secret(text)) or refuses(text)
