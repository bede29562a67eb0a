"""Read the values that name a user or a session, and refuse those that name nobody.

Applications fill a name in from a variable. Where the variable is missing, or a template was never filled, every person has the
same text, and a memory kept under that text would be shared by all of them.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Literal
from urllib.parse import unquote

from app.text_cache import of_texts

MAX_NAME = 512
"""Longest user or session name, characters: it is an identifier, not a text, and an index entry holds 2,704 bytes."""

NameFault = Literal["blank", "too-long", "wrong-type", "placeholder", "damaged"]
"""Reasons why a value names nobody, as the log calls them."""

FAULT_TEXTS: dict[NameFault, str] = {
    "blank": "is empty, or has no letter, digit or pictograph",
    "too-long": f"is longer than {MAX_NAME} characters",
    "wrong-type": "must be text, or a number that JSON keeps exactly",
    "placeholder": "is a placeholder that was never filled in, such as {{user_id}}, undefined or null",
    "damaged": "must be valid Unicode: it holds half a character (a lone surrogate, or U+FFFD)",
}

_NAMES_CACHED = 4096
"""Names whose check is cached; the check takes some 5 µs."""
_MAX_INT, _MIN_INT = 2**64 - 1, -(2**63)
"""Integers that the JSON parser keeps exactly; it rounds larger ones, so that two would become one."""
_EXACT_DIGITS = 15
"""Significant decimal digits that a double keeps (IEEE 754)."""

_BLANK_LETTERS = "\u115f\u1160\u2800\u3164\uffa0"
"""Invisible characters that Unicode counts as letters or symbols."""
_LOST = re.compile("[\ud800-\udfff\ufffd]")

_MISSING = frozenset(["undefined", "null", "none", "nil", "nan", "false", "true"])
"""Words as which programming languages write a value that is missing, or a truth value, as text."""
_IDS = frozenset(["id", "your", "userid", "sessionid", "conversationid", "chatid", "threadid"])
"""Words that make a text of nothing but `_FIELD_WORDS` the name of a field, such as `your-user-id`."""
_FIELD_WORDS = _IDS | frozenset(
    "user end my account customer client uid uuid name username session conversation chat thread tenant org".split()  # noqa: SIM905
)
"""Words of the names of fields, which stand beside a missing value (`user-undefined`)."""
_WORD = re.compile(r"[^\W_]+")
_NO_VALUE = re.compile(
    r"""\W*0{8}-?0{4}-?0{4}-?0{4}-?0{12}\W*    # the nil UUID
      | \W*n/a\W*
      | (?:.*[^\w\s]|.*_|)undefined(?:[^\w\s].*|_.*|)    # acme:undefined, undefined@example.com
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_SLOT = re.compile(
    r"""\{\{.*?\}\} | [$\#@%]\{.*?\} | \{%.*?%\} | <%.*?%>     # Jinja, shell, Ruby, ERB
      | \$\(.*?\) | %\(\w+\)[a-z] | %[sdv](?!\w)               # make, printf
      | \{\s*(?:[a-z_$][\w.$\[\]()]*|\d{0,2})\s*\}             # format, f-strings
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
"""Template slots, which make a text a placeholder wherever they stand in it."""
_WHOLE_SLOT = re.compile(
    r"""<[^<>@]*> | \[[^\[\]:]*\] | %\w+% | __\w+__ | \$[A-Z_][A-Z0-9_]*
      | \$\w*(?i:user|session|account|customer|id)\w*
    """,
    re.VERBOSE,
)
"""Template slots that make a text a placeholder only if they are all of it: a name may be `Ana <ana@example.com>`."""


class InvalidName(ValueError):
    """A value names nobody; `fault` says why."""

    def __init__(self, fault: NameFault) -> None:
        self.fault: NameFault = fault
        super().__init__(FAULT_TEXTS[fault])


def parse_name(value: object) -> str:
    """Return the name of a user or a session, as Postgres can keep it: U+0000 becomes U+FFFD.

    A number becomes its text: `7`, `7.0` and `7e0` all become `7`. Text keeps white space at its ends.

    Raises:
        InvalidName: The value names nobody.
    """
    text = value if isinstance(value, str) else _format_number(value)
    if text is None:
        raise InvalidName("wrong-type")
    fault = _find_fault(text)
    if fault is not None:
        raise InvalidName(fault)
    return text.replace("\0", "\ufffd")


def decode_header(value: str) -> str:
    """Return a header's text without white space at its ends: its bytes as UTF-8, or else as the ISO 8859-1 of the server."""
    try:
        return value.encode("latin-1").decode().strip()
    except UnicodeError:
        return value.strip()


def _format_number(value: object) -> str | None:
    """Return the text of a JSON number; None for what is no number, or one that the parser may have rounded."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return str(value) if _MIN_INT <= value <= _MAX_INT else None
    if isinstance(value, float) and abs(value) < 10**_EXACT_DIGITS:
        text = f"{value + 0.0:.{_EXACT_DIGITS}g}"
        return text if float(text) == value else None
    return None


@of_texts(_NAMES_CACHED)
def _find_fault(text: str) -> NameFault | None:
    if len(text) > MAX_NAME:
        return "too-long"
    if _LOST.search(text):
        return "damaged"
    plain = unquote(text).strip() if "%" in text else text.strip()
    if not any(map(_is_visible, plain)):
        return "placeholder" if any(character in "{[<(%$" for character in plain) else "blank"
    if any(is_placeholder(form) for form in {text.strip(), plain}):
        return "placeholder"
    return None


def is_placeholder(text: str) -> bool:
    """Return whether `text` stands for a value that was never filled in."""
    if _SLOT.search(text) or _WHOLE_SLOT.fullmatch(text) or _NO_VALUE.fullmatch(text):
        return True
    words = {word.casefold() for word in _WORD.findall(text)}
    return words <= _MISSING | _FIELD_WORDS and not words.isdisjoint(_MISSING | _IDS)


def _is_visible(character: str) -> bool:
    return character not in _BLANK_LETTERS and (character.isalnum() or unicodedata.category(character) == "So")
