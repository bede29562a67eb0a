"""A prompt's tokens as sections of a bar, and candidates as rows."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.context.score import AUTO
from app.features.ui import call_prompt
from app.features.ui.call_prompt import Section, segments, spending
from tests.support.tables import each_of

BUDGET = {
    "window": 8000, "system": 100, "reserve": 1000, "tools": 50, "available": 6850, "client": 30,
    "memory": 1500, "live": 200, "history": 400,
}  # fmt: skip


def account(**changes: Any) -> dict[str, Any]:
    sections = {
        "facts": {"budget": 55, "tokens": 24, "chosen": [], "dropped": []},
        "memories": {"budget": 1500, "tokens": 376},
        "history": {"budget": 3000, "tokens": 400},
    }
    return {"budget": BUDGET, "sections": sections, "tokens": 1000} | changes


def item(**changes: Any) -> dict[str, Any]:
    signals = dict.fromkeys(AUTO.weights, 0.0) | {"text": 0.5, "vector": 0.25, "excess": 0.5}
    made = {"id": "a", "source": "memory", "kind": "fact", "tier": 3, "score": 0.5, "signals": signals, "chosen": True}
    return (
        made
        | {"reason": "chosen", "token_count": 9, "legs": ["text"], "provenance": [], "text": "Ana plays chess."}
        | changes
    )


def test_the_sections_are_all_of_the_window() -> None:
    spent = spending(account())
    by_key = {each.key: each.tokens for each in spent.sections}
    # 1,000 that Mneme added: 400 history, 200 of earlier blocks, 400 of this turn's, 24 of them facts.
    assert by_key["memories"] == 376
    assert spent.prompt == 100 + 50 + 30 + 1000
    assert sum(by_key.values()) == spent.window == 8000
    assert by_key["free"] == 8000 - 1180 - 1000
    assert [each.key for each in spent.sent][-1] == "client"


def test_a_prompt_beyond_its_window_has_nothing_free() -> None:
    spent = spending(account(budget=BUDGET | {"client": 9000}))
    assert spent.sections[-1].tokens == 0


def test_sections_without_tokens_are_named_beside_the_table() -> None:
    spent = spending(account(tokens=600))
    assert "memories" in [each.key for each in spent.empty]


@given(st.lists(st.integers(0, 10**7), max_size=12))
def test_a_bar_is_filled_from_end_to_end(tokens: list[int]) -> None:
    made = segments([Section(str(n), "", each, "", "") for n, each in enumerate(tokens)])
    assert len(made) == sum(each > 0 for each in tokens)
    if made:
        assert made[0].x == 0
        assert made[-1].x + made[-1].width == pytest.approx(call_prompt.BAR, abs=0.5)
        assert all(each.width >= call_prompt.LEAST for each in made)
        for one, other in pairwise(made):
            assert other.x == pytest.approx(one.x + one.width, abs=0.05)


def test_signals_say_what_they_add_where_the_weights_make_the_score() -> None:
    score = 0.5 * AUTO.weights["text"] + 0.25 * AUTO.weights["vector"] + 0.5 * AUTO.weights["excess"]
    (row,) = call_prompt.rows([item(score=score)], "auto", 1.0)
    assert {part.name: round(part.adds or 0, 4) for part in row.parts} == {"words": 0.5, "meaning": 0.2, "length": -0.2}
    assert [part.share for part in row.parts] == [0.5, 0.25, 0.5]


@each_of(("strategy", "score"), [("auto", 9.0), ("of_another_version", 0.5)])
def test_other_weights_are_not_guessed(strategy: str, score: float) -> None:
    (row,) = call_prompt.rows([item(score=score)], strategy, 1.0)
    assert all(part.adds is None for part in row.parts)


def test_long_texts_are_folded_and_cut() -> None:
    (row,) = call_prompt.rows([item(text="x" * 30_000)], "auto", 1.0)
    assert row.folded
    assert row.text is not None
    assert len(row.text) + row.rest == 30_000
    (gone,) = call_prompt.rows([item(text=None)], "auto", 1.0)
    assert gone.text is None
    assert not gone.folded


@each_of(("show", "ids"), [("all", "abc"), ("chosen", "a"), ("dropped", "bc"), ("duplicate", "c"), ("x", "")])
def test_candidates_are_picked(show: str, ids: str) -> None:
    items = [item(), item(id="b", chosen=False, reason="over_budget"), item(id="c", chosen=False, reason="duplicate")]
    assert "".join(each["id"] for each in call_prompt.picked(items, show)) == ids


def test_all_bars_have_one_scale() -> None:
    assert call_prompt.highest([item(), item(signals={"excess": 2.5})]) == 2.5
    assert call_prompt.highest([]) == 1.0
