"""Which rows a question needs, from what it names along the ontology's relations (seed 004, "ontology expansion"). Pure.

    the thing's own row
    what the question has a word for ("orders"), within its span, newest first, by the shortest way
    what that has in turn: "customer --[HAS_MANY]--> sales_orders --[CREATES]--> work_orders", counted beside it
    everything one step away, a few rows of each, where the question asks for whatever there is ("tell me about …")

Relations are walked both ways. A walk is bounded in hops, rows, queries and things, and visits no type twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct, field

from app.context.question import Asked, TimeSpan
from app.context.resolution import Entity, Resolution
from app.features.knowledge.ontology import EntityType, Ontology, Relation
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
    """A part of the tree as it grows."""

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


# --- words ------------------------------------------------------------------------------------------------------------


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
