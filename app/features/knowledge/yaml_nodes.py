"""YAML read strictly, part by part, with the line and column of whatever is wrong. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple

import yaml

MAX_DEPTH = 8
"""Deepest nesting; a type's `predicates` are at 4, `constraints` may be anything."""
MAX_FINDINGS = 50
"""Findings told of one file: who has more mends these first."""
MAX_TEXT_CHARS = 1000
MAX_NAME_BYTES = 63
"""Of a name in Postgres."""
MAX_COLUMNS = 40
"""Entries of a mapping or list of columns."""
MAX_KEYS_TOLD = 12

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")

Path = tuple[str, ...]


class YamlFinding(NamedTuple):
    """What is wrong, or doubtful. `line`, `column`: from 1."""

    level: Literal["error", "warning"]
    line: int
    column: int
    message: str


def in_order(findings: Sequence[YamlFinding]) -> tuple[YamlFinding, ...]:
    """By line; of too many, the errors."""
    if len(findings) > MAX_FINDINGS:
        findings = sorted(findings, key=lambda each: each.level != "error")[:MAX_FINDINGS]
    return tuple(sorted(findings, key=lambda each: (each.line, each.column)))


LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class YamlMismatch(Exception):
    """Line, column, message."""


def check_shape(text: str) -> None:
    """No aliases (a short file could stand for a huge one), one document, no depth."""
    depth = documents = 0
    for event in yaml.parse(text, Loader=LOADER):
        mark = event.start_mark
        place = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise YamlMismatch(*place, "anchors and aliases (& and *) are not taken: write it out")
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise YamlMismatch(*place, "a second document begins here: one file has one domain")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise YamlMismatch(*place, f"this is nested deeper than {MAX_DEPTH}")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


class NodeReader:
    """Reads nodes, noting where each stands (`places`) and what is wrong (`findings`)."""

    def __init__(self) -> None:
        self.findings: list[YamlFinding] = []
        self.places: dict[Path, tuple[int, int]] = {}

    def mapping(
        self, node: yaml.Node, at: Path, known: set[str] | None, needed: tuple[str, ...] = ()
    ) -> dict[str, yaml.Node]:
        """The parts of a mapping by their keys; `known` None: any."""
        self._place(at, node)
        where = ".".join(at) or "the file"
        if not isinstance(node, yaml.MappingNode):
            self.wrong(node, f"{where} is a mapping, `key: value` in each line, not {kind(node)}")
            return {}
        found: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name = self._scalar(key, "a key")
            if name is None:
                continue
            if name in found:
                self.wrong(key, f"{short(name)} stands twice in {where}")
            elif known is not None and name not in known:
                self.wrong(key, f"{where} has no key {short(name)}{meant(name, known)}")
            else:
                self._place((*at, name), key)
                if not self.is_null(value):
                    found[name] = value
        for name in needed:
            if name not in found:
                self.wrong(node, f"{where} needs `{name}:`")
        return found

    def text(self, node: yaml.Node | None, at: Path, check: Callable[[str], str | None] | None = None) -> str | None:
        if node is None:
            return None
        self._place(at, node)
        value = self._scalar(node, at[-1])
        if value is None:
            return None
        if trouble := "is empty" if not value.strip() else check(value) if check else None:
            self.wrong(node, f"{at[-1]}: {short(value)} {trouble}")
            return None
        return value

    def texts(
        self, node: yaml.Node | None, at: Path, check: Callable[[str], str | None] | None, most: int
    ) -> tuple[str, ...]:
        if node is None:
            return ()
        self._place(at, node)
        if not isinstance(node, yaml.SequenceNode):
            self.wrong(node, f"{at[-1]} is a list, [a, b], not {kind(node)}")
            return ()
        if len(node.value) > most:
            self.wrong(node, f"{at[-1]} has more than {most} entries")
        found: list[str] = []
        for n, each in enumerate(node.value[:most]):
            value = self.text(each, (*at, str(n), at[-1]), check)
            if value is not None and value in found:
                self.wrong(each, f"{short(value)} stands twice in {at[-1]}")
            elif value is not None:
                found.append(value)
        return tuple(found)

    def texts_by_name(
        self,
        node: yaml.Node | None,
        at: Path,
        check: Callable[[str], str | None],
        keys: Callable[[str], str | None] | None = None,
    ) -> dict[str, str]:
        if node is None:
            return {}
        found: dict[str, str] = {}
        parts = self.mapping(node, at, None)
        if len(parts) > MAX_COLUMNS:
            self.wrong(node, f"{at[-1]} has more than {MAX_COLUMNS} entries")
        for name, each in list(parts.items())[:MAX_COLUMNS]:
            if trouble := (keys or is_name)(name):
                self.wrong(each, f"{at[-1]}: {short(name)} {trouble}")
            elif (value := self.text(each, (*at, name), check)) is not None:
                found[name] = value
        return found

    def flag(self, node: yaml.Node | None, at: Path) -> bool:
        if node is None:
            return True
        self._place(at, node)
        value = self.value(node)
        if not isinstance(value, bool):
            self.wrong(node, f"{at[-1]} is true or false, not {kind(node)}")
        return value is not False

    def _scalar(self, node: yaml.Node, what: str) -> str | None:
        if not isinstance(node, yaml.ScalarNode):
            self.wrong(node, f"{what} is a text, not {kind(node)}")
        elif node.tag != "tag:yaml.org,2002:str":
            self.wrong(node, f"{what}: {short(node.value)} is read as {kind(node)}: write it in quotes")
        elif len(node.value) > MAX_TEXT_CHARS:
            self.wrong(node, f"{what} is longer than {MAX_TEXT_CHARS} characters")
        elif not node.value.isprintable():
            self.wrong(node, f"{what} has a line break or a control character")
        else:
            return str(node.value)
        return None

    def value(self, node: yaml.Node) -> Any:
        """Plain JSON of a node; what JSON has not (a date, a tag of YAML's own) as its text."""
        if isinstance(node, yaml.MappingNode):
            return {str(key.value)[:MAX_TEXT_CHARS]: self.value(value) for key, value in node.value}
        if isinstance(node, yaml.SequenceNode):
            return [self.value(each) for each in node.value]
        if node.tag == "tag:yaml.org,2002:bool":
            return node.value.lower() in ("true", "yes", "on")
        if node.tag == "tag:yaml.org,2002:null":
            return None
        return str(node.value).replace("\0", "")

    @staticmethod
    def is_null(node: yaml.Node) -> bool:
        return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"

    def _place(self, at: Path, node: yaml.Node) -> None:
        self.places[at] = node.start_mark.line + 1, node.start_mark.column + 1

    def wrong(self, node: yaml.Node | None, message: str) -> None:
        line, column = (node.start_mark.line + 1, node.start_mark.column + 1) if node is not None else (1, 1)
        self.findings.append(YamlFinding("error", line, column, message))

    def wrong_at(self, at: Path, message: str, level: Literal["error", "warning"] = "error") -> None:
        self.findings.append(YamlFinding(level, *self.places.get(at, (1, 1)), message))


def is_name(value: str) -> str | None:
    return (
        None if _NAME.fullmatch(value) else "is no name: lower-case letters, digits and _, a letter first, at most 63"
    )


def is_column(value: str) -> str | None:
    if len(value.encode()) > MAX_NAME_BYTES:
        return f"is longer than {MAX_NAME_BYTES} bytes, as no column's name is"
    return None


def meant(name: str, known: Mapping[str, Any] | set[str]) -> str:
    near = get_close_matches(name, known, 1)
    if near:
        return f" (is {near[0]} meant?)"
    return f": it may have {', '.join(sorted(known))}" if 0 < len(known) <= MAX_KEYS_TOLD else ""


def short(value: str) -> str:
    return repr(value if len(value) <= 60 else value[:57] + "…")


def kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    return {"bool": "true or false", "int": "a number", "float": "a number", "null": "nothing"}.get(
        node.tag.rpartition(":")[2], "a text"
    )
