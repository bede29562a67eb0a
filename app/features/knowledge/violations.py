"""Rows of a business's own database that are not as the ontology says: a value out of range, one that is missing, a second row
where there may be one. They are told as findings, and decide nothing by themselves. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from app.features.knowledge.graph_traversal import TraversalQuery, to_one
from app.features.knowledge.ontology import EntityType

if TYPE_CHECKING:
    from app.features.knowledge.render_facts import FactRow

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


def decimal(value: str) -> Decimal | None:
    """The number that a text is."""
    try:
        number = Decimal(value)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def breached(kind: EntityType, row: FactRow, column: str) -> bool:
    """Whether what a row says in a column is not to be believed."""
    rule = kind.rules.get(column)
    return rule is not None and breach(rule, row.values.get(column)) is not None


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
