"""Two compiles of one request, compared item by item: what is in the prompt still, what is new there, what is gone, and why.

Pure: two explanations as they are stored (`audit.explain`) in, one comparison out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

from app.context.audit import DIGITS, expand

Change = Literal["kept", "moved", "rescored", "new", "gone"]

TOLERANCE = 1.5 * 10**-DIGITS
"""Scores are stored rounded: a difference below that is none."""
NOT_FOUND = "not_found"
"""The reason of an item that one of the two compiles did not look at."""


def compare(before: Mapping[str, Any], after: Mapping[str, Any], fates: Mapping[str, str]) -> dict[str, Any]:
    """The difference of two compiles. `fates`: why items of `before` cannot be what they were (forgotten, not_in_force).

    Items are those that either has in its prompt, in the order of `after`, what is gone last; each with its place among the
    chosen (`rank`, from 1), score, signals and reason in both. `moved`: its place among those that both have is another.
    """
    one, two = _items(before), _items(after)
    ranks = _ranks(one), _ranks(two)
    chosen = [*ranks[1], *(each for each in ranks[0] if each not in ranks[1])]
    both = [[each for each in rank if each in ranks[0] and each in ranks[1]] for rank in ranks]
    places = [{each: n for n, each in enumerate(order)} for order in both]
    items = []
    for identity in chosen:
        was, now = one.get(identity), two.get(identity)
        known = now or was
        assert known is not None, "it is chosen in one of them"
        change = _change(identity, ranks, places, was, now)
        items.append(
            {name: known[name] for name in ("id", "source", "kind", "provenance")}
            | {
                "change": change,
                "was": _side(was, ranks[0].get(identity), NOT_FOUND),
                "now": _side(now, ranks[1].get(identity), fates.get(identity, NOT_FOUND)),
            }
        )
    counts = Counter(each["change"] for each in items)
    figures = ("tokens", "task", "strategy", "placement", "rebased", "live_blocks", "sections")
    return {
        "items": items,
        "changes": {name: counts[name] for name in ("kept", "moved", "rescored", "new", "gone")},
        "considered": {"was": _considered(before), "now": _considered(after)},
        "eta": {"was": before["eta"]["attainable"], "now": after["eta"]["attainable"]},
        "budget": {"was": dict(before["budget"]), "now": dict(after["budget"])},
        "history": {"was": dict(before["history"]), "now": dict(after["history"])},
    } | {name: {"was": before[name], "now": after[name]} for name in figures}


def _change(
    identity: str,
    ranks: tuple[Mapping[str, int], Mapping[str, int]],
    places: list[dict[str, int]],
    was: Mapping[str, Any] | None,
    now: Mapping[str, Any] | None,
) -> Change:
    if identity not in ranks[0]:
        return "new"
    if identity not in ranks[1]:
        return "gone"
    assert was is not None, "both have it"
    assert now is not None, "both have it"
    if places[0][identity] != places[1][identity]:
        return "moved"
    return "rescored" if abs(was["score"] - now["score"]) > TOLERANCE else "kept"


def _side(item: Mapping[str, Any] | None, rank: int | None, otherwise: str) -> dict[str, Any]:
    if item is None:
        return {"rank": None, "score": None, "reason": otherwise, "signals": {}}
    return {"rank": rank, "score": item["score"], "reason": item["reason"], "signals": item["signals"]}


def _items(audit: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["id"]: each for each in expand(audit)["items"]}


def _ranks(items: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """The chosen, by id, with their places from 1: they stand first, in the order in which they were packed."""
    return {each: n for n, each in enumerate((key for key, item in items.items() if item["chosen"]), 1)}


def _considered(audit: Mapping[str, Any]) -> int:
    return len(audit["items"]["id"]) + int(audit["omitted"])
