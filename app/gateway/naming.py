"""Read the values that name a user or a session, and refuse those that name nobody.

Applications fill a name in from a variable. Where the variable is missing, a template was never filled, or nobody is logged in
(`anonymous`), every person has the same text, and a memory kept under that text would be shared by all of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import html
import re
import unicodedata
from functools import cache
from typing import Literal
from urllib.parse import unquote

from app.text_cache import of_texts

MAX_NAME = 512
"""Longest user or session name, characters: it is an identifier, not a text, and an index entry holds 2,704 bytes."""

NameFault = Literal["blank", "too-long", "wrong-type", "placeholder", "damaged"]
"""Reasons why a value names nobody, as the log calls them."""

FAULT_TEXTS: dict[NameFault, str] = {
    "blank": "is empty, or has no letter, digit or symbol",
    "too-long": f"is longer than {MAX_NAME} characters",
    "wrong-type": "must be text that is no JSON object or list, or a number that JSON keeps exactly",
    "placeholder": "stands for anybody: a placeholder that was never filled in, such as {{user_id}}, undefined or null, or a "
    "word such as anonymous, guest or unknown",
    "damaged": "must be valid Unicode: it holds U+0000, or half a character (a lone surrogate, or U+FFFD)",
}

_NAMES_CACHED = 4096
"""Names whose check is cached; the check takes some 5 µs."""
_MAX_INT, _MIN_INT = 2**64 - 1, -(2**63)
"""Integers that the JSON parser keeps exactly; it rounds larger ones, so that two would become one."""
_EXACT_DIGITS = 15
"""Significant decimal digits that a double keeps (IEEE 754)."""

_BLANK_LETTERS = "\u115f\u1160\u2800\u3164\uffa0"
"""Characters that Unicode counts as letters or symbols, and that show nothing."""
_LOST = re.compile("[\0\ud800-\udfff\ufffd]")

_MISSING = frozenset("undefined null none nonetype nil nan false true".split())  # noqa: SIM905
"""Words as which programming languages write a value that is missing, or a truth value, as text."""
_UNKNOWN_PEOPLE = frozenset(
    """anon anonymous guest guests unknown unidentified nobody noone unauthenticated visitor visitors tbd todo redacted
    anonym anonyme anonymer gast gäste niemand unbekannt unbekannte unbekannter
    anónimo anónima anonimo anonima desconocido desconocida invitado invitada nadie
    inconnu inconnue invité invitée visiteur
    anônimo anônima convidado convidada desconhecido desconhecida ninguém visitante
    匿名 匿名用户 未知 未知用户 游客 访客""".split()  # noqa: SIM905
)
"""Words that say of a person only that they are not known: applications send them for all who are not logged in."""
_UNKNOWN_PERSON = re.compile(
    r"(?:.*[:/|#]\s*)?(?:no[ _-]?(?:user|name)|not[ _-]?(?:logged[ _-]?in|signed[ _-]?in|authenticated)"
    rf"|{'|'.join(sorted(_UNKNOWN_PEOPLE))})(?:@[\w.-]+)?",
    re.IGNORECASE | re.DOTALL,
)
"""Such a word alone, behind a prefix (`acme:guest`), or in front of a domain. With an id (`guest-7`) it names one visitor."""
_PEOPLE = frozenset(["Nan", "Nil", "True", "Your"])
"""First names that are such words in small letters; no language writes a missing value like this."""
_IDS = frozenset("id userid sessionid conversationid chatid threadid".split())  # noqa: SIM905
"""A name that has one of these among nothing but words of fields is a field's own name (`my-user-id`)."""
_NOUNS = _IDS | frozenset(
    """account actor caller chat client conversation customer device email employee fullname guest guid identity login logname
    member name nickname org owner patient person phone player principal profile session student subject tenant thread uid user
    username userprofile users uuid visitor
    benutzer benutzername nutzer nutzername kunde cliente identifiant nom nombre nome usuario usuarios usuário usuários
    utilisateur utilisateurs 会话 客户 用户 用户名""".split()  # noqa: SIM905
)
"""Words of fields that name a user or a session. One inside of a template's marks makes a slot (`<user>`, not `<Ana>`)."""
_INSTRUCTIONS = frozenset("your insert replace dein deine ihr ihre su sua seu ton tu votre".split())  # noqa: SIM905
"""Words that tell a developer what to fill in, beside a word of a field (`your-user-id`)."""
_FIELD_WORDS = (
    _NOUNS
    | _INSTRUCTIONS
    | frozenset("acct current de del display end external first here key last my number the usr with".split())  # noqa: SIM905
)
"""Words of the names of fields, which stand beside a missing value (`user-undefined`)."""
_ROOTS = frozenset(
    """auth body context ctx data env environ event get getenv headers import meta metadata os params process props req request
    self state this window""".split()  # noqa: SIM905
)
"""Words with which expressions begin that read a field (`req.user.id`)."""

_WORD = re.compile(r"[^\W_]+")
_CAMEL_WORD = re.compile(r"[A-Z]?[^\W_A-Z\d]+|[A-Z]+(?![a-z])|\d+")
_NO_VALUE = re.compile(
    r"""\W*(?:0-?){16,}\W*                       # the nil UUID, and ids of other forms that are nothing but zeros
      | \W*n/a\W* | \W*(?:not[ _-]set|unset|empty)\W* | (?:change|replace)[\W_]?me
      | .*\[object\ \w+\].* | promise\s*\{.* | .*=>.*      # an object, a promise or a function of JavaScript's
      | .*<.*\ at\ 0x[0-9a-f]+>.*                # an object of Python's
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_MISSING_SEGMENT = re.compile(
    r"""(?<![^\W_])(?i:undefined)\d*(?![^\W_])
      | (?:\A|[^\w\s]|_|[^\w\s.,'’)]\s+)(?:(?i:null|none)\d* | (?i:nonetype) | NaN)(?:\Z|[^\w\s]|_)
      | (?:\A|[^\w\s.'’-])(?:nan|nil|NAN|NIL)(?:\Z|[^\w\s.-])
    """,
    re.VERBOSE,
)
"""A missing value between signs (`acme:null`, `undefined@example.com`). `Jennifer Null` and `wang.nan` are people."""
_STRUCTURE = re.compile(r"\{\s*[\"'].*\}|\[\s*[\"'{].*\]", re.DOTALL)
"""An object or a list that was written as text, in the form of JSON or of Python."""
_EMPTY_END = re.compile(r".*[^\w\s>)\]}\"'!?]|.*_", re.DOTALL)
_SLOT = re.compile(
    r"""\{\{ | [$\#@%]\{ | \{% | <% | \$\( | %\(\w+\)[a-z]       # Jinja, shell, Ruby, ERB, make, Python
      | (?:(?<![^\W_])|(?<=user)|(?<=session)|(?<=id))(?:                      # printf, format
            %(?:\d+\$|\[\d+\])?(?:[sdiv]|l?[ud])(?!\w) | \{\d{0,2}(?::[^{}"]{0,9})?\})
      | \{\s*\}
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""Slots of templates, which are none of a name's business wherever they stand in it, closed or not."""
_BRACED = re.compile(r"\{([^{}]*)\}")
_MARKED = re.compile(
    r"<{1,2}([^<>@]*)>{1,2} | \[{1,2}([^\[\]:]*)\]{1,2} | ([\#$%@_~*|]{1,2})(\S+)\3 | [$:](\S+)", re.VERBOSE
)
"""A whole text between or behind the marks of a template; what it holds decides whether it is a slot."""
_CONSTANT = re.compile(r"[A-Z]+(?:_[A-Z0-9]+)+")
_EXPRESSION = re.compile(r"\w+(?:(?:\?\.|\.|->|::)[^\W\d]+|\[[^\]]*\]|\([^)]*\))+")
"""An expression that reads a field. What has a digit behind a dot is an id (`acme.user.8842`)."""
_DIGESTS = ("md5", "sha1", "sha256", "sha512")
"""Hash functions with which applications make pseudonyms."""
_MAX_DECODINGS = 3
"""Times that a text is percent-decoded: a URL inside of a URL is encoded twice."""


class InvalidName(ValueError):
    """A value names nobody; `fault` says why."""

    def __init__(self, fault: NameFault) -> None:
        self.fault: NameFault = fault
        super().__init__(FAULT_TEXTS[fault])


def parse_name(value: object) -> str:
    """Return the name of a user or a session.

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
    return text


def decode_header(value: str) -> str:
    """Return a header's text without white space at its ends: its bytes as UTF-8, or else as the ISO 8859-1 of the server.

    A surrogate that was encoded as UTF-8 stays one, so that `parse_name` refuses it.
    """
    with contextlib.suppress(UnicodeError):
        return value.encode("latin-1").decode("utf-8", "surrogatepass").strip()
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
    forms = _decode_forms(text)
    plain = forms[-1]
    if not any(map(_is_visible, plain)):
        return "placeholder" if any(character in "{[<(%$" for character in plain) else "blank"
    if any(map(_STRUCTURE.fullmatch, forms)):
        return "wrong-type"
    return "placeholder" if any(map(is_placeholder, forms)) else None


def _decode_forms(text: str) -> list[str]:
    """Return a text, and what it is where it was encoded for a URL or for HTML."""
    forms = [text.strip()]
    for _ in range(_MAX_DECODINGS):
        decoded = unquote(forms[-1]).strip()
        decoded = html.unescape(decoded) if ";" in decoded else decoded
        if decoded == forms[-1]:
            break
        forms.append(decoded)
    return forms


def is_placeholder(text: str) -> bool:
    """Return whether `text` stands for a value that was never filled in."""
    if text in _PEOPLE:
        return False
    if _UNKNOWN_PERSON.fullmatch(text) or _NO_VALUE.fullmatch(text):
        return True
    if _SLOT.search(text) or _MISSING_SEGMENT.search(text) or _has_marked_field(text):
        return True
    if text.casefold() in _hash_missing_values():
        return True
    words = {word.casefold() for word in _WORD.findall(text)}
    if (
        words
        and words <= _FIELD_WORDS
        and (_EMPTY_END.fullmatch(text) or (_IDS & words and not re.search(r"\s", text)))
    ):
        return True
    missing = _MISSING | _UNKNOWN_PEOPLE
    if not words <= missing | _FIELD_WORDS:
        return False
    return not words.isdisjoint(missing) or not (words.isdisjoint(_INSTRUCTIONS) or words.isdisjoint(_NOUNS))


@cache
def _hash_missing_values() -> frozenset[str]:
    """Return the digests of missing values: OpenAI asks for hashed names in `safety_identifier`."""
    texts = ("", "undefined", "null", "None", "nil", "nan", "NaN")
    return frozenset(hashlib.new(name, text.encode()).hexdigest() for name in _DIGESTS for text in texts)


def _has_marked_field(text: str) -> bool:
    """Return whether `text` has a field between the marks of a template, or is an expression that reads one."""
    if any(_names_field(inside) for inside in _BRACED.findall(text)):
        return True
    if marked := _MARKED.fullmatch(text):
        return _names_field(next((inside for inside in marked.group(1, 2, 4, 5) if inside), ""))
    return _EXPRESSION.fullmatch(text) is not None and _reads_field(_split_words(text))


def _names_field(inside: str) -> bool:
    return _CONSTANT.fullmatch(inside) is not None or not _NOUNS.isdisjoint(_split_words(inside))


def _reads_field(words: list[str]) -> bool:
    return not _NOUNS.isdisjoint(words) and (words[0] in _ROOTS or _FIELD_WORDS.issuperset(words))


def _split_words(text: str) -> list[str]:
    """Return the words of an identifier or an expression in small letters, `userId` as two."""
    return [word.casefold() for word in _CAMEL_WORD.findall(text)]


def _is_visible(character: str) -> bool:
    if character in _BLANK_LETTERS:
        return False
    return character.isalnum() or (not character.isascii() and unicodedata.category(character).startswith("S"))
