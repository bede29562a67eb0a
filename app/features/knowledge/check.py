"""An ontology held against the tables that it names: what is missing, slow or dangerous, with the line of the YAML. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from app.features.knowledge.domain_sql import Table, joinable
from app.features.knowledge.ontology import EntityType, Relation, label_columns
from app.features.knowledge.ontology_yaml import OntologyDraft
from app.features.knowledge.yaml_nodes import Path, YamlFinding, in_order

_TIMES = ("date", "timestamp", "timestamptz")


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
