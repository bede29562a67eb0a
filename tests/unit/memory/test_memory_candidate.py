"""Candidates in the making: what they are about."""

from __future__ import annotations

from app.memory.candidate import entities
from tests.support.tables import each_of


@each_of(
    ("content", "value", "expected"),
    [
        ("Lives in Lisbon", "Lisbon", ("lisbon",)),
        ("Works at St Mary's Hospital", "St Mary's Hospital", ("st-mary-s-hospital",)),
        ("Does not want posts longer than 800 words", "posts longer than 800 words", ("posts", "words")),
        ("Likes tea", "tea", ("tea",)),
        ("Likes it", "it", ()),
        ("Likes Bach, Bach and Bach", "Bach, Bach and Bach", ("bach",)),
    ],
)
def test_entities(content: str, value: str, expected: tuple[str, ...]) -> None:
    assert entities(content, value) == expected
