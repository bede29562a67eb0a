"""What ranking knows of an item, as it comes from the database."""

from __future__ import annotations

from uuid import UUID

import numpy as np

from app.store.item_columns import PLACE, columns_of, speaker_mark

SESSION = UUID("5f0c1a52-0000-4000-8000-0123456789ab")


def packed(item: UUID, session: UUID, turn: int, tokens: int, role: int, kind: int, speaker: int) -> bytes:
    """As `agent_data.item_place` does it."""
    numbers = ((0, 8), (turn, 4), (tokens, 4), (role, 2), (kind, 2), (speaker, 4))
    return item.bytes + session.bytes + b"".join(value.to_bytes(size, "big") for value, size in numbers)


def test_ids_that_are_nearly_alike_are_told_apart() -> None:
    ids = [UUID(int=(n << 64) + m) for n in range(60) for m in range(60)]
    numbers = columns_of(np.frombuffer(b"".join(packed(each, SESSION, 1, 1, 1, 0, 0) for each in ids), PLACE)).item
    assert len(set(numbers.tolist())) == len(ids)


def test_a_speaker_is_known_by_the_first_name() -> None:
    assert speaker_mark("Maria Lopez") == speaker_mark("maria") != speaker_mark("Mario")
