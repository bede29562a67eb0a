"""Sentences of business talk and the things that they name, labelled by hand (tests/fixtures/mentions-*.txt); and the business
that they are about.

A line: `text ⇒ mention = id by stage; mention ? id, id by stage` (`?`: ambiguous, the alternatives in any order); nothing after
the arrow: it names none. Messages before it stand in front, `U: … | A: … |`. The rules were written with `tuning` in view;
`heldout` came afterwards, and moved one of them: a sentence's first word alone is a name before a verb such as "says".
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from app.context.resolution import EarlierMessage, Entity
from app.features.knowledge.ontology import EntityType, Ontology
from app.features.knowledge.resolution import FoundEntities, FoundRow, RowQuery, normalise

FIXTURES = Path(__file__).parents[1] / "fixtures"
SETS = ("tuning", "heldout")


class Gold(NamedTuple):
    """`things`: one, or, where it is ambiguous, all that it may mean."""

    mention: str
    things: frozenset[str]
    stage: str


class Labelled(NamedTuple):
    recent: tuple[EarlierMessage, ...]
    text: str
    gold: tuple[Gold, ...]


def labelled(name: str) -> list[Labelled]:
    """The cases of a set."""
    cases = []
    for line in (FIXTURES / f"mentions-{name}.txt").read_text(encoding="utf-8").splitlines():
        said, _, names = line.partition(" ⇒")
        *before, text = said.split(" | ")
        recent = tuple(EarlierMessage("user" if each.startswith("U: ") else "assistant", each[3:]) for each in before)
        cases.append(Labelled(recent, text, tuple(_gold(each) for each in names.split(";") if each.strip())))
    return cases


def _gold(text: str) -> Gold:
    rest, _, stage = text.rpartition(" by ")
    mention, _, things = rest.strip().rpartition(" = " if " = " in rest else " ? ")
    return Gold(mention, frozenset(each.strip() for each in things.split(",")), stage.strip())


# --- the business --------------------------------------------------------------------------------------------------------


def _type(name: str, identifier: str | None, *words: str) -> EntityType:
    return EntityType(name, "erp", f"{name}s", "id", "name", "{name}", identifier=identifier, words=words)


ONTOLOGY = Ontology(
    {
        each.name: each
        for each in (
            _type("customer", None, "customer", "client", "account"),
            _type("contact", None, "contact", "person"),
            _type("product", r"[A-Z]{2}-\d{3}[A-Z]?", "product", "item"),
            _type("sales_order", r"SO-\d+", "order", "sales order"),
            _type("work_order", r"WO-\d+", "work order"),
            _type("invoice", r"INV-\d{4}-\d+", "invoice"),
        )
    },
    version=1,
)

KNOWN: Sequence[tuple[str, str]] = (
    ("customer:gai_123", "Gai Media Entertainment"),
    ("customer:acme_1", "Acme Corporation"),
    ("customer:delta_1", "Delta Industries"),
    ("customer:delta_2", "Delta Foods"),
    ("customer:tc_1", "TechCorp Solutions"),
    ("customer:kai", "Kai & Brothers"),
    ("customer:north_1", "Northwind Traders"),
    ("customer:bakery", "Smith's Bakery"),
    ("customer:bmw_1", "Bayerische Motoren Werke"),
    ("customer:zurich", "Zürich Logistik AG"),
    ("customer:three_m", "3M"),
    ("customer:obrien", "O'Brien Plumbing"),
    ("customer:att", "AT&T"),
    ("contact:ana", "Ana Lopez"),
    ("contact:joao", "João Silva"),
    ("contact:smith_1", "John Smith"),
    ("contact:smith_2", "John Smith"),
    ("contact:wei", "Wei Zhang"),
    ("contact:mary", "Mary O'Connor"),
    ("product:vortex", "Vortex Blender"),
    ("product:aurora", "Aurora Desk Lamp"),
    ("product:ultra", "UltraWidget Pro"),
    ("product:mini", "Widget Mini"),
)
"""Things that the whole tenant knows."""
TENANT_ALIASES = (
    ("Gai Media", "customer:gai_123"),
    ("BMW", "customer:bmw_1"),
    ("Northwind", "customer:north_1"),
    ("TC", "customer:tc_1"),
    ("Jumbo", "customer:north_1"),
)
OWN_ALIASES = (("Jumbo", "customer:acme_1"),)
"""The user's, which come first."""
ROWS: Sequence[tuple[str, str, str]] = (
    ("sales_order", "SO-1001", "Sales Order SO-1001"),
    ("sales_order", "SO-1002", "Sales Order SO-1002"),
    ("sales_order", "SO-1052", "Sales Order SO-1052"),
    ("work_order", "WO-5001", "Work Order WO-5001"),
    ("work_order", "WO-5002", "Work Order WO-5002"),
    ("invoice", "INV-2024-001", "Invoice INV-2024-001"),
    ("product", "AB-100", "Anvil, small"),
    ("product", "AB-200A", "Anvil, large"),
    ("customer", "helios", "Helios Energy"),
    ("customer", "orion_1", "Orion Shipping"),
    ("customer", "orion_2", "Orion Textiles"),
    ("contact", "priya", "Priya Nair"),
)
"""What only the business's own database has: type, key, name."""


class Rows:
    """A business's own database in memory, as a `Finder`: keys by themselves, names by their parts (seed 004)."""

    def __init__(self, rows: Sequence[tuple[str, str, str]] = ROWS) -> None:
        self._rows = rows
        self.asked: list[RowQuery] = []
        self.away = False

    async def find(self, tenant: UUID, mentions: Sequence[RowQuery]) -> FoundEntities:
        self.asked += mentions
        if self.away:
            return FoundEntities(away=True)
        found = [
            _found(each, *row)
            for each in mentions
            for row in self._rows
            if (row[0] in each.types and row[1].casefold() == each.mention.casefold())
            or (not each.types and normalise(each.mention) in normalise(row[2]))
        ]
        return FoundEntities(found)


def _found(wanted: RowQuery, kind: str, key: str, name: str) -> FoundRow:
    entity = Entity(f"{kind}:{key.casefold().replace('-', '_')}", kind, name)
    return FoundRow(wanted.mention, entity, f"{kind}s", "id", key, "erp", {"name": name}, exact=bool(wanted.types))
