"""Letters, read four at a time: each gets the answer that was recorded for it, in whatever order they arrive."""

from __future__ import annotations

import asyncio

import pytest

from support_desk.triage import triage

pytestmark = pytest.mark.usefixtures("mneme_replay")

LETTERS = {
    "My parcel has not come, and the birthday is tomorrow!": ("delivery", True),
    "The bars were broken. I want my money back.": ("refund", False),
    "Your nougat is the best in town.": ("praise", False),
    "Do you hire?": ("other", False),
    "When will my parcel come?": ("delivery", False),
}


def test_letters_are_sorted() -> None:
    found = asyncio.run(triage(list(LETTERS)))
    assert [(each.topic, each.urgent) for each in found] == list(LETTERS.values())
