"""The ontology of a business's own database: which tables hold which things, and how they relate (seed 004, table 8). Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import fields

Cardinality = Literal["one_to_one", "one_to_many", "many_to_one", "many_to_many"]
Strategy = Literal["trust_db", "trust_recent", "ask_user", "both"]
"""What is done where a memory and a row differ (seed 004, table 9)."""

LABEL_FIELD = re.compile(r"\{([^{}]*)\}")
"""A column in a label."""

NOTHING: Mapping[str, Any] = MappingProxyType({})


class EntityType(Struct, frozen=True):
    """A kind of things, and the table that they stand in.

    `key`: the column that tells one row from another; `title`: the column with a thing's name; `label`: how it is called as a
    whole, with columns in braces ("Sales Order {so_id}"); `also`: further columns that name it. `identifier`: a regular
    expression that a whole mention matches which is a key of it. `words`: nouns for it ("customer", "client"). `show`:
    columns that are told. `time`: the column that says when it was; `changed`: when the row was last changed. `predicates`:
    the column that holds what a memory says by a predicate; `conflicts`: what is done where they differ, by predicate (else
    trust_db). `rules`: what a column's values must be, {"required", "min", "max", "one_of"}, by column. `found_by_name`:
    whether a name that nobody knows is looked for here.
    """

    name: str
    domain: str
    table: str
    key: str
    title: str
    label: str
    also: tuple[str, ...] = ()
    identifier: str | None = None
    words: tuple[str, ...] = ()
    show: tuple[str, ...] = ()
    time: str | None = None
    changed: str | None = None
    predicates: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    conflicts: Mapping[str, Strategy] = field(default_factory=lambda: NOTHING)
    found_by_name: bool = True
    rules: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: NOTHING)

    def spec(self) -> dict[str, Any]:
        """As `ontology_types.spec` keeps it: JSON; `entity_type` reads it."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: dict(value) if isinstance(value, Mapping) else value for name, value in values.items()}


def entity_type(spec: Mapping[str, Any]) -> EntityType:
    """What `EntityType.spec` wrote."""
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in spec.items()}
    return EntityType(**values)


def label_columns(label: str) -> list[str]:
    """The columns that a label names in braces."""
    return LABEL_FIELD.findall(label)


class Relation(Struct, frozen=True):
    """How things of one type lead to those of another. `join`: pairs of columns, of `source` and `target`, that are equal."""

    domain: str
    source: str
    name: str
    target: str
    cardinality: Cardinality
    semantics: str
    join: tuple[tuple[str, str], ...]
    constraints: Mapping[str, Any] = field(default_factory=lambda: NOTHING)


class Ontology(Struct, frozen=True):
    """All that a tenant's domains have, by type; `version` moves when any of them is loaded anew."""

    types: Mapping[str, EntityType] = field(default_factory=lambda: NOTHING)
    relations: Sequence[Relation] = ()
    version: int = 0

    def __bool__(self) -> bool:
        return bool(self.types)


NO_ONTOLOGY = Ontology()
