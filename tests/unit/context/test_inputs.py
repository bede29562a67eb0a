"""What is kept of a compile comes back as it was, in little space."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import numpy as np
import pytest

from app.context.candidates import Candidate
from app.context.inputs import Numbers, digest, pack, read, unpack
from app.context.score import AUTO, PROFILES, TRI_LAYER
from tests.support.context_samples import memory, message

NOW = datetime(2026, 11, 22, 12, 0, 0, 123456, UTC)


def f4(value: float) -> float:
    return float(np.float32(value))


def items() -> list[Candidate]:
    used = memory(
        1, confidence=f4(0.7), importance=f4(0.3), access_count=12, last_accessed_at=NOW, provenance_type=3,
        near_text=f4(0.1), near_vector=f4(-0.9), origin=UUID(int=9), similarity=f4(0.25), timely=f4(0.6),
        reinforcements=4, sure_since=NOW,
    )  # fmt: skip
    return [used, message(3, near_text=1.0, named=1.0), memory(2)]


def test_numbers_come_back_exactly() -> None:
    found = items()
    packed = pack([each.id for each in found], found[::-1], TRI_LAYER)
    one, two, three = unpack(packed, [each.source for each in found])
    assert one == Numbers(f4(0.1), f4(-0.9), 0.0, True, f4(0.25), f4(0.7), f4(0.3), 12, NOW, 3, f4(0.6))
    assert two == Numbers(1.0, 0.0, 1.0, False, similarity=two.similarity)
    assert three.last_accessed_at is None


def test_what_the_profile_does_not_ask_for_is_not_kept() -> None:
    found = items()
    packed = pack([each.id for each in found], found, AUTO)
    assert set(packed) == {"ranked", "counted", "sure", "odds"}
    assert {each.similarity for each in unpack(packed, [each.source for each in found])} == {None}
    assert pack([], [], TRI_LAYER) == {}
    assert unpack({}, []) == []


def test_the_strategies_of_seed_004_have_how_sure_a_memory_is() -> None:
    found = items()
    packed = pack([each.id for each in found], found, PROFILES["exploratory"])
    one, two, three = unpack(packed, [each.source for each in found])
    assert (one.reinforcements, one.sure_since, one.similarity) == (4, NOW, f4(0.25))
    assert (two.reinforcements, two.sure_since) == (three.reinforcements, three.sure_since) == (0, None)


def test_it_takes_little_space() -> None:
    """Some 24 characters a message, 62 a memory: what a compile keeps of its audit is ten times that."""
    messages = [message(n) for n in range(1, 41)]
    memories = [memory(100 + n, last_accessed_at=NOW) for n in range(10)]
    both = [*messages, *memories]
    packed = pack([each.id for each in both], both, AUTO)
    assert sum(map(len, packed.values())) <= 40 * 24 + 10 * 68 + 16


def test_numbers_of_other_items_are_refused() -> None:
    found = items()
    packed = pack([each.id for each in found], found, AUTO)
    with pytest.raises(ValueError, match="3 numbers for 4 items"):
        unpack(packed, ["memory", "message", "memory", "message"])
    with pytest.raises(ValueError, match="for 3 items"):
        unpack({}, ["memory", "message", "memory"])


def test_other_inputs_are_not_read() -> None:
    assert read({}) is None
    assert read({"v": 99}) is None


def test_a_digest_is_of_what_is_stored() -> None:
    assert digest("a\0b") == digest("a\ufffdb")
    assert digest("a") != digest("b")
    assert len(digest("é" * 1000)) == 32
