"""app/features/cards/keeper.py: the tool that a model is given."""

from __future__ import annotations

from app.features.cards.keeper import TOOL, Wish


def test_the_tool_takes_what_the_route_takes() -> None:
    assert set(TOOL["function"]["parameters"]["properties"]) == set(Wish.model_fields)
