"""The data of one language, read once: patterns, words that stand for one meaning, and lines `pattern => what it gives`.

    <NAME> = …            a part of patterns, used in the lines below it
    [section]
    name = …              in [texts]: words or a template; in [patterns]: one pattern, without regard to case;
                          in [kin]: words for a relative = their English name
    pattern => … ; …      in [facts], [commands], [times]

[texts] comes first: of its `months`, `weekdays` (from January, from Monday; `|` between wordings) and `numbers` (from one on)
the
parts <MONTH>, <WEEKDAY> and <COUNT> are made, of [kin] the part <KIN>.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from msgspec import Struct

from app.languages.detect import LANGUAGES

_FOLDER = Path(__file__).parent
_MACRO = re.compile(r"<([A-Z_]+)>")
_DEFINITION = re.compile(r"<([A-Z_]+)> = (.+)")
_NOTHING = re.compile(r"(?!)")


class Language(Struct, frozen=True):
    """`texts` as they stand; `sources`: the patterns by name, macros resolved; `kin`: a word for a relative, lower
    case, and its English name;
    `facts`, `commands`, `times`: (pattern, what it gives)."""

    code: str
    texts: Mapping[str, str]
    sources: Mapping[str, str]
    kin: Mapping[str, str]
    facts: tuple[tuple[str, str], ...]
    commands: tuple[tuple[str, str], ...]
    times: tuple[tuple[str, str], ...]

    def pattern(self, name: str) -> re.Pattern[str]:
        """A pattern, or one that matches nothing where the language has none of that name."""
        source = self.sources.get(name)
        return _NOTHING if source is None else _compiled(source)


@cache
def _compiled(source: str) -> re.Pattern[str]:
    return re.compile(source, re.IGNORECASE)


@cache
def language(code: str) -> Language:
    """The data of a language of `LANGUAGES`."""
    return read(code, (_FOLDER / f"{code}.txt").read_text(encoding="utf-8"))


def read(code: str, text: str) -> Language:
    """A file of the form told above. Raises `ValueError` for a line that is not."""
    macros: dict[str, str] = {}
    sections: dict[str, list[tuple[str, str]]] = {}
    current: list[tuple[str, str]] | None = None
    kin: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if head := re.fullmatch(r"\[(\w+)\]", line):
            current = sections.setdefault(head[1], [])
            if kin and "KIN" not in macros:
                macros["KIN"] = _alternatives(kin)
        elif definition := _DEFINITION.fullmatch(line):
            macros[definition[1]] = _expand(definition[2], macros)
        elif current is None:
            raise ValueError(f"a line before the first section: {line!r}")
        elif current is sections.get("kin"):
            words, _, meaning = line.partition(" = ")
            kin |= dict.fromkeys((word.strip() for word in words.split(",")), meaning.strip())
        else:
            named = current is sections.get("patterns") or current is sections.get("texts")
            split = " = " if named else " => "
            left, found, right = line.partition(split)
            if not found:
                raise ValueError(f"not `…{split}…`: {line!r}")
            if current is sections.get("texts"):
                current.append((left, right))
                if macro := _WORDS.get(left):
                    macros[macro] = _alternatives([each.replace("_", " ") for each in right.replace("|", " ").split()])
            elif named:
                current.append((left, _expand(right, macros)))
            else:
                current.append((_expand(left, macros), right))
    sources = dict(sections.get("patterns", ()))
    return Language(
        code,
        dict(sections.get("texts", ())),
        sources,
        kin,
        tuple(sections.get("facts", ())),
        tuple(sections.get("commands", ())),
        tuple(sections.get("times", ())),
    )


_WORDS = {"months": "MONTH", "weekdays": "WEEKDAY", "numbers": "COUNT"}


def _alternatives(words: Iterable[str]) -> str:
    """Any of the words, the longest first."""
    return "(?:" + "|".join(sorted(map(re.escape, words), key=len, reverse=True)) + ")"


def _expand(pattern: str, macros: Mapping[str, str]) -> str:
    def part(name: re.Match[str]) -> str:
        if name[1] not in macros:
            raise ValueError(f"<{name[1]}> is not defined, in {pattern!r}")
        return macros[name[1]]

    return _MACRO.sub(part, pattern)


def all_of(name: str) -> re.Pattern[str]:
    """One pattern for what any of the languages has under that name: a document is pasted in any of them."""
    return re.compile(
        "|".join(source for code in LANGUAGES if (source := language(code).sources.get(name))),
        re.IGNORECASE | re.MULTILINE,
    )
