"""An ontology drafted from what a database's catalog says (keys, foreign keys, names, comments), and one held against the
tables that it names: what is missing, slow or dangerous, with the line of the YAML. Pure.

What a draft guesses is said beside it, for a person to look at; what it cannot use (tables without a key of one column) is left
out and named. The draft loads as it is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from app.features.knowledge.domain_sql import DomainColumn, Table, joinable
from app.features.knowledge.ontology import EntityType, Relation, label_columns
from app.features.knowledge.ontology_yaml import OntologyDraft, Path, YamlFinding, in_order

SHOWN = 5
"""Columns that are told of a row: a line's worth."""

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)?")
_BOOLEANS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "none"}
_TITLES = ("name", "full_name", "display_name", "company_name", "title", "label", "subject")
_STATES = re.compile(r"(?:^|_)(?:status|state|stage|phase|priority)$")
_NEVER = re.compile(
    r"pass(?:word|wd)|secret|token|hash|salt|api_?key|ssn|iban|card|cvv|birth|salary|note|comment|description|_by$|updated|deleted"
)
"""Columns that are not told unless somebody asks for it: secrets, what is private, what is long."""
_PERIODS = ("updated", "modified", "deleted", "synced")
_TIMES = ("date", "timestamp", "timestamptz")


class CatalogTable(NamedTuple):
    """A table. `key`: the columns of its primary key; `columns`: with their comments."""

    schema: str
    name: str
    comment: str | None
    key: tuple[str, ...]
    columns: tuple[tuple[DomainColumn, str | None], ...]


class ForeignKey(NamedTuple):
    """`child` refers to `parent`, by (schema, name); `unique`: at most one child each."""

    child: tuple[str, str]
    parent: tuple[str, str]
    child_columns: tuple[str, ...]
    parent_columns: tuple[str, ...]
    unique: bool


def draft(domain: str, tables: Sequence[CatalogTable], keys: Sequence[ForeignKey]) -> str:
    used = [each for each in tables if len(each.key) == 1 and _sayable(each)]
    names = _type_names(used)
    by_table = {(each.schema, each.name): each for each in used}
    foreign = {(key.child, column) for key in keys for column in key.child_columns}
    last = Counter(name.split("_")[-1] for name in names.values())
    lines = [
        "# Drafted from the tables' keys and names. Look at each `title`, `words`, `show`, `time` and `semantics`: what `show`",
        "# names is told to a model. `mneme ontology check` holds it against the database;",
        "# docs/reference/domain.md explains every key.",
        f"domain: {_scalar(domain)}",
        "",
        "types:" if used else "types: {}",
    ]
    for place, table in by_table.items():
        lines += _column_type(names[place], table, {column for child, column in foreign if child == place}, last)
    skipped = [each for each in tables if (each.schema, each.name) not in by_table]
    lines += [
        f"  # left out, it has no key of one column: {_comment(f'{each.schema}.{each.name}')}" for each in skipped
    ]
    relations = list(_relations([each for each in keys if each.child in names and each.parent in names], names))
    lines += ["", "relations:" if any(not each.startswith("#") for each in relations) else "relations: []", *relations]
    return "\n".join(lines) + "\n"


def _column_type(name: str, table: CatalogTable, foreign: set[str], last: Counter[str]) -> Iterator[str]:
    columns = {column.name: column for column, _ in table.columns}
    key = table.key[0]
    title = next(
        (each for each in (*_TITLES, f"{name}_name") if each in columns and columns[each].family == "text"), key
    )
    time = _time(name, columns)
    shown = _shown(columns, {key, title, time or ""} | foreign)
    words = [name.replace("_", " ")]
    tail = name.split("_")[-1]
    if "_" in name and last[tail] == 1:
        words.append(tail)
    yield f"  {name}:{f'  # {_comment(table.comment)}' if table.comment else ''}"
    yield f"    table: {_scalar(f'{table.schema}.{table.name}')}"
    yield f"    key: {_scalar(key)}"
    yield f"    title: {_scalar(title)}"
    if title == key:
        yield f"    label: {_scalar(' '.join(each.capitalize() for each in name.split('_')) + ' {' + key + '}')}"
    if columns[key].family == "text":
        yield "    # identifier: a regular expression of its keys, such as 'SO-[0-9]{3,8}', finds them in what is said"
    more = f", such as {tail}" if "_" in name and tail not in words else ""
    yield f"    words: [{', '.join(_scalar(each) for each in words)}]  # how people call it; add what they say{more}"
    yield f"    show: [{', '.join(_scalar(each) for each in shown)}]"
    if time is not None:
        yield f"    time: {_scalar(time)}"
    plain = [each for each in shown if re.fullmatch(r"[a-z][a-z0-9_]{0,62}", each)]
    if plain:
        yield f"    predicates: {{{', '.join(f'{_scalar(each)}: {_scalar(each)}' for each in plain)}}}"
    if title == key:
        yield "    found_by_name: false"


def _relations(keys: Sequence[ForeignKey], names: Mapping[tuple[str, str], str]) -> Iterator[str]:
    """From the table that is referred to, to the one that refers: "customer has sales_order"."""
    between = Counter((each.parent, each.child) for each in keys)
    said: set[tuple[str, str, str]] = set()
    joined: set[frozenset[tuple[str, tuple[str, ...]]]] = set()
    for key in keys:
        source, target = names[key.parent], names[key.child]
        join = frozenset({(source, key.parent_columns), (target, key.child_columns)})
        if source == target or join in joined:
            why = "to itself" if source == target else f"to {target} as another does"
            yield f"  # left out, it leads from {source} {why}: {_comment(', '.join(key.child_columns))}"
            continue
        joined.add(join)
        name = "has"
        if between[key.parent, key.child] > 1:
            column = re.sub(r"[^a-z0-9_]", "_", key.child_columns[0].lower().removesuffix("_id"))
            name = f"has_as_{column}"[:60]
        n = 1
        while (source, f"{name}_{n}" if n > 1 else name, target) in said:
            n += 1
        name = f"{name}_{n}" if n > 1 else name
        said.add((source, name, target))
        pairs = ", ".join(
            f"{_scalar(a)}: {_scalar(b)}" for a, b in zip(key.parent_columns, key.child_columns, strict=True)
        )
        yield f"  - from: {source}"
        yield f"    relation: {name}"
        yield f"    to: {target}"
        yield f"    cardinality: {'one_to_one' if key.unique else 'one_to_many'}"
        yield f"    semantics: {_scalar(f'{source} {name} {target}'.replace('_', ' '))}  # say what it means"
        yield f"    join: {{{pairs}}}"


def _type_names(tables: Sequence[CatalogTable]) -> dict[tuple[str, str], str]:
    """A name for each table: the singular of its own, with its schema's where two would be alike."""
    plain = {(each.schema, each.name): _name(singular(each.name)) for each in tables}
    counts = Counter(plain.values())
    found: dict[tuple[str, str], str] = {}
    for place, name in plain.items():
        name = name if counts[name] == 1 else _name(f"{place[0]}_{name}")
        n = 1
        while (unique := name if n == 1 else f"{name[:58]}_{n}") in found.values():
            n += 1
        found[place] = unique
    return found


def singular(name: str) -> str:
    """One of them, in English, without the exceptions."""
    for end, instead in (("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("shes", "sh")):
        if name.endswith(end) and len(name) > len(end) + 1:
            return name[: -len(end)] + instead
    return name[:-1] if name.endswith("s") and not name.endswith(("ss", "us", "is")) and len(name) > 3 else name


def _name(text: str) -> str:
    name = re.sub(r"[^a-z0-9_]+", "_", text.lower()).strip("_") or "thing"
    return (name if name[0].isalpha() else f"t_{name}")[:63]


def _time(name: str, columns: Mapping[str, DomainColumn]) -> str | None:
    """When it was: a date of its own rather than one of the record's."""
    dated = [each for each, column in columns.items() if column.family in _TIMES]
    dated = [each for each in dated if not each.startswith(_PERIODS)]
    own = name.split("_")[-1]
    ranks = (f"{own}_date", f"{own}ed_at", "date", f"{own}_at")
    return min(dated, key=lambda each: (each not in ranks, each.startswith("created"), dated.index(each)), default=None)


def _shown(columns: Mapping[str, DomainColumn], taken: set[str]) -> list[str]:
    """A few that say something: its state first, then what is short."""
    fit = [
        name
        for name, column in columns.items()
        if name not in taken and column.family not in ("uuid", "array", "other") and not _NEVER.search(name.lower())
        and not name.startswith("created") and not name.endswith("_id")
    ]  # fmt: skip
    return sorted(fit, key=lambda each: _STATES.search(each) is None)[:SHOWN]


def _sayable(table: CatalogTable) -> bool:
    """Whether every name that may be needed can stand in a YAML of ours."""
    names = [table.schema, table.name, *(column.name for column, _ in table.columns)]
    return (
        all(each.isprintable() and each.strip() and not set(each) & set("{}") for each in names)
        and "." not in table.schema + table.name
    )


def _scalar(text: str) -> str:
    return text if _PLAIN.fullmatch(text) and text.lower() not in _BOOLEANS else "'" + text.replace("'", "''") + "'"


def _comment(text: str) -> str:
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())[:80]


# --- an ontology held against its tables ---------------------------------------------------------------------------------


def check(draft: OntologyDraft, tables: Mapping[str, Table], *, allow_writer: bool = False) -> tuple[YamlFinding, ...]:
    """What is wrong. `tables`: those that are there and may be read, by the names of the ontology."""
    found = [finding for kind in draft.types.values() for finding in _type(draft, kind, tables)]
    for n, relation in enumerate(draft.relations):
        found += _relation(draft, relation, ("relations", str(n)), tables)
    if not allow_writer:
        found += [
            draft.finding(
                "error",
                ("types", kind.name, "table"),
                f"the domain's role could write to {kind.table}: give it a role that can only read (allow_writer: go on)",
            )
            for kind in draft.types.values()
            if kind.table in tables and tables[kind.table].may_write
        ]
    return in_order(found)


def _type(draft: OntologyDraft, kind: EntityType, tables: Mapping[str, Table]) -> Iterator[YamlFinding]:
    at = ("types", kind.name)
    table = tables.get(kind.table)
    if table is None:
        yield draft.finding("error", (*at, "table"), f"there is no table {kind.table} that the domain's role may read")
        return
    named: list[tuple[Path, str]] = [((*at, "key"), kind.key), ((*at, "title"), kind.title)]
    named += [((*at, "label"), each) for each in label_columns(kind.label)]
    named += [((*at, "also", str(n), "also"), each) for n, each in enumerate(kind.also)]
    named += [((*at, "show", str(n), "show"), each) for n, each in enumerate(kind.show)]
    named += [((*at, "predicates", name), each) for name, each in kind.predicates.items()]
    named += [((*at, "rules", column), column) for column in kind.rules]
    times = [((*at, key), column) for key, column in (("time", kind.time), ("changed", kind.changed)) if column]
    named += times
    told: set[str] = set()
    for path, column in named:
        if column not in table.columns and column not in told:
            told.add(column)
            yield draft.finding("error", path, _no_column(kind.table, column, table))
    for column, rule in kind.rules.items():
        bounded = table.columns.get(column)
        if bounded is not None and rule.keys() & {"min", "max"} and bounded.family not in ("integer", "number"):
            wrong = f"{column} is of type {bounded.type}: min and max are of numbers"
            yield draft.finding("error", (*at, "rules", column), wrong)
    if kind.key in table.columns and kind.key not in table.indexed:
        yield draft.finding(
            "warning", (*at, "key"), f"no index of {kind.table} begins with {kind.key}: finding a row is slow"
        )
    for path, column in times:
        moment = table.columns.get(column)
        if moment is not None and moment.family not in _TIMES:
            yield draft.finding("error", path, f"{moment.name} is of type {moment.type}: no date and no timestamp")


def _relation(draft: OntologyDraft, relation: Relation, at: Path, tables: Mapping[str, Table]) -> Iterator[YamlFinding]:
    ends = [(name, tables.get(draft.types[name].table)) for name in (relation.source, relation.target)]
    for one, other in relation.join:
        columns = []
        for (name, table), column in zip(ends, (one, other), strict=True):
            if table is None:
                continue  # said at the type
            if column not in table.columns:
                yield draft.finding("error", (*at, "join", one), _no_column(draft.types[name].table, column, table))
                continue
            columns.append(table.columns[column])
            if column not in table.indexed:
                told = f"no index of {draft.types[name].table} begins with {column}: following this relation is slow"
                yield draft.finding("warning", (*at, "join", one), told)
        if len(columns) == len(ends) and not joinable(*columns):
            told = f"{one} is of type {columns[0].type}, {other} of type {columns[1].type}: they are compared as text, slowly"
            yield draft.finding("warning", (*at, "join", one), told)


def _no_column(name: str, column: str, table: Table) -> str:
    near = get_close_matches(column, table.columns, 1)
    return f"{name} has no column {column} that the domain's role may read{f': is {near[0]} meant?' if near else ''}"
