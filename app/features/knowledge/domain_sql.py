"""The SQL for a business's own database, made from the ontology and nothing else: the one file that writes SQL outside `sql/`.

Names are quoted, values are always bound (as text, and cast by the server to the column's own type, so that its index is used),
and every statement is one SELECT. What a model or a user said is never more than a bound value. Pure.

A row comes back as text, ready to be shown: `total` rows there are (up to `COUNTED` + 1), `parent` the key of the row it was
reached from, `key` its own, then `c0`, `c1` … the columns that were asked for.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, time, timedelta
from typing import Literal, NamedTuple
from uuid import UUID

from app.context.question import TimeSpan
from app.features.knowledge.ontology import EntityType, Relation, label_columns

VALUE_CHARS = 200
"""Characters of a value that are read; what is longer is cut."""
COUNTED = 1000
"""Rows that are counted; of more it is said that there are more."""
NAMED_ROWS = 5
"""Rows found for one name in one table: seed 004 asks the user which of a few is meant."""
MAX_KEY_CHARS = 200

Family = Literal["text", "integer", "number", "boolean", "date", "timestamp", "timestamptz", "uuid", "array", "other"]

_FAMILIES: Mapping[str, Family] = {
    "text": "text", "varchar": "text", "bpchar": "text", "citext": "text", "name": "text",
    "int2": "integer", "int4": "integer", "int8": "integer",
    "numeric": "number", "float4": "number", "float8": "number",
    "bool": "boolean", "date": "date", "timestamp": "timestamp", "timestamptz": "timestamptz", "uuid": "uuid",
}  # fmt: skip
# By the type's own name: what a bound text is cast to. Of others the column is compared as text, without an index.
_CASTS = {
    "text": "text", "varchar": "text", "bpchar": '"bpchar"',
    "int2": "bigint", "int4": "bigint", "int8": "bigint", "numeric": "numeric", "uuid": "uuid",
}  # fmt: skip
_INTEGER = re.compile(r"-?\d{1,18}")
_NUMERIC = re.compile(r"-?\d{1,30}(?:\.\d{1,20})?")


class DomainColumn(NamedTuple):
    """A column as the database has it; `type`: the name in pg_type, of a domain that of what it is made of."""

    name: str
    type: str
    is_array: bool = False

    @property
    def family(self) -> Family:
        return "array" if self.is_array else _FAMILIES.get(self.type, "other")


class Table(NamedTuple):
    """A table as the database has it, as far as our role may read it. `indexed`: columns that begin an index."""

    columns: Mapping[str, DomainColumn]
    may_write: bool = False
    indexed: frozenset[str] = frozenset()


class SelectStatement(NamedTuple):
    """`columns`: what `c0`, `c1` … are."""

    sql: str
    args: tuple[object, ...]
    columns: tuple[str, ...]


class Moments(NamedTuple):
    """The bounds of a span in the column's own terms, as text; None: open."""

    begin: str | None
    end: str | None


def split_table(table: str) -> tuple[str | None, str]:
    """Schema (None: by the search path) and name."""
    schema, _, name = table.rpartition(".")
    return schema or None, name


def quoted(name: str) -> str:
    """A name as SQL has it."""
    if "\0" in name:
        raise ValueError("a name has no NUL")
    return '"' + name.replace('"', '""') + '"'


def quoted_table(table: str) -> str:
    return ".".join(quoted(each) for each in split_table(table) if each is not None)


def no_longer_than(timeout_ms: int) -> str:
    """Ends a statement of this transaction after so many milliseconds."""
    return f"SET LOCAL statement_timeout = {int(timeout_ms)}"


def wanted_columns(kind: EntityType) -> tuple[str, ...]:
    """Columns that are read of a row, each once: what it is called, what is told, what memories may speak of."""
    times = (each for each in (kind.time, kind.changed) if each)
    each = (
        kind.title,
        *label_columns(kind.label),
        *kind.also,
        *kind.show,
        *times,
        *kind.predicates.values(),
        *kind.rules,
    )
    return tuple(dict.fromkeys(each))


def by_key(kind: EntityType, table: Table, keys: Collection[str]) -> SelectStatement:
    """The rows with these keys, of whatever type the key is; a text that cannot be one is nobody's."""
    columns = _there(kind, table)
    where, arg = _equals(f"t.{quoted(kind.key)}", table.columns[kind.key], keys)
    sql = (
        f"SELECT 1 AS total, NULL AS parent, t.{quoted(kind.key)}::text AS key{_shown(columns, table)}"
        f" FROM {quoted_table(kind.table)} AS t WHERE {where} LIMIT {len(keys) + 1}"
    )
    return SelectStatement(sql, (arg,), columns)


def by_name(kind: EntityType, table: Table, mentions: Sequence[str], *, exact: bool) -> SelectStatement:
    """The rows that these names are of: equal but for case, or (not `exact`) holding it. `parent` is the mention's number."""
    columns = _there(kind, table)
    names = [each for each in (kind.title, *kind.also) if each in table.columns]
    if exact:
        keys = [kind.key] if table.columns[kind.key].family == "text" else []
        tests = [f"lower(t.{quoted(each)}::text) = lower(w.mention)" for each in dict.fromkeys(names + keys)]
        values = list(mentions)
    else:
        tests = [f"t.{quoted(each)}::text ILIKE w.mention" for each in names]
        values = [f"%{escape_like(each)}%" for each in mentions]
    title = f"t.{quoted(names[0])}::text" if names else "''"
    sql = (
        "SELECT 1 AS total, w.n::text AS parent, x.* FROM unnest($1::text[]) WITH ORDINALITY AS w (mention, n)"
        f" CROSS JOIN LATERAL (SELECT t.{quoted(kind.key)}::text AS key{_shown(columns, table)}"
        f" FROM {quoted_table(kind.table)} AS t WHERE {' OR '.join(tests) or 'false'} "
        f" ORDER BY length({title}), t.{quoted(kind.key)} LIMIT {NAMED_ROWS}) AS x"
    )
    return SelectStatement(sql, (values,), columns)


def related(
    source: EntityType,
    source_table: Table,
    relation: Relation,
    kind: EntityType,
    table: Table,
    keys: Collection[str],
    *,
    backwards: bool,
    span: TimeSpan | None,
    limit: int,
    equal: Sequence[tuple[str, str]] = (),
) -> SelectStatement:
    """The rows of `kind` that a relation leads to from those of `source` with these keys, newest first. `backwards`: `source`
    is the relation's target. `equal`: what columns of `kind` are to say."""
    columns = _there(kind, table)
    pairs = [(b, a) if backwards else (a, b) for a, b in relation.join]
    join = " AND ".join(_joined(source_table.columns[a], table.columns[b]) for a, b in pairs)
    where, arg = _equals(f"s.{quoted(source.key)}", source_table.columns[source.key], keys)
    args: list[object] = [arg]
    for column, value in equal:
        test, one = _equals(f"t.{quoted(column)}", table.columns[column], [value], len(args) + 1)
        where, args = f"{where} AND {test}", [*args, one]
    key = f"t.{quoted(kind.key)}"
    order = f"{key}"
    moment = table.columns.get(kind.time) if kind.time else None
    if moment is not None and moment.family in ("date", "timestamp", "timestamptz"):
        at = f"t.{quoted(moment.name)}"
        order = f"{at} DESC NULLS LAST, {key}"
        bounds = moments(span, moment.family)
        for sign, bound in ((">=", bounds.begin), ("<", bounds.end)):
            if bound is not None:
                args.append(bound)
                where += f" AND {at} {sign} ${len(args)}::text::{moment.family}"
    sql = (
        "SELECT count(*) OVER () AS total, x.* FROM"
        f" (SELECT s.{quoted(source.key)}::text AS parent, {key}::text AS key{_shown(columns, table)},"
        f" row_number() OVER (ORDER BY {order}) AS place"
        f" FROM {quoted_table(source.table)} AS s JOIN {quoted_table(kind.table)} AS t ON {join} WHERE {where}"
        f" ORDER BY {order} LIMIT {COUNTED + 1}) AS x ORDER BY x.place LIMIT {limit}"
    )
    return SelectStatement(sql, tuple(args), columns)


def moments(span: TimeSpan | None, family: Family) -> Moments:
    """A span's bounds for a column of this family: days of the span's own zone where the column knows none."""
    if span is None:
        return Moments(None, None)
    if family == "date":
        return Moments(_day(span.begin), _day(span.end, up=True))
    naive = family == "timestamp"
    begin, end = (each.replace(tzinfo=None) if each is not None and naive else each for each in span)
    return Moments(begin.isoformat() if begin else None, end.isoformat() if end else None)


def _day(at: datetime | None, *, up: bool = False) -> str | None:
    """`up`: of a bound within a day, the day after."""
    if at is None:
        return None
    return (at.date() + timedelta(days=up and at.time() != time())).isoformat()


def escape_like(text: str) -> str:
    """A text that LIKE takes for itself."""
    return re.sub(r"([\\%_])", r"\\\1", text)


def _there(kind: EntityType, table: Table) -> tuple[str, ...]:
    """What is wanted and still there."""
    return tuple(each for each in wanted_columns(kind) if each in table.columns)


def _shown(columns: Sequence[str], table: Table) -> str:
    """The columns as text, whatever the session's settings are."""
    return "".join(f", {_text(table.columns[each])} AS c{n}" for n, each in enumerate(columns))


def _text(column: DomainColumn) -> str:
    at = f"t.{quoted(column.name)}"
    match column.family:
        case "integer" | "number" | "boolean" | "uuid":
            return f"{at}::text"
        case "date":
            return f"to_char({at}, 'YYYY-MM-DD')"
        case "timestamp":
            return f"to_char({at}, 'YYYY-MM-DD HH24:MI')"
        case "timestamptz":
            return f"to_char({at} AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI \"UTC\"')"
        case "array":
            return f"left(array_to_string({at}, ', ', 'null'), {VALUE_CHARS + 1})"
        case _:
            return f"left({at}::text, {VALUE_CHARS + 1})"


def _equals(at: str, column: DomainColumn, values: Collection[str], n: int = 1) -> tuple[str, list[str]]:
    """A test of `at` against `$n`, and its value."""
    cast = None if column.is_array else _CASTS.get(column.type)
    fit = [each for each in values if _fits(each, cast)]
    return (f"{at} = ANY (${n}::text[]::{cast}[])" if cast else f"{at}::text = ANY (${n}::text[])"), fit


def sendable(text: str) -> bool:
    """Whether Postgres takes a text at all: no NUL, no lone surrogate."""
    return "\0" not in text and not any("\ud800" <= each <= "\udfff" for each in text)


def _fits(value: str, cast: str | None) -> bool:
    """Whether a text can be a value of that type at all: a cast that fails would fail the whole query."""
    if not value or len(value) > MAX_KEY_CHARS or not sendable(value):
        return False
    if cast == "bigint":
        return _INTEGER.fullmatch(value) is not None and value.isascii()
    if cast == "numeric":
        return _NUMERIC.fullmatch(value) is not None and value.isascii()
    if cast == "uuid":
        try:
            UUID(value)
        except ValueError:
            return False
    return True


def _joined(source: DomainColumn, target: DomainColumn) -> str:
    """Where the types differ, both are compared as text: slow, but right (`check` warns)."""
    cast = "" if joinable(source, target) else "::text"
    return f"t.{quoted(target.name)}{cast} = s.{quoted(source.name)}{cast}"


def joinable(one: DomainColumn, other: DomainColumn) -> bool:
    """Whether Postgres compares these without a cast."""
    if "other" in (one.family, other.family):
        return one.type == other.type and one.is_array == other.is_array
    numbers = {"integer", "number"}
    return one.family == other.family or {one.family, other.family} == numbers
