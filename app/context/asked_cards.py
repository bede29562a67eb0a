"""The cards that a user's message asks for, as the compiler knows them. Who keeps them (`Feature.cards`) tells them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from app.context.assemble import Block
from app.context.notes import Count, NoteLines


class TellsCards(Protocol):
    """Of cards what there is to tell beside the blocks that stay in the prompt."""

    @property
    def new(self) -> bool:
        """Whether there is one that no earlier block tells."""

    def wants(self, count: Count, budget: int) -> int:
        """Tokens that it would take, as far as they matter: beyond `budget` nothing is counted."""

    def tell(self, said: NoteLines, budget: int, count: Count) -> None:
        """Add those that fit to what is said, and their figures to its account. After all other lines: see
        `facts_section.shown`."""


class CardsRead(Protocol):
    """The cards that were found, in their order."""

    @property
    def ids(self) -> Sequence[UUID]:
        """Theirs, whether they are told or not."""

    def beside(self, blocks: Sequence[Block]) -> TellsCards:
        """Of them what is to be told beside the blocks that stay in the prompt."""


class AskedCards(Protocol):
    """The cards that one request asks for. Nothing here raises."""

    async def cards(self) -> CardsRead | None:
        """They, in their order; None: they were not read in time."""

    def close(self) -> None:
        """Nobody waits any more."""


class Read(NamedTuple):
    """An `AskedCards` of what is read already."""

    found: CardsRead

    async def cards(self) -> CardsRead | None:
        return self.found

    def close(self) -> None:
        return None
