"""What the resolution of mentions is told, and what it asks a business's own database. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from app.context.known import Entity


class Who(NamedTuple):
    """Whose names count. `user` None: nobody's (a confined session), only what the whole tenant knows."""

    tenant: UUID
    user: UUID | None


class Said(NamedTuple):
    """A message before the one that is resolved."""

    role: str
    text: str


class Wanted(NamedTuple):
    """What is looked for in the business's own database. `types`: of an identifier; (): all that are found by name."""

    mention: str
    types: tuple[str, ...]


class Found(NamedTuple):
    """A row that a mention may mean. `key`: the row's, of `column`; `exact`: the mention is its key, not only (a part of) its
    name."""

    mention: str
    entity: Entity
    table: str
    column: str
    key: str
    domain: str
    properties: Mapping[str, Any]
    exact: bool


class Sought(NamedTuple):
    """What a search came to. `away`: not everything was searched in time, so that what is not here may be there."""

    found: Sequence[Found] = ()
    away: bool = False


class Finder(Protocol):
    """The business's own database. Raises nothing: one that is away has nothing, and says so."""

    async def find(self, tenant: UUID, mentions: Sequence[Wanted]) -> Sought: ...
