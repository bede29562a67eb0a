"""What the tests of resolution share: the labelled business in the tables, and how well its sentences are resolved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

import asyncpg

from app.context.resolution import Resolution, Who
from app.features.knowledge.resolution import normalise
from app.features.knowledge.resolve import Resolver
from app.store.ids import NIL
from tests.support.labelled_mentions import KNOWN, ONTOLOGY, OWN_ALIASES, TENANT_ALIASES, Labelled
from tests.support.rows import insert_row, read_aliases

STAGES = ("exact", "known_alias", "fuzzy", "coreference", "disambiguation", "domain_db")


async def add_entity(
    admin: asyncpg.Connection[Any], tenant: UUID, entity: str, name: str, user: UUID | None = None
) -> None:
    """A thing: a user's, or the tenant's."""
    await insert_row(
        admin, "canonical_entities", user_id=user or NIL, tenant_id=tenant, entity_id=entity,
        entity_type=entity.partition(":")[0], canonical_name=name, name_norm=normalise(name),
    )  # fmt: skip


async def add_alias(
    admin: asyncpg.Connection[Any],
    tenant: UUID,
    alias: str,
    entity: str,
    user: UUID | None = None,
    *,
    source: str = "learned",
    confidence: float = 0.95,
    uses: int = 1,
    last_used_at: datetime | None = None,
) -> None:
    """An alias: a user's, or the tenant's."""
    await insert_row(
        admin, "entity_aliases", user_id=user or NIL, tenant_id=tenant, alias_norm=normalise(alias), entity_id=entity,
        alias_text=alias, alias_source=source, confidence=confidence, use_count=uses,
        last_used_at=last_used_at or datetime.now(UTC),
    )  # fmt: skip


async def add_business(admin: asyncpg.Connection[Any], who: Who) -> None:
    """The business of the labelled sentences, as far as it is known already."""
    for entity, name in KNOWN:
        await add_entity(admin, who.tenant, entity, name)
    for alias, entity in TENANT_ALIASES:
        await add_alias(admin, who.tenant, alias, entity)
    for alias, entity in OWN_ALIASES:
        await add_alias(admin, who.tenant, alias, entity, who.user)


class Figures(NamedTuple):
    """Of each stage: mentions that are labelled so, that were found so, and that are both. `wrong`: what differs."""

    gold: Counter[str]
    found: Counter[str]
    right: Counter[str]
    wrong: list[str]

    def precision(self, stage: str | None = None) -> float:
        """Of what was found, the share that is right."""
        return _share(self.right, self.found, stage)

    def recall(self, stage: str | None = None) -> float:
        """Of what there is, the share that was found."""
        return _share(self.right, self.gold, stage)


def _share(right: Counter[str], of: Counter[str], stage: str | None) -> float:
    most = of[stage] if stage is not None else of.total()
    return (right[stage] if stage is not None else right.total()) / most if most else 1.0


async def measure(resolver: Resolver, who: Who, cases: Sequence[Labelled], now: datetime) -> Figures:
    """Resolve every sentence, and compare."""
    figures = Figures(Counter(), Counter(), Counter(), [])
    for case in cases:
        found = (await resolver.study(who, case.text, case.recent, ONTOLOGY, now=now)).resolutions
        got: Counter[tuple[str, frozenset[str], str]] = Counter(
            (each.mention, _things(each), each.method or "") for each in found
        )
        gold = Counter((each.mention, each.things, each.stage) for each in case.gold)
        right = got & gold
        for counter, counted in ((figures.gold, gold), (figures.found, got), (figures.right, right)):
            for (_, _, stage), number in counted.items():
                counter[stage] += number
        if got != gold:
            missed, extra = list(gold - right), list(got - right)
            figures.wrong.append(f"{case.text}: missed {missed}, found {extra}")
    return figures


def _things(found: Resolution) -> frozenset[str]:
    if found.entity is not None:
        return frozenset((found.entity.id,))
    return frozenset(each.entity.id for each in found.alternatives)


async def add_user(admin: asyncpg.Connection[Any], who: Who, name: str) -> None:
    """A user."""
    await insert_row(admin, "users", user_id=who.user, tenant_id=who.tenant, external_id=name)


async def alias_rows(admin: asyncpg.Connection[Any], alias: str) -> list[dict[str, Any]]:
    """All that an alias is to anybody, by thing."""
    return await read_aliases(admin, alias_norm=normalise(alias))
