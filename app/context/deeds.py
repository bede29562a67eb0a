"""What Mneme did because the user's message asked for it, as a block tells it: a sentence of Mneme's own, with the memories
that it names."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from app.context.assemble import neutralise


class Deed(NamedTuple):
    """`words`: the sentence, with `{named}` where it names `items` (id and text). Without the texts it quotes nobody, and may
    be kept."""

    words: str
    items: tuple[tuple[UUID, str], ...] = ()

    @property
    def sentence(self) -> str:
        """As the block says it."""
        return self.words.replace(NAMED, "; ".join(neutralise(text) for _, text in self.items))


NAMED = "{named}"
