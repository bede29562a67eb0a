"""What a customer says once is known the next time: two conversations, with nothing but the customer's name in common."""

from __future__ import annotations

import pytest

from support_desk.desk import Desk

pytestmark = pytest.mark.usefixtures("mneme_replay")


def test_a_customer_is_known_again() -> None:
    with Desk("mia") as desk:
        desk.answer("I am allergic to hazelnuts, please keep that in mind.")
    with Desk("mia") as desk:
        answer = desk.answer("Which chocolate do you recommend to me?")
    assert "hazelnut" in answer


def test_somebody_else_is_not_told() -> None:
    with Desk("leo") as desk:
        answer = desk.answer("Which chocolate do you recommend to me?")
    assert "hazelnut" not in answer
