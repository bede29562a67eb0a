"""Reads `rules.txt`: from text to compiled patterns."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import cast, get_args

from msgspec import Struct
from msgspec.structs import replace

from app.memory import extract_values as values
from app.memory.candidate import Kind
from app.memory.extract_grammar import capital, inner, third_person
from app.memory.extract_words import alternatives

FILE = Path(__file__).with_name("rules.txt")

_MACRO = re.compile(r"<([A-Z]+)>")
_DEFINITION = re.compile(r"<([A-Z]+)> = (.+)")
_FIELD = re.compile(r"\{(\+?)(\w+)(>?)\}")


class Rule(Struct, frozen=True):
    """One line of `rules.txt`. `kind`, `tag` and the rest as in `Candidate`; `check` judges and trims the value, the group
    `value`. `ends`: what is no longer so (`works_at:{v}`). `also`: what else the line says, where the value is there."""

    pattern: re.Pattern[str]
    content: str
    tag: str
    importance: float
    check: values.Check
    optional: bool
    kind: Kind = "fact"
    predicate: str | None = None
    subject: str = "user"
    confidence: float = 0.9
    correction: bool = False
    value: str = "v"
    ends: tuple[str, ...] = ()
    also: tuple[Rule, ...] = ()

    def fill(self, template: str, groups: dict[str, str]) -> str:
        """The template with its groups, first-person words inside them replaced."""

        def value(field: re.Match[str]) -> str:
            key = field[2].lower()
            text = groups.get(key) or ""
            if self.kind != "instruction":  # an order keeps the user's own "me"
                text = inner(text)
            if field[3] and text:
                first, _, rest = text.partition(" ")
                text = f"{third_person(first)} {rest}".strip()
            if field[2][:1].isupper():
                text = capital(text)
            return f" {text}" if field[1] and text else text

        return _FIELD.sub(value, template)


@cache
def rules() -> tuple[Rule, ...]:
    """All rules in the order in which they are tried. Read once: the file is part of the program."""
    return read(FILE.read_text(encoding="utf-8"))


def read(text: str) -> tuple[Rule, ...]:
    """The rules of a text in the form told at the top of `rules.txt`. Raises `ValueError` for a line that is not."""
    parts = {"LANGUAGE": alternatives("languages"), "NATIONALITY": alternatives("nationalities")}
    found = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if definition := _DEFINITION.fullmatch(line):
            parts[definition[1]] = _expand(definition[2], parts)
        else:
            found.append(_rule(line, parts))
    return tuple(found)


def _expand(pattern: str, parts: dict[str, str]) -> str:
    def part(name: re.Match[str]) -> str:
        if name[1] not in parts:
            raise ValueError(f"<{name[1]}> is not defined, in {pattern!r}")
        return parts[name[1]]

    return _MACRO.sub(part, pattern)


def _rule(line: str, parts: dict[str, str]) -> Rule:
    pattern, arrow, rest = line.partition(" => ")
    first, *others = rest.split(" && ")
    if others:
        also = tuple(_rule(f"{pattern} => {each}", parts) for each in others)
        return replace(_rule(f"{pattern} => {first}", parts), also=also)
    content, semicolon, options = rest.rpartition(" ; ")
    if not arrow or not semicolon:
        raise ValueError(f"a rule is `pattern => content ; options`, not {line!r}")
    tag, importance, check, *more = options.split()
    named = dict(item.split("=", 1) for item in more if "=" in item)
    kind = named.get("kind", "fact")
    if kind not in get_args(Kind) or check.rstrip("?") not in values.CHECKS:
        raise ValueError(f"unknown kind {kind!r} or check {check!r} in {line!r}")
    return Rule(
        re.compile(_expand(pattern, parts).replace("…", "(?P<v>.+)"), re.IGNORECASE),
        content,
        tag,
        float(importance),
        values.CHECKS[check.rstrip("?")],
        check.endswith("?"),
        kind=cast(Kind, kind),
        predicate=named.get("predicate"),
        subject=named.get("subject", "user"),
        confidence=float(named.get("confidence", "0.9")),
        correction="correction" in more,
        value=named.get("value", "v"),
        ends=tuple(named["ends"].split(",")) if "ends" in named else (),
    )
