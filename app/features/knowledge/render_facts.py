"""What the rows of a business's own database say, as lines of a prompt (seed 004, "Domain Database Facts"), and which of them
are not as the ontology says. Pure.

    Customer Gai Media Entertainment (customer:gai_123): industry: Entertainment; status: Active; payment_terms: NET15
    Sales orders of Gai Media Entertainment, September 2024: SO-1052 (2024-09-22): status: in_fulfillment, total_amount: 2200
    — work orders: 1 in_progress; SO-1045 (2024-09-15): … — work orders: 2 done; 2 in all, total_amount 5700

A fact is one line, whatever stands in the rows. Sums are only told of rows that are all there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from msgspec import Struct

from app.context.question import TimeSpan
from app.context.resolution import DomainFact, DomainQuery, RowValue
from app.features.knowledge.domain_sql import COUNTED, VALUE_CHARS, Family, TraversalQuery, plural, to_one
from app.features.knowledge.ontology import LABEL_FIELD, EntityType, Strategy

# --- rows that are not as the ontology says ------------------------------------------------------------------------------
#
# A value out of range, one that is missing, a second row where there may be one: they are told as findings, and decide nothing
# by themselves.

MAX_FINDINGS = 10
"""Told of one query: a rule that does not fit breaks in every row."""


def breach(rule: Mapping[str, Any], value: str | None) -> str | None:
    """What is wrong with a value, as it is shown; None: nothing."""
    if value is None:
        return "is missing" if rule.get("required") else None
    if (known := rule.get("one_of")) and value not in known:
        return f"is {value}, none of {', '.join(known)}"
    least, most = rule.get("min"), rule.get("max")
    if least is None and most is None:
        return None
    number = decimal(value)
    if number is None:
        return f"is {value}, no number"
    if least is not None and number < Decimal(least):
        return f"is {value}, less than {least}"
    if most is not None and number > Decimal(most):
        return f"is {value}, more than {most}"
    return None


def decimal(value: object) -> Decimal | None:
    """The number that a text is."""
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def findings(ask: TraversalQuery, rows: Sequence[FactRow], read: Sequence[str]) -> tuple[str, ...]:
    """What is wrong with the rows of an ask. `read`: the columns that the table has."""
    kind = ask.type
    found = [
        f"{kind.name} {row.key}: {column} {told}"
        for row in rows
        for column, rule in kind.rules.items()
        if column in read and (told := breach(rule, row.values.get(column))) is not None
    ]
    if ask.relation is not None and to_one(ask.relation, ask.backwards):
        of: dict[str | None, set[str]] = defaultdict(set)
        for row in rows:
            of[row.parent].add(row.key)
        found += [
            f"{ask.relation.name} ({ask.relation.cardinality}): {parent} has {len(keys)} of {kind.name}"
            for parent, keys in of.items()
            if len(keys) > 1
        ]
    return tuple(found[:MAX_FINDINGS])


# --- facts ---------------------------------------------------------------------------------------------------------------

GROUPS = 5
"""Different values that rows are counted by; the others are counted together."""
NOTHING = "none"
_TOLD_TO: Mapping[Family, timedelta] = {
    "date": timedelta(days=1), "timestamp": timedelta(minutes=1), "timestamptz": timedelta(minutes=1)
}  # fmt: skip
"""How finely a moment is read (`domain_sql`)."""


class FactRow(Struct, frozen=True):
    """A row, ready to be shown: `values` by column, None where it is NULL. `parent`: the key of the row it was reached from."""

    key: str
    parent: str | None
    values: Mapping[str, str | None]


class QueryOutcome(Struct, frozen=True):
    """What an ask came to. `total`: rows that there are, up to COUNTED + 1; `families`: of the columns; `error`: why there is
    nothing; `query`: as it is noted."""

    ask: TraversalQuery
    rows: tuple[FactRow, ...] = ()
    total: int = 0
    families: Mapping[str, Family] | None = None
    onward: tuple[QueryOutcome, ...] = ()
    error: str | None = None
    query: DomainQuery | None = None

    @property
    def whole(self) -> bool:
        """Whether these are all the rows that there are."""
        return self.error is None and self.total <= len(self.rows)

    def each(self) -> Iterator[QueryOutcome]:
        """It and all below it."""
        yield self
        for below in self.onward:
            yield from below.each()


def shown(value: str | None, family: Family) -> str | None:
    """A value that the database wrote, as a person would: one line, of a length that is bounded. None: it says nothing."""
    if value is None or not value.strip():
        return None
    if family == "number":
        number = decimal(value)
        if number is not None and number == number.to_integral_value() and abs(number) < Decimal(10) ** 18:
            return f"{number:.0f}"
        return value
    if family == "timestamptz":
        return value.removesuffix(" 00:00 UTC")
    if family == "timestamp":
        return value.removesuffix(" 00:00")
    line = " ".join("".join(each if each.isprintable() else " " for each in value[: VALUE_CHARS + 1]).split())
    return line if len(value) <= VALUE_CHARS else line[:VALUE_CHARS].rstrip() + "…"


def name_of(kind: EntityType, row: FactRow) -> str:
    """What a row is called: its type's label, filled in; a column that is empty leaves a gap, and an empty name the key."""
    name = " ".join(LABEL_FIELD.sub(lambda found: row.values.get(found[1]) or "", kind.label).split())
    bare = " ".join(LABEL_FIELD.sub("", kind.label).split())
    return name if name and name != bare else row.key


def entity_id(kind: EntityType, key: str) -> str:
    """As memories have it: "customer:gai_123"."""
    return f"{kind.name}:{key}"


def facts(told: Sequence[QueryOutcome]) -> tuple[DomainFact, ...]:
    """The lines, each thing's own first."""
    return tuple(fact for root in told for part in root.each() if (fact := _fact(part)) is not None)


def row_values(told: Sequence[QueryOutcome], queried_at: datetime) -> dict[str, dict[str, RowValue]]:
    """What rows say where memories may say something, by thing and predicate. An empty field says nothing; a value that
    is not as the ontology says decides nothing: the user is asked."""
    found: dict[str, dict[str, RowValue]] = {}
    for part in (part for root in told for part in root.each()):
        kind = part.ask.type
        for row in part.rows:
            changed = changed_at(row.values.get(kind.changed or ""), (part.families or {}).get(kind.changed or ""))
            for predicate, column in kind.predicates.items():
                if (value := row.values.get(column)) is not None:
                    doubtful = breach(kind.rules.get(column, {}), value) is not None
                    strategy: Strategy = "ask_user" if doubtful else kind.conflicts.get(predicate, "trust_db")
                    said = RowValue(kind.domain, kind.table, column, value, strategy, queried_at, changed)
                    found.setdefault(entity_id(kind, row.key), {})[predicate] = said
    return found


def changed_at(value: str | None, family: Family | None) -> datetime | None:
    """When a row was changed at the latest, of what `shown` made of it: the end of that minute or day, so that a row which may
    be the later one counts as such. Without a zone it is UTC. None: the row does not say."""
    step = _TOLD_TO.get(family or "other")
    if value is None or step is None:
        return None
    try:
        return datetime.fromisoformat(value.removesuffix(" UTC")).replace(tzinfo=UTC) + step
    except (ValueError, OverflowError):  # infinity, 44 BC
        return None


def _fact(told: QueryOutcome) -> DomainFact | None:
    ask = told.ask
    if told.error is not None or not ask.listed:
        return None
    text = _own(told) if ask.relation is None else _list(told)
    if text is None:
        return None
    subject = f"{ask.type.domain}/{ask.entity.id}/{ask.type.name}"
    if ask.span is not None:
        subject += f"/{when(ask.span)}"
    subject += "".join(f"/{column}={value}" for column, value in ask.where)
    return DomainFact(subject, ask.entity.id, ask.type.name, text)


def _own(told: QueryOutcome) -> str | None:
    if not told.rows:
        return None
    kind, row = told.ask.type, told.rows[0]
    name, noun = name_of(kind, row), kind.name.replace("_", " ")
    called = name if name.casefold().startswith(noun) else f"{noun.capitalize()} {name}"
    time_of = (kind.time,) if kind.time and kind.time not in kind.show else ()
    said = "; ".join(_said(row, (*kind.show, *time_of)))
    return f"{called} ({entity_id(kind, row.key)}){f': {said}' if said else ''}"


def _list(told: QueryOutcome) -> str:
    ask, noun = told.ask, told.ask.type.name.replace("_", " ")
    single = ask.relation is not None and to_one(ask.relation, ask.backwards) and told.whole and len(told.rows) < 2
    nouns = (noun if single else plural(noun)).capitalize()
    which = "".join(f", {column.replace('_', ' ')} {value}" for column, value in ask.where)
    head = f"{nouns} of {ask.entity.name}{f', {when(ask.span)}' if ask.span else ''}{which}"
    if not told.rows:
        return f"{head}: {NOTHING}"
    tail = "" if single else f"; {_tail(told)}"
    return f"{head}: {'; '.join(_line(told, row) for row in told.rows)}{tail}"


def _line(told: QueryOutcome, row: FactRow) -> str:
    kind = told.ask.type
    title = row.values.get(kind.title) or row.key
    at = row.values.get(kind.time) if kind.time else None
    said = ", ".join(_said(row, [each for each in kind.show if each not in (kind.title, kind.time)]))
    counted = [text for below in told.onward if not below.ask.listed and (text := _beside(below, row.key))]
    line = f"{title}{f' ({at})' if at else ''}{f': {said}' if said else ''}"
    return f"{line} — {', '.join(counted)}" if counted else line


def _beside(told: QueryOutcome, parent: str) -> str | None:
    """What a row has, counted by the first column that its type shows."""
    rows = [each for each in told.rows if each.parent == parent]
    if not rows or not told.whole:
        return None
    kind = told.ask.type
    noun = kind.name.replace("_", " ")
    column = next(iter(kind.show), None)
    if column is None or (told.families or {}).get(column) in ("number", "integer"):
        return f"{plural(noun) if len(rows) > 1 else noun}: {len(rows)}{_sums(told, rows)}"
    counts = Counter(each.values.get(column) or "?" for each in rows).most_common()
    said = [f"{count} {value}" for value, count in counts[:GROUPS]]
    if more := sum(count for _, count in counts[GROUPS:]):
        said.append(f"{more} other")
    return f"{plural(noun)}: {', '.join(said)}"


def _tail(told: QueryOutcome) -> str:
    more = told.total - len(told.rows)
    if more > 0:
        return f"and {'more than ' if told.total > COUNTED else ''}{more - (told.total > COUNTED)} more"
    return f"{len(told.rows)} in all{_sums(told, told.rows)}"


def _sums(told: QueryOutcome, rows: Sequence[FactRow]) -> str:
    """The sums of what is shown and is a number of something, where every row has one; of what rows share there is none."""
    kind, families, relation = told.ask.type, told.families or {}, told.ask.relation
    found: list[str] = []
    if relation is None or relation.cardinality == "many_to_many" or to_one(relation, told.ask.backwards):
        return ""
    for column in kind.show:
        if (
            families.get(column) not in ("number", "integer")
            or column in (kind.key, kind.title)
            or column.endswith("_id")
        ):
            continue
        numbers = [decimal(each.values.get(column)) for each in rows]
        if len(numbers) > 1 and None not in numbers:
            total = sum((each for each in numbers if each is not None), Decimal(0))
            found.append(f", {column} {shown(str(total), 'number')}")
    return "".join(found)


def _said(row: FactRow, columns: Sequence[str]) -> Iterator[str]:
    return (f"{each}: {row.values[each]}" for each in columns if row.values.get(each) is not None)


def when(span: TimeSpan) -> str:
    """A span as one says it: "September 2024", "2024", "2024-09-15", "2024-09-01 to 2024-09-14"."""
    if span.begin is None or span.end is None:
        if span.begin is not None:
            return f"since {span.begin:%Y-%m-%d}"
        return f"before {span.end:%Y-%m-%d}" if span.end is not None else "at any time"
    first, last = span.begin.date(), (span.end - timedelta(microseconds=1)).date()
    after = last + timedelta(days=1)
    if first.day == 1 and after.day == 1 and first == last.replace(day=1):
        return f"{first:%B %Y}"
    if (first.month, first.day, after.month, after.day) == (1, 1, 1, 1) and after.year == first.year + 1:
        return f"{first.year}"
    return str(first) if first == last else f"{first} to {last}"


def days(span: TimeSpan) -> list[str | None]:
    """First and last day of a span, as seed 004's `date_range` has them; None: open."""
    last = span.end - timedelta(microseconds=1) if span.end is not None else None
    return [each.date().isoformat() if each is not None else None for each in (span.begin, last)]
