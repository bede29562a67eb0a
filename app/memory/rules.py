"""Rules that read a slot from a clause with certainty: a pattern that the whole clause must fit, and the statements it makes.

`rules.txt` describes their form and has the English ones; `[facts]` of app/languages/<code>.txt has those of another language.
"""

from __future__ import annotations

import re
from collections.abc import Container
from typing import NamedTuple, cast, get_args

from msgspec import Struct

from app.store.kinds import LearnedKind

CONFIDENCE = 0.9
"""The confidence of a rule that names none."""


class RuleStatement(Struct, frozen=True):
    """A statement that a rule makes. `kind`, `tag` and the rest as in `MemoryCandidate`; the check named `check` judges and
    trims the value, the first of the groups `value` that is there. `optional`: it may find no value. `constant`: the value
    itself. `ends`: what is no longer so (`works_at:{v}`)."""

    content: str
    tag: str
    importance: float
    check: str
    optional: bool
    value: tuple[str, ...] = ("v",)
    constant: str = ""
    predicate: str | None = None
    subject: str = "user"
    kind: LearnedKind = "fact"
    ends: tuple[str, ...] = ()
    confidence: float = CONFIDENCE
    correction: bool = False


class Rule(NamedTuple):
    """A pattern with the statements of a clause that fits it; the later ones count only where their value is there."""

    pattern: re.Pattern[str]
    statements: tuple[RuleStatement, ...]


def read_rule(pattern: str, statements: str, checks: Container[str]) -> Rule:
    """Return a rule from its expanded pattern and the text of its statements. Raises `ValueError` for a bad statement."""
    return Rule(
        re.compile(pattern.replace("…", "(?P<v>.+)"), re.IGNORECASE),
        tuple(_read_statement(text, checks) for text in statements.split(" && ")),
    )


def _read_statement(text: str, checks: Container[str]) -> RuleStatement:
    content, semicolon, options = text.rpartition(" ; ")
    tag, importance, check, *extra_options = (*options.split(), "", "", "")[: max(3, len(options.split()))]
    named_options = dict(option.split("=", 1) for option in extra_options if "=" in option)
    kind = named_options.get("kind", "fact")
    if not semicolon or check.rstrip("?") not in checks or kind not in get_args(LearnedKind):
        raise ValueError(f"a rule gives `content ; tag importance check …` with a known check and kind, not {text!r}")
    return RuleStatement(
        content,
        tag,
        float(importance),
        check.rstrip("?"),
        check.endswith("?"),
        tuple(named_options.get("value", "v").split("|")),
        named_options.get("is", "").replace("_", " "),
        named_options.get("predicate"),
        named_options.get("subject", "user"),
        cast(LearnedKind, kind),
        tuple(named_options["ends"].split(",")) if "ends" in named_options else (),
        float(named_options.get("confidence", CONFIDENCE)),
        "correction" in extra_options,
    )
