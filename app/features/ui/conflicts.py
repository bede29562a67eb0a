"""Contradictions: both sides, what was decided and why, and deciding what is open."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from starlette.responses import Response

from app.features.ui.rendering import pretty, url
from app.features.ui.visit import Entry, Refused, Visit, or_refused

ROWS = 50
TYPES = {
    "memory_vs_memory": "memory against memory",
    "memory_vs_db": "memory against the business's row",
    "temporal": "two times",
}
STRATEGIES = {
    "trust_db": "The business's own database is the authority here.",
    "trust_recent": "What is later stands.",
    "ask_user": "The user is asked; until then nobody decides, and the memory is in doubt.",
    "both": "Both stand, until somebody decides.",
}
ACTIONS = {
    "keep_both": "Both stand.",
    "keep_memory": "The memory stands.",
    "supersede_memory": "The memory that does not stand gave way.",
    "close_earlier": "Both are right in their time: the earlier one was closed when the later one began.",
    "row_agrees": "The row came to say what the memory says.",
    "row_changed": "The row says something else by now; that is a contradiction of its own.",
}
BY = {"yes": "the user, who said yes", "no": "the user, who said no", "corrected": "the user, who said what is right"}
"""By `user_response`; what somebody kept by hand has `keep`."""
LABEL_CHARS = 60
"""Of a value, in the label of a choice."""
DECIDED = {
    "memory": "The memory stands.",
    "other": "The second memory stands.",
    "domain": "The business's row stands; the memory is invalidated.",
    "both": "Both stand.",
}
"""By what is kept: what the notice says."""


class ConflictSide(Struct, frozen=True):
    """One side of a contradiction. `memory`: its id; None: a row of the business's own. `stands`: None: nobody has decided."""

    title: str
    value: str
    memory: str | None
    told: Sequence[tuple[str, str]]
    at: str | None
    stands: bool | None


class ConflictChoice(Struct, frozen=True):
    """A way to decide. `keep`: as the route takes it; `effect`: what follows."""

    keep: str
    label: str
    effect: str


def sides(conflict: Mapping[str, Any]) -> list[ConflictSide]:
    """Both sides as they were when it was noticed."""
    data, outcome = conflict["data"], conflict["outcome"] or {}
    decided = conflict["status"] == "resolved" and outcome.get("action") != "row_changed"
    row = data.get("db_source")
    told = [data["memory"]] if "memory" in data else list(data.get("memories") or ())
    titles = ("The memory",) if len(told) == 1 else ("The first memory", "The second memory", "Another")
    made = []
    for n, each in enumerate(told):
        memory = str(each.get("memory_id"))
        made.append(
            ConflictSide(
                title=titles[min(n, len(titles) - 1)],
                value=_word(each.get("value")),
                memory=memory,
                told=[("Sure", f"{each['confidence']:.2f}")] if isinstance(each.get("confidence"), int | float) else [],
                at=each.get("stated_at") or each.get("created_at"),
                stands=_stands(memory, outcome) if decided else None,
            )
        )
    if row:
        made.append(
            ConflictSide(
                title="The business's own row",
                value=_word(row.get("value")),
                memory=None,
                told=[("Field", f"{row.get('table')}.{row.get('field')}"), ("Database", str(row.get("domain")))],
                at=row.get("queried_at"),
                stands=outcome.get("action") != "keep_memory" if decided else None,
            )
        )
    return made


def choices(conflict: Mapping[str, Any]) -> list[ConflictChoice]:
    """All ways in which an open one can be decided, each with what is said then."""
    said = {each.memory: f": {_shortened(each.value)}" for each in sides(conflict)}
    first, *others = [said.get(each, "") for each in conflict["memory_ids"]] or [""]
    two, row = bool(others), "db_source" in conflict["data"]
    loser = "the second one is superseded by it" if two else "the row is not followed"
    name = f"The {'first ' * two}memory{first}"
    made = [ConflictChoice("memory", name, f"It is in force and confirmed; {loser}.")]
    if two:
        name = f"The second memory{others[0]}"
        made.append(ConflictChoice("other", name, "It is in force and confirmed; the first is superseded by it."))
    if row:
        name = f"The business's row{said.get(None, '')}"
        made.append(ConflictChoice("domain", name, "The memory is invalidated, and no prompt quotes it any more."))
    made.append(ConflictChoice("both", "Both", "Both stay as they are, and are in doubt for this reason no more."))
    return made


def _shortened(value: str) -> str:
    return value if len(value) <= LABEL_CHARS else f"{value[:LABEL_CHARS]}…"


def _stands(memory: str, outcome: Mapping[str, Any]) -> bool:
    """Whether a memory was left in force by what was decided."""
    if "winner" in outcome:
        return str(outcome["winner"]) == memory
    became = {str(each.get("memory_id")): each.get("new_status") for each in outcome.get("memory_updates") or ()}
    return became.get(memory) not in ("superseded", "invalidated", "expired")


def _word(value: object) -> str:
    return value if isinstance(value, str) else "–" if value is None else pretty(value)


async def listed(visit: Visit) -> Response:
    """GET /ui/conflicts: what is open, unless something else is asked for."""
    status = visit.query("status", "open")
    filters = {name: visit.query(name) for name in ("type", "user", "entity")}
    empty: dict[str, Any] = {"conflicts": [], "next": None}
    asked = visit.api.get(
        "conflicts", status=None if status == "all" else status, **filters, limit=ROWS, cursor=visit.query("cursor")
    )
    page, refused = await or_refused(asked, empty)
    return visit.render(
        "conflicts.html",
        status=400 if refused else 200,
        page=page,
        wanted=status,
        filters=filters,
        problem=refused.message if refused else None,
        types=TYPES,
        sides=sides,
        more=url("conflicts", status=status, **filters, cursor=page["next"]),
    )


async def one(visit: Visit) -> Response:
    """GET /ui/conflicts/{conflict}. `keep`: how it is about to be decided; the page asks whether it is meant."""
    conflict = await visit.api.get("conflicts", visit.segment("conflict"))
    ways = choices(conflict) if conflict["status"] == "open" else []
    both = sides(conflict)
    known = [each.memory for each in both if each.memory is not None]
    memories = await asyncio.gather(*(_memory(visit, each, conflict["user"]) for each in known))
    return visit.render(
        "conflict.html",
        conflict=conflict,
        sides=both,
        memories=dict(zip(known, memories, strict=True)),
        choices=ways,
        chosen=next((each for each in ways if each.keep == visit.query("keep")), None),
        types=TYPES,
        by=BY.get((conflict["outcome"] or {}).get("user_response", "")),
        strategy=STRATEGIES.get(conflict["strategy"] or "", conflict["strategy"]),
        action=ACTIONS.get((conflict["outcome"] or {}).get("action", ""), (conflict["outcome"] or {}).get("action")),
        pretty=pretty,
    )


async def _memory(visit: Visit, memory: str, user: str | None) -> Any:
    try:
        return await visit.api.get("memories", memory, user=user)
    except Refused:
        return None  # forgotten since, or nobody's


async def decide(visit: Visit) -> Response:
    given = await visit.form()
    keep, note = str(given.get("keep", "")), str(given.get("note", "")).strip()
    body = {"keep": keep} | ({"note": note} if note else {})
    conflict = visit.segment("conflict")
    await visit.api.send("POST", "conflicts", conflict, "resolve", body=body)
    return visit.redirect(url("conflicts", conflict), f"Decided. {DECIDED[keep]}")


ROUTES = (
    Entry("/conflicts", listed),
    Entry("/conflicts/{conflict}", one),
    Entry("/conflicts/{conflict}/resolve", decide, ("POST",)),
)
