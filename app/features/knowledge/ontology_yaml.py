"""The YAML that an ontology is loaded from: read strictly, and whatever is wrong is said with its line and what to do. Pure.

Relations are walked both ways, and no walk visits a type twice (`domain_sql`), so graphs that lead back to where they began are
harmless. Two relations that say the same from both ends are one too many: an error. A round of one_to_many relations is a
warning, since it says that each thing has many of itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple, get_args

import yaml
from msgspec import Struct

from app.features.knowledge.ontology import LABEL_FIELD, Cardinality, EntityType, Relation, Strategy
from app.features.knowledge.render_facts import decimal

# --- YAML, part by part --------------------------------------------------------------------------------------------------

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


_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Mismatch(Exception):
    """Line, column, message."""


def _check_shape(text: str) -> None:
    """No aliases (a short file could stand for a huge one), one document, no depth."""
    depth = documents = 0
    for event in yaml.parse(text, Loader=_LOADER):
        mark = event.start_mark
        place = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise _Mismatch(*place, "anchors and aliases (& and *) are not taken: write it out")
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise _Mismatch(*place, "a second document begins here: one file has one domain")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise _Mismatch(*place, f"this is nested deeper than {MAX_DEPTH}")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


class _NodeReader:
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


# --- regular expressions that tell keys apart ----------------------------------------------------------------------------
#
# An operator writes them: only such are taken as end in a short time, whatever they are given.
# Python's matcher goes back and forth: a repetition within a repetition, or a choice within one, may take a time that doubles
# with each character. Such patterns, and those that look around or back, are refused: no key of a table needs them.

MAX_PATTERN_CHARS = 200
MAX_REPEATS = 3
"""Repetitions of no fixed number: with three, time grows with the third power of a mention's length at most."""
MAX_OPTIONALS = 8
_DOUBTFUL = re.compile(r"(?<!\\)\[|--|&&|\|\||~~")
"""Of which Python says that it may mean something else one day."""
_TOKEN = re.compile(
    r"""
      \\(?P<escaped>.)
    | (?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])
    | (?P<open>\((?:\?(?P<special>:|.))?)
    | (?P<close>\))
    | (?P<choice>\|)
    | (?P<repeat>[*+?]|\{(?P<least>\d*)(?P<comma>,)?(?P<most>\d*)\})[?+]?
    | (?P<plain>.)
    """,
    re.VERBOSE | re.DOTALL,
)


def pattern_trouble(pattern: str) -> str | None:
    """What is wrong with a pattern; None: nothing."""
    if len(pattern) > MAX_PATTERN_CHARS:
        return f"is longer than {MAX_PATTERN_CHARS} characters"
    if slow := _slow(pattern):
        return slow
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return f"is no regular expression: {error}"
    return "matches the empty text" if compiled.fullmatch("") else None


def _slow(pattern: str) -> str | None:
    """What may keep a matcher busy. Each open group notes whether it holds a repetition or a choice."""
    groups = [False]
    closed = False  # of the group that ended just now
    repeats = optionals = 0
    for token in _TOKEN.finditer(pattern):
        if token["escaped"] and token["escaped"].isdigit():
            return "refers back to a group: repeat what it is"
        if token["plain"] == "[":
            return "is no regular expression: a set is not closed"
        if token["set"] and _DOUBTFUL.search(token["set"][1:]):
            return "has a set with [, --, &&, || or ~~ in it: write a backslash before"
        if token["open"]:
            if token["special"] not in (None, ":"):
                return "looks around, names a group or sets a flag: only ( ) and (?: ) are taken"
            groups.append(False)
        elif token["choice"]:
            groups[-1] = True
        elif token["close"]:
            if len(groups) == 1:
                return "closes a group that was not opened"
            closed = groups.pop()
            groups[-1] = groups[-1] or closed
            continue
        elif token["repeat"]:
            once = token["repeat"] == "?"
            if closed and not once:
                return (
                    "repeats a group that holds a repetition or a choice, which may take for ever: write it otherwise"
                )
            fixed = token["least"] is not None and token["comma"] is None
            repeats += not once and not fixed
            optionals += once
            groups[-1] = groups[-1] or not fixed
        closed = False
    if repeats > MAX_REPEATS or optionals > MAX_OPTIONALS:
        return f"has more than {MAX_REPEATS} repetitions of no fixed number, or {MAX_OPTIONALS} optional parts"
    return None


# --- an ontology ---------------------------------------------------------------------------------------------------------

MAX_BYTES = 256 * 1024
"""Largest file, bytes: some 500 types."""
MAX_TYPES, MAX_RELATIONS = 500, 2000
MAX_WORDS = 50
_DOMAIN = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_TYPE_KEYS = {
    "table", "key", "title", "label", "also", "identifier", "words", "show", "time", "changed", "predicates", "conflicts",
    "found_by_name", "rules",
}  # fmt: skip
_RULE_KEYS = {"required", "min", "max", "one_of"}
_RELATION_KEYS = {"from", "relation", "to", "cardinality", "semantics", "join", "constraints"}
_MANY: frozenset[Cardinality] = frozenset(("one_to_many", "many_to_many"))


class OntologyDraft(Struct, frozen=True):
    """One domain's ontology as a file says it. `places`: line and column of what stands at a path, such as
    ("types", "customer", "table") and ("relations", "0", "join")."""

    domain: str
    types: Mapping[str, EntityType]
    relations: tuple[Relation, ...]
    places: Mapping[Path, tuple[int, int]]

    def finding(self, level: Literal["error", "warning"], path: Path, message: str) -> YamlFinding:
        """A finding at a path, or at the nearest part of it that stands in the file."""
        while path and path not in self.places:
            path = path[:-1]
        return YamlFinding(level, *self.places.get(path, (1, 1)), message)


class ParsedOntology(Struct, frozen=True):
    """What a file says. `draft`: None where there are errors; `findings`: in the order of their lines."""

    draft: OntologyDraft | None
    findings: tuple[YamlFinding, ...]

    @property
    def errors(self) -> tuple[YamlFinding, ...]:
        return tuple(each for each in self.findings if each.level == "error")


def read(text: str) -> ParsedOntology:
    """Read an ontology. Never raises: what is wrong is among the findings."""
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        return _one(1, 1, f"the file is larger than {MAX_BYTES // 1024} KiB: split it into several domains")
    try:
        _check_shape(text)
        root = yaml.compose(text, Loader=_LOADER)
    except _Mismatch as error:
        return _one(*error.args)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        told = f"this is no YAML: {error.problem or error.context}"
        return _one(mark.line + 1 if mark else 1, mark.column + 1 if mark else 1, told)
    except (yaml.YAMLError, ValueError) as error:  # a character that YAML has not
        return _one(1, 1, f"this is no YAML: {' '.join(str(error).split())}")
    return _Reader().read(root)


def _one(line: int, column: int, message: str) -> ParsedOntology:
    return ParsedOntology(None, (YamlFinding("error", line, column, message),))


class _Reader(_NodeReader):
    """Reads an ontology. A part that is wrong is left out, so that the rest is looked at as well."""

    def read(self, root: yaml.Node | None) -> ParsedOntology:
        if root is None:
            return _one(1, 1, "the file is empty: it needs `domain:`, `types:` and `relations:`")
        parts = self.mapping(root, (), {"domain", "types", "relations"}, needed=("domain", "types"))
        domain = self.text(parts.get("domain"), ("domain",), _is_domain) or ""
        types = self._types(parts.get("types"), domain)
        relations = self._relations(parts.get("relations"), domain, types)
        self._twice(relations)
        self._cycles(relations)
        findings = in_order(self.findings)
        if any(each.level == "error" for each in findings):
            return ParsedOntology(None, findings)
        ordered = tuple(each for each, _ in relations)
        return ParsedOntology(OntologyDraft(domain, types, ordered, self.places), findings)

    # --- types --------------------------------------------------------------------------------------------------------

    def _types(self, node: yaml.Node | None, domain: str) -> dict[str, EntityType]:
        found: dict[str, EntityType] = {}
        nodes = self.mapping(node, ("types",), None) if node is not None else {}
        if node is not None and not nodes and isinstance(node, yaml.MappingNode):
            self.wrong(node, "there are no types: name at least one, with its `table:` and `key:`")
        if len(nodes) > MAX_TYPES:
            self.wrong(node, f"more than {MAX_TYPES} types: split the file into several domains")
        for name, each in list(nodes.items())[:MAX_TYPES]:
            if trouble := is_name(name):
                self.wrong(each, f"the type {short(name)} {trouble}")
                continue
            found[name] = self._type(name, each, domain)
        return found

    def _type(self, name: str, node: yaml.Node, domain: str) -> EntityType:
        at = ("types", name)
        parts = self.mapping(node, at, _TYPE_KEYS, needed=("table", "key"))

        def text(key: str, check: Callable[[str], str | None] | None = None) -> str | None:
            return self.text(parts.get(key), (*at, key), check)

        def texts(key: str, check: Callable[[str], str | None] | None = None, most: int = MAX_COLUMNS) -> Any:
            return self.texts(parts.get(key), (*at, key), check, most)

        column = text("key", is_column) or ""
        title = text("title", is_column) or column
        predicates = self.texts_by_name(parts.get("predicates"), (*at, "predicates"), is_column)
        conflicts = self.texts_by_name(parts.get("conflicts"), (*at, "conflicts"), _is_strategy)
        for each in conflicts:
            if each not in predicates:
                self.wrong_at((*at, "conflicts", each), f"{each} is no predicate of {name}: add it to `predicates:`")
        changed = text("changed", is_column)
        for each, strategy in conflicts.items():
            if strategy == "trust_recent" and changed is None:
                told = f"without `changed:` nobody knows which is recent: trust_recent is trust_db for {each}"
                self.wrong_at((*at, "conflicts", each), told, level="warning")
        identifier = text("identifier", pattern_trouble)
        if identifier and (plain := _ordinary(identifier)):
            self.wrong_at((*at, "identifier"), f"matches ordinary words, such as {plain!r}", level="warning")
        return EntityType(
            name=name,
            domain=domain,
            table=text("table", _is_table) or "",
            key=column,
            title=title,
            label=text("label", _is_label) or "{" + title + "}",
            also=texts("also", is_column),
            identifier=identifier,
            words=tuple(each.casefold() for each in texts("words", None, MAX_WORDS)),
            show=texts("show", is_column),
            time=text("time", is_column),
            changed=changed,
            predicates=predicates,
            conflicts=conflicts,  # type: ignore[arg-type]  # _is_strategy looked at each
            found_by_name=self.flag(parts.get("found_by_name"), (*at, "found_by_name")),
            rules=self._rules(parts.get("rules"), (*at, "rules")),
        )

    def _rules(self, node: yaml.Node | None, at: Path) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for column, each in (self.mapping(node, at, None) if node is not None else {}).items():
            if trouble := is_column(column):
                self.wrong(each, f"rules: {short(column)} {trouble}")
                continue
            parts = self.mapping(each, (*at, column), _RULE_KEYS)
            rule: dict[str, Any] = {}
            if "required" in parts:
                rule["required"] = self.flag(parts["required"], (*at, column, "required"))
            for bound in ("min", "max"):
                if bound in parts:
                    value = self.value(parts[bound])
                    if not isinstance(value, str) or decimal(value) is None:
                        self.wrong(parts[bound], f"{bound} is a number, 0 or 99.5")
                    else:
                        rule[bound] = value
            if "min" in rule and "max" in rule and Decimal(rule["min"]) > Decimal(rule["max"]):
                self.wrong(parts["min"], f"min {rule['min']} is more than max {rule['max']}")
            if one_of := self.texts(parts.get("one_of"), (*at, column, "one_of"), None, MAX_COLUMNS):
                rule["one_of"] = list(one_of)
            if not rule:
                self.wrong(each, f"rules of {short(column)}: say required, min, max or one_of")
            found[column] = rule
        return found

    # --- relations ----------------------------------------------------------------------------------------------------

    def _relations(
        self, node: yaml.Node | None, domain: str, types: Mapping[str, EntityType]
    ) -> list[tuple[Relation, Path]]:
        if node is None or self.is_null(node):
            return []
        if not isinstance(node, yaml.SequenceNode):
            self.wrong(node, "`relations:` is a list: begin each with `- from:`")
            return []
        if len(node.value) > MAX_RELATIONS:
            self.wrong(node, f"more than {MAX_RELATIONS} relations")
        found: list[tuple[Relation, Path]] = []
        for n, each in enumerate(node.value[:MAX_RELATIONS]):
            if (relation := self._relation(each, ("relations", str(n)), domain, types)) is not None:
                found.append((relation, ("relations", str(n))))
        return found

    def _relation(self, node: yaml.Node, at: Path, domain: str, types: Mapping[str, EntityType]) -> Relation | None:
        before = len(self.findings)
        needed = ("from", "relation", "to", "cardinality", "join")
        parts = self.mapping(node, at, _RELATION_KEYS, needed=needed)
        ends = [self.text(parts.get(key), (*at, key)) or "" for key in ("from", "to")]
        for key, end in zip(("from", "to"), ends, strict=True):
            if end and end not in types:
                self.wrong_at((*at, key), f"there is no type {short(end)}{meant(end, types)}")
        name = self.text(parts.get("relation"), (*at, "relation"), is_name)
        cardinality = self.text(parts.get("cardinality"), (*at, "cardinality"), _is_cardinality)
        join = self.texts_by_name(parts.get("join"), (*at, "join"), is_column, keys=is_column)
        if "join" in parts and not join:
            self.wrong(parts["join"], "`join:` names at least one pair of columns: {from_column: to_column}")
        semantics = self.text(parts.get("semantics"), (*at, "semantics"))
        constraints = self.value(parts["constraints"]) if "constraints" in parts else {}
        if not isinstance(constraints, dict):
            self.wrong(parts["constraints"], "`constraints:` is a mapping, such as {lifecycle: …}")
        if len(self.findings) > before:
            return None
        told = semantics or f"{ends[0]} {name} {ends[1]}"
        return Relation(domain, ends[0], name or "", ends[1], cardinality, told, tuple(join.items()), constraints)  # type: ignore[arg-type]

    def _twice(self, relations: list[tuple[Relation, Path]]) -> None:
        """Relations that say what one before them says: by its name, or from its other end."""
        lines: dict[Any, int] = {}
        for each, path in relations:
            named, joined = (each.source, each.name, each.target), (each.source, each.target, frozenset(each.join))
            mirrored = (each.target, each.source, frozenset((b, a) for a, b in each.join))
            if named in lines:
                told = f"this relation stands in line {lines[named]} already: take one out, or give it another name"
                self.wrong_at(path, told)
            if mirrored in lines and each.source != each.target:
                line = lines[mirrored]
                told = (
                    f"this is the relation of line {line} from its other end: take one out, they are walked both ways"
                )
                self.wrong_at(path, told)
            for said in (named, joined):
                lines.setdefault(said, self.places[path][0])

    def _cycles(self, relations: list[tuple[Relation, Path]]) -> None:
        """Rounds of one_to_many relations, each told once, at the relation that closes it."""
        onward: dict[str, list[str]] = {}
        for relation, path in relations:
            if relation.source == relation.target:
                told = f"{relation.name} leads from {relation.source} to itself: walks never follow it"
                self.wrong_at(path, told, level="warning")
            elif relation.cardinality in _MANY:
                if (back := _way(onward, relation.target, relation.source)) is not None:
                    told = " → ".join((relation.source, *back))
                    self.wrong_at(path, f"{told} is a round of many: walks visit no type twice", level="warning")
                onward.setdefault(relation.source, []).append(relation.target)


# --- what a text must be: None, or what is wrong with it -----------------------------------------------------------------


def _is_domain(value: str) -> str | None:
    return None if _DOMAIN.fullmatch(value) else "is no name: lower-case letters, digits, _ and -, a letter first"


def _is_table(value: str) -> str | None:
    parts = value.split(".")
    if len(parts) > 2 or not all(parts):
        return "is no table: write `table` or `schema.table`"
    return next((trouble for each in parts if (trouble := is_column(each))), None)


def _is_label(value: str) -> str | None:
    named, rest = LABEL_FIELD.findall(value), LABEL_FIELD.sub("", value)
    if "{" in rest or "}" in rest or not all(named):
        return "has a brace that is not closed: columns stand as {column}"
    return None if named else "names no column: write one in braces, as in Sales Order {so_id}"


def _is_strategy(value: str) -> str | None:
    known = get_args(Strategy)
    return None if value in known else f"is no strategy: one of {', '.join(known)}"


def _is_cardinality(value: str) -> str | None:
    known = get_args(Cardinality)
    return None if value in known else f"is no cardinality: one of {', '.join(known)}"


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
