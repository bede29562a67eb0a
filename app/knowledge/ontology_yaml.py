"""The YAML that an ontology is loaded from: read strictly, and whatever is wrong is said with its line and what to do. Pure.

Relations are walked both ways, and no walk visits a type twice (`walk.py`), so that graphs which lead back to where they began
are harmless. Two relations that say the same from both ends are one too many: an error. A round of one_to_many relations is
reported as a warning, since it says that each thing has many of itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple, get_args

import yaml

from app.knowledge.identifiers import pattern_trouble
from app.knowledge.ontology import Cardinality, EntityType, Relation, Strategy

MAX_BYTES = 256 * 1024
"""Largest file, bytes: some 500 types."""
MAX_DEPTH = 8
"""Deepest nesting; a type's `predicates` are at 4, `constraints` may be anything."""
MAX_FINDINGS = 50
"""Findings told of one file: who has more mends these first."""
MAX_TYPES, MAX_RELATIONS = 500, 2000
MAX_WORDS = 50
MAX_COLUMNS = 40
"""Columns that are read of a row: `show`, `also`, `predicates` each."""
MAX_TEXT_CHARS = 1000
MAX_NAME_BYTES = 63
"""Of a name in Postgres."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_DOMAIN = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_FIELD = re.compile(r"\{([^{}]*)\}")
_TYPE_KEYS = {
    "table", "key", "title", "label", "also", "identifier", "words", "show", "time", "predicates", "conflicts",
    "found_by_name",
}  # fmt: skip
_RELATION_KEYS = {"from", "relation", "to", "cardinality", "semantics", "join", "constraints"}
_MANY: frozenset[Cardinality] = frozenset(("one_to_many", "many_to_many"))

Path = tuple[str, ...]


class Finding(NamedTuple):
    """What is wrong, or doubtful. `line`, `column`: from 1."""

    level: Literal["error", "warning"]
    line: int
    column: int
    message: str


@dataclass(frozen=True, slots=True)
class Draft:
    """One domain's ontology as a file says it. `places`: line and column of what stands at a path, such as
    ("types", "customer", "table") and ("relations", "0", "join")."""

    domain: str
    types: Mapping[str, EntityType]
    relations: tuple[Relation, ...]
    places: Mapping[Path, tuple[int, int]]

    def finding(self, level: Literal["error", "warning"], path: Path, message: str) -> Finding:
        """A finding at a path, or at the nearest part of it that stands in the file."""
        while path and path not in self.places:
            path = path[:-1]
        return Finding(level, *self.places.get(path, (1, 1)), message)


@dataclass(frozen=True, slots=True)
class Reading:
    """What a file says. `draft`: None where there are errors; `findings`: in the order of their lines."""

    draft: Draft | None
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(each for each in self.findings if each.level == "error")


def read(text: str) -> Reading:
    """Read an ontology. Never raises: what is wrong is among the findings."""
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        return _one(1, 1, f"the file is larger than {MAX_BYTES // 1024} KiB: split it into several domains")
    try:
        _check_shape(text)
        root = yaml.compose(text, Loader=_LOADER)
    except _Unfit as error:
        return _one(*error.args)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        told = f"this is no YAML: {error.problem or error.context}"
        return _one(mark.line + 1 if mark else 1, mark.column + 1 if mark else 1, told)
    except (yaml.YAMLError, ValueError) as error:  # a character that YAML has not
        return _one(1, 1, f"this is no YAML: {' '.join(str(error).split())}")
    return _Reader().read(root)


def in_order(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """By line; of too many, the errors."""
    if len(findings) > MAX_FINDINGS:
        findings = sorted(findings, key=lambda each: each.level != "error")[:MAX_FINDINGS]
    return tuple(sorted(findings, key=lambda each: (each.line, each.column)))


def _one(line: int, column: int, message: str) -> Reading:
    return Reading(None, (Finding("error", line, column, message),))


_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Unfit(Exception):
    """Line, column, message."""


def _check_shape(text: str) -> None:
    """No aliases (a short file could stand for a huge one), one document, no depth."""
    depth = documents = 0
    for event in yaml.parse(text, Loader=_LOADER):
        mark = event.start_mark
        place = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise _Unfit(*place, "anchors and aliases (& and *) are not taken: write it out")
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise _Unfit(*place, "a second document begins here: one file has one domain")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise _Unfit(*place, f"this is nested deeper than {MAX_DEPTH}")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


class _Reader:
    """Reads nodes, noting where each stands. A part that is wrong is left out, so that the rest is looked at as well."""

    def __init__(self) -> None:
        self._findings: list[Finding] = []
        self._places: dict[Path, tuple[int, int]] = {}

    def read(self, root: yaml.Node | None) -> Reading:
        if root is None:
            return _one(1, 1, "the file is empty: it needs `domain:`, `types:` and `relations:`")
        parts = self._mapping(root, (), {"domain", "types", "relations"}, needed=("domain", "types"))
        domain = self._text(parts.get("domain"), ("domain",), _is_domain) or ""
        types = self._types(parts.get("types"), domain)
        relations = self._relations(parts.get("relations"), domain, types)
        self._cycles(relations)
        findings = in_order(self._findings)
        if any(each.level == "error" for each in findings):
            return Reading(None, findings)
        ordered = tuple(each for each, _ in relations)
        return Reading(Draft(domain, types, ordered, self._places), findings)

    # --- types --------------------------------------------------------------------------------------------------------

    def _types(self, node: yaml.Node | None, domain: str) -> dict[str, EntityType]:
        found: dict[str, EntityType] = {}
        nodes = self._mapping(node, ("types",), None) if node is not None else {}
        if node is not None and not nodes and isinstance(node, yaml.MappingNode):
            self._wrong(node, "there are no types: name at least one, with its `table:` and `key:`")
        if len(nodes) > MAX_TYPES:
            self._wrong(node, f"more than {MAX_TYPES} types: split the file into several domains")
        for name, each in list(nodes.items())[:MAX_TYPES]:
            if trouble := _is_name(name):
                self._wrong(each, f"the type {_short(name)} {trouble}")
                continue
            found[name] = self._type(name, each, domain)
        return found

    def _type(self, name: str, node: yaml.Node, domain: str) -> EntityType:
        at = ("types", name)
        parts = self._mapping(node, at, _TYPE_KEYS, needed=("table", "key"))

        def text(key: str, check: Callable[[str], str | None] | None = None) -> str | None:
            return self._text(parts.get(key), (*at, key), check)

        def texts(key: str, check: Callable[[str], str | None] | None = None, most: int = MAX_COLUMNS) -> Any:
            return self._texts(parts.get(key), (*at, key), check, most)

        column = text("key", _is_column) or ""
        title = text("title", _is_column) or column
        predicates = self._texts_by_name(parts.get("predicates"), (*at, "predicates"), _is_column)
        conflicts = self._texts_by_name(parts.get("conflicts"), (*at, "conflicts"), _is_strategy)
        for each in conflicts:
            if each not in predicates:
                self._wrong_at((*at, "conflicts", each), f"{each} is no predicate of {name}: add it to `predicates:`")
        identifier = text("identifier", pattern_trouble)
        if identifier and (plain := _ordinary(identifier)):
            self._wrong_at((*at, "identifier"), f"matches ordinary words, such as {plain!r}", level="warning")
        return EntityType(
            name=name,
            domain=domain,
            table=text("table", _is_table) or "",
            key=column,
            title=title,
            label=text("label", _is_label) or "{" + title + "}",
            also=texts("also", _is_column),
            identifier=identifier,
            words=tuple(each.casefold() for each in texts("words", None, MAX_WORDS)),
            show=texts("show", _is_column),
            time=text("time", _is_column),
            predicates=predicates,
            conflicts=conflicts,  # type: ignore[arg-type]  # _is_strategy looked at each
            found_by_name=self._flag(parts.get("found_by_name"), (*at, "found_by_name")),
        )

    # --- relations ----------------------------------------------------------------------------------------------------

    def _relations(
        self, node: yaml.Node | None, domain: str, types: Mapping[str, EntityType]
    ) -> list[tuple[Relation, Path]]:
        if node is None or self._is_null(node):
            return []
        if not isinstance(node, yaml.SequenceNode):
            self._wrong(node, "`relations:` is a list: begin each with `- from:`")
            return []
        if len(node.value) > MAX_RELATIONS:
            self._wrong(node, f"more than {MAX_RELATIONS} relations")
        found: list[tuple[Relation, Path]] = []
        for n, each in enumerate(node.value[:MAX_RELATIONS]):
            if (relation := self._relation(each, ("relations", str(n)), domain, types)) is not None:
                self._twice(relation, ("relations", str(n)), found)
                found.append((relation, ("relations", str(n))))
        return found

    def _relation(self, node: yaml.Node, at: Path, domain: str, types: Mapping[str, EntityType]) -> Relation | None:
        before = len(self._findings)
        needed = ("from", "relation", "to", "cardinality", "join")
        parts = self._mapping(node, at, _RELATION_KEYS, needed=needed)
        ends = [self._text(parts.get(key), (*at, key)) or "" for key in ("from", "to")]
        for key, end in zip(("from", "to"), ends, strict=True):
            if end and end not in types:
                self._wrong_at((*at, key), f"there is no type {_short(end)}{_meant(end, types)}")
        name = self._text(parts.get("relation"), (*at, "relation"), _is_name)
        cardinality = self._text(parts.get("cardinality"), (*at, "cardinality"), _is_cardinality)
        join = self._texts_by_name(parts.get("join"), (*at, "join"), _is_column, keys=_is_column)
        if "join" in parts and not join:
            self._wrong(parts["join"], "`join:` names at least one pair of columns: {from_column: to_column}")
        semantics = self._text(parts.get("semantics"), (*at, "semantics"))
        constraints = self._value(parts["constraints"]) if "constraints" in parts else {}
        if not isinstance(constraints, dict):
            self._wrong(parts["constraints"], "`constraints:` is a mapping, such as {lifecycle: …}")
        if len(self._findings) > before:
            return None
        told = semantics or f"{ends[0]} {name} {ends[1]}"
        return Relation(domain, ends[0], name or "", ends[1], cardinality, told, tuple(join.items()), constraints)  # type: ignore[arg-type]

    def _twice(self, relation: Relation, at: Path, before: list[tuple[Relation, Path]]) -> None:
        for other, path in before:
            line = self._places[path][0]
            named = (relation.source, relation.name, relation.target)
            if named == (other.source, other.name, other.target):
                self._wrong_at(
                    at, f"this relation stands in line {line} already: take one out, or give it another name"
                )
            mirrored = tuple(sorted((b, a) for a, b in other.join))
            if (relation.source, relation.target) == (other.target, other.source) and (
                tuple(sorted(relation.join)) == mirrored and relation.source != relation.target
            ):
                self._wrong_at(
                    at,
                    f"this is the relation of line {line} from its other end: take one out, they are walked both ways",
                )

    def _cycles(self, relations: list[tuple[Relation, Path]]) -> None:
        """Rounds of one_to_many relations, each told once, at the relation that closes it."""
        onward: dict[str, list[str]] = {}
        for relation, path in relations:
            if relation.source == relation.target:
                told = f"{relation.name} leads from {relation.source} to itself: walks never follow it"
                self._wrong_at(path, told, level="warning")
            elif relation.cardinality in _MANY:
                if (back := _way(onward, relation.target, relation.source)) is not None:
                    told = " → ".join((relation.source, *back))
                    self._wrong_at(path, f"{told} is a round of many: walks visit no type twice", level="warning")
                onward.setdefault(relation.source, []).append(relation.target)

    # --- nodes --------------------------------------------------------------------------------------------------------

    def _mapping(
        self, node: yaml.Node, at: Path, known: set[str] | None, needed: tuple[str, ...] = ()
    ) -> dict[str, yaml.Node]:
        """The parts of a mapping by their keys; `known` None: any."""
        self._place(at, node)
        where = ".".join(at) or "the file"
        if not isinstance(node, yaml.MappingNode):
            self._wrong(node, f"{where} is a mapping, `key: value` in each line, not {_kind(node)}")
            return {}
        found: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name = self._scalar(key, "a key")
            if name is None:
                continue
            if name in found:
                self._wrong(key, f"{_short(name)} stands twice in {where}")
            elif known is not None and name not in known:
                self._wrong(key, f"{where} has no key {_short(name)}{_meant(name, known)}")
            else:
                self._place((*at, name), key)
                if not self._is_null(value):
                    found[name] = value
        for name in needed:
            if name not in found:
                self._wrong(node, f"{where} needs `{name}:`")
        return found

    def _text(self, node: yaml.Node | None, at: Path, check: Callable[[str], str | None] | None = None) -> str | None:
        if node is None:
            return None
        self._place(at, node)
        value = self._scalar(node, at[-1])
        if value is None:
            return None
        if trouble := "is empty" if not value.strip() else check(value) if check else None:
            self._wrong(node, f"{at[-1]}: {_short(value)} {trouble}")
            return None
        return value

    def _texts(
        self, node: yaml.Node | None, at: Path, check: Callable[[str], str | None] | None, most: int
    ) -> tuple[str, ...]:
        if node is None:
            return ()
        self._place(at, node)
        if not isinstance(node, yaml.SequenceNode):
            self._wrong(node, f"{at[-1]} is a list, [a, b], not {_kind(node)}")
            return ()
        if len(node.value) > most:
            self._wrong(node, f"{at[-1]} has more than {most} entries")
        found: list[str] = []
        for n, each in enumerate(node.value[:most]):
            value = self._text(each, (*at, str(n), at[-1]), check)
            if value is not None and value in found:
                self._wrong(each, f"{_short(value)} stands twice in {at[-1]}")
            elif value is not None:
                found.append(value)
        return tuple(found)

    def _texts_by_name(
        self,
        node: yaml.Node | None,
        at: Path,
        check: Callable[[str], str | None],
        keys: Callable[[str], str | None] | None = None,
    ) -> dict[str, str]:
        if node is None:
            return {}
        found: dict[str, str] = {}
        parts = self._mapping(node, at, None)
        if len(parts) > MAX_COLUMNS:
            self._wrong(node, f"{at[-1]} has more than {MAX_COLUMNS} entries")
        for name, each in list(parts.items())[:MAX_COLUMNS]:
            if trouble := (keys or _is_name)(name):
                self._wrong(each, f"{at[-1]}: {_short(name)} {trouble}")
            elif (value := self._text(each, (*at, name), check)) is not None:
                found[name] = value
        return found

    def _flag(self, node: yaml.Node | None, at: Path) -> bool:
        if node is None:
            return True
        self._place(at, node)
        value = self._value(node)
        if not isinstance(value, bool):
            self._wrong(node, f"{at[-1]} is true or false, not {_kind(node)}")
        return value is not False

    def _scalar(self, node: yaml.Node, what: str) -> str | None:
        if not isinstance(node, yaml.ScalarNode):
            self._wrong(node, f"{what} is a text, not {_kind(node)}")
        elif node.tag != "tag:yaml.org,2002:str":
            self._wrong(node, f"{what}: {_short(node.value)} is read as {_kind(node)}: write it in quotes")
        elif len(node.value) > MAX_TEXT_CHARS:
            self._wrong(node, f"{what} is longer than {MAX_TEXT_CHARS} characters")
        elif not node.value.isprintable():
            self._wrong(node, f"{what} has a line break or a control character")
        else:
            return str(node.value)
        return None

    def _value(self, node: yaml.Node) -> Any:
        """Plain JSON of a node; what JSON has not (a date, a tag of YAML's own) as its text."""
        if isinstance(node, yaml.MappingNode):
            return {str(key.value)[:MAX_TEXT_CHARS]: self._value(value) for key, value in node.value}
        if isinstance(node, yaml.SequenceNode):
            return [self._value(each) for each in node.value]
        if node.tag == "tag:yaml.org,2002:bool":
            return node.value.lower() in ("true", "yes", "on")
        if node.tag == "tag:yaml.org,2002:null":
            return None
        return str(node.value).replace("\0", "")

    @staticmethod
    def _is_null(node: yaml.Node) -> bool:
        return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"

    def _place(self, at: Path, node: yaml.Node) -> None:
        self._places[at] = node.start_mark.line + 1, node.start_mark.column + 1

    def _wrong(self, node: yaml.Node | None, message: str) -> None:
        line, column = (node.start_mark.line + 1, node.start_mark.column + 1) if node is not None else (1, 1)
        self._findings.append(Finding("error", line, column, message))

    def _wrong_at(self, at: Path, message: str, level: Literal["error", "warning"] = "error") -> None:
        self._findings.append(Finding(level, *self._places.get(at, (1, 1)), message))


# --- what a text must be: None, or what is wrong with it --------------------------------------------------------------


def _is_name(value: str) -> str | None:
    return (
        None if _NAME.fullmatch(value) else "is no name: lower-case letters, digits and _, a letter first, at most 63"
    )


def _is_domain(value: str) -> str | None:
    return None if _DOMAIN.fullmatch(value) else "is no name: lower-case letters, digits, _ and -, a letter first"


def _is_column(value: str) -> str | None:
    if len(value.encode()) > MAX_NAME_BYTES:
        return f"is longer than {MAX_NAME_BYTES} bytes, as no column's name is"
    return None


def _is_table(value: str) -> str | None:
    parts = value.split(".")
    if len(parts) > 2 or not all(parts):
        return "is no table: write `table` or `schema.table`"
    return next((trouble for each in parts if (trouble := _is_column(each))), None)


def _is_label(value: str) -> str | None:
    named = _FIELD.findall(value)
    if "{" in _FIELD.sub("", value) or "}" in _FIELD.sub("", value) or not all(named):
        return "has a brace that is not closed: columns stand as {column}"
    return None if named else "names no column: write one in braces, as in Sales Order {so_id}"


def _is_strategy(value: str) -> str | None:
    known = get_args(Strategy)
    return None if value in known else f"is no strategy: one of {', '.join(known)}"


def _is_cardinality(value: str) -> str | None:
    known = get_args(Cardinality)
    return None if value in known else f"is no cardinality: one of {', '.join(known)}"


def label_columns(label: str) -> list[str]:
    """The columns that a label names in braces."""
    return _FIELD.findall(label)


def _ordinary(pattern: str) -> str | None:
    return next((word for word in ("customer", "Order", "Friday", "and") if re.fullmatch(pattern, word)), None)


def _way(onward: Mapping[str, list[str]], start: str, end: str) -> tuple[str, ...] | None:
    """A way along `onward`, both ends included."""
    todo: list[tuple[str, ...]] = [(start,)]
    seen = {start}
    while todo:
        way = todo.pop()
        if way[-1] == end:
            return way
        for each in onward.get(way[-1], ()):
            if each not in seen:
                seen.add(each)
                todo.append((*way, each))
    return None


def _meant(name: str, known: Mapping[str, Any] | set[str]) -> str:
    near = get_close_matches(name, known, 1)
    if near:
        return f": is {near[0]} meant?"
    return f": it may have {', '.join(sorted(known))}" if 0 < len(known) <= len(_TYPE_KEYS) else ""


def _short(value: str) -> str:
    return repr(value if len(value) <= 60 else value[:57] + "…")


def _kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    return {"bool": "true or false", "int": "a number", "float": "a number", "null": "nothing"}.get(
        node.tag.rpartition(":")[2], "a text"
    )
