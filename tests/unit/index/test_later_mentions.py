"""The index finds what the user said later with the telling words of an item."""

from __future__ import annotations

from uuid import UUID

import numpy as np

from app.index.analyse import pack
from app.index.later_mentions import MOST_LATER
from app.index.user_index import ENDED, NEVER, ItemRow, UserIndex
from app.store.item_columns import MEMORY_KIND, PLACE, speaker_mark
from tests.support.tables import each_of

USER, ASSISTANT = 1, 2
FILLER = [
    "What is the capital of Mongolia?", "Write a haiku about rain.", "How do I center a div?", "Give me a recipe for pancakes.",
    "蒙古的首都是哪里?", "给我一个煎饼的食谱。", "Wie lange kocht man ein Ei?", "Erkläre den Unterschied zwischen TCP und UDP.",
]  # fmt: skip


def item_id(number: int) -> UUID:
    return UUID(int=(number + 1) << 64 | 7)


def make_row(
    number: int, text: str, *, role: int = USER, kind: int = 0, session: int = 1, hides: int = 0, speaker: str = ""
) -> ItemRow:
    """An item that was made at the moment `number`."""
    place = np.zeros(1, PLACE)
    place["id"] = np.frombuffer(item_id(number).bytes, ">u8")
    place["session"] = np.frombuffer(UUID(int=session).bytes, ">u8")
    place["at"], place["turn"], place["tokens"], place["role"], place["kind"] = number, number, 10, role, kind
    place["speaker"] = speaker_mark(speaker) if speaker else 0
    return ItemRow(place.tobytes(), b"", pack(text), hides, NEVER)


def find(rows: list[ItemRow], memory: int, **place: object) -> list[int]:
    """The moments of the messages that are found for a memory."""
    index = UserIndex.of(rows, 0)
    found = index.find_later_words([item_id(memory).hex], **place)  # type: ignore[arg-type]
    return [(UUID(message).int >> 64) - 1 for message in found.of.get(item_id(memory).hex, ())]


def with_filler(*rows: ItemRow) -> list[ItemRow]:
    return [*(make_row(1000 + n, text, role=ASSISTANT) for n, text in enumerate(FILLER)), *rows]


@each_of(
    "memory, later",
    [
        ("Drives a blue VW Golf to the office", "Gave the Golf to my brother, I take the tram now."),
        ("Boyfriend's name is Marc", "Marc and I split up."),
        ("在阿里巴巴工作", "阿里巴巴我不去了。"),
        ("每天开大众高尔夫上班", "高尔夫送给我弟弟了。"),
        ("Wohnt in Kiel", "Aus Kiel bin ich weg."),
    ],
)
def test_a_later_message_with_a_telling_word_is_found(memory: str, later: str) -> None:
    rows = with_filler(make_row(1, memory, kind=MEMORY_KIND), make_row(2, later))
    assert find(rows, 1) == [2]


def test_neither_earlier_nor_unrelated_messages_nor_answers_nor_memories_are_found() -> None:
    rows = with_filler(
        make_row(1, "I want a Golf."),
        make_row(2, "Drives a Golf", kind=MEMORY_KIND),
        make_row(3, "A Golf is a car.", role=ASSISTANT),
        make_row(4, "Likes the Golf", kind=MEMORY_KIND),
        make_row(5, "I ride a horse."),
        make_row(6, "The Golf is gone.", hides=ENDED),
    )
    assert find(rows, 2) == []


def test_another_speakers_words_are_not_the_users() -> None:
    """Dave is another speaker, for a memory is about him; Carol's name is only that of the user."""
    rows = with_filler(
        make_row(1, "Drives a Golf", kind=MEMORY_KIND),
        make_row(2, "Dave: Drives a Golf", kind=MEMORY_KIND, speaker="Dave"),
        make_row(3, "I sold the Golf.", speaker="dave"),
        make_row(4, "The Golf is for sale.", speaker="Carol"),
        make_row(5, "The Golf needs tyres."),
    )
    assert find(rows, 1) == [4, 5]
    assert find(rows, 2) == [3]


def test_the_last_ones_are_told_the_latest_last() -> None:
    rows = with_filler(make_row(1, "Drives a Golf", kind=MEMORY_KIND), *(make_row(n, f"Golf {n}") for n in range(2, 7)))
    assert find(rows, 1) == [2, 3, 4, 5, 6][-MOST_LATER:]


def test_what_stands_in_the_prompt_is_not_told_again() -> None:
    rows = with_filler(
        make_row(1, "Drives a Golf", kind=MEMORY_KIND),
        make_row(2, "I sold the Golf.", session=2),
        make_row(3, "My Golf!"),
    )
    assert find(rows, 1, session=UUID(int=2)) == [3]
    assert find(rows, 1, ancestors=[UUID(int=1)]) == [2]


def test_a_word_that_everything_has_tells_nothing() -> None:
    rows = [make_row(n, f"golf lesson {n}") for n in range(2, 40)]
    assert find([make_row(1, "Plays golf", kind=MEMORY_KIND), *rows], 1) == []


def test_what_came_since_the_index_was_sorted_counts() -> None:
    index = UserIndex.of(with_filler(make_row(1, "Drives a Golf", kind=MEMORY_KIND)), 0)
    index = index.with_rows([make_row(2, "I sold the Golf.")])
    memory = item_id(1).hex
    assert index.find_later_words([memory]).of == {memory: [item_id(2).hex]}
    assert index.without([item_id(2)]).find_later_words([memory]).of == {}
    assert index.sorted().find_later_words([memory, item_id(77).hex]).of == {memory: [item_id(2).hex]}
