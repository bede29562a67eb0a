"""Two compiles of one request, compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import orjson
import pytest

from app.context.audit import explain
from app.context.candidates import Candidate
from app.context.pack import PlainMeter, efficiency, pack
from app.context.score import TRI_LAYER, QuerySignals, score
from app.features.replay.routes import compare
from tests.support.context_samples import NOW, memory, message


def audit(items: Sequence[Candidate], budget: int = 1000) -> dict[str, Any]:
    """As it is stored."""
    packed = pack(score(items, QuerySignals(), TRI_LAYER, NOW), budget, PlainMeter(), order="score")
    told = {
        "status": "ok",
        "reason": None,
        "budget": {"window": 8192, "memory": budget},
        "task": "continuation",
        "strategy": "tri_layer",
        "placement": "tail",
        "rebased": None,
        "live_blocks": 0,
        "tokens": packed.tokens,
        "sections": {},
        "history": {"source": "client", "messages": 1, "tokens": 10},
    }
    eta = efficiency(packed.chosen, packed.eligible, budget)
    stored: dict[str, Any] = orjson.loads(orjson.dumps(explain(packed, eta, told)))
    return stored


def changes(told: Mapping[str, Any]) -> dict[int, tuple[str, int | None, int | None]]:
    return {UUID(each["id"]).int: (each["change"], each["was"]["rank"], each["now"]["rank"]) for each in told["items"]}


A, B, C = memory(1, similarity=0.9), memory(2, similarity=0.6), message(3, similarity=0.3)


def test_the_same_is_kept() -> None:
    told = compare(audit([A, B, C]), audit([C, B, A]), {})
    assert changes(told) == {1: ("kept", 1, 1), 2: ("kept", 2, 2), 3: ("kept", 3, 3)}
    assert told["changes"] == {"kept": 3, "moved": 0, "rescored": 0, "new": 0, "gone": 0}
    assert told["tokens"]["was"] == told["tokens"]["now"]
    assert told["eta"]["was"] == told["eta"]["now"] == pytest.approx(audit([A, B, C])["eta"]["eta"])
    assert told["considered"] == {"was": 3, "now": 3}


def test_a_new_one_does_not_move_the_others() -> None:
    told = compare(audit([A, C]), audit([A, B, C]), {})
    assert changes(told) == {1: ("kept", 1, 1), 2: ("new", None, 2), 3: ("kept", 2, 3)}
    assert told["items"][1]["was"] == {"rank": None, "score": None, "reason": "not_found", "signals": {}}


def test_what_changed_places_is_moved_and_what_changed_its_score_is_rescored() -> None:
    told = compare(audit([A, B, C]), audit([A._replace(similarity=0.95), B, C._replace(similarity=0.8)]), {})
    assert changes(told) == {1: ("rescored", 1, 1), 3: ("moved", 3, 2), 2: ("moved", 2, 3)}
    first = told["items"][0]
    assert first["now"]["score"] - first["was"]["score"] > 0.019
    assert (first["was"]["signals"]["similarity"], first["now"]["signals"]["similarity"]) == (0.9, 0.95)
    almost = compare(audit([A]), audit([A._replace(similarity=0.90001)]), {})
    assert changes(almost) == {1: ("kept", 1, 1)}


def test_what_is_gone_says_why() -> None:
    told = compare(audit([A, B, C]), audit([A, B], budget=10), {str(UUID(int=3)): "forgotten"})
    assert changes(told) == {1: ("kept", 1, 1), 2: ("gone", 2, None), 3: ("gone", 3, None)}
    reasons = {UUID(each["id"]).int: each["now"]["reason"] for each in told["items"]}
    assert reasons == {1: "chosen", 2: "over_budget", 3: "forgotten"}
    assert changes(compare(audit([A]), audit([]), {})) == {1: ("gone", 1, None)}
    assert compare(audit([A]), audit([]), {})["items"][0]["now"]["reason"] == "not_found"


def test_nothing_compared_with_nothing() -> None:
    told = compare(audit([]), audit([]), {})
    assert (told["items"], sum(told["changes"].values())) == ([], 0)
