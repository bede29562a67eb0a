"""Which rows of a business's own database a question needs, from what it names along the ontology's relations (seed 004,
"ontology expansion"), and the SQL that reads them. Pure.

    the thing's own row
    what the question has a word for ("orders"), within its span, newest first, by the shortest way
    what that has in turn: "customer --[HAS_MANY]--> sales_orders --[CREATES]--> work_orders", counted beside it
    everything one step away, a few rows of each, where the question asks for whatever there is ("tell me about …")

Relations are walked both ways. A walk is bounded in hops, rows, queries and things, and visits no type twice.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, time, timedelta
from functools import lru_cache
from typing import Literal, NamedTuple
from uuid import UUID

from msgspec import Struct, field

from app.context.question import Asked, TimeSpan
from app.context.resolution import Entity, Resolution
from app.features.knowledge.ontology import EntityType, Ontology, Relation, label_columns
from app.memory.episodes import SoughtRows

QUESTION_CHARS = 2000
"""Characters of a question in which words are looked for, as `context/question.py` has it."""

_ONWARD = ("one_to_many", "one_to_one")
"""What is counted beside a row is what it has, not what it belongs to."""


class WalkLimits(Struct, frozen=True):
    """`hops`: from a thing (seed 004's example takes two). `rows`: of one query; `few`: of one where everything is asked for.
    `total`: rows in all, and `queries`. `things`: that are asked about."""

    hops: int = 2
    rows: int = 20
    few: int = 5
    total: int = 100
    queries: int = 12
    things: int = 3


USUAL_LIMITS = WalkLimits()


class TraversalQuery(Struct, frozen=True):
    """Rows of `type` that belong to `entity`: its own (no `relation`), or those that `relation` leads to from the rows of the
    ask above (`backwards`: from its target to its source). `listed`: told row by row, else counted beside the rows above.
    `onward`: what is asked for from these rows. `where`: what their columns are to say, where a habit asks for them."""

    type: EntityType
    entity: Entity
    relation: Relation | None = None
    backwards: bool = False
    span: TimeSpan | None = None
    limit: int = 1
    listed: bool = True
    onward: tuple[TraversalQuery, ...] = ()
    where: tuple[tuple[str, str], ...] = ()


def to_one(relation: Relation, backwards: bool) -> bool:
    """Whether a step leads from a row to one at most: to what it belongs to."""
    return relation.cardinality in ("one_to_one", "one_to_many" if backwards else "many_to_one")


class Edge(NamedTuple):
    """A step: from one type to another, in the relation's direction or against it."""

    relation: Relation
    backwards: bool
    target: str


class _Node(Struct):
    type: str
    edge: Edge | None = None
    listed: bool = True
    span: TimeSpan | None = None
    limit: int = 0
    onward: list[_Node] = field(default_factory=list)


def plan(
    resolutions: Sequence[Resolution],
    question: str,
    span: TimeSpan | None,
    ontology: Ontology,
    limits: WalkLimits = USUAL_LIMITS,
    widened: Sequence[str] = (),
    rows: Sequence[SoughtRows] = (),
) -> Sequence[TraversalQuery]:
    """What to ask the domains. `span`: the time that the question speaks of. `widened`, `rows`: what procedures add to look
    for; rows that the question itself asks for are not narrowed."""
    text = _without(question[:QUESTION_CHARS], resolutions)
    wanted = spoken_of([text, *widened, *(each.kind for each in rows)], ontology)
    everything = Asked(question, named=True).strategy == "exploratory"
    where: dict[str, tuple[tuple[str, str], ...]] = {}
    if rows and not everything:
        own = spoken_of([text], ontology)
        for each in reversed(rows):
            where.update(dict.fromkeys(spoken_of([each.kind], ontology) - own, each.where))
    things = {each.entity.id: each.entity for each in resolutions if each.entity is not None}
    known = [each for each in things.values() if each.type in ontology.types][: limits.things]
    roots = [_Node(each.type, limit=1) for each in known]
    left = limits.queries - len(roots)
    for root in roots:
        left = _grow(root, wanted, everything, span, ontology, limits, left)
    return tuple(_ask(root, entity, ontology, where) for root, entity in zip(roots, known, strict=True))


def spoken_of(texts: Iterable[str], ontology: Ontology) -> frozenset[str]:
    """The types that texts have a word for: the longest counts, so that "work orders" are no orders, and "payment terms", which
    a row says, no payments."""
    types = ontology.types.values()
    words = _words(
        tuple((each.name, each.words) for each in types), tuple(said for each in types for said in each.predicates)
    )
    if not words:
        return frozenset()
    pattern = _pattern(tuple(words))
    return frozenset(
        kind for text in texts for match in pattern.findall(text.casefold()) for kind in words[_same(match)]
    )


def edges(kind: str, ontology: Ontology) -> Iterator[Edge]:
    """The steps from a type: along its own relations first."""
    for each in ontology.relations:
        if each.source == kind and each.target in ontology.types:
            yield Edge(each, False, each.target)
    for each in ontology.relations:
        if each.target == kind and each.source in ontology.types:
            yield Edge(each, True, each.source)


def _grow(
    root: _Node,
    wanted: frozenset[str],
    everything: bool,
    span: TimeSpan | None,
    ontology: Ontology,
    limits: WalkLimits,
    left: int,
) -> int:
    """Adds to a thing's own row what a question needs; the queries that are left."""
    first = list(edges(root.type, ontology)) if limits.hops else []
    listed: list[_Node] = []
    for edge in first:
        if left and edge.target != root.type and (edge.target in wanted or everything):
            few = limits.rows if edge.target in wanted else limits.few
            node = _Node(edge.target, edge, limit=few, span=span if ontology.types[edge.target].time else None)
            root.onward.append(node)
            listed.append(node)
            left -= 1
    near = {each.target for each in first} | {root.type}
    for kind in sorted(wanted - near):
        way = _way(root.type, kind, ontology, limits.hops)
        if way and len(way) <= left:
            left = _along(root, way, span, ontology, limits, left)
    for node in listed:
        above = node.edge
        if node.type not in wanted or limits.hops < 2 or above is None or to_one(above.relation, above.backwards):
            continue
        taken = {root.type, node.type, *(each.type for each in node.onward)}
        for edge in edges(node.type, ontology):
            counted = not edge.backwards and edge.relation.cardinality in _ONWARD
            if left and counted and edge.target not in taken:
                node.onward.append(_Node(edge.target, edge, listed=False, limit=limits.total))
                left -= 1
    return left


def _along(
    root: _Node, way: Sequence[Edge], span: TimeSpan | None, ontology: Ontology, limits: WalkLimits, left: int
) -> int:
    """Adds a way of several steps, of which only the last is listed. The span is of what is asked for, else of what is on the
    way."""
    at = root
    timed = [ontology.types[each.target].time is not None for each in way]
    when = len(way) - 1 if timed[-1] else timed.index(True) if any(timed) else None
    for n, edge in enumerate(way):
        last = n == len(way) - 1
        known = None if last else next((each for each in at.onward if each.edge == edge), None)
        if known is None:
            known = _Node(edge.target, edge, listed=last, limit=limits.rows, span=span if n == when else None)
            at.onward.append(known)
            left -= 1
        at = known
    return left


def _way(start: str, end: str, ontology: Ontology, hops: int) -> tuple[Edge, ...] | None:
    """The shortest way, in the ontology's order; None: none within `hops`."""
    ways: list[tuple[Edge, ...]] = [()]
    seen = {start}
    for _ in range(hops):
        longer: list[tuple[Edge, ...]] = []
        for way in ways:
            for edge in edges(way[-1].target if way else start, ontology):
                if edge.target in seen:
                    continue
                seen.add(edge.target)
                longer.append((*way, edge))
                if edge.target == end:
                    return longer[-1]
        ways = longer
    return None


def _ask(
    node: _Node, entity: Entity, ontology: Ontology, where: Mapping[str, tuple[tuple[str, str], ...]]
) -> TraversalQuery:
    return TraversalQuery(
        ontology.types[node.type],
        entity,
        node.edge.relation if node.edge else None,
        node.edge.backwards if node.edge else False,
        node.span,
        node.limit,
        node.listed,
        tuple(_ask(each, entity, ontology, where) for each in node.onward),
        where.get(node.type, ()) if node.edge and node.listed else (),
    )


# --- words ---------------------------------------------------------------------------------------------------------------


def _without(question: str, resolutions: Sequence[Resolution]) -> str:
    """A question without the names in it: "Delta Account Services" asks for no account."""
    for each in resolutions:
        end = each.start + len(each.mention)
        if question[each.start : end] == each.mention:
            question = f"{question[: each.start]}{' ' * len(each.mention)}{question[end:]}"
    return question


@lru_cache(64)
def _words(types: tuple[tuple[str, tuple[str, ...]], ...], predicates: tuple[str, ...]) -> Mapping[str, frozenset[str]]:
    """The types of each word, in one and in many; a predicate is a word for none."""
    found: dict[str, set[str]] = {}
    for name, words in types:
        for word in (*words, name.replace("_", " ")):
            for each in (word, plural(word)):
                found.setdefault(_same(each), set()).add(name)
    for said in predicates:
        found.setdefault(_same(said), set())
    return {word: frozenset(kinds) for word, kinds in found.items()}


@lru_cache(64)
def _pattern(words: tuple[str, ...]) -> re.Pattern[str]:
    longest = sorted(words, key=len, reverse=True)
    return re.compile(
        rf"(?<!\w)(?:{'|'.join(re.escape(each).replace(chr(92) + ' ', '[ _-]+') for each in longest)})(?!\w)"
    )


def _same(word: str) -> str:
    return " ".join(re.split(r"[ _-]+", word.casefold()))


def plural(noun: str) -> str:
    """More than one of it, in English, without the exceptions; a word that ends in s stays."""
    if re.search(r"[^aeiou]y$", noun):
        return noun[:-1] + "ies"
    if re.search(r"(?:x|ch|sh|z)$", noun):
        return noun + "es"
    return noun if noun.endswith("s") else noun + "s"


# --- SQL -----------------------------------------------------------------------------------------------------------------
#
# It is made from the ontology and nothing else; no other file writes SQL outside `sql/`. Names are quoted, values are always
# bound (as text, and cast by the server to the column's own type, so that its index is used); every statement is one SELECT.
# What a model or a user said is never more than a bound value.
#
# A row comes back as text, ready to be shown: `total` rows there are (up to `COUNTED` + 1), `parent` the key of the row it
# was reached from, `key` its own, then `c0`, `c1` … the columns that were asked for.

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
    order = key
    moment = table.columns.get(kind.time) if kind.time else None
    if moment is not None and moment.family in ("date", "timestamp", "timestamptz"):
        at = f"t.{quoted(moment.name)}"
        order = f"{at} DESC NULLS LAST, {key}"
        for sign, bound in zip((">=", "<"), moments(span, moment.family), strict=True):
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


def moments(span: TimeSpan | None, family: Family) -> tuple[str | None, str | None]:
    """A span's bounds in the terms of a column of this family, as text (None: open): days of the span's own zone where the
    column knows none."""
    if span is None:
        return None, None
    if family == "date":
        return _day(span.begin), _day(span.end, up=True)
    naive = family == "timestamp"
    begin, end = (each.replace(tzinfo=None) if each is not None and naive else each for each in span)
    return begin.isoformat() if begin else None, end.isoformat() if end else None


def _day(at: datetime | None, *, up: bool = False) -> str | None:
    """`up`: of a bound within a day, the day after."""
    if at is None:
        return None
    return (at.date() + timedelta(days=up and at.time() != time())).isoformat()


def escape_like(text: str) -> str:
    """A text that LIKE takes for itself."""
    return re.sub(r"([\\%_])", r"\\\1", text)


def _there(kind: EntityType, table: Table) -> tuple[str, ...]:
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
