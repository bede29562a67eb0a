"""What several indexes found, as one."""

from __future__ import annotations

from uuid import UUID

import numpy as np

from app.index.user_index import joined, without
from app.store.item_columns import PLACE, Scan, ids_of

SESSION = UUID(int=7)


def found(*items: int, words: dict[str, int], near: int = 0) -> Scan:
    places = np.zeros(len(items), PLACE)
    for n, item in enumerate(items):
        places["id"][n] = np.frombuffer(UUID(int=item).bytes, ">u8")
        places["session"][n] = np.frombuffer(UUID(int=item % 10).bytes, ">u8")
    counts = np.zeros((len(items) - near, 16), np.uint8)
    counts[:, : len(words)] = 1
    sims = np.full(near, 0.5, np.float32)
    return Scan(places, sims, counts, list(words), list(words.values()), 10, 4.0, 1.2, 0.75)


def test_items_keep_their_ids_and_a_word_is_as_rare_as_in_all_of_them() -> None:
    own = found(11, 12, words={"deploy": 3, "day": 1}, near=1)
    both = joined([own, found(21, 22, words={"billing": 2, "deploy": 1}, near=1)])
    assert ids_of(both.places) == [UUID(int=each).hex for each in (11, 21, 12, 22)]  # those with a cosine first
    assert (both.words, both.holding) == (["day", "billing", "deploy"], [1, 2, 4])
    assert both.counts[:, :3].tolist() == [[1, 0, 1], [0, 1, 1]]
    assert (both.counted, both.mean, len(both.sims)) == (20, 4.0, 2)


def test_what_stands_in_the_prompt_is_left_out() -> None:
    left = without(found(17, 18, 27, 28, words={"day": 2}, near=2), SESSION)
    assert ids_of(left.places) == [UUID(int=18).hex, UUID(int=28).hex]
    assert (len(left.sims), len(left.counts)) == (1, 1)
